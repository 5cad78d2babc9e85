//! The command line as an operator uses it, each test in a directory of its own.

#![expect(clippy::unwrap_used, reason = "in a test an unexpected failure should panic")]

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

struct Bench {
    directory: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// With an installation in it.
    fn installed() -> Self {
        let bench = Self::new();
        bench.ok(&["init", &bench.path("i").display().to_string()]);
        bench
    }

    fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transponder"));
        let ours = std::env::vars()
            .filter(|(name, _)| name.starts_with("TRANSPONDER_") || name.starts_with("OTEL_"));
        ours.for_each(|(name, _)| {
            command.env_remove(name);
        });
        command.args(args).current_dir(self.directory.path());
        let config = self.path("i/transponder.toml");
        if config.exists() {
            command.env("TRANSPONDER_CONFIG", config);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// stdout of a command that must succeed.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--output", "json"]].concat())).unwrap()
    }

    /// stderr of a command that must fail.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(!output.status.success(), "{args:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

const ADD: [&str; 5] = ["cluster", "add", "kind-prod", "--url", "https://relay.example:30880"];

#[test]
fn a_cluster_is_added_listed_rotated_and_removed() {
    let bench = Bench::installed();
    let ca = bench.path("i/edge/edge-ca.crt").display().to_string();
    let added = bench.json(&[&ADD[..], &["--ca", &ca, "--app-namespaces", "app-a-*,app-b-cicd"]].concat());
    let token = added["token"].as_str().unwrap();
    let file = bench.path("i/registry/secrets/cluster-kind-prod-relay-token/token");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), token);
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    assert_eq!(added["hookEnv"]["RELAY_URL"], "https://relay.example:30880/outcome/kind-prod");
    assert_eq!(added["relayOrigin"], "https://relay.example:30880");
    let manifest = added["secretManifest"].as_str().unwrap();
    for part in
        ["platform-outcome-relay-token", token, "relay-origin: https://relay.example:30880", "ca.crt: |"]
    {
        assert!(manifest.contains(part), "{part}: {manifest}");
    }

    let listed = bench.json(&["cluster", "list"]);
    assert_eq!(listed["clusters"][0]["cluster"], "kind-prod");
    assert_eq!(listed["clusters"][0]["token"], "present");
    assert_eq!(listed["clusters"][0]["appNamespaces"][1], "app-b-cicd");
    assert!(!listed.to_string().contains(token), "a listing shows no token");

    let rotated = bench.json(&["cluster", "rotate", "kind-prod"]);
    let previous = file.with_file_name("token-previous");
    assert_ne!(rotated["token"], token);
    assert_eq!(std::fs::read_to_string(&previous).unwrap(), token);
    assert!(bench.refused(&["cluster", "rotate", "kind-prod"]).contains("--finish"));
    bench.ok(&["cluster", "rotate", "kind-prod", "--finish"]);
    assert!(!previous.exists());

    bench.ok(&["cluster", "remove", "kind-prod"]);
    assert!(!file.exists());
    assert_eq!(bench.json(&["cluster", "list"])["clusters"].as_array().unwrap().len(), 0);
}

#[test]
fn a_token_is_shown_once_with_what_to_put_on_the_cluster() {
    let bench = Bench::installed();
    let shown = bench.ok(&ADD);
    for part in
        ["shown this once", "kubectl apply", "RELAY_URL=https://relay.example:30880/outcome/kind-prod"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let token = std::fs::read_to_string(bench.path("i/registry/secrets/cluster-kind-prod-relay-token/token"))
        .unwrap();
    assert_eq!(shown.matches(token.trim()).count(), 1, "{shown}");
    assert!(!shown.contains('\x1b'), "no colour in a pipe");
    assert!(bench.refused(&ADD).contains("is in the registry already"));
}

#[test]
fn a_secret_without_the_authority_that_the_edge_needs_is_warned_of_with_the_file_to_give() {
    let bench = Bench::installed();
    let ca = bench.path("i/edge/edge-ca.crt").display().to_string();
    let shown = bench.ok(&ADD);
    assert!(shown.contains("UnknownIssuer") && shown.contains(&format!("--ca {ca}")), "{shown}");
    bench.ok(&["cluster", "remove", "kind-prod"]);
    let warning = bench.json(&ADD)["warnings"][0].clone();
    assert!(warning.as_str().unwrap().contains("cluster remove kind-prod"), "{warning}");
    bench.ok(&["cluster", "remove", "kind-prod"]);
    let shown = bench.ok(&[&ADD[..], &["--ca", &ca]].concat());
    assert!(shown.contains("ca.crt: |") && !shown.contains("UnknownIssuer"), "{shown}");
    // A certificate of somebody else's: its authority is not ours to name.
    bench.ok(&["edge-certs", "--directory", "platform"]);
    std::fs::copy(bench.path("platform/edge.crt"), bench.path("i/edge/edge.crt")).unwrap();
    let shown = bench.ok(&["cluster", "add", "other", "--url", "https://relay.example"]);
    assert!(!shown.contains("UnknownIssuer"), "{shown}");
}

#[test]
fn what_is_likely_not_meant_for_a_cluster_is_said_when_it_is_added() {
    let bench = Bench::installed();
    for (number, (more, expected)) in [
        (&["--url", "http://r"][..], "plain http"),
        (&["--url", "https://r/foo"], "must take /foo away"),
        (&["--url", "https://r", "--forward-types", "dev.tekton.*"], "never accepted"),
        (&["--url", "https://r", "--app-namespaces", "App*"], "fits none"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("c{number}");
        let shown = bench.ok(&[&["cluster", "add", &name][..], more].concat());
        assert!(shown.contains(expected), "{shown}");
    }
}

#[test]
fn a_bad_cluster_is_refused_with_the_reason() {
    let bench = Bench::installed();
    for (args, reason) in [
        (&["cluster", "add", "Kind", "--url", "https://r"][..], "must be a DNS label"),
        (&["cluster", "add", "c"], "--url"),
        (&["cluster", "add", "c", "--url", "ftp://r"], "is no http or https URL"),
        (&["cluster", "add", "c", "--url", "relay:8443"], "such as https://relay"),
        (&["cluster", "list", "--registry", "nowhere"], "nowhere"),
        (&["cluster", "add", "c", "--url", "https://r/outcome/d"], "must end in /outcome/c"),
        (&["cluster", "remove", "c"], "there is no cluster c"),
        (&["cluster", "rotate", "c"], "there is no cluster c"),
        (
            &["send", "--cluster", "c", "--app-namespace", "a", "--app", "a", "--env", "e"],
            "there is no cluster c",
        ),
    ] {
        let error = bench.refused(args);
        assert!(error.contains(reason), "{args:?}: {error}");
    }
}

#[test]
fn a_configuration_error_names_the_key_and_where_it_comes_from() {
    let bench = Bench::installed();
    let file = bench.path("bad.toml");
    std::fs::write(&file, "[edge]\nlisten = \"nowhere\"\nbrust = 1\n").unwrap();
    let path = file.display().to_string();
    let error = bench.refused(&["--config", &path, "config"]);
    assert!(
        error.contains("bad.toml") && (error.contains("edge.listen") || error.contains("brust")),
        "{error}"
    );

    let error = bench.refused(&["--set", "edge.settle.failed=20", "config"]);
    assert!(error.contains("edge.settle.failed") && error.contains("flag --set"), "{error}");

    let output =
        bench.command(&["config"]).env("TRANSPONDER_RELEASE_TRACKING__SILENCE", "soon").output().unwrap();
    let error = text(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("release_tracking.silence: 'soon'"), "{error}");
    assert!(error.contains("(from variable TRANSPONDER_RELEASE_TRACKING__SILENCE)"), "{error}");

    let error = bench.refused(&["--config", "nowhere.toml", "all"]);
    assert!(error.contains("nowhere.toml"), "{error}");
}

#[test]
fn the_effective_configuration_tells_where_each_value_comes_from() {
    let bench = Bench::installed();
    let output = bench
        .command(&["config", "--output", "json", "--set", "edge.settle.failed=1s", "--log", "debug"])
        .env("TRANSPONDER_EDGE__SETTLE__MAX", "3h")
        .output()
        .unwrap();
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |key: &str| (config[key]["value"].clone(), config[key]["source"].as_str().unwrap().to_owned());
    assert_eq!(of("edge.settle.failed"), ("1s".into(), "flag --set edge.settle.failed".into()));
    assert_eq!(of("edge.settle.max").1, "variable TRANSPONDER_EDGE__SETTLE__MAX");
    assert_eq!(of("edge.settle.succeeded").1, "default");
    assert_eq!(of("log.filter"), ("debug".into(), "flag --set log.filter".into()));
    let (value, source) = of("edge.listen");
    assert_eq!(value, "127.0.0.1:8443");
    assert!(source.ends_with("transponder.toml"), "{source}");
}

#[test]
fn the_reference_is_markdown_with_every_section() {
    let reference = Bench::new().ok(&["config", "--reference"]);
    for section in
        ["[log]", "[edge]", "[edge.settle]", "[forwarder]", "[dora]", "[release_tracking]", "[outcome_span]"]
    {
        assert!(reference.contains(&format!("## `{section}`")), "{section}");
    }
}

#[test]
fn the_written_reference_is_the_one_that_is_printed() {
    let written = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let same = std::fs::read_to_string(written).unwrap() == Bench::new().ok(&["config", "--reference"]);
    assert!(same, "write it anew: cargo run -- config --reference > docs/configuration.md");
}

#[test]
fn completions_are_printed_for_each_shell() {
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef transponder"), ("fish", "complete -c transponder")]
    {
        assert!(Bench::new().ok(&["completions", shell]).contains(sign), "{shell}");
    }
}

#[test]
fn an_installation_is_made_once_and_keeps_its_secrets_private() {
    let bench = Bench::installed();
    for secret in
        ["task-token", "callers.toml", "transponder.toml", "edge/edge.key", "mesh/ca.key", "mesh/edge.key"]
    {
        assert_eq!(mode(&bench.path("i").join(secret)), 0o600, "{secret}");
    }
    assert!(bench.refused(&["init", "i"]).contains("there is an installation already"));
}

#[test]
fn certificates_are_made_for_the_names_that_are_asked_for() {
    let bench = Bench::new();
    bench.ok(&["mesh-certs", "--directory", "m", "--names", "edge.platform-system.svc"]);
    bench.ok(&["edge-certs", "--directory", "e", "--names", "relay.example,10.1.2.3"]);
    for file in ["m/ca.crt", "m/outcome-span.crt", "m/outcome-span.key", "e/edge.crt", "e/edge-ca.crt"] {
        assert!(bench.path(file).exists(), "{file}");
    }
    assert!(
        bench.refused(&["edge-certs", "--directory", "e", "--names", "not a name!"]).contains("not a name!")
    );
    assert!(
        bench
            .refused(&["mesh-certs", "--directory", "n", "--new-authority"])
            .contains("there is no n/ca.crt")
    );
}

#[test]
fn renewal_keeps_the_names_that_an_installation_was_made_for_and_says_so() {
    let bench = Bench::new();
    bench.ok(&["init", "i", "--names", "relay.dev.example,10.1.2.3"]);
    bench.ok(&["cluster", "add", "upper", "--url", "https://relay.dev.example:8443"]);
    let edge = bench.ok(&["edge-certs", "--directory", "i/edge", "--names", "new.example"]);
    assert!(
        edge.contains("edge.crt is for localhost, 127.0.0.1, ::1, new.example, relay.dev.example, 10.1.2.3"),
        "{edge}"
    );
    assert!(edge.contains("kept from the one before: relay.dev.example, 10.1.2.3"), "{edge}");
    let mesh = bench.ok(&["mesh-certs", "--directory", "i/mesh"]);
    assert!(mesh.contains("forwarder.crt is for forwarder, localhost, 127.0.0.1, ::1, relay.dev"), "{mesh}");
    let doctor = bench.ok(&["doctor", "--offline"]);
    assert!(doctor.contains("0 wrong"), "{doctor}");
}

#[test]
fn what_the_doctor_says_about_a_lost_authority_is_a_way_out() {
    let bench = Bench::installed();
    bench.ok(&["cluster", "add", "upper", "--url", "https://127.0.0.1:8443"]);
    for lost in ["mesh/ca.crt", "mesh/ca.key", "edge/edge-ca.crt", "edge/edge-ca.key"] {
        let (directory, _) = lost.split_once('/').unwrap();
        let command = format!("{directory}-certs");
        let directory = bench.path("i").join(directory);
        std::fs::remove_file(bench.path("i").join(lost)).unwrap();
        let _ = std::fs::remove_file(directory.join("edge.crt"));
        let doctor = text(&bench.run(&["doctor", "--offline"]).stdout);
        let directory = directory.display().to_string();
        let mend = [&command, "--directory", &directory, "--new-authority"];
        assert!(doctor.contains(&format!("transponder {}", mend.join(" "))), "{lost}: {doctor}");
        let refusal = bench.refused(&mend[..3]);
        assert!(refusal.contains(lost) && refusal.contains("--new-authority"), "{refusal}");
        let done = bench.ok(&mend);
        assert!(done.contains("ca.crt is new"), "{lost}: {done}");
        let doctor = bench.ok(&["doctor", "--offline"]);
        assert!(doctor.contains("0 wrong"), "{lost}: {doctor}");
    }
}

#[test]
fn the_doctor_finds_what_is_wrong_and_says_how_to_mend_it() {
    let bench = Bench::installed();
    bench.ok(&["cluster", "add", "upper", "--url", "https://127.0.0.1:8443"]);
    let well = bench.json(&["doctor", "--offline"]);
    assert_eq!(well["ok"], true, "{well:#}");
    // Soon to expire is no fault yet, and is said.
    bench.ok(&["mesh-certs", "--directory", "i/mesh", "--days", "3"]);
    let soon = bench.ok(&["doctor", "--offline"]);
    assert!(soon.contains("forwarder: expires in 2 days") && soon.contains("0 wrong"), "{soon}");
    let renew =
        |what: &str| format!("transponder {what}-certs --directory {}", bench.path("i").join(what).display());
    assert!(soon.contains(&renew("mesh")) && !soon.contains(&renew("edge")), "{soon}");
    bench.ok(&["edge-certs", "--directory", "i/edge", "--days", "3"]);
    let soon = bench.ok(&["doctor", "--offline"]);
    assert!(soon.contains("edge: expires in 2 days") && soon.contains(&renew("edge")), "{soon}");

    type Spoil = fn(&Path);
    let cases: [(Spoil, &str, &str); 6] = [
        (
            |i| std::fs::write(i.join("registry/secrets/cluster-upper-relay-token/token"), "").unwrap(),
            "token is empty",
            "cluster rotate upper",
        ),
        (|i| std::fs::remove_file(i.join("mesh/forwarder.key")).unwrap(), "forwarder", "mesh-certs"),
        (|i| std::fs::remove_file(i.join("edge/edge.crt")).unwrap(), "edge cert", "edge-certs"),
        (|i| std::fs::write(i.join("callers.toml"), "nonsense").unwrap(), "[[token]]", "correct the file"),
        (
            |i| {
                let entry = i.join("registry/cluster-registry/upper");
                let text = std::fs::read_to_string(&entry).unwrap().replace("127.0.0.1", "relay.example");
                std::fs::write(entry, text).unwrap();
            },
            "hooks call relay.example",
            "--names relay.example",
        ),
        (
            |i| {
                let config = i.join("transponder.toml");
                let text = std::fs::read_to_string(&config).unwrap().replace("listen", "lissen");
                std::fs::write(config, text).unwrap();
            },
            "lissen",
            "config --reference",
        ),
    ];
    for (spoil, what, mend) in cases {
        let bench = Bench::installed();
        bench.ok(&["cluster", "add", "upper", "--url", "https://127.0.0.1:8443"]);
        spoil(&bench.path("i"));
        let output = bench.run(&["doctor", "--offline"]);
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        assert!(shown.contains(what) && shown.contains(mend), "{what}, {mend}: {shown}");
    }
}

#[test]
fn the_doctor_names_each_secret_that_others_may_read() {
    let bench = Bench::installed();
    bench.ok(&["cluster", "add", "upper", "--url", "https://127.0.0.1:8443", "--ca", "i/edge/edge-ca.crt"]);
    bench.ok(&["cluster", "rotate", "upper"]);
    bench.ok(&["cluster", "rotate", "upper", "--finish"]);
    assert!(!bench.ok(&["doctor", "--offline"]).contains("chmod"));
    let secrets = [
        "edge/edge.key",
        "edge/edge-ca.key",
        "mesh/ca.key",
        "mesh/forwarder.key",
        "registry/secrets/cluster-upper-relay-token/token",
        "callers.toml",
    ];
    for secret in secrets {
        std::fs::set_permissions(bench.path("i").join(secret), Permissions::from_mode(0o644)).unwrap();
    }
    let doctor = bench.ok(&["doctor", "--offline"]);
    for secret in secrets {
        let mend = format!("chmod 600 {}", bench.path("i").join(secret).display());
        assert!(doctor.contains(&mend), "{mend}: {doctor}");
    }
    assert!(doctor.contains("6 to look at, 0 wrong"), "{doctor}");
}

#[test]
fn an_operator_is_told_when_no_service_runs() {
    let bench = Bench::installed();
    let error = bench.refused(&["outcomes", "list"]);
    assert!(
        error.contains("no service is running on") && error.contains("data/edge/operator.sock"),
        "{error}"
    );
    assert!(bench.refused(&["releases", "list"]).contains("data/release-tracking"));
    assert!(bench.refused(&["outcomes", "show", "xyz"]).contains("40 lower-case hex digits"));
}
