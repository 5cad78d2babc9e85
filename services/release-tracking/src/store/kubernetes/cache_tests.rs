use transponder_core::Phase;

use super::*;
use crate::{
    record::fixture::{at, observed, release},
    store::kubernetes::object::SCHEMA,
};

const LIMITS: Budgets = Budgets { app_namespace: 2, cluster: 3, store: 4 };

fn kept(chain_id: &str, version: u64, maker: Maker) -> Kept {
    let mut record = Record::new(release(chain_id), at(0));
    record.observe(&observed(1, Phase::Succeeded, 5, 5), "", at(5));
    let entry = Entry { record, maker, reported_at: Some(at(5)), version: None, schema: SCHEMA };
    let mut object = serde_json::to_value(entry.object()).unwrap();
    object["metadata"]["resourceVersion"] = version.to_string().into();
    serde_json::from_value(object).unwrap()
}

fn broken(chain_id: &str) -> Kept {
    Kept { entry: Err("it is broken".into()), ..kept(chain_id, 9, Maker::Platform) }
}

fn versions(cache: &Cache) -> Vec<String> {
    let mut all = cache.pick(|entry| entry.version.as_ref().map(|version| version.as_str().to_owned()));
    all.sort();
    all
}

fn lost() -> News<Kept> {
    News::Lost(super::super::unlisted())
}

#[test]
fn it_is_worth_nothing_before_a_list_and_less_after_a_loss() {
    let cache = Cache::default();
    assert_eq!(cache.standing(), Standing::Unlisted(None));
    cache.tell(lost());
    assert!(matches!(cache.standing(), Standing::Unlisted(Some(_))));
    cache.tell(News::All(vec![kept("a", 1, Maker::Platform)]));
    assert_eq!(cache.standing(), Standing::Live);
    cache.tell(lost());
    assert_eq!((cache.standing(), versions(&cache)), (Standing::Lost, vec!["1".to_owned()]));
    cache.tell(News::Changed(kept("a", 2, Maker::Platform)));
    assert_eq!((cache.standing(), versions(&cache)), (Standing::Live, vec!["2".to_owned()]));
}

#[test]
fn what_is_older_than_what_was_written_here_changes_nothing() {
    let cache = Cache::default();
    cache.keep(kept("a", 10, Maker::Platform));
    cache.tell(News::Changed(kept("a", 9, Maker::Platform)));
    assert_eq!(versions(&cache), ["10"]);
    cache.tell(News::Gone(kept("a", 9, Maker::Platform)));
    assert_eq!(versions(&cache), ["10"], "it was made anew since");
    cache.tell(News::Gone(kept("a", 11, Maker::Platform)));
    assert_eq!(versions(&cache), [""; 0]);
}

#[test]
fn rooms_are_counted_by_owner_as_records_come_change_and_go() {
    let cache = Cache::default();
    let stream = release("x").stream;
    let spent = |maker| cache.spent(&stream, maker, &LIMITS).map(|spent| spent.limit);
    cache.tell(News::All(vec![kept("a", 1, Maker::Platform), kept("b", 2, Maker::App)]));
    cache.keep(kept("a", 3, Maker::Platform));
    assert_eq!((spent(Maker::Platform), spent(Maker::App)), (None, None));
    cache.keep(kept("c", 4, Maker::Platform));
    assert_eq!((spent(Maker::Platform), spent(Maker::App)), (Some(2), None));
    cache.keep(kept("d", 5, Maker::App));
    assert_eq!(spent(Maker::App), Some(2));
    cache.forget(&release("c").key());
    cache.forget(&release("c").key());
    assert_eq!(spent(Maker::Platform), None);
    cache.keep(kept("e", 6, Maker::Platform));
    assert_eq!(cache.spent(&stream, Maker::App, &Budgets { app_namespace: 9, ..LIMITS }).unwrap().limit, 4);
}

#[test]
fn a_broken_object_takes_nothing_but_its_own_record() {
    let cache = Cache::default();
    cache.tell(News::All(vec![kept("a", 1, Maker::Platform), broken("b"), kept("c", 3, Maker::Platform)]));
    assert_eq!(versions(&cache), ["1", "3"]);
    cache.tell(News::Changed(broken("a")));
    assert_eq!(versions(&cache), ["3"]);
    cache.tell(News::Changed(kept("b", 10, Maker::Platform)));
    assert_eq!(versions(&cache), ["10", "3"]);
}

#[test]
fn the_last_report_of_a_cluster_is_the_latest_of_all_that_is_known() {
    let cache = Cache::default();
    let cluster = release("x").stream.cluster;
    cache.tell(News::All(vec![kept("a", 1, Maker::Platform)]));
    assert_eq!(cache.reports(), [Report { cluster: cluster.clone(), at: at(5) }]);
    cache.reported(&Report { cluster: cluster.clone(), at: at(9) }, at(9));
    cache.reported(&Report { cluster: cluster.clone(), at: at(7) }, at(10));
    // Its records may go, and it has reported all the same.
    cache.tell(News::All(Vec::new()));
    assert_eq!(cache.reports(), [Report { cluster, at: at(9) }]);
    assert_eq!((cache.forget_reports(at(9)), cache.forget_reports(at(10))), (0, 1));
    assert_eq!(cache.reports(), []);
}

#[test]
fn an_incomplete_key_means_every_record_that_has_what_it_says() {
    let mut record = Record::new(release("c-1"), at(0));
    record.git_revision = "abc".into();
    record.pr_url = "https://git.example/1".into();
    let id = |id| Wanted { id: Some(id), ..Wanted::default() };
    for fits in [
        Wanted::default(),
        id(ReleaseId::ChainId("c-1".into())),
        // A revision also means a release that its chain id names.
        id(ReleaseId::GitRevision("abc".into())),
        Wanted { pr_url: Some("https://git.example/1".into()), ..Wanted::default() },
    ] {
        assert!(matches(&fits, &record), "{fits:?}");
    }
    for other in [
        id(ReleaseId::ChainId("c-2".into())),
        id(ReleaseId::EventId("c-1".into())),
        id(ReleaseId::GitRevision("c-1".into())),
        Wanted { env: Some(transponder_core::EnvName::new("qa").unwrap()), ..Wanted::default() },
    ] {
        assert!(!matches(&other, &record), "{other:?}");
    }
}

#[test]
fn what_waits_in_a_stream_is_known_until_it_waits_no_more() {
    let cache = Cache::default();
    let stream = release("x").stream;
    let waiting = |phase, version: u64| {
        let mut kept = kept("a", version, Maker::Platform);
        let entry = kept.entry.as_mut().unwrap();
        entry.record = Record::new(release("a"), at(0));
        entry.record.observe(&observed(1, phase, 5, 5), "", at(5));
        kept
    };
    cache.tell(News::All(vec![waiting(Phase::Syncing, 1), kept("done", 2, Maker::Platform)]));
    let ids = |entries: Vec<Entry>| entries.iter().map(Entry::key).collect::<Vec<_>>();
    assert_eq!(ids(cache.waiting(&stream)), [release("a").key()]);
    cache.keep(waiting(Phase::Syncing, 3));
    assert_eq!(ids(cache.waiting(&stream)), [release("a").key()]);
    cache.keep(waiting(Phase::Failed, 4));
    assert_eq!(ids(cache.waiting(&stream)), []);
    cache.tell(News::All(vec![waiting(Phase::Syncing, 5)]));
    cache.tell(News::All(Vec::new()));
    assert_eq!(ids(cache.waiting(&stream)), []);
}

#[test]
fn a_list_is_the_truth_even_when_an_etcd_was_restored_and_counts_from_before() {
    let cache = Cache::default();
    cache.tell(News::All(vec![kept("a", 10, Maker::Platform), kept("gone", 11, Maker::Platform)]));
    cache.tell(News::All(vec![kept("a", 8, Maker::Platform), kept("b", 7, Maker::Platform)]));
    assert_eq!(versions(&cache), ["7", "8"]);
    cache.tell(News::All(Vec::new()));
    assert_eq!(versions(&cache), [""; 0]);
}
