//! Where the workspace is, and how `cargo` is called in it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

/// The root of the workspace that this task was started in.
pub(crate) fn root() -> Result<PathBuf> {
    // Read at run time: with a target directory shared by several clones, a path compiled in may be another clone's.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").context("start tasks as `cargo xtask …`")?;
    let root = Path::new(&manifest).parent().context("xtask has no parent directory")?;
    Ok(root.to_path_buf())
}

/// A directory of this user's cache, or of the system's temporary directory where there is no home.
pub(crate) fn cache_dir(name: &str) -> PathBuf {
    env::var_os("XDG_CACHE_HOME")
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join(name)
}

/// `cargo` in the root of the workspace, with the target directory of this run.
///
/// In CI (`CI` is set) the target directory is outside the tree unless `CARGO_TARGET_DIR` says otherwise, because
/// every run is a fresh clone and a warm one should be short.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).env("CARGO_TERM_COLOR", "never");
    // Set by `cargo run` for this process; a `cargo test` below would hand them on as if they were its own.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
        cargo.env_remove(name);
    }
    if env::var_os("CI").is_some() && env::var_os("CARGO_TARGET_DIR").is_none() {
        cargo.env("CARGO_TARGET_DIR", cache_dir("transponder-target"));
    }
    cargo
}
