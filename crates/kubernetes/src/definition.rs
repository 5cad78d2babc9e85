//! Whether the API server has the definitions that this program was built with.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::Request;
use serde_json::{Value, json};

use crate::{Access, ApiError, Kind, access::creation};

/// Asks the API server whether it knows every field of a definition. What it does not know it would drop from each object
/// without a word. Nothing is written: an object that has all fields, most of them with values that are refused, is
/// offered for a look.
///
/// # Errors
/// [`Kind::Missing`] when a field is not known, or the resource is not served; else what kept it from an answer.
pub async fn check(access: &Access, definition: &CustomResourceDefinition) -> Result<(), ApiError> {
    let action = "check a definition";
    let object = serde_json::to_value(definition).ok().and_then(|definition| complete(&definition));
    let Some(object) = object else {
        return Err(ApiError::unreadable(action, "the definition", "it has no schema"));
    };
    let (group, plural) = (&definition.spec.group, &definition.spec.names.plural);
    let path = format!("/apis/{group}/v1/namespaces/{}/{plural}", access.namespace());
    let client = access.client();
    let look = async {
        let dry = kube::api::PostParams { dry_run: true, ..creation() };
        let body = object.to_string().into_bytes();
        let mut request = Request::new(path).create(&dry, body).map_err(kube::Error::BuildRequest)?;
        let strict = format!("{}&fieldValidation=Strict", request.uri());
        *request.uri_mut() =
            strict.parse().map_err(|e: http::uri::InvalidUri| kube::Error::HttpError(e.into()))?;
        client.request::<Value>(request).await
    };
    match access.call(action, look).await {
        Ok(_) => Ok(()),
        // It has been decoded, and that is what was asked.
        Err(error) if matches!(error.kind, Kind::Invalid | Kind::Exists) => Ok(()),
        Err(error) => Err(error),
    }
}

/// An object with every field of a definition's version `v1`.
fn complete(definition: &Value) -> Option<Value> {
    let spec = &definition["spec"];
    let versions = spec["versions"].as_array()?;
    let version = versions.iter().find(|version| version["name"] == "v1")?;
    let mut object = sample(&version["schema"]["openAPIV3Schema"]);
    let own = object.as_object_mut()?;
    own.insert("apiVersion".into(), json!(format!("{}/v1", spec["group"].as_str()?)));
    own.insert("kind".into(), spec["names"]["kind"].clone());
    own.insert("metadata".into(), json!({ "name": "0".repeat(40) }));
    Some(object)
}

/// A value of a schema's type.
fn sample(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields
                .map(|(name, schema)| (name.clone(), sample(schema)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        Some("array") => json!([sample(&schema["items"])]),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        _ if schema["format"] == "date-time" => json!("1970-01-01T00:00:00Z"),
        _ => schema["enum"].get(0).cloned().unwrap_or_else(|| json!("probe")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_every_field_of_the_definition() {
        let schema = json!({ "type": "object", "properties": {
            "spec": { "type": "object", "properties": {
                "name": { "type": "string" }, "kind": { "type": "string", "enum": ["A", "B"] },
            } },
            "status": { "type": "object", "properties": {
                "seen": { "type": "array", "items": { "type": "object", "properties": {
                    "at": { "type": "string", "format": "date-time" }, "count": { "type": "integer" },
                } } },
            } },
        } });
        let definition = json!({ "spec": {
            "group": "g.dev", "names": { "kind": "Thing" },
            "versions": [{ "name": "v1", "schema": { "openAPIV3Schema": schema } }],
        } });
        assert_eq!(
            complete(&definition).unwrap(),
            json!({
                "apiVersion": "g.dev/v1", "kind": "Thing", "metadata": { "name": "0".repeat(40) },
                "spec": { "name": "probe", "kind": "A" },
                "status": { "seen": [{ "at": "1970-01-01T00:00:00Z", "count": 1 }] },
            })
        );
    }
}
