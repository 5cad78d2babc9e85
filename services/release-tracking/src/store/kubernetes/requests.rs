//! What is asked of the API server, one request each.

use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PostParams, Preconditions},
};
use transponder_core::{
    AppName, AppNamespace, ClusterName, EnvName, Maker, NameError, Release, ReleaseId, ReleaseKey, Stream,
    Timestamp,
};
use transponder_kubernetes::{Access, ApiError, Kind, Reach, change, creation, definition};

use super::{
    kept::{Entry, Kept, Version},
    object::{SCHEMA, crd},
};
use crate::{record::Record, store::Wanted};

/// Most records that one answer brings.
const PAGE: u32 = 500;

pub(super) struct Requests {
    access: Access,
    api: Api<Kept>,
    reach: Reach,
}

impl Requests {
    pub(super) fn new(access: &Access) -> Self {
        Self { access: access.clone(), api: access.api(), reach: Reach::new() }
    }

    pub(super) fn api(&self) -> Api<Kept> {
        self.api.clone()
    }

    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    async fn call<T>(
        &self,
        action: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApiError> {
        let ended = self.access.call(action, request).await;
        self.reach.note(&ended);
        ended
    }

    /// Reads one record.
    pub(super) async fn get(&self, key: &ReleaseKey) -> Result<Option<Kept>, ApiError> {
        let name = key.to_string();
        self.call("read a release", self.api.get_opt(&name)).await
    }

    /// Reads all records that a selector picks, page by page.
    pub(super) async fn select(&self, selector: &str) -> Result<Vec<Kept>, ApiError> {
        let mut parameters = ListParams::default().limit(PAGE);
        if !selector.is_empty() {
            parameters = parameters.fields(selector);
        }
        let mut found = Vec::new();
        loop {
            let list = self.call("list releases", self.api.list(&parameters)).await?;
            found.extend(list.items);
            let more = list.metadata.continue_.filter(|token| !token.is_empty());
            let Some(more) = more else { return Ok(found) };
            parameters.continue_token = Some(more);
        }
    }

    /// Makes the object of a record.
    pub(super) async fn create(&self, entry: Entry) -> Result<Kept, ApiError> {
        self.call("create a release", self.api.create(&creation(), &entry.object())).await
    }

    /// Changes the object of a record, if it is still the version that the entry came from.
    pub(super) async fn patch(&self, entry: &Entry) -> Result<Kept, ApiError> {
        let (name, patch) = (entry.key().to_string(), Patch::Merge(entry.patch()));
        self.call("change a release", self.api.patch(&name, &change(), &patch)).await
    }

    /// Deletes the object of a record; with a version, only if it is still that one.
    pub(super) async fn delete(&self, key: &ReleaseKey, version: Option<&Version>) -> Result<(), ApiError> {
        let resource_version = version.map(|version| version.as_str().to_owned());
        let preconditions =
            resource_version.map(|version| Preconditions { resource_version: Some(version), uid: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        let name = key.to_string();
        self.call("delete a release", self.api.delete(&name, &parameters)).await.map(drop)
    }

    /// Tries whether a record could be made, without making one.
    pub(super) async fn try_to_create(&self) -> Result<(), ApiError> {
        let Ok(entry) = example() else { return Ok(()) };
        let dry = PostParams { dry_run: true, ..creation() };
        match self.call("create a release", self.api.create(&dry, &entry.object())).await {
            // One that is there was made by the same right.
            Err(error) if error.kind != Kind::Exists => return Err(error),
            _ => {}
        }
        definition::check(&self.access, &crd()).await
    }
}

/// A record of nothing.
fn example() -> Result<Entry, NameError> {
    let stream = Stream {
        app_namespace: AppNamespace::new("transponder")?,
        app: AppName::new("transponder")?,
        env: EnvName::new("transponder")?,
        cluster: ClusterName::new("transponder")?,
    };
    let release = Release { stream, id: ReleaseId::EventId("a probe of the store".to_owned()) };
    let record = Record::new(release, Timestamp::UNIX_EPOCH);
    Ok(Entry { record, maker: Maker::Platform, reported_at: None, version: None, schema: SCHEMA })
}

/// The field selector of an incomplete key, as far as fields can be selected by; the rest is looked at afterwards.
pub(super) fn selector(wanted: &Wanted) -> String {
    let id = wanted.id.as_ref().map(|id| match id {
        ReleaseId::ChainId(id) => ("spec.chainId", id.as_str()),
        ReleaseId::GitRevision(id) => ("status.gitRevision", id.as_str()),
        ReleaseId::EventId(id) => ("spec.eventId", id.as_str()),
    });
    let pr_url = wanted.pr_url.as_ref().map(|url| ("status.prUrl", url.as_str()));
    let cluster = wanted.cluster.as_ref().map(|cluster| ("spec.cluster", cluster.as_str()));
    let terms = [id, pr_url, cluster].into_iter().flatten();
    let terms: Vec<String> = terms.map(|(field, value)| format!("{field}={}", escaped(value))).collect();
    terms.join(",")
}

/// A value as a field selector takes it (`EscapeValue` of apimachinery's `fields`).
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_end_its_term_of_a_selector() {
        let wanted = Wanted {
            id: Some(ReleaseId::ChainId(r"a=b,c\d".into())),
            pr_url: Some("https://git.example/pulls?id=1,2".into()),
            ..Wanted::default()
        };
        assert_eq!(
            selector(&wanted),
            r"spec.chainId=a\=b\,c\\d,status.prUrl=https://git.example/pulls?id\=1\,2"
        );
        assert_eq!(selector(&Wanted::default()), "");
    }
}
