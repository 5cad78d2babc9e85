//! Changes of files, by inotify, with a slow look from time to time for what it misses.

use std::{path::PathBuf, sync::Arc, time::Duration};

use notify::{RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use crate::Shutdown;

/// How long a burst of changes may last before it is acted upon.
const SETTLE: Duration = Duration::from_millis(200);
/// The slow look.
const RECHECK: Duration = Duration::from_secs(30);

/// Calls `reload` after each change below the directories, and every 30 s. Runs until shutdown.
///
/// `reload` decides itself what has changed; it must be cheap when nothing has. It runs on the blocking pool.
pub fn spawn(directories: Vec<PathBuf>, shutdown: Shutdown, reload: impl Fn() + Send + Sync + 'static) {
    let changed = Arc::new(Notify::new());
    let signal = changed.clone();
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.map_or(true, |e| !e.kind.is_access()) {
            signal.notify_one();
        }
    });
    let reload = Arc::new(reload);
    tokio::spawn(async move {
        let mut watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "no file notifications: changes are seen every 30 s"))
            .ok();
        let watch = |watcher: &mut Option<notify::RecommendedWatcher>| {
            for directory in &directories {
                if let Some(watcher) = watcher
                    && let Err(error) = watcher.watch(directory, RecursiveMode::Recursive)
                {
                    tracing::debug!(%error, directory = %directory.display(), "cannot be watched yet");
                }
            }
        };
        watch(&mut watcher);
        loop {
            let waited = shutdown.or(tokio::time::timeout(RECHECK, changed.notified())).await;
            match waited {
                None => return,
                Some(Ok(())) => tokio::time::sleep(SETTLE).await,
                // A directory that was replaced or came later is watched from here on.
                Some(Err(_)) => watch(&mut watcher),
            }
            let reload = reload.clone();
            if tokio::task::spawn_blocking(move || reload()).await.is_err() {
                tracing::error!("reloading panicked; the last good state stays");
            }
        }
    });
}
