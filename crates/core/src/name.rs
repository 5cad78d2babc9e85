//! The four names of a stream: DNS labels, so that each fits a Kubernetes name, a label value and a file name.

use std::{fmt, sync::Arc};

/// Why a text is no DNS label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("must not be empty")]
    Empty,
    /// The text has more than 63 characters.
    #[error("must have at most 63 characters")]
    TooLong,
    /// The text has a character other than a-z, 0-9 and '-', or begins or ends with '-'.
    #[error("must be a DNS label: a-z, 0-9 and '-', neither first nor last a '-'")]
    NotALabel,
}

/// Checks a DNS label (RFC 1123, lower case).
fn check(text: &str) -> Result<(), NameError> {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return Err(NameError::Empty);
    };
    if bytes.len() > 63 {
        return Err(NameError::TooLong);
    }
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    if !bytes.iter().all(inner) || *first == b'-' || *last == b'-' {
        return Err(NameError::NotALabel);
    }
    Ok(())
}

macro_rules! dns_label {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Builds the name from a DNS label.
            ///
            /// # Errors
            /// Says what keeps the text from being one.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check(text)?;
                Ok(Self(text.into()))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    };
}

dns_label!(
    /// Registered name of an upper cluster: the authenticated identity of a report.
    ClusterName
);
dns_label!(
    /// CI namespace of an application on the dev cluster, such as `app-shop-cicd`.
    AppNamespace
);
dns_label!(
    /// An application.
    AppName
);
dns_label!(
    /// What a developer calls an environment, such as `prod`. Not a cluster.
    EnvName
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dns_labels_are_names() {
        for good in ["a", "kind-prod", "0", "a-0", &"a".repeat(63)] {
            assert!(ClusterName::new(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", NameError::Empty),
            ("-a", NameError::NotALabel),
            ("a-", NameError::NotALabel),
            ("A", NameError::NotALabel),
            ("a.b", NameError::NotALabel),
            ("a/../b", NameError::NotALabel),
            ("ä", NameError::NotALabel),
            ("a\n", NameError::NotALabel),
            (&"a".repeat(64), NameError::TooLong),
        ] {
            assert_eq!(ClusterName::new(bad), Err(why), "{bad}");
        }
    }
}
