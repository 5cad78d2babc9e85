//! A program that runs beside a test.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::eventually;

/// How many lines of each log are shown when a test fails.
const TAIL: usize = 80;

/// A running program with its logs captured. Dropping it kills it; when the test panics, its last lines are shown.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    ended: Option<ExitStatus>,
    logs: TempDir,
}

impl Process {
    /// Starts `command`. `name` is what its logs are called in the output of a failed test.
    ///
    /// The outputs go to files and not through pipes, so that whatever is killed when, nothing written is lost.
    ///
    /// # Panics
    ///
    /// When the program cannot be started.
    #[must_use]
    pub fn start(name: &str, mut command: Command) -> Self {
        let logs = tempfile::tempdir().expect("make a folder for logs");
        let file = |stream: &str| File::create(logs.path().join(stream)).expect("make a log file");
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        let child = command.spawn().unwrap_or_else(|error| panic!("start {name} ({command:?}): {error}"));
        Self { name: name.to_owned(), child, ended: None, logs }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything written to standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.log("stdout")
    }

    /// Everything written to standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.log("stderr")
    }

    /// How many lines of standard error hold this text.
    #[must_use]
    pub fn said(&self, text: &str) -> usize {
        self.stderr().lines().filter(|line| line.contains(text)).count()
    }

    /// The exit status, once the program has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("ask for the state of a child");
        }
        self.ended
    }

    /// Waits like [`eventually`] for a program to become ready, but not for one that has ended.
    ///
    /// # Panics
    ///
    /// When the program ends, or is not ready in time.
    pub async fn ready<T, P>(&mut self, timeout: Duration, mut probe: impl FnMut() -> P) -> T
    where
        P: Future<Output = Result<T, String>>,
    {
        let what = format!("{} is ready", self.name);
        let answer = eventually(&what, timeout, || {
            let (ended, probe) = (self.ended(), probe());
            async move {
                match ended {
                    Some(status) => Ok(Err(status)),
                    None => probe.await.map(Ok),
                }
            }
        });
        match answer.await {
            Ok(value) => value,
            Err(status) => panic!("{} ended before it was ready: {status}", self.name),
        }
    }

    /// Sends a signal, if the program still runs.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            kill_process(Pid::from_child(&self.child), signal).expect("signal a child");
        }
    }

    /// Kills the program as `kill -9` does and waits until it is gone.
    pub fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        let status = self.child.wait().expect("wait for a child");
        *self.ended.get_or_insert(status)
    }

    /// Asks the program to end by SIGTERM and waits for it.
    ///
    /// # Panics
    ///
    /// When it has not ended within `timeout`.
    pub async fn terminate(&mut self, timeout: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        let what = format!("{} ends after SIGTERM", self.name);
        eventually(&what, timeout, || {
            let ended = self.ended();
            async move { ended.ok_or_else(|| "it still runs".to_owned()) }
        })
        .await
    }

    fn log(&self, stream: &str) -> String {
        let path: PathBuf = self.logs.path().join(stream);
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    fn tail(&self, stream: &str) {
        let text = self.log(stream);
        let lines: Vec<&str> = text.lines().collect();
        if !lines.is_empty() {
            eprintln!("--- {} {stream} (last {} of {} lines)", self.name, lines.len().min(TAIL), lines.len());
            eprintln!("{}", lines[lines.len().saturating_sub(TAIL)..].join("\n"));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
        }
        if std::thread::panicking() {
            self.tail("stdout");
            self.tail("stderr");
        }
    }
}
