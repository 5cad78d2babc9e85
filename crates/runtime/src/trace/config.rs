//! Where own traces go.

use std::{path::PathBuf, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use tonic::{
    metadata::MetadataMap,
    transport::{Channel, ClientTlsConfig, Endpoint},
};

use crate::tls;

/// Longest time to connect, TLS included.
const CONNECT: Duration = Duration::from_secs(5);

/// Own traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracesConfig {
    /// URL of an OTLP/gRPC receiver; none: no traces.
    pub endpoint: Option<String>,
    /// PEM file of the CAs that its certificate may come from; none: the system's.
    pub ca: Option<PathBuf>,
    /// File of `name: value` lines that are sent along as metadata.
    pub headers_file: Option<PathBuf>,
    /// Share of the traces that begin here, 0 to 1.
    pub sample: f64,
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self { endpoint: None, ca: None, headers_file: None, sample: 1.0 }
    }
}

/// Own traces cannot be sent as configured.
#[derive(Debug, thiserror::Error)]
#[error("traces.{key}: {problem}")]
pub struct TracesError {
    key: &'static str,
    problem: String,
}

fn wrong(key: &'static str) -> impl FnOnce(String) -> TracesError {
    move |problem| TracesError { key, problem }
}

impl TracesConfig {
    /// Checks what the start does, as far as there is an endpoint. To be called within a runtime.
    ///
    /// # Errors
    /// Names the key that cannot be used.
    pub fn check(&self) -> Result<(), TracesError> {
        let Some(endpoint) = self.endpoint() else { return Ok(()) };
        self.check_sample()?;
        self.channel(endpoint)?;
        self.metadata().map(drop)
    }

    /// Where traces go, if anywhere.
    pub(super) fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref().filter(|url| !url.is_empty())
    }

    /// Checks what can be checked without a look at the network.
    pub(super) fn check_sample(&self) -> Result<f64, TracesError> {
        if (0.0..=1.0).contains(&self.sample) {
            return Ok(self.sample);
        }
        Err(wrong("sample")(format!("{} is not between 0 and 1", self.sample)))
    }

    /// The way to `endpoint`. It connects when it is first used.
    pub(super) fn channel(&self, endpoint: &str) -> Result<Channel, TracesError> {
        let told = |e: &dyn std::error::Error| format!("'{endpoint}' cannot be used: {e}");
        let channel = Endpoint::from_shared(endpoint.to_owned()).map_err(|e| wrong("endpoint")(told(&e)))?;
        let channel = channel.connect_timeout(CONNECT).tcp_keepalive(Some(Duration::from_secs(15)));
        match channel.uri().scheme_str() {
            Some("http") => Ok(channel.connect_lazy()),
            Some("https") => {
                let tls = ClientTlsConfig::new().trust_anchors(self.roots()?.roots).timeout(CONNECT);
                Ok(channel.tls_config(tls).map_err(|e| wrong("ca")(e.to_string()))?.connect_lazy())
            }
            _ => Err(wrong("endpoint")(format!("'{endpoint}' is not an http:// or https:// URL"))),
        }
    }

    fn roots(&self) -> Result<rustls::RootCertStore, TracesError> {
        match &self.ca {
            None => Ok(tls::system_roots()),
            Some(path) => tls::load_roots(std::slice::from_ref(path)).map_err(|e| wrong("ca")(e.to_string())),
        }
    }

    /// What is sent along, tokens among it. A fault names the line and never shows it.
    pub(super) fn metadata(&self) -> Result<MetadataMap, TracesError> {
        let mut headers = HeaderMap::new();
        let Some(path) = &self.headers_file else { return Ok(MetadataMap::from_headers(headers)) };
        let failed = |problem: String| wrong("headers_file")(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let pair = line.split_once(':').and_then(|(name, value)| {
                let name = HeaderName::try_from(name.trim()).ok()?;
                Some((name, HeaderValue::try_from(value.trim()).ok()?))
            });
            let Some((name, mut value)) = pair else {
                return Err(failed(format!("line {} is not 'name: value'", number + 1)));
            };
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Ok(MetadataMap::from_headers(headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named_and_a_header_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("headers");
        std::fs::write(&file, "x-scope-orgid: tenant\n\nauthorization Bearer secret\n").unwrap();
        let config = TracesConfig { headers_file: Some(file.clone()), ..TracesConfig::default() };
        let error = config.metadata().unwrap_err().to_string();
        assert!(error.contains("line 3") && !error.contains("secret"), "{error}");
        std::fs::write(&file, "x-scope-orgid: tenant\n").unwrap();
        assert_eq!(config.metadata().unwrap().get("x-scope-orgid").unwrap(), "tenant");

        for endpoint in ["collector:4317", "ftp://collector", "http://"] {
            let error = TracesConfig::default().channel(endpoint).unwrap_err().to_string();
            assert!(error.starts_with("traces.endpoint: ") && error.contains(endpoint), "{error}");
        }
        assert!(TracesConfig::default().check().is_ok());
        let config = TracesConfig { endpoint: Some("collector:4317".into()), ..TracesConfig::default() };
        assert!(config.check().unwrap_err().to_string().starts_with("traces.endpoint: "));
        let config = TracesConfig { ca: Some(file), ..TracesConfig::default() };
        let error = config.channel("https://collector:4317").unwrap_err().to_string();
        assert!(error.starts_with("traces.ca: "), "{error}");
        for sample in [-0.1, 1.1, f64::NAN] {
            assert!(TracesConfig { sample, ..TracesConfig::default() }.check_sample().is_err());
        }
    }
}
