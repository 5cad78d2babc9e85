//! `completions`: what a shell needs to complete our command line.

use clap::CommandFactory as _;

use crate::{cli::Cli, output::print};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Prints the completions.
pub fn run(args: &CompletionsArgs) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "transponder", &mut script);
    print(&String::from_utf8_lossy(&script));
}
