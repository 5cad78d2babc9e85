//! What older Tasks wrote of a pull request: a ConfigMap `release-tracking-<chain id>` in the app's own namespace.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use globset::GlobSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use transponder_core::{AppNamespace, event::is_plausible, time::parse_rfc3339};
use transponder_kubernetes::Access;

use crate::{record::PullRequest, store::Error};

/// How long it is believed that there is none: a release is observed several times within minutes.
const ABSENT: Duration = Duration::from_secs(600);
/// Most absences that are remembered.
const MAX_ABSENT: usize = 4096;
/// Longest name of an object.
const MAX_NAME: usize = 253;

/// The older records. They are read and never written; nothing else is read where they are.
pub(crate) struct OlderRecords {
    access: Access,
    namespaces: GlobSet,
    absent: Mutex<HashMap<String, Instant>>,
}

impl OlderRecords {
    /// Of app namespaces that match, where this process may `get` ConfigMaps.
    pub(crate) fn new(access: &Access, namespaces: GlobSet) -> Self {
        Self { access: access.clone(), namespaces, absent: Mutex::default() }
    }

    /// What is there of a flow. That it may not be read is an error: whoever asks would take it for absence.
    pub(crate) async fn find(
        &self,
        app_namespace: &AppNamespace,
        chain_id: &str,
    ) -> Result<Option<PullRequest>, Error> {
        let Some(name) = name(chain_id).filter(|_| self.namespaces.is_match(app_namespace.as_str())) else {
            return Ok(None);
        };
        let place = format!("{app_namespace}/{name}");
        if self.is_absent(&place) {
            return Ok(None);
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.access.client(), app_namespace.as_str());
        let found = self.access.call("read an older record of a release", maps.get_opt(&name)).await?;
        if found.is_none() {
            self.note_absent(place);
        }
        Ok(found.map(|map| read(&map)))
    }

    fn is_absent(&self, place: &str) -> bool {
        let absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        absent.get(place).is_some_and(|since| since.elapsed() < ABSENT)
    }

    fn note_absent(&self, place: String) {
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        if absent.len() >= MAX_ABSENT {
            absent.retain(|_, since| since.elapsed() < ABSENT);
        }
        // When so many were asked for within minutes, they are asked for again.
        if absent.len() < MAX_ABSENT {
            absent.insert(place, Instant::now());
        }
    }
}

/// The name of the object; `None` where the chain id makes none, so that there cannot be one.
fn name(chain_id: &str) -> Option<String> {
    let name = format!("release-tracking-{chain_id}");
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    // No dot after a dot or a dash: each part between dots begins and ends with a letter or a digit.
    let parts = name.split('.').all(|part| {
        let bytes = part.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        ends.iter().all(|end| end.is_some_and(|b| fits(*b))) && bytes.iter().all(|b| fits(*b) || *b == b'-')
    });
    (name.len() <= MAX_NAME && parts).then_some(name)
}

/// A value that cannot be read counts as unknown, as everywhere else.
fn read(map: &ConfigMap) -> PullRequest {
    let value = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
    let created_at = value("prCreatedAt").and_then(|text| parse_rfc3339(text).ok());
    PullRequest {
        url: value("prUrl").filter(|url| PullRequest::is_address(url)).unwrap_or_default().to_owned(),
        created_at: created_at.filter(|at| is_plausible(*at)),
        merged_at: None,
        closed_at: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_id_that_is_no_name_is_asked_for_nowhere() {
        assert_eq!(name("c-1.a").as_deref(), Some("release-tracking-c-1.a"));
        assert_eq!(name(&"c".repeat(236)).map(|name| name.len()), Some(MAX_NAME));
        let long = "c".repeat(237);
        for bad in
            ["", "C", "../secrets/x", "a/b", "a?b", "a%2fb", "a..b", "a-", "a.-b", ".", "ä", "a\n", &long]
        {
            assert_eq!(name(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_the_rest_is_not() {
        let map = |url: &str, at: &str| {
            let data = [("prUrl".to_owned(), url.to_owned()), ("prCreatedAt".to_owned(), at.to_owned())];
            read(&ConfigMap { data: Some(data.into()), ..ConfigMap::default() })
        };
        let good = map("https://git.example/1", "2026-09-14T10:00:00Z");
        assert_eq!(good.url, "https://git.example/1");
        assert_eq!(good.created_at, Some("2026-09-14T10:00:00Z".parse().unwrap()));
        let bad = map("javascript:alert(1)", "yesterday");
        assert_eq!(bad, PullRequest::default());
        assert_eq!(map("", "0001-01-01T00:00:00Z"), PullRequest::default());
        assert_eq!(read(&ConfigMap::default()), PullRequest::default());
    }
}
