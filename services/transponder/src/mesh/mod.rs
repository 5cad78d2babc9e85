//! The services in one process: built before anything runs, run under their names, stopped together.
//!
//! What must hold:
//! - what cannot be built ends the process before anything is served, naming the part and the reason;
//! - a part that ends, fails or panics while nobody asked for it ends the process with that error: nothing limps on;
//! - after the signal to stop every part has [`DRAIN`](transponder_runtime::shutdown::DRAIN) to finish, and no longer.

mod addresses;
mod build;
mod run;

pub use addresses::{Addresses, reachable};
pub use run::wait_until_ready;

use std::{pin::Pin, sync::Arc};

use transponder_core::ServiceName;
use transponder_runtime::{Context, admin::Admin};

/// Which services run in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// All of them, each talking to the others over real gRPC on loopback.
    All,
    /// One.
    One(ServiceName),
}

impl Selection {
    fn includes(self, service: ServiceName) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == service,
        }
    }
}

/// What is bound and not yet running.
pub struct Mesh {
    context: Context,
    admin: Admin,
    addresses: Arc<Addresses>,
    parts: Vec<Part>,
}

impl Mesh {
    /// Where everything listens.
    #[must_use]
    pub fn addresses(&self) -> Arc<Addresses> {
        self.addresses.clone()
    }
}

/// A service that is built.
struct Part {
    service: ServiceName,
    run: Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>,
}
