//! How a tool of each source is made in its folder.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{GoBuild, GoFiles, Source, Tool, cache, cache::Cache};
use crate::{command, report, workspace};

/// Enough for Kubernetes from nothing on two busy cores, twice over.
const BUILD: Duration = Duration::from_secs(50 * 60);
/// A download that takes longer will not come.
const FETCH: Duration = Duration::from_secs(5 * 60);

/// A program that is ready to be used.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    /// Its name, as in `TRANSPONDER_TOOL_<NAME>`.
    pub(crate) name: &'static str,
    /// Where it is.
    pub(crate) path: PathBuf,
}

/// The programs of a tool, set up now if they are not there yet.
pub(super) fn ensure(tool: &Tool, cache: &Cache) -> Result<Vec<Installed>> {
    let programs = match &tool.source {
        Source::Given(variable) => given(tool, variable)?,
        Source::System => system(tool)?,
        Source::Go(build) => cached(tool, cache, |folder| go(tool, build, folder))?,
        Source::GoFiles(files) => cached(tool, cache, |folder| go_files(files, folder))?,
        Source::Npm => cached(tool, cache, npm)?,
        Source::Pypi => cached(tool, cache, pypi)?,
        Source::Debian(packages) => match cached(tool, cache, |folder| debian(packages, folder)) {
            Ok(programs) => programs,
            // Another release of Debian has another version; one that is installed already is as good for the tests.
            Err(error) => system_programs(tool).ok_or(error)?,
        },
    };
    for program in &programs {
        cache.link(program.name, &program.path)?;
    }
    Ok(programs)
}

fn cached(tool: &Tool, cache: &Cache, fill: impl FnOnce(&Path) -> Result<()>) -> Result<Vec<Installed>> {
    let folder = match cache.find(tool) {
        Some(folder) => folder,
        None => {
            let started = std::time::Instant::now();
            report::line(&format!("      tool {} {}: setting up", tool.name, tool.version));
            let folder = cache.make(tool, fill)?;
            let time = report::duration(started.elapsed());
            report::line(&format!("      tool {} {}: ready ({time})", tool.name, tool.version));
            folder
        }
    };
    Ok(tool
        .programs
        .iter()
        .map(|program| Installed { name: program.name, path: cache::path(&folder, program) })
        .collect())
}

fn go(tool: &Tool, build: &GoBuild, folder: &Path) -> Result<()> {
    let module = workspace::root()?.join("xtask/tools").join(build.module);
    let mut command = Command::new("go");
    // `-buildvcs=false`: the module lies in our repository, whose state is none of the tool's.
    command
        .args(["build", "-mod=readonly", "-buildvcs=false", "-ldflags", build.ldflags, "-o"])
        .arg(folder)
        .args(build.packages)
        .current_dir(module);
    command::succeed(&mut command, &format!("go build of {}", tool.name), BUILD).map(drop)
}

fn go_files(wanted: &GoFiles, folder: &Path) -> Result<()> {
    let mut download = Command::new("go");
    download.args(["mod", "download", "-json", wanted.module]).current_dir(folder);
    let answer = command::succeed(&mut download, "go mod download", FETCH)?;
    let answer: Value = serde_json::from_str(&answer).context("read the answer of go mod download")?;
    let sum = answer["Sum"].as_str().unwrap_or_default();
    ensure!(sum == wanted.sum, "{} has the sum {sum}, not {}", wanted.module, wanted.sum);
    let module = Path::new(answer["Dir"].as_str().context("go mod download names no folder")?);
    for file in wanted.files {
        let from = module.join(file);
        let name = from.file_name().context("a file has a name")?;
        // Its own bytes: a copy would keep that nobody may write it.
        fs::write(folder.join(name), fs::read(&from).with_context(|| format!("read {}", from.display()))?)?;
    }
    Ok(())
}

fn npm(folder: &Path) -> Result<()> {
    let source = workspace::root()?.join("xtask/tools/npm");
    for file in ["package.json", "package-lock.json"] {
        fs::copy(source.join(file), folder.join(file))?;
    }
    let mut install = Command::new("npm");
    // No install scripts: the binary is in the package for this machine, checked against the lock file.
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder);
    command::succeed(&mut install, "npm ci", FETCH).map(drop)
}

fn pypi(folder: &Path) -> Result<()> {
    let requirements = workspace::root()?.join("xtask/tools/pypi/requirements.txt");
    let mut download = Command::new("python3");
    download.args([
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-binary",
        ":all:",
    ]);
    download.args(["--require-hashes", "-d", "."]).arg("-r").arg(requirements).current_dir(folder);
    command::succeed(&mut download, "pip download", FETCH)?;
    let archive = fs::read_dir(folder)?.next().context("pip downloaded nothing")??.path();
    let mut unpack = Command::new("tar");
    unpack
        .args(["--strip-components=3", "--wildcards", "-xzf"])
        .arg(archive)
        .arg("*/lib/grpcurl")
        .current_dir(folder);
    command::succeed(&mut unpack, "tar", FETCH)?;
    fs::set_permissions(folder.join("grpcurl"), fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn debian(packages: &[&str], folder: &Path) -> Result<()> {
    let mut download = Command::new("apt-get");
    download.arg("download").args(packages).current_dir(folder);
    if command::succeed(&mut download, "apt-get download", FETCH).is_err() {
        apt_update()?;
        command::succeed(&mut download, "apt-get download", FETCH)?;
    }
    let archives = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    for archive in archives {
        command::succeed(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(folder), "dpkg-deb", FETCH)?;
        fs::remove_file(archive)?;
    }
    shared_libraries(folder)
}

/// Makes unpacked programs find the libraries that were unpacked beside them, which no loader knows of.
fn shared_libraries(folder: &Path) -> Result<()> {
    let triple = folder.join(format!("usr/lib/{}-linux-gnu", env::consts::ARCH));
    // The variant for programs with threads.
    let faketime = triple.join("faketime/libfaketimeMT.so.1");
    if faketime.exists() {
        symlink(faketime.strip_prefix(folder.join("usr/lib"))?, folder.join("usr/lib/libfaketime.so.1"))?;
    }
    let wrk = folder.join("usr/bin/wrk");
    if wrk.exists() {
        fs::rename(&wrk, folder.join("usr/bin/wrk.bin"))?;
        let launcher = format!(
            "#!/bin/sh\nhere=$(dirname \"$(readlink -f \"$0\")\")\n\
             LD_LIBRARY_PATH=\"$here/../lib/{}-linux-gnu\" exec \"$here/wrk.bin\" \"$@\"\n",
            env::consts::ARCH
        );
        fs::write(&wrk, launcher)?;
        fs::set_permissions(&wrk, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn system(tool: &Tool) -> Result<Vec<Installed>> {
    if let Some(programs) = system_programs(tool) {
        return Ok(programs);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("{} is not installed, and only root can install it", tool.name);
    }
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "--no-install-recommends", tool.name])
        .env("DEBIAN_FRONTEND", "noninteractive");
    if command::succeed(&mut install, "apt-get install", FETCH).is_err() {
        apt_update()?;
        command::succeed(&mut install, "apt-get install", FETCH)?;
    }
    system_programs(tool).with_context(|| format!("{} is installed and still not found", tool.name))
}

fn apt_update() -> Result<()> {
    command::succeed(Command::new("apt-get").arg("update"), "apt-get update", FETCH).map(drop)
}

fn given(tool: &Tool, variable: &str) -> Result<Vec<Installed>> {
    let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from) else {
        bail!("{variable} names no binary, and {} is in no registry", tool.name);
    };
    if !path.is_file() {
        bail!("{variable} is {}, which is no file", path.display());
    }
    Ok(tool.programs.iter().map(|program| Installed { name: program.name, path: path.clone() }).collect())
}

/// The programs of a tool on the path, if all are there.
fn system_programs(tool: &Tool) -> Option<Vec<Installed>> {
    let dirs: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
    let find = |name: &str| dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
    tool.programs
        .iter()
        .map(|program| Some(Installed { name: program.name, path: find(program.name)? }))
        .collect()
}
