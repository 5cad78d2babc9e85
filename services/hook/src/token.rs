//! The relay token.

use secrecy::{ExposeSecret, SecretString};

/// A token that fits an HTTP header. It does not print, and is wiped from memory.
#[derive(Debug, Clone)]
pub struct Token(SecretString);

/// Why a text is no token. Never says what the text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Nothing but white space.
    #[error("is empty")]
    Empty,
    /// A line break, a NUL or the like within: two tokens in one file, or a binary.
    #[error("has control characters within")]
    ControlCharacters,
    /// Not text.
    #[error("is not UTF-8")]
    NotText,
}

impl Token {
    /// Reads a token. White space around it is no part of it.
    ///
    /// # Errors
    /// Says why it cannot be used.
    pub fn parse(bytes: &[u8]) -> Result<Self, TokenError> {
        let text = std::str::from_utf8(bytes).map_err(|_| TokenError::NotText)?.trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if text.chars().any(char::is_control) {
            return Err(TokenError::ControlCharacters);
        }
        Ok(Self(SecretString::from(text)))
    }

    /// The token, for the header and nothing else.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Takes the token out of a text that a peer sent: a peer may echo what it was sent.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        text.replace(self.expose(), "[token]")
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Token {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_around_a_token_is_trimmed_and_control_characters_within_are_refused() {
        for (bytes, expected) in [
            (&b"abc\n"[..], Ok("abc")),
            (b" \r\n\tabc \r\n", Ok("abc")),
            (b"a b", Ok("a b")),
            (b"", Err(TokenError::Empty)),
            (b" \n", Err(TokenError::Empty)),
            (b"a\nb", Err(TokenError::ControlCharacters)),
            (b"a\r\nX-Header: b", Err(TokenError::ControlCharacters)),
            (b"a\0b", Err(TokenError::ControlCharacters)),
            (b"a\tb", Err(TokenError::ControlCharacters)),
            (b"a\x7fb", Err(TokenError::ControlCharacters)),
            (b"\xff", Err(TokenError::NotText)),
        ] {
            let token = Token::parse(bytes);
            assert_eq!(token.as_ref().map(Token::expose).map_err(|e| *e), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_token_does_not_print() {
        let token = Token::parse(b"very-secret").unwrap();
        assert!(!format!("{token:?}").contains("very-secret"));
        assert_eq!(token.redact("Bearer very-secret!"), "Bearer [token]!");
    }
}
