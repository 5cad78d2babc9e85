//! What the hook says: one line on stdout for a delivery, one line on stderr for each thing that went wrong.

use std::{fmt, io::Write};

/// Where the lines go. A closed pipe is no reason to fail.
pub struct Console<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

impl<'a> Console<'a> {
    /// Writes to these two.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Self { out, err }
    }

    /// Says what was done.
    pub fn done(&mut self, text: impl fmt::Display) {
        line(self.out, &text);
    }

    /// Says what went wrong.
    pub fn trouble(&mut self, text: impl fmt::Display) {
        line(self.err, &text);
    }
}

impl fmt::Debug for Console<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Console")
    }
}

/// Writes one line; control characters are escaped, so that no value can forge a second one.
pub(crate) fn line(to: &mut dyn Write, text: &dyn fmt::Display) {
    let _ = writeln!(to, "transponder-hook: {}", escape(&text.to_string()));
    let _ = to.flush();
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_forge_a_line() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        Console::new(&mut out, &mut err).trouble("a\ntransponder-hook: delivered\x1b[2J");
        assert!(out.is_empty());
        assert_eq!(
            String::from_utf8(err).unwrap(),
            "transponder-hook: a\\ntransponder-hook: delivered\\u{1b}[2J\n"
        );
    }
}
