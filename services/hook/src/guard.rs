//! Holds what must hold even for faults that nobody foresaw: the deadline, and the exit code.

use std::{io, panic, process, thread, time::Duration};

use crate::{
    app::{App, exit_code, lost},
    config::FailurePolicy,
    console,
    error::Error,
};

/// What the orderly end of a run is granted beyond the deadline before it is cut off.
const GRACE: Duration = Duration::from_millis(300);

/// From now on a panic ends the process with the exit code of the policy instead of an abort, which would fail the
/// sync.
pub fn on_panic(policy: FailurePolicy) {
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        end(policy, "the outcome", &Error::Final(format!("internal fault at {place}")));
    }));
}

/// From now on the deadline ends the process even where a call never returns: a file system that hangs, a resolver
/// without a time limit.
pub fn on_deadline(app: &App) {
    let (policy, deadline, what) = (app.policy(), app.deadline(), app.what().to_owned());
    let watch = move || {
        thread::sleep(deadline.remaining() + GRACE);
        let last = "a call did not return".to_owned();
        end(policy, &what, &Error::Deadline { total: deadline.total(), last });
    };
    // Where no thread can be had, the limits of the single calls still hold.
    let _ = thread::Builder::new().name("deadline".to_owned()).spawn(watch);
}

fn end(policy: FailurePolicy, what: &str, error: &Error) {
    console::line(&mut io::stderr(), &lost(what, error));
    process::exit(i32::from(exit_code(policy, error)));
}
