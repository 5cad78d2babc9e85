//! A wall clock that tests set, by libfaketime. The monotonic clock stays as it is.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use crate::{Mesh, tool};

/// The wall clock of the meshes that it was given to.
pub struct FakeClock {
    directory: TempDir,
}

impl FakeClock {
    /// A clock that is right, until it is set.
    ///
    /// # Panics
    ///
    /// When there is no room for its file.
    #[must_use]
    pub fn new() -> Self {
        let clock = Self { directory: tempfile::tempdir().expect("make a folder") };
        clock.set_hours_off(0);
        clock
    }

    /// Gives the clock to a mesh, for its next start.
    pub fn give_to(&self, mesh: &mut Mesh) {
        for (name, value) in self.environment() {
            mesh.env(name, &value);
        }
    }

    /// The variables of a program that goes by this clock.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", tool("libfaketime").display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    /// Sets it to so many hours after the right time, or before it. Programs that run see it at once.
    ///
    /// # Panics
    ///
    /// When its file cannot be written.
    pub fn set_hours_off(&self, hours: i64) {
        // Replaced, since a program may read it at any moment.
        let next = self.directory.path().join("next");
        fs::write(&next, format!("{hours:+}h\n")).expect("write the time");
        fs::rename(next, self.file()).expect("set the time");
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("time")
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}
