//! Who may read a secret file.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use super::super::finding::Findings;

/// Read by the group or by others.
const OTHERS: u32 = 0o044;

/// Says so when a secret file can be read by others than its owner. A file that is not there is another check's.
pub(in super::super) fn secret(area: &'static str, what: &str, path: &Path, findings: &mut Findings) {
    let others = path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & OTHERS != 0);
    if others && !is_projected(path) {
        let mend = format!("chmod 600 {}", path.display());
        findings.doubtful(area, &format!("{what}: others may read it"), path.display(), &mend);
    }
}

/// Whether Kubernetes put the file there: a volume whose content lies behind the link `..data`. Its modes are the pod's
/// business (`defaultMode`, 0644 unless set), nobody else is in the container, and chmod would not last.
fn is_projected(path: &Path) -> bool {
    let volume =
        |path: &Path| path.ancestors().skip(1).any(|directory| directory.join("..data").is_symlink());
    volume(path) || path.canonicalize().is_ok_and(|real| volume(&real))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::symlink,
    };

    use super::*;

    fn found(path: &Path) -> Vec<String> {
        let mut findings = Findings::default();
        secret("area", "key", path, &mut findings);
        findings.all().iter().map(|finding| finding.mend.clone()).collect()
    }

    #[test]
    fn a_secret_that_the_group_or_others_may_read_is_found_with_the_chmod() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key");
        assert!(found(&key).is_empty(), "a file that is not there");
        fs::write(&key, "secret").unwrap();
        for (mode, open) in
            [(0o600, false), (0o400, false), (0o640, true), (0o644, true), (0o604, true), (0o700, false)]
        {
            fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
            let expected = if open { vec![format!("chmod 600 {}", key.display())] } else { Vec::new() };
            assert_eq!(found(&key), expected, "{mode:o}");
        }
    }

    #[test]
    fn a_secret_that_kubernetes_projects_is_not() {
        let root = tempfile::tempdir().unwrap();
        let volume = root.path().join("volume");
        fs::create_dir_all(volume.join("..2026_01_01/secrets/s")).unwrap();
        for file in ["key", "secrets/s/token"] {
            let path = volume.join("..2026_01_01").join(file);
            fs::write(&path, "secret").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        }
        symlink("..2026_01_01", volume.join("..data")).unwrap();
        for top in ["key", "secrets"] {
            symlink(format!("..data/{top}"), volume.join(top)).unwrap();
        }
        symlink(volume.join("key"), root.path().join("elsewhere")).unwrap();
        for path in ["volume/key", "volume/secrets/s/token", "volume/..data/key", "elsewhere"] {
            assert!(root.path().join(path).exists(), "{path}");
            assert!(found(&root.path().join(path)).is_empty(), "{path}");
        }
    }
}
