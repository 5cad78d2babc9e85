//! Reading the relay's Secret from the API server, with the pod's own ServiceAccount.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use transponder_core::AppNamespace;
use ureq::http::{HeaderValue, header};
use url::Url;

use crate::{
    http::{self, TransportError},
    token::{Token, TokenError},
    trust::{Roots, TrustError},
};

/// Where the kubelet mounts the pod's ServiceAccount.
pub const ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The Secret on the upper cluster.
pub const SECRET: &str = "platform-outcome-relay-token";

/// A Secret has at most 1 MiB, which base64 and metadata lengthen.
const MAX_SECRET: u64 = 3 * 1024 * 1024;

/// Reads one Secret.
#[derive(Debug, Clone)]
pub struct SecretReader {
    url: Url,
    account_dir: PathBuf,
}

/// Why the Secret could not be read. All of these may pass.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The address and the name make no URL.
    #[error("the API server's address cannot be used: {0}")]
    Address(#[from] url::ParseError),
    /// The ServiceAccount is not mounted.
    #[error("{path}: {source}")]
    Account {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// The ServiceAccount's token cannot be used.
    #[error("the ServiceAccount's token {0}")]
    AccountToken(#[from] TokenError),
    /// The ServiceAccount's CA cannot be used.
    #[error("the ServiceAccount's ca.crt {0}")]
    AccountCa(#[from] TrustError),
    /// The API server did not answer.
    #[error("the API server cannot be reached: {0}")]
    Unreachable(#[from] TransportError),
    /// The Secret is not there (yet).
    #[error("there is no Secret {SECRET} in the pod's namespace")]
    Missing,
    /// The API server refused or is in trouble.
    #[error("the API server answered {0}{hint}", hint = hint(*.0))]
    Status(u16),
    /// The answer is no Secret.
    #[error("the API server's answer is no Secret")]
    NotASecret,
}

fn hint(status: u16) -> &'static str {
    match status {
        401 => " (it does not know the pod's ServiceAccount)",
        403 => " (the pod's ServiceAccount may not get the Secret)",
        _ => "",
    }
}

impl SecretReader {
    /// Reads [`SECRET`] of `namespace` from the API server at `api`, as the account whose files are in `account_dir`.
    ///
    /// # Errors
    /// When the parts make no URL.
    pub fn new(api: &Url, namespace: &AppNamespace, account_dir: &Path) -> Result<Self, SecretError> {
        let url = api.join(&format!("api/v1/namespaces/{namespace}/secrets/{SECRET}"))?;
        Ok(Self { url, account_dir: account_dir.to_owned() })
    }

    /// The Secret's keys. The account's files are read each time: the kubelet renews them.
    ///
    /// # Errors
    /// Says what stood in the way.
    pub fn read(&self, within: Duration) -> Result<BTreeMap<String, Vec<u8>>, SecretError> {
        let token = Token::parse(&self.account_file("token")?)?;
        let roots = Roots::from_pem(&self.account_file("ca.crt")?)?;
        let mut bearer = HeaderValue::from_bytes(format!("Bearer {}", token.expose()).as_bytes())
            .map_err(|_| TokenError::ControlCharacters)?;
        bearer.set_sensitive(true);
        let mut response = http::client(&roots, within)
            .get(self.url.as_str())
            .header(header::AUTHORIZATION, bearer)
            .header(header::ACCEPT, "application/json")
            .call()
            .map_err(TransportError::from)?;
        match response.status().as_u16() {
            200 => {}
            404 => return Err(SecretError::Missing),
            status => return Err(SecretError::Status(status)),
        }
        let json = response
            .body_mut()
            .with_config()
            .limit(MAX_SECRET)
            .read_to_vec()
            .map_err(TransportError::from)?;
        decode(&json)
    }

    fn account_file(&self, name: &str) -> Result<Vec<u8>, SecretError> {
        let path = self.account_dir.join(name);
        std::fs::read(&path).map_err(|source| SecretError::Account { path, source })
    }
}

fn decode(json: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, SecretError> {
    #[derive(Deserialize)]
    struct Secret {
        data: Option<BTreeMap<String, String>>,
    }
    let secret: Secret = serde_json::from_slice(json).map_err(|_| SecretError::NotASecret)?;
    secret
        .data
        .unwrap_or_default()
        .into_iter()
        .map(|(key, value)| Ok((key, STANDARD.decode(value).map_err(|_| SecretError::NotASecret)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_names_the_one_secret_of_the_namespace() {
        let namespace = AppNamespace::new("shop-prod").unwrap();
        for (api, expected) in [
            (
                "https://10.0.0.1:443/",
                "https://10.0.0.1/api/v1/namespaces/shop-prod/secrets/platform-outcome-relay-token",
            ),
            (
                "https://[fd00::1]:6443/",
                "https://[fd00::1]:6443/api/v1/namespaces/shop-prod/secrets/platform-outcome-relay-token",
            ),
        ] {
            let reader = SecretReader::new(&api.parse().unwrap(), &namespace, Path::new("/x")).unwrap();
            assert_eq!(reader.url.as_str(), expected);
        }
    }

    #[test]
    fn a_secret_without_data_has_no_keys_and_garbage_is_no_secret() {
        assert!(decode(br#"{"kind":"Secret"}"#).unwrap().is_empty());
        assert_eq!(decode(br#"{"data":{"token":"YWJj"}}"#).unwrap()["token"], b"abc");
        for garbage in [&b""[..], b"[]", b"{\"data\":{\"token\":7}}", b"{\"data\":{\"token\":\"*\"}}"] {
            assert!(matches!(decode(garbage), Err(SecretError::NotASecret)));
        }
    }
}
