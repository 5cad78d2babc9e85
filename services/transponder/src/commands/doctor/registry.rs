//! The registry: each cluster's entry, Secret and token.

pub(super) mod kubernetes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    fs,
    path::Path,
};

use sha2::{Digest as _, Sha256};
use transponder_core::ClusterName;
use url::Url;

use super::{certificates::secret, finding::Findings, trust};
use crate::registry::{Entry, Registry};

const AREA: &str = "registry";
/// Directory of the entries, in the registry.
const ENTRIES: &str = "cluster-registry";
/// Tokens below this can be guessed.
const SHORT: usize = 16;

/// What becomes of an edge whose registry cannot be read.
const LOST: &str =
    "a running edge goes on with its last state, and after a restart every report is answered 503";

/// Checks all clusters; answers the hosts by which their hooks reach the edge, whose certificate this is.
pub(super) fn check(root: &Path, certificate: &Path, findings: &mut Findings) -> BTreeSet<String> {
    let registry = Registry::new(root);
    let mut hosts = BTreeSet::new();
    if root.is_dir() && !root.join(ENTRIES).exists() {
        let mend = "put it back from a copy, or begin anew: transponder cluster add NAME --url URL";
        findings.wrong(AREA, &format!("{ENTRIES} is not there: {LOST}"), root.display(), mend);
        return hosts;
    }
    let names = match registry.names() {
        Ok(names) => names,
        Err(error) => {
            let mend = format!("make the directory readable: {LOST}");
            findings.wrong(AREA, &format!("{error:#}"), root.display(), &mend);
            return hosts;
        }
    };
    if names.is_empty() {
        let mend = "transponder cluster add NAME --url URL";
        findings.wrong(AREA, "there is no cluster: every report is answered 503", root.display(), mend);
    }
    let mut tokens: BTreeMap<[u8; 32], Vec<String>> = BTreeMap::new();
    for name in &names {
        let Ok(cluster) = ClusterName::new(name) else {
            let at = root.join(ENTRIES).join(name);
            findings.wrong(
                AREA,
                &format!("'{name}' is no name of a cluster"),
                at.display(),
                "rename the file",
            );
            continue;
        };
        let entry = match registry.entry(&cluster) {
            Ok(entry) => entry,
            Err(error) => {
                let mend = "correct the JSON, or 'cluster remove' and 'cluster add' it anew";
                findings.wrong(AREA, &format!("{error:#}"), registry.entry_path(&cluster).display(), mend);
                continue;
            }
        };
        let before = findings.all().len();
        let at = registry.entry_path(&cluster).display().to_string();
        hosts.extend(of_entry(&cluster, &entry, &at, certificate, findings));
        if let Some(digest) = token(&registry, &cluster, &entry, findings) {
            tokens.entry(digest).or_default().push(name.clone());
        }
        if findings.all().len() == before {
            findings.fine(AREA, format!("{cluster}: entry, URL and token are in order"), at);
        }
    }
    shared(tokens, root.display(), findings);
    hosts
}

/// Names the clusters that share a token.
fn shared(tokens: BTreeMap<[u8; 32], Vec<String>>, at: impl Display, findings: &mut Findings) {
    for shared in tokens.into_values().filter(|clusters| clusters.len() > 1) {
        let what = format!("clusters {} share one token: each can speak for the others", shared.join(", "));
        findings.doubtful(AREA, &what, &at, "transponder cluster rotate CLUSTER");
    }
}

/// Checks what an entry says; answers the host of its URL.
fn of_entry(
    cluster: &ClusterName,
    entry: &Entry,
    at: &str,
    certificate: &Path,
    findings: &mut Findings,
) -> Option<String> {
    if let Err(problem) = entry.check() {
        let what = format!("{cluster}: {problem}; its reports are answered 503");
        findings.wrong(AREA, &what, at, "correct the entry");
    }
    let host = url(at, cluster, entry, findings);
    trust::check(cluster, entry, at, certificate, findings);
    host
}

fn url(at: &str, cluster: &ClusterName, entry: &Entry, findings: &mut Findings) -> Option<String> {
    let mend = "correct outcomeRelayURL: https://HOST[:PORT]/outcome/CLUSTER";
    let text = &entry.outcome_relay_url;
    let Ok(url) = Url::parse(text) else {
        findings.wrong(AREA, &format!("{cluster}: '{text}' is no URL"), at, mend);
        return None;
    };
    if !url.path().ends_with(&format!("/outcome/{cluster}")) {
        let what = format!("{cluster}: the URL {url} does not end in /outcome/{cluster}");
        findings.wrong(AREA, &what, at, mend);
    }
    if url.scheme() != "https" {
        let what = format!("{cluster}: {url} is not https: the token is sent in the open");
        findings.doubtful(AREA, &what, at, mend);
    }
    // Brackets of an IPv6 address are the URL's, not the address's.
    url.host_str().map(|host| host.trim_matches(['[', ']']).to_owned())
}

/// Checks the token; answers its digest, for comparison with the others'. The token itself goes nowhere.
fn token(
    registry: &Registry,
    cluster: &ClusterName,
    entry: &Entry,
    findings: &mut Findings,
) -> Option<[u8; 32]> {
    let at = registry.token_path(&entry.relay_secret_name);
    for path in [&at, &registry.previous_token_path(&entry.relay_secret_name)] {
        let name = path.file_name().unwrap_or_default().display();
        secret(AREA, &format!("{cluster}: {name}"), path, findings);
    }
    match fs::read(&at) {
        Ok(bytes) => {
            let rotating = registry.previous_token_path(&entry.relay_secret_name).exists();
            of_token(cluster, &bytes, rotating, at.display(), &rotate(cluster), findings)
        }
        Err(error) => {
            let what = format!("{cluster}: the token of {} cannot be read: {error}", entry.relay_secret_name);
            findings.wrong(AREA, &what, at.display(), &rotate(cluster));
            None
        }
    }
}

fn rotate(cluster: &ClusterName) -> String {
    format!("transponder cluster rotate {cluster}")
}

fn of_token(
    cluster: &ClusterName,
    bytes: &[u8],
    rotating: bool,
    at: impl Display,
    rotate: &str,
    findings: &mut Findings,
) -> Option<[u8; 32]> {
    let token = bytes.trim_ascii();
    if token.is_empty() {
        findings.wrong(AREA, &format!("{cluster}: the token is empty"), at, rotate);
        return None;
    }
    if !token.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
        let what = format!("{cluster}: the token holds characters that fit no header");
        findings.wrong(AREA, &what, at, rotate);
        return None;
    }
    if token.len() < SHORT {
        let what = format!("{cluster}: the token has fewer than {SHORT} bytes and can be guessed");
        findings.doubtful(AREA, &what, &at, rotate);
    }
    if rotating {
        let what = format!("{cluster}: a rotation is under way, two tokens work");
        let mend = format!("once every hook has the new one: {rotate} --finish");
        findings.doubtful(AREA, &what, at, &mend);
    }
    Some(Sha256::digest(token).into())
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Level, *};

    #[test]
    fn each_fault_of_a_registry_is_found_and_named() {
        type Spoil = fn(&Path);
        const GLOB: &str = r#"{"relaySecretName":"s","outcomeRelayURL":"https://r.example/outcome/c","appNamespaces":["a["]}"#;
        let cases: [(&str, Spoil, Level); 9] = [
            ("are in order", |_| {}, Level::Fine),
            ("cannot be read", |r| fs::remove_file(r.join("secrets/s/token")).unwrap(), Level::Wrong),
            ("is empty", |r| fs::write(r.join("secrets/s/token"), " \n").unwrap(), Level::Wrong),
            (
                "fit no header",
                |r| fs::write(r.join("secrets/s/token"), "abcdefgh\nijklmnopq").unwrap(),
                Level::Wrong,
            ),
            (
                "fewer than 16 bytes",
                |r| fs::write(r.join("secrets/s/token"), "short").unwrap(),
                Level::Doubtful,
            ),
            ("appNamespaces", |r| fs::write(r.join("cluster-registry/c"), GLOB).unwrap(), Level::Wrong),
            ("missing field", |r| fs::write(r.join("cluster-registry/c"), "{}").unwrap(), Level::Wrong),
            (
                "cluster-registry is not there: a running edge goes on with its last state",
                |r| fs::remove_dir_all(r.join("cluster-registry")).unwrap(),
                Level::Wrong,
            ),
            ("there is no cluster", |r| fs::remove_file(r.join("cluster-registry/c")).unwrap(), Level::Wrong),
        ];
        for (expected, spoil, level) in cases {
            let root = tempfile::tempdir().unwrap();
            let registry = Registry::new(root.path());
            let entry = serde_json::from_str(
                r#"{"relaySecretName":"s","outcomeRelayURL":"https://relay.example/outcome/c"}"#,
            );
            registry.add(&ClusterName::new("c").unwrap(), &entry.unwrap()).unwrap();
            spoil(root.path());
            let mut findings = Findings::default();
            check(root.path(), Path::new("edge.crt"), &mut findings);
            let found = findings.all().iter().any(|f| f.what.contains(expected) && f.level == level);
            assert!(found, "{expected}: {:?}", findings.all());
        }
    }

    #[test]
    fn a_token_that_two_clusters_share_is_named() {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::new(root.path());
        for name in ["a", "b"] {
            let entry =
                format!(r#"{{"relaySecretName":"s","outcomeRelayURL":"https://r.example/outcome/{name}"}}"#);
            registry.add(&ClusterName::new(name).unwrap(), &serde_json::from_str(&entry).unwrap()).unwrap();
        }
        let mut findings = Findings::default();
        let hosts = check(root.path(), Path::new("edge.crt"), &mut findings);
        assert_eq!(hosts, BTreeSet::from(["r.example".to_owned()]));
        assert!(
            findings.all().iter().any(|f| f.what.contains("a, b share one token")),
            "{:?}",
            findings.all()
        );
    }
}
