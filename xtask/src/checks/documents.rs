//! Links between the documents.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{Context, nothing, tree};
use crate::report::Outcome;

/// Every relative link in a Markdown file leads to a file, and its fragment to a heading there.
pub(super) fn links(context: &Context<'_>) -> Result<Outcome> {
    let mut complaints = Vec::new();
    for file in tree::files(context.root, "md")? {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        for link in relative_links(&text) {
            if let Err(reason) = resolve(context.root, &file, &text, link) {
                complaints.push(format!("{}: {link}: {reason}", shown(context.root, &file)));
            }
        }
    }
    nothing(complaints)
}

fn resolve(root: &Path, file: &Path, text: &str, link: &str) -> Result<(), String> {
    let (path, fragment) =
        link.split_once('#').map_or((link, None), |(path, fragment)| (path, Some(fragment)));
    let target: PathBuf = match path.strip_prefix('/') {
        _ if path.is_empty() => file.to_path_buf(),
        Some(absolute) => root.join(absolute),
        None => file.parent().unwrap_or(root).join(path),
    };
    if !target.exists() {
        return Err("no such file".to_owned());
    }
    let Some(fragment) = fragment else { return Ok(()) };
    if target.extension().is_none_or(|extension| extension != "md") {
        return Ok(());
    }
    let there = if target == file {
        text.to_owned()
    } else {
        fs::read_to_string(&target).map_err(|e| e.to_string())?
    };
    if anchors(&there).iter().any(|anchor| anchor == fragment) {
        Ok(())
    } else {
        Err("no such heading".to_owned())
    }
}

/// Targets of inline links and of link definitions, less those that leave the repository.
fn relative_links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    for line in prose(text) {
        for (at, _) in line.match_indices("](") {
            let inside_code = line[..at].matches('`').count() % 2 == 1;
            if let (false, Some(end)) = (inside_code, line[at + 2..].find(')')) {
                links.push(&line[at + 2..at + 2 + end]);
            }
        }
        if let Some((label, target)) = line.split_once("]: ")
            && label.starts_with('[')
        {
            links.push(target);
        }
    }
    let bare = |link: &'_ str| !link.is_empty() && !link.contains("://") && !link.starts_with("mailto:");
    links.iter().filter_map(|link| link.split_whitespace().next()).filter(|link| bare(link)).collect()
}

/// The fragments that GitHub gives to the headings of a document.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors = Vec::<String>::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept: String =
            kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ')).collect();
        let base = kept.replace(' ', "-");
        let numbered = |number: usize| format!("{base}-{number}");
        let taken = |anchor: &String| anchors.contains(anchor);
        let free = if taken(&base) { (1..).map(numbered).find(|anchor| !taken(anchor)) } else { None };
        anchors.push(free.unwrap_or(base));
    }
    anchors
}

/// The lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn shown(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_of_the_repository_are_looked_at() {
        let text = "[a](docs/a.md \"title\") [b](https://b.example) `[no](no.md)`\n[c]: c.md#d\n```\n[no](no.md)\n```\n[e](#f)";
        assert_eq!(relative_links(text), ["docs/a.md", "c.md#d", "#f"]);
    }

    #[test]
    fn headings_have_the_fragments_that_github_gives_them() {
        assert_eq!(
            anchors("# The edge: `POST /outcome`\n## Same\n## Same\n"),
            ["the-edge-post-outcome", "same", "same-1"]
        );
    }

    #[test]
    fn a_link_to_nothing_is_refused_and_a_good_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b.md"), "# Here\n").unwrap();
        let (file, text) = (dir.path().join("a.md"), "# Top\n");
        assert_eq!(resolve(dir.path(), &file, text, "b.md#here"), Ok(()));
        assert!(resolve(dir.path(), &file, text, "b.md#there").is_err());
        assert!(resolve(dir.path(), &file, text, "c.md").is_err());
    }
}
