//! The store in trouble: an error that says so, never absence, and back again without a hand.

use std::time::Duration;

use tonic::Code;
use tonic_types::StatusExt as _;
use transponder_proto::v1;

use crate::common::{PLATFORM, Running, SHOP, release, warnings};

#[tokio::test]
async fn a_read_or_write_that_fails_is_unavailable_and_the_service_recovers() {
    let running = Running::with(|config| config.sweep_interval = Duration::from_secs(3600)).await;
    running.merged(release("c-1"), 0).await;
    wait_until(|| running.context.readiness.missing().is_empty()).await;
    let path = running.mesh.data_directory().join("tracking.db");
    let raw = rusqlite::Connection::open(path).unwrap();
    raw.execute_batch("ALTER TABLE record RENAME TO gone; ALTER TABLE probe RENAME TO gone_probe").unwrap();

    let mut platform = running.task(PLATFORM);
    let resolve = v1::ResolveRequest { release: Some(release("c-1")), ..Default::default() };
    let failed = platform.resolve(resolve.clone()).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    assert!(failed.get_error_details().retry_info().is_some());
    assert!(!failed.message().contains("gone"), "what the disk says is for the log: {failed}");
    let failed = platform.list(v1::ListRequest::default()).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    let request = running.observation(release("c-1"), v1::Phase::Failed, 0);
    let failed = running.edge().observe(request).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    wait_until(|| running.context.readiness.missing().iter().any(|(part, _)| *part == "release-tracking"))
        .await;

    raw.execute_batch("ALTER TABLE gone RENAME TO record; ALTER TABLE gone_probe RENAME TO probe").unwrap();
    wait_until(|| running.context.readiness.missing().is_empty()).await;
    assert!(platform.resolve(resolve).await.unwrap().into_inner().found);
}

#[tokio::test]
async fn a_spent_budget_says_when_to_come_again() {
    let running = Running::with(|config| config.max_records_per_cluster = 1).await;
    running.merged(release("c-1"), 0).await;
    let request = running.observation(release("c-2"), v1::Phase::Failed, 0);
    let refused = running.edge().observe(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let details = refused.get_error_details();
    assert_eq!(details.error_info().unwrap().reason, "RECORDS_BUDGET");
    assert!(details.retry_info().unwrap().retry_delay.is_some());
    let elsewhere = v1::Release { cluster: "kind-other".into(), ..release("c-2") };
    assert!(running.observe(elsewhere, v1::Phase::Failed, 0).await.found, "another cluster has room");
}

#[tokio::test]
async fn what_a_task_of_an_app_makes_takes_no_room_of_the_cluster_that_it_names() {
    let running = Running::with(|config| {
        config.max_records_per_app_namespace = 1;
        config.max_records_per_cluster = 1;
    })
    .await;
    let put = |chain: &str| v1::PutRequest { release: Some(release(chain)), ..Default::default() };
    running.task(SHOP).put(put("c-1")).await.unwrap();
    let refused = running.task(SHOP).put(put("c-2")).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::ResourceExhausted, "the Tasks' share of the app namespace app-shop-cicd holds its 1 records")
    );
    running.task(PLATFORM).put(put("c-3")).await.unwrap();
    let refused = running.edge().observe(running.observation(release("c-4"), v1::Phase::Failed, 0)).await;
    assert!(
        refused.unwrap_err().message().contains("on the cluster kind-prod"),
        "the platform's count there"
    );
    assert!(running.observe(release("c-1"), v1::Phase::Failed, 0).await.found, "what is there is taken in");
}

#[tokio::test]
async fn releases_that_find_no_room_are_one_line_of_the_log_and_not_one_each() {
    let running = Running::with(|config| config.max_records = 1).await;
    running.merged(release("c-1"), 0).await;
    warnings::collect();
    for number in 2..30 {
        let request = running.observation(release(&format!("c-{number}")), v1::Phase::Failed, 0);
        running.edge().observe(request).await.unwrap_err();
    }
    let lines = warnings::of("the store holds its 1 records");
    assert_eq!(lines.len(), 1, "{lines:?}");
}

async fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the condition did not come about");
}
