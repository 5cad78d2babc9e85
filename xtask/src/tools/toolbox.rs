//! Tools set up in the background while something else compiles.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

use anyhow::Result;

use super::{TOOLS, cache::Cache, find, install, install::Installed};

/// Tools that are being set up.
pub(crate) struct Toolbox {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Per tool its programs, or why it cannot be had.
    ready: Mutex<BTreeMap<&'static str, Result<Vec<Installed>, String>>>,
    changed: Condvar,
}

impl Toolbox {
    /// Starts setting up the named tools, one after the other: Go's builds use every core by themselves.
    pub(crate) fn prepare(names: &[&str]) -> Result<Self> {
        let chosen = names.iter().map(|name| find(name).map(|tool| tool.name)).collect::<Result<Vec<_>>>()?;
        let cache = Cache::open()?;
        let shared = Arc::new(Shared::default());
        let work = Arc::clone(&shared);
        thread::spawn(move || {
            for tool in TOOLS.iter().filter(|tool| chosen.contains(&tool.name)) {
                let programs = install::ensure(tool, &cache).map_err(|error| format!("{error:#}"));
                work.ready.lock().unwrap_or_else(PoisonError::into_inner).insert(tool.name, programs);
                work.changed.notify_all();
            }
        });
        Ok(Self { shared })
    }

    /// Waits until a tool is there: its programs, or why it cannot be had. It must be one of those prepared.
    pub(crate) fn wait(&self, name: &str) -> Result<Vec<Installed>, String> {
        let mut ready = self.shared.ready.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(programs) = ready.get(name) {
                return programs.clone();
            }
            ready = self.shared.changed.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
