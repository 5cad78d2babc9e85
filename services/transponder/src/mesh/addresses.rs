//! Where the listeners of a process are, once they are bound.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use serde_json::{Value, json};
use transponder_core::ServiceName;

use crate::files::write_private;

/// The addresses that were bound: other than the configured ones where those have port 0.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The admin listener.
    pub admin: SocketAddr,
    /// The services of this process.
    pub services: BTreeMap<ServiceName, SocketAddr>,
}

impl Addresses {
    /// The address of a service, if it runs in this process.
    #[must_use]
    pub fn of(&self, service: ServiceName) -> Option<SocketAddr> {
        self.services.get(&service).copied()
    }

    /// As a JSON object: `admin`, one key per service, `pid`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut document = json!({ "pid": std::process::id(), "admin": self.admin });
        for (service, address) in &self.services {
            document[service.as_str()] = json!(address);
        }
        document
    }

    /// Writes them as JSON, the whole file at once.
    ///
    /// # Errors
    /// Names the file.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        write_private(path, self.to_json().to_string().as_bytes())
    }
}

/// An address that can be connected to, for one that is bound: a wildcard is reached by loopback.
#[must_use]
pub fn reachable(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_reached_by_loopback() {
        for (bound, expected) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("10.0.0.1:3", "10.0.0.1:3")]
        {
            assert_eq!(reachable(bound.parse().unwrap()).to_string(), expected);
        }
    }
}
