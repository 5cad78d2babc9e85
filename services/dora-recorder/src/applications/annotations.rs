//! What older Tasks write on an Application: that a release is pending.

use transponder_core::{AppName, AppNamespace, ClusterName, EnvName, Release, ReleaseId, Stream, Timestamp};

use super::object::{Application, Problem, read_time};
use crate::state::Awaited;

/// Reads what an Application says to be pending; `None`: nothing.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    application: &Application,
    prefix: &str,
    cluster: &ClusterName,
) -> Result<Option<(Stream, Awaited)>, Problem> {
    let annotation = |name: &str| {
        let annotations = application.annotations()?;
        annotations.get(&format!("{prefix}/dora-{name}")).map(|text| text.trim())
    };
    if annotation("pending") != Some("true") {
        return Ok(None);
    }
    let needed = |name: &str| {
        let text = annotation(name).filter(|text| !text.is_empty());
        text.ok_or_else(|| format!("annotation {prefix}/dora-{name} is missing"))
    };
    let wrong = |name: &str, problem: String| format!("annotation {prefix}/dora-{name}: {problem}");
    let app = needed("app")?;
    let app = AppName::new(app).map_err(|e| wrong("app", e.to_string()))?;
    let namespace = needed("app-namespace")?;
    let app_namespace = AppNamespace::new(namespace).map_err(|e| wrong("app-namespace", e.to_string()))?;
    let env = match annotation("env").filter(|env| !env.is_empty()) {
        Some(env) => env,
        None => {
            let rest = application.name().strip_prefix(app.as_str()).and_then(|rest| rest.strip_prefix('-'));
            rest.ok_or_else(|| wrong("env", format!("is missing, and the name is not {app}-<env>")))?
        }
    };
    let env = EnvName::new(env).map_err(|e| wrong("env", e.to_string()))?;
    // Empty: there had been no operation. Missing: nobody has looked, and any operation of before would be counted.
    let baseline = annotation("baseline-started-at")
        .ok_or_else(|| format!("annotation {prefix}/dora-baseline-started-at is missing"))?;
    let baseline = Some(baseline).filter(|text| !text.is_empty()).map(read_time).transpose();
    let baseline = baseline.map_err(|problem| wrong("baseline-started-at", problem))?;
    // A lead time that is not known keeps no release from being counted.
    let flow_start = annotation("flow-start-time").and_then(|text| read_time(text).ok());
    let stream = Stream { app_namespace, app, env, cluster: cluster.clone() };
    // Older Tasks name no release: it is the sync after this baseline.
    let after = baseline.map(|baseline| Timestamp::from(baseline).to_string()).unwrap_or_default();
    let id = ReleaseId::EventId(format!("application/{}/{after}", application.uid()));
    let release = Release { stream: stream.clone(), id }.key();
    let awaited = Awaited { application: application.uid().to_owned(), baseline, release, flow_start };
    Ok(Some((stream, awaited)))
}
