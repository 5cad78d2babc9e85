//! W3C trace context (Level 1): read, passed on with every gRPC call, shown in logs.

use std::fmt;

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// A trace and the span within it that made the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The calling span.
    pub span_id: [u8; 8],
    /// Whether the caller records the trace.
    pub sampled: bool,
}

impl TraceContext {
    /// Reads a `traceparent` header. Other versions than 00 are read as far as they are known.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |s: &str, len| {
            s.len() == len && s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let known = version == "00" && parts.next().is_none() || version != "00" && version != "ff";
        if !known || !is_hex(version, 2) || !is_hex(trace, 32) || !is_hex(span, 16) || !is_hex(flags, 2) {
            return None;
        }
        let (mut trace_id, mut span_id, mut bits) = ([0; 16], [0; 8], [0; 1]);
        hex::decode_to_slice(trace, &mut trace_id).ok()?;
        hex::decode_to_slice(span, &mut span_id).ok()?;
        hex::decode_to_slice(flags, &mut bits).ok()?;
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(Self {
            trace_id,
            span_id,
            sampled: bits[0] & 1 == 1,
        })
    }

    /// A new trace.
    #[must_use]
    pub fn random() -> Self {
        let trace_id = fastrand::u128(1..).to_be_bytes();
        Self { trace_id, span_id: fastrand::u64(1..).to_be_bytes(), sampled: false }
    }

    /// The same trace, one call further.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span_id: fastrand::u64(1..).to_be_bytes(), ..self }
    }

    /// The context of the running task, or a new one.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.try_with(|context| *context).unwrap_or_else(|_| Self::random())
    }

    /// Runs a future in this context.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (hex::encode(self.trace_id), hex::encode(self.span_id));
        write!(f, "00-{trace}-{span}-{:02x}", u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_traceparent_is_read() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(TraceContext::parse(good).unwrap().to_string(), good);
        assert!(
            TraceContext::parse("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more").is_some()
        );
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }
}
