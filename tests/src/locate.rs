//! Where the programs are that tests run.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;

/// The path of a tool's program, such as `grpcurl` or `promtool`.
///
/// It is the one that `cargo xtask test` names in `TRANSPONDER_TOOL_<NAME>`; when a test is run without xtask, the one
/// in the tools' cache, or on the path.
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn tool(name: &str) -> PathBuf {
    let variable = format!("TRANSPONDER_TOOL_{}", name.to_uppercase().replace('-', "_"));
    if let Some(path) = env::var_os(&variable) {
        return path.into();
    }
    let on_path = env::var_os("PATH").unwrap_or_default();
    std::iter::once(cache().join("bin"))
        .chain(env::split_paths(&on_path))
        .map(|dir| dir.join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| {
            panic!("there is no {name}: run `cargo xtask tools` first, or the suite by `cargo xtask test`")
        })
}

/// The path of one of our own programs, `transponder` or `transponder-hook`.
///
/// It is the one that `cargo xtask test` names in `TRANSPONDER_BIN` or `TRANSPONDER_HOOK_BIN`; when a test is run
/// without xtask, it is built first, in the target directory and profile of the test.
///
/// # Panics
///
/// When it cannot be built.
#[must_use]
pub fn product(name: &str) -> PathBuf {
    static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    let variable = format!("{}_BIN", name.to_uppercase().replace('-', "_"));
    if let Some(path) = env::var_os(&variable) {
        return path.into();
    }
    BUILT
        .get_or_init(build)
        .get(name)
        .unwrap_or_else(|| panic!("the workspace has no program {name}"))
        .clone()
}

fn build() -> BTreeMap<String, PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in a workspace");
    let test = env::current_exe().expect("a test knows its own path");
    // <target>/<profile>/deps/<test>
    let target = test.ancestors().nth(3).expect("a test lies in a target directory");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).env("CARGO_TARGET_DIR", target);
    cargo.args(["build", "-p", "transponder", "-p", "transponder-hook", "--bins", "--message-format=json"]);
    if test.ancestors().nth(2).is_some_and(|profile| profile.ends_with("release")) {
        cargo.arg("--release");
    }
    let output = cargo.output().expect("cargo starts");
    assert!(output.status.success(), "cargo build failed:\n{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout);
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    artifacts
        .filter_map(|message| {
            let name = message.get("target")?.get("name")?.as_str()?.to_owned();
            Some((name, PathBuf::from(message.get("executable")?.as_str()?)))
        })
        .collect()
}

/// The same folder as xtask's.
fn cache() -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("TRANSPONDER_TOOLS").unwrap_or_else(|| {
        let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        caches.unwrap_or_else(env::temp_dir).join("transponder-tools")
    })
}
