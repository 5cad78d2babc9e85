//! Who calls: a part of the mesh by its certificate, or a Task by its ServiceAccount token. Never both.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use globset::{GlobBuilder, GlobMatcher};
use sha2::{Digest as _, Sha256};
use tonic::{Request, Status};
use transponder_core::{AppNamespace, Caller, caller::Method};

use crate::{
    Context, Fault,
    config::{BadValue, duration},
    watch,
};

/// Longest time that a reviewed token is believed. It is to be refused this long after its pod was deleted.
const LONGEST_CACHE: Duration = Duration::from_secs(60);
/// Shorter, and each call of a Task would cost a review.
const SHORTEST_CACHE: Duration = Duration::from_secs(1);

/// Checks ServiceAccount tokens. On Kubernetes a TokenReview, elsewhere a file of named tokens.
pub trait TokenReviewer: Send + Sync + 'static {
    /// Whose token it is; `None` when it is nobody's.
    ///
    /// # Errors
    /// UNAVAILABLE when that cannot be told now: never mistaken for a wrong token. Else what is wrong with it, where that
    /// is known.
    fn review<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Caller>, Fault>> + Send + 'a>>;
}

/// Which ServiceAccounts may call, and as what.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallersConfig {
    /// Globs over `<namespace>/<name>` of accounts that act on their own app namespace.
    pub app_accounts: Vec<String>,
    /// Globs over `<namespace>/<name>` of accounts that act for the platform, on every app namespace.
    pub platform_accounts: Vec<String>,
    /// A TOML file of `[[token]]` entries with `account` and `token`, readable by its owner alone: all that there is off
    /// Kubernetes, and asked first on it.
    pub token_file: Option<PathBuf>,
    /// On Kubernetes: the audience of a Task's token.
    pub audience: String,
    /// On Kubernetes: how long a reviewed token is believed, at most.
    #[serde(with = "duration")]
    pub cache: Duration,
}

impl Default for CallersConfig {
    fn default() -> Self {
        Self {
            app_accounts: vec!["app-*-cicd/pipeline-runner".into()],
            platform_accounts: Vec::new(),
            token_file: None,
            audience: "transponder".into(),
            // The API server itself remembers for ten seconds that a token was good.
            cache: Duration::from_secs(50),
        }
    }
}

impl CallersConfig {
    /// Checks what is more than a type.
    ///
    /// # Errors
    /// Names the key and what fits.
    pub fn check(&self) -> Result<(), BadValue> {
        if self.audience.is_empty() {
            return Err(BadValue::new("callers.audience", "", "must be the audience of a Task's token"));
        }
        if !(SHORTEST_CACHE..=LONGEST_CACHE).contains(&self.cache) {
            let shown = format!("{:#}", jiff::SignedDuration::try_from(self.cache).unwrap_or_default());
            return Err(BadValue::new("callers.cache", shown, "must be between 1s and 60s"));
        }
        Ok(())
    }
}

/// The listed accounts.
#[derive(Debug)]
pub struct Accounts {
    app: Vec<GlobMatcher>,
    platform: Vec<GlobMatcher>,
}

impl Accounts {
    /// Reads the globs.
    ///
    /// # Errors
    /// Names the glob that cannot be read.
    pub fn new(config: &CallersConfig) -> Result<Self, String> {
        let compile = |globs: &[String]| {
            globs
                .iter()
                .map(|glob| {
                    GlobBuilder::new(glob).literal_separator(true).build().map(|g| g.compile_matcher())
                })
                .collect::<Result<Vec<_>, _>>()
                .map_err(|e| format!("callers: {e}"))
        };
        Ok(Self { app: compile(&config.app_accounts)?, platform: compile(&config.platform_accounts)? })
    }

    /// What the account `<namespace>/<name>` may call as; `None` when it is not listed.
    #[must_use]
    pub fn caller(&self, account: &str) -> Option<Caller> {
        let listed = |globs: &[GlobMatcher]| globs.iter().any(|glob| glob.is_match(account));
        if listed(&self.platform) {
            return Some(Caller::Platform { account: account.to_owned() });
        }
        let (namespace, _) = account.split_once('/')?;
        let namespace = AppNamespace::new(namespace).ok()?;
        listed(&self.app).then(|| Caller::App { namespace, account: account.to_owned() })
    }
}

/// A file of named tokens, reloaded when it changes: the stand-in for TokenReview off Kubernetes.
pub struct TokenFile {
    path: Option<PathBuf>,
    accounts: Accounts,
    /// SHA-256 of each token, so that no look-up compares a secret byte by byte.
    known: ArcSwap<HashMap<[u8; 32], Caller>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokens {
    #[serde(default)]
    token: Vec<NamedToken>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedToken {
    account: String,
    token: String,
}

impl TokenFile {
    /// Loads the file, if one is configured, and keeps it up to date. A file that becomes bad keeps the last good state.
    ///
    /// # Errors
    /// When the file or a glob is bad at the start.
    pub fn load(config: &CallersConfig, context: &Context) -> Result<Arc<Self>, String> {
        let file = Self {
            path: config.token_file.clone(),
            accounts: Accounts::new(config)?,
            known: ArcSwap::from_pointee(HashMap::new()),
        };
        if let Some(path) = &file.path {
            file.known.store(Arc::new(read(path, &file.accounts)?));
        }
        let file = Arc::new(file);
        if let Some(directory) = file.path.as_deref().and_then(Path::parent) {
            let watched = file.clone();
            watch::spawn_shallow(vec![directory.to_owned()], context.shutdown.clone(), move || {
                watched.reload()
            });
        }
        Ok(file)
    }

    /// Whose token it is by the file.
    #[must_use]
    pub fn owner(&self, token: &str) -> Option<Caller> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.known.load().get(&digest).cloned()
    }

    fn reload(&self) {
        let Some(path) = &self.path else { return };
        match read(path, &self.accounts) {
            Ok(known) => self.known.store(Arc::new(known)),
            Err(error) => tracing::error!(error, "token file not taken over, the last good one stays"),
        }
    }
}

fn read(path: &Path, accounts: &Accounts) -> Result<HashMap<[u8; 32], Caller>, String> {
    let at = |problem: String| format!("{}: {problem}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| at(e.to_string()))?;
    // The parser's message would quote the line, and with it the token.
    let tokens: Tokens = toml::from_str(&text)
        .map_err(|_| at("is not a list of [[token]] entries with account and token".into()))?;
    let mut known = HashMap::new();
    for NamedToken { account, token } in tokens.token {
        if token.len() < 16 {
            return Err(at(format!("the token of {account} has fewer than 16 bytes")));
        }
        let caller = accounts.caller(&account).ok_or_else(|| {
            at(format!("{account} is neither in callers.app_accounts nor in callers.platform_accounts"))
        })?;
        known.insert(Sha256::digest(token.trim()).into(), caller);
    }
    Ok(known)
}

impl TokenReviewer for TokenFile {
    fn review<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Caller>, Fault>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(self.owner(token))))
    }
}

/// The caller of a request, if it may call the method. Every handler starts with this, so none can forget it.
///
/// # Errors
/// PERMISSION_DENIED.
pub fn authorize<T>(request: &Request<T>, method: Method) -> Result<Caller, Status> {
    let caller = request
        .extensions()
        .get::<Caller>()
        .ok_or_else(|| Status::from(Fault::unauthenticated("no caller was authenticated")))?;
    if !method.allows(caller) {
        tracing::warn!(%caller, ?method, "call refused");
        return Err(Fault::denied(format!("{caller} may not call {method:?}"))
            .reason("METHOD_NOT_ALLOWED")
            .into());
    }
    Ok(caller.clone())
}

/// Refuses an app's account that acts on another app namespace.
///
/// # Errors
/// PERMISSION_DENIED.
pub fn authorize_namespace(caller: &Caller, namespace: &AppNamespace) -> Result<(), Fault> {
    match caller.app_namespace() {
        Some(own) if own != namespace => {
            tracing::warn!(%caller, %namespace, "call refused: another app's namespace");
            Err(Fault::denied(format!("{caller} may act on {own} alone")).reason("OTHER_APP_NAMESPACE"))
        }
        _ => Ok(()),
    }
}
