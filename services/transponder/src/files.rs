//! Writing files that others read while they are replaced.
//!
//! What root writes belongs to the owner of the directory that it is written into: an operator who is root must not lock
//! out the service that is not.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, chown, fchown},
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
        .and_then(|mut file| {
            if let Some((user, group)) = owner_to_give(directory)? {
                fchown(&file, Some(user), Some(group))?;
            }
            file.write_all(content)?;
            file.sync_all()
        })
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
    make(path).with_context(|| format!("making directory {}", path.display()))
}

fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        // Somebody else was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => match owner_to_give(parent)? {
            Some((user, group)) => chown(path, Some(user), Some(group)),
            None => Ok(()),
        },
    }
}

/// Whose a new entry of a directory is to be, where that is not who makes it.
fn owner_to_give(directory: &Path) -> io::Result<Option<(u32, u32)>> {
    let found = fs::metadata(directory)?;
    Ok((rustix::process::geteuid().is_root() && found.uid() != 0).then(|| (found.uid(), found.gid())))
}

/// Reads a text file.
///
/// # Errors
/// Names the file.
pub fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_root_writes_belongs_to_the_owner_of_the_directory() {
        if !rustix::process::geteuid().is_root() {
            println!("only root can give files away");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        chown(root.path(), Some(65534), Some(65534)).unwrap();
        let (directory, file) = (root.path().join("a/b"), root.path().join("a/b/c"));
        make_directory(&directory).unwrap();
        write_private(&file, b"x").unwrap();
        for path in [&root.path().join("a"), &directory, &file] {
            let found = fs::metadata(path).unwrap();
            assert_eq!((found.uid(), found.gid()), (65534, 65534), "{}", path.display());
        }
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    }
}
