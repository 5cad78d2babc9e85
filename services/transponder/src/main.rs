//! `transponder`: reads the command line and runs the command.

use std::process::ExitCode;

use clap::Parser as _;
use transponder::{
    cli::Cli,
    commands,
    output::{BAD, causes, paint},
    process,
};

// Not in the place of `malloc` as well: libfaketime, under which the tests run it, would wait for it and it for libfaketime.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match process::harden().and_then(|()| commands::run(Cli::parse())) {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("{}: {}", paint(BAD, "error"), causes(&error));
            ExitCode::FAILURE
        }
    }
}
