//! The plumbing of the embedded store: SQLite files that acknowledge only what is on disk.
//!
//! What must hold:
//! - a result is handed out after the commit that holds it has been synced (`synchronous=FULL`), never before;
//! - one process per data directory, never on a network file system;
//! - after a failed commit the connection is opened anew, and whoever keeps a picture of the data in memory is told
//!   to read it again, because what failed to be acknowledged may still be there.
//!
//! Which tables there are is each service's own business.

mod checkpoint;
mod database;
mod directory;
mod presence;
mod writer;

pub use database::{Database, Schema};
pub use directory::DataDirectory;
pub use writer::{Health, Writer};

/// What keeps the store from doing its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be used.
    #[error("data directory {directory}: {problem}")]
    Directory {
        /// The directory.
        directory: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The file was written by a newer version.
    #[error(
        "{file} has schema {found}, this version writes {known}: run the newer version, or restore a backup"
    )]
    Newer {
        /// The file.
        file: String,
        /// Its schema number.
        found: u32,
        /// The newest schema number that is known here.
        known: u32,
    },
    /// Disk full, read-only, broken: nothing was acknowledged.
    #[error("the store cannot {action}: {problem}")]
    Unavailable {
        /// What was to be done.
        action: &'static str,
        /// What SQLite said.
        problem: String,
    },
    /// The process is stopping.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// A failed action.
    #[must_use]
    pub fn unavailable(action: &'static str, error: &rusqlite::Error) -> Self {
        Self::Unavailable { action, problem: error.to_string() }
    }
}
