//! What every part that stands on the Kubernetes API shares: the way to it, its failures, watches, the Lease, and the
//! review of tokens.
//!
//! What must hold:
//! - no request waits longer than `kubernetes.request_timeout`: with its etcd gone an API server lets reads hang;
//! - trouble is never taken for absence, and never for a refusal of somebody else;
//! - who holds a Lease knows by its own clock that never jumps when it has lost it, and writes nothing after that.
//!
//! Which objects there are is each service's own business.

mod access;
mod busy;
mod cache;
mod changes;
mod config;
pub mod definition;
mod error;
pub mod lease;
pub mod reach;
mod reviewer;
pub mod watch;

pub use access::{Access, AccessError, change, creation};
pub use changes::changes;
pub use config::KubernetesConfig;
pub use error::{ApiError, Kind};
pub use reach::Reach;
pub use reviewer::Reviewer;

/// API group of the project's own resources.
pub const GROUP: &str = "transponder.dev";
