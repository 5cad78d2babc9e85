//! The hook from start to exit, against one that is written for a shell.

use std::{
    fs,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Bench, accept::Door, mesh::Installation, sample::median};

const RUNS: usize = 25;
const SHELL: &str = include_str!("hook.sh");

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let bytes = fs::metadata(&bench.programs.hook)?.len();
    bench.value("hook_bytes", bytes as f64);
    let installation = Installation::make(bench, "hook", 1)?;
    let door = Door::start(bench, &installation)?;
    let script = installation.path("hook.sh");
    fs::write(&script, SHELL)?;
    let mut shell = Command::new("sh");
    shell.arg(script);
    let mut hook = Command::new(&bench.programs.hook);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..=RUNS {
        for (command, times) in [(&mut hook, &mut ours), (&mut shell, &mut theirs)] {
            let millis = once(&door, environment(command, &door, &installation)?)?;
            // The first run reads the program from disk.
            if run > 0 {
                times.push(millis);
            }
        }
    }
    bench.raw("hook in ms", &ours);
    bench.raw("shell in ms", &theirs);
    bench.value("hook_over_shell", median(&ours)? / median(&theirs)?);
    Ok(())
}

/// Milliseconds from start to exit, without what the server was busy meanwhile.
fn once(door: &Door, command: &mut Command) -> Result<f64> {
    let (busy, served) = (door.busy()?, door.served()?);
    let started = Instant::now();
    let output = command.output()?;
    let took = started.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && door.served()? == served + 1.0, "a hook reported nothing: {said}");
    Ok((took - (door.busy()? - busy)) * 1e3)
}

fn environment<'c>(
    command: &'c mut Command,
    door: &Door,
    installation: &Installation,
) -> Result<&'c mut Command> {
    let (cluster, _) = &installation.tokens()?[0];
    let token = installation.path(&format!("registry/secrets/cluster-{cluster}-relay-token/token"));
    let config =
        STANDARD.encode(r#"{"replicas":3,"notify":["platform-releases"],"tests":{"timeout":"10m"}}"#);
    Ok(command
        .stdin(Stdio::null())
        .env("RELAY_URL", format!("https://{}/outcome/{cluster}", door.address))
        .env("RELAY_TOKEN_FILE", token)
        .env("RELAY_CA_FILE", installation.ca())
        .env("CLUSTER", cluster)
        .env("APP_NAMESPACE", "app-shop-cicd")
        .env("APP_NAME", "shop")
        .env("ENV", "prod")
        .env("PHASE", "Succeeded")
        .env("POD_NAMESPACE", "shop-prod")
        .env("GIT_URL", "https://git.example.com/platform/shop.git")
        .env("GIT_REVISION", "4f2d1c0b9a8e7f6d5c4b3a291807f6e5d4c3b2a1")
        .env("GITOPS_REVISION", "7d1f0c5b9a8e7f6d5c4b3a291807f6e5d4c3b2a1")
        .env("FLOW_START_TIME", "2026-09-14T09:00:00Z")
        .env("CHAIN_ID", "0b9f6a5e-3d0c-4c52-9a07-5b0a1f0c7d11")
        .env("CONFIG_JSON_B64", config)
        .env("JOB_NAME", "shop-7d1f0c5-postsync-1789380000")
        .env("HOOK_FAILURE_POLICY", "fail"))
}
