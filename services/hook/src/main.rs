//! `transponder-hook`: arms the guards, then runs [`transponder_hook::App`].

use std::{io, path::Path, process::ExitCode, time::Instant};

use transponder_hook::{App, config::FailurePolicy, console::Console, guard, kube::ACCOUNT_DIR, vars::Vars};

fn main() -> ExitCode {
    let start = Instant::now();
    let vars = Vars::of_process();
    guard::on_panic(FailurePolicy::of(&vars).unwrap_or(FailurePolicy::Ignore));
    let app = App::build(&vars, Path::new(ACCOUNT_DIR), start);
    guard::on_deadline(&app);
    let (mut out, mut err) = (io::stdout(), io::stderr());
    app.run(&mut Console::new(&mut out, &mut err)).into()
}
