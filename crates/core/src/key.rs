//! Keys: hashes over tagged, length-prefixed fields.
//!
//! Never joined strings: `a/b` + `c` and `a` + `b/c` must not meet. Pinned by test vectors.

use std::{fmt, str::FromStr};

use sha2::{Digest as _, Sha256};

const LEN: usize = 20;

/// The first 20 bytes of SHA-256 over the tag and the fields, each preceded by its length as a 64-bit big-endian number.
fn hash(tag: &str, fields: &[&str]) -> [u8; LEN] {
    let mut sha = Sha256::new();
    for part in std::iter::once(&tag).chain(fields) {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part.as_bytes());
    }
    let digest = sha.finalize();
    std::array::from_fn(|i| digest[i])
}

/// Text that is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a key is 40 lower-case hex digits")]
pub struct KeyError;

macro_rules! key {
    ($(#[$doc:meta])* $name:ident, $tag:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; LEN]);

        impl $name {
            pub(crate) fn of(fields: &[&str]) -> Self {
                Self(hash($tag, fields))
            }

            /// The key as bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; LEN] {
                &self.0
            }

            /// The key from bytes that a store kept.
            #[must_use]
            pub fn from_bytes(bytes: [u8; LEN]) -> Self {
                Self(bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = KeyError;

            fn from_str(text: &str) -> Result<Self, KeyError> {
                if text.bytes().any(|b| b.is_ascii_uppercase()) {
                    return Err(KeyError);
                }
                let mut bytes = [0; LEN];
                hex::decode_to_slice(text, &mut bytes).map_err(|_| KeyError)?;
                Ok(Self(bytes))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

key!(
    /// Identity of an event: cluster + source + id and nothing else.
    EventKey,
    "transponder.event.v1"
);
key!(
    /// Identity of a stream: app namespace + app + env + cluster.
    StreamKey,
    "transponder.stream.v1"
);
key!(
    /// Identity of a release: its stream and what sets it apart there.
    ReleaseKey,
    "transponder.release.v1"
);

impl EventKey {
    /// The key of the event that `cluster` sent with this source and id.
    #[must_use]
    pub fn new(cluster: &crate::ClusterName, source: &str, id: &str) -> Self {
        Self::of(&[cluster.as_str(), source, id])
    }
}

impl StreamKey {
    /// The key of what was counted of an app before its environments and clusters were told apart. No stream has it.
    #[must_use]
    pub fn of_app(app_namespace: &crate::AppNamespace, app: &crate::AppName) -> Self {
        Self::of(&[app_namespace.as_str(), app.as_str(), "", ""])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterName;

    fn event(cluster: &str, source: &str, id: &str) -> EventKey {
        EventKey::new(&ClusterName::new(cluster).unwrap(), source, id)
    }

    #[test]
    fn the_vector_of_the_event_key_never_changes() {
        // printf '\0\0\0\0\0\0\0\x14transponder.event.v1\0\0\0\0\0\0\0\x09kind-prod\0\0\0\0\0\0\0\x02/s\0\0\0\0\0\0\0\x02id' | sha256sum
        assert_eq!(event("kind-prod", "/s", "id").to_string(), "b386512d3d7c808f87033846be5ca10c48d40bdf");
    }

    #[test]
    fn the_vector_of_an_app_before_its_environments_never_changes() {
        let key = StreamKey::of_app(&"app-shop-cicd".parse().unwrap(), &"shop".parse().unwrap());
        assert_eq!(key.to_string(), "f5f94cfba442cfd6b607db2beff96eed623f164e");
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_ne!(event("c", "a/b", "c"), event("c", "a", "b/c"));
        assert_ne!(event("c", "", "ab"), event("c", "ab", ""));
        assert_ne!(event("c1", "s", "i"), event("c2", "s", "i"));
    }

    #[test]
    fn a_key_reads_back_only_from_its_own_text() {
        let key = event("c", "s", "i");
        assert_eq!(key.to_string().parse(), Ok(key));
        for bad in ["", "xyz", &key.to_string()[1..], &key.to_string().to_uppercase()] {
            assert_eq!(bad.parse::<EventKey>(), Err(KeyError), "{bad}");
        }
    }
}
