//! A small server that does what a row of a table says, and the real binary run against it.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails the test")]

pub(crate) mod pod;
pub(crate) mod server;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, ChildStderr, Command, Output, Stdio},
    time::{Duration, Instant},
};

pub(crate) use server::{Act, Request, Server};
use tempfile::TempDir;

pub(crate) const TOKEN: &str = "relay-token-0123456789abcdef";

/// A hook Job: an environment that is complete, to be changed, and a directory of its own.
pub(crate) struct Hook {
    pub(crate) dir: TempDir,
    vars: Vec<(String, String)>,
}

pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Hook {
    pub(crate) fn new(server: &Server) -> Self {
        let mut hook = Self::to(&server.url("/outcome/kind-prod"));
        if let Some(ca) = server.ca() {
            let path = hook.file("ca.crt.pem", ca);
            hook.set("RELAY_CA_FILE", &path);
        }
        hook
    }

    pub(crate) fn to(url: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut hook = Self { dir, vars: Vec::new() };
        let token = hook.file("token", TOKEN);
        for (name, value) in [
            ("RELAY_URL", url),
            ("CLUSTER", "kind-prod"),
            ("APP_NAMESPACE", "app-shop-cicd"),
            ("APP_NAME", "shop"),
            ("ENV", "prod"),
            ("PHASE", "Succeeded"),
            ("POD_NAMESPACE", "shop-prod"),
            ("CHAIN_ID", "chain-1"),
            ("GIT_REVISION", "abcdef0"),
            ("JOB_UID", "uid-1"),
            ("RELAY_TOKEN_FILE", &token),
            ("HOOK_DEADLINE", "5s"),
            ("HOOK_FAILURE_POLICY", "fail"),
        ] {
            hook.set(name, value);
        }
        hook
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.unset(name);
        self.vars.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn unset(&mut self, name: &str) {
        self.vars.retain(|(known, _)| known != name);
    }

    pub(crate) fn vars(&self) -> impl Iterator<Item = (String, String)> {
        self.vars.iter().cloned()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file of the hook's directory as the kubelet does: all at once.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        write(self.path(name), content)
    }

    pub(crate) fn start(&self) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_transponder-hook"))
            .env_clear()
            .envs(self.vars())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        Running { child, err, said: String::new(), start: Instant::now() }
    }

    pub(crate) fn run(&self) -> Ran {
        self.start().end()
    }
}

/// A hook that runs.
pub(crate) struct Running {
    child: Child,
    err: BufReader<ChildStderr>,
    said: String,
    start: Instant,
}

impl Running {
    /// Waits until it has said this on stderr.
    pub(crate) fn wait_for(&mut self, text: &str) {
        while !self.said.contains(text) {
            let more = self.err.read_line(&mut self.said).unwrap();
            assert!(more > 0, "it ended without saying '{text}': {}", self.said);
        }
    }

    pub(crate) fn end(mut self) -> Ran {
        self.err.read_to_string(&mut self.said).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Ran::new(&output, self.said, self.start.elapsed())
    }

    /// Kills it, as a node that dies does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes both of its outputs.
    pub(crate) fn deafen(self) -> Option<i32> {
        let Self { mut child, err, .. } = self;
        drop((child.stdout.take(), err));
        child.wait().unwrap().code()
    }
}

impl Ran {
    fn new(output: &Output, err: String, took: Duration) -> Self {
        let out = String::from_utf8(output.stdout.clone()).unwrap();
        let ran = Self { code: output.status.code(), out, err, took };
        // Of every run of every test.
        assert!(!ran.out.contains(TOKEN) && !ran.err.contains(TOKEN), "the token is in the output: {ran}");
        ran
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {:?} after {:?}\n{}{}", self.code, self.took, self.out, self.err)
    }
}

pub(crate) fn write(path: PathBuf, content: &str) -> String {
    let partial = path.with_extension("partial");
    fs::write(&partial, content).unwrap();
    fs::rename(&partial, &path).unwrap();
    path.to_str().unwrap().to_owned()
}
