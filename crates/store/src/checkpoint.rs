//! Copying the log back into the file, beside the writer: a commit does not wait for it.
//!
//! A thread of its own copies what there is, then what came in meanwhile. What is left after that is little; the writer
//! copies it between two commits, and the next commit begins the log anew. The thread never asks for more than SQLite
//! gives it while others read and write (`PASSIVE`), so it makes nobody wait for a lock.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rusqlite::Connection;

use crate::{Database, StoreError};

/// The log is copied after so many changes, or so long after the last copy. What is copied at once is short: the disk
/// that writes it makes the commits of that moment wait.
const CHANGES: usize = 256;
const AFTER: Duration = Duration::from_secs(1);
/// Copies are not more frequent than this: each has syncs of its own.
const PAUSE: Duration = Duration::from_millis(50);

/// The thread that copies, and what the writer knows of it.
pub(crate) struct Checkpoints {
    path: PathBuf,
    wake: Option<mpsc::SyncSender<()>>,
    copied: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    last: Instant,
    changes: usize,
}

impl Checkpoints {
    /// Starts the thread.
    pub(crate) fn start(database: &Database, name: &str) -> Result<Self, StoreError> {
        let connection = database.connect_writer()?;
        let path = database.path().to_path_buf();
        let copied = Arc::new(AtomicBool::new(false));
        let (wake, woken) = mpsc::sync_channel(1);
        let (file, done) = (path.clone(), copied.clone());
        let work = move || {
            while woken.recv().is_ok() {
                copy(&connection, &file);
                copy(&connection, &file);
                done.store(true, Ordering::Release);
            }
        };
        let thread = thread::Builder::new().name(format!("copy-{name}")).spawn(work).map_err(|e| {
            StoreError::Unavailable { action: "start its checkpoints", problem: e.to_string() }
        })?;
        Ok(Self { path, wake: Some(wake), copied, thread: Some(thread), last: Instant::now(), changes: 0 })
    }

    /// To be called by the writer after a commit of so many changes.
    pub(crate) fn after_commit(&mut self, writer: &Connection, changes: usize) {
        self.changes += changes;
        if self.copied.swap(false, Ordering::AcqRel) {
            copy(writer, &self.path);
        } else if self.is_due()
            && let Some(wake) = &self.wake
            && wake.try_send(()).is_ok()
        {
            self.last = Instant::now();
            self.changes = 0;
        }
    }

    fn is_due(&self) -> bool {
        let since = self.last.elapsed();
        since >= AFTER || (self.changes >= CHANGES && since >= PAUSE)
    }
}

impl Drop for Checkpoints {
    /// Waits for the thread to close its connection.
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn copy(connection: &Connection, path: &std::path::Path) {
    if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
        // Nothing is lost: the log holds it. The next commit will tell if the disk is at its end.
        tracing::warn!(file = %path.display(), %error, "checkpoint failed");
    }
}
