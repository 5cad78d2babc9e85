//! The product on a Kubernetes API. What measures it is a program of the tests, which know how to start all that it takes.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    keys::{KEYS, Part},
    programs::{self, MEASURER},
    results::Results,
};
use crate::{report, tools::Toolbox};

/// What it takes to measure.
pub(super) struct OnKubernetes {
    transponder: PathBuf,
    measurer: PathBuf,
    /// On the disk that the target directory is on: etcd's data lies there.
    directory: TempDir,
}

impl OnKubernetes {
    /// Builds, or finds as it was built before, and sets up the API server.
    pub(super) fn prepare(root: &Path, build: bool) -> Result<Self> {
        let tools = ["curl", "wrk", "etcd", "kubernetes"];
        let toolbox = Toolbox::prepare(&tools)?;
        let [transponder, measurer] = if build {
            programs::on_kubernetes(root)?
        } else {
            programs::found(root, ["transponder", MEASURER])
        };
        for tool in tools {
            toolbox.wait(tool).map_err(anyhow::Error::msg)?;
        }
        let target = transponder.parent().and_then(Path::parent).context("no target directory")?;
        let directory = tempfile::Builder::new().prefix("bench-").tempdir_in(target)?;
        Ok(Self { transponder, measurer, directory })
    }

    /// Measures one part, and keeps what comes out.
    pub(super) fn measure(&self, part: Part, results: &mut Results) -> Result<()> {
        let mut measurer = Command::new(&self.measurer);
        measurer.arg(part.name()).env("TRANSPONDER_BIN", &self.transponder);
        measurer.env("TMPDIR", self.directory.path());
        let mut child = measurer
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {MEASURER}"))?;
        let stdout = child.stdout.take().context("its output is a pipe")?;
        for line in BufReader::new(stdout).lines() {
            take(&line?, results);
        }
        let status = child.wait()?;
        ensure!(status.success(), "{MEASURER} ended: {status}");
        Ok(())
    }
}

/// Keeps the number that a line tells. What is none is what a part had to say when it started.
fn take(line: &str, results: &mut Results) {
    let told: Value = serde_json::from_str(line).unwrap_or_default();
    let values = told["values"].as_array().into_iter().flatten();
    let values: Vec<f64> = values.filter_map(Value::as_f64).collect();
    let key = KEYS.iter().find(|key| told["key"] == key.name);
    match (told["raw"].as_str(), key, told["value"].as_f64()) {
        (Some(name), ..) => results.raw(name, &values),
        (None, Some(key), Some(value)) => results.value(key.name, value),
        _ => report::line(&format!("      {line}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_line_by_line_is_kept() {
        let mut results = Results::default();
        take(r#"{"key":"k8s_object_bytes","value":2.25}"#, &mut results);
        take("control plane ready", &mut results);
        take(r#"{"raw":"bytes","values":[1,2]}"#, &mut results);
        assert_eq!(
            results.table().split_whitespace().collect::<Vec<_>>(),
            ["k8s_object_bytes", "2.25", "≤", "3", "reached"]
        );
    }
}
