//! Configuration: section `[forwarder]`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use transponder_runtime::{
    config::{BadValue, check, duration},
    tls,
};
use url::Url;

/// How the Forwarder reaches the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address of the gRPC listener.
    pub listen: SocketAddr,
    /// URL that events are posted to, http or https. Its path is used as it is.
    pub broker_url: String,
    /// The projected ServiceAccount token, read anew for each event. Empty: no token is sent (a broker on a laptop).
    pub token_file: PathBuf,
    /// Audience that the token must carry. Empty: any, and a token that is no JWT is taken, with a warning.
    pub audience: String,
    /// CA certificates of an https broker, watched. Absent: the system's roots.
    pub ca_file: Option<PathBuf>,
    /// Longest time for one post, connecting included.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8444)),
            broker_url: "http://el-cdevents-broker.platform-system:8080".into(),
            token_file: "/var/run/secrets/platform/broker-token".into(),
            audience: "cdevents-broker".into(),
            ca_file: None,
            timeout: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// What no type can say.
    ///
    /// # Errors
    /// Names the key, the value and what is wrong with it.
    pub fn check(&self) -> Result<(), BadValue> {
        self.url()?;
        check::lasting("forwarder.timeout", self.timeout)?;
        let Some(path) = &self.ca_file else { return Ok(()) };
        let wrong = |e: tls::TlsError| BadValue::new("forwarder.ca_file", path.display(), e.problem);
        tls::load_roots(std::slice::from_ref(path)).map(drop).map_err(wrong)
    }

    /// Where events are posted to.
    ///
    /// # Errors
    /// Names what is no URL of a broker.
    pub fn url(&self) -> Result<Url, BadValue> {
        let text = &self.broker_url;
        // What stands before the @ may be a password.
        let shown = text.rsplit_once('@').map_or(text.clone(), |(_, host)| format!("…@{host}"));
        let wrong = |problem: String| Err(BadValue::new("forwarder.broker_url", &shown, problem));
        let url = match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
            Ok(_) => return wrong("must be an http or https URL, such as http://broker:8080".into()),
            Err(error) => return wrong(format!("is no URL such as http://broker:8080: {error}")),
        };
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return wrong("must have neither user name nor password nor fragment".into());
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_url_is_http_and_holds_no_secret() {
        let check = |url: &str| Config { broker_url: url.into(), ..Config::default() }.check();
        for good in ["http://b:8080", "https://b/path?x=1", "http://[::1]:80/"] {
            assert_eq!(check(good), Ok(()));
        }
        for bad in [
            "",
            "b:8080",
            "127.0.0.1:8080",
            "ftp://b",
            "file:///x",
            "http://",
            "http://u@b",
            "http://u:secret@b",
            "http://u:secret@",
            "http://b/#f",
        ] {
            let error = check(bad).unwrap_err();
            assert_eq!(error.key, "forwarder.broker_url", "{bad}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_ca_file_must_hold_certificates_and_a_post_needs_time() {
        let config = Config { ca_file: Some("/nope".into()), ..Config::default() };
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with("forwarder.ca_file: '/nope' "), "{error}");
        let config = Config { timeout: Duration::ZERO, ..Config::default() };
        assert_eq!(config.check().unwrap_err().key, "forwarder.timeout");
    }
}
