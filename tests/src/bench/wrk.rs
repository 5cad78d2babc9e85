//! Load by an existing generator, the same for the product and for what it is compared with.

use std::{fmt::Write as _, fs, path::Path};

use transponder_tests::Run;

use crate::event::seed;

/// The same as that of the other benchmarks.
const SCRIPT: &str = include_str!("../../../xtask/src/bench/post.lua");

/// What is pressed on.
pub(crate) struct Press {
    /// `host:port`.
    pub to: String,
    /// Of each cluster: its name, the path, the token.
    pub targets: Vec<[String; 3]>,
    pub content_type: &'static str,
    /// What is posted, but for what differs from one to the next.
    pub body: String,
    /// Apps of each cluster.
    pub apps: usize,
}

/// What came of it.
#[derive(Clone, Copy)]
pub(crate) struct Pressed {
    pub requests: f64,
    /// Successes a second.
    pub rate: f64,
    /// Milliseconds.
    pub p50: f64,
    pub p99: f64,
}

impl Press {
    /// Presses over so many connections, one request at a time on each.
    ///
    /// # Panics
    ///
    /// When anything was answered with an error.
    pub(crate) async fn run(&self, folder: &Path, connections: usize, seconds: u64) -> Pressed {
        let mut targets = String::new();
        for [cluster, path, token] in &self.targets {
            writeln!(targets, "{cluster} {path} {token}").expect("write to a text");
        }
        let write = |name: &str, text: &str| {
            let file = folder.join(name);
            fs::write(&file, text).expect("write what wrk reads");
            file
        };
        let wrk = Run::tool("wrk")
            .args(["-t2", "--timeout", "20s", "--latency"])
            .args([format!("-c{connections}"), format!("-d{seconds}s"), "-s".to_owned()])
            .args([write("post.lua", SCRIPT)])
            .args([format!("https://{}", self.to)])
            .env("BENCH_TARGETS", write("targets", &targets))
            .env("BENCH_BODY", write("body", &self.body))
            .env("BENCH_TYPE", self.content_type)
            .env("BENCH_SEED", seed())
            .env("BENCH_APPS", self.apps.to_string());
        let ran = wrk.run().await.success();
        let text = ran.text();
        let seen: serde_json::Value =
            serde_json::from_str(text.lines().last().unwrap_or_default()).expect("wrk's summary");
        let number = |key: &str| seen[key].as_f64().expect("a number of wrk's");
        assert!(number("requests") > 0.0 && number("refused") + number("broken") == 0.0, "{text}");
        Pressed {
            requests: number("requests"),
            rate: number("requests") / number("micros") * 1e6,
            p50: number("p50") / 1e3,
            p99: number("p99") / 1e3,
        }
    }
}
