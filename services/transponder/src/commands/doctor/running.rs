//! What the running services say of themselves: readiness, targets that are down, outcomes that were given up.

use std::net::SocketAddr;

use http::Method;
use transponder_runtime::operator::{self, OperatorError};

use super::{finding::Findings, reach::PATIENCE};
use crate::{config::Config, desk::Desk, mesh::reachable};

const AREA: &str = "running";

/// Asks the admin listener, and whoever answers operators for the edge.
pub(super) async fn check(config: &Config, findings: &mut Findings) {
    let admin = reachable(config.admin.listen);
    if let Some(ready) = get(admin, "/readyz").await {
        readiness(admin, ready, findings);
        if let Some((true, metrics)) = get(admin, "/metrics").await {
            targets(&metrics, admin, findings);
        }
    } else {
        let mend = "start 'transponder all', or the service whose admin.listen this is";
        let at = format!("http://{admin}/readyz");
        findings.wrong("reach", "the admin listener does not answer", at, mend);
    }
    dead(config, findings).await;
}

/// Whether the answer is a success, and its body.
async fn get(admin: SocketAddr, path: &str) -> Option<(bool, String)> {
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().ok()?;
    let response = client.get(format!("http://{admin}{path}")).send().await.ok()?;
    Some((response.status().is_success(), response.text().await.ok()?))
}

fn readiness(admin: SocketAddr, (ready, body): (bool, String), findings: &mut Findings) {
    let at = format!("http://{admin}/readyz");
    if ready {
        findings.fine("reach", "every part is ready", at);
        return;
    }
    let what = format!("not ready: {}", body.trim().replace('\n', "; "));
    findings.wrong("reach", &what, at, "mend what is named; the parts become ready by themselves");
}

/// Says which targets take no events. A process without the edge has no such metrics.
fn targets(metrics: &str, admin: SocketAddr, findings: &mut Findings) {
    let at = format!("http://{admin}/metrics");
    let mut known = false;
    for (target, down) in by_target(metrics, "transponder_target_down") {
        known = true;
        if down != "1" {
            continue;
        }
        let mut waiting = by_target(metrics, "transponder_waiting_events");
        let waiting = waiting.find(|(of, _)| *of == target).map_or("some", |(_, events)| events);
        let what = format!("{target} takes no events, {waiting} wait");
        let mend = "its log line says why; see Operations, A target that is away";
        findings.wrong(AREA, &what, &at, mend);
    }
    if known && findings.all().iter().all(|finding| finding.area != AREA) {
        findings.fine(AREA, "every target takes events", at);
    }
}

/// The series of a gauge with the one label `target`.
fn by_target<'a>(metrics: &'a str, name: &'static str) -> impl Iterator<Item = (&'a str, &'a str)> {
    metrics.lines().filter_map(move |line| {
        let (target, value) = line.strip_prefix(name)?.strip_prefix("{target=\"")?.split_once("\"}")?;
        Some((target, value.trim()))
    })
}

/// Says whether outcomes were given up. Where no edge runs there is nobody to ask, and that is another finding.
async fn dead(config: &Config, findings: &mut Findings) {
    // Without a way to the API server there is nobody to ask, either.
    let Ok(desk) = Desk::of_edge(config).await else { return };
    let at = match &desk {
        Desk::Socket(directory) => directory.join(operator::SOCKET).display().to_string(),
        Desk::Here { .. } => "releaseoutcomes of the Kubernetes API".to_owned(),
    };
    let asking = desk.ask(Method::GET, "/outcomes?state=dead&limit=1");
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(Ok(answer)) if answer["outcomes"].as_array().is_some_and(|dead| !dead.is_empty()) => {
            let mend = "transponder outcomes list --state dead; with the cause mended, outcomes replay KEY or --all-dead";
            findings.doubtful(AREA, "there are dead outcomes", at, mend);
        }
        Ok(Ok(_)) => findings.fine(AREA, "there are no dead outcomes", at),
        Ok(Err(OperatorError::NotRunning { .. })) => {}
        Ok(Err(error)) => {
            let mend = match desk {
                Desk::Socket(_) => "run the doctor as the edge's user, on its machine",
                Desk::Here { .. } => "nothing, or run the doctor with the right to list releaseoutcomes",
            };
            findings.doubtful(AREA, &format!("whether outcomes are dead: {error}"), at, mend);
        }
        Err(_) => {
            let mend = "its log says what keeps it";
            findings.doubtful(AREA, "whether outcomes are dead: no answer in 3 s", at, mend);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_down_is_named_with_what_waits_for_it() {
        let metrics = "# TYPE transponder_target_down gauge\n\
                       transponder_target_down{target=\"broker\"} 1\n\
                       transponder_target_down{target=\"dora\"} 0\n\
                       transponder_waiting_events{target=\"dora\"} 2\n\
                       transponder_waiting_events{target=\"broker\"} 7\n";
        let found = |metrics: &str| {
            let mut findings = Findings::default();
            targets(metrics, SocketAddr::from(([127, 0, 0, 1], 9090)), &mut findings);
            findings.all().iter().map(|finding| finding.what.clone()).collect::<Vec<_>>()
        };
        assert_eq!(found(metrics), ["broker takes no events, 7 wait"]);
        assert_eq!(found(&metrics.replace("} 1", "} 0")), ["every target takes events"]);
        assert_eq!(found("transponder_dora_streams 3\n"), Vec::<String>::new(), "no edge in this process");
    }
}
