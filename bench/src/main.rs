//! What `cargo xtask bench` compares the product with.
//!
//! * `door`: the edge's listener with a handler that does nothing, the most that HTTP over TLS can do here;
//! * `chain`: the calls that one outcome costs, over the same gRPC and TLS, with nothing behind them;
//! * `sinks`: a broker and a tracing backend that take everything and keep nothing;
//! * `spans`: how long from a post to its span, with sinks of its own;
//! * `disk`: a bare write + fdatasync loop.
//!
//! Each prints one line of JSON: its addresses once it listens, or its result.

mod chain;
mod disk;
mod door;
mod listener;
mod sinks;
mod spans;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "transponder-bench", about = "Yardsticks of `cargo xtask bench`")]
struct Arguments {
    #[command(subcommand)]
    yardstick: Yardstick,
}

#[derive(Subcommand)]
enum Yardstick {
    /// HTTPS with an empty handler
    Door(listener::Arguments),
    /// HTTPS, then the four gRPC calls of an outcome with empty handlers
    Chain(chain::Arguments),
    /// A broker and an OTLP backend
    Sinks,
    /// From post to span; what to post is read from standard input
    Spans,
    /// Latencies of write + fdatasync in microseconds
    Disk {
        /// Directory on the file system to measure
        directory: PathBuf,
        /// How long
        #[arg(long, default_value_t = 300)]
        millis: u64,
    },
}

fn main() -> anyhow::Result<()> {
    // Only the first provider counts, and there is no other.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Arguments::parse().yardstick {
        Yardstick::Disk { directory, millis } => {
            disk::run(&directory, std::time::Duration::from_millis(millis))
        }
        other => tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(other)),
    }
}

async fn serve(yardstick: Yardstick) -> anyhow::Result<()> {
    match yardstick {
        Yardstick::Door(arguments) => door::run(&arguments).await,
        Yardstick::Chain(arguments) => chain::run(&arguments).await,
        Yardstick::Sinks => sinks::run().await,
        Yardstick::Spans => spans::run().await,
        Yardstick::Disk { .. } => Ok(()),
    }
}

/// Prints a line of JSON at once.
#[expect(clippy::print_stdout, reason = "the answer to whoever started this")]
fn say(value: &serde_json::Value) {
    println!("{value}");
}
