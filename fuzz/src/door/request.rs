//! From the bytes of an input to the bytes on the wire.

/// What a client sends.
pub(super) struct Request {
    /// The bytes.
    pub(super) bytes: Vec<u8>,
    /// Whether it is one request that says where it ends and that it is the last: it must be answered.
    pub(super) complete: bool,
    /// The body, where it is complete.
    pub(super) body: Vec<u8>,
}

/// Headers that say where a request ends or what comes after it. An input that sets one of them is on its own.
const FRAMING: &[&str] =
    &["content-length", "transfer-encoding", "connection", "expect", "upgrade", "te", "trailer"];

impl Request {
    /// Reads an input: `METHOD TARGET`, lines of headers, an empty line, the body. Version, `Host`, `Content-Length` and
    /// `Connection: close` are added. What follows a `!` is sent as it is.
    pub(super) fn read(input: &[u8]) -> Self {
        if let Some(raw) = input.strip_prefix(b"!") {
            return Self { bytes: raw.to_vec(), complete: false, body: Vec::new() };
        }
        let (head, body) = match input.windows(2).position(|pair| pair == b"\n\n") {
            Some(at) => (&input[..at], &input[at + 2..]),
            None => (input, &[][..]),
        };
        let mut lines = head.split(|byte| *byte == b'\n');
        let mut bytes = lines.next().unwrap_or_default().to_vec();
        bytes.extend_from_slice(b" HTTP/1.1\r\nHost: 127.0.0.1\r\n");
        let mut complete = !bytes.starts_with(b"CONNECT ");
        for line in lines {
            complete &= !frames(line);
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(b"\r\n");
        }
        if complete {
            bytes.extend_from_slice(
                format!("Content-Length: {}\r\nConnection: close\r\n", body.len()).as_bytes(),
            );
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        Self { bytes, complete, body: body.to_vec() }
    }

    /// Whether the answer has a body.
    pub(super) fn is_head(&self) -> bool {
        self.bytes.starts_with(b"HEAD ")
    }
}

/// Whether a line holds a framing header, even after a stray line break.
fn frames(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    let name = name.rsplit(|byte| *byte == b'\r').next().unwrap_or_default().trim_ascii();
    line.trim_ascii().is_empty() || FRAMING.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}
