//! Running what was built.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use tokio::task::{Id, JoinError, JoinSet};
use transponder_core::ServiceName;
use transponder_runtime::{Context, shutdown::DRAIN};

use super::{Mesh, Part};
use crate::output::causes;

impl Mesh {
    /// Runs everything until shutdown or until a part ends, then lets the rest finish.
    ///
    /// # Errors
    /// Names the part that ended of itself, or those that did not end in time.
    pub async fn run(self) -> anyhow::Result<()> {
        // The admin listener answers while the others drain: probes and the last scrape come then, too.
        let admin = tokio::spawn(self.admin.run());
        for (service, address) in &self.addresses.services {
            tracing::info!(%service, %address, "listening");
        }
        tracing::info!(service = %"admin", address = %self.addresses.admin, "listening");
        let result = Running::start(self.parts).until_stopped(&self.context).await;
        admin.abort();
        result
    }
}

/// The parts that run.
struct Running {
    tasks: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, ServiceName>,
}

impl Running {
    fn start(parts: Vec<Part>) -> Self {
        let mut running = Self { tasks: JoinSet::new(), names: HashMap::new() };
        for Part { service, run } in parts {
            running.names.insert(running.tasks.spawn(run).id(), service);
        }
        running
    }

    async fn until_stopped(mut self, context: &Context) -> anyhow::Result<()> {
        let first = context.shutdown.or(self.tasks.join_next_with_id()).await.flatten();
        let first = match first.map(|ended| self.outcome(ended)) {
            None => Ok(()),
            Some((service, Ok(()))) if !context.shutdown.has_begun() => {
                Err(anyhow!("{service} ended although nobody asked it to"))
            }
            Some((_, outcome)) => outcome,
        };
        if let Err(error) = &first {
            tracing::error!(error = causes(error), "stopping");
        }
        context.shutdown.begin();
        let drained = match tokio::time::timeout(DRAIN, self.drain()).await {
            Ok(drained) => drained,
            Err(_) => Err(self.late()),
        };
        first.and(drained)
    }

    /// Waits for all; answers the first failure.
    async fn drain(&mut self) -> anyhow::Result<()> {
        let mut result = Ok(());
        while let Some(ended) = self.tasks.join_next_with_id().await {
            let (_, outcome) = self.outcome(ended);
            result = result.and(outcome);
        }
        result
    }

    fn outcome(
        &mut self,
        ended: Result<(Id, anyhow::Result<()>), JoinError>,
    ) -> (ServiceName, anyhow::Result<()>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        // Every task was named when it was spawned.
        let service = self.names.remove(&id).unwrap_or(ServiceName::Edge);
        let outcome = match ended {
            Ok((_, outcome)) => outcome.with_context(|| format!("{service} failed")),
            Err(error) => Err(anyhow!("{service} died: {error}")),
        };
        (service, outcome)
    }

    fn late(&self) -> anyhow::Error {
        let names: Vec<_> = self.names.values().map(|service| service.as_str()).collect();
        anyhow!("still busy {} s after the signal to stop: {}", DRAIN.as_secs(), names.join(", "))
    }
}

/// Waits until every part says that it is ready.
///
/// # Errors
/// Names the parts that are not by then, with their reasons.
pub async fn wait_until_ready(context: &Context, patience: Duration) -> anyhow::Result<()> {
    let ready = async {
        while !context.readiness.missing().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(patience, ready).await.is_ok() {
        return Ok(());
    }
    let missing = context.readiness.missing();
    bail!(
        "not ready: {}",
        missing.iter().map(|(part, why)| format!("{part}: {why}")).collect::<Vec<_>>().join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(service: ServiceName, run: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> Part {
        Part { service, run: Box::pin(run) }
    }

    fn patient(context: &Context) -> Part {
        let shutdown = context.shutdown.clone();
        part(ServiceName::Edge, async move {
            shutdown.wait().await;
            Ok(())
        })
    }

    async fn run(parts: Vec<Part>, context: Context) -> anyhow::Result<()> {
        Running::start(parts).until_stopped(&context).await
    }

    #[tokio::test]
    async fn a_part_that_fails_or_panics_or_ends_stops_the_others_and_is_named() {
        type End = fn() -> anyhow::Result<()>;
        let failing: [(End, &str); 3] = [
            (|| Err(anyhow!("disk gone")), "forwarder failed: disk gone"),
            (|| panic!("bug"), "forwarder died"),
            (|| Ok(()), "forwarder ended although nobody asked it to"),
        ];
        for (end, expected) in failing {
            let context = Context::new();
            let parts = vec![patient(&context), part(ServiceName::Forwarder, async move { end() })];
            let error = run(parts, context.clone()).await.unwrap_err();
            assert!(format!("{error:#}").starts_with(expected), "{error:#}");
            assert!(context.shutdown.has_begun());
        }
    }

    #[tokio::test]
    async fn parts_that_end_because_they_were_asked_to_are_no_failure() {
        for _ in 0..100 {
            let context = Context::new();
            let running = tokio::spawn(run(vec![patient(&context)], context.clone()));
            tokio::task::yield_now().await;
            context.shutdown.begin();
            running.await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_does_not_stop_in_time_is_named() {
        let context = Context::new();
        let parts = vec![patient(&context), part(ServiceName::OutcomeSpan, std::future::pending())];
        context.shutdown.begin();
        let error = run(parts, context.clone()).await.unwrap_err().to_string();
        assert_eq!(error, "still busy 20 s after the signal to stop: outcome-span");
    }

    #[tokio::test]
    async fn readiness_that_does_not_come_is_explained() {
        let context = Context::new();
        let part = context.readiness.part("edge");
        part.not_ready("the registry is missing");
        let error = wait_until_ready(&context, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(error.to_string(), "not ready: edge: the registry is missing");
        part.ready();
        wait_until_ready(&context, Duration::from_secs(5)).await.unwrap();
    }
}
