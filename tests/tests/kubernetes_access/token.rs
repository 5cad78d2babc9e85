//! ServiceAccount tokens that no API server would give: short-lived, altered, signed by somebody else.

use std::fs;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use transponder_tests::kubernetes::ApiServer;

/// The claims of a token.
pub(crate) fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).expect("a JWT");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

/// Signs tokens by ECDSA on P-256.
pub(crate) struct Signer(KeyPair);

impl Signer {
    /// With the key by which the API server knows its own tokens.
    pub(crate) fn of(server: &ApiServer) -> Self {
        let pem = fs::read_to_string(server.folder().join("service-account.key")).unwrap();
        Self(KeyPair::from_pem(&pem).unwrap())
    }

    /// With a key that nobody knows.
    pub(crate) fn new() -> Self {
        Self(KeyPair::generate().unwrap())
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encode(&json!({ "alg": "ES256" })), encode(claims));
        let signature = fixed(&self.0.sign(text.as_bytes()).unwrap());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The two numbers of a signature in DER, as RFC 7518 section 3.4 wants them: 32 bytes each.
fn fixed(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let (number, after) = rest[2..].split_at(usize::from(rest[1]));
        let number = &number[number.len().saturating_sub(32)..];
        numbers.extend(std::iter::repeat_n(0, 32 - number.len()).chain(number.iter().copied()));
        rest = after;
    }
    numbers
}
