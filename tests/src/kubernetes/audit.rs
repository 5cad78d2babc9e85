//! The API server's own record of who asked for what.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

/// The log's file, in the folder of the control plane.
pub(super) const FILE: &str = "audit.log";

/// One request. What a request has not, such as a name in a list, is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// Who asked; `system:serviceaccount:<namespace>:<name>` for a ServiceAccount.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, …
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource in the plural, such as `configmaps`.
    pub resource: String,
    /// `status`, `token`, …
    pub subresource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The path and query of the request.
    pub uri: String,
    /// The status code of the answer.
    pub code: u16,
}

/// The requests in a log, each once, in the order in which they were first written.
pub(super) fn read(file: &Path) -> Vec<AuditEvent> {
    let log = fs::read(file).unwrap_or_default();
    let mut places = BTreeMap::<String, usize>::new();
    let mut events = Vec::new();
    // A line may be cut, by a killed server in the middle, too; that is no request which a test could count on.
    for line in String::from_utf8_lossy(&log).lines() {
        let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
        let event = AuditEvent::read(&record);
        // A watch is written when it starts and when it ends.
        match places.get(&text(&record["auditID"])) {
            Some(place) => events[*place] = event,
            None => {
                places.insert(text(&record["auditID"]), events.len());
                events.push(event);
            }
        }
    }
    events
}

impl AuditEvent {
    fn read(record: &Value) -> Self {
        let object = &record["objectRef"];
        Self {
            user: text(&record["user"]["username"]),
            verb: text(&record["verb"]),
            group: text(&object["apiGroup"]),
            resource: text(&object["resource"]),
            subresource: text(&object["subresource"]),
            namespace: text(&object["namespace"]),
            name: text(&object["name"]),
            uri: text(&record["requestURI"]),
            code: record["responseStatus"]["code"]
                .as_u64()
                .and_then(|code| code.try_into().ok())
                .unwrap_or_default(),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
