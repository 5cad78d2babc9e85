//! Looking at what came out: the metrics as Prometheus scrapes them, the spans as they were sent.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::installation::TASK_NAMESPACE;

/// Longest wait for what is expected, windows included.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Looks again and again until what is seen is what is expected, and says what was seen last when it never is.
pub(super) async fn eventually<T, F: Future<Output = anyhow::Result<T>>>(
    patience: Duration,
    mut look: impl FnMut() -> F,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        match look().await {
            Err(_) if started.elapsed() < patience => tokio::time::sleep(Duration::from_millis(10)).await,
            other => return other,
        }
    }
}

/// A scrape of `/metrics`.
pub(super) struct Scrape(String);

impl Scrape {
    pub(super) async fn of(client: &reqwest::Client, url: &str) -> anyhow::Result<Self> {
        let text = client.get(url).send().await?.error_for_status()?.text().await?;
        Ok(Self(text))
    }

    /// The sum of all series of a name that carry these labels.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.0
            .lines()
            .filter_map(|line| {
                let (series, value) = line.rsplit_once(' ')?;
                let (found, have) = series.split_once('{').unwrap_or((series, ""));
                let carries = |(label, value): &(&str, &str)| have.contains(&format!("{label}=\"{value}\""));
                (found == name && labels.iter().all(carries)).then(|| value.parse::<f64>().ok())?
            })
            .fold(0.0, |sum, value| sum + value)
    }

    /// The labels that the series of the story have in common.
    pub(super) fn labels(cluster: &str) -> String {
        format!(r#"app_namespace="{TASK_NAMESPACE}",app="shop",env="prod",cluster="{cluster}""#)
    }

    /// The DORA series of the story, without the buckets, their common labels abridged.
    pub(super) fn dora(&self, cluster: &str) -> impl Iterator<Item = String> {
        let labels = Self::labels(cluster);
        let lines = self.0.lines().filter(|line| line.starts_with("dora_") && !line.contains("_bucket{"));
        lines
            .filter(move |line| line.contains(&labels))
            .map(move |line| line.replace(&Self::labels(cluster), "…"))
    }
}

/// One span of the file of OTLP/JSON lines.
#[derive(Debug, Clone)]
pub(super) struct Span(Value);

impl Span {
    /// All spans of the file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Self>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.with_context(|| format!("reading {}", path.display()))?,
        };
        let mut spans = Vec::new();
        for line in text.lines() {
            let request: Value = serde_json::from_str(line).context("a line of spans is no JSON")?;
            let each = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
            for resource in each(&request, "resourceSpans") {
                for scope in each(&resource, "scopeSpans") {
                    spans.extend(each(&scope, "spans").into_iter().map(Self));
                }
            }
        }
        Ok(spans)
    }

    pub(super) fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }

    /// `startTimeUnixNano` or `endTimeUnixNano`.
    pub(super) fn time(&self, field: &str) -> anyhow::Result<jiff::Timestamp> {
        let nanos = match &self.0[field] {
            Value::String(text) => text.parse().with_context(|| format!("{field} of the span"))?,
            Value::Number(number) => number.as_i64().unwrap_or_default().into(),
            _ => bail!("the span has no {field}"),
        };
        Ok(jiff::Timestamp::from_nanosecond(nanos)?)
    }

    pub(super) fn attribute(&self, name: &str) -> &str {
        let attributes = self.0["attributes"].as_array().into_iter().flatten();
        let value = attributes.into_iter().find(|attribute| attribute["key"] == name);
        value.and_then(|attribute| attribute["value"]["stringValue"].as_str()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_found_by_name_and_labels_in_any_order() {
        let scrape = Scrape(
            "# TYPE x counter\nx_total{b=\"2\",a=\"1\"} 3\nx_total{a=\"1\"} 4\nx_total{a=\"2\"} 5\nup 1\n"
                .into(),
        );
        assert_eq!(scrape.sum("x_total", &[("a", "1")]), 7.0);
        assert_eq!(scrape.sum("x_total", &[("a", "1"), ("b", "2")]), 3.0);
        assert_eq!(scrape.sum("up", &[]), 1.0);
        assert_eq!(scrape.sum("x", &[]), 0.0);
    }
}
