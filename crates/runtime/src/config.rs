//! One configuration scheme for all services: defaults, overridden by a TOML file, by `TRANSPONDER_…` variables,
//! by flags. An unknown key or a bad value is an error that names it and where it comes from.

pub mod check;

use std::{path::Path, time::Duration};

use figment::{
    Figment,
    providers::{Env, Format as _, Serialized, Toml},
    value::Dict,
};
use serde::{Serialize, de::DeserializeOwned};
use transponder_core::ServiceName;

pub use check::BadValue;

/// The prefix of configuration variables; two underscores part the levels: `TRANSPONDER_EDGE__LISTEN`.
pub const ENV_PREFIX: &str = "TRANSPONDER_";

/// The section of a service.
#[must_use]
pub fn section(service: ServiceName) -> &'static str {
    match service {
        ServiceName::Edge => "edge",
        ServiceName::Forwarder => "forwarder",
        ServiceName::DoraRecorder => "dora",
        ServiceName::ReleaseTracking => "release_tracking",
        ServiceName::OutcomeSpan => "outcome_span",
    }
}

/// Configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("configuration: {0}")]
pub struct ConfigError(pub String);

/// Layers the configuration. `flags` are dotted keys with their values, as they came from the command line.
///
/// # Errors
/// When the file cannot be read, or a value does not fit, or a key is unknown.
pub fn load<T: Serialize + DeserializeOwned + Default>(
    file: Option<&Path>,
    flags: &[(String, String)],
) -> Result<(T, Figment), ConfigError> {
    let mut figment = Figment::from(Serialized::defaults(T::default()));
    if let Some(path) = file {
        // Figment's own words name neither the file nor what is wrong with it.
        let unread = |problem: String| ConfigError(format!("{}: {problem}", path.display()));
        if path.metadata().map_err(|error| unread(error.to_string()))?.is_dir() {
            return Err(unread("is a directory".into()));
        }
        std::fs::File::open(path).map_err(|error| unread(error.to_string()))?;
        figment = figment.merge(Toml::file_exact(path));
    }
    // TRANSPONDER_CONFIG names the file, TRANSPONDER_TOOL_… and …_BIN belong to the tests: only levelled names are ours.
    let variables = Env::prefixed(ENV_PREFIX).filter(|key| key.as_str().contains("__")).split("__");
    figment = figment.merge(variables);
    for (key, value) in flags {
        figment = figment.merge(Flag { key, value });
    }
    let value = figment.extract::<T>().map_err(|error| ConfigError(describe(error, &figment)))?;
    Ok((value, figment))
}

/// A fault of the TOML parser without the picture that it draws of the line.
fn in_one_line(fault: &str) -> String {
    let lines = fault.lines().filter(|line| !line.contains(" |")).map(str::trim);
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(": ")
}

/// One `--set key=value`.
struct Flag<'a> {
    key: &'a str,
    value: &'a str,
}

impl figment::Provider for Flag<'_> {
    fn metadata(&self) -> figment::Metadata {
        figment::Metadata::named(format!("flag --set {}", self.key))
    }

    fn data(&self) -> figment::Result<figment::value::Map<figment::Profile, Dict>> {
        let value: figment::value::Value = self.value.parse().unwrap_or_else(|never| match never {});
        let dict = figment::util::nest(self.key, value).into_dict().unwrap_or_default();
        Ok(figment::value::Map::from([(figment::Profile::Default, dict)]))
    }
}

fn describe(error: figment::Error, figment: &Figment) -> String {
    let told = error.into_iter().map(|fault| {
        let key = fault.path.join(".");
        let place = if key.is_empty() { String::new() } else { format!("{key}: ") };
        let source = fault.metadata.as_ref().map_or_else(String::new, |metadata| {
            match metadata.source.as_ref().and_then(|source| source.file_path()) {
                Some(file) => format!(" (from {})", file.display()),
                None if metadata.name.contains("environment") => {
                    format!(" (from variable {})", variable(&key))
                }
                None => format!(" (from {})", metadata.name),
            }
        });
        format!("{place}{}{source}", what(&fault, figment, &key))
    });
    told.collect::<Vec<_>>().join("; ")
}

/// The variable of a key.
fn variable(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

/// What is wrong, in our own words where the parser's are meant for programmers.
fn what(fault: &figment::Error, figment: &Figment, key: &str) -> String {
    use figment::error::Kind;
    match &fault.kind {
        Kind::UnknownField(_, known) => format!("there is no such key; known here: {}", known.join(", ")),
        Kind::UnknownVariant(found, known) => format!("'{found}' is none of {}", known.join(", ")),
        Kind::Message(said) if said == "invalid socket address syntax" => {
            let value = figment.find_value(key).ok().and_then(|value| value.into_string());
            format!(
                "'{}' is no address such as 127.0.0.1:8443, a number and a port",
                value.unwrap_or_default()
            )
        }
        kind => in_one_line(&kind.to_string()),
    }
}

/// Durations in configuration: text with units, such as `10s`, `20m`, `1h 30m`; never a bare number.
pub mod duration {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::Duration;

    /// Nobody means a longer one.
    const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

    /// Reads a duration.
    ///
    /// # Errors
    /// When the text is no duration or is negative.
    pub fn parse(text: &str) -> Result<Duration, String> {
        let wrong = || format!("'{text}' is not a duration such as \"10s\", \"20m\" or \"1h 30m\"");
        let signed: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
        let duration = Duration::try_from(signed).map_err(|_| wrong())?;
        // So that a time and a duration can be added wherever they meet.
        if duration > LONGEST {
            return Err(format!("'{text}' is longer than ten years"));
        }
        Ok(duration)
    }

    /// Writes a duration.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        let signed = jiff::SignedDuration::try_from(*value).unwrap_or(jiff::SignedDuration::MAX);
        serializer.collect_str(&format_args!("{signed:#}"))
    }

    /// Reads a duration.
    ///
    /// # Errors
    /// When the value is not text, or no duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "expected a duration such as \"10s\"")]
        enum Given {
            Text(String),
            Number(f64),
        }
        let parsed = match Given::deserialize(deserializer)? {
            Given::Text(text) => parse(&text),
            // The unit would be a guess.
            Given::Number(number) => parse(&number.to_string()),
        };
        parsed.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Serialize, serde::Deserialize, PartialEq)]
    #[serde(deny_unknown_fields, default)]
    struct Sample {
        edge: Edge,
    }

    #[derive(Debug, Serialize, serde::Deserialize, PartialEq)]
    #[serde(deny_unknown_fields, default)]
    struct Edge {
        #[serde(with = "duration")]
        idle: Duration,
        burst: u32,
        listen: std::net::SocketAddr,
        kind: crate::telemetry::LogFormat,
    }

    impl Default for Edge {
        fn default() -> Self {
            Self {
                idle: Duration::from_secs(90),
                burst: 500,
                listen: ([127, 0, 0, 1], 8443).into(),
                kind: crate::telemetry::LogFormat::Json,
            }
        }
    }

    fn set(key: &str, value: &str) -> Result<Sample, String> {
        load::<Sample>(None, &[(key.into(), value.into())]).map(|(v, _)| v).map_err(|e| e.to_string())
    }

    #[test]
    fn a_flag_overrides_and_a_bad_one_is_named() {
        assert_eq!(set("edge.idle", "1m 30s").unwrap().edge.idle, Duration::from_secs(90));
        assert_eq!(set("edge.burst", "7").unwrap().edge.burst, 7);
        for (key, value, expected) in [
            ("edge.idle", "soon", "edge.idle: 'soon' is not a duration"),
            ("edge.idle", "2562047788015215h", "longer than ten years"),
            ("edge.idle", "5", "edge.idle: '5' is not a duration"),
            ("edge.burst", "many", "edge.burst"),
            (
                "edge.listen",
                "localhost:8443",
                "edge.listen: 'localhost:8443' is no address such as 127.0.0.1:8443",
            ),
            ("edge.kind", "odd", "edge.kind: 'odd' is none of json, text"),
            ("edge.brust", "1", "edge.brust: there is no such key; known here: idle, burst, listen, kind"),
        ] {
            let error = set(key, value).unwrap_err();
            assert!(error.contains(expected) && error.contains("flag --set"), "{error}");
        }
    }

    #[test]
    fn a_file_is_layered_under_flags_and_named_in_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("transponder.toml");
        std::fs::write(&path, "[edge]\nidle = \"5s\"\nburst = 1\n").unwrap();
        let (sample, _) = load::<Sample>(Some(&path), &[("edge.burst".into(), "2".into())]).unwrap();
        assert_eq!(sample.edge, Edge { idle: Duration::from_secs(5), burst: 2, ..Edge::default() });
        std::fs::write(&path, "[edge]\nidel = \"5s\"\n").unwrap();
        let error = load::<Sample>(Some(&path), &[]).unwrap_err().to_string();
        assert!(error.contains("idel") && error.contains("transponder.toml"), "{error}");
    }
}
