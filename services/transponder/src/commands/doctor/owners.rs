//! Files that the service's user cannot read, as they are left when a command was run as root.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use transponder_core::ServiceName;

use super::finding::Findings;
use crate::config::Config;

/// Read by the group or by others.
const OTHERS: u32 = 0o044;

/// Compares owners. Anybody but root sees the service's own difficulties when it reads the files itself.
pub(super) fn check(config: &Config, findings: &mut Findings) {
    if rustix::process::geteuid().is_root()
        && let Some(user) = owner(&config.edge.data_directory)
    {
        compare(config, user, findings);
    }
}

fn owner(path: &Path) -> Option<u32> {
    path.metadata().ok().map(|metadata| metadata.uid())
}

fn compare(config: &Config, user: u32, findings: &mut Findings) {
    // Root reads everything.
    if user == 0 {
        return;
    }
    let unreadable: Vec<PathBuf> = read_by_services(config, user)
        .into_iter()
        .filter(|path| path.metadata().is_ok_and(|file| file.uid() != user && file.mode() & OTHERS == 0))
        .collect();
    let Some(first) = unreadable.first() else { return };
    let more = match unreadable.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let belongs = name(owner(first).unwrap_or_default());
    let what = format!(
        "{}{more} belongs to {belongs}, and the service runs as {} (the owner of {})",
        first.display(),
        name(user),
        config.edge.data_directory.display()
    );
    // A registry of many clusters is named as a whole.
    let registry = &config.edge.registry;
    let whole = |path: &PathBuf| if path.starts_with(registry) { registry.clone() } else { path.clone() };
    let mut all: Vec<String> = unreadable.iter().map(|path| whole(path).display().to_string()).collect();
    all.dedup();
    let mend = format!("chown -R {user} {}", all.join(" "));
    findings.wrong("owner", &what, first.display(), &mend);
}

/// The files and directories that are read while services run.
fn read_by_services(config: &Config, user: u32) -> Vec<PathBuf> {
    let edge = &config.edge;
    let mut paths = vec![edge.certificate.clone(), edge.key.clone(), edge.registry.clone()];
    paths.extend(below(&edge.registry.join("cluster-registry"), 0));
    paths.extend(below(&edge.registry.join("secrets"), 1));
    paths.push(config.mesh.directory.clone());
    paths.extend(config.mesh.ca_files());
    paths.extend(config.callers.token_file.clone());
    // Services that are parted may each have a user of their own.
    let others = [&config.dora.data_directory, &config.release_tracking.data_directory];
    let one_user = others.into_iter().filter_map(|directory| owner(directory)).all(|other| other == user);
    for service in ServiceName::ALL {
        if one_user || service == ServiceName::Edge {
            paths.extend([config.mesh.certificate(service), config.mesh.key(service)]);
        }
    }
    paths
}

/// A directory and what is in it, so many levels down.
fn below(directory: &Path, levels: u32) -> Vec<PathBuf> {
    let mut paths = vec![directory.to_owned()];
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if levels > 0 && entry.path().is_dir() {
            paths.extend(below(&entry.path(), levels - 1));
        } else {
            paths.push(entry.path());
        }
    }
    paths
}

/// The name of a user, as `/etc/passwd` has it.
fn name(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| format!("user {user}"))
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::installation::{Installation, Plan};

    #[test]
    fn files_that_another_user_keeps_to_himself_are_found_with_the_chown() {
        let directory = tempfile::tempdir().unwrap();
        let installation = Installation::at(directory.path()).unwrap();
        let validity = std::time::Duration::from_hours(24);
        let plan = Plan { names: &[], validity, broker_url: "http://b", broker_token: None };
        installation.make(&plan).unwrap();
        let config = fs::read_to_string(installation.config_file()).unwrap();
        let config: Config = toml::from_str(&config).unwrap();
        let us = owner(directory.path()).unwrap();
        let found = |user: u32| {
            let mut findings = Findings::default();
            compare(&config, user, &mut findings);
            findings.all().first().map(|finding| format!("{} {}", finding.what, finding.mend))
        };
        assert_eq!(found(0), None);
        assert_eq!(found(us).as_deref(), None);
        // The files are ours, and the service is somebody else.
        let said = found(us + 1000).unwrap();
        assert!(said.contains(&format!("belongs to {}", name(us))), "{said}");
        assert!(said.contains("data/edge") && said.contains(&format!("chown -R {} ", us + 1000)), "{said}");
        for path in ["edge/edge.key", "registry", "mesh/forwarder.key", "callers.toml"] {
            assert!(said.contains(&installation.root().join(path).display().to_string()), "{path}: {said}");
        }
        assert!(!said.contains("ca.key"), "no service reads it: {said}");
        assert!(!said.contains("registry/secrets"), "named as a whole: {said}");
        fs::set_permissions(installation.root().join("edge/edge.key"), Permissions::from_mode(0o640))
            .unwrap();
        assert!(!found(us + 1000).unwrap().contains("edge/edge.key"));
    }

    #[test]
    fn root_has_a_name_and_an_unknown_user_a_number() {
        assert_eq!(name(0), "root");
        assert_eq!(name(4_000_000_000), "user 4000000000");
    }
}
