//! Certificates: the edge's and the mesh's.

mod modes;

use std::{collections::BTreeSet, path::Path};

use jiff::SignedDuration;
use transponder_core::{ServiceName, Timestamp};
use transponder_runtime::{
    mesh,
    tls::{self, Facts, Usage},
};

pub(super) use modes::secret;

use super::finding::Findings;
use crate::{certificates::LOCAL_NAMES, config::Config};

/// A certificate that expires within this is due.
const DUE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// The edge's certificate: usable, valid for a while, and for the hosts by which hooks call it.
pub(super) fn edge(config: &Config, hosts: &BTreeSet<String>, findings: &mut Findings) {
    const AREA: &str = "edge cert";
    let (certificate, key) = (&config.edge.certificate, &config.edge.key);
    // Where 'init' and 'edge-certs' leave it, the same command mends it.
    let directory = certificate.parent().filter(|_| certificate.ends_with("edge.crt"));
    let command = format!(
        "transponder edge-certs --directory {}",
        directory.map_or_else(|| "DIR".to_owned(), |directory| directory.display().to_string())
    );
    secret(AREA, "key of the edge", key, findings);
    if let Some(directory) = directory {
        secret(AREA, "key of the edge's authority", &directory.join("edge-ca.key"), findings);
    }
    let renew = |command: &str| {
        let renewal = match directory {
            Some(directory) => renewal(command, directory, "edge-ca", "cluster's hooks"),
            None => command.to_owned(),
        };
        format!("{renewal}, or the platform's own certificate")
    };
    let facts = match tls::load_pair(certificate, key, Usage::Server) {
        Ok((_, facts)) => facts,
        Err(error) => {
            let mut command = command;
            // What cannot be read has no names that renewal could keep.
            let lost = tls::load_certificates(certificate).is_err();
            let called: Vec<&str> =
                hosts.iter().map(String::as_str).filter(|host| lost && !LOCAL_NAMES.contains(host)).collect();
            if !called.is_empty() {
                command.push_str(&format!(" --names {}", called.join(",")));
            }
            findings.wrong(AREA, &error.problem, error.path.display(), &renew(&command));
            return;
        }
    };
    for host in hosts.iter().filter(|host| !covers(&facts.names, host)) {
        let what = format!("hooks call {host}, and the certificate is for {}", facts.names.join(", "));
        let mend = format!("issue it for {host} too: {command} --names {host}");
        findings.wrong(AREA, &what, certificate.display(), &mend);
    }
    expiry(AREA, "edge", &facts, certificate, &renew(&command), findings);
}

/// Whether one of a certificate's names is good for a host (RFC 6125: a `*` stands for one whole first label).
fn covers(names: &[String], host: &str) -> bool {
    names.iter().any(|name| match name.strip_prefix("*.") {
        Some(parent) => host.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent)),
        None => name.eq_ignore_ascii_case(host),
    })
}

/// The identity of each service, and the authorities that they trust.
pub(super) fn mesh(config: &Config, findings: &mut Findings) {
    const AREA: &str = "mesh cert";
    let directory = &config.mesh.directory;
    let command = format!("transponder mesh-certs --directory {}", directory.display());
    let mend = renewal(&command, directory, "ca", "service and Task");
    for path in config.mesh.ca_files() {
        // An authority that cannot be read is named by the services' own checks.
        let certificates = tls::load_certificates(&path).unwrap_or_default();
        for facts in certificates.iter().filter_map(|certificate| tls::facts(certificate).ok()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let mend = if name == "ca.crt" {
                format!("{command} --new-authority")
            } else {
                format!("once every service and Task trusts ca.crt: rm {}", path.display())
            };
            expiry(AREA, &name, &facts, &path, &mend, findings);
        }
    }
    secret(AREA, "key of the mesh's authority", &directory.join("ca.key"), findings);
    for service in ServiceName::ALL {
        secret(AREA, &format!("key of {service}"), &config.mesh.key(service), findings);
        match mesh::check(service, &config.mesh) {
            Ok(facts) => {
                expiry(AREA, service.as_str(), &facts, &config.mesh.certificate(service), &mend, findings);
            }
            Err(error) => {
                let what = format!("{service}: {}", error.problem);
                findings.wrong(AREA, &what, error.path.display(), &mend);
            }
        }
    }
}

/// How to renew what an authority in a directory issued; another way where a part of the authority is not there.
fn renewal(command: &str, directory: &Path, authority: &str, trusting: &str) -> String {
    let (certificate, key) =
        (directory.join(format!("{authority}.crt")), directory.join(format!("{authority}.key")));
    let lost = match (tls::load_certificates(&certificate).is_ok(), key.exists()) {
        (true, true) => return command.to_owned(),
        // Nothing at all: the command makes a new one by itself, and says what that means.
        (false, false) if !certificate.exists() => return command.to_owned(),
        (true, false) => key,
        (false, _) => certificate,
    };
    format!(
        "put {} back, then {command}; if it is lost, {command} --new-authority: every {trusting} then needs the new \
         {authority}.crt",
        lost.display()
    )
}

fn expiry(area: &'static str, whose: &str, facts: &Facts, at: &Path, mend: &str, findings: &mut Findings) {
    let left = facts.not_after.duration_since(Timestamp::now());
    let days = left.as_hours() / 24;
    if left < DUE {
        let what = if left.is_negative() {
            format!("{whose}: expired at {}", facts.not_after)
        } else {
            format!("{whose}: expires in {days} days, at {}", facts.not_after)
        };
        let mend = format!("{mend} (running services take it over by themselves)");
        findings.doubtful(area, &what, at.display(), &mend);
    } else {
        findings.fine(area, format!("{whose}: in order, valid for {days} more days"), at.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_one_label() {
        let names = ["relay.example".to_owned(), "*.dev.example".to_owned(), "10.0.0.1".to_owned()];
        for (host, covered) in [
            ("relay.example", true),
            ("RELAY.example", true),
            ("a.dev.example", true),
            ("a.b.dev.example", false),
            ("dev.example", false),
            ("10.0.0.1", true),
            ("10.0.0.2", false),
        ] {
            assert_eq!(covers(&names, host), covered, "{host}");
        }
    }
}
