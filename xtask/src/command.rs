//! Runs programs with their output captured, a limit in time, and a sign of life while they run.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::report;

/// How often a program that still runs is mentioned.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// How a program ended.
pub(crate) struct Finished {
    /// Its exit status.
    pub(crate) status: ExitStatus,
    /// What it wrote to standard output.
    pub(crate) stdout: String,
    /// What it wrote to standard error, in its own order; and to standard output as well after [`merged`].
    pub(crate) output: String,
    /// Whether it was ended for taking longer than its limit.
    pub(crate) timed_out: Option<Duration>,
}

impl Finished {
    /// Whether the program ended by itself, and well.
    pub(crate) fn success(&self) -> bool {
        self.status.success() && self.timed_out.is_none()
    }

    /// Everything it wrote, with the reason in front when it was ended.
    pub(crate) fn text(&self) -> String {
        match self.timed_out {
            Some(limit) => format!("ended after {}\n{}{}", report::duration(limit), self.output, self.stdout),
            None => format!("{}{}", self.output, self.stdout),
        }
    }
}

/// Runs `command` with both outputs captured in one text, in the order in which they were written.
pub(crate) fn merged(command: &mut Command, name: &str, limit: Duration) -> Result<Finished> {
    let output = tempfile::tempfile().context("make a file for the output")?;
    command.stdout(output.try_clone()?).stderr(output.try_clone()?);
    let (status, timed_out) = wait(command, name, limit)?;
    Ok(Finished { status, stdout: String::new(), output: text(output)?, timed_out })
}

/// Runs `command` with its two outputs captured apart.
pub(crate) fn apart(command: &mut Command, name: &str, limit: Duration) -> Result<Finished> {
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let (status, timed_out) = wait(command, name, limit)?;
    Ok(Finished { status, stdout: text(stdout)?, output: text(stderr)?, timed_out })
}

/// Runs `command` and returns its standard output; any other end than success is an error with all it wrote.
pub(crate) fn succeed(command: &mut Command, name: &str, limit: Duration) -> Result<String> {
    let finished = apart(command, name, limit)?;
    if !finished.success() {
        bail!("{name} failed ({}):\n{}", finished.status, finished.text().trim_end());
    }
    Ok(finished.stdout)
}

fn wait(command: &mut Command, name: &str, limit: Duration) -> Result<(ExitStatus, Option<Duration>)> {
    let started = Instant::now();
    let mut mention = SIGN_OF_LIFE;
    let mut child =
        command.stdin(Stdio::null()).spawn().with_context(|| format!("start {:?}", command.get_program()))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, None));
        }
        let elapsed = started.elapsed();
        if elapsed > limit {
            kill_tree(child.id())?;
            return Ok((child.wait()?, Some(limit)));
        }
        if elapsed > mention {
            report::line(&format!("      … {name}: {}", report::duration(elapsed)));
            mention += SIGN_OF_LIFE;
        }
        // Short commands are asked often, long ones cost nothing.
        thread::sleep((elapsed / 20).clamp(Duration::from_millis(2), Duration::from_millis(100)));
    }
}

/// Kills a program with all that it started: a hung test leaves its servers running otherwise.
///
/// A process group would be simpler to kill, but what ends this task (Ctrl-C, a CI runner) would not reach it.
fn kill_tree(root: u32) -> Result<()> {
    let parents = parents()?;
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    for pid in tree.into_iter().filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
        // It may have ended by itself meanwhile.
        let _ = kill_process(pid, Signal::KILL);
    }
    Ok(())
}

/// All processes, each with its parent.
fn parents() -> Result<Vec<(u32, u32)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // `pid (name) state ppid …`, where the name may hold anything, a parenthesis too.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        found.extend(parent.map(|parent| (pid, parent)));
    }
    Ok(found)
}

fn text(mut file: File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_over_its_limit_is_ended_with_its_children_and_its_output_is_kept() {
        let limit = Duration::from_millis(300);
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo started; sleep 60 & echo $!; wait"]);
        let finished = merged(&mut shell, "sleep", limit).unwrap();
        assert!(!finished.success());
        let text = finished.text();
        assert!(text.starts_with("ended after") && text.contains("started"), "{text}");
        let child = text.lines().last().unwrap();
        let started = Instant::now();
        // Reaped by whoever it was handed to; until then a zombie without a command line.
        while !fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default().is_empty() {
            assert!(started.elapsed() < Duration::from_secs(10), "{child} still runs");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_failed_command_is_an_error_that_shows_what_it_wrote() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo told you >&2; exit 3"]);
        let error = succeed(&mut shell, "shell", Duration::from_secs(10)).unwrap_err();
        assert!(error.to_string().contains("told you"), "{error}");
    }
}
