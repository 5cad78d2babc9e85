//! Programs under measurement: started, asked what they cost, ended.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A program that runs until it is dropped.
pub(super) struct Running {
    child: Child,
    name: String,
}

impl Running {
    /// Starts a program that logs to a file.
    pub(super) fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(log)?)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { child, name: name.to_owned() })
    }

    /// Starts a yardstick and reads the line that it prints once it listens.
    pub(super) fn yardstick(name: &str, command: &mut Command) -> Result<(Self, Value)> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut running =
            Self { child: child.with_context(|| format!("start {name}"))?, name: name.to_owned() };
        let line = running.line()?;
        Ok((running, line))
    }

    /// The next line of a yardstick's answer.
    pub(super) fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        let stdout = self.child.stdout.as_mut().context("its output is not read")?;
        // Yardsticks print one line at a time and wait: nothing is lost with the buffer.
        BufReader::new(stdout).read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("{} said: {line}", self.name))
    }

    /// Gives a yardstick all its input.
    pub(super) fn feed(&mut self, text: &str) -> Result<()> {
        let mut stdin = self.child.stdin.take().context("its input is closed")?;
        Ok(stdin.write_all(text.as_bytes())?)
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Seconds of CPU it has used, user and system.
    pub(super) fn cpu(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        let fields = stat.rsplit_once(')').context("a process has a name")?.1;
        // utime and stime are fields 14 and 15, and `)` ends field 2.
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        let ticks: f64 = ticks.sum::<Result<f64, _>>()?;
        Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Its anonymous memory in MiB.
    pub(super) fn anonymous(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }

    /// Fails when it has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended: {status}", self.name),
            None => Ok(()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Gets a page over plain HTTP.
pub(super) fn get(address: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}

/// Asks until there is an answer.
pub(super) fn wait<T>(
    what: &str,
    limit: Duration,
    pause: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        ensure!(started.elapsed() < limit, "{what}: not within {limit:?}");
        thread::sleep(pause);
    }
}
