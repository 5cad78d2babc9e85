//! `transponder`: reads the command line and runs the command.

use std::process::ExitCode;

use clap::Parser as _;
use transponder::{
    cli::Cli,
    commands,
    output::{BAD, paint},
    process,
};

fn main() -> ExitCode {
    match process::harden().and_then(|()| commands::run(Cli::parse())) {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("{}: {error:#}", paint(BAD, "error"));
            ExitCode::FAILURE
        }
    }
}
