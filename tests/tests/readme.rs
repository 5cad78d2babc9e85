//! Every command of the README runs, and the generated document is the generated one.

use std::{fs, path::Path, process::Command, time::Duration};

use rustix::process::Signal;
use transponder_tests::{LONG, Process, Run, eventually, product, tool};

/// How the README calls the program.
const CARGO: &str = "cargo run --release -- ";

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_readme_runs() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = blocks(&readme);
    assert!(blocks.len() >= 3, "{blocks:?}");
    for block in blocks {
        match block.trim() {
            "cargo run --release -- demo" => the_demo().await,
            // The suites are what runs right now; here it must know them.
            "cargo xtask test" => the_suites().await,
            block if block.lines().any(|line| line.contains(CARGO)) => the_script(block).await,
            block => panic!("the README has a block that no test knows how to run:\n{block}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_reference_is_what_the_program_prints() {
    let printed =
        Run::program(product("transponder")).args(["config", "--reference"]).run().await.success().text();
    let document = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    assert_eq!(document, printed, "run: transponder config --reference > docs/configuration.md");
}

/// The demo tells its story, keeps running, and the lines that it leaves work as they are pasted.
async fn the_demo() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(product("transponder"));
    command.arg("demo").env("TMPDIR", folder.path());
    let mut demo = Process::start("transponder demo", command);
    let told = eventually("the demo has told its story", LONG, || {
        let (told, ended) = (demo.stdout(), demo.ended());
        async move {
            assert_eq!(ended, None, "the demo ended: {told}");
            if told.contains("outcomes list\n") { Ok(told) } else { Err(told) }
        }
    })
    .await;
    let pasted = &told[told.find("\nD=").expect("lines to paste") + 1..];
    let pasted =
        &pasted[..pasted.find("outcomes list\n").expect("the last of them") + "outcomes list\n".len()];
    let path = [&tool("grpcurl"), &tool("curl"), &product("transponder")]
        .map(|program| program.parent().expect("a program lies in a folder").display().to_string());
    let path = format!("{}:{}", path.join(":"), std::env::var("PATH").unwrap_or_default());
    let ran = bash(pasted).env("PATH", path).run().await.success();
    for part in
        ["\"identical\":true", "\"targets\"", "rpc Emit", "dora_deployments_total", "resourceSpans", "shop"]
    {
        assert!(ran.text().replace(": ", ":").contains(part), "{part}: {}{}", ran.text(), ran.stderr);
    }
    demo.signal(Signal::INT);
    let ended = eventually("the demo ends after Ctrl-C", Duration::from_secs(30), || {
        let ended = demo.ended();
        async move { ended.ok_or_else(|| "it still runs".to_owned()) }
    });
    assert_eq!(ended.await.code(), Some(0), "{}", demo.stdout());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
}

async fn the_suites() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = std::env::current_exe().unwrap();
    let target = target.ancestors().nth(3).expect("a test lies in a target directory");
    let manifest = root().join("Cargo.toml");
    // What `cargo xtask` stands for; see .cargo/config.toml.
    let ran = Run::program(cargo)
        .args([Path::new("run"), Path::new("--quiet"), Path::new("--manifest-path"), &manifest])
        .args(["--package", "xtask", "--", "test", "--list"])
        .env("CARGO_TARGET_DIR", target)
        .run()
        .await
        .success();
    for suite in ["unit", "readme", "delivery"] {
        assert!(
            ran.text().lines().any(|line| line.split(' ').next() == Some(suite)),
            "{suite}: {}",
            ran.text()
        );
    }
}

/// The block as one script, as it is pasted, but for the build.
async fn the_script(block: &str) {
    let folder = tempfile::tempdir().unwrap();
    let script = block.replace(CARGO, &format!("'{}' ", product("transponder").display()));
    let ran = bash(&script).env("TMPDIR", folder.path().display().to_string()).run().await;
    assert_eq!(ran.code, Some(0), "{script}\n{}{}", ran.text(), ran.stderr);
}

fn bash(script: &str) -> Run {
    Run::program("/bin/bash").args(["-euo", "pipefail", "-c", script])
}

/// The contents of all blocks of shell commands.
fn blocks(markdown: &str) -> Vec<String> {
    let (mut blocks, mut open) = (Vec::new(), None::<String>);
    for line in markdown.lines() {
        match (&mut open, line) {
            (None, "```sh") => open = Some(String::new()),
            (None, _) => {}
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), line) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    blocks
}

#[test]
fn no_block_of_commands_escapes_by_another_name() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for line in readme.lines().map(str::trim_start) {
        for name in ["```bash", "```shell", "```console", "```zsh"] {
            assert!(!line.starts_with(name), "write ```sh, so that it is run: {line}");
        }
        assert!(!line.starts_with("```sh ") && !line.starts_with("~~~"), "write ```sh: {line}");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in a workspace")
}
