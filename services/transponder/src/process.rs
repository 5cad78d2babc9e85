//! What is set once for the whole process, before anything secret is in it.

use anyhow::Context as _;
use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, getrlimit, setrlimit, umask},
};

/// No core dumps, which would hold tokens and keys; files that are made belong to their owner alone; as many open files
/// as the system allows; one TLS provider.
///
/// # Errors
/// When core dumps cannot be switched off.
pub fn harden() -> anyhow::Result<()> {
    umask(Mode::RWXG | Mode::RWXO);
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
        .context("core dumps cannot be switched off")?;
    // The usual 1024 are a tenth of the connections that the edge serves. What is allowed is taken; less must do.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum });
    // An error means that a provider is installed already, and ring is the only one there is.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(())
}
