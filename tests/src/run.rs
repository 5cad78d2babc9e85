//! Real clients, run to their end.

use std::{ffi::OsStr, path::PathBuf, process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::tool;

/// No client of a test has a reason to take longer.
const LIMIT: Duration = Duration::from_secs(120);

/// A program to be run to its end.
#[derive(Debug)]
pub struct Run {
    program: PathBuf,
    command: Command,
    stdin: Vec<u8>,
}

/// How a program ended, and what it wrote.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output, to the byte.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

/// What curl received.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// Headers in the order of the wire, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, to the byte.
    pub body: Vec<u8>,
}

impl Run {
    /// The program at `path`.
    #[must_use]
    pub fn program(path: impl Into<PathBuf>) -> Self {
        let program = path.into();
        Self { command: Command::new(&program), program, stdin: Vec::new() }
    }

    /// A tool's program; see [`tool`].
    #[must_use]
    pub fn tool(name: &str) -> Self {
        Self::program(tool(name))
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Gives it something to read.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Runs it.
    ///
    /// # Panics
    ///
    /// When it cannot be started, or takes more than two minutes.
    pub async fn run(mut self) -> Ran {
        let program = self.program.display().to_string();
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = self.command.spawn().unwrap_or_else(|error| panic!("start {program}: {error}"));
        let mut stdin = child.stdin.take().expect("its input is a pipe");
        let feed = async move {
            // A program that does not read its input is none of our business.
            let _ = stdin.write_all(&self.stdin).await;
            drop(stdin);
        };
        let both = async { tokio::join!(child.wait_with_output(), feed).0 };
        let output = tokio::time::timeout(LIMIT, both).await.unwrap_or_else(|_| panic!("{program} hangs"));
        let output = output.unwrap_or_else(|error| panic!("run {program}: {error}"));
        Ran {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}\n{}", self.text(), self.stderr))
    }

    /// Itself, when the program succeeded.
    ///
    /// # Panics
    ///
    /// When it did not, with what it wrote.
    pub fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "it failed:\n{}\n{}", self.text(), self.stderr);
        self
    }
}

impl HttpResponse {
    /// The value of a header, whose name is given in lower case; the first one if it stands there twice.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(there, _)| there == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        let text = || String::from_utf8_lossy(&self.body).into_owned();
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {}", text()))
    }

    /// The body as text.
    #[must_use]
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let (head, body) = (String::from_utf8_lossy(&bytes[..end]), &bytes[end + 4..]);
        let mut lines = head.split("\r\n");
        let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        if (100..200).contains(&status) {
            return Self::parse(body);
        }
        let header = |line: &str| line.split_once(':').map(|(n, v)| (n.to_lowercase(), v.trim().to_owned()));
        Some(Self { status, headers: lines.filter_map(header).collect(), body: body.to_vec() })
    }
}

/// Runs curl, silent but for errors.
pub async fn curl(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
    Run::tool("curl").args(["-sS"]).args(arguments).run().await
}

/// Runs curl and returns the answer it got, or how curl failed when there was none.
///
/// # Errors
///
/// The exit code and message of curl.
pub async fn http(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<HttpResponse, String> {
    let ran = Run::tool("curl").args(["-sS", "-i"]).args(arguments).run().await;
    if ran.code != Some(0) {
        return Err(format!("curl ended with {:?}: {}", ran.code, ran.stderr.trim()));
    }
    HttpResponse::parse(&ran.stdout).ok_or_else(|| format!("no HTTP answer: {}", ran.text()))
}

/// Runs grpcurl, which speaks reflection v1 and v1alpha.
pub async fn grpcurl(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
    Run::tool("grpcurl").args(arguments).run().await
}

/// Runs an older grpcurl, which speaks reflection v1alpha only.
pub async fn grpcurl_v1alpha(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
    Run::tool("grpcurl-v1alpha").args(arguments).run().await
}
