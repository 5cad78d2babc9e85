//! The real Prometheus.

use std::{collections::BTreeMap, fmt::Write as _, fs, net::SocketAddr, process::Command};

use serde_json::Value;
use tempfile::TempDir;

use crate::{LONG, Process, curl, ports, tool};

/// A running Prometheus on a free port of 127.0.0.1, which scrapes twice a second.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    port: u16,
    _folder: TempDir,
}

/// What Prometheus scrapes.
#[derive(Clone, Debug)]
pub struct Target {
    /// The label `job`.
    pub job: String,
    /// Host and port.
    pub address: String,
    /// The path, such as `/metrics`.
    pub path: String,
}

/// One series of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its labels, `__name__` among them where the query keeps it.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Prometheus {
    /// Starts Prometheus and waits until it answers.
    pub async fn start(targets: &[Target]) -> Self {
        Self::configured(&configuration(targets)).await
    }

    /// Starts one that takes the `dora_*` series of several replicas for those of one, as the product's monitor does.
    pub async fn scraping_one_series(replicas: &[SocketAddr]) -> Self {
        let targets: Vec<_> = replicas.iter().map(|address| format!("'{address}'")).collect();
        Self::configured(&format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms }}
scrape_configs:
  - job_name: dora-recorder
    static_configs: [{{ targets: [{}] }}]
    metric_relabel_configs:
      - {{ source_labels: [__name__], regex: 'dora_.*', action: keep }}
      - {{ action: labeldrop, regex: instance }}
",
            targets.join(", ")
        ))
        .await
    }

    async fn configured(configuration: &str) -> Self {
        let port = ports::free();
        let folder = tempfile::tempdir().expect("make a folder for Prometheus");
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, configuration).expect("write the configuration");
        let mut command = Command::new(tool("prometheus"));
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let mut process = Process::start("prometheus", command);
        let ready = format!("http://127.0.0.1:{port}/-/ready");
        process
            .ready(LONG, || async {
                let ran = curl(["-f", &ready]).await;
                if ran.code == Some(0) { Ok(()) } else { Err(ran.stderr) }
            })
            .await;
        Self { process, port, _folder: folder }
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The answer to an instant query that is a vector; empty when no series matches.
    ///
    /// # Panics
    ///
    /// When Prometheus refuses the query.
    pub async fn query(&self, query: &str) -> Vec<Sample> {
        let url = format!("http://127.0.0.1:{}/api/v1/query", self.port);
        let answer = curl(["-G", &url, "--data-urlencode", &format!("query={query}")]).await.success().json();
        let result = answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{query}: {answer}"));
        result.iter().map(sample).collect()
    }

    /// The one value that a query comes to; for [`eventually`](crate::eventually).
    ///
    /// # Errors
    ///
    /// When there is none, or more than one.
    pub async fn value(&self, query: &str) -> Result<f64, String> {
        match self.query(query).await.as_slice() {
            [one] => Ok(one.value),
            samples => Err(format!("{query}: {samples:?}")),
        }
    }
}

fn sample(series: &Value) -> Sample {
    let labels = series["metric"].as_object().into_iter().flatten();
    Sample {
        labels: labels
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        value: series["value"][1].as_str().and_then(|text| text.parse().ok()).expect("a sample has a value"),
    }
}

fn configuration(targets: &[Target]) -> String {
    let mut text = "global: { scrape_interval: 500ms, scrape_timeout: 500ms }\nscrape_configs:\n".to_owned();
    for Target { job, address, path } in targets {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  - {{ job_name: '{job}', metrics_path: '{path}', static_configs: [{{ targets: ['{address}'] }}] }}"
        );
    }
    text
}
