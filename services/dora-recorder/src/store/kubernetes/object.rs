//! `DoraStream`s as they are read.
//!
//! Reading never fails as a whole: in a list, an object that somebody broke must not take the others with it.

use std::sync::Arc;

use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use transponder_store::StoreError;

use super::{
    convert,
    resource::{DoraStream, DoraStreamSpec, DoraStreamStatus, Maker, SCHEMA},
    text::Problem,
};
use crate::{
    state::{Imported, StreamState},
    store::{Item, Stored, StoredImport},
};

/// An object that was read.
#[derive(Debug, Clone, kube::Resource)]
#[resource(inherit = DoraStream)]
pub(super) struct Object {
    metadata: ObjectMeta,
    schema: u32,
    content: Result<Content, Problem>,
}

#[derive(Debug, Clone)]
enum Content {
    Stream(Arc<StreamState>),
    Import(Arc<Imported>),
}

/// Anything at all.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Raw::deserialize(deserializer)?;
        // Nothing else of it is needed, and lists of it are held.
        let metadata = ObjectMeta {
            name: raw.metadata.name,
            resource_version: raw.metadata.resource_version,
            ..ObjectMeta::default()
        };
        let schema = raw.status.get("schema").and_then(Value::as_u64).unwrap_or_default();
        let schema = u32::try_from(schema).unwrap_or(u32::MAX);
        Ok(Self { metadata, schema, content: content(raw.spec, raw.status) })
    }
}

impl Object {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// What it is.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn item(&self) -> Result<Item, Problem> {
        let content = self.content.as_ref().map_err(Clone::clone)?;
        let key = match content {
            Content::Stream(state) => state.stream.key(),
            Content::Import(import) => import.key(),
        };
        let name = key.to_string();
        if self.name() != name {
            return Err(format!("its name is not the key of its stream, which is {name}"));
        }
        let version = version(&self.metadata)?;
        Ok(match content {
            Content::Import(import) => Item::Import(StoredImport { version, import: import.clone() }),
            Content::Stream(state) => {
                let file = format!("DoraStream {name}");
                let newer = self.schema > SCHEMA;
                let sealed = newer.then_some(StoreError::Newer { file, found: self.schema, known: SCHEMA });
                Item::Stream(Stored { version, state: state.clone(), sealed })
            }
        })
    }
}

/// The version of an object. Since Kubernetes 1.35 it is promised to be a number that grows with each change.
pub(super) fn version(metadata: &ObjectMeta) -> Result<u64, Problem> {
    let text = metadata.resource_version.as_deref().unwrap_or_default();
    text.parse().map_err(|_| format!("its resourceVersion '{text}' is no number"))
}

fn content(spec: Value, status: Value) -> Result<Content, Problem> {
    // A newer version may have added what this one does not know, and what it does know is still there.
    let spec: DoraStreamSpec = serde_json::from_value(spec).map_err(|e| format!("spec: {e}"))?;
    let status: DoraStreamStatus = serde_json::from_value(status).map_err(|e| format!("status: {e}"))?;
    Ok(match spec.maker {
        Maker::Import => Content::Import(Arc::new(convert::imported(&spec, &status)?)),
        Maker::Platform | Maker::App => Content::Stream(Arc::new(convert::state(&spec, &status)?)),
    })
}

#[cfg(test)]
#[path = "object_tests.rs"]
mod tests;
