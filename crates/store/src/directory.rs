//! A data directory: private to its owner, on a local disk, used by one process at a time.

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use crate::StoreError;

/// File systems whose locks or syncs do not hold what SQLite needs (`statfs(2)` magic numbers).
const NETWORK: [(i64, &str); 6] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x517b, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1997, "9P"),
];

/// File systems on which the service runs, and what an answer is worth there. Tests and trials use them.
const DOUBTFUL: [(i64, &str); 3] = [
    (0x0102_1994, MEMORY),
    (0x8584_58f6, MEMORY),
    (0x6573_5546, "lies on FUSE: what is acknowledged is as safe as that file system's own syncs"),
];
const MEMORY: &str = "lies in memory (tmpfs): what is acknowledged is gone with the machine or the mount";

/// What there is to say against keeping a store on a kind of file system.
fn doubt(kind: i64) -> Option<&'static str> {
    DOUBTFUL.iter().find(|(magic, _)| *magic == kind).map(|(_, doubt)| *doubt)
}

/// A locked data directory. Dropping it gives it free.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    _lock: File,
}

impl DataDirectory {
    /// Makes the directory if needed (mode 0700) and locks it.
    ///
    /// # Errors
    /// When it cannot be made, lies on a network file system, or another process uses it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let wrong =
            |problem: String| StoreError::Directory { directory: path.display().to_string(), problem };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| wrong(e.to_string()))?;
        let kind = rustix::fs::statfs(path).map_err(|e| wrong(e.to_string()))?.f_type;
        if let Some((_, name)) = NETWORK.iter().find(|(magic, _)| *magic == kind) {
            return Err(wrong(format!(
                "lies on {name}; network file systems do not keep what is acknowledged"
            )));
        }
        if let Some(doubt) = doubt(kind) {
            tracing::warn!(directory = %path.display(), "the data directory {doubt}");
        }
        // The directory itself: the name of a file in it could be removed, and a second process would lock another.
        let lock = File::open(path).map_err(|e| wrong(e.to_string()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(wrong("is in use by another process".into())),
            Err(TryLockError::Error(error)) => Err(wrong(error.to_string())),
        }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_used_by_one_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("edge");
        let held = DataDirectory::open(&path).unwrap();
        let error = DataDirectory::open(&path).unwrap_err();
        assert!(error.to_string().contains("in use by another process"), "{error}");
        drop(held);
        assert!(DataDirectory::open(&path).is_ok());
    }

    #[test]
    fn nothing_that_is_removed_from_a_directory_lets_a_second_one_in() {
        let parent = tempfile::tempdir().unwrap();
        let held = DataDirectory::open(parent.path()).unwrap();
        for entry in fs::read_dir(parent.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        assert!(DataDirectory::open(parent.path()).is_err());
        drop(held);
    }

    #[test]
    fn a_directory_in_memory_or_on_fuse_is_doubtful_and_taken() {
        let parent = tempfile::tempdir_in("/dev/shm").unwrap();
        let kind = rustix::fs::statfs(parent.path()).unwrap().f_type;
        assert!(doubt(kind).unwrap().contains("memory"));
        DataDirectory::open(parent.path()).unwrap();
        assert!(doubt(0x6573_5546).unwrap().contains("FUSE"));
        assert_eq!(doubt(0xef53), None, "ext4");
    }
}
