//! Measures the product on a real API server, beside a bare client of it. `cargo xtask bench --store kubernetes` builds and
//! runs this, and reads what it prints: one JSON object per line for each number.
//!
//! The product is `TRANSPONDER_BIN`; without it, it is built first, as for a test. What is measured how is told in
//! `docs/benchmarks.md`.

mod accept;
mod counts;
mod event;
mod fleet;
mod memory;
mod wrk;

use serde_json::json;

/// Rounds of every comparison.
const ROUNDS: usize = 5;

#[tokio::main]
async fn main() {
    for group in std::env::args().skip(1) {
        match group.as_str() {
            "accept" => accept::measure().await,
            "requests" => counts::requests().await,
            "idle-1000" => counts::idle_with_many().await,
            "memory" => memory::measure().await,
            other => panic!("there is no group {other}"),
        }
    }
}

/// Tells a raw number, or several of the same kind.
fn raw(name: &str, values: &[f64]) {
    println!("{}", json!({ "raw": name, "values": values }));
}

/// Tells the value of a key.
fn value(key: &str, value: f64) {
    println!("{}", json!({ "key": key, "value": value }));
}

/// The middle of some values.
fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) / 2]
}
