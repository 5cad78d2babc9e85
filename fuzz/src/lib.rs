//! Fuzz targets: functions that take any bytes and panic when something that must hold does not.
//!
//! * [`event`]: the event parser;
//! * [`time`]: the time parser;
//! * [`value`]: small texts of peers and operators: `Retry-After`, `traceparent`, durations;
//! * [`Door`]: an edge that takes requests over TLS.
//!
//! `cargo xtask fuzz` drives them with libFuzzer, which looks for inputs that reach new code. `tests/tests/fuzz.rs`
//! drives them without it: with every file of `corpus/`, and for seconds with [`Mutator`]'s changes of these files.
//!
//! What it does not do: find out whether the right events are accepted. That is said by tables in the parsers' tests.

mod corpus;
mod door;
mod event;
mod mutate;
mod time;
mod value;

pub use corpus::corpus;
pub use door::Door;
pub use event::event;
pub use mutate::Mutator;
pub use time::time;
pub use value::value;
