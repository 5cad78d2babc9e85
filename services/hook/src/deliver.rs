//! Posting until the edge has the event or the deadline is over.

use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use transponder_core::retry::Backoff;
use url::Url;

use crate::{
    console::Console,
    credential::{Credential, NoCredential, Wallet},
    deadline::Deadline,
    error::{Error, Problem},
    post::{self, Meaning},
    token::Token,
    trust::Roots,
};

/// Between attempts. A relay that restarts is back within seconds.
const ATTEMPTS: Backoff = Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(5) };
/// Between looks for a token. The API server serves others too.
const LOOKS: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(1) };
/// Longest wait that a server is granted; the deadline cuts it further.
const MAX_ASKED: Duration = Duration::from_secs(30);
/// How long a token that is newer than a refused one is waited for. A rotation reaches both sides within seconds or
/// within minutes; waiting for the minutes would hold up every release of a cluster whose token is simply wrong.
const NEWER_TOKEN: Duration = Duration::from_secs(3);

/// How a delivery went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// HTTP status, 2xx.
    pub status: u16,
    /// How many posts it took.
    pub attempts: u32,
}

/// What is needed to deliver.
#[derive(Debug)]
pub struct Courier<'a> {
    /// Where to.
    pub url: &'a Url,
    /// Where the token comes from.
    pub wallet: Wallet,
    /// File of the relay's CAs; first choice before those of the Secret and the system's.
    pub ca_file: Option<PathBuf>,
    /// The budget.
    pub deadline: Deadline,
}

impl Courier<'_> {
    /// Posts `body` until it is delivered.
    ///
    /// # Errors
    /// When it is not: the deadline is over, the answer is final, or the configuration turns out wrong.
    pub fn deliver(&self, body: &[u8], console: &mut Console<'_>) -> Result<Delivered, Error> {
        let mut refused = Vec::new();
        let mut attempts: u32 = 0;
        let mut credential = self.credential(&refused, console)?;
        let mut trust = Trust::of(self);
        loop {
            attempts = attempts.saturating_add(1);
            let roots = trust.roots(&credential, console)?;
            let result = post::post(self.url, &roots, &credential.token, body, self.deadline.slice());
            let (reason, asked) = match result {
                Ok(answer) => {
                    let summary = answer.summary(&credential.token);
                    if answer.meaning() != Meaning::Delivered {
                        console.trouble(format!("attempt {attempts}: the relay {summary}"));
                    }
                    match answer.meaning() {
                        Meaning::Delivered => return Ok(Delivered { status: answer.status, attempts }),
                        Meaning::Never => {
                            return Err(Error::Final(format!("the relay {summary}; that is final")));
                        }
                        Meaning::Unauthorized => {
                            refused.push(credential.token);
                            credential = self.credential(&refused, console)?;
                            continue;
                        }
                        Meaning::Again => (format!("the relay {summary}"), answer.retry_after),
                    }
                }
                Err(error) => {
                    let reason = format!("{}: {error}", credential.token.redact(self.url.as_str()));
                    console.trouble(format!("attempt {attempts}: {reason}"));
                    (reason, None)
                }
            };
            let jittered = ATTEMPTS.delay(attempts, None, fastrand::f64());
            let delay = jittered.max(asked.unwrap_or_default().min(MAX_ASKED));
            if !self.deadline.wait(delay) {
                return Err(self.over(reason));
            }
        }
    }

    /// Waits for a credential: the first one until the deadline, a newer one than those refused for a little while.
    fn credential(&self, refused: &[Token], console: &mut Console<'_>) -> Result<Credential, Error> {
        let since = Instant::now();
        let mut said = String::new();
        let mut looks: u32 = 0;
        loop {
            let why = match self.wallet.find(refused, self.deadline.slice()) {
                Ok(credential) => {
                    credential.check_origin(self.url)?;
                    return Ok(credential);
                }
                Err(NoCredential::Unusable(problem)) => return Err(problem.into()),
                Err(NoCredential::Yet(why)) => why,
            };
            let last = if refused.is_empty() {
                format!("no token: {why}")
            } else {
                format!("the relay refuses the token (401), and there is no newer: {why}")
            };
            if !refused.is_empty() && since.elapsed() >= NEWER_TOKEN {
                return Err(Error::Final(last));
            }
            if why != said {
                console.trouble(format!("waiting for a token: {why}"));
                said.clone_from(&why);
            }
            // At least half of the ceiling: jitter must not make this a hot loop.
            looks = looks.saturating_add(1);
            let ceiling = LOOKS.ceiling(looks);
            if !self.deadline.wait(ceiling.mul_f64(0.5 + fastrand::f64() / 2.0)) {
                return Err(self.over(last));
            }
        }
    }

    fn over(&self, last: String) -> Error {
        Error::Deadline { total: self.deadline.total(), last }
    }
}

/// The CAs to trust, looked up for each attempt.
struct Trust<'a> {
    url: &'a Url,
    file: Option<&'a Path>,
    system: OnceCell<Roots>,
    warned: bool,
}

impl<'a> Trust<'a> {
    fn of(courier: &'a Courier<'_>) -> Self {
        Self { url: courier.url, file: courier.ca_file.as_deref(), system: OnceCell::new(), warned: false }
    }

    /// Those of the file, else of the Secret, else of the system. The mount of a CA may come as late as that of a
    /// token, so a file that is not there yet is looked for again, and said once.
    fn roots(&mut self, credential: &Credential, console: &mut Console<'_>) -> Result<Roots, Error> {
        if self.url.scheme() == "http" {
            return Ok(Roots::built_in());
        }
        let other =
            || credential.roots.as_ref().unwrap_or_else(|| self.system.get_or_init(Roots::system)).clone();
        let Some(path) = self.file else {
            return Ok(other());
        };
        let name = format!("RELAY_CA_FILE {}", path.display());
        match Roots::from_file(path) {
            Ok(roots) => Ok(roots.named(name)),
            Err(error) if error.may_pass() => {
                let other = other();
                if !self.warned {
                    self.warned = true;
                    console.trouble(format!("warning: {name} {error}; trusting {} meanwhile", other.name()));
                }
                Ok(other)
            }
            Err(error) => Err(Problem::new(name, error.to_string()).into()),
        }
    }
}
