//! What a command shows: aligned tables for people, JSON for programs. Colour on a terminal, plain text in a pipe.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use tabled::{builder::Builder, settings::Padding, settings::Style as Borders, settings::object::Columns};

/// How a command shows what it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON document.
    Json,
}

/// What stands out.
pub const STRONG: Style = Style::new().bold();
/// What is beside the point.
pub const FAINT: Style = Style::new().dimmed();
/// What is as it should be.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// What deserves a look.
pub const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
/// What is wrong.
pub const BAD: Style = AnsiColor::Red.on_default();

/// Paints a text. [`print()`] takes the paint off where it cannot be seen.
#[must_use]
pub fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Writes to stdout. A reader that has gone away is no error.
pub fn print(text: &str) {
    let mut out = anstream::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Shows a document as JSON.
pub fn print_json(value: &Value) {
    print(&format!("{value:#}\n"));
}

/// An aligned table under headings; `none` where there is no row.
#[must_use]
pub fn table(headings: &[&str], rows: Vec<Vec<String>>, none: &str) -> String {
    if rows.is_empty() {
        return format!("{none}\n");
    }
    let mut builder = Builder::default();
    builder.push_record(headings.iter().map(|heading| heading.to_uppercase()));
    for row in rows {
        builder.push_record(row.iter().map(|cell| one_line(cell)));
    }
    let mut table = builder.build();
    table.with(Borders::empty()).modify(Columns::new(..), Padding::new(0, 2, 0, 0));
    let text = table.to_string();
    let mut lines = text.lines().map(str::trim_end);
    let heading = paint(STRONG, lines.next().unwrap_or_default());
    std::iter::once(heading.as_str()).chain(lines).flat_map(|line| [line, "\n"]).collect()
}

/// An error and its causes, outermost first. What one says of the next already is not said again.
#[must_use]
pub fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text.extend([if text.is_empty() { "" } else { ": " }, &cause]);
        }
    }
    text
}

/// A text from elsewhere on one line: a control character must not move the cursor of who reads it.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A field of a JSON document as a cell; `-` where it is missing or empty.
#[must_use]
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let rows = vec![vec!["a".into(), "long one".into()], vec!["bbb".into(), "x\n".into()]];
        let text = anstream::adapter::strip_str(&table(&["id", "what"], rows, "nothing")).to_string();
        assert_eq!(text, "ID   WHAT\na    long one\nbbb  x\u{fffd}\n");
        assert_eq!(table(&["id"], Vec::new(), "nothing"), "nothing\n");
    }

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow::anyhow!("address in use").context("cannot listen on :1: address in use");
        assert_eq!(
            causes(&error.context("edge cannot start")),
            "edge cannot start: cannot listen on :1: address in use"
        );
    }

    #[test]
    fn a_missing_field_is_a_dash() {
        let document = json!({ "a": "x", "b": "", "c": 1 });
        assert_eq!(["a", "b", "c", "d"].map(|key| cell(&document[key])), ["x", "-", "1", "-"]);
    }
}
