//! The real Jaeger, its storage in memory.

use std::{fs, process::Command};

use serde_json::Value;
use tempfile::TempDir;

use crate::{LONG, Process, curl, ports, tool};

/// A running Jaeger on free ports of 127.0.0.1.
#[derive(Debug)]
pub struct Jaeger {
    process: Process,
    grpc: u16,
    http: u16,
    query: u16,
    _config: TempDir,
}

impl Jaeger {
    /// Starts Jaeger and waits until it takes spans in and answers queries.
    pub async fn start() -> Self {
        let [grpc, http, query, query_grpc, health] = std::array::from_fn(|_| ports::free());
        let folder = tempfile::tempdir().expect("make a folder for the configuration");
        let file = folder.path().join("jaeger.yaml");
        fs::write(&file, configuration(grpc, http, query, query_grpc, health))
            .expect("write the configuration");
        let mut command = Command::new(tool("jaeger"));
        command.arg("--config").arg(&file);
        let mut process = Process::start("jaeger", command);
        let status = format!("http://127.0.0.1:{health}/status");
        process
            .ready(LONG, || async {
                let ran = curl(["-f", &status]).await;
                if ran.code == Some(0) { Ok(()) } else { Err(ran.stderr) }
            })
            .await;
        Self { process, grpc, http, query, _config: folder }
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

    /// The trace of this id (32 hex digits) as Jaeger's API shows it, once it is there.
    ///
    /// # Errors
    ///
    /// What Jaeger said instead; for [`eventually`](crate::eventually).
    pub async fn trace(&self, id: &str) -> Result<Value, String> {
        self.traces(&format!("/api/traces/{id}"))
            .await?
            .into_iter()
            .next()
            .ok_or_else(|| "an empty list".to_owned())
    }

    /// The traces of a service, newest first, whose spans have all these tags.
    ///
    /// # Errors
    ///
    /// What Jaeger said instead.
    pub async fn search(&self, service: &str, tags: &[(&str, &str)]) -> Result<Vec<Value>, String> {
        let tags: serde_json::Map<String, Value> =
            tags.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
        let tags = Value::from(tags).to_string();
        // From the epoch on: a release's span starts when its pull request was opened.
        let url = format!("http://127.0.0.1:{}/api/traces", self.query);
        let parameters = [format!("service={service}"), format!("tags={tags}"), "start=0".to_owned()];
        let encoded = parameters.iter().flat_map(|parameter| ["--data-urlencode", parameter.as_str()]);
        let arguments: Vec<&str> = ["-G", &url].into_iter().chain(encoded).collect();
        data(&curl(arguments).await.success().json())
    }

    async fn traces(&self, path: &str) -> Result<Vec<Value>, String> {
        data(&curl([format!("http://127.0.0.1:{}{path}", self.query)]).await.success().json())
    }
}

fn data(answer: &Value) -> Result<Vec<Value>, String> {
    match answer.get("data") {
        Some(Value::Array(traces)) => Ok(traces.clone()),
        _ => Err(answer.to_string()),
    }
}

fn configuration(grpc: u16, http: u16, query: u16, query_grpc: u16, health: u16) -> String {
    format!(
        "service:
  extensions: [jaeger_storage, jaeger_query, healthcheckv2]
  pipelines:
    traces: {{ receivers: [otlp], exporters: [jaeger_storage_exporter] }}
  telemetry:
    metrics: {{ level: none }}
extensions:
  jaeger_storage:
    backends: {{ memory: {{ memory: {{ max_traces: 1000000 }} }} }}
  jaeger_query:
    storage: {{ traces: memory }}
    grpc: {{ endpoint: '127.0.0.1:{query_grpc}' }}
    http: {{ endpoint: '127.0.0.1:{query}' }}
  healthcheckv2:
    use_v2: true
    http: {{ endpoint: '127.0.0.1:{health}' }}
receivers:
  otlp:
    protocols:
      grpc: {{ endpoint: '127.0.0.1:{grpc}' }}
      http: {{ endpoint: '127.0.0.1:{http}' }}
exporters:
  jaeger_storage_exporter: {{ trace_storage: memory }}
"
    )
}
