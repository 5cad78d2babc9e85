//! What lies on disk beside registry and certificates: data directories, callers, the broker token.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access, statvfs};
use transponder_core::Timestamp;
use transponder_forwarder::{TokenFacts, check_file};
use transponder_runtime::{Context, auth::TokenFile};

use super::{certificates::secret, finding::Findings};
use crate::config::{Config, StoreKind};

const AREA: &str = "data";
/// How an SQLite file begins.
const HEADER: [u8; 16] = *b"SQLite format 3\0";
/// Below this much free space a store has little time left.
const LOW: u64 = 1 << 30;

/// Each service's data directory: there, ours, writable, with room.
pub(super) fn data_directories(config: &Config, findings: &mut Findings) {
    for (service, directory, file) in [
        ("edge", &config.edge.data_directory, "outbox.db"),
        ("dora-recorder", &config.dora.data_directory, "dora.db"),
        ("release-tracking", &config.release_tracking.data_directory, "tracking.db"),
    ] {
        // An empty path is named among the bad values.
        if !directory.as_os_str().is_empty() {
            directory_of(service, directory, findings);
            database(service, &directory.join(file), findings);
        }
    }
}

fn directory_of(service: &str, directory: &Path, findings: &mut Findings) {
    // What is not there yet is made at the start, so what counts is the nearest directory that is.
    let existing = existing(directory);
    let at = directory.display();
    if !existing.is_dir() {
        let what = format!("{service}: {} is no directory", existing.display());
        findings.wrong(AREA, &what, at, "move the file away, or choose another directory");
        return;
    }
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

/// Whether what lies there is a database at all. An empty file becomes one.
fn database(service: &str, path: &Path, findings: &mut Findings) {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEADER.len() as u64).read_to_end(&mut head));
    if read.is_ok() && !head.is_empty() && head != HEADER {
        let mend = "put a backup in its place (Operations, Backup); without one, move it and its -wal and -shm away: \
                    the service begins with an empty one";
        let what = format!("{service}: {} is no SQLite database", path.display());
        findings.wrong(AREA, &what, path.display(), mend);
    }
}

fn existing(directory: &Path) -> PathBuf {
    let there = directory.ancestors().find(|path| path.exists());
    there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// The stand-in for TokenReview.
pub(super) fn callers(config: &Config, findings: &mut Findings) {
    const AREA: &str = "callers";
    let context = Context::new();
    let loaded = TokenFile::load(&config.callers, &context);
    context.shutdown.begin();
    let Some(path) = &config.callers.token_file else {
        match loaded {
            // The globs are read at the start, whether there are tokens or not.
            Err(problem) => findings.wrong(AREA, &problem, "[callers]", "correct the globs"),
            Ok(_) if config.store.kind == StoreKind::Kubernetes => {
                let what =
                    format!("Tasks are known by TokenReview, with audience '{}'", config.callers.audience);
                findings.fine(AREA, what, "[callers]");
            }
            Ok(_) => {
                let mend = "set callers.token_file to a file of [[token]] entries";
                findings.doubtful(
                    AREA,
                    "no Task can call: there is no token file",
                    "callers.token_file",
                    mend,
                );
            }
        }
        return;
    };
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
    match check_file(path, audience, Timestamp::now()) {
        Ok(TokenFacts { expires: Some(until) }) if audience.is_empty() => {
            findings.fine(AREA, format!("for any audience, until {until}"), path.display());
        }
        Ok(TokenFacts { expires: Some(until) }) => {
            findings.fine(AREA, format!("for '{audience}', until {until}"), path.display());
        }
        Ok(TokenFacts { expires: None }) => {
            let what = "it is no JWT, and forwarder.audience is empty: it is sent unchecked";
            let mend = "set forwarder.audience, unless the broker takes tokens of another kind";
            findings.doubtful(AREA, what, path.display(), mend);
        }
        Err(error) => {
            let mend = "project a ServiceAccount token with this audience to this path; with a wrong one the \
                        broker may answer 202 and lose the event";
            findings.wrong(AREA, &error.to_string(), path.display(), mend);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn first(look: impl FnOnce(&mut Findings)) -> String {
        let mut findings = Findings::default();
        look(&mut findings);
        findings.all().first().map(|f| format!("{:?} {}", f.level, f.what)).unwrap_or_default()
    }

    #[test]
    fn a_file_in_a_directory_s_place_is_called_so() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        for directory in [file.clone(), file.join("edge")] {
            let said = first(|findings| directory_of("edge", &directory, findings));
            assert_eq!(said, format!("Wrong edge: {} is no directory", file.display()));
        }
    }

    #[test]
    fn a_data_file_that_is_no_database_is_found() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("outbox.db");
        let said = || first(|findings| database("edge", &path, findings));
        assert_eq!(said(), "", "not there yet");
        fs::write(&path, "").unwrap();
        assert_eq!(said(), "", "SQLite makes one of it");
        fs::write(&path, [HEADER.as_slice(), &[0; 4080]].concat()).unwrap();
        assert_eq!(said(), "");
        for content in [&[0xa5; 4096][..], b"SQLite"] {
            fs::write(&path, content).unwrap();
            assert_eq!(said(), format!("Wrong edge: {} is no SQLite database", path.display()));
        }
    }

    #[test]
    fn a_token_that_nobody_can_check_deserves_a_look() {
        let root = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.forwarder.token_file = root.path().join("token");
        config.forwarder.audience = String::new();
        fs::write(&config.forwarder.token_file, "opaque").unwrap();
        fs::set_permissions(&config.forwarder.token_file, fs::Permissions::from_mode(0o600)).unwrap();
        let said = first(|findings| broker_token(&config, findings));
        assert!(said.starts_with("Doubtful it is no JWT"), "{said}");
        // e30.{"exp":4102444800}.x
        fs::write(&config.forwarder.token_file, "e30.eyJleHAiOjQxMDI0NDQ4MDB9.x").unwrap();
        let said = first(|findings| broker_token(&config, findings));
        assert_eq!(said, "Fine for any audience, until 2100-01-01T00:00:00Z");
    }
}
