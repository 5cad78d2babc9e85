//! The service over real mutual TLS, with real callers and a clock that the tests set.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, its helpers too")]

#[path = "../common/mod.rs"]
mod common;

mod operator;
mod permissions;
mod releases;
mod silence;
mod trouble;
mod validation;
