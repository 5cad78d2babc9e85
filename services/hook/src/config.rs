//! The environment of the hook Job (DESIGN §3).
//!
//! | variable | | |
//! |---|---|---|
//! | `RELAY_URL` | required | `https://` or `http://`, ends in `/outcome/<cluster>` |
//! | `CLUSTER` `APP_NAMESPACE` `APP_NAME` `ENV` `POD_NAMESPACE` | required | DNS labels |
//! | `PHASE` | required | `Syncing`, `Succeeded` or `Failed` (`Error` is `Failed`) |
//! | `GIT_URL` `GIT_REVISION` `GITOPS_REVISION` `FLOW_START_TIME` `CHAIN_ID` | optional | text; what the edge would refuse the whole event for is left out, with a warning |
//! | `CONFIG_JSON_B64` | optional | base64 of a JSON object of at most 64 KiB, else `{}` with a warning |
//! | `JOB_NAME` `JOB_UID` | optional | what the event id is made of |
//! | `RELAY_TOKEN_FILE` `RELAY_CA_FILE` | optional | mounted files; `relay-origin` and `ca.crt` beside the token count too |
//! | `HOOK_DEADLINE` | optional | `10s`, `500ms`, `1m`; 10 s for `Syncing`, 40 s else |
//! | `HOOK_FAILURE_POLICY` | optional | `ignore` (default) or `fail` |
//!
//! An empty value counts as unset. `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT` are the pod's own.

use std::{path::PathBuf, str::FromStr, time::Duration};

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::value::RawValue;
use transponder_core::{
    AppNamespace, ClusterName, NameError, Phase, Stream, Timestamp, event::MAX_TEXT, parse_rfc3339,
};
use url::Url;

use crate::{deadline, error::Problem, event, event::Fields, vars::Vars};

/// Largest configuration that travels with an event, decoded.
pub const MAX_CONFIG_JSON: usize = 64 * 1024;
/// Longest deadline. A hook that never ends blocks a sync.
pub const MAX_DEADLINE: Duration = Duration::from_secs(3600);

/// Padding is often cut, and `base64` breaks lines; neither changes what is meant.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What a failure does to the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Exit 0 whatever happened: the default, because a failed hook fails the sync.
    Ignore,
    /// Exit 1 when the outcome was not delivered, 2 when the configuration is wrong.
    Fail,
}

impl FailurePolicy {
    /// Reads `HOOK_FAILURE_POLICY`.
    ///
    /// # Errors
    /// When it is an unknown word; the policy is then `ignore`.
    pub fn of(vars: &Vars) -> Result<Self, Problem> {
        const NAME: &str = "HOOK_FAILURE_POLICY";
        match vars.text(NAME)?.as_deref() {
            None | Some("ignore") => Ok(Self::Ignore),
            Some("fail") => Ok(Self::Fail),
            Some(other) => Err(Problem::new(NAME, format!("must be ignore or fail, and is '{other}'"))),
        }
    }
}

/// A checked configuration.
#[derive(Debug)]
pub struct Config {
    /// Where the event goes.
    pub url: Url,
    /// What the event says.
    pub fields: Fields,
    /// What sets the event apart from others of its stream and type.
    pub attempt: String,
    /// The pod's namespace, in which the Secret is.
    pub pod_namespace: AppNamespace,
    /// File of the relay token.
    pub token_file: Option<PathBuf>,
    /// File of the CAs of the relay.
    pub ca_file: Option<PathBuf>,
    /// Address of the API server; `None` outside a pod.
    pub api: Option<Url>,
    /// The budget from process start.
    pub deadline: Duration,
    /// What was left out or looks wrong, to be said.
    pub warnings: Vec<Problem>,
}

impl Config {
    /// Reads and checks the environment. `now` becomes the time at which the phase was reached.
    ///
    /// # Errors
    /// All faults that can be seen, each with its variable.
    pub fn load(vars: &Vars, now: Timestamp) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader { vars, problems: Vec::new(), warnings: Vec::new() };
        let url = reader.required("RELAY_URL", relay_url);
        if url.as_ref().is_some_and(|url| url.scheme() == "http") {
            let what = "is http://: the token goes over plain http, and whoever is on the way can read it";
            reader.warnings.push(Problem::new("RELAY_URL", what));
        }
        let cluster: Option<ClusterName> = reader.required("CLUSTER", label);
        let app_namespace = reader.required("APP_NAMESPACE", label);
        let app = reader.required("APP_NAME", label);
        let env = reader.required("ENV", label);
        let (job_name, job_uid) = (reader.optional("JOB_NAME"), reader.optional("JOB_UID"));
        let phase = reader.required("PHASE", |text| phase(text, job_name.as_deref()));
        // A namespace is a DNS label like the others; it becomes part of a path at the API server.
        let pod_namespace: Option<AppNamespace> = reader.required("POD_NAMESPACE", label);
        let deadline = reader.deadline(phase);
        if let Err(problem) = FailurePolicy::of(vars) {
            reader.problems.push(problem);
        }
        if let (Some(url), Some(cluster)) = (&url, &cluster) {
            reader.check_path(url, cluster);
        }
        let (token_file, ca_file) = (reader.path("RELAY_TOKEN_FILE"), reader.path("RELAY_CA_FILE"));
        let api = reader.api();
        if token_file.is_none() && api.is_none() {
            reader.problems.push(Problem::new(
                "RELAY_TOKEN_FILE",
                "is required outside a pod (KUBERNETES_SERVICE_HOST is not set, so the Secret cannot be read)",
            ));
        }
        let texts = ["CHAIN_ID", "GITOPS_REVISION", "GIT_URL", "GIT_REVISION", "FLOW_START_TIME"];
        let [chain_id, gitops_revision, git_url, git_revision, flow_start_time] =
            texts.map(|name| reader.field(name));
        if !flow_start_time.is_empty()
            && let Err(error) = parse_rfc3339(&flow_start_time)
        {
            reader.warnings.push(Problem::new("FLOW_START_TIME", format!("{error}; sent as it is")));
        }
        let config_json = reader.config_json();

        let Reader { problems, warnings, .. } = reader;
        match (url, cluster, app_namespace, app, env, phase, pod_namespace) {
            (
                Some(url),
                Some(cluster),
                Some(app_namespace),
                Some(app),
                Some(env),
                Some(phase),
                Some(pod_namespace),
            ) if problems.is_empty() => Ok(Self {
                url,
                attempt: event::attempt(job_name.as_deref(), job_uid.as_deref(), phase, now),
                fields: Fields {
                    stream: Stream { app_namespace, app, env, cluster },
                    phase,
                    finished_at: now,
                    chain_id,
                    gitops_revision,
                    git_url,
                    git_revision,
                    flow_start_time,
                    config_json,
                },
                pod_namespace,
                token_file,
                ca_file,
                api,
                deadline,
                warnings,
            }),
            _ => Err(problems),
        }
    }
}

/// Reads variables and collects what is wrong with them.
struct Reader<'a> {
    vars: &'a Vars,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Reader<'_> {
    fn required<T>(&mut self, name: &'static str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let result = match self.vars.text(name) {
            Ok(Some(text)) => read(&text).map_err(|what| Problem::new(name, what)),
            Ok(None) => Err(Problem::new(name, "is required and not set")),
            Err(problem) => Err(problem),
        };
        result.map_err(|problem| self.problems.push(problem)).ok()
    }

    /// An optional text; one that cannot be used is left out with a warning, for it is no reason to lose an outcome.
    fn optional(&mut self, name: &'static str) -> Option<String> {
        match self.vars.text(name) {
            Ok(text) => text,
            Err(problem) => {
                self.leave_out(name, &problem.what);
                None
            }
        }
    }

    /// An optional text of the event. The edge refuses an event for what is checked here, so it is left out.
    fn field(&mut self, name: &'static str) -> String {
        let text = self.optional(name).unwrap_or_default();
        if text.len() > MAX_TEXT {
            self.leave_out(name, &format!("has more than {MAX_TEXT} bytes"));
        } else if expands(&text) {
            self.leave_out(name, "contains '$(tt.', which Tekton would expand");
        } else {
            return text;
        }
        String::new()
    }

    fn leave_out(&mut self, name: &'static str, why: &str) {
        self.warnings.push(Problem::new(name, format!("{why}; it is left out")));
    }

    fn path(&self, name: &'static str) -> Option<PathBuf> {
        self.vars.raw(name).map(PathBuf::from)
    }

    fn config_json(&mut self) -> String {
        let name = "CONFIG_JSON_B64";
        let decoded = match self.vars.text(name) {
            Ok(None) => return "{}".to_owned(),
            Ok(Some(text)) => config_json(&text).map_err(str::to_owned),
            Err(problem) => Err(problem.what),
        };
        decoded.unwrap_or_else(|why| {
            self.warnings.push(Problem::new(name, format!("{why}; {{}} is sent instead")));
            "{}".to_owned()
        })
    }

    fn deadline(&mut self, phase: Option<Phase>) -> Duration {
        let name = "HOOK_DEADLINE";
        let default =
            if phase == Some(Phase::Syncing) { Duration::from_secs(10) } else { Duration::from_secs(40) };
        match self.vars.text(name) {
            Ok(None) => return default,
            Ok(Some(text)) => match deadline::parse(&text) {
                Some(deadline) if !deadline.is_zero() && deadline <= MAX_DEADLINE => return deadline,
                _ => self.problems.push(Problem::new(
                    name,
                    format!("must be a duration such as 10s, 500ms or 1m, up to 60m, and is '{text}'"),
                )),
            },
            Err(problem) => self.problems.push(problem),
        }
        default
    }

    fn check_path(&mut self, url: &Url, cluster: &ClusterName) {
        let ending = format!("/outcome/{cluster}");
        if !url.path().ends_with(&ending) {
            let what =
                format!("must end in '{ending}' (CLUSTER is {cluster}), and its path is '{}'", url.path());
            self.problems.push(Problem::new("RELAY_URL", what));
        }
    }

    /// The API server, as the kubelet writes it into every pod.
    fn api(&mut self) -> Option<Url> {
        let name = "KUBERNETES_SERVICE_HOST";
        let host = self.optional(name)?;
        let port = self.optional("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
        match Url::parse(&format!("https://{host}:{port}/")) {
            Ok(url) => Some(url),
            Err(error) => {
                self.problems.push(Problem::new(name, format!("and its port make no address: {error}")));
                None
            }
        }
    }
}

fn label<T: FromStr<Err = NameError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: NameError| format!("{error}, and is '{text}'"))
}

/// Reads the phase. One that is not that of the Job's own hook is a copied manifest, and would report a failed sync as
/// a success or the other way round.
fn phase(text: &str, job_name: Option<&str>) -> Result<Phase, String> {
    let phase =
        Phase::parse(text).ok_or_else(|| format!("must be Syncing, Succeeded or Failed, and is '{text}'"))?;
    match job_name.and_then(|name| Some((name, event::hook_of(name)?))) {
        Some((name, hook)) if hook.phase != phase => {
            Err(format!("is {text}, but Argo CD named this Job a {} hook (JOB_NAME {name})", hook.name))
        }
        _ => Ok(phase),
    }
}

/// Reads the URL. Its text is not repeated in a fault: somebody may have put a password into it.
fn relay_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err("must begin with https:// or http://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must hold no user name and no password".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must have no query and no fragment".to_owned());
    }
    Ok(url)
}

fn config_json(text: &str) -> Result<String, &'static str> {
    let compact: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let decoded = BASE64.decode(compact).map_err(|_| "is not base64")?;
    if decoded.len() > MAX_CONFIG_JSON {
        return Err("is over 64 KiB");
    }
    let json = String::from_utf8(decoded).map_err(|_| "is not base64 of UTF-8 text")?;
    let object = serde_json::from_str::<&RawValue>(&json).is_ok_and(|raw| raw.get().starts_with('{'));
    if !object {
        return Err("is not base64 of a JSON object");
    }
    if expands(&json) {
        return Err("contains '$(tt.', which Tekton would expand");
    }
    Ok(json)
}

fn expands(text: &str) -> bool {
    text.contains("$(tt.")
}
