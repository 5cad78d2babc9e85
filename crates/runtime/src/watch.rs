//! Changes of files, by inotify, with a slow look from time to time for what it misses.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

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
    run(directories, RecursiveMode::Recursive, shutdown, reload);
}

/// The same for files in these directories and nothing deeper: beside a file that is watched there may be a directory
/// with a database in it, each write to which would wake us.
pub fn spawn_shallow(
    directories: Vec<PathBuf>,
    shutdown: Shutdown,
    reload: impl Fn() + Send + Sync + 'static,
) {
    run(directories, RecursiveMode::NonRecursive, shutdown, reload);
}

fn run(
    directories: Vec<PathBuf>,
    depth: RecursiveMode,
    shutdown: Shutdown,
    reload: impl Fn() + Send + Sync + 'static,
) {
    let changed = Arc::new(Notify::new());
    let signal = changed.clone();
    let ours = directories.clone();
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.map_or(true, |event| concerns(&event, &ours)) {
            signal.notify_one();
        }
    });
    let reload = Arc::new(reload);
    tokio::spawn(async move {
        let mut watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "no file notifications: changes are seen every 30 s"))
            .ok();
        let watch = |watcher: &mut Option<notify::RecommendedWatcher>| {
            let Some(watcher) = watcher else { return };
            let parents = directories.iter().filter_map(|directory| directory.parent());
            // The parent tells when the directory itself is replaced.
            let parents = parents.map(|parent| (parent, RecursiveMode::NonRecursive));
            let own = directories.iter().map(|directory| (directory.as_path(), depth));
            for (path, mode) in parents.chain(own) {
                if let Err(error) = watcher.watch(path, mode) {
                    tracing::debug!(%error, directory = %path.display(), "cannot be watched yet");
                }
            }
        };
        watch(&mut watcher);
        loop {
            let waited = shutdown.or(tokio::time::timeout(RECHECK, changed.notified())).await;
            match waited {
                None => return,
                Some(Ok(())) => tokio::time::sleep(SETTLE).await,
                Some(Err(_)) => {}
            }
            // A directory that was replaced or came later is watched from here on.
            watch(&mut watcher);
            let reload = reload.clone();
            if tokio::task::spawn_blocking(move || reload()).await.is_err() {
                tracing::error!("reloading panicked; the last good state stays");
            }
        }
    });
}

/// Whether an event is a change of the directories or of something below them.
fn concerns(event: &notify::Event, directories: &[PathBuf]) -> bool {
    let below = |path: &PathBuf| directories.iter().any(|directory| path.starts_with(directory as &Path));
    !event.kind.is_access() && (event.paths.is_empty() || event.paths.iter().any(below))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_directory_that_is_swapped_by_a_link_is_followed_at_once() {
        let root = tempfile::tempdir().unwrap();
        let (link, next) = (root.path().join("registry"), root.path().join("next"));
        for version in ["one", "two"] {
            fs::create_dir(root.path().join(version)).unwrap();
        }
        symlink("one", &link).unwrap();
        let (seen, mut changes) = tokio::sync::mpsc::unbounded_channel();
        let shutdown = Shutdown::default();
        spawn(vec![link.clone()], shutdown.clone(), move || {
            let _ = seen.send(());
        });
        // Notifications begin some time after the start: touch until one comes.
        while changes.try_recv().is_err() {
            fs::write(link.join("begun"), "").unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(SETTLE * 3).await;
        while changes.try_recv().is_ok() {}
        let soon = Duration::from_secs(10);
        symlink("two", &next).unwrap();
        fs::rename(&next, &link).unwrap();
        tokio::time::timeout(soon, changes.recv()).await.expect("the swap is seen");
        tokio::time::sleep(SETTLE * 3).await;
        while changes.try_recv().is_ok() {}
        fs::write(root.path().join("two/file"), "").unwrap();
        tokio::time::timeout(soon, changes.recv()).await.expect("a change behind the new link is seen");
        shutdown.begin();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn beside_a_watched_file_a_busy_directory_wakes_nobody() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("data");
        fs::create_dir(&below).unwrap();
        let (seen, mut changes) = tokio::sync::mpsc::unbounded_channel();
        let shutdown = Shutdown::default();
        spawn_shallow(vec![root.path().to_owned()], shutdown.clone(), move || {
            let _ = seen.send(());
        });
        while changes.try_recv().is_err() {
            fs::write(root.path().join("file"), "").unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(SETTLE * 3).await;
        while changes.try_recv().is_ok() {}
        for _ in 0..50 {
            fs::write(below.join("database"), "x").unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(changes.try_recv().is_err(), "a write below was acted upon");
        // As a ConfigMap is mounted: the file is a link whose target's directory is swapped.
        for version in ["..one", "..two"] {
            fs::create_dir(root.path().join(version)).unwrap();
            fs::write(root.path().join(version).join("callers"), version).unwrap();
        }
        symlink("..one", root.path().join("..data")).unwrap();
        symlink("..data/callers", root.path().join("callers")).unwrap();
        tokio::time::sleep(SETTLE * 3).await;
        while changes.try_recv().is_ok() {}
        symlink("..two", root.path().join("..data_tmp")).unwrap();
        fs::rename(root.path().join("..data_tmp"), root.path().join("..data")).unwrap();
        let soon = Duration::from_secs(10);
        tokio::time::timeout(soon, changes.recv()).await.expect("the swap is seen");
        shutdown.begin();
    }
}
