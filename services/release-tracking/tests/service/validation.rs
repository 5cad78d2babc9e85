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
