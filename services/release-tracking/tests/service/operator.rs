//! What the operator sees of a running service.

use http::Method;
use transponder_proto::v1;
use transponder_runtime::operator::ask;

use crate::common::{Running, release};

#[tokio::test]
async fn the_operator_sees_releases_and_when_each_cluster_last_reported() {
    let running = Running::start().await;
    running.merged(release("c-1"), 0).await;
    running.clock.pass(10);
    running.observe(v1::Release { env: "staging".into(), ..release("c-2") }, v1::Phase::Failed, 9).await;
    let directory = running.mesh.data_directory();
    let get = async |target| ask(&directory, Method::GET, target).await;

    let all = get("/releases").await.unwrap();
    assert_eq!(all["releases"].as_array().unwrap().len(), 2);
    let merged = get("/releases?state=merged&app_namespace=app-shop-cicd&limit=10").await.unwrap();
    let merged = &merged["releases"];
    assert_eq!(merged[0]["chainId"], "c-1");
    assert_eq!(merged[0]["prUrl"], "https://git.example/pulls/c-1");
    assert_eq!(merged[0]["quietSince"], "2027-01-15T08:00:00Z");
    let none = get("/releases?app_namespace=app-blog-cicd").await.unwrap();
    assert_eq!(none["releases"].as_array().unwrap().len(), 0);
    let clusters = get("/clusters").await.unwrap();
    assert_eq!(clusters["clusters"][0]["cluster"], "kind-prod");
    assert_eq!(clusters["clusters"][0]["lastReportAt"], "2027-01-15T08:00:10Z");

    assert!(get("/releases?state=lost").await.unwrap_err().to_string().contains("'lost'"));
    assert!(get("/nothing").await.is_err());
    assert!(ask(&directory, Method::POST, "/releases").await.is_err());
}
