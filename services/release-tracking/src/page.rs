//! Page tokens: opaque, and good only for the list that they came from.

use sha2::{Digest as _, Sha256};
use transponder_core::{ReleaseKey, Timestamp};

use crate::store::{Cursor, Filter};

const KEY: usize = 20;
const CHECK: usize = 8;
const LEN: usize = 16 + KEY + CHECK;

/// Text that is no page token of this list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not a token of a page of this list")]
pub struct TokenError;

/// Writes the token of the page after `cursor`.
#[must_use]
pub fn encode(cursor: &Cursor, filter: &Filter) -> String {
    let mut bytes = Vec::with_capacity(LEN);
    bytes.extend(cursor.updated_at.as_nanosecond().to_be_bytes());
    bytes.extend(cursor.key.as_bytes());
    let check = check(&bytes, filter);
    bytes.extend(check);
    hex::encode(bytes)
}

/// Reads a token.
///
/// # Errors
/// When it is none, or one of another list.
pub fn decode(token: &str, filter: &Filter) -> Result<Cursor, TokenError> {
    let mut bytes = [0; LEN];
    hex::decode_to_slice(token, &mut bytes).map_err(|_| TokenError)?;
    let (place, given) = bytes.split_at(LEN - CHECK);
    if check(place, filter) != given {
        return Err(TokenError);
    }
    let (time, key) = place.split_at(16);
    let nanos = i128::from_be_bytes(time.try_into().map_err(|_| TokenError)?);
    Ok(Cursor {
        updated_at: Timestamp::from_nanosecond(nanos).map_err(|_| TokenError)?,
        key: ReleaseKey::from_bytes(key.try_into().map_err(|_| TokenError)?),
    })
}

/// No secret: a token gives nobody more than the filter does, so it only has to tell mistakes apart.
fn check(place: &[u8], filter: &Filter) -> [u8; CHECK] {
    let mut sha = Sha256::new();
    sha.update("transponder.page.v1\0");
    sha.update(place);
    sha.update(filter.app_namespace.as_ref().map_or("", |namespace| namespace.as_str()));
    let mut states = filter.states.clone();
    states.sort_unstable();
    states.dedup();
    for state in states {
        sha.update([0]);
        sha.update(state.as_str());
    }
    let digest = sha.finalize();
    std::array::from_fn(|i| digest[i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::State;

    #[test]
    fn a_token_is_good_for_its_own_list_alone() {
        let cursor = Cursor {
            updated_at: "2026-09-14T10:00:00.123456789Z".parse().unwrap(),
            key: ReleaseKey::from_bytes([7; 20]),
        };
        let filter = Filter { app_namespace: None, states: vec![State::Failed, State::Merged] };
        let token = encode(&cursor, &filter);
        assert_eq!(decode(&token, &filter), Ok(cursor));
        let turned = Filter { states: vec![State::Merged, State::Failed, State::Merged], ..filter.clone() };
        assert_eq!(decode(&token, &turned), Ok(cursor));
        assert_eq!(decode(&token, &Filter::default()), Err(TokenError));
        let flipped = format!("{}{}", if token.starts_with('0') { '1' } else { '0' }, &token[1..]);
        for bad in ["", "x", &token[2..], &format!("{token}00"), &flipped, &"f".repeat(token.len()), "é"] {
            assert_eq!(decode(bad, &filter), Err(TokenError), "{bad}");
        }
    }
}
