//! The real Tempo, its storage in a folder.

use std::{fs, path::Path, process::Command};

use serde_json::Value;
use tempfile::TempDir;

use crate::{LONG, Process, curl, ports, tool};

/// A running Tempo on free ports of 127.0.0.1.
#[derive(Debug)]
pub struct Tempo {
    process: Process,
    grpc: u16,
    http: u16,
    api: u16,
    _folder: TempDir,
}

impl Tempo {
    /// Starts Tempo as one process and waits until it is ready.
    pub async fn start() -> Self {
        let [grpc, http, api, internal] = std::array::from_fn(|_| ports::free());
        let folder = tempfile::tempdir().expect("make a folder for Tempo");
        let file = folder.path().join("tempo.yaml");
        fs::write(&file, configuration(folder.path(), grpc, http, api, internal))
            .expect("write the configuration");
        let mut command = Command::new(tool("tempo"));
        command.arg("-target=all").arg(format!("-config.file={}", file.display()));
        let mut process = Process::start("tempo", command);
        let ready = format!("http://127.0.0.1:{api}/ready");
        // Its rings take some 15 s to be ready.
        process
            .ready(2 * LONG, || async {
                let ran = curl(["-f", &ready]).await;
                if ran.code == Some(0) { Ok(()) } else { Err(format!("{}{}", ran.text(), ran.stderr)) }
            })
            .await;
        Self { process, grpc, http, api, _folder: folder }
    }

    /// Where it takes OTLP over gRPC.
    #[must_use]
    pub fn otlp_grpc(&self) -> String {
        format!("http://127.0.0.1:{}", self.grpc)
    }

    /// Where it takes OTLP over HTTP, without `/v1/traces`.
    #[must_use]
    pub fn otlp_http(&self) -> String {
        format!("http://127.0.0.1:{}", self.http)
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The traces that a TraceQL query finds in a window, in seconds since 1970; none: the last 15 minutes.
    ///
    /// # Errors
    ///
    /// What Tempo said instead; for [`eventually`](crate::eventually).
    pub async fn search(&self, query: &str, window: Option<(i64, i64)>) -> Result<Vec<Value>, String> {
        let url = format!("http://127.0.0.1:{}/api/search", self.api);
        let mut arguments = vec![
            "-G".to_owned(),
            url,
            "--data-urlencode".into(),
            format!("q={query}"),
            "-d".into(),
            "limit=20".into(),
        ];
        if let Some((start, end)) = window {
            arguments.extend(["-d".into(), format!("start={start}"), "-d".into(), format!("end={end}")]);
        }
        let ran = curl(arguments).await;
        let answer: Value =
            serde_json::from_slice(&ran.stdout).map_err(|_| format!("{}{}", ran.text(), ran.stderr))?;
        // proto3's JSON leaves an empty list out.
        Ok(answer["traces"].as_array().cloned().unwrap_or_default())
    }

    /// The spans of the trace of this id, 32 hex digits.
    ///
    /// # Errors
    ///
    /// What Tempo said instead.
    pub async fn trace(&self, id: &str) -> Result<Vec<Value>, String> {
        let url = format!("http://127.0.0.1:{}/api/v2/traces/{id}", self.api);
        let ran = curl(["-H", "Accept: application/json", &url]).await;
        let answer: Value =
            serde_json::from_slice(&ran.stdout).map_err(|_| format!("{}{}", ran.text(), ran.stderr))?;
        let groups = answer["trace"]["resourceSpans"].as_array().cloned().unwrap_or_default();
        let scopes =
            groups.iter().flat_map(|group| group["scopeSpans"].as_array().cloned().unwrap_or_default());
        let spans: Vec<Value> =
            scopes.flat_map(|scope| scope["spans"].as_array().cloned().unwrap_or_default()).collect();
        if spans.is_empty() { Err(answer.to_string()) } else { Ok(spans) }
    }
}

/// For Tempo 3: one process without Kafka, everything in one folder, what has just come in is found, nothing is
/// reported home.
fn configuration(folder: &Path, grpc: u16, http: u16, api: u16, internal: u16) -> String {
    let folder = folder.display();
    format!(
        "server:
  http_listen_address: 127.0.0.1
  http_listen_port: {api}
  grpc_listen_address: 127.0.0.1
  grpc_listen_port: {internal}
usage_report:
  reporting_enabled: false
distributor:
  receivers:
    otlp:
      protocols:
        grpc: {{ endpoint: '127.0.0.1:{grpc}' }}
        http: {{ endpoint: '127.0.0.1:{http}' }}
query_frontend:
  query_end_cutoff: 0s
live_store:
  fail_on_high_lag: false
  shutdown_marker_dir: '{folder}/marker'
  wal: {{ path: '{folder}/live' }}
backend_scheduler:
  local_work_path: '{folder}/work'
storage:
  trace:
    backend: local
    wal: {{ path: '{folder}/wal' }}
    local: {{ path: '{folder}/blocks' }}
"
    )
}
