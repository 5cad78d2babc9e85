//! Tokens of our own making.

use anyhow::anyhow;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// 32 random bytes as text that fits a header.
///
/// # Errors
/// When the system gives no random numbers.
pub fn random_token() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| anyhow!("the system gives no random numbers"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
