//! `config`: the effective configuration and where each value comes from; `config --reference`: all keys.

use std::process::ExitCode;

use figment::Figment;
use serde_json::{Map, Value, json};

use crate::{
    cli::Globals,
    config,
    output::{Output, print, print_json, table},
    reference,
};

/// Arguments of `config`.
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    /// Print every key with its default and its meaning, as Markdown, instead.
    #[arg(long)]
    pub reference: bool,
    /// How to show the result.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Shows the configuration. It holds paths of secrets, but no secret.
///
/// # Errors
/// When the configuration cannot be used.
pub fn run(globals: &Globals, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    if args.reference {
        print(&reference::markdown());
        return Ok(ExitCode::SUCCESS);
    }
    let (config, figment) = config::load(globals)?;
    let values: Vec<(String, Value, String)> = flatten(&serde_json::to_value(&config)?)
        .into_iter()
        .map(|(key, value)| {
            let source = source(&figment, &key);
            (key, value, source)
        })
        .collect();
    match args.output {
        Output::Json => {
            let entries = values
                .into_iter()
                .map(|(key, value, source)| (key, json!({ "value": value, "source": source })))
                .collect::<Map<_, _>>();
            print_json(&Value::Object(entries));
        }
        Output::Text => {
            let rows = values
                .into_iter()
                .map(|(key, value, source)| {
                    let value = if value.is_null() { "-".to_owned() } else { value.to_string() };
                    vec![key, value, source]
                })
                .collect();
            print(&table(&["key", "value", "from"], rows, "nothing is configured"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Each value under its dotted key.
#[must_use]
pub fn flatten(document: &Value) -> Vec<(String, Value)> {
    fn walk(prefix: &str, value: &Value, into: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    walk(&key, field, into);
                }
            }
            other => into.push((prefix.to_owned(), other.clone())),
        }
    }
    let mut flat = Vec::new();
    walk("", document, &mut flat);
    flat
}

/// Where a value comes from: `default`, the file, the variable, the flag.
fn source(figment: &Figment, key: &str) -> String {
    let Some(metadata) = figment.find_metadata(key) else { return "default".to_owned() };
    if let Some(file) = metadata.source.as_ref().and_then(|source| source.file_path()) {
        return file.display().to_string();
    }
    let name = metadata.name.as_ref();
    if name.contains("environment") {
        let prefix = transponder_runtime::config::ENV_PREFIX;
        return format!("variable {prefix}{}", key.to_uppercase().replace('.', "__"));
    }
    if name.starts_with("flag") { name.to_owned() } else { "default".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_get_dotted_keys() {
        let flat = flatten(&json!({ "a": { "b": 1, "c": { "d": [1, 2] } }, "e": null }));
        let keys: Vec<&str> = flat.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["a.b", "a.c.d", "e"]);
    }
}
