//! `demo`: one release's whole life, and what every service did with it.
//!
//! What it shows it has checked: each line with a mark is an expectation, and the exit code is the sum of them.

mod broker;
mod expect;
mod hook;
mod look;
mod paste;
mod stage;
mod story;
mod task;
mod teller;

use std::process::ExitCode;

use anyhow::anyhow;
use transponder_runtime::{Context, telemetry, telemetry::LogFormat};

use crate::{
    cli::Globals,
    output::{FAINT, STRONG, paint, print},
};
use stage::Stage;
use story::Story;

/// Arguments of `demo`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct DemoArgs {
    /// End after the story; with success only if everything came out as it should.
    #[arg(long)]
    pub exit: bool,
}

/// Plays the story.
///
/// # Errors
/// When the mesh cannot be set up, or stops of itself.
pub async fn run(globals: &Globals, args: DemoArgs) -> anyhow::Result<ExitCode> {
    let filter = globals.log.as_deref().unwrap_or("off");
    telemetry::init(filter, LogFormat::Text).map_err(|problem| anyhow!(problem))?;
    let context = Context::new();
    context.shutdown.on_signals()?;
    let stage = Stage::set(globals, &context).await?;
    print(&format!(
        "{}  five services, real TLS and gRPC on loopback, all in {}\n",
        paint(STRONG, "Transponder demo"),
        stage.installation.root().display(),
    ));
    let mut story = Story::new(stage);
    let told = play(&mut story, args, &context).await;
    let (stage, held) = story.end();
    if told.as_ref().is_ok_and(Option::is_some) && !args.exit {
        print(&paint(FAINT, "\nThe mesh runs until Ctrl-C; what arrives at the broker is shown here.\n"));
        stage.watch_broker(&context).await;
    }
    stage.strike().await?;
    let complete = told?.is_some();
    Ok(if held && complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tells the story and what can be done with it; `None` when somebody ended it early.
async fn play(story: &mut Story, args: DemoArgs, context: &Context) -> anyhow::Result<Option<()>> {
    let Some(told) = context.shutdown.or(story.tell()).await else {
        print("\ninterrupted\n");
        return Ok(None);
    };
    let (outcome, new) = told?;
    let when = if args.exit { "To paste while it runs, without --exit" } else { "To paste" };
    print(&format!("\n{}\n{}", paint(STRONG, when), paste::lines(&story.stage, &outcome, &new)?));
    Ok(Some(()))
}
