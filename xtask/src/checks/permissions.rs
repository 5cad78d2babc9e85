//! The document on security shows who may do what on a Kubernetes API, as the manifests grant it.

use anyhow::Result;

use super::{Context, nothing};
use crate::{rbac, report::Outcome};

/// The table in the document is that of the manifests.
pub(super) fn table_is_true(context: &Context<'_>) -> Result<Outcome> {
    nothing(rbac::drift(context.root)?)
}
