//! The mesh as one process, from an installation to its end, with the operator's commands at work on it.

#![expect(clippy::unwrap_used, reason = "in a test an unexpected failure should panic")]

use std::{
    io::Read as _,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// An installation and the mesh that runs on it.
struct Running {
    directory: TempDir,
    process: Child,
    addresses: Value,
}

fn command(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transponder"));
    for (name, _) in std::env::vars() {
        if name.starts_with("TRANSPONDER_") || name.starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command.args(args).env("TRANSPONDER_CONFIG", directory.join("i/transponder.toml"));
    command
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Running {
    /// `broker` is where events go; nothing needs to listen there.
    fn start(broker: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("i").display().to_string();
        let init = ["init", &at, "--broker-url", &format!("http://{broker}/")];
        let init = Command::new(env!("CARGO_BIN_EXE_transponder")).args(init).output().unwrap();
        assert!(init.status.success());
        let ready = directory.path().join("ready.json");
        let mut args = vec!["all".to_owned(), "--ready-file".into(), ready.display().to_string()];
        for section in ["admin", "edge", "forwarder", "dora", "release_tracking", "outcome_span"] {
            args.extend(["--set".into(), format!("{section}.listen=127.0.0.1:0")]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let process = command(directory.path(), &args).stderr(log).spawn().unwrap();
        let mut running = Self { directory, process, addresses: Value::Null };
        running.addresses = eventually("the ready file", || {
            assert!(running.process.try_wait().unwrap().is_none(), "{}", running.log());
            serde_json::from_slice(&std::fs::read(&ready).ok()?).ok()
        });
        running
    }

    fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    fn address(&self, part: &str) -> &str {
        self.addresses[part].as_str().unwrap()
    }

    /// stdout and whether it succeeded.
    fn ask(&self, args: &[&str]) -> (bool, String) {
        let output = command(self.directory.path(), args).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), shown + &String::from_utf8_lossy(&output.stderr))
    }

    fn ok(&self, args: &[&str]) -> String {
        let (success, shown) = self.ask(args);
        assert!(success, "{args:?}: {shown}\n{}", self.log());
        shown
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--output", "json"]].concat())).unwrap()
    }

    /// The options that say where everything listens.
    fn listening(&self) -> Vec<String> {
        [
            ("admin", "admin"),
            ("edge", "edge"),
            ("forwarder", "forwarder"),
            ("dora", "dora-recorder"),
            ("release_tracking", "release-tracking"),
            ("outcome_span", "outcome-span"),
        ]
        .iter()
        .flat_map(|(section, part)| ["--set".into(), format!("{section}.listen={}", self.address(part))])
        .collect()
    }

    /// Waits until the doctor says this of the running mesh, and answers all that it says.
    fn doctor_says(&self, what: &str) -> String {
        let listening = self.listening();
        let flags: Vec<&str> = listening.iter().map(String::as_str).collect();
        eventually(&format!("the doctor says '{what}'"), || {
            let (_, shown) = self.ask(&[&["doctor"], &flags[..]].concat());
            shown.contains(what).then_some(shown)
        })
    }

    fn add_cluster(&self) {
        let url = format!("https://{}", self.address("edge"));
        let ca = self.path("i/edge/edge-ca.crt").display().to_string();
        self.ok(&["cluster", "add", "upper", "--url", &url, "--ca", &ca]);
    }

    /// What `send` shows; sent again until the edge has seen the cluster.
    fn send(&self, more: &[&str]) -> Value {
        let args = ["send", "--cluster", "upper", "--app-namespace", "app-shop-cicd", "--app", "shop"];
        let args = [&args[..], &["--env", "prod", "--chain-id", "c-1", "--output", "json"], more].concat();
        eventually("the edge takes the event", || {
            let (_, shown) = self.ask(&args);
            let answer: Value = serde_json::from_str(&shown).ok()?;
            answer["receipt"].is_object().then_some(answer)
        })
    }

    fn terminate(&mut self) -> (bool, String) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = eventually("the process ends", || self.process.try_wait().unwrap());
        (status.success(), self.log())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A broker that takes everything.
fn broker() -> SocketAddr {
    broker_that_answers("202 Accepted")
}

fn broker_that_answers(status: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 64 * 1024];
                while let Ok(1..) = stream.read(&mut buffer) {
                    let answer =
                        format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                    if std::io::Write::write_all(&mut stream, answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn an_installation_runs_and_the_operator_sees_what_is_sent() {
    let mut running = Running::start(broker());
    running.add_cluster();

    let sent = running.send(&["--phase", "Succeeded", "--attempt", "one"]);
    let key = sent["key"].as_str().unwrap();
    for target in ["broker", "tracking", "dora", "span"] {
        assert_eq!(sent["receipt"]["targets"][target]["state"], "delivered", "{sent:#}");
    }
    let listed = running.json(&["outcomes", "list", "--state", "delivered", "--cluster", "upper"]);
    assert_eq!(listed["outcomes"][0]["key"], key);
    assert_eq!(running.json(&["outcomes", "show", key])["phase"], "Succeeded");
    assert!(running.ok(&["outcomes", "list"]).contains("all done"));
    let (replayed, reason) = running.ask(&["outcomes", "replay", key]);
    assert!(!replayed && reason.contains("nothing to replay"), "{reason}");
    let releases = running.json(&["releases", "list", "--state", "succeeded"]);
    assert_eq!(releases["releases"][0]["chainId"], "c-1", "{releases:#}");
    assert!(running.ok(&["releases", "clusters"]).contains("upper"));

    // In one process nobody sets the peers: they are where the services listen.
    let listening = running.listening();
    let flags: Vec<&str> = listening.iter().map(String::as_str).collect();
    let doctor = running.json(&[&["doctor"], &flags[..]].concat());
    assert_eq!(doctor["ok"], true, "{doctor:#}");
    let told: Vec<&str> =
        doctor["findings"].as_array().unwrap().iter().flat_map(|f| f["what"].as_str()).collect();
    for fine in ["forwarder: serving", "every target takes events", "there are no dead outcomes"] {
        assert!(told.contains(&fine), "{fine}: {doctor:#}");
    }
    // Where somebody else answers than who should, the doctor says so.
    let swapped = format!("edge.peers.forwarder={}", running.address("outcome-span"));
    let (well, shown) = running.ask(&[&["doctor"], &flags[..], &["--set", &swapped]].concat());
    assert!(!well && shown.contains("is outcome-span, not forwarder"), "{shown}");
    let stranger = running.path("stranger").display().to_string();
    running.ok(&["mesh-certs", "--directory", &stranger]);
    let strange = format!("mesh.directory={stranger}");
    let (well, shown) = running.ask(&[&["doctor"], &flags[..], &["--set", &strange]].concat());
    assert!(!well && shown.contains("forwarder: another installation seems to answer there"), "{shown}");

    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.process.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let core: Vec<&str> = core.split_whitespace().skip(4).take(2).collect();
    assert_eq!(core, ["0", "0"], "no core dumps of secrets");

    let (success, log) = running.terminate();
    assert!(success && log.contains("stopped"), "{log}");
    for part in ["edge", "forwarder", "dora-recorder", "release-tracking", "outcome-span", "admin"] {
        assert!(log.lines().any(|line| line.contains("listening") && line.contains(part)), "{part}: {log}");
    }
    let token = std::fs::read_to_string(running.path("i/registry/secrets/cluster-upper-relay-token/token"));
    assert!(!log.contains(&token.unwrap()), "a token is in the log");
}

#[test]
fn an_outcome_whose_broker_is_away_is_kept_and_said_to_wait() {
    // A port that nobody listens on: bound, and given free again.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let running = Running::start(nobody);
    running.add_cluster();
    let sent = running.send(&["--wait", "0s"]);
    let key = sent["key"].as_str().unwrap().to_owned();
    eventually("the broker is tried again", || {
        let shown = running.json(&["outcomes", "show", &key]);
        (shown["targets"]["broker"]["state"] == "retrying").then_some(())
    });
    assert!(running.ok(&["outcomes", "list", "--state", "retrying"]).contains("broker retrying"));
    let shown = running.doctor_says("broker takes no events, 1 wait");
    assert!(shown.contains("Operations, A target that is away"), "{shown}");
}

#[test]
fn an_outcome_that_was_given_up_is_one_that_the_doctor_tells_of() {
    let running = Running::start(broker_that_answers("422 Unprocessable Entity"));
    running.add_cluster();
    running.send(&["--wait", "0s"]);
    let shown = running.doctor_says("there are dead outcomes");
    assert!(shown.contains("outcomes list --state dead; with the cause mended"), "{shown}");
}

#[test]
fn what_cannot_start_is_named_and_nothing_is_served() {
    let running = Running::start(broker());
    // The same data directories: in use.
    let second = command(running.directory.path(), &["dora-recorder", "--set", "dora.listen=127.0.0.1:0"])
        .args(["--set", "admin.listen=127.0.0.1:0"])
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        said.contains("dora-recorder cannot start") && said.contains("in use by another process"),
        "{said}"
    );

    let taken = format!("admin.listen={}", running.address("admin"));
    let (_, said) = running.ask(&["forwarder", "--set", &taken]);
    assert!(said.contains("admin cannot listen on"), "{said}");
}
