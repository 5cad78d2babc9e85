//! Load by existing generators: wrk for as much as goes, vegeta for a constant rate.

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{Bench, mesh::Installation};
use crate::command;

/// Events of about 2 KiB, as the hook writes them.
const TEMPLATE: &str = include_str!("event.json");
const SCRIPT: &str = include_str!("post.lua");

/// Distinct for every run of a generator, so that no event comes twice.
fn seed() -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    format!("{:05x}{:03x}", second & 0xf_ffff, RUNS.fetch_add(1, Ordering::Relaxed) & 0xfff)
}

/// The template with the times of now.
fn template() -> Result<String> {
    let date = |when: &str| {
        let mut date = Command::new("date");
        date.args(["-u", "-d", when, "+%Y-%m-%dT%H:%M:%S.123Z"]);
        let text = command::succeed(&mut date, "date", Duration::from_secs(5))?;
        anyhow::Ok(text.trim().to_owned())
    };
    Ok(TEMPLATE.trim_end().replace("@TIME@", &date("now")?).replace("@FLOW@", &date("1 hour ago")?))
}

/// One event of a cluster.
fn event(cluster: &str, app: usize, number: usize, seed: &str) -> String {
    let id = format!("{seed}ff{number:010x}");
    TEMPLATE
        .trim_end()
        .replace("@ID@", &id)
        .replace("@CLUSTER@", cluster)
        .replace("@APP@", &format!("app-{app:05}"))
}

/// So many events of one cluster, with the times of now.
pub(super) fn events(cluster: &str, count: usize) -> Result<Vec<String>> {
    let (template, seed) = (template()?, seed());
    let time = |text: String| -> String {
        // Only the times are left to fill in, and they are the template's.
        let now = template.split("\"finishedAt\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let flow = template.split("\"flowStartTime\":\"").nth(1).and_then(|rest| rest.split('"').next());
        text.replace("@TIME@", now.unwrap_or_default()).replace("@FLOW@", flow.unwrap_or_default())
    };
    Ok((0..count).map(|number| time(event(cluster, number % 100, number, &seed))).collect())
}

/// wrk, running.
pub(super) struct Wrk(Child);

/// How wrk is to press.
#[derive(Clone, Copy)]
pub(super) struct Press {
    /// Connections that are kept.
    pub(super) connections: usize,
    /// Seconds.
    pub(super) seconds: u64,
    /// Distinct streams that events belong to.
    pub(super) streams: usize,
}

impl Wrk {
    /// Starts to post events to `host:port` for the clusters of an installation.
    pub(super) fn start(bench: &Bench, to: &str, installation: &Installation, press: Press) -> Result<Self> {
        let directory = bench.directory.path();
        let write = |name: &str, text: &str| {
            let file = directory.join(name);
            fs::write(&file, text).map(|()| file)
        };
        let clusters = installation.tokens()?;
        let target = |(name, token): &(String, String)| format!("{name} /outcome/{name} {token}\n");
        let targets: String = clusters.iter().map(target).collect();
        let mut wrk = Command::new(&bench.programs.wrk);
        wrk.args(["-t2", "--timeout", "20s"])
            .arg(format!("-c{}", press.connections))
            .arg(format!("-d{}s", press.seconds))
            .arg("-s")
            .arg(write("post.lua", SCRIPT)?)
            .arg(format!("https://{to}"))
            .env("BENCH_TARGETS", write("targets", &targets)?)
            .env("BENCH_BODY", write("event.json", &template()?)?)
            .env("BENCH_TYPE", "application/cloudevents+json")
            .env("BENCH_SEED", seed())
            .env("BENCH_APPS", press.streams.div_ceil(clusters.len()).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        Ok(Self(wrk.spawn().context("start wrk")?))
    }

    /// Waits for its end. More than one answer in a hundred that is no success is an error.
    pub(super) fn finish(self) -> Result<()> {
        let output = self.0.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().unwrap_or_default();
        let seen: Value = serde_json::from_str(line).with_context(|| format!("wrk said: {text}"))?;
        let number = |key: &str| seen[key].as_f64().context("wrk's summary");
        let (requests, refused) = (number("requests")?, number("refused")?);
        ensure!(requests > 0.0 && refused < requests * 0.01, "wrk was refused: {text}");
        Ok(())
    }
}

/// Posts at a constant rate. Answers the latency of each request in milliseconds, counted from when it was due: a
/// request that had to wait for its turn has waited for the server (coordinated omission). The first `skip` are left
/// out: a handshake costs as much as many requests, and what it delays is caught up with only slowly.
pub(super) fn paced(
    bench: &Bench,
    to: &str,
    installation: &Installation,
    rate: u32,
    count: usize,
    skip: usize,
) -> Result<Vec<f64>> {
    let directory = bench.directory.path();
    let (targets, results) = (directory.join("targets.json"), directory.join("results.bin"));
    write_targets(&targets, to, installation, count)?;
    let mut attack = Command::new(&bench.programs.vegeta);
    attack
        .args(["attack", "-format=json", "-http2=false", "-timeout=20s", "-max-body=0"])
        .args(["-workers=64", "-max-workers=64", "-connections=64"])
        .arg(format!("-rate={rate}/1s"))
        .arg(format!("-duration={}ms", count * 1000 / rate as usize))
        .arg(format!("-targets={}", targets.display()))
        .arg(format!("-root-certs={}", installation.ca().display()))
        .arg(format!("-output={}", results.display()));
    command::succeed(&mut attack, "vegeta", Duration::from_secs(120))?;
    let mut encode = Command::new(&bench.programs.vegeta);
    encode.args(["encode", "-to=csv"]).arg(&results);
    let csv = command::succeed(&mut encode, "vegeta encode", Duration::from_secs(60))?;
    corrected(&csv, rate, skip)
}

fn write_targets(path: &Path, to: &str, installation: &Installation, count: usize) -> Result<()> {
    let (tokens, template, seed) = (installation.tokens()?, template()?, seed());
    let mut file = BufWriter::new(File::create(path)?);
    for number in 0..count {
        let (cluster, token) = &tokens[number % tokens.len()];
        let app = format!("app-{:05}", (number / tokens.len()) % 200);
        let id = format!("{seed}fe{number:010x}");
        let body = template.replace("@ID@", &id).replace("@CLUSTER@", cluster).replace("@APP@", &app);
        let target = json!({
            "method": "POST",
            "url": format!("https://{to}/outcome/{cluster}"),
            "header": {
                "Authorization": [format!("Bearer {token}")],
                "Content-Type": ["application/cloudevents+json"],
            },
            "body": STANDARD.encode(body),
        });
        writeln!(file, "{target}")?;
    }
    Ok(file.flush()?)
}

/// Latencies from vegeta's own records, each from the time when its request was due.
fn corrected(csv: &str, rate: u32, skip: usize) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for line in csv.lines() {
        // timestamp, code, latency, bytes out, bytes in, error, body, name, sequence, …
        let fields: Vec<&str> = line.split(',').collect();
        let field = |index: usize| fields.get(index).copied().context("a field of vegeta's");
        ensure!(matches!(field(1)?, "202" | "200"), "vegeta was answered: {line}");
        let (sent, latency): (f64, f64) = (field(0)?.parse()?, field(2)?.parse()?);
        let sequence: f64 = field(8)?.parse()?;
        all.push((sequence, sent, latency));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = all.first().context("vegeta sent nothing")?.1;
    let due = |sequence: f64| first + sequence * 1e9 / f64::from(rate);
    let latency =
        |(sequence, sent, latency): &(f64, f64, f64)| (sent + latency - due(*sequence).min(*sent)) / 1e6;
    Ok(all.iter().skip(skip).map(latency).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_sent_late_has_waited_since_it_was_due() {
        let csv = "1000000000,202,2000000,1,1,,,,0,POST,u,\n1005000000,202,1000000,1,1,,,,1,POST,u,\n";
        assert_eq!(corrected(csv, 1000, 0).unwrap(), [2.0, 5.0]);
        assert_eq!(corrected(csv, 1000, 1).unwrap(), [5.0]);
        assert!(corrected("1,503,2,1,1,e,,,0,POST,u,\n", 1000, 0).is_err());
    }

    #[test]
    fn an_event_is_realistic_and_differs_from_the_next() {
        let events = events("bench-00000", 2).unwrap();
        assert!((1800..2300).contains(&events[0].len()), "{}", events[0].len());
        assert_ne!(events[0], events[1]);
        assert!(!events[0].contains('@'), "{}", events[0]);
        serde_json::from_str::<Value>(&events[0]).unwrap();
    }
}
