//! The edge as a hook sees it: post an event, read its receipt.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail, ensure};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use serde_json::Value;
use transponder_core::ClusterName;
use transponder_hook::{
    post::{Answer, post},
    token::Token,
    trust::Roots,
};
use transponder_runtime::tls;
use url::Url;

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// One cluster's way to the edge.
#[derive(Clone)]
pub struct Relay {
    url: Url,
    token: Token,
    roots: Arc<Roots>,
    client: reqwest::Client,
}

impl Relay {
    /// The way by `url`, which ends in `/outcome/<cluster>`, with the cluster's token. `ca` is the edge's authority as
    /// PEM; the system's roots are trusted without one.
    ///
    /// # Errors
    /// When token or authority cannot be used.
    pub fn new(url: Url, token: &str, ca: Option<&str>) -> anyhow::Result<Self> {
        let token = Token::parse(token.as_bytes()).map_err(|error| anyhow!("the relay token {error}"))?;
        let roots = match ca {
            Some(pem) => Roots::from_pem(pem.as_bytes()).map_err(|error| anyhow!("the edge's CA {error}"))?,
            None => Roots::system(),
        };
        Ok(Self { url, token, roots: Arc::new(roots), client: https_client(ca)? })
    }

    /// Where events are posted.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Posts an event with the hook's own code.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn post(&self, body: Vec<u8>) -> anyhow::Result<Answer> {
        let relay = self.clone();
        tokio::task::spawn_blocking(move || post(&relay.url, &relay.roots, &relay.token, &body, PATIENCE))
            .await?
            .with_context(|| format!("posting to {}", self.url))
    }

    /// What an answer says, on one line and without the token.
    #[must_use]
    pub fn summary(&self, answer: &Answer) -> String {
        answer.summary(&self.token)
    }

    /// The receipt of an event.
    ///
    /// # Errors
    /// When there is none.
    pub async fn receipt(&self, key: &str) -> anyhow::Result<Value> {
        let url = format!("{}/{key}", self.url);
        let reading = || format!("reading the receipt {url}");
        let response = self
            .client
            .get(&url)
            .bearer_auth(self.token.expose())
            .send()
            .await
            .map_err(without_url)
            .with_context(reading)?;
        let status = response.status();
        let body = response.bytes().await.map_err(without_url).with_context(reading)?;
        if !status.is_success() {
            bail!("{}: answered {status}", reading());
        }
        serde_json::from_slice(&body).with_context(reading)
    }
}

/// The URL is in the context already.
fn without_url(error: reqwest::Error) -> reqwest::Error {
    error.without_url()
}

/// An HTTPS client that trusts `ca` alone, follows no redirect and asks no proxy.
///
/// # Errors
/// When the authority cannot be used.
pub fn https_client(ca: Option<&str>) -> anyhow::Result<reqwest::Client> {
    let roots = match ca {
        None => tls::system_roots(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                roots.add(certificate.context("the edge's CA")?).context("the edge's CA")?;
            }
            roots
        }
    };
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(PATIENCE)
        .build()?)
}

/// The URL that hooks post to: `url` itself when it ends so already.
///
/// # Errors
/// When it is none, or another cluster's.
pub fn relay_url(url: &Url, cluster: &ClusterName) -> anyhow::Result<String> {
    ensure!(
        matches!(url.scheme(), "https" | "http") && url.has_host(),
        "'{url}' is no http or https URL such as https://relay.dev.example:30880"
    );
    ensure!(
        url.username().is_empty() && url.password().is_none() && url.query().is_none(),
        "the URL must have neither user name nor password nor query"
    );
    let ending = format!("/outcome/{cluster}");
    let base = url.as_str().trim_end_matches('/');
    if url.path().contains("/outcome/") {
        ensure!(base.ends_with(&ending), "{url} is the address of another cluster: it must end in {ending}");
        return Ok(base.to_owned());
    }
    Ok(format!("{base}{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_hooks_ends_in_the_clusters_own_path() {
        let of = |url: &str| relay_url(&url.parse().unwrap(), &ClusterName::new("c").unwrap());
        for (url, expected) in [
            ("https://relay:30880", "https://relay:30880/outcome/c"),
            ("https://relay/", "https://relay/outcome/c"),
            ("https://relay/base/", "https://relay/base/outcome/c"),
            ("https://relay/outcome/c", "https://relay/outcome/c"),
        ] {
            assert_eq!(of(url).unwrap(), expected);
        }
        for bad in ["https://relay/outcome/d", "ftp://relay", "https://u:p@relay", "https://relay/?a=b"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
