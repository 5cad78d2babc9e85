//! Silence is an outcome, too; age ends a record; neither is told by a clock that has jumped.

use transponder_proto::v1::{self, Phase, ReleaseState};

use crate::common::{PLATFORM, Running, release, time};

const DAY: u64 = 86_400;
const SILENCE: u64 = 45 * 60;

#[tokio::test]
async fn a_merge_that_no_hook_ever_reports_becomes_unreported_and_a_late_report_takes_it_back() {
    let running = Running::start().await;
    running.merged(release("c-1"), 0).await;
    assert_eq!(
        running.metric("transponder_unreported_total"),
        ["transponder_unreported_total{cluster=\"kind-prod\"} 0"]
    );
    running.clock.pass(SILENCE - 1);
    running.several_sweeps().await;
    assert_eq!(running.state(&release("c-1")).await, ReleaseState::Merged);

    running.clock.pass(1);
    running.until_state(&release("c-1"), ReleaseState::Unreported).await;
    assert_eq!(
        running.metric("transponder_unreported_total"),
        ["transponder_unreported_total{cluster=\"kind-prod\"} 1"]
    );
    let request = v1::ResolveRequest { release: Some(release("c-1")), ..Default::default() };
    let record = running.task(PLATFORM).resolve(request).await.unwrap().into_inner().record.unwrap();
    assert_eq!((record.last_phase(), record.last_finished_at), (Phase::Unspecified, None));
    assert_eq!((record.observations, record.last_observed_at), (0, None), "nothing is made up");

    running.observe(release("c-1"), Phase::Succeeded, 30).await;
    assert_eq!(running.state(&release("c-1")).await, ReleaseState::Succeeded);
    running.several_sweeps().await;
    assert_eq!(
        running.metric("transponder_releases{state=\"unreported\"}"),
        ["transponder_releases{state=\"unreported\"} 0"]
    );
}

#[tokio::test]
async fn a_sync_that_was_terminated_is_unreported_after_its_last_presync() {
    let running = Running::start().await;
    running.merged(release("c-1"), 0).await;
    running.clock.pass(SILENCE - 60);
    running.observe(release("c-1"), Phase::Syncing, 0).await;
    running.clock.pass(SILENCE - 60);
    running.several_sweeps().await;
    assert_eq!(running.state(&release("c-1")).await, ReleaseState::Progressing);
    running.clock.pass(60);
    running.until_state(&release("c-1"), ReleaseState::Unreported).await;
    // A new attempt is no outcome, but the wait is on again.
    running.observe(release("c-1"), Phase::Syncing, running.clock.second()).await;
    assert_eq!(running.state(&release("c-1")).await, ReleaseState::Progressing);
}

#[tokio::test]
async fn an_open_pull_request_and_an_outcome_are_not_silent() {
    let running = Running::start().await;
    let open = v1::PutRequest { release: Some(release("open")), ..Default::default() };
    running.task(PLATFORM).put(open).await.unwrap();
    running.observe(release("failed"), Phase::Failed, 0).await;
    running.clock.pass(DAY);
    running.several_sweeps().await;
    assert_eq!(running.state(&release("open")).await, ReleaseState::Expected);
    assert_eq!(running.state(&release("failed")).await, ReleaseState::Failed);
}

#[tokio::test]
async fn after_a_start_reports_on_their_way_are_waited_for() {
    let running = Running::start().await;
    running.merged(release("c-1"), 0).await;
    running.clock.pass(60);
    let running = running.restart().await;
    running.clock.pass(DAY);
    running.until_state(&release("c-1"), ReleaseState::Unreported).await;

    running.merged(release("c-2"), i64::try_from(DAY).unwrap() + 60).await;
    running.clock.pass(SILENCE);
    let running = running.restart().await;
    running.several_sweeps().await;
    assert_eq!(running.state(&release("c-2")).await, ReleaseState::Merged);
    running.clock.pass(360);
    running.until_state(&release("c-2"), ReleaseState::Unreported).await;
}

#[tokio::test]
async fn what_has_ended_lives_14_days_and_what_is_awaited_90() {
    let running = Running::start().await;
    running.observe(release("ended"), Phase::Succeeded, 0).await;
    let open = v1::PutRequest { release: Some(release("open")), ..Default::default() };
    running.task(PLATFORM).put(open).await.unwrap();
    let count = async || {
        let page = running.task(PLATFORM).list(v1::ListRequest::default()).await.unwrap().into_inner();
        page.records.len()
    };
    let until = async |expected| {
        for _ in 0..500 {
            if count().await == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("there are {} records, not {expected}", count().await);
    };
    running.clock.pass(14 * DAY);
    running.several_sweeps().await;
    assert_eq!(count().await, 2);
    running.clock.pass(1);
    until(1).await;
    running.clock.pass(76 * DAY - 1);
    running.several_sweeps().await;
    assert_eq!(running.state(&release("open")).await, ReleaseState::Expected);
    running.clock.pass(1);
    until(0).await;
    assert!(running.metric("transponder_releases{").iter().all(|line| line.ends_with(" 0")));
    for _ in 0..500 {
        if running.metric("transponder_cluster_last_report_timestamp_seconds{").is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("a cluster that is long gone still has a series");
}

#[tokio::test]
async fn nothing_is_swept_while_the_clocks_disagree() {
    let running = Running::start().await;
    running.observe(release("ended"), Phase::Succeeded, 0).await;
    running.merged(v1::Release { env: "staging".into(), ..release("merged") }, 0).await;
    running.clock.jump(100 * 86_400);
    running.several_sweeps().await;
    assert_eq!(running.state(&release("ended")).await, ReleaseState::Succeeded);
    let staging = v1::Release { env: "staging".into(), ..release("merged") };
    assert_eq!(running.state(&staging).await, ReleaseState::Merged);
    running.clock.jump(-100 * 86_400);
    running.clock.pass(SILENCE);
    running.until_state(&staging, ReleaseState::Unreported).await;
}

#[tokio::test]
async fn a_cluster_that_reports_is_seen_to_do_so() {
    let running = Running::start().await;
    running.observe(release("c-1"), Phase::Failed, 0).await;
    running.clock.pass(77);
    running.observe(release("c-2"), Phase::Failed, 1).await;
    let other = v1::Release { cluster: "kind-other".into(), ..release("c-2") };
    running.observe(other, Phase::Failed, 1).await;
    let line = |cluster: &str, second| {
        let at = time(second).seconds;
        format!("transponder_cluster_last_report_timestamp_seconds{{cluster=\"{cluster}\"}} {at}")
    };
    assert_eq!(
        running.metric("transponder_cluster_last_report"),
        [line("kind-other", 77), line("kind-prod", 77)]
    );
}
