//! The gRPC contract: generated code and the conversions between it and the domain.
//!
//! Services convert at their door (`service.rs`) and nowhere else; no domain type holds a proto type.

pub mod convert;

/// Generated from `proto/transponder/v1`.
#[expect(clippy::all, reason = "generated; the comments of the contract are in the .proto files")]
pub mod v1 {
    tonic::include_proto!("transponder.v1");
}

/// The compiled descriptors of all files, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
