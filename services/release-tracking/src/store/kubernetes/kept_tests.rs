use kube::ResourceExt as _;
use proptest::prelude::*;
use transponder_core::EventKey;

use super::*;
use crate::{
    record::{Observation, PullRequest, fixture},
    state::State,
};

/// What may happen to a record.
#[derive(Debug, Clone)]
enum Step {
    Put(PullRequest, String),
    Observe(Observation, String),
    Supersede(Timestamp),
    FallSilent(Timestamp),
}

fn time() -> impl Strategy<Value = Timestamp> {
    // The first and the last one that a request may carry, and all between.
    (-62_135_596_800i64..253_402_207_200, 0i32..1_000_000_000)
        .prop_map(|(second, nanos)| Timestamp::new(second, nanos).unwrap())
}

fn step() -> impl Strategy<Value = Step> {
    let maybe = || proptest::option::of(time());
    let pull_request = ("(|https://git\\.example/[a-z?=,]{1,9})", maybe(), maybe(), maybe()).prop_map(
        |(url, created_at, merged_at, closed_at)| PullRequest { url, created_at, merged_at, closed_at },
    );
    let event = proptest::option::of(any::<[u8; 20]>().prop_map(EventKey::from_bytes));
    let phase = prop_oneof![
        Just(transponder_core::Phase::Syncing),
        Just(transponder_core::Phase::Succeeded),
        Just(transponder_core::Phase::Failed)
    ];
    let observation = (event, phase, time(), time()).prop_map(|(event, phase, finished_at, received_at)| {
        Observation { event, phase, finished_at, received_at }
    });
    prop_oneof![
        1 => (pull_request, "\\PC{0,9}").prop_map(|(told, revision)| Step::Put(told, revision)),
        3 => (observation, "\\PC{0,9}").prop_map(|(seen, revision)| Step::Observe(seen, revision)),
        1 => time().prop_map(Step::Supersede),
        1 => time().prop_map(Step::FallSilent),
    ]
}

fn id() -> impl Strategy<Value = ReleaseId> {
    prop_oneof![
        "\\PC{1,40}".prop_map(ReleaseId::ChainId),
        "\\PC{1,40}".prop_map(ReleaseId::GitRevision),
        "\\PC{1,40}".prop_map(ReleaseId::EventId)
    ]
}

prop_compose! {
    fn entry()(
        id in id(),
        made in time(),
        steps in proptest::collection::vec((step(), time()), 0..50),
        app in any::<bool>(),
        reported_at in proptest::option::of(time()),
    ) -> Entry {
        let mut record = Record::new(Release { id, ..fixture::release("c-1") }, made);
        for (step, now) in steps {
            match step {
                Step::Put(told, revision) => drop(record.put(&told, &revision, now)),
                Step::Observe(seen, revision) => drop(record.observe(&seen, &revision, now)),
                Step::Supersede(at) => drop(record.supersede(at, now)),
                Step::FallSilent(before) => drop(record.fall_silent(before, now)),
            }
        }
        let maker = if app { Maker::App } else { Maker::Platform };
        Entry { record, maker, reported_at, version: None, schema: SCHEMA }
    }
}

/// The object as the API server keeps it and answers it.
fn stored(entry: Entry, version: &str) -> Value {
    let mut object = serde_json::to_value(entry.object()).unwrap();
    object["metadata"]["resourceVersion"] = version.into();
    object["metadata"]["managedFields"] = json!([{ "manager": "transponder" }]);
    object
}

fn read(object: Value) -> Kept {
    serde_json::from_value(object).unwrap()
}

/// RFC 7396, as far as these patches go.
fn merge(object: &mut Value, patch: &Value) {
    let (Some(fields), Some(changes)) = (object.as_object_mut(), patch.as_object()) else {
        *object = patch.clone();
        return;
    };
    for (name, change) in changes {
        match change {
            Value::Null => drop(fields.remove(name)),
            change => merge(fields.entry(name).or_insert(Value::Null), change),
        }
    }
}

proptest! {
    #[test]
    fn a_record_reads_back_from_its_object_exactly(entry in entry()) {
        let object = stored(entry.clone(), "7");
        prop_assert!(!object.to_string().contains("null"), "{object}");
        let kept = read(object);
        prop_assert!(kept.metadata.managed_fields.is_none());
        prop_assert_eq!(kept.name_any(), entry.key().to_string());
        let read = kept.entry.unwrap();
        prop_assert_eq!(read.version.as_ref().map(Version::as_str), Some("7"));
        prop_assert_eq!(*read, Entry { version: Some(Version("7".into())), ..entry });
    }

    #[test]
    fn a_patch_turns_any_record_of_a_release_into_any_other(before in entry(), mut after in entry()) {
        after.record.release = before.record.release.clone();
        let mut object = stored(before, "7");
        // What a later version put there stays.
        object["status"]["later"] = json!({ "x": 1 });
        let patch = Entry { version: Some(Version("7".into())), ..after.clone() }.patch();
        prop_assert_eq!(&patch["metadata"], &json!({ "resourceVersion": "7" }));
        merge(&mut object, &patch);
        prop_assert_eq!(&object["status"]["later"]["x"], 1);
        let read = read(object).entry.unwrap();
        prop_assert_eq!(read.record, after.record);
        prop_assert_eq!((read.maker, read.reported_at), (after.maker, after.reported_at));
    }
}

fn plain() -> Value {
    let record = fixture::record();
    let entry = Entry { record, maker: Maker::Platform, reported_at: None, version: None, schema: SCHEMA };
    stored(entry, "7")
}

#[test]
fn an_object_that_is_broken_in_any_way_still_has_a_name() {
    type Break = fn(&mut Value);
    let breaks: [(&str, Break); 8] = [
        ("no spec", |object| drop(object.as_object_mut().unwrap().remove("spec"))),
        ("no status", |object| drop(object.as_object_mut().unwrap().remove("status"))),
        ("spec", |object| object["spec"] = json!(7)),
        ("created", |object| object["status"]["createdAt"] = json!("yesterday")),
        ("app", |object| object["spec"]["app"] = json!("Ä")),
        ("exactly one", |object| object["spec"]["eventId"] = json!("e")),
        ("maker", |object| object["status"]["maker"] = json!("nobody")),
        ("name", |object| object["spec"]["env"] = json!("staging")),
    ];
    for (what, broken) in breaks {
        let mut object = plain();
        let name = object["metadata"]["name"].clone();
        broken(&mut object);
        let kept = read(object);
        assert_eq!(kept.name(), name, "{what}");
        let problem = kept.entry.unwrap_err();
        println!("{what}: {problem}");
    }
    assert!(read(plain()).entry.is_ok());
}

#[test]
fn what_a_later_version_wrote_is_read_and_known_to_be_newer() {
    let mut object = plain();
    object["status"]["schema"] = json!(SCHEMA + 1);
    object["status"]["later"] = json!([1, 2]);
    object["status"]["state"] = json!("a state of later");
    let entry = read(object).entry.unwrap();
    assert!(entry.is_newer());
    assert_eq!(entry.record.state(), State::Expected);
}

#[test]
fn versions_are_compared_as_numbers_or_not_at_all() {
    let version = |text: &str| Version(text.into());
    assert!(version("9").is_before(&version("10")));
    assert!(!version("10").is_before(&version("9")));
    assert!(!version("9").is_before(&version("9")));
    assert!(!version("a").is_before(&version("b")) && !version("9").is_before(&version("b")));
}

#[test]
fn the_definition_demands_what_every_record_has_and_nothing_else() {
    let crd = serde_json::to_value(super::super::crd()).unwrap();
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["subresources"], Value::Null);
    let schema = &version["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(schema["spec"]["required"], json!(["app", "appNamespace", "cluster", "env"]));
    let status = ["createdAt", "maker", "observations", "schema", "state", "updatedAt"];
    assert_eq!(schema["status"]["required"], json!(status));
    let optional = schema["status"]["properties"].as_object().unwrap().keys();
    let optional: Vec<_> = optional.filter(|name| !status.contains(&name.as_str())).collect();
    let mut listed = ReleaseStatus::OPTIONAL;
    listed.sort_unstable();
    assert_eq!(optional, listed);
    assert!(!crd.to_string().contains("\"default\""), "{crd}");
    assert_eq!(crd["spec"]["group"], transponder_kubernetes::GROUP);
}
