//! Configuration: section `[outcome_span]`. Where spans go is told by the standard variables, see [`crate::Settings`].

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use transponder_runtime::config::{BadValue, check, duration};

/// How OutcomeSpan listens, asks and waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address of the gRPC listener.
    pub listen: SocketAddr,
    /// ReleaseTracking, as `host:port`.
    pub release_tracking: String,
    /// Where spans are appended, as lines of OTLP/JSON, while there is no endpoint.
    pub file: PathBuf,
    /// How long a span is not sent again after a send whose end is unknown. Tempo stores a span twice that comes
    /// again within about ten seconds.
    #[serde(with = "duration")]
    pub unknown_wait: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8447)),
            release_tracking: "127.0.0.1:8446".into(),
            file: "/var/lib/transponder/outcome-span/spans.jsonl".into(),
            unknown_wait: Duration::from_secs(15),
        }
    }
}

impl Config {
    /// What no type can say.
    ///
    /// # Errors
    /// Names the key, the value and what is wrong with it.
    pub fn check(&self) -> Result<(), BadValue> {
        check::host_port("outcome_span.release_tracking", &self.release_tracking)?;
        check::given("outcome_span.file", &self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_cannot_work_is_refused_by_its_key() {
        assert_eq!(Config::default().check(), Ok(()));
        let config = Config { release_tracking: "https://a:1".into(), ..Config::default() };
        let error = config.check().unwrap_err();
        assert_eq!(error.key, "outcome_span.release_tracking");
        assert!(error.problem.contains("without 'https://'"), "{error}");
        let config = Config { file: PathBuf::new(), ..Config::default() };
        assert_eq!(config.check().unwrap_err().to_string(), "outcome_span.file: '' must be a path");
    }
}
