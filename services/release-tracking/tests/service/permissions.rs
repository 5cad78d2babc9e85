//! Who may call what, and on whose records.

use tonic::{Code, Status};
use transponder_core::ServiceName;
use transponder_proto::v1;

use crate::common::{BLOG, PLATFORM, Running, SHOP, release};

/// Calls each method with a good request and answers who was refused: Put, Observe, Resolve, List, Delete.
macro_rules! refused {
    ($running:expr, $client:expr) => {{
        let mut client = $client;
        let release = Some(release("c-1"));
        let observe = $running.observation(crate::common::release("c-1"), v1::Phase::Succeeded, 1);
        let put = v1::PutRequest { release: release.clone(), ..Default::default() };
        let resolve = v1::ResolveRequest { release: release.clone(), ..Default::default() };
        [
            denied(client.put(put).await.map(drop)),
            denied(client.observe(observe).await.map(drop)),
            denied(client.resolve(resolve).await.map(drop)),
            denied(client.list(v1::ListRequest::default()).await.map(drop)),
            denied(client.delete(v1::DeleteRequest { release }).await.map(drop)),
        ]
    }};
}

fn denied(outcome: Result<(), Status>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(status) if status.code() == Code::PermissionDenied => true,
        Err(status) => panic!("{status}"),
    }
}

#[tokio::test]
async fn each_caller_may_do_what_the_table_in_the_contract_says() {
    let running = Running::start().await;
    let (yes, no) = (false, true);
    for (service, expected) in [
        (ServiceName::Edge, [no, yes, no, no, no]),
        (ServiceName::OutcomeSpan, [no, no, yes, no, no]),
        (ServiceName::Forwarder, [no; 5]),
        (ServiceName::DoraRecorder, [no; 5]),
        (ServiceName::ReleaseTracking, [no; 5]),
    ] {
        assert_eq!(refused!(running, running.peer(service)), expected, "{service}");
    }
    for account in [SHOP, PLATFORM] {
        assert_eq!(refused!(running, running.task(account)), [yes, no, yes, yes, yes], "{account}");
    }
    let nobody = running.task("app-shop-cicd/somebody").list(v1::ListRequest::default()).await;
    assert_eq!(nobody.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn another_apps_record_cannot_be_touched_and_does_not_exist() {
    let running = Running::start().await;
    running.merged(release("c-1"), 0).await;
    running.merged(v1::Release { app_namespace: "app-blog-cicd".into(), ..release("b-1") }, 0).await;
    let mut blog = running.task(BLOG);

    let foreign = Some(release("c-1"));
    for pr_url in ["", "https://git.example/pulls/c-1"] {
        let put = v1::PutRequest { release: foreign.clone(), pr_url: pr_url.into(), ..Default::default() };
        assert_eq!(blog.put(put).await.unwrap_err().code(), Code::PermissionDenied);
    }
    let delete = v1::DeleteRequest { release: foreign.clone() };
    assert_eq!(blog.delete(delete).await.unwrap_err().code(), Code::PermissionDenied);
    let list = v1::ListRequest { app_namespace: "app-shop-cicd".into(), ..Default::default() };
    assert_eq!(blog.list(list).await.unwrap_err().code(), Code::PermissionDenied);

    // Named, or found by what they share: unknown in the same words as what was never there.
    let own_words = v1::Release { app_namespace: String::new(), ..release("c-1") };
    for wanted in [release("c-1"), own_words, release("never")] {
        let resolve = v1::ResolveRequest { release: Some(wanted), ..Default::default() };
        let answer = blog.resolve(resolve).await.unwrap().into_inner();
        assert_eq!((answer.found, answer.reason.as_str(), answer.record), (false, "unknown", None));
    }
    let put = v1::PutRequest { pr_url: "https://git.example/pulls/c-1".into(), ..Default::default() };
    assert_eq!(blog.put(put).await.unwrap_err().code(), Code::NotFound);
    let page = blog.list(v1::ListRequest::default()).await.unwrap().into_inner();
    let chains: Vec<_> = page.records.into_iter().map(|r| r.release.unwrap().chain_id).collect();
    assert_eq!(chains, ["b-1"]);
    assert_eq!(running.state(&release("c-1")).await, v1::ReleaseState::Merged);
}

#[tokio::test]
async fn an_app_that_names_no_namespace_means_its_own() {
    let running = Running::start().await;
    let mut shop = running.task(SHOP);
    let own = v1::Release { app_namespace: String::new(), ..release("c-1") };
    let put = v1::PutRequest { release: Some(own.clone()), ..Default::default() };
    let record = shop.put(put).await.unwrap().into_inner().record.unwrap();
    assert_eq!(record.release.unwrap().app_namespace, "app-shop-cicd");
    let resolve = v1::ResolveRequest { release: Some(own.clone()), ..Default::default() };
    assert!(shop.resolve(resolve).await.unwrap().into_inner().found);
    assert!(shop.delete(v1::DeleteRequest { release: Some(own) }).await.unwrap().into_inner().found);

    // The platform has none of its own.
    let none = v1::Release { app_namespace: String::new(), ..release("c-1") };
    let put = v1::PutRequest { release: Some(none), ..Default::default() };
    let refused = running.task(PLATFORM).put(put).await.unwrap_err();
    assert_eq!(crate::common::field(&refused), "release.app_namespace");
}
