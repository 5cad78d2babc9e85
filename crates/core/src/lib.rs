//! The domain of Transponder: events, releases, verdicts and who may speak for whom.
//!
//! Pure: no I/O, no clock, no proto types, no Kubernetes types. What must hold:
//! - an identity ([`ClusterName`], [`EventKey`], [`Release`], …) cannot be built wrong;
//! - keys are pinned by test vectors, because they outlive versions;
//! - an event is read, never rewritten.

pub mod caller;
pub mod event;
pub mod json;
pub mod key;
pub mod name;
pub mod phase;
pub mod release;
pub mod retry;
pub mod settle;
pub mod target;
pub mod time;

pub use caller::{Caller, Maker, ServiceName};
pub use event::{Event, EventError, Report};
pub use key::{EventKey, ReleaseKey, StreamKey};
pub use name::{AppName, AppNamespace, ClusterName, EnvName, NameError};
pub use phase::Phase;
pub use release::{Release, ReleaseId, Stream};
pub use target::{Target, TargetState};
pub use time::{Timestamp, parse_rfc3339};
