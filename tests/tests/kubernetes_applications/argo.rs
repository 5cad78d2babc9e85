//! A namespace of Argo CD, in which Applications are as a test wants them.

use std::time::Duration;

use prost_types::Timestamp;
use serde_json::{Value, json};
use tonic::{Request, Status};
use transponder_proto::v1::{self, dora_recorder_client::DoraRecorderClient};
use transponder_tests::{
    Run, SHORT, eventually,
    kubernetes::{ApiServer, AuditEvent},
    tool,
};

use crate::ground::{ACCOUNT, Ground, Recorder};

const RBAC: &str = include_str!("../../../deploy/kubernetes/rbac/dora-recorder-applications.yaml");

/// Applies Argo CD's own definition of Application, which is too large for an annotation.
pub(crate) async fn define(server: &ApiServer) {
    let file = tool("argocd-application-crd").display().to_string();
    server.kubectl(["apply", "--server-side", "-f", &file]).await.success();
    eventually("Applications are served", SHORT, || async {
        let listed = server.kubectl(["get", "applications", "-A"]).await;
        if listed.code == Some(0) { Ok(()) } else { Err(listed.stderr) }
    })
    .await;
}

/// Seconds after an instant that is long ago.
pub(crate) fn time(second: i64) -> String {
    let minutes = second / 60;
    format!("2023-11-14T{:02}:{:02}:{:02}Z", 10 + minutes / 60, minutes % 60, second % 60)
}

/// The same.
pub(crate) fn proto(second: i64) -> Timestamp {
    // 2023-11-14T10:00:00Z
    Timestamp { seconds: 1_699_956_000 + second, nanos: 0 }
}

/// Applications of one Argo CD.
pub(crate) struct Argo {
    pub(crate) namespace: String,
}

impl Argo {
    /// Makes the namespace, and lets the recorder of this installation look at its Applications.
    pub(crate) async fn new(server: &ApiServer, ground: &mut Ground) -> Self {
        let argo = Self { namespace: format!("argo-{}", ground.namespace) };
        server.kubectl(["create", "namespace", &argo.namespace]).await.success();
        ground.mesh.set("dora.local_cluster", "dev");
        ground.mesh.set("dora.applications.namespace", &argo.namespace);
        argo
    }

    pub(crate) async fn give_rights(&self, server: &ApiServer, ground: &Ground) {
        let file = server.folder().join(format!("{}.yaml", self.namespace));
        std::fs::write(&file, RBAC.replace("platform-system", ground.namespace)).expect("write manifests");
        let file = file.display().to_string();
        server.kubectl(["apply", "-n", &self.namespace, "-f", &file]).await.success();
    }

    /// Makes an Application that never had an operation.
    pub(crate) async fn create(&self, server: &ApiServer, name: &str) {
        server
            .apply(
                &json!({
                    "apiVersion": "argoproj.io/v1alpha1",
                    "kind": "Application",
                    "metadata": {
                        "name": name,
                        "namespace": self.namespace,
                        "labels": { "hangar.io/dora-track": "true" },
                    },
                    "spec": { "project": "default", "destination": { "namespace": "shop" } },
                })
                .to_string(),
            )
            .await;
    }

    pub(crate) async fn patch(&self, server: &ApiServer, name: &str, patch: Value) {
        let patch = patch.to_string();
        let patch = ["patch", "applications", name, "-n", &self.namespace, "--type=merge", "-p", &patch];
        server.kubectl(patch).await.success();
    }

    /// An operation runs since then.
    pub(crate) async fn runs(&self, server: &ApiServer, name: &str, started: i64) {
        let state = json!({
            "operation": {}, "phase": "Running", "startedAt": time(started), "finishedAt": null,
        });
        self.patch(server, name, json!({ "status": { "operationState": state } })).await;
    }

    /// An operation has ended, 5 s after its start, and Argo CD has reconciled it.
    pub(crate) async fn ended(&self, server: &ApiServer, name: &str, phase: &str, started: i64) {
        self.runs(server, name, started).await;
        let state = json!({ "phase": phase, "finishedAt": time(started + 5) });
        let status = json!({ "operationState": state, "reconciledAt": time(started + 6) });
        self.patch(server, name, json!({ "status": status })).await;
    }

    /// Argo CD looks at the Application, as it does every few minutes.
    pub(crate) async fn reconciled(&self, server: &ApiServer, name: &str, second: i64) {
        self.patch(server, name, json!({ "status": { "reconciledAt": time(second) } })).await;
    }

    /// An operation ends well while no API server runs, and etcd forgets how it came to that.
    pub(crate) async fn ended_unseen(&self, server: &ApiServer, name: &str, started: i64) {
        let url = server.etcd_url();
        let etcdctl = async |arguments: &[&str]| {
            let run = Run::tool("etcdctl").env("ETCDCTL_API", "3").args(["--endpoints", &url]);
            run.args(arguments).run().await.success()
        };
        let key = format!("/registry/argoproj.io/applications/{}/{name}", self.namespace);
        let mut object = etcdctl(&["get", "--print-value-only", &key]).await.json();
        object["status"] = json!({
            "operationState": {
                "operation": {}, "phase": "Succeeded", "startedAt": time(started), "finishedAt": time(started + 5),
            },
            "reconciledAt": time(started + 6),
        });
        etcdctl(&["put", &key, &object.to_string()]).await;
        let read = etcdctl(&["get", &key, "--write-out=json"]).await.json();
        etcdctl(&["compact", &read["header"]["revision"].to_string()]).await;
    }

    /// What recorders asked in this namespace: nothing was refused, and nothing written.
    pub(crate) fn assert_read_only(&self, server: &ApiServer, ground: &Ground) {
        for event in self.assert_nothing_written(server, ground) {
            assert_ne!(event.code, 403, "{event:?}");
        }
    }

    /// Nothing of Argo CD's was written, and nothing else of it looked at. Answers all that the recorders asked.
    pub(crate) fn assert_nothing_written(&self, server: &ApiServer, ground: &Ground) -> Vec<AuditEvent> {
        let user = format!("system:serviceaccount:{}:{ACCOUNT}", ground.namespace);
        let own: Vec<_> = server.audit().into_iter().filter(|event| event.user == user).collect();
        assert!(own.iter().any(|event| event.resource == "applications"));
        for event in
            own.iter().filter(|event| event.group == "argoproj.io" || event.namespace == self.namespace)
        {
            assert!(matches!(&*event.verb, "get" | "list" | "watch"), "{event:?}");
            assert!(event.resource == "applications" && event.namespace == self.namespace, "{event:?}");
        }
        own
    }
}

/// Says by the app's Task that a release of `shop` in this environment is to come.
pub(crate) async fn expect(
    recorder: &Recorder,
    ground: &Ground,
    env: &str,
    release: &str,
) -> Result<Option<Timestamp>, Status> {
    let mut request = Request::new(v1::ExpectRequest {
        release: Some(v1::Release {
            app_name: "shop".into(),
            env: env.into(),
            chain_id: release.into(),
            ..Default::default()
        }),
        flow_start_time: Some(proto(0)),
    });
    let bearer = format!("Bearer {}", ground.mesh.task_token());
    request.metadata_mut().insert("authorization", bearer.parse().expect("a token"));
    request.set_timeout(Duration::from_secs(15));
    let mut client = DoraRecorderClient::new(recorder.replica.task_channel(&ground.mesh));
    Ok(client.expect(request).await?.into_inner().baseline_started_at)
}

/// Waits until this many releases have succeeded and failed in this environment of this cluster.
pub(crate) async fn until_counted(recorder: &Recorder, env: &str, succeeded: i32, failed: i32) {
    let wanted = (f64::from(succeeded), f64::from(failed));
    let env = format!("env=\"{env}\"");
    eventually("the releases are counted", SHORT, || async {
        let shown = recorder.shown().await.ok_or_else(|| "nothing is shown".to_owned())?;
        let sum = |outcome: &str| {
            let outcome = format!("outcome=\"{outcome}\"");
            shown.sum("dora_releases_total", &["cluster=\"dev\"", &env, &outcome])
        };
        let counted = (sum("succeeded"), sum("failed"));
        if counted == wanted { Ok(()) } else { Err(format!("{counted:?}")) }
    })
    .await;
}
