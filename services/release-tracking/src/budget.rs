//! How many records there may be, so that nobody fills the others' room.

use std::fmt;

/// Most records per owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Of one app namespace.
    pub app_namespace: u64,
    /// Of one cluster.
    pub cluster: u64,
    /// Of the store.
    pub store: u64,
}

/// Whose budget it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// One app namespace.
    AppNamespace,
    /// One cluster.
    Cluster,
    /// The store as a whole.
    Store,
}

impl Owner {
    /// The word for it, in the store and in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AppNamespace => "app namespace",
            Self::Cluster => "cluster",
            Self::Store => "store",
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A budget that has no room for another record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {owner} {name} holds its {limit} records")]
pub struct Spent {
    /// Whose budget it is.
    pub owner: Owner,
    /// Which of them; empty for the store.
    pub name: String,
    /// The limit.
    pub limit: u64,
}
