//! What lies on disk beside registry and certificates: data directories, callers, the broker token.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access, statvfs};
use transponder_core::Timestamp;
use transponder_runtime::{Context, auth::TokenFile};

use super::{certificates::secret, finding::Findings};
use crate::config::Config;

/// Below this much free space a store has little time left.
const LOW: u64 = 1 << 30;

/// Each service's data directory: there, ours, writable, with room.
pub(super) fn data_directories(config: &Config, findings: &mut Findings) {
    for (service, directory) in [
        ("edge", &config.edge.data_directory),
        ("dora-recorder", &config.dora.data_directory),
        ("release-tracking", &config.release_tracking.data_directory),
    ] {
        directory_of(service, directory, findings);
    }
}

fn directory_of(service: &str, directory: &Path, findings: &mut Findings) {
    const AREA: &str = "data";
    // What is not there yet is made at the start, so what counts is the nearest directory that is.
    let existing = existing(directory);
    let at = directory.display();
    if let Err(error) = access(&existing, Access::WRITE_OK | Access::EXEC_OK) {
        let what = format!("{service}: {} cannot be written: {error}", existing.display());
        findings.wrong(
            AREA,
            &what,
            at,
            "make it writable for the service's user, or choose another directory",
        );
        return;
    }
    let Ok(space) = statvfs(&existing) else { return };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if directory.exists() && directory.metadata().is_ok_and(|m| m.mode() & 0o077 != 0) {
        let mend = format!("chmod 700 {at}");
        findings.doubtful(AREA, &format!("{service}: others may read the directory"), &at, &mend);
    }
    let free_text = bytesize::ByteSize(free).to_string();
    if free < LOW {
        let what = format!("{service}: only {free_text} are free; a full disk is answered 503");
        findings.doubtful(AREA, &what, at, "make room, or move the directory");
    } else {
        findings.fine(AREA, format!("{service}: writable, {free_text} free"), at);
    }
}

fn existing(directory: &Path) -> PathBuf {
    let there = directory.ancestors().find(|path| path.exists());
    there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// The stand-in for TokenReview.
pub(super) fn callers(config: &Config, findings: &mut Findings) {
    const AREA: &str = "callers";
    let Some(path) = &config.callers.token_file else {
        let mend = "set callers.token_file to a file of [[token]] entries";
        findings.doubtful(AREA, "no Task can call: there is no token file", "callers.token_file", mend);
        return;
    };
    let context = Context::new();
    let loaded = TokenFile::load(&config.callers, &context);
    context.shutdown.begin();
    match loaded {
        Err(problem) => findings.wrong(AREA, &problem, path.display(), "correct the file or the globs"),
        Ok(_) if path.metadata().is_ok_and(|m| m.mode() & 0o077 != 0) => {
            let mend = format!("chmod 600 {}", path.display());
            findings.doubtful(AREA, "others may read the Tasks' tokens", path.display(), &mend);
        }
        Ok(_) => findings.fine(AREA, "the Tasks' tokens are in order", path.display()),
    }
}

/// The token that the forwarder shows to the broker.
pub(super) fn broker_token(config: &Config, findings: &mut Findings) {
    const AREA: &str = "broker token";
    let (path, audience) = (&config.forwarder.token_file, &config.forwarder.audience);
    if path.as_os_str().is_empty() {
        findings.fine(AREA, "none is sent: forwarder.token_file is empty", "forwarder.token_file");
        return;
    }
    secret(AREA, "token for the broker", path, findings);
    match transponder_forwarder::check_file(path, audience, Timestamp::now()) {
        Ok(facts) => {
            let until = facts.expires.map_or_else(|| "unknown".to_owned(), |at| at.to_string());
            findings.fine(AREA, format!("for '{audience}', until {until}"), path.display());
        }
        Err(error) => {
            let mend = "project a ServiceAccount token with this audience to this path; with a wrong one the \
                        broker may answer 202 and lose the event";
            findings.wrong(AREA, &error.to_string(), path.display(), mend);
        }
    }
}
