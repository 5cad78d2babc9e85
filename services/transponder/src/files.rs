//! Writing files that others read while they are replaced.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use anyhow::Context as _;

/// Writes a file as a whole or not at all, readable by its owner alone, and on disk when this returns.
///
/// # Errors
/// Names the file.
pub fn write_private(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    write(path, content, 0o600)
}

/// The same for what anybody may read: certificates.
///
/// # Errors
/// Names the file.
pub fn write_public(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    write(path, content, 0o644)
}

fn write(path: &Path, content: &[u8], mode: u32) -> anyhow::Result<()> {
    let failed = || format!("writing {}", path.display());
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().with_context(|| format!("{} names no file", path.display()))?;
    // A dot first: readers of the registry skip such files.
    let temporary =
        directory.join(format!(".{}.{}.{:08x}", name.display(), std::process::id(), fastrand::u32(..)));
    let written = File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| File::open(directory)?.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.with_context(failed)
}

/// Makes a directory for its owner alone, and those above it.
///
/// # Errors
/// Names the directory.
pub fn make_directory(path: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("making directory {}", path.display()))
}

/// Reads a text file.
///
/// # Errors
/// Names the file.
pub fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
