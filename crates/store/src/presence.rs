//! Whether the files that are open still lie where the next start looks for them.
//!
//! A file that is removed or replaced under a running process can be written as before, and nothing that is written is
//! ever found again. A commit in such a file is no commit.

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use crate::{Database, StoreError};

/// Device and inode.
type Identity = (u64, u64);

/// The file and its log, as they were when they were first written.
pub(crate) struct Presence {
    paths: [PathBuf; 2],
    first: Option<[Identity; 2]>,
}

impl Presence {
    pub(crate) fn of(database: &Database) -> Self {
        let file = database.path().to_path_buf();
        let mut log = file.clone().into_os_string();
        log.push("-wal");
        Self { paths: [file, log.into()], first: None }
    }

    /// Looks, after a commit: two calls to the system, next to the commit's sync they cost nothing.
    pub(crate) fn check(&mut self) -> Result<(), StoreError> {
        let mut now = [(0, 0); 2];
        for (identity, path) in now.iter_mut().zip(&self.paths) {
            let found = fs::metadata(path).map_err(|error| gone(path, &error.to_string()))?;
            *identity = (found.dev(), found.ino());
        }
        let first = self.first.get_or_insert(now);
        match (0..2).find(|&at| first[at] != now[at]) {
            None => Ok(()),
            Some(at) => Err(gone(&self.paths[at], "another file lies there")),
        }
    }

    /// Whether the files were written before and are not there now.
    pub(crate) fn is_lost(&mut self) -> Option<StoreError> {
        self.first?;
        self.check().err()
    }
}

fn gone(path: &std::path::Path, what: &str) -> StoreError {
    let problem = format!(
        "{} was removed or replaced while it was in use ({what}): put it back, or stop the process and start it again",
        path.display()
    );
    StoreError::Unavailable { action: "write", problem }
}
