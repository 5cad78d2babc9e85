//! A wrong configuration is named, and decides no deployment.

mod support;

use std::{ffi::OsString, os::unix::ffi::OsStringExt, process::Command, time::Duration};

use support::{Act, Hook, Server};
use transponder_core::Timestamp;
use transponder_hook::{config::Config, error::Problem, vars::Vars};

const URL: &str = "https://relay.example/outcome/kind-prod";

fn load(name: &str, value: Option<&str>) -> Result<Config, Vec<Problem>> {
    let mut hook = Hook::to(URL);
    match value {
        Some(value) => hook.set(name, value),
        None => hook.unset(name),
    }
    Config::load(&hook.vars().collect::<Vars>(), Timestamp::UNIX_EPOCH)
}

#[test]
fn every_fault_is_named_with_its_variable() {
    for (name, value, expected) in [
        ("RELAY_URL", None, "is required and not set"),
        ("RELAY_URL", Some(""), "is required and not set"),
        ("RELAY_URL", Some("relay.example/outcome/kind-prod"), "is no URL"),
        ("RELAY_URL", Some("ftp://relay.example/outcome/kind-prod"), "must begin with https:// or http://"),
        ("RELAY_URL", Some("https://relay.example/"), "must end in '/outcome/kind-prod'"),
        ("RELAY_URL", Some("https://relay.example/outcome/other"), "must end in '/outcome/kind-prod'"),
        ("RELAY_URL", Some("https://a:b@relay.example/outcome/kind-prod"), "must hold no user name"),
        (
            "RELAY_URL",
            Some("https://relay.example/outcome/kind-prod?x=/outcome/kind-prod"),
            "must have no query",
        ),
        ("CLUSTER", None, "is required and not set"),
        ("CLUSTER", Some("Kind_Prod"), "must be a DNS label"),
        ("APP_NAMESPACE", None, "is required and not set"),
        ("APP_NAMESPACE", Some("a/b"), "must be a DNS label"),
        ("APP_NAME", None, "is required and not set"),
        ("APP_NAME", Some("shop\nX: y"), "must be a DNS label"),
        ("ENV", None, "is required and not set"),
        ("ENV", Some("-"), "must be a DNS label"),
        ("PHASE", None, "is required and not set"),
        ("PHASE", Some("success"), "must be Syncing, Succeeded or Failed"),
        ("PHASE", Some("succeeded"), "must be Syncing, Succeeded or Failed"),
        ("POD_NAMESPACE", None, "is required and not set"),
        ("POD_NAMESPACE", Some("../kube-system"), "must be a DNS label"),
        ("RELAY_TOKEN_FILE", None, "is required outside a pod"),
        ("HOOK_DEADLINE", Some("10"), "must be a duration such as 10s"),
        ("HOOK_DEADLINE", Some("0s"), "must be a duration such as 10s"),
        ("HOOK_DEADLINE", Some("2h"), "must be a duration such as 10s"),
        ("HOOK_DEADLINE", Some("61m"), "must be a duration such as 10s"),
        ("HOOK_FAILURE_POLICY", Some("Fail"), "must be ignore or fail"),
        ("KUBERNETES_SERVICE_HOST", Some("a b"), "and its port make no address"),
    ] {
        let problems = load(name, value).unwrap_err();
        let found = problems.iter().find(|problem| problem.variable == name);
        let text = found.map(ToString::to_string).unwrap_or_default();
        assert!(text.contains(expected), "{name}={value:?}: {problems:?}");
    }
}

#[test]
fn a_password_in_the_url_is_not_repeated() {
    let problems =
        load("RELAY_URL", Some("https://user:hunter2@relay.example/outcome/kind-prod")).unwrap_err();
    assert!(!format!("{problems:?}").contains("hunter2"));
}

#[test]
fn an_empty_optional_value_counts_as_unset() {
    let names =
        ["GIT_URL", "FLOW_START_TIME", "CONFIG_JSON_B64", "JOB_NAME", "RELAY_CA_FILE", "HOOK_DEADLINE"];
    let mut hook = Hook::to(URL);
    for name in names {
        hook.set(name, "");
    }
    let config = Config::load(&hook.vars().collect::<Vars>(), Timestamp::UNIX_EPOCH).unwrap();
    assert!(config.warnings.is_empty() && config.ca_file.is_none());
    assert_eq!((config.attempt.as_str(), config.deadline), ("uid-1", Duration::from_secs(40)));
}

#[test]
fn the_default_deadline_depends_on_the_phase() {
    for (phase, seconds) in [("Syncing", 10), ("Succeeded", 40), ("Failed", 40)] {
        let mut hook = Hook::to(URL);
        hook.unset("HOOK_DEADLINE");
        hook.set("PHASE", phase);
        let config = Config::load(&hook.vars().collect::<Vars>(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(config.deadline, Duration::from_secs(seconds), "{phase}");
    }
}

#[test]
fn a_phase_that_contradicts_the_name_of_the_job_is_a_fault_and_reports_nothing() {
    let phases = ["Syncing", "Succeeded", "Failed", "Error"];
    let names = [
        ("x-presync-1700000000", "PreSync", &["Syncing"][..]),
        ("x-postsync-1700000000", "PostSync", &["Succeeded"]),
        ("x-syncfail-1700000000", "SyncFail", &["Failed", "Error"]),
        // Named by whoever wrote it: it says nothing.
        ("x-syncfail", "", &phases),
        ("x-syncfail-1", "", &phases),
    ];
    for (name, phase) in names.iter().flat_map(|name| phases.map(|phase| (name, phase))) {
        let (job, hook_type, fitting) = name;
        let mut hook = Hook::to(URL);
        hook.set("PHASE", phase);
        hook.set("JOB_NAME", job);
        let problems =
            Config::load(&hook.vars().collect::<Vars>(), Timestamp::UNIX_EPOCH).err().unwrap_or_default();
        let what = format!("is {phase}, but Argo CD named this Job a {hook_type} hook (JOB_NAME {job})");
        let expected = if fitting.contains(&phase) { vec![] } else { vec![Problem::new("PHASE", what)] };
        assert_eq!(problems, expected, "{job} {phase}");
    }

    let server = Server::plain([Act::status(202)]);
    for (policy, code) in [("ignore", 0), ("fail", 2)] {
        let mut hook = Hook::new(&server);
        hook.set("JOB_NAME", "x-syncfail-1700000000");
        hook.set("HOOK_FAILURE_POLICY", policy);
        let ran = hook.run();
        assert_eq!((ran.code, server.connections()), (Some(code), 0), "{ran}");
        assert!(
            ran.err.contains("LOST: Succeeded of app shop") && ran.err.contains("a SyncFail hook"),
            "{ran}"
        );
    }
}

#[test]
fn a_value_that_is_no_text_is_left_out_or_named() {
    let broken = OsString::from_vec(vec![b'a', 0xff]);
    let vars = |name: &str| {
        let pairs = Hook::to(URL).vars().map(|(n, v)| (n, OsString::from(v))).collect::<Vec<_>>();
        pairs.into_iter().chain([(name.to_owned(), broken.clone())]).collect::<Vars>()
    };
    let config = Config::load(&vars("GIT_URL"), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(config.warnings[0].to_string(), "GIT_URL is not UTF-8; it is left out");
    let problems = Config::load(&vars("ENV"), Timestamp::UNIX_EPOCH).unwrap_err();
    assert_eq!(problems, [Problem::new("ENV", "is not UTF-8")]);
}

#[test]
fn the_exit_code_is_0_unless_the_policy_is_fail() {
    let refusing = Server::plain([Act::status(400)]);
    let good = refusing.url("/outcome/kind-prod");
    for (policy, url, code) in [
        ("", good.as_str(), 0),
        ("ignore", &good, 0),
        ("fail", &good, 1),
        ("", "nonsense", 0),
        ("ignore", "nonsense", 0),
        ("fail", "nonsense", 2),
        // An unknown policy is a fault of its own, and the harmless one holds.
        ("FAIL", "nonsense", 0),
    ] {
        let mut hook = Hook::to(url);
        hook.set("HOOK_FAILURE_POLICY", policy);
        let ran = hook.run();
        assert_eq!(ran.code, Some(code), "{policy} {url}: {ran}");
        assert!(
            ran.err.contains("LOST: Succeeded of app shop (app-shop-cicd) in env prod on cluster kind-prod"),
            "{ran}"
        );
        assert_eq!(ran.err.contains("RELAY_URL is no URL"), url == "nonsense", "{ran}");
        assert_eq!(ran.out, "");
    }
}

#[test]
fn a_bare_environment_names_all_that_is_missing_and_exits_0() {
    let output = Command::new(env!("CARGO_BIN_EXE_transponder-hook")).env_clear().output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let err = String::from_utf8(output.stderr).unwrap();
    for name in ["RELAY_URL", "CLUSTER", "APP_NAMESPACE", "APP_NAME", "ENV", "PHASE", "POD_NAMESPACE"] {
        assert!(err.contains(&format!("{name} is required")), "{name}: {err}");
    }
}

#[test]
fn a_ca_file_without_a_certificate_is_wrong_and_a_missing_one_is_not() {
    let server = Server::tls([Act::status(202)]);
    for (content, code, text) in [
        ("no certificate", 2, "holds no usable certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 2, "holds no usable certificate"),
    ] {
        let mut hook = Hook::new(&server);
        let path = hook.file("ca.pem", content);
        hook.set("RELAY_CA_FILE", &path);
        let ran = hook.run();
        assert_eq!(ran.code, Some(code), "{ran}");
        assert!(ran.err.contains("RELAY_CA_FILE") && ran.err.contains(text), "{ran}");
    }
    // Not mounted yet: the CA beside the token stands in.
    for (content, state) in [(None, "is not there"), (Some("\n"), "is empty")] {
        let mut hook = Hook::new(&server);
        let path = hook.path("mounted").display().to_string();
        if let Some(content) = content {
            hook.file("mounted", content);
        }
        hook.set("RELAY_CA_FILE", &path);
        hook.file("ca.crt", server.ca().unwrap());
        let ran = hook.run();
        assert_eq!(ran.code, Some(0), "{ran}");
        let token = hook.path("token").display().to_string();
        assert_eq!(
            ran.err,
            format!(
                "transponder-hook: warning: RELAY_CA_FILE {path} {state}; \
                 trusting ca.crt of RELAY_TOKEN_FILE {token} meanwhile\n"
            )
        );
    }
}

#[test]
fn a_ca_file_that_never_comes_is_said_once_with_what_is_trusted_meanwhile() {
    let server = Server::tls([Act::status(202)]);
    let mut hook = Hook::new(&server);
    hook.set("RELAY_CA_FILE", "/nope/ca.pem");
    // Stands in for the roots of this machine, if it has any.
    let system = hook.file("system.pem", Server::tls([Act::status(202)]).ca().unwrap());
    hook.set("SSL_CERT_FILE", &system);
    hook.set("HOOK_DEADLINE", "1500ms");
    let ran = hook.run();
    assert_eq!(ran.code, Some(1), "{ran}");
    let warning = "warning: RELAY_CA_FILE /nope/ca.pem is not there; trusting the system's roots meanwhile";
    assert_eq!(ran.err.matches(warning).count(), 1, "{ran}");
    assert!(ran.err.contains("attempt 2: "), "{ran}");
}
