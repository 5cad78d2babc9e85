//! Logs: JSON on one line each, control characters escaped.

use std::io::{self, IsTerminal as _, Write};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, filter::filter_fn, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::config::BadValue;

/// Libraries that log at debug and trace what a log must not hold at any level, headers and frames, or, as notify does,
/// each change of a file, and so each line that they write to one themselves. No filter brings that back.
const QUIET: [&str; 9] =
    ["h2", "hyper", "hyper_util", "mio", "notify", "reqwest", "rustls", "tonic", "tower"];

/// Libraries that may not speak at all: they put answers into the log, in which a Secret or a token can stand, and a line
/// for each request that fails. All that they say so comes to us as an error, too.
const SILENT: [&str; 2] = ["kube_client", "kube_runtime"];

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// For reading on a terminal.
    Text,
}

/// Starts logging to stderr. `filter` is a tracing filter such as `info` or `info,transponder_edge=debug`.
///
/// # Errors
/// When the filter cannot be read or logging has been started before.
pub fn init(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = read(filter).map_err(|bad| bad.to_string())?;
    let registry = tracing_subscriber::registry().with(filter).with(filter_fn(may_speak));
    let layer = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Json => registry
            // `target` is a word of ours: the module's path would stand under the same name.
            .with(
                layer
                    .with_writer(|| Escaped(io::stderr()))
                    .json()
                    .with_target(false)
                    .flatten_event(true)
                    .with_current_span(true)
                    .with_span_list(false),
            )
            .try_init(),
        LogFormat::Text => registry.with(layer.with_target(false)).try_init(),
    }
    .map_err(|e| e.to_string())
}

/// Checks a filter as [`init`] does.
///
/// # Errors
/// When it cannot be read.
pub fn check(filter: &str) -> Result<(), BadValue> {
    read(filter).map(drop)
}

fn read(filter: &str) -> Result<EnvFilter, BadValue> {
    let wrong = |problem| BadValue::new("log.filter", filter, format!("is no tracing filter: {problem}"));
    if filter.trim().is_empty() {
        // It would be read as one that lets nothing through, errors among it.
        return Err(BadValue::new(
            "log.filter",
            filter,
            "must be a filter such as info; off turns the log off",
        ));
    }
    EnvFilter::try_new(filter).map_err(wrong)
}

/// Whether a library says this aloud.
fn may_speak(line: &Metadata<'_>) -> bool {
    let library = line.target().split("::").next().unwrap_or_default();
    !SILENT.contains(&library) && (*line.level() <= Level::INFO || !QUIET.contains(&library))
}

/// Escapes what JSON itself leaves raw and a terminal or a log viewer acts upon: DEL, the control characters U+0080 to
/// U+009F, and the line separators U+2028 and U+2029. All stand within strings, so an escape is the same text.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if line.is_ascii() && !line.contains(&0x7f) {
            return self.0.write(line);
        }
        self.0.write_all(escape(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn escape(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    for character in line.chars() {
        match character {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        assert_eq!(check("info,transponder_edge=debug"), Ok(()));
        let error = check("xx=yy").unwrap_err().to_string();
        assert!(error.starts_with("log.filter: 'xx=yy' is no tracing filter: "), "{error}");
    }

    #[test]
    fn a_line_holds_no_control_character_and_says_the_same() {
        let value = serde_json::json!({ "id": "a\u{1b}\u{7f}\u{9b}31m\u{2028}é\u{2029}b\n" });
        let mut written = Vec::new();
        Escaped(&mut written).write_all(format!("{value}\n").as_bytes()).unwrap();
        let line = String::from_utf8(written).unwrap();
        let bad = |c: char| c.is_control() || ['\u{2028}', '\u{2029}'].contains(&c);
        assert!(!line.trim_end().contains(bad) && line.contains('é'), "{line}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }
}
