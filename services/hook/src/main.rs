//! `transponder-hook`: arms the guards, looks for arguments (there should be none), then runs [`transponder_hook::App`].

use std::{
    env,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    time::Instant,
};

use transponder_hook::{
    App, config::FailurePolicy, console::Console, guard, kube::ACCOUNT_DIR, usage, vars::Vars,
};

fn main() -> ExitCode {
    let start = Instant::now();
    let vars = Vars::of_process();
    guard::on_panic(FailurePolicy::of(&vars).unwrap_or(FailurePolicy::Ignore));
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let mut app = App::build(&vars, Path::new(ACCOUNT_DIR), start);
    match usage::asked(env::args_os().skip(1)) {
        Ok(None) => {}
        Ok(Some(text)) => {
            // Whoever asked may have gone away.
            let _ = out.write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(fault) => app = app.with_fault(fault),
    }
    guard::on_deadline(&app);
    app.run(&mut Console::new(&mut out, &mut err)).into()
}
