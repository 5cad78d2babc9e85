//! Calls by the real grpcurl, as a Task or a part of the mesh makes them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

pub use tonic::Code;

use crate::{Mesh, Ran, Run};

/// grpcurl ends with the status code of the call and this (its `statusCodeOffset`).
const OFFSET: i32 = 64;

/// A call of one service of a mesh in the making.
#[derive(Debug)]
pub struct GrpcCall {
    tool: &'static str,
    address: String,
    arguments: Vec<String>,
    token: Option<String>,
}

impl Mesh {
    /// A call of `part`: `forwarder`, `dora-recorder`, `release-tracking` or `outcome-span`. Nobody makes it yet.
    #[must_use]
    pub fn grpc(&self, part: &str) -> GrpcCall {
        let ca = self.path("mesh/ca.crt").display().to_string();
        GrpcCall {
            tool: "grpcurl",
            address: self.address(part).to_string(),
            arguments: vec!["-max-time".into(), "20".into(), "-cacert".into(), ca],
            token: None,
        }
    }

    /// The certificate of a service.
    #[must_use]
    pub fn certificate(&self, service: &str) -> PathBuf {
        self.path(&format!("mesh/{service}.crt"))
    }

    /// Adds a Task's token for a ServiceAccount, `<namespace>/<name>`, and answers it. It works from the next start on,
    /// or seconds later.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub fn add_task(&self, account: &str) -> String {
        let token = format!("token-of-{}-0123456789", account.replace('/', "-"));
        let path = self.path("callers.toml");
        let before = fs::read_to_string(&path).expect("the file of Tasks' tokens");
        let entry = format!("{before}\n[[token]]\naccount = \"{account}\"\ntoken = \"{token}\"\n");
        fs::write(path, entry).expect("write the file of Tasks' tokens");
        token
    }
}

impl GrpcCall {
    /// With the older grpcurl, which speaks reflection v1alpha only.
    #[must_use]
    pub fn v1alpha(mut self) -> Self {
        self.tool = "grpcurl-v1alpha";
        self
    }

    /// By who holds the certificate of this path; its key lies beside it.
    #[must_use]
    pub fn certificate(self, path: &Path) -> Self {
        let key = path.with_extension("key").display().to_string();
        self.with(&["-cert", &path.display().to_string(), "-key", &key])
    }

    /// By a Task with this token, which stands in the environment and not among the arguments.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self.with(&["-expand-headers", "-H", "authorization: Bearer ${TOKEN}"])
    }

    /// With our own description of the services, so that nothing is asked of the server but the call itself.
    #[must_use]
    pub fn described(self) -> Self {
        let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto").display().to_string();
        let mut call = self.with(&["-import-path", &protos]);
        for file in ["forwarder", "dora_recorder", "release_tracking", "outcome_span"] {
            call = call.with(&["-proto", &format!("transponder/v1/{file}.proto")]);
        }
        call
    }

    /// With further options.
    #[must_use]
    pub fn with(mut self, options: &[&str]) -> Self {
        self.arguments.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// Calls a method, named as `Forwarder/Forward`, or in full.
    pub async fn call(self, method: &str, request: &Value) -> Ran {
        let method =
            if method.contains('.') { method.to_owned() } else { format!("transponder.v1.{method}") };
        self.with(&["-d", "@"]).run(&[&method], &request.to_string()).await
    }

    /// Asks for what reflection tells: `list` or `describe`, and of what.
    pub async fn ask(self, question: &[&str]) -> Ran {
        self.run(question, "").await
    }

    async fn run(self, last: &[&str], stdin: &str) -> Ran {
        let mut run = Run::tool(self.tool).args(&self.arguments).args([&self.address]).args(last);
        if let Some(token) = &self.token {
            run = run.env("TOKEN", token);
        }
        run.stdin(stdin).run().await
    }
}

impl Ran {
    /// The status code that grpcurl was answered; `None` when the call never came to an answer.
    #[must_use]
    pub fn grpc_code(&self) -> Option<Code> {
        match self.code? {
            0 => Some(Code::Ok),
            code if code > OFFSET => Some(Code::from_i32(code - OFFSET)),
            _ => None,
        }
    }
}

/// The fields that a status's `BadRequest` names, and its message, of a call with `-format-error`.
///
/// # Panics
///
/// When standard error holds no status in JSON.
#[must_use]
pub fn details(ran: &Ran) -> (Vec<String>, String) {
    let start = ran.stderr.find('{').unwrap_or_else(|| panic!("no status: {}", ran.stderr));
    let status: Value = serde_json::from_str(&ran.stderr[start..])
        .unwrap_or_else(|error| panic!("no status ({error}): {}", ran.stderr));
    let message = status["message"].as_str().unwrap_or_default().to_owned();
    let details = status["details"].as_array().into_iter().flatten();
    let fields = details
        .filter(|detail| detail["@type"].as_str().is_some_and(|t| t.ends_with("google.rpc.BadRequest")));
    let violations =
        fields.flat_map(|detail| detail["fieldViolations"].as_array().cloned().unwrap_or_default());
    (violations.filter_map(|violation| violation["field"].as_str().map(str::to_owned)).collect(), message)
}
