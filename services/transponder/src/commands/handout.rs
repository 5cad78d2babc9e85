//! What goes onto the upper cluster: the token, shown this once, and where hooks post to.

use std::path::Path;

use anyhow::Context as _;
use serde_json::json;
use transponder_core::ClusterName;
use url::Url;

use crate::{
    output::{DOUBTFUL, GOOD, Output, STRONG, paint, print, print_json},
    registry::Entry,
};

/// The Secret that hooks read, on the upper cluster.
const SECRET: &str = "platform-outcome-relay-token";

/// A cluster, its entry and its new token.
pub(crate) struct Handout<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) entry: &'a Entry,
    pub(crate) token: &'a str,
    /// The authority that signed the edge's certificate, where the Secret would need it and does not have it.
    pub(crate) missing_authority: Option<&'a Path>,
    /// What deserves a second look.
    pub(crate) warnings: Vec<String>,
}

impl Handout<'_> {
    pub(crate) fn show(&self, output: Output, done: &str, place: &str) -> anyhow::Result<()> {
        let (cluster, entry) = (self.cluster, self.entry);
        let origin = self.origin()?;
        let manifest = self.manifest(&origin);
        if output == Output::Json {
            print_json(&json!({
                "cluster": cluster,
                "token": self.token,
                "relaySecretName": entry.relay_secret_name,
                "relayUrl": entry.outcome_relay_url,
                "relayOrigin": origin,
                "relayCA": entry.relay_ca,
                "relayHostAliasIP": entry.relay_host_alias_ip,
                "hookEnv": { "RELAY_URL": entry.outcome_relay_url, "CLUSTER": cluster },
                "secretManifest": manifest,
                "warnings": self.warnings(),
            }));
            return Ok(());
        }
        let mut text = format!(
            "{} cluster {cluster} {done} {place}\n\n\
             On {cluster}, in each namespace whose syncs report (kubectl apply -n NAMESPACE -f -); \
             the token is shown {}:\n\n",
            paint(GOOD, "✓"),
            paint(STRONG, "this once"),
        );
        text.extend(manifest.lines().flat_map(|line| ["  ", line, "\n"]));
        text.push_str(&format!(
            "\nIn the environment of its hook Jobs:\n\n  RELAY_URL={}\n  CLUSTER={cluster}\n",
            entry.outcome_relay_url
        ));
        if let Some(ip) = &entry.relay_host_alias_ip {
            text.push_str(&format!("\nand the host alias {ip} for the host of RELAY_URL.\n"));
        }
        for warning in self.warnings() {
            text.push_str(&format!("\n{}\n", paint(DOUBTFUL, &warning)));
        }
        print(&text);
        Ok(())
    }

    /// Not mended by themselves: behind a proxy with a certificate of its own, that authority would be the wrong one.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        warnings.extend(self.authority_warning());
        warnings
    }

    fn authority_warning(&self) -> Option<String> {
        let (authority, cluster) = (self.missing_authority?.display(), self.cluster);
        Some(format!(
            "The Secret has no ca.crt, and the edge's certificate is signed by {authority}, which no system knows: \
             hooks that reach this edge fail with UnknownIssuer. Unless something with a certificate of its own is \
             between them: transponder cluster remove {cluster}, then the same 'cluster add' with --ca {authority}"
        ))
    }

    /// Scheme, host and port of the URL: the token goes nowhere else.
    fn origin(&self) -> anyhow::Result<String> {
        let url = Url::parse(&self.entry.outcome_relay_url)
            .with_context(|| format!("outcomeRelayURL of {}", self.cluster))?;
        Ok(url.origin().ascii_serialization())
    }

    fn manifest(&self, origin: &str) -> String {
        let mut manifest = format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {SECRET}\ntype: Opaque\nstringData:\n  \
             token: {}\n  relay-origin: {origin}\n",
            self.token
        );
        if let Some(ca) = &self.entry.relay_ca {
            manifest.push_str("  ca.crt: |\n");
            manifest.extend(ca.trim_end().lines().flat_map(|line| ["    ", line, "\n"]));
        }
        manifest
    }
}
