//! The test suites: which there are, and what each needs.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::libtest;
use crate::{command, report::Outcome, tools::Toolbox, workspace};

/// A suite that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(25 * 60);

/// The tools that a suite needs. One that is not listed is given [`BASE`].
const NEEDS: &[(&str, &[&str])] = &[
    ("unit", &[]),
    ("doc", &[]),
    ("fuzz", &[]),
    ("apart", &["curl"]),
    ("apiserver", &["curl", "etcd", "kubernetes"]),
    ("kubernetes_access", &["curl", "grpcurl", "etcd", "kubernetes"]),
    ("kubernetes_costs", &["curl", "etcd", "kubernetes"]),
    ("kubernetes_applications", &["curl", "argocd-crds", "etcd", "kubernetes"]),
    ("kubernetes_failures", &["curl", "etcd", "kubernetes"]),
    ("kubernetes_dora", &["curl", "etcd", "faketime", "kubernetes"]),
    ("kubernetes_hostile", &["curl", "etcd", "kubernetes"]),
    ("kubernetes_outbox", &["curl", "etcd", "kubernetes"]),
    ("kubernetes_replicas", &["curl", "etcd", "kubernetes", "prometheus"]),
    ("kubernetes_rights", &["curl", "grpcurl", "etcd", "kubernetes"]),
    ("kubernetes_start", &["curl", "etcd", "kubernetes"]),
    ("kubernetes_tracking", &["curl", "etcd", "kubernetes"]),
    ("crash", &["curl"]),
    ("delivery", &["curl"]),
    ("door", &["curl"]),
    ("harness", &["curl", "grpcurl", "grpcurl-v1alpha", "jaeger", "prometheus"]),
    ("tempo", &["curl", "tempo"]),
    ("rotation", &["curl", "grpcurl"]),
    ("traces", &["curl", "jaeger"]),
    ("hostile", &["curl"]),
    ("clock", &["curl", "faketime"]),
    ("outage", &["curl"]),
    ("secrets", &["curl", "grpcurl"]),
];

/// The suites that are run a second time with everything in an API server instead of files. What they are called then ends
/// in [`SECOND`].
const ON_KUBERNETES: &[&str] = &["backends", "delivery", "door", "grpc", "traces"];

/// How the second run of a suite is called: `delivery@kubernetes`.
const SECOND: &str = "@kubernetes";

/// What can be had everywhere.
const BASE: &[&str] = &["curl", "jq", "grpcurl", "grpcurl-v1alpha", "jaeger", "prometheus"];

/// One suite.
pub(super) struct Suite {
    /// Its name: that of its file in `tests/tests`, also with [`SECOND`], or `unit` or `doc`.
    pub(super) name: String,
    /// The tools without which it is skipped.
    pub(super) tools: Vec<&'static str>,
    /// What `cargo test --workspace` is told, so that it runs this suite and nothing else.
    selection: Vec<String>,
}

/// All suites of this tree.
pub(super) fn discover(root: &Path) -> Result<Vec<Suite>> {
    let mut unit = vec!["--lib".to_owned(), "--bins".to_owned()];
    // Packages other than `tests` may have test files too; they belong to the package and run with its own tests.
    for group in ["crates", "services"] {
        for package in entries(&root.join(group))? {
            unit.extend(
                test_files(&package.join("tests"))?.into_iter().flat_map(|file| ["--test".to_owned(), file]),
            );
        }
    }
    let mut suites = vec![suite("unit", unit), suite("doc", vec!["--doc".to_owned()])];
    for file in test_files(&root.join("tests/tests"))? {
        let selection = vec!["--test".to_owned(), file.clone()];
        suites.push(suite(&file, selection.clone()));
        if ON_KUBERNETES.contains(&&*file) {
            let mut second = suite(&file, selection);
            second.name.push_str(SECOND);
            second.tools.extend(["etcd", "kubernetes"]);
            suites.push(second);
        }
    }
    Ok(suites)
}

impl Suite {
    /// Runs the suite, unless a tool that it needs cannot be had.
    pub(super) fn run(
        &self,
        root: &Path,
        toolbox: &Toolbox,
        products: &[(&'static str, PathBuf)],
        filter: &[String],
    ) -> Result<Outcome> {
        let mut test = workspace::cargo(root);
        test.args(["test", "--workspace", "--no-fail-fast"]).args(&self.selection).arg("--").args(filter);
        test.envs(products.iter().map(|(variable, path)| (*variable, path)));
        if self.name.ends_with(SECOND) {
            // Each test has a control plane of its own: one at a time.
            test.env("TRANSPONDER_TEST_STORE", "kubernetes").arg("--test-threads=1");
        }
        for tool in &self.tools {
            match toolbox.wait(tool) {
                Ok(programs) => {
                    test.envs(programs.into_iter().map(|program| (variable(program.name), program.path)));
                }
                Err(reason) => return Ok(Outcome::Skipped(format!("needs {tool}: {reason}"))),
            }
        }
        let mut tests = libtest::read(&command::merged(&mut test, &self.name, LIMIT)?);
        let none = tests.passed + tests.failed + tests.ignored == 0;
        if none && filter.is_empty() && self.name != "doc" {
            tests.failed = 1;
            tests.output.push_str("\nthis suite has no tests");
        }
        Ok(Outcome::Tests(tests))
    }
}

/// The variable by which tests find a program: `TRANSPONDER_TOOL_GRPCURL_V1ALPHA`.
fn variable(program: &str) -> String {
    format!("TRANSPONDER_TOOL_{}", program.to_uppercase().replace('-', "_"))
}

fn suite(name: &str, selection: Vec<String>) -> Suite {
    let tools = NEEDS.iter().find(|(listed, _)| *listed == name).map_or(BASE, |(_, tools)| *tools);
    Suite { name: name.to_owned(), tools: tools.to_vec(), selection }
}

/// Names of the test programs in a `tests` folder, in order; none if there is no such folder.
fn test_files(folder: &Path) -> Result<Vec<String>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let rust = entries(folder)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    Ok(rust.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut paths = list.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_the_files_of_the_tests_package_and_the_packages_own_tests() {
        let root = tempfile::tempdir().unwrap();
        for file in [
            "tests/tests/crash.rs",
            "tests/tests/delivery.rs",
            "tests/tests/unlisted.rs",
            "tests/tests/helper/mod.rs",
            "services/edge/tests/wire.rs",
            "crates/core/lib.rs",
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let suites = discover(root.path()).unwrap();
        let names: Vec<_> = suites.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(names, ["unit", "doc", "crash", "delivery", "delivery@kubernetes", "unlisted"]);
        assert_eq!(suites[0].selection, ["--lib", "--bins", "--test", "wire"]);
        assert_eq!(suites[2].tools, ["curl"]);
        assert_eq!(suites[4].tools, ["curl", "etcd", "kubernetes"]);
        assert_eq!(suites[4].selection, suites[3].selection);
        assert_eq!(suites[5].tools, BASE);
    }

    #[test]
    fn a_program_has_a_variable_of_its_own() {
        assert_eq!(variable("grpcurl-v1alpha"), "TRANSPONDER_TOOL_GRPCURL_V1ALPHA");
    }
}
