//! What has come out, as a table and for a machine.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::keys::{KEYS, Key};
use crate::report;

/// Values and raw numbers of a run.
#[derive(Default)]
pub(super) struct Results {
    values: BTreeMap<&'static str, f64>,
    raw: BTreeMap<String, Value>,
}

impl Results {
    /// Prints a raw number, or several of the same kind, and keeps them.
    pub(super) fn raw(&mut self, name: &str, values: &[f64]) {
        let shown: Vec<String> = values.iter().map(|value| number(*value)).collect();
        report::line(&format!("      {name}: {}", shown.join(" ")));
        self.raw.insert(name.to_owned(), json!(values));
    }

    /// Keeps the value of a key.
    pub(super) fn value(&mut self, key: &'static str, value: f64) {
        self.values.insert(key, value);
    }

    fn measured(&self) -> impl Iterator<Item = (&'static Key, f64)> {
        KEYS.iter().filter_map(|key| Some((key, *self.values.get(key.name)?)))
    }

    /// A line per key: its value, its target, and whether that is reached.
    pub(super) fn table(&self) -> String {
        let width = self.measured().map(|(key, _)| key.name.len()).max().unwrap_or(0).max(20);
        let line = |(key, value): (&Key, f64)| {
            let word = match key.target.reached(value) {
                None => "reported",
                Some(true) => "reached",
                Some(false) => "MISSED",
            };
            format!("{:<width$} {:>10}   {:<14} {word}", key.name, number(value), key.target.to_string())
        };
        self.measured().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Writes everything to a file.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let key = |(key, value): (&Key, f64)| {
            let (target, reached) = (key.target.to_string(), key.target.reached(value));
            (key.name.to_owned(), json!({ "value": value, "target": target, "reached": reached }))
        };
        let keys: serde_json::Map<_, _> = self.measured().map(key).collect();
        let document = json!({ "keys": keys, "raw": self.raw });
        fs::write(path, format!("{document:#}\n")).with_context(|| format!("write {}", path.display()))
    }
}

/// Three figures that matter.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        middle if middle >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
