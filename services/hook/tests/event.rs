//! What is built is what DESIGN §4 says, and what the edge accepts.
#![expect(clippy::unwrap_used, reason = "a helper of tests fails the test")]

mod support;

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use support::{Hook, TOKEN};
use transponder_core::{Event, Phase, Timestamp};
use transponder_hook::{
    config::{Config, MAX_CONFIG_JSON},
    event::{self, attempt, build},
    vars::Vars,
};

fn now() -> Timestamp {
    "2026-09-14T10:00:00.0429Z".parse().unwrap()
}

fn load(changes: &[(&str, &str)]) -> Config {
    let mut hook = Hook::to("https://relay.example/outcome/kind-prod");
    for (name, value) in changes {
        hook.set(name, value);
    }
    Config::load(&hook.vars().collect::<Vars>(), now()).unwrap()
}

fn built(config: &Config) -> event::Built {
    build(&config.fields, &config.attempt).unwrap()
}

#[test]
fn an_event_has_exactly_the_keys_of_the_contract_in_their_order() {
    let config = load(&[
        ("GIT_URL", "https://git.example/shop"),
        ("GITOPS_REVISION", "1234567"),
        ("FLOW_START_TIME", "2026-09-14T09:00:00Z"),
        ("CONFIG_JSON_B64", &STANDARD.encode(r#"{"a":"b"}"#)),
    ]);
    let built = built(&config);
    let source = "/platform-cicd/app-shop-cicd/kind-prod-shop-prod-outcome";
    let expected = format!(
        concat!(
            r#"{{"context":{{"version":"0.4.1","id":"{id}","source":"{source}","#,
            r#""type":"dev.cdevents.environment.deployed.0.1.0","timestamp":"2026-09-14T10:00:00.042Z","#,
            r#""chainId":"chain-1"}},"subject":{{"id":"{source}","source":"{source}","type":"environment","#,
            r#""content":{{"appNamespace":"app-shop-cicd","appName":"shop","env":"prod","cluster":"kind-prod","#,
            r#""phase":"Succeeded","outcome":"success","status":"Succeeded","revision":"1234567","#,
            r#""gitUrl":"https://git.example/shop","gitRevision":"abcdef0","#,
            r#""flowStartTime":"2026-09-14T09:00:00Z","finishedAt":"2026-09-14T10:00:00.042Z","#,
            r#""prUrl":"","prCreatedAt":"","configJson":"{{\"a\":\"b\"}}"}}}},"#,
            r#""customData":{{"platform":{{"traceparent":"","flow_start_time":"2026-09-14T09:00:00Z","#,
            r#""config_json":"{{}}"}}}},"customDataContentType":"application/json"}}"#
        ),
        id = built.id,
        source = source,
    );
    assert_eq!(String::from_utf8(built.body).unwrap(), expected);
}

#[test]
fn an_unknown_value_is_an_empty_string_and_no_key_is_missing() {
    let minimal = load(&[("CHAIN_ID", ""), ("GIT_REVISION", "")]);
    let event: serde_json::Value = serde_json::from_slice(&built(&minimal).body).unwrap();
    for path in [
        "/context/chainId",
        "/subject/content/revision",
        "/subject/content/gitUrl",
        "/subject/content/gitRevision",
        "/subject/content/flowStartTime",
        "/subject/content/prUrl",
        "/subject/content/prCreatedAt",
        "/customData/platform/traceparent",
        "/customData/platform/flow_start_time",
    ] {
        assert_eq!(event.pointer(path), Some(&"".into()), "{path}");
    }
    assert_eq!(event.pointer("/subject/content/configJson"), Some(&"{}".into()));
}

/// Pinned: an id that depends on the program's version doubles every event at an upgrade. The expected ones come from
/// `printf '%s' '<source>:<type>:<attempt>' | sha256sum | cut -c1-20`.
#[test]
fn the_vectors_of_the_id_never_change() {
    for (phase, attempt, expected) in VECTORS {
        let mut fields = load(&[]).fields;
        fields.phase = phase;
        assert_eq!(build(&fields, attempt).unwrap().id, expected, "{phase} {attempt}");
    }
}

const VECTORS: [(Phase, &str, &str); 3] = [
    (Phase::Succeeded, "platform-outcome-abcdef0-postsync-1789380000", "671fdc05f3f53dcd7153"),
    (Phase::Failed, "uid-1", "68e6b120557d123fc9f5"),
    (Phase::Syncing, "Syncing-2026-09-14T10:00:00.042Z", "c569389226c36b99df69"),
];

#[test]
fn the_attempt_is_the_jobs_name_else_its_uid_else_the_time() {
    let named = "platform-outcome-abcdef0-postsync-1789380000";
    let at = "Succeeded-2026-09-14T10:00:00.042Z";
    for (name, uid, expected) in [
        (Some(named), Some("uid"), named),
        (Some("x-presync-1789380000"), None, "x-presync-1789380000"),
        (Some("x-syncfail-1789380000"), Some("uid"), "x-syncfail-1789380000"),
        (Some("platform-outcome-postsync"), Some("uid"), "uid"),
        (Some("x-postsync-1"), Some("uid"), "uid"),
        (Some("x-postsync-1789380000-0"), Some("uid"), "uid"),
        (Some("x-postsync-178938000a"), Some("uid"), "uid"),
        (Some("x-mypostsync-1789380000"), Some("uid"), "uid"),
        (Some("x-sync-1789380000"), Some("uid"), "uid"),
        (Some("1789380000"), Some("uid"), "uid"),
        (Some("platform-outcome-postsync"), None, at),
        (None, Some("uid"), "uid"),
        (None, None, at),
    ] {
        assert_eq!(attempt(name, uid, Phase::Succeeded, now()), expected, "{name:?} {uid:?}");
    }
}

#[test]
fn every_phase_is_accepted_by_the_edge() {
    for (text, phase) in [
        ("Syncing", Phase::Syncing),
        ("Succeeded", Phase::Succeeded),
        ("Failed", Phase::Failed),
        ("Error", Phase::Failed),
    ] {
        let event = Event::parse(&built(&load(&[("PHASE", text)])).body).unwrap();
        let report = event.report.unwrap();
        assert_eq!((report.phase, report.chain_id.as_str()), (phase, "chain-1"));
        assert_eq!(report.finished_at.to_string(), "2026-09-14T10:00:00.042Z");
    }
}

#[test]
fn hostile_values_of_optional_variables_never_make_the_edge_refuse_the_outcome() {
    let long = "x".repeat(100_000);
    let hostile = [
        "\"},\"context\":{\"id\":\"forged\"}",
        "line\r\nX-Header: forged",
        "\0\u{1}\u{7f}",
        "\\ud800 \\u0000 \\",
        "$(tt.params.other)",
        "$$(tt.params.y)",
        "'; rm -rf / #",
        "\u{feff}\u{202e}\u{1f600}",
        "null",
        &long,
    ];
    let names =
        ["GIT_URL", "GIT_REVISION", "GITOPS_REVISION", "FLOW_START_TIME", "CHAIN_ID", "JOB_NAME", "JOB_UID"];
    for value in hostile {
        for phase in ["Syncing", "Succeeded", "Failed"] {
            for name in names {
                let body = built(&load(&[("PHASE", phase), (name, value)])).body;
                let event = Event::parse(&body).unwrap_or_else(|e| panic!("{name}={value:.40}: {e}"));
                assert_ne!(event.id, "forged");
            }
        }
        let encoded = STANDARD.encode(serde_json::json!({ "key": value }).to_string());
        let config = load(&[("CONFIG_JSON_B64", &encoded)]);
        Event::parse(&built(&config).body).unwrap();
    }
}

#[test]
fn a_value_that_fits_travels_unchanged_and_one_that_does_not_is_named() {
    let text = "a\"b\\c\u{1f600}\n'$(x)";
    let config = load(&[("GIT_REVISION", text)]);
    assert_eq!(Event::parse(&built(&config).body).unwrap().report.unwrap().git_revision, text);
    assert!(config.warnings.is_empty());
    let config = load(&[("GIT_REVISION", "$(tt.params.x)"), ("GIT_URL", &"x".repeat(1025))]);
    let named: Vec<_> = config.warnings.iter().map(|warning| warning.variable.as_str()).collect();
    assert_eq!(named, ["GIT_URL", "GIT_REVISION"]);
}

#[test]
fn the_configuration_is_a_json_object_or_empty() {
    let largest = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_CONFIG_JSON - 8));
    assert_eq!(largest.len(), MAX_CONFIG_JSON);
    let too_large = format!("{largest} ");
    let wrapped = STANDARD.encode(r#"{"wrapped":"by base64, which breaks lines"}"#);
    let wrapped = format!("{}\n{}\n", &wrapped[..20], &wrapped[20..]);
    for (encoded, expected) in [
        (STANDARD.encode(r#"{"a":[1e400,"\""]}"#), Some(r#"{"a":[1e400,"\""]}"#)),
        (STANDARD.encode(" {}\n"), Some(" {}\n")),
        (STANDARD.encode("{}").replace('=', ""), Some("{}")),
        (wrapped, Some(r#"{"wrapped":"by base64, which breaks lines"}"#)),
        (STANDARD.encode(&largest), Some(largest.as_str())),
        (STANDARD.encode(&too_large), None),
        (STANDARD.encode("[]"), None),
        (STANDARD.encode("\"{}\""), None),
        (STANDARD.encode("{} {}"), None),
        (STANDARD.encode("{"), None),
        (STANDARD.encode(" "), None),
        (STANDARD.encode([b'{', b'"', 0xff, b'"', b':', b'1', b'}']), None),
        (STANDARD.encode("\u{feff}{}"), None),
        ("{}".to_owned(), None),
        (format!("**{TOKEN}"), None),
    ] {
        let config = load(&[("CONFIG_JSON_B64", &encoded)]);
        let shown = &encoded[..encoded.len().min(60)];
        assert_eq!(config.fields.config_json, expected.unwrap_or("{}"), "{shown}");
        let warned = config.warnings.iter().any(|warning| warning.variable == "CONFIG_JSON_B64");
        assert_eq!(warned, expected.is_none(), "{shown}");
        assert!(!format!("{:?}", config.warnings).contains(TOKEN), "{shown}");
        Event::parse(&built(&config).body).unwrap();
    }
}

proptest! {
    // A failing text is printed; files beside the sources are not wanted.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_text_travels_unchanged_or_is_left_out_with_a_warning(text in any::<String>(), job in any::<String>()) {
        let mut hook = Hook::to("https://relay.example/outcome/kind-prod");
        hook.set("CHAIN_ID", &text);
        hook.set("GIT_REVISION", &text);
        hook.set("JOB_NAME", &job);
        let config = Config::load(&hook.vars().collect::<Vars>(), now()).unwrap();
        let report = Event::parse(&built(&config).body).unwrap().report.unwrap();
        prop_assert_eq!(&report.chain_id, &report.git_revision);
        prop_assert!(report.chain_id == text || (report.chain_id.is_empty() && config.warnings.len() == 2));
    }
}
