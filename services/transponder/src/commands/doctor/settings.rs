//! The configuration: what the start would refuse, and what is allowed and deserves a look.

use std::{collections::BTreeMap, net::SocketAddr};

use transponder_outcome_span::{SettingError, Settings};
use transponder_runtime::{
    config::{BadValue, ENV_PREFIX},
    telemetry,
};

use super::finding::Findings;
use crate::{commands::config::flatten, config::Config};

const AREA: &str = "configuration";

/// Asks what the start asks. To be called within a runtime. `otlp` is what the variables of this shell say, `file` where
/// the configuration comes from.
pub(super) fn check(
    config: &Config,
    otlp: Result<Settings, SettingError>,
    file: &str,
    findings: &mut Findings,
) {
    const MEND: &str = "correct the value; 'transponder config' shows where it comes from, 'config --reference' what it means";
    let before = findings.all().len();
    for bad in faults(config) {
        findings.wrong(AREA, &bad.to_string(), bad.key, MEND);
    }
    if let Err(bad) = config.traces.check() {
        findings.wrong(AREA, &bad.to_string(), "[traces]", MEND);
    }
    if let Err(bad) = otlp.and_then(|settings| settings.check()) {
        let mend = "correct it where outcome-span gets it from: with this value it does not start";
        findings.wrong(AREA, &format!("in this shell {bad}"), bad.variable, mend);
    }
    if findings.all().len() == before {
        findings.fine(AREA, "every key is known and every value fits", file);
    }
    admin(config.admin.listen, findings);
}

/// What the services refuse to start with.
fn faults(config: &Config) -> impl Iterator<Item = BadValue> {
    let checks = [
        telemetry::check(&config.log.filter),
        config.callers.check(),
        config.edge.check(),
        config.forwarder.check(),
        config.dora.check(),
        config.release_tracking.check(),
        config.outcome_span.check(),
    ];
    checks.into_iter().filter_map(Result::err)
}

fn admin(listen: SocketAddr, findings: &mut Findings) {
    if !listen.ip().to_canonical().is_loopback() {
        let what =
            format!("the admin listener can be reached from outside ({listen}): it shows metrics to anybody");
        let mend = "keep it behind a NetworkPolicy or firewall, or let it listen on 127.0.0.1";
        findings.doubtful(AREA, &what, "admin.listen", mend);
    }
}

/// Names the variables that were meant for a key and are not read. Not an error: Kubernetes itself sets variables such
/// as `TRANSPONDER_EDGE_SERVICE_HOST` for a Service of that name.
pub(super) fn misspelt(variables: impl Iterator<Item = String>, findings: &mut Findings) {
    let Ok(defaults) = serde_json::to_value(Config::default()) else { return };
    let known: BTreeMap<String, String> = flatten(&defaults)
        .into_iter()
        .map(|(key, _)| format!("{ENV_PREFIX}{}", key.to_uppercase().replace('.', "__")))
        .map(|variable| (variable.replace("__", "_"), variable))
        .collect();
    for variable in variables {
        let meant = known.get(&variable.to_uppercase().replace("__", "_"));
        if let Some(meant) = meant.filter(|meant| !meant.eq_ignore_ascii_case(&variable)) {
            let what = format!("{variable} is not read: sections are parted by two underscores: {meant}");
            findings.doubtful(AREA, &what, &variable, &format!("set {meant} instead"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(config: &Config) -> Vec<String> {
        let mut findings = Findings::default();
        check(config, Ok(Settings::default()), "file", &mut findings);
        findings.all().iter().map(|finding| format!("{:?} {}", finding.level, finding.what)).collect()
    }

    #[tokio::test]
    async fn what_ends_the_start_is_found_with_its_key_and_value() {
        type Spoil = fn(&mut Config);
        let cases: [(Spoil, &str); 10] = [
            (|c| c.log.filter = "xx=yy".into(), "log.filter: 'xx=yy' is no tracing filter"),
            (|c| c.callers.cache = std::time::Duration::from_secs(61), "callers.cache: '1m 1s' must be"),
            (|c| c.edge.data_directory = "".into(), "edge.data_directory: '' must be a path"),
            (|c| c.edge.peers.forwarder = "forwarder".into(), "edge.peers.forwarder: 'forwarder' must be"),
            (|c| c.forwarder.broker_url = "ftp://x".into(), "forwarder.broker_url: 'ftp://x' must be"),
            (|c| c.forwarder.ca_file = Some("/nope".into()), "forwarder.ca_file: '/nope' "),
            (|c| c.dora.data_directory = "".into(), "dora.data_directory: ''"),
            (|c| c.release_tracking.silence = std::time::Duration::ZERO, "release_tracking.silence: '0s'"),
            (|c| c.outcome_span.file = "".into(), "outcome_span.file: ''"),
            (|c| c.traces.endpoint = Some("collector:4317".into()), "traces.endpoint: 'collector:4317'"),
        ];
        assert_eq!(found(&Config::default()), ["Fine every key is known and every value fits"]);
        for (spoil, expected) in cases {
            let mut config = Config::default();
            spoil(&mut config);
            let found = found(&config);
            assert!(found.len() == 1 && found[0].starts_with(&format!("Wrong {expected}")), "{found:?}");
        }
    }

    #[tokio::test]
    async fn an_admin_listener_that_others_reach_deserves_a_look() {
        for (listen, open) in [
            ("127.0.0.1:9090", false),
            ("127.0.0.2:9090", false),
            ("[::1]:9090", false),
            ("[::ffff:127.0.0.1]:9090", false),
            ("0.0.0.0:9090", true),
            ("[::]:9090", true),
            ("10.0.0.1:9090", true),
        ] {
            let mut config = Config::default();
            config.admin.listen = listen.parse().unwrap();
            let said = found(&config).iter().any(|what| what.starts_with("Doubtful the admin listener can"));
            assert_eq!(said, open, "{listen}");
        }
    }

    #[test]
    fn a_variable_with_an_underscore_too_few_is_named_with_the_right_one() {
        let found = |variable: &str| {
            let mut findings = Findings::default();
            misspelt(std::iter::once(variable.to_owned()), &mut findings);
            findings.all().first().map(|finding| finding.what.clone()).unwrap_or_default()
        };
        assert_eq!(
            found("TRANSPONDER_EDGE_LISTEN"),
            "TRANSPONDER_EDGE_LISTEN is not read: sections are parted by two underscores: \
             TRANSPONDER_EDGE__LISTEN"
        );
        for (wrong, right) in [
            ("TRANSPONDER_RELEASE_TRACKING_DATA_DIRECTORY", "TRANSPONDER_RELEASE_TRACKING__DATA_DIRECTORY"),
            ("TRANSPONDER_EDGE__SETTLE_FAILED", "TRANSPONDER_EDGE__SETTLE__FAILED"),
        ] {
            assert!(found(wrong).ends_with(right), "{}", found(wrong));
        }
        for other in [
            "TRANSPONDER_EDGE__LISTEN",
            "transponder_edge__listen",
            "TRANSPONDER_EDGE_SERVICE_HOST",
            "TRANSPONDER_EDGE_PORT",
            "TRANSPONDER_CONFIG",
            "EDGE_LISTEN",
        ] {
            assert_eq!(found(other), "", "{other}");
        }
    }
}
