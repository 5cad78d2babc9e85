//! What is refused, and that the field is named.

use prost_types::Timestamp as ProtoTime;
use transponder_proto::v1;

use crate::common::{PLATFORM, Running, field, release, time};

#[tokio::test]
async fn an_empty_request_is_refused_where_something_is_required() {
    let running = Running::start().await;
    let mut platform = running.task(PLATFORM);
    assert_eq!(field(&platform.put(v1::PutRequest::default()).await.unwrap_err()), "release");
    assert_eq!(field(&platform.delete(v1::DeleteRequest::default()).await.unwrap_err()), "release");
    let observe = running.edge().observe(v1::ObserveRequest::default()).await;
    assert_eq!(field(&observe.unwrap_err()), "release");
    assert!(platform.resolve(v1::ResolveRequest::default()).await.is_ok());
    assert!(platform.list(v1::ListRequest::default()).await.is_ok());
}

#[tokio::test]
async fn a_put_names_the_field_that_is_wrong() {
    let running = Running::start().await;
    let good = v1::PutRequest { release: Some(release("c-1")), ..Default::default() };
    let url = |url: &str| v1::PutRequest { pr_url: url.into(), ..good.clone() };
    let named = |release| v1::PutRequest { release: Some(release), ..Default::default() };
    let both = v1::PutRequest { merged_at: Some(time(0)), closed_at: Some(time(0)), ..good.clone() };
    let event_alone = v1::Release { event_id: "e".into(), ..release("") };
    for (request, expected) in [
        (url("ftp://git.example/1"), "pr_url"),
        (url(&format!("https://git.example/{}", "x".repeat(2048))), "pr_url"),
        (both, "closed_at"),
        (v1::PutRequest { merged_at: Some(ProtoTime::default()), ..good.clone() }, "merged_at"),
        (named(v1::Release { app_name: "A".into(), ..release("c-1") }), "release.app_name"),
        (named(v1::Release { env: String::new(), ..release("c-1") }), "release.env"),
        (named(release("")), "release.chain_id"),
        (named(event_alone), "release.chain_id"),
        (named(release(&"x".repeat(1025))), "release.chain_id"),
    ] {
        let status = running.task(PLATFORM).put(request).await.unwrap_err();
        assert_eq!(field(&status), expected, "{status}");
    }
    let list = running.task(PLATFORM).list(v1::ListRequest::default()).await.unwrap().into_inner();
    assert!(list.records.is_empty(), "nothing was stored");
    let unknown = v1::PutRequest { pr_url: "https://git.example/9".into(), ..Default::default() };
    let status = running.task(PLATFORM).put(unknown).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn an_observation_names_the_field_that_is_missing_or_wrong() {
    let running = Running::start().await;
    let good = running.observation(release("c-1"), v1::Phase::Succeeded, 0);
    type Break = fn(&mut v1::ObserveRequest);
    let broken: [(Break, &str); 8] = [
        (|r| r.phase = 0, "phase"),
        (|r| r.phase = 9, "phase"),
        (|r| r.finished_at = None, "finished_at"),
        (|r| r.received_at = None, "received_at"),
        (|r| r.event_key = String::new(), "event_key"),
        (|r| r.event_key = "F".repeat(40), "event_key"),
        (|r| r.release.as_mut().unwrap().cluster = String::new(), "release.cluster"),
        (|r| r.release.as_mut().unwrap().chain_id = String::new(), "release.chain_id"),
    ];
    for (break_it, expected) in broken {
        let mut request = good.clone();
        break_it(&mut request);
        let status = running.edge().observe(request).await.unwrap_err();
        assert_eq!(field(&status), expected, "{status}");
    }
}

#[tokio::test]
async fn a_look_up_and_a_list_name_the_field_that_is_wrong() {
    let running = Running::start().await;
    let mut platform = running.task(PLATFORM);
    let phase = v1::Phase::Failed.into();
    for (request, expected) in [
        (v1::ResolveRequest { phase, ..Default::default() }, "finished_at"),
        (v1::ResolveRequest { phase: 7, ..Default::default() }, "phase"),
        (
            v1::ResolveRequest {
                release: Some(v1::Release { env: "-".into(), ..Default::default() }),
                ..Default::default()
            },
            "release.env",
        ),
    ] {
        assert_eq!(field(&platform.resolve(request).await.unwrap_err()), expected);
    }
    for (request, expected) in [
        (v1::ListRequest { page_size: 1001, ..Default::default() }, "page_size"),
        (v1::ListRequest { states: vec![99], ..Default::default() }, "states"),
        (v1::ListRequest { page_token: "x".into(), ..Default::default() }, "page_token"),
        (v1::ListRequest { app_namespace: "A".into(), ..Default::default() }, "app_namespace"),
    ] {
        assert_eq!(field(&platform.list(request).await.unwrap_err()), expected);
    }
}

/// Seconds and nanoseconds that are no time between 1970 and 2261.
const NO_TIMES: [(i64, i32); 11] = [
    (i64::MIN, 0),
    (i64::MIN, i32::MIN),
    (-62_135_596_800, 0),
    (-1, 0),
    (0, 0),
    (1, -1),
    (1, 1_000_000_000),
    (1, i32::MAX),
    (9_183_110_400, 0),
    (253_402_300_799, 999_999_999),
    (i64::MAX, i32::MAX),
];

#[tokio::test]
async fn a_time_that_nobody_can_mean_is_refused_by_its_field() {
    let running = Running::start().await;
    let mut platform = running.task(PLATFORM);
    for (seconds, nanos) in NO_TIMES {
        let no_time = Some(ProtoTime { seconds, nanos });
        let put = v1::PutRequest { release: Some(release("c-1")), ..Default::default() };
        for (request, expected) in [
            (v1::PutRequest { pr_created_at: no_time, ..put.clone() }, "pr_created_at"),
            (v1::PutRequest { merged_at: no_time, ..put.clone() }, "merged_at"),
            (v1::PutRequest { closed_at: no_time, ..put.clone() }, "closed_at"),
        ] {
            assert_eq!(field(&platform.put(request).await.unwrap_err()), expected, "{no_time:?}");
        }
        let observe = running.observation(release("c-1"), v1::Phase::Succeeded, 0);
        for (request, expected) in [
            (v1::ObserveRequest { finished_at: no_time, ..observe.clone() }, "finished_at"),
            (v1::ObserveRequest { received_at: no_time, ..observe.clone() }, "received_at"),
        ] {
            assert_eq!(field(&running.edge().observe(request).await.unwrap_err()), expected, "{no_time:?}");
        }
        let phase = v1::Phase::Failed.into();
        let resolve = v1::ResolveRequest { release: Some(release("c-1")), phase, finished_at: no_time };
        assert_eq!(field(&platform.resolve(resolve).await.unwrap_err()), "finished_at", "{no_time:?}");
    }
    let list = platform.list(v1::ListRequest::default()).await.unwrap().into_inner();
    assert!(list.records.is_empty(), "nothing was stored");
}

#[tokio::test]
async fn the_first_and_the_last_time_that_are_taken_break_nothing_in_any_combination() {
    let running = Running::start().await;
    let mut platform = running.task(PLATFORM);
    let ends = [(1, 0), (9_183_110_399, 999_999_999)];
    for number in 0..8_usize {
        let pick = |bit: usize| {
            let (seconds, nanos) = ends[number >> bit & 1];
            Some(ProtoTime { seconds, nanos })
        };
        let named = Some(release(&format!("c-{number}")));
        for (merged_at, closed_at) in [(pick(1), None), (None, pick(2))] {
            let put = v1::PutRequest {
                release: named.clone(),
                pr_created_at: pick(0),
                merged_at,
                closed_at,
                ..Default::default()
            };
            platform.put(put).await.unwrap();
        }
        let (phase, finished_at) = (v1::Phase::Syncing.into(), pick(0));
        let resolve = v1::ResolveRequest { release: named.clone(), phase, finished_at };
        assert!(platform.resolve(resolve).await.unwrap().into_inner().found);
        for phase in [v1::Phase::Syncing, v1::Phase::Failed, v1::Phase::Succeeded] {
            let observe = v1::ObserveRequest {
                finished_at: pick(1),
                received_at: pick(2),
                ..running.observation(release(&format!("c-{number}")), phase, 0)
            };
            assert!(running.edge().observe(observe).await.unwrap().into_inner().found);
        }
    }
    running.several_sweeps().await;
    let mut listed = 0;
    let mut page_token = String::new();
    loop {
        let request = v1::ListRequest { page_size: 3, page_token, ..Default::default() };
        let page = platform.list(request).await.unwrap().into_inner();
        listed += page.records.len();
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, 8);
}
