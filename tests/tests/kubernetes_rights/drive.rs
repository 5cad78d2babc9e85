//! Brings a service to do everything that it ever does on the API server.

use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::sleep};
use transponder_tests::{Fleet, NAMESPACE, TestEvent};

pub(crate) const SERVICES: [&str; 5] =
    ["edge", "forwarder", "dora-recorder", "release-tracking", "outcome-span"];

/// Validity of tokens.
pub(crate) const HOUR: Duration = Duration::from_hours(1);

/// Who may call as a Task.
pub(crate) const TASK: &str = "
apiVersion: v1
kind: Namespace
metadata: { name: app-shop-cicd }
---
apiVersion: v1
kind: ServiceAccount
metadata: { name: pipeline-runner, namespace: app-shop-cicd }
";

/// A fleet whose services are worked with.
pub(crate) struct Driver {
    pub(crate) fleet: Fleet,
    token: String,
    server: Pid,
    rounds: Mutex<u32>,
}

impl Driver {
    pub(crate) async fn new(mut fleet: Fleet) -> Self {
        let audience = Some("transponder");
        let token =
            fleet.server.service_account_token("app-shop-cicd", "pipeline-runner", audience, HOUR).await;
        let server = i32::try_from(fleet.server.process().pid()).ok().and_then(Pid::from_raw).expect("a pid");
        Self { fleet, token, server, rounds: Mutex::new(0) }
    }

    /// Two fresh replicas in the place of those before, whatever they are able to do, and a Lease that waits for them.
    pub(crate) async fn restart(&mut self, service: &'static str) {
        for number in 0..2 {
            if number == 0 || self.fleet.has(service, number) {
                self.fleet.kill(service, number);
            }
        }
        if !["forwarder", "outcome-span"].contains(&service) {
            self.free(service).await;
        }
        for number in 0..2 {
            self.fleet.launch(service, number);
        }
        for number in 0..2 {
            self.fleet.open(service, number);
        }
    }

    /// Waits until both are ready.
    pub(crate) async fn settle(&mut self, service: &'static str) {
        for number in 0..2 {
            self.fleet.wait_ready(service, number).await;
        }
    }

    /// Once through everything. A service that lacks a right may refuse any part of it.
    pub(crate) async fn round(&self, service: &'static str, verb: &str, resource: &str) {
        let mut rounds = self.rounds.lock().await;
        *rounds += 1;
        let name = format!("round-{rounds}");
        match service {
            "edge" => self.post(&name, (verb, resource) == ("get", "configmaps")).await,
            "dora-recorder" => self.record(&name).await,
            "release-tracking" => self.track(&name).await,
            "forwarder" => self.call(service, "Forwarder/Forward", &json!({})).await,
            _ => self.call(service, "OutcomeSpan/Emit", &json!({})).await,
        }
        // All replicas want a Lease that nobody holds, and one of them is told that it came too late.
        if resource == "leases" {
            if verb == "create" { self.free(service).await } else { self.contend(service).await }
        }
        sleep(Duration::from_millis(300)).await;
    }

    async fn post(&self, name: &str, frozen: bool) {
        let event = TestEvent::new("Succeeded", name);
        // Twice: the second time the event is known, and read.
        for _ in 0..2 {
            let _ = self.fleet.mesh.post(&event.cluster, event.body()).await;
        }
        if frozen {
            // The Secret that was read is too old, and the API server does not answer: only then the ConfigMap is read
            // by its name, to find out whether the watch still tells everything.
            sleep(Duration::from_millis(2_500)).await;
            let signal = |signal| rustix::process::kill_process(self.server, signal).expect("it runs");
            signal(Signal::STOP);
            let _ = self.fleet.mesh.post(&event.cluster, event.body()).await;
            sleep(Duration::from_secs(1)).await;
            signal(Signal::CONT);
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Several outcomes of one stream at the same time, at two replicas.
    async fn record(&self, name: &str) {
        let one = |number: u32| {
            let now = jiff::Timestamp::now().to_string();
            let release = release(&format!("{name}-{number}"), name);
            json!({
                "release": release, "phase": "PHASE_SUCCEEDED", "finishedAt": now, "firstFinishedAt": now,
                "receivedAt": now,
            })
        };
        let call =
            async |number| self.call("dora-recorder", "DoraRecorder/RecordOutcome", &one(number)).await;
        tokio::join!(call(1), call(2), call(3), call(4), call(5), call(6));
    }

    async fn track(&self, name: &str) {
        let record = |more: Value| {
            let mut record = json!({ "release": release(name, "shop") });
            record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            record
        };
        let merged = json!({ "mergedAt": "2026-09-14T10:00:00Z" });
        // Made, changed, and told once more what it knows; then removed.
        for more in [json!({}), merged.clone(), merged] {
            self.call("release-tracking", "ReleaseTracking/Put", &record(more)).await;
        }
        self.call("release-tracking", "ReleaseTracking/Delete", &record(json!({}))).await;
    }

    async fn call(&self, service: &str, method: &str, request: &Value) {
        let call = self.fleet.mesh.grpc(service).token(&self.token).described();
        let _ = call.call(method, request).await;
    }

    /// The Lease does not exist.
    async fn free(&self, service: &str) {
        let lease = format!("lease/transponder-{service}");
        self.fleet.server.kubectl(["delete", &lease, "-n", NAMESPACE, "--ignore-not-found"]).await.success();
    }

    /// Nobody holds the Lease any more.
    async fn contend(&self, service: &str) {
        let (lease, nobody) = (format!("lease/transponder-{service}"), r#"{"spec":{"holderIdentity":null}}"#);
        // One that is not there yet is made by them.
        let _ =
            self.fleet.server.kubectl(["patch", &lease, "-n", NAMESPACE, "--type=merge", "-p", nobody]).await;
    }
}

fn release(chain: &str, app: &str) -> Value {
    json!({
        "appNamespace": "app-shop-cicd", "appName": app, "env": "prod", "cluster": "kind-prod", "chainId": chain,
    })
}
