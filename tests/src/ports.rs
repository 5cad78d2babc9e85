//! Free ports, for programs that cannot bind port 0 and say which they got.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    sync::{Mutex, PoisonError},
};

/// Ports handed out by this process: the system may offer one again as long as nobody listens on it.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of 127.0.0.1 on which nobody listens, and which this process has not been given before.
#[must_use]
pub fn free() -> u16 {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        if taken.insert(port) {
            return port;
        }
    }
}
