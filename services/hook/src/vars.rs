//! The environment of the process, with the one rule that an empty value counts as unset.

use std::{collections::BTreeMap, ffi::OsString};

use crate::error::Problem;

/// Environment variables.
#[derive(Debug, Clone, Default)]
pub struct Vars(BTreeMap<String, OsString>);

impl Vars {
    /// Those of this process. Names that are not UTF-8 are none of ours.
    #[must_use]
    pub fn of_process() -> Self {
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect()
    }

    /// The value as it is; `None` when it is unset or empty.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<OsString> {
        self.0.get(name).filter(|value| !value.is_empty()).cloned()
    }

    /// The value as text; `None` when it is unset or empty.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn text(&self, name: &'static str) -> Result<Option<String>, Problem> {
        self.raw(name)
            .map(|value| value.into_string().map_err(|_| Problem::new(name, "is not UTF-8")))
            .transpose()
    }
}

impl<K: Into<String>, V: Into<OsString>> FromIterator<(K, V)> for Vars {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
