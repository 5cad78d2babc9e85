//! The reporter in the hook Job of a sync: tells the edge what a release came to.
//!
//! What it does: reads its environment ([`config`]), builds one event ([`event`]), finds the relay token
//! ([`credential`]), posts until the edge has it or the deadline is over ([`deliver`]), and says what happened
//! ([`console`]).
//!
//! What must hold:
//! - a reporter never decides a deployment: whatever happens, the process ends in its deadline, and with 0 unless
//!   `HOOK_FAILURE_POLICY` is `fail` ([`guard`] holds this even for a panic and for a call that never returns);
//! - the body is built once, so every attempt sends the same bytes under the same id;
//! - the token goes to the origin of `RELAY_URL` alone, to no other if the Secret names one (`relay-origin`), behind
//!   no redirect, and into no output;
//! - no connection is used twice, so a connection that went stale is never seen.
//!
//! What it does not do: it follows no redirect, asks no proxy (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and
//! `NO_PROXY` are ignored, since the relay is reached directly and a proxy of the pod's is meant for others), starts
//! no async runtime, and keeps no state.
//!
//! The operator's `send` builds and posts with the same code:
//!
//! ```no_run
//! use std::time::Duration;
//! use transponder_hook::{event, post, token::Token, trust::Roots};
//!
//! # fn example(fields: event::Fields) -> Result<(), Box<dyn std::error::Error>> {
//! let event = event::build(&fields, "any text that is new for each new event")?;
//! let url = "https://127.0.0.1:8443/outcome/kind-prod".parse()?;
//! let roots = Roots::from_pem(&std::fs::read("ca.crt")?)?; // or `Roots::system()`
//! let token = Token::parse(&std::fs::read("token")?)?;
//! let answer = post::post(&url, &roots, &token, &event.body, Duration::from_secs(10))?;
//! println!("{} {} {:?}", answer.status, event.key, answer.location);
//! # Ok(())
//! # }
//! ```
//!
//! These calls block: from a runtime, call them where blocking is allowed.

pub mod app;
pub mod config;
pub mod console;
pub mod credential;
pub mod deadline;
pub mod deliver;
pub mod error;
pub mod event;
pub mod guard;
mod http;
pub mod kube;
pub mod post;
pub mod token;
pub mod trust;
pub mod usage;
pub mod vars;

pub use app::App;
pub use error::{Error, Problem};
