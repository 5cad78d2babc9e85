//! What no type can say of a value: the checks that services share, and how a bad value is named.

use std::{fmt::Display, path::Path, time::Duration};

use http::uri::Authority;

/// A value that ends the start, and that `doctor` names before it does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: '{value}' {problem}")]
pub struct BadValue {
    /// The dotted key.
    pub key: String,
    /// The value; without what may be a secret.
    pub value: String,
    /// What is wrong with it, or what it must be.
    pub problem: String,
}

impl BadValue {
    /// Names it.
    #[must_use]
    pub fn new(key: impl Into<String>, value: impl Display, problem: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.to_string(), problem: problem.into() }
    }
}

/// A number that must not be zero.
///
/// # Errors
/// When it is.
pub fn above_zero(key: &str, value: u64) -> Result<(), BadValue> {
    if value > 0 { Ok(()) } else { Err(BadValue::new(key, value, "must be above zero")) }
}

/// A duration that must not be zero.
///
/// # Errors
/// When it is.
pub fn lasting(key: &str, value: Duration) -> Result<(), BadValue> {
    if value.is_zero() { Err(BadValue::new(key, "0s", "must be above zero")) } else { Ok(()) }
}

/// A duration that must not be shorter than another value, or than what the program can keep up with.
///
/// # Errors
/// When it is.
pub fn at_least(key: &str, value: Duration, least: Duration, named: &str) -> Result<(), BadValue> {
    if value >= least {
        return Ok(());
    }
    let shown = |value| format!("{:#}", jiff::SignedDuration::try_from(value).unwrap_or_default());
    let named = if named.is_empty() { shown(least) } else { format!("{named} ({})", shown(least)) };
    Err(BadValue::new(key, shown(value), format!("must be at least {named}")))
}

/// A path that must be given: an empty one would be where the process was started.
///
/// # Errors
/// When it is empty.
pub fn given(key: &str, path: &Path) -> Result<(), BadValue> {
    if path.as_os_str().is_empty() { Err(BadValue::new(key, "", "must be a path")) } else { Ok(()) }
}

/// The address of another service.
///
/// # Errors
/// When it is not `host:port`.
pub fn host_port(key: &str, value: &str) -> Result<(), BadValue> {
    let wrong = |problem: String| Err(BadValue::new(key, value, problem));
    if let Some((scheme, _)) = value.split_once("://") {
        return wrong(format!("must be host:port, without '{scheme}://' in front"));
    }
    let authority = value.parse::<Authority>().ok().filter(|_| !value.contains('@'));
    match authority {
        Some(authority) if !authority.host().is_empty() && authority.port_u16().is_some() => Ok(()),
        _ => wrong("must be host:port, such as 127.0.0.1:8444".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port_and_nothing_else() {
        for good in ["127.0.0.1:8444", "[::1]:8444", "forwarder.platform-system:8444"] {
            assert_eq!(host_port("k", good), Ok(()));
        }
        for bad in ["", "forwarder", ":8444", "a:b", "a:99999", "a:1/x", "u@a:1", "::1:8444", "a:", "a :1"] {
            let error = host_port("k", bad).unwrap_err().to_string();
            assert_eq!(error, format!("k: '{bad}' must be host:port, such as 127.0.0.1:8444"));
        }
        let error = host_port("edge.peers.forwarder", "http://a:1").unwrap_err().to_string();
        assert_eq!(error, "edge.peers.forwarder: 'http://a:1' must be host:port, without 'http://' in front");
    }

    #[test]
    fn what_is_zero_or_empty_is_named() {
        assert_eq!(above_zero("k", 1), Ok(()));
        assert_eq!(above_zero("k", 0).unwrap_err().to_string(), "k: '0' must be above zero");
        assert_eq!(lasting("k", Duration::from_nanos(1)), Ok(()));
        assert_eq!(lasting("k", Duration::ZERO).unwrap_err().to_string(), "k: '0s' must be above zero");
        assert_eq!(given("k", Path::new("data")), Ok(()));
        assert_eq!(given("k", Path::new("")).unwrap_err().to_string(), "k: '' must be a path");
    }
}
