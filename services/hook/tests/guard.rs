//! The exit code and the deadline hold even for what nobody foresaw.

mod support;

use std::{env, process::Command, time::Duration};

use support::{Act, Hook, Server};
use transponder_hook::{config::FailurePolicy, guard};

/// Runs this test again in a process of its own, which panics.
#[test]
fn a_panic_ends_with_the_exit_code_of_the_policy_and_does_not_repeat_what_it_was_about() {
    const CHILD: &str = "TEST_PANICS_UNDER_POLICY";
    if let Ok(policy) = env::var(CHILD) {
        guard::on_panic(if policy == "fail" { FailurePolicy::Fail } else { FailurePolicy::Ignore });
        panic!("about a-secret");
    }
    for (policy, code) in [("ignore", 0), ("fail", 1)] {
        let name = "a_panic_ends_with_the_exit_code_of_the_policy_and_does_not_repeat_what_it_was_about";
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, policy)
            .output()
            .unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{err}");
        assert!(err.contains("LOST") && err.contains("guard.rs"), "{err}");
        assert!(!err.contains("a-secret"), "{err}");
    }
}

#[test]
fn a_read_that_never_returns_does_not_hold_the_hook_beyond_its_deadline() {
    let server = Server::plain([Act::status(202)]);
    for (policy, code) in [("ignore", 0), ("fail", 1)] {
        let mut hook = Hook::new(&server);
        // Opening a pipe without a writer blocks, as a file system does whose server is away.
        let pipe = hook.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        hook.set("RELAY_TOKEN_FILE", pipe.to_str().unwrap());
        hook.set("HOOK_DEADLINE", "500ms");
        hook.set("HOOK_FAILURE_POLICY", policy);
        let ran = hook.run();
        assert_eq!(ran.code, Some(code), "{ran}");
        assert!(ran.took < Duration::from_secs(2), "{ran}");
        assert!(
            ran.err.contains("LOST: Succeeded of app shop") && ran.err.contains("did not return"),
            "{ran}"
        );
    }
}
