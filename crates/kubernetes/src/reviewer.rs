//! Whose token a Task has: asked of the API server by a TokenReview, once per token and minute.
//!
//! What must hold:
//! - what cannot be right by its own claims costs no request;
//! - one review of a token at a time, however many calls bring it, and a bounded number and rate of all;
//! - an answer is kept under the token's digest, no longer than `callers.cache` and never past the token's expiry;
//! - refusals have a room of their own: whoever sends wrong tokens pushes no right one out;
//! - that a review fails is our trouble and never the token's.

mod limits;
mod verdict;

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{Api, api::PostParams};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use transponder_core::{Caller, Timestamp};
use transponder_runtime::{
    Clock, Context, Fault,
    auth::{Accounts, CallersConfig, TokenFile, TokenReviewer},
    outage::Outage,
};

use self::{
    limits::Limits,
    verdict::{Metrics, Verdict},
};
use crate::{
    Access, Kind,
    cache::{Cache, Digest},
};

/// Most tokens that are known to be good.
const GOOD: usize = 4096;
/// Most tokens that are known to be refused.
const REFUSED: usize = 1024;
/// How long a refusal is known, at most: what made it wrong may be mended.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// When to come again after trouble.
const AGAIN: Duration = Duration::from_secs(2);

/// Reviews tokens.
pub struct Reviewer {
    /// Asked first; without a file it knows nobody.
    file: Arc<TokenFile>,
    desk: Arc<Desk>,
}

struct Desk {
    access: Access,
    audience: String,
    keep: Duration,
    accounts: Accounts,
    clock: Arc<dyn Clock>,
    memory: Mutex<Memory>,
    limits: Limits,
    metrics: Metrics,
    outage: Outage,
}

/// What is known, and what is being asked. One lock for all of it, so that no token falls between the two.
struct Memory {
    good: Cache<Caller>,
    refused: Cache<Fault>,
    asked: HashMap<Digest, watch::Receiver<Option<Verdict>>>,
}

impl Reviewer {
    /// Reviews by this API server, which need not be there yet. Tokens of the file, if one is configured, are known
    /// without it.
    ///
    /// # Errors
    /// When the file or a glob is bad.
    pub fn new(access: &Access, config: &CallersConfig, context: &Context) -> Result<Arc<Self>, String> {
        let memory = Memory { good: Cache::new(GOOD), refused: Cache::new(REFUSED), asked: HashMap::new() };
        let desk = Desk {
            access: access.clone(),
            audience: config.audience.clone(),
            keep: config.cache,
            accounts: Accounts::new(config)?,
            clock: context.clock.clone(),
            memory: Mutex::new(memory),
            limits: Limits::new(access.patience()),
            metrics: Metrics::register(&context.metrics),
            outage: Outage::new("reviewing tokens"),
        };
        Ok(Arc::new(Self { file: TokenFile::load(config, context)?, desk: Arc::new(desk) }))
    }
}

impl TokenReviewer for Reviewer {
    fn review<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Caller>, Fault>> + Send + 'a>> {
        Box::pin(async move {
            match self.file.owner(token) {
                Some(caller) => Ok(Some(caller)),
                None => self.desk.answer(token).await.map(Some),
            }
        })
    }
}

impl Desk {
    async fn answer(self: &Arc<Self>, token: &str) -> Result<Caller, Fault> {
        let expires = verdict::plausible(token, &self.audience, self.clock.wall())?;
        match self.look_up(Sha256::digest(token).into(), token, expires) {
            Ok(verdict) => verdict.into(),
            Err(mut asked) => match asked.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(verdict)) => verdict.clone().into(),
                _ => Err(undecided("the review has died")),
            },
        }
    }

    /// What is known of a token, or where the answer will be.
    fn look_up(
        self: &Arc<Self>,
        digest: Digest,
        token: &str,
        expires: Timestamp,
    ) -> Result<Verdict, watch::Receiver<Option<Verdict>>> {
        let mut memory = self.memory();
        let now = Instant::now();
        if let Some(caller) = memory.good.get(&digest, now) {
            return Ok(Verdict::Accepted(caller));
        }
        if let Some(fault) = memory.refused.get(&digest, now) {
            return Ok(Verdict::Refused(fault));
        }
        if let Some(asked) = memory.asked.get(&digest) {
            return Err(asked.clone());
        }
        if memory.asked.len() >= limits::WAITING {
            return Ok(Verdict::Undecided(undecided("too many tokens wait for their review")));
        }
        let (tell, asked) = watch::channel(None);
        memory.asked.insert(digest, asked.clone());
        // On a task of its own: the call that came first may be given up, and the others still wait for the answer.
        tokio::spawn(self.clone().settle(digest, token.to_owned(), expires, tell));
        Err(asked)
    }

    async fn settle(
        self: Arc<Self>,
        digest: Digest,
        token: String,
        expires: Timestamp,
        tell: watch::Sender<Option<Verdict>>,
    ) {
        let place = Place { desk: &self, digest };
        let asked_at = Instant::now();
        let verdict = self.ask(token).await;
        let left = Duration::try_from(expires.duration_since(self.clock.wall())).unwrap_or_default();
        let now = Instant::now();
        let mut memory = self.memory();
        match &verdict {
            Verdict::Accepted(caller) => {
                memory.good.insert(digest, caller.clone(), asked_at + self.keep.min(left), now);
            }
            Verdict::Refused(fault) => {
                memory.refused.insert(digest, fault.clone(), asked_at + self.keep.min(REFUSED_FOR), now);
            }
            Verdict::Undecided(_) => {}
        }
        drop(memory);
        drop(place);
        tell.send_replace(Some(verdict));
    }

    /// Asks the API server, when it is this token's turn.
    async fn ask(&self, token: String) -> Verdict {
        let Some(_turn) = self.limits.turn().await else {
            return Verdict::Undecided(undecided("too many tokens wait for their review"));
        };
        let spec = TokenReviewSpec { audiences: Some(vec![self.audience.clone()]), token };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.access.client());
        let create = async { reviews.create(&PostParams::default(), &review).await };
        match self.access.call("review a token", create).await {
            Ok(review) => {
                self.outage.worked();
                let verdict = self.judge(review.status.unwrap_or_default());
                self.metrics.answered(&verdict);
                verdict
            }
            Err(error) => {
                self.outage.failed(&error);
                self.metrics.failed(error.kind == Kind::Refused);
                let wait = error.retry_after.unwrap_or(AGAIN);
                Verdict::Undecided(undecided("the token cannot be reviewed now").retry_after(Some(wait)))
            }
        }
    }

    fn judge(&self, status: TokenReviewStatus) -> Verdict {
        let refused = |why: &str| Verdict::Refused(Fault::unauthenticated(why).reason("TOKEN"));
        if status.authenticated != Some(true) {
            tracing::debug!(error = status.error, "a token is refused by the API server");
            return refused("the token is not valid");
        }
        if !status.audiences.unwrap_or_default().contains(&self.audience) {
            return refused("the API server does not confirm the token's audience");
        }
        let user = status.user.and_then(|user| user.username).unwrap_or_default();
        let account = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let Some((namespace, name)) = account else {
            return refused("the token is not that of a ServiceAccount");
        };
        let account = format!("{namespace}/{name}");
        self.accounts.caller(&account).map_or_else(
            || {
                tracing::warn!(account, "call refused: the account is not listed");
                let why =
                    format!("{account} is neither in callers.app_accounts nor in callers.platform_accounts");
                Verdict::Refused(Fault::denied(why).reason("ACCOUNT_NOT_LISTED"))
            },
            Verdict::Accepted,
        )
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token's place among those that are asked for, given back even when the review dies.
struct Place<'a> {
    desk: &'a Desk,
    digest: Digest,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.desk.memory().asked.remove(&self.digest);
    }
}

fn undecided(why: &str) -> Fault {
    Fault::unavailable(why).reason("TOKEN_REVIEW").retry_after(Some(AGAIN))
}
