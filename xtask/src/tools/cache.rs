//! The folder that tools live in.

use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::{Program, Tool};
use crate::workspace;

/// The cache: `TRANSPONDER_TOOLS`, else `~/.cache/transponder-tools`.
pub(super) struct Cache(PathBuf);

impl Cache {
    pub(super) fn open() -> Result<Self> {
        let dir = env::var_os("TRANSPONDER_TOOLS")
            .filter(|dir| !dir.is_empty())
            .map_or_else(|| workspace::cache_dir("transponder-tools"), PathBuf::from);
        fs::create_dir_all(dir.join("bin"))
            .with_context(|| format!("make the tools' cache {}", dir.display()))?;
        Ok(Self(dir))
    }

    /// The finished folder of a tool, if it is there with all its programs.
    pub(super) fn find(&self, tool: &Tool) -> Option<PathBuf> {
        let folder = self.folder(tool);
        tool.programs.iter().all(|program| path(&folder, program).exists()).then_some(folder)
    }

    /// Makes the folder of a tool: `fill` works in a temporary folder, which is renamed when it is complete.
    pub(super) fn make(&self, tool: &Tool, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let temporary = tempfile::Builder::new().prefix(&format!(".{}-", tool.name)).tempdir_in(&self.0)?;
        fill(temporary.path())?;
        for program in tool.programs {
            let made = path(temporary.path(), program);
            ensure!(made.exists(), "{} did not come with the tool", program.path);
        }
        fs::set_permissions(temporary.path(), Permissions::from_mode(0o755))?;
        let folder = self.folder(tool);
        if self.find(tool).is_none() {
            // What is there is incomplete, or another run has just finished the same: either way one of them wins.
            let _ = fs::remove_dir_all(&folder);
            fs::rename(temporary.keep(), &folder).with_context(|| format!("name {}", folder.display()))?;
        }
        Ok(folder)
    }

    /// Puts a link to a program into the cache's `bin`: there a test finds it that was started without xtask.
    pub(super) fn link(&self, program: &str, target: &Path) -> Result<()> {
        let link = self.0.join("bin").join(program);
        if fs::read_link(&link).is_ok_and(|there| there == target) {
            return Ok(());
        }
        let fresh = self.0.join("bin").join(format!(".{program}.{}", std::process::id()));
        symlink(target, &fresh)?;
        fs::rename(&fresh, &link).with_context(|| format!("link {}", link.display()))
    }

    fn folder(&self, tool: &Tool) -> PathBuf {
        self.0.join(format!("{}-{}", tool.name, tool.version))
    }
}

/// Where a program lies in the folder of its tool.
pub(super) fn path(folder: &Path, program: &Program) -> PathBuf {
    let arch = match env::consts::ARCH {
        "x86_64" => "x64",
        other => other,
    };
    folder.join(program.path.replace("{arch}", arch))
}
