//! Whether hooks trust the edge with what they are given.

use std::{fmt::Display, path::Path};

use transponder_core::ClusterName;

use super::finding::Findings;
use crate::{
    certificates::{is_signed_by, own_authority},
    registry::Entry,
};

/// Says so when hooks that trust what their entry gives them refuse the edge's certificate. Doubtful and not wrong: a
/// proxy with a certificate of its own may stand between.
pub(super) fn check(
    cluster: &ClusterName,
    entry: &Entry,
    at: impl Display,
    certificate: &Path,
    findings: &mut Findings,
) {
    if !entry.outcome_relay_url.starts_with("https:") {
        return;
    }
    let own = own_authority(certificate);
    let why = match (&entry.relay_ca, &own) {
        (Some(pem), _) if is_signed_by(certificate, pem) == Some(false) => {
            "its certificate is not signed by the entry's relayCA".to_owned()
        }
        (None, Some(authority)) => {
            format!("the entry has no relayCA, and no system knows {}", authority.display())
        }
        _ => return,
    };
    let authority = match own {
        Some(path) => path.display().to_string(),
        None => format!("the CA that signed {}", certificate.display()),
    };
    let mend = format!(
        "put {authority} into the entry (relayCA) and the cluster's Secret (ca.crt), or 'cluster remove {cluster}' and \
         'cluster add {cluster} … --ca'; nothing, where a proxy with another certificate stands between"
    );
    findings.doubtful("registry", &format!("{cluster}: hooks will not trust this edge: {why}"), at, &mend);
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;
    use crate::{
        certificates::{Choice, write_edge},
        files::read,
    };

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn an_authority_that_hooks_lack_or_have_wrongly_is_found() {
        let (ours, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for directory in [&ours, &other] {
            write_edge(directory.path(), &[], DAY, Choice::Existing).unwrap();
        }
        let certificate = ours.path().join("edge.crt");
        let ca = |directory: &Path| read(&directory.join("edge-ca.crt")).unwrap();
        let found = |url: &str, relay_ca: Option<String>| {
            let entry = format!(r#"{{"relaySecretName":"s","outcomeRelayURL":"{url}"}}"#);
            let entry = Entry { relay_ca, ..serde_json::from_str(&entry).unwrap() };
            let mut findings = Findings::default();
            let cluster = ClusterName::new("c").unwrap();
            check(&cluster, &entry, "c", &certificate, &mut findings);
            let found = findings.all().first().map(|finding| format!("{} {}", finding.what, finding.mend));
            found.unwrap_or_default()
        };
        let https = "https://r.example/outcome/c";
        assert_eq!(found(https, Some(ca(ours.path()))), "");
        let wrong = found(https, Some(ca(other.path())));
        assert!(wrong.contains("not signed by the entry's relayCA"), "{wrong}");
        let authority = ours.path().join("edge-ca.crt").display().to_string();
        assert!(wrong.contains(&format!("put {authority} into the entry")), "{wrong}");
        let none = found(https, None);
        assert!(none.contains("the entry has no relayCA") && none.contains(&authority), "{none}");
        assert_eq!(found("http://r.example/outcome/c", None), "");

        // As 'edge-certs --new-authority' after 'cluster add'.
        let before = ca(ours.path());
        write_edge(ours.path(), &[], DAY, Choice::New).unwrap();
        assert!(found(https, Some(before)).contains("not signed by the entry's relayCA"));
        // As when the platform's certificate is used: whether hooks know its CA cannot be told.
        fs::remove_file(&authority).unwrap();
        assert_eq!(found(https, None), "");
    }
}
