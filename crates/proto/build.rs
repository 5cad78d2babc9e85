//! Compiles the contract without a `protoc`: protox parses, prost and tonic generate.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 5] = [
    "transponder/v1/release.proto",
    "transponder/v1/forwarder.proto",
    "transponder/v1/dora_recorder.proto",
    "transponder/v1/release_tracking.proto",
    "transponder/v1/outcome_span.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    for file in FILES {
        println!("cargo::rerun-if-changed={}", root.join(file).display());
    }
    let descriptors = protox::compile(FILES, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(out, descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".transponder.v1.ForwardRequest.event").compile_fds(descriptors)?;
    Ok(())
}
