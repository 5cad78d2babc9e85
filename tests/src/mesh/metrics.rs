//! What the mesh tells Prometheus.

use super::Mesh;
use crate::http;

impl Mesh {
    /// The text of `/metrics`.
    ///
    /// # Panics
    ///
    /// When the admin listener does not answer.
    pub async fn metrics(&self) -> String {
        self.metrics_of("admin").await
    }

    async fn metrics_of(&self, admin: &str) -> String {
        let answer =
            http(["-s", "--max-time", "5", &format!("http://{}/metrics", self.address(admin))]).await;
        answer.expect("metrics").body_text()
    }

    /// The value of one sample, by metric name and the labels that it must have; the sum where several match.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.metric_of("admin", name, labels).await
    }

    pub(crate) async fn metric_of(&self, admin: &str, name: &str, labels: &[&str]) -> f64 {
        sum_of(&self.metrics_of(admin).await, name, labels)
    }
}

/// The value of one sample in the text of `/metrics`, by metric name and the labels that it must have; the sum where
/// several match.
#[must_use]
pub fn sum_of(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let samples = metrics.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (metric, set) = series.split_once('{').unwrap_or((series, ""));
        let fits = metric == name && labels.iter().all(|label| set.contains(label));
        fits.then(|| value.parse::<f64>().ok())?
    });
    samples.sum()
}
