//! `cargo xtask rbac`: who may do what on a Kubernetes API, as a table of what `deploy/kubernetes/rbac` grants.
//!
//! The same table stands in the document on security, where a check compares it.

mod grants;

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::{report, workspace};

/// The document in which the table stands.
pub(crate) const DOCUMENT: &str = "docs/security-on-kubernetes.md";
/// The manifests that grant.
const FOLDER: &str = "deploy/kubernetes/rbac";
/// What is around the table there.
const MARKERS: (&str, &str) = ("<!-- cargo xtask rbac -->\n", "<!-- end of cargo xtask rbac -->");

/// What `cargo xtask rbac` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write the table into the document as well
    #[arg(long)]
    write: bool,
}

/// Prints the table.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = workspace::root()?;
    let table = table(&root)?;
    report::line(table.trim_end());
    if arguments.write {
        let text = document(&root)?;
        let (before, _, after) = parts(&text)?;
        fs::write(root.join(DOCUMENT), [before, &table, after].concat())
            .with_context(|| format!("write {DOCUMENT}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is wrong with the table in the document, if anything is.
pub(crate) fn drift(root: &Path) -> Result<Vec<String>> {
    let text = document(root)?;
    let (_, written, _) = parts(&text)?;
    let same = written == table(root)?;
    let complaint =
        || format!("{DOCUMENT}: the table is not what {FOLDER} grants: run `cargo xtask rbac --write`");
    Ok(if same { Vec::new() } else { vec![complaint()] })
}

fn document(root: &Path) -> Result<String> {
    fs::read_to_string(root.join(DOCUMENT)).with_context(|| format!("read {DOCUMENT}"))
}

/// What is before the table, the table, and what is after it; the markers belong to what is around it.
fn parts(text: &str) -> Result<(&str, &str, &str)> {
    let (begin, end) = MARKERS;
    let found = text.find(begin).map(|at| at + begin.len());
    let found = found.and_then(|from| Some((from, from + text[from..].find(end)?)));
    let Some((from, to)) = found else {
        bail!("{DOCUMENT} has no table between '{}' and '{end}'", begin.trim_end());
    };
    Ok((&text[..from], &text[from..to], &text[to..]))
}

fn table(root: &Path) -> Result<String> {
    let folder = root.join(FOLDER);
    let list = fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
    let mut files = list.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    let mut manifests = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        manifests.extend(grants::read(&text).with_context(|| format!("in {}", file.display()))?);
    }
    grants::table(&manifests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_stands_between_the_markers() {
        let text = format!("a\n{}| x |\n{}\nb\n", MARKERS.0, MARKERS.1);
        let (before, table, after) = parts(&text).unwrap();
        assert!(before.ends_with("-->\n") && after.starts_with("<!--"));
        assert_eq!(table, "| x |\n");
        assert!(parts("nothing").is_err());
    }
}
