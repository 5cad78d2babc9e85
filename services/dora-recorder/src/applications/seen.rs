//! What is known of all Applications that are followed.

use std::collections::HashMap;

use transponder_core::{ClusterName, Stream};
use transponder_kubernetes::watch::News;

use super::{annotations, object::Application};
use crate::state::{Awaited, Sync};

/// Operations of an Application that are remembered: it shows the last one alone, and another may start before the one
/// that is awaited was counted.
const REMEMBERED: usize = 4;

/// The Applications, by UID.
#[derive(Debug, Default)]
pub(super) struct Seen(HashMap<String, Known>);

/// What is known of one.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) name: String,
    /// Its last operations that have ended, in the order of their starts.
    pub(super) ended: Vec<Sync>,
    pub(super) annotated: Option<(Stream, Awaited)>,
    /// What was said to be wrong with it.
    problem: Option<String>,
    /// It is not there any more, and its last operations may still have to be counted.
    gone: bool,
}

impl Seen {
    /// Takes note of what a watch tells.
    pub(super) fn learn(&mut self, news: News<Application>, prefix: &str, cluster: &ClusterName) {
        match news {
            News::All(all) => {
                self.0.values_mut().for_each(|known| known.gone = true);
                all.iter().for_each(|application| self.know(application, prefix, cluster));
            }
            News::Changed(application) => self.know(&application, prefix, cluster),
            News::Gone(application) => {
                self.know(&application, prefix, cluster);
                if let Some(known) = self.0.get_mut(application.uid()) {
                    known.gone = true;
                }
            }
            // What was told before still stands.
            News::Lost(_) => {}
        }
    }

    fn know(&mut self, application: &Application, prefix: &str, cluster: &ClusterName) {
        let known = self.0.entry(application.uid().to_owned()).or_default();
        known.name = application.name().to_owned();
        known.gone = false;
        let mut problem = None;
        match application.sync() {
            Ok(sync) => sync.into_iter().for_each(|sync| known.note(sync)),
            Err(odd) => problem = Some(odd),
        }
        known.annotated = annotations::read(application, prefix, cluster).unwrap_or_else(|odd| {
            problem = Some(odd);
            None
        });
        if let Some(problem) = &problem
            && known.problem.as_ref() != Some(problem)
        {
            tracing::error!(
                application = known.name,
                problem,
                "this Application cannot be judged: its sync is not counted until it is mended"
            );
        }
        known.problem = problem;
    }

    /// Those of which something may have to be counted: they say so themselves, or it `is_awaited`.
    pub(super) fn pending(&self, is_awaited: impl Fn(&str) -> bool) -> Vec<(String, Known)> {
        let pending = self
            .0
            .iter()
            .filter(|(uid, known)| !known.ended.is_empty() && (known.annotated.is_some() || is_awaited(uid)));
        pending.map(|(uid, known)| (uid.clone(), known.clone())).collect()
    }

    /// All is counted: what is gone is needed no more.
    pub(super) fn forget_gone(&mut self) {
        self.0.retain(|_, known| !known.gone);
    }
}

impl Known {
    fn note(&mut self, sync: Sync) {
        if self.ended.iter().any(|known| known.started_at == sync.started_at) {
            return;
        }
        self.ended.push(sync);
        self.ended.sort_by_key(|sync| sync.started_at);
        let excess = self.ended.len().saturating_sub(REMEMBERED);
        self.ended.drain(..excess);
    }
}
