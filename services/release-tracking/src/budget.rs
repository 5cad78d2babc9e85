//! How many records there may be, so that nobody fills the others' room.

use std::fmt;

use transponder_core::{AppNamespace, ClusterName};

/// Most records per owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Of one app namespace on one cluster, and of what Tasks of one app made.
    pub app_namespace: u64,
    /// Of one cluster, without what Tasks of apps made.
    pub cluster: u64,
    /// Of the store.
    pub store: u64,
}

/// Whose budget it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// One app namespace on one cluster.
    AppNamespace(AppNamespace, ClusterName),
    /// The Tasks of one app, whatever clusters they named.
    AppTasks(AppNamespace),
    /// One cluster.
    Cluster(ClusterName),
    /// The store as a whole.
    Store,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AppNamespace(namespace, cluster) => {
                write!(f, "the app namespace {namespace} on the cluster {cluster}")
            }
            Self::AppTasks(namespace) => write!(f, "the Tasks' share of the app namespace {namespace}"),
            Self::Cluster(cluster) => write!(f, "the cluster {cluster}"),
            Self::Store => f.write_str("the store"),
        }
    }
}

/// A budget that has no room for another record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{owner} holds its {limit} records")]
pub struct Spent {
    /// Whose budget it is.
    pub owner: Owner,
    /// The limit.
    pub limit: u64,
}
