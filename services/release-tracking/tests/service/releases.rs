//! The life of a release.

use std::time::Duration;

use transponder_proto::v1::{self, Phase, ReleaseState};

use crate::common::{PLATFORM, Running, SHOP, release, time};

fn resolve(release: v1::Release) -> v1::ResolveRequest {
    v1::ResolveRequest { release: Some(release), ..Default::default() }
}

#[tokio::test]
async fn a_release_goes_from_its_pull_request_to_its_outcome() {
    let running = Running::start().await;
    let mut shop = running.task(SHOP);
    let release = release("c-1");
    let url = "https://git.example/pulls/1";
    let put = v1::PutRequest {
        release: Some(release.clone()),
        pr_url: url.into(),
        pr_created_at: Some(time(-500)),
        ..Default::default()
    };
    let record = shop.put(put).await.unwrap().into_inner().record.unwrap();
    assert_eq!(record.state(), ReleaseState::Expected);
    // Named by its pull request alone.
    let merged = v1::PutRequest { pr_url: url.into(), merged_at: Some(time(0)), ..Default::default() };
    let record = shop.put(merged).await.unwrap().into_inner().record.unwrap();
    assert_eq!((record.state(), record.release.unwrap().chain_id.as_str()), (ReleaseState::Merged, "c-1"));

    running.clock.pass(100);
    let seen = running.observe(release.clone(), Phase::Syncing, 90).await;
    assert_eq!(seen.record.unwrap().state(), ReleaseState::Progressing);
    let seen = running.observe(release.clone(), Phase::Succeeded, 95).await;
    let record = seen.record.unwrap();
    assert_eq!(record.state(), ReleaseState::Succeeded);
    assert_eq!((record.pr_url.as_str(), record.pr_created_at), (url, Some(time(-500))));
    assert_eq!((record.last_phase(), record.last_finished_at), (Phase::Succeeded, Some(time(95))));
    assert_eq!((record.observations, record.last_observed_at), (2, Some(time(100))));
}

#[tokio::test]
async fn an_observation_is_noted_once_whoever_tells_of_it_how_often() {
    let running = Running::start().await;
    let release = release("c-1");
    let first = running.observe(release.clone(), Phase::Failed, 0).await.record.unwrap();
    running.clock.pass(60);
    let again = running.observe(release.clone(), Phase::Failed, 0).await.record.unwrap();
    assert_eq!(again, first);
    let seen = v1::ResolveRequest {
        phase: Phase::Failed.into(),
        finished_at: Some(time(0)),
        ..resolve(release.clone())
    };
    for _ in 0..2 {
        let told = running.task(SHOP).resolve(seen.clone()).await.unwrap().into_inner();
        assert_eq!(told.record.unwrap(), first);
    }
    // What the edge has not told yet is noted from the Task, and once.
    let ahead = v1::ResolveRequest { phase: Phase::Succeeded.into(), finished_at: Some(time(50)), ..seen };
    let told = running.task(SHOP).resolve(ahead).await.unwrap().into_inner().record.unwrap();
    assert_eq!((told.state(), told.observations), (ReleaseState::Succeeded, 2));
    let edge = running.observe(release, Phase::Succeeded, 50).await.record.unwrap();
    assert_eq!(edge, told);
}

#[tokio::test]
async fn one_flow_to_two_environments_keeps_two_records() {
    let running = Running::start().await;
    let staging = v1::Release { env: "staging".into(), cluster: "kind-staging".into(), ..release("c-1") };
    running.merged(release("c-1"), 0).await;
    running.merged(staging.clone(), 0).await;
    running.observe(staging.clone(), Phase::Failed, 1).await;
    assert_eq!(running.state(&staging).await, ReleaseState::Failed);
    assert_eq!(running.state(&release("c-1")).await, ReleaseState::Merged);

    let mut shop = running.task(SHOP);
    let flow = v1::Release { chain_id: "c-1".into(), ..Default::default() };
    let answer = shop.resolve(resolve(flow.clone())).await.unwrap().into_inner();
    assert_eq!((answer.found, answer.reason.as_str()), (false, "ambiguous"));
    let at_staging = v1::Release { cluster: "kind-staging".into(), ..flow };
    let answer = shop.resolve(resolve(at_staging)).await.unwrap().into_inner();
    assert_eq!(answer.record.unwrap().release.unwrap().env, "staging");

    // The pull request alone does not say which, with the environment it does.
    let url = "https://git.example/pulls/c-1";
    let put = v1::PutRequest { pr_url: url.into(), ..Default::default() };
    let refused = shop.put(put.clone()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
    let prod = v1::Release { env: "prod".into(), ..Default::default() };
    let record = shop.put(v1::PutRequest { release: Some(prod), ..put }).await.unwrap().into_inner().record;
    assert_eq!(record.unwrap().release.unwrap().cluster, "kind-prod");
}

#[tokio::test]
async fn the_second_outcome_of_a_release_still_finds_its_pull_request() {
    let running = Running::start().await;
    running.merged(release("c-1"), 0).await;
    for (phase, finished) in [(Phase::Failed, 1), (Phase::Succeeded, 2)] {
        let seen = running.observe(release("c-1"), phase, finished).await;
        assert_eq!(seen.record.unwrap().pr_created_at, Some(time(-1000)));
        let told = running.task(SHOP).resolve(resolve(release("c-1"))).await.unwrap().into_inner();
        assert_eq!(told.record.unwrap().pr_url, "https://git.example/pulls/c-1");
    }
}

#[tokio::test]
async fn what_is_blank_or_unknown_is_not_found_and_no_error() {
    let running = Running::start().await;
    running.merged(release("c-1"), 0).await;
    let mut platform = running.task(PLATFORM);
    // The names of a stream alone name no release: its only record may be that of another one.
    for blank in [v1::Release::default(), release("")] {
        let answer = platform.resolve(resolve(blank)).await.unwrap().into_inner();
        assert_eq!((answer.found, answer.reason.as_str(), answer.record), (false, "blank", None));
    }
    let answer = platform.resolve(v1::ResolveRequest::default()).await.unwrap().into_inner();
    assert_eq!(answer.reason, "blank");
    for unknown in [release("c-2"), v1::Release { env: "staging".into(), ..release("c-1") }] {
        let seen = v1::ResolveRequest {
            phase: Phase::Failed.into(),
            finished_at: Some(time(0)),
            ..resolve(unknown)
        };
        let answer = platform.resolve(seen).await.unwrap().into_inner();
        assert_eq!((answer.found, answer.reason.as_str()), (false, "unknown"));
    }
    let all = platform.list(v1::ListRequest::default()).await.unwrap().into_inner();
    assert_eq!(all.records.len(), 1, "looking for a release makes no record");
}

#[tokio::test]
async fn releases_without_chain_id_and_revision_never_collapse_into_one() {
    let running = Running::start().await;
    let event = |id: &str| v1::Release { event_id: id.into(), ..release("") };
    let presync = running.observe(event("e-0"), Phase::Syncing, 0).await;
    assert_eq!((presync.found, presync.record), (false, None));
    let nameless = running.observe(release(""), Phase::Syncing, 0).await;
    assert!(!nameless.found);
    for id in ["e-1", "e-2"] {
        let seen = running.observe(event(id), Phase::Failed, 0).await.record.unwrap();
        assert_eq!((seen.observations, seen.release.unwrap().event_id.as_str()), (1, id));
    }
    // A revision does set one apart, from its PreSync on.
    let revision = v1::Release { git_revision: "abc".into(), ..release("") };
    assert!(running.observe(revision, Phase::Syncing, 0).await.found);
    assert!(!running.metric("transponder_cluster_last_report_timestamp_seconds{").is_empty());
}

#[tokio::test]
async fn a_revision_finds_the_release_that_its_chain_id_names() {
    let running = Running::start().await;
    let both = v1::Release { git_revision: "abc".into(), ..release("c-1") };
    running.observe(both, Phase::Succeeded, 0).await;
    let by_revision = v1::Release { git_revision: "abc".into(), ..release("") };
    let answer = running.task(SHOP).resolve(resolve(by_revision)).await.unwrap().into_inner();
    assert_eq!(answer.record.unwrap().release.unwrap().chain_id, "c-1");
}

/// A sweep that read its count before a change sets it after: the gauge is right again only with the next.
async fn without_sweeps() -> Running {
    Running::with(|config| config.sweep_interval = Duration::from_secs(3600)).await
}

#[tokio::test]
async fn a_later_release_supersedes_what_was_waited_for_and_a_late_report_reopens_it() {
    let running = without_sweeps().await;
    running.merged(release("old"), 0).await;
    running.merged(release("open"), 0).await;
    running.clock.pass(10);
    running.merged(release("new"), 5).await;
    running.observe(release("new"), Phase::Syncing, 10).await;
    assert_eq!(running.state(&release("old")).await, ReleaseState::Superseded);
    assert_eq!(
        running.metric("transponder_releases{state=\"superseded\"}"),
        ["transponder_releases{state=\"superseded\"} 2"]
    );
    running.clock.pass(10);
    running.observe(release("old"), Phase::Failed, 4).await;
    assert_eq!(running.state(&release("old")).await, ReleaseState::Failed);
}

#[tokio::test]
async fn a_restart_keeps_everything() {
    let running = without_sweeps().await;
    running.merged(release("c-1"), 0).await;
    running.observe(release("c-1"), Phase::Syncing, 0).await;
    running.merged(release("c-2"), 0).await;
    let list = v1::ListRequest::default();
    let before = running.task(PLATFORM).list(list.clone()).await.unwrap().into_inner();
    let releases = running.metric("transponder_releases");
    let reported = running.metric("transponder_cluster_last_report");
    assert_eq!(
        reported,
        [format!(
            "transponder_cluster_last_report_timestamp_seconds{{cluster=\"kind-prod\"}} {}",
            time(0).seconds
        )]
    );

    let running = running.restart().await;
    let after = running.task(PLATFORM).list(list).await.unwrap().into_inner();
    assert_eq!(after, before);
    assert_eq!(running.metric("transponder_releases"), releases);
    assert_eq!(running.metric("transponder_cluster_last_report"), reported);
    let again = running.observe(release("c-1"), Phase::Syncing, 0).await.record.unwrap();
    assert_eq!(again.observations, 1, "what was observed before the restart is known");
}

#[tokio::test]
async fn a_list_is_paged_and_its_tokens_are_its_own() {
    let running = Running::start().await;
    for n in 0..7 {
        running.merged(release(&format!("c-{n}")), 0).await;
        running.clock.pass(1);
    }
    let mut platform = running.task(PLATFORM);
    let (mut chains, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListRequest { page_size: 3, page_token, ..Default::default() };
        let page = platform.list(request).await.unwrap().into_inner();
        chains.extend(page.records.into_iter().map(|r| r.release.unwrap().chain_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
        let states = vec![ReleaseState::Failed.into()];
        let other = v1::ListRequest { states, page_token: page_token.clone(), ..Default::default() };
        assert_eq!(crate::common::field(&platform.list(other).await.unwrap_err()), "page_token");
    }
    assert_eq!(chains, ["c-6", "c-5", "c-4", "c-3", "c-2", "c-1", "c-0"]);
}
