//! Lines to paste into a shell: each works against the mesh as it runs.

use anyhow::Context as _;
use transponder_core::ServiceName;

use super::{
    hook::Event,
    stage::{CLUSTER, Stage},
};
use crate::{
    files::write_private,
    output::{FAINT, paint},
};

/// The lines. `told` is an outcome of the story, `new` one that was not sent yet.
pub(super) fn lines(stage: &Stage, told: &Event, new: &Event) -> anyhow::Result<String> {
    let address = |service| stage.addresses.of(service).context("a service has no address");
    let (edge, tracking) = (address(ServiceName::Edge)?, address(ServiceName::ReleaseTracking)?);
    let span = address(ServiceName::OutcomeSpan)?;
    write_private(&stage.installation.root().join("event.json"), &new.built.body)?;
    let heading = |text: &str| paint(FAINT, &format!("# {text}"));
    let post = "curl -sS --cacert $D/edge/edge-ca.crt -H \"Authorization: Bearer $(cat $D/relay-token)\"";
    let call = "grpcurl -cacert $D/mesh/ca.crt -expand-headers -H 'authorization: Bearer ${TOKEN}'";
    Ok([
        format!("D={}", stage.installation.root().display()),
        heading("post a new outcome (202; once more: 200), and read the receipt of the first"),
        format!(
            "{post} -w '\\n%{{http_code}}\\n' -H 'Content-Type: application/cloudevents+json' --data-binary @$D/event.json https://{edge}/outcome/{CLUSTER}"
        ),
        format!("{post} -w '\\n' https://{edge}/outcome/{CLUSTER}/{}", told.built.key),
        heading("ask as a Task"),
        "export TOKEN=$(cat $D/task-token)".into(),
        format!("{call} -d '{{\"app_namespace\":\"app-shop-cicd\"}}' {tracking} transponder.v1.ReleaseTracking/List"),
        format!("{call} {span} describe transponder.v1.OutcomeSpan"),
        heading("metrics, spans, the operator's view"),
        format!("curl -s http://{}/metrics | grep ^dora_", stage.addresses.admin),
        "tail -1 $D/data/spans.jsonl".into(),
        format!("{} --config $D/transponder.toml outcomes list", program()),
        String::new(),
    ]
    .join("\n"))
}

/// This program, as a shell finds it.
fn program() -> String {
    std::env::current_exe().map_or_else(|_| "transponder".into(), |path| path.display().to_string())
}
