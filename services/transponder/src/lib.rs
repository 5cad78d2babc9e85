//! The one binary: every service, all of them together, and the operator's commands.
//!
//! What it does: reads configuration and command line, wires the services up ([`mesh`]), and gives the operator a
//! hand on what they keep ([`commands`]).
//!
//! What must hold:
//! - everything is built before anything runs, and what fails is named with the reason;
//! - a secret is printed once, to who made it, and never logged;
//! - the demo checks what it shows: it ends with success only if everything came out as it should.
//!
//! What it does not do: decide anything about an outcome. That is in the services, which know nothing of each other.

pub mod certificates;
pub mod cli;
pub mod commands;
pub mod config;
pub mod desk;
pub mod files;
pub mod installation;
pub mod mesh;
pub mod output;
pub mod process;
pub mod receipt;
pub mod reference;
pub mod registry;
pub mod relay;
pub mod secret;
