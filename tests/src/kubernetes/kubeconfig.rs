//! Files that tell a client where the API server is and who the client is.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::pki::Pki;

/// Who a client is.
pub(super) enum Credential<'a> {
    /// The holder of the certificate of this name.
    Certificate(&'a str),
    /// The bearer of a token.
    Token(&'a str),
}

/// Writes a kubeconfig that holds everything itself, so that it may be copied anywhere. JSON is YAML, too.
pub(super) fn write(path: &Path, url: &str, pki: &Pki, credential: &Credential<'_>) {
    let data =
        |file: &str| Value::from(STANDARD.encode(fs::read(pki.path(file)).expect("read a certificate")));
    let user = match credential {
        Credential::Token(token) => json!({ "token": token }),
        Credential::Certificate(name) => json!({
            "client-certificate-data": data(&format!("{name}.crt")),
            "client-key-data": data(&format!("{name}.key")),
        }),
    };
    let cluster = json!({ "server": url, "certificate-authority-data": data("ca.crt") });
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "test", "cluster": cluster }],
        "users": [{ "name": "test", "user": user }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        "current-context": "test",
    });
    fs::write(path, config.to_string()).expect("write a kubeconfig");
}
