//! What the program says to somebody who runs it by hand.
#![expect(clippy::unwrap_used, reason = "a helper of tests fails the test")]

mod support;

use std::process::Command;

use support::{Act, Hook, Server};

/// Runs the hook with arguments: exit code, stdout, stderr.
fn with(args: &[&str], vars: impl Iterator<Item = (String, String)>) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transponder-hook"));
    let output = command.args(args).env_clear().envs(vars).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn help_names_every_variable_of_the_contract_and_nothing_is_lost() {
    let (code, out, err) = with(&["--help"], std::iter::empty());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let named: Vec<_> = out
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_'))
        .collect();
    // The table of docs/hook.md, which is that of the contract.
    let page = include_str!("../../../docs/hook.md");
    let rows = page.lines().filter(|line| line.contains("| required |") || line.contains("| optional |"));
    let mut documented: Vec<_> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|names| names.split(','))
        .map(|name| name.trim().trim_matches('`'))
        .collect();
    documented.sort_unstable();
    let mut sorted = named.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, documented, "{out}");
    assert_eq!(named.first(), Some(&"RELAY_URL"), "{out}");
}

#[test]
fn the_version_is_one_line() {
    let expected = format!("transponder-hook {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(with(&["--version"], std::iter::empty()), (Some(0), expected, String::new()));
}

#[test]
fn any_other_argument_is_a_wrong_configuration_that_names_it_and_reports_nothing() {
    let server = Server::plain([Act::status(202)]);
    for (policy, code) in [("ignore", 0), ("fail", 2)] {
        let mut hook = Hook::new(&server);
        hook.set("HOOK_FAILURE_POLICY", policy);
        hook.unset("ENV");
        let (ended, out, err) = with(&["--dry-run"], hook.vars());
        assert_eq!((ended, out.as_str()), (Some(code), ""), "{err}");
        let expected = "wrong configuration: the argument '--dry-run' means nothing: ";
        assert!(err.contains("LOST: ") && err.contains(expected), "{err}");
        assert!(err.contains("ENV is required"), "all faults at once: {err}");
    }
    let (ended, _, _) = with(&["report"], Hook::new(&server).vars());
    assert_eq!((ended, server.connections()), (Some(2), 0));
}
