//! Free ports, for programs that cannot bind port 0 and say which they got.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    sync::{Mutex, PoisonError},
};

/// Below those that the system gives to connections: none of them takes the port before the program listens on it.
const RANGE: Range<u16> = 10_240..32_768;

/// Ports handed out by this process.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of 127.0.0.1 on which nobody listens, and which this process has not been given before.
#[must_use]
pub fn free() -> u16 {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let port = fastrand::u16(RANGE);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() && taken.insert(port) {
            return port;
        }
    }
}
