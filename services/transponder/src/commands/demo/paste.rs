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
    let post = "curl --cacert $D/edge/edge-ca.crt -H \"Authorization: Bearer $(cat $D/relay-token)\"";
    let call = "grpcurl -cacert $D/mesh/ca.crt -expand-headers -H 'authorization: Bearer ${TOKEN}'";
    Ok([
        format!("D={}", stage.installation.root().display()),
        heading("post a new outcome (202; once more: 200), and read the receipt of the first"),
        format!(
            "{post} -H 'Content-Type: application/cloudevents+json' --data-binary @$D/event.json https://{edge}/outcome/{CLUSTER}"
        ),
        format!("{post} https://{edge}/outcome/{CLUSTER}/{}", told.built.key),
        heading("ask as a Task"),
        "export TOKEN=$(cat $D/task-token)".into(),
        format!("{call} -d '{{\"app_namespace\":\"app-shop-cicd\"}}' {tracking} transponder.v1.ReleaseTracking/List"),
        format!("{call} {span} describe transponder.v1.OutcomeSpan"),
        heading("metrics, spans, the operator's view"),
        format!("curl -s http://{}/metrics | grep ^dora_", stage.addresses.admin),
        "tail -1 $D/data/spans.jsonl".into(),
        "transponder --config $D/transponder.toml outcomes list".into(),
        String::new(),
    ]
    .join("\n"))
}
