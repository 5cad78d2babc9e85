//! One run of the hook, from the environment to the exit code.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use transponder_core::Timestamp;

use crate::{
    config::{Config, FailurePolicy, MAX_DEADLINE},
    console::Console,
    credential::Wallet,
    deadline::Deadline,
    deliver::{Courier, Delivered},
    error::{Error, Problem},
    event::{self, Built},
    kube::SecretReader,
    vars::Vars,
};

/// A run that is ready to begin.
#[derive(Debug)]
pub struct App {
    policy: FailurePolicy,
    deadline: Deadline,
    what: String,
    config: Result<Config, Vec<Problem>>,
    account_dir: PathBuf,
}

impl App {
    /// Reads the environment. `start` is when the process began, `account_dir` where the pod's ServiceAccount is
    /// mounted ([`crate::kube::ACCOUNT_DIR`]).
    #[must_use]
    pub fn build(vars: &Vars, account_dir: &Path, start: Instant) -> Self {
        let config = Config::load(vars, Timestamp::now());
        let total = config.as_ref().map_or(MAX_DEADLINE, |config| config.deadline);
        Self {
            // A policy that cannot be read is one of the faults that loading names, and becomes the harmless one.
            policy: FailurePolicy::of(vars).unwrap_or(FailurePolicy::Ignore),
            deadline: Deadline::new(start, total),
            what: config.as_ref().map_or_else(|_| describe_raw(vars), describe),
            config,
            account_dir: account_dir.to_owned(),
        }
    }

    /// The same run with one more fault of its configuration, named first.
    #[must_use]
    pub fn with_fault(mut self, fault: Problem) -> Self {
        let others = self.config.err().unwrap_or_default();
        self.config = Err(std::iter::once(fault).chain(others).collect());
        self
    }

    /// What a failure does to the exit code.
    #[must_use]
    pub fn policy(&self) -> FailurePolicy {
        self.policy
    }

    /// When the run has to be over.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// What is to be reported, in words.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Reports the outcome, says how it went, and answers the exit code.
    pub fn run(self, console: &mut Console<'_>) -> u8 {
        let reported = match self.config {
            Ok(config) => report(&config, &self.account_dir, self.deadline, console),
            Err(problems) => Err(Error::Configuration(problems)),
        };
        let Err(error) = reported else {
            return 0;
        };
        console.trouble(lost(&self.what, &error));
        if self.policy == FailurePolicy::Ignore {
            console.trouble(
                "exit 0 all the same: a reporter decides no deployment (HOOK_FAILURE_POLICY is ignore)",
            );
        }
        exit_code(self.policy, &error)
    }
}

fn report(
    config: &Config,
    account_dir: &Path,
    deadline: Deadline,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    for warning in &config.warnings {
        console.trouble(format!("warning: {warning}"));
    }
    let Built { id, key, body } =
        event::build(&config.fields, &config.attempt).map_err(|error| Error::Final(error.to_string()))?;
    let secret = config
        .api
        .as_ref()
        .map(|api| SecretReader::new(api, &config.pod_namespace, account_dir))
        .transpose()
        .map_err(|error| Problem::new("KUBERNETES_SERVICE_HOST", error.to_string()))?;
    let courier = Courier {
        url: &config.url,
        wallet: Wallet::new(config.token_file.clone(), secret),
        ca_file: config.ca_file.clone(),
        deadline,
    };
    let Delivered { status, attempts } = courier.deliver(&body, console)?;
    let phase = config.fields.phase;
    console.done(format!("delivered {phase}: key={key} status={status} id={id} attempts={attempts}"));
    Ok(())
}

/// The line that must not be overlooked.
pub(crate) fn lost(what: &str, error: &Error) -> String {
    format!("LOST: {what} was not reported: {error}")
}

/// The exit code of a failed run.
pub(crate) fn exit_code(policy: FailurePolicy, error: &Error) -> u8 {
    match (policy, error) {
        (FailurePolicy::Ignore, _) => 0,
        (FailurePolicy::Fail, Error::Configuration(_)) => 2,
        (FailurePolicy::Fail, Error::Deadline { .. } | Error::Final(_)) => 1,
    }
}

/// What is to be reported, in words.
fn describe(config: &Config) -> String {
    let fields = &config.fields;
    let stream = &fields.stream;
    format!(
        "{} of app {} ({}) in env {} on cluster {} (chain-id '{}', git revision '{}', finished {:.3})",
        fields.phase,
        stream.app,
        stream.app_namespace,
        stream.env,
        stream.cluster,
        fields.chain_id,
        fields.git_revision,
        fields.finished_at,
    )
}

/// The same, as far as a wrong configuration tells.
fn describe_raw(vars: &Vars) -> String {
    let value = |name| {
        vars.raw(name)
            .map_or_else(|| "?".to_owned(), |value| value.to_string_lossy().chars().take(100).collect())
    };
    format!(
        "{} of app {} ({}) in env {} on cluster {}",
        value("PHASE"),
        value("APP_NAME"),
        value("APP_NAMESPACE"),
        value("ENV"),
        value("CLUSTER"),
    )
}
