//! The inputs that a target starts from, and those that once broke it.

use std::{fs, path::Path};

/// The files of `corpus/<target>`, in order of their names.
///
/// # Panics
///
/// When there are none.
#[must_use]
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let listed = fs::read_dir(&folder).unwrap_or_else(|error| panic!("list {}: {error}", folder.display()));
    let mut paths: Vec<_> = listed.map(|entry| entry.expect("a file of the corpus").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| fs::read(path).expect("read a file of the corpus")).collect()
}
