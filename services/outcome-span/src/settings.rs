//! Where spans go: the standard OpenTelemetry variables.
//!
//! `OTEL_EXPORTER_OTLP_TRACES_…` wins over `OTEL_EXPORTER_OTLP_…`; an empty value counts as unset (OpenTelemetry
//! specification, "SDK environment variables" and "OTLP exporter configuration").

use std::{path::PathBuf, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

/// A variable that cannot be used. The message never holds its value: it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} {problem}")]
pub struct SettingError {
    /// The variable.
    pub variable: String,
    /// What is wrong with it.
    pub problem: String,
}

/// How spans travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP with protobuf.
    HttpProtobuf,
}

/// Where spans go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// For all signals: over HTTP, `/v1/traces` is appended to its path.
    Base(Url),
    /// For traces alone: used as it is.
    Traces(Url),
}

impl Endpoint {
    /// The URL without what HTTP appends.
    #[must_use]
    pub fn url(&self) -> &Url {
        match self {
            Self::Base(url) | Self::Traces(url) => url,
        }
    }

    /// The URL that OTLP/HTTP posts to.
    #[must_use]
    pub fn http_url(&self) -> Url {
        match self {
            Self::Traces(url) => url.clone(),
            Self::Base(base) => {
                let mut url = base.clone();
                url.set_path(&format!("{}/v1/traces", base.path().trim_end_matches('/')));
                url
            }
        }
    }
}

/// The settings, read from variables or built in code.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `service.name` of the spans.
    pub service_name: String,
    /// `None`: spans go to a file.
    pub endpoint: Option<Endpoint>,
    /// How spans travel.
    pub protocol: Protocol,
    /// Sent along with every request. Values are marked sensitive, so they do not print.
    pub headers: HeaderMap,
    /// Longest time for one export, repetitions included.
    pub timeout: Duration,
    /// CA certificates of the backend. `None`: the system's roots.
    pub certificate: Option<PathBuf>,
    /// Client certificate and key.
    pub client_identity: Option<(PathBuf, PathBuf)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_name: "transponder".into(),
            endpoint: None,
            protocol: Protocol::HttpProtobuf,
            headers: HeaderMap::new(),
            timeout: Duration::from_secs(10),
            certificate: None,
            client_identity: None,
        }
    }
}

impl Settings {
    /// Reads the process's variables.
    ///
    /// # Errors
    /// Names the variable that cannot be used.
    pub fn from_env() -> Result<Self, SettingError> {
        Self::from_variables(|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(wrong(name, "is not UTF-8")),
        })
    }

    /// Reads variables from anywhere.
    ///
    /// # Errors
    /// Names the variable that cannot be used.
    pub fn from_variables(
        get: impl Fn(&str) -> Result<Option<String>, SettingError>,
    ) -> Result<Self, SettingError> {
        let variables = Variables(get);
        let defaults = Self::default();
        let protocol = variables.signal("PROTOCOL")?.map(|v| protocol(&v)).transpose()?;
        let insecure = variables.signal("INSECURE")?.map(|v| boolean(&v)).transpose()?.unwrap_or(false);
        let endpoint = match variables.signal("ENDPOINT")? {
            None => None,
            Some(variable) => {
                let url = url(&variable, protocol, insecure)?;
                let of_traces = variable.name.contains("_TRACES_");
                Some(if of_traces { Endpoint::Traces(url) } else { Endpoint::Base(url) })
            }
        };
        let protocol = protocol.unwrap_or_else(|| {
            // The specification's default is http/protobuf; 4317 is the registered port of gRPC, and nothing else
            // answers there.
            let grpc = endpoint.as_ref().is_some_and(|endpoint| endpoint.url().port() == Some(4317));
            if grpc { Protocol::Grpc } else { defaults.protocol }
        });
        if let Some(variable) = variables.signal("COMPRESSION")? {
            compression(&variable)?;
        }
        Ok(Self {
            service_name: variables.get("OTEL_SERVICE_NAME")?.map_or(defaults.service_name, |v| v.value),
            endpoint,
            protocol,
            headers: variables.signal("HEADERS")?.map(|v| headers(&v)).transpose()?.unwrap_or_default(),
            timeout: variables.signal("TIMEOUT")?.map_or(Ok(defaults.timeout), |v| milliseconds(&v))?,
            certificate: variables.signal("CERTIFICATE")?.map(|v| v.value.into()),
            client_identity: variables.client_identity()?,
        })
    }
}

struct Variable {
    name: String,
    value: String,
}

struct Variables<F>(F);

impl<F: Fn(&str) -> Result<Option<String>, SettingError>> Variables<F> {
    fn get(&self, name: &str) -> Result<Option<Variable>, SettingError> {
        let value = (self.0)(name)?.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        Ok(value.map(|value| Variable { name: name.to_owned(), value }))
    }

    /// The variable of the traces, else that of all signals.
    fn signal(&self, suffix: &str) -> Result<Option<Variable>, SettingError> {
        match self.get(&format!("OTEL_EXPORTER_OTLP_TRACES_{suffix}"))? {
            Some(variable) => Ok(Some(variable)),
            None => self.get(&format!("OTEL_EXPORTER_OTLP_{suffix}")),
        }
    }

    fn client_identity(&self) -> Result<Option<(PathBuf, PathBuf)>, SettingError> {
        match (self.signal("CLIENT_CERTIFICATE")?, self.signal("CLIENT_KEY")?) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some((certificate.value.into(), key.value.into()))),
            (Some(certificate), None) => Err(wrong(&certificate.name, "needs OTEL_EXPORTER_OTLP_CLIENT_KEY")),
            (None, Some(key)) => Err(wrong(&key.name, "needs OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE")),
        }
    }
}

fn wrong(variable: &str, problem: impl Into<String>) -> SettingError {
    SettingError { variable: variable.to_owned(), problem: problem.into() }
}

fn protocol(variable: &Variable) -> Result<Protocol, SettingError> {
    match variable.value.as_str() {
        "grpc" => Ok(Protocol::Grpc),
        "http/protobuf" => Ok(Protocol::HttpProtobuf),
        _ => Err(wrong(&variable.name, "must be 'grpc' or 'http/protobuf'")),
    }
}

fn boolean(variable: &Variable) -> Result<bool, SettingError> {
    match variable.value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(wrong(&variable.name, "must be 'true' or 'false'")),
    }
}

fn milliseconds(variable: &Variable) -> Result<Duration, SettingError> {
    let value = variable.value.parse::<u32>().ok().filter(|milliseconds| *milliseconds > 0);
    value
        .map(|milliseconds| Duration::from_millis(milliseconds.into()))
        .ok_or_else(|| wrong(&variable.name, "must be a number of milliseconds above 0"))
}

fn compression(variable: &Variable) -> Result<(), SettingError> {
    match variable.value.as_str() {
        "none" => Ok(()),
        "gzip" => {
            tracing::warn!(variable = variable.name, "a single span is sent uncompressed");
            Ok(())
        }
        _ => Err(wrong(&variable.name, "must be 'gzip' or 'none'")),
    }
}

/// An endpoint without a scheme is one of gRPC, and then INSECURE decides.
fn url(variable: &Variable, protocol: Option<Protocol>, insecure: bool) -> Result<Url, SettingError> {
    let mut text = variable.value.clone();
    if !text.contains("://") && protocol == Some(Protocol::Grpc) {
        text = format!("{}://{text}", if insecure { "http" } else { "https" });
    }
    let url = Url::parse(&text).map_err(|e| wrong(&variable.name, format!("is no URL: {e}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong(&variable.name, "must be an http or https URL"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(wrong(
            &variable.name,
            "must have neither user name nor password nor fragment: use OTEL_EXPORTER_OTLP_HEADERS",
        ));
    }
    Ok(url)
}

/// Headers that OTLP sets itself.
const OWN: [&str; 8] = [
    "content-type",
    "content-length",
    "content-encoding",
    "host",
    "te",
    "connection",
    "transfer-encoding",
    "user-agent",
];

/// `key1=value1,key2=value2`, as W3C Baggage writes it: values are percent-encoded.
fn headers(variable: &Variable) -> Result<HeaderMap, SettingError> {
    let mut headers = HeaderMap::new();
    for (number, pair) in variable.value.split(',').map(str::trim).enumerate() {
        let entry = number + 1;
        let wrong = |problem: &str| wrong(&variable.name, format!("entry {entry} {problem}"));
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_once('=').ok_or_else(|| wrong("is not key=value"))?;
        let name = HeaderName::from_bytes(name.trim().as_bytes())
            .map_err(|_| wrong("has a key that is no header name"))?;
        if OWN.contains(&name.as_str())
            || name.as_str().starts_with("grpc-")
            || name.as_str().ends_with("-bin")
        {
            return Err(wrong("names a header that cannot be set"));
        }
        let value = percent_decode(value.trim()).ok_or_else(|| wrong("is not percent-encoded rightly"))?;
        let mut value =
            HeaderValue::from_bytes(&value).map_err(|_| wrong("has a value that is no header value"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                *hex::decode(digits).ok()?.first()?
            }
            other => other,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let variables: HashMap<_, _> =
            variables.iter().map(|(name, value)| (format!("OTEL_{name}"), (*value).to_owned())).collect();
        Settings::from_variables(|name| Ok(variables.get(name).cloned())).map_err(|e| e.to_string())
    }

    fn http_url(variables: &[(&str, &str)]) -> String {
        read(variables).unwrap().endpoint.unwrap().http_url().to_string()
    }

    #[test]
    fn the_path_is_appended_to_the_general_endpoint_alone() {
        for (endpoint, expected) in [
            ("http://c:4318", "http://c:4318/v1/traces"),
            ("http://c:4318/", "http://c:4318/v1/traces"),
            ("http://c/prefix", "http://c/prefix/v1/traces"),
            ("http://c/prefix/", "http://c/prefix/v1/traces"),
            ("https://c/v1/traces", "https://c/v1/traces/v1/traces"),
        ] {
            assert_eq!(http_url(&[("EXPORTER_OTLP_ENDPOINT", endpoint)]), expected);
        }
        for endpoint in ["http://c:4318/", "http://c/v1/traces", "http://c/other?x=1"] {
            let general = ("EXPORTER_OTLP_ENDPOINT", "http://general");
            assert_eq!(http_url(&[general, ("EXPORTER_OTLP_TRACES_ENDPOINT", endpoint)]), endpoint);
        }
    }

    #[test]
    fn without_variables_spans_go_to_the_file_under_the_default_name() {
        let settings = read(&[("EXPORTER_OTLP_ENDPOINT", " "), ("SERVICE_NAME", "")]).unwrap();
        assert!(settings.endpoint.is_none());
        assert_eq!(settings.service_name, "transponder");
        assert_eq!(settings.timeout, Duration::from_secs(10));
    }

    #[test]
    fn the_variable_of_the_traces_wins() {
        let settings = read(&[
            ("EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
            ("EXPORTER_OTLP_TIMEOUT", "1000"),
            ("EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
            ("EXPORTER_OTLP_HEADERS", "a=1"),
            ("EXPORTER_OTLP_TRACES_HEADERS", "b=2, c = x%20y%2Cz ,"),
            ("EXPORTER_OTLP_CERTIFICATE", "/ca"),
            ("EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("SERVICE_NAME", "releases"),
        ])
        .unwrap();
        assert_eq!((settings.protocol, settings.timeout), (Protocol::Grpc, Duration::from_millis(250)));
        assert_eq!(settings.headers.len(), 2);
        assert_eq!(settings.headers["c"], "x y,z");
        assert_eq!(settings.certificate, Some("/ca".into()));
        assert_eq!(settings.service_name, "releases");
        assert!(!format!("{settings:?}").contains("x y"));
    }

    #[test]
    fn an_endpoint_without_a_scheme_is_grpc_and_insecure_decides() {
        let url = |more: &[(&str, &str)]| {
            let given = [("EXPORTER_OTLP_PROTOCOL", "grpc"), ("EXPORTER_OTLP_ENDPOINT", "tempo:4317")];
            read(&[&given, more].concat()).unwrap().endpoint.unwrap().url().to_string()
        };
        assert_eq!(url(&[]), "https://tempo:4317/");
        assert_eq!(url(&[("EXPORTER_OTLP_INSECURE", "true")]), "http://tempo:4317/");
        assert_eq!(url(&[("EXPORTER_OTLP_TRACES_INSECURE", "False")]), "https://tempo:4317/");
        let unsaid = read(&[("EXPORTER_OTLP_ENDPOINT", "http://tempo:4317")]).unwrap();
        assert_eq!(unsaid.protocol, Protocol::Grpc);
    }

    #[test]
    fn what_cannot_be_used_is_named_and_no_value_is_shown() {
        for (name, value, problem) in [
            ("EXPORTER_OTLP_PROTOCOL", "http/json", "must be 'grpc' or 'http/protobuf'"),
            ("EXPORTER_OTLP_TRACES_TIMEOUT", "10s", "must be a number of milliseconds above 0"),
            ("EXPORTER_OTLP_TIMEOUT", "0", "must be a number of milliseconds above 0"),
            ("EXPORTER_OTLP_INSECURE", "yes", "must be 'true' or 'false'"),
            ("EXPORTER_OTLP_COMPRESSION", "zip", "must be 'gzip' or 'none'"),
            ("EXPORTER_OTLP_ENDPOINT", "tempo", "is no URL: relative URL without a base"),
            ("EXPORTER_OTLP_ENDPOINT", "tempo:4318", "must be an http or https URL"),
            ("EXPORTER_OTLP_ENDPOINT", "http://u:p@c", "must have neither user name nor password"),
            ("EXPORTER_OTLP_HEADERS", "a=1,secret", "entry 2 is not key=value"),
            ("EXPORTER_OTLP_HEADERS", "a b=secret", "entry 1 has a key that is no header name"),
            ("EXPORTER_OTLP_HEADERS", "a=secret%0d%0ab", "entry 1 has a value that is no header value"),
            ("EXPORTER_OTLP_HEADERS", "a=secret%2", "entry 1 is not percent-encoded rightly"),
            ("EXPORTER_OTLP_HEADERS", "Content-Type=secret", "entry 1 names a header that cannot be set"),
            ("EXPORTER_OTLP_CLIENT_KEY", "/k", "needs OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
            ("EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "/c", "needs OTEL_EXPORTER_OTLP_CLIENT_KEY"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(&format!("OTEL_{name} {problem}")), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
