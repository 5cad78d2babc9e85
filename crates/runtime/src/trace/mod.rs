//! Traces of Transponder itself: the context that is passed on with each gRPC call, and, where they are asked for, the
//! spans of what the parts do. Not to be taken for the span of an outcome, which is the product of one of these parts.

mod config;
mod context;
mod exporter;
mod tracer;

pub use config::{TracesConfig, TracesError};
pub use context::TraceContext;
pub use tracer::{Kind, Span, Tracer};
