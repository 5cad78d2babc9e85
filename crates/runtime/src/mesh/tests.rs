use super::*;

#[test]
fn a_fault_of_a_certificate_is_news_once_until_it_changes_or_is_mended() {
    let metrics = Context::new().certificates;
    let fault = |problem: &str| TlsError { path: "edge.crt".into(), problem: problem.into() };
    assert!(metrics.failed("edge", &fault("expired")));
    assert!(!metrics.failed("edge", &fault("expired")));
    assert!(metrics.failed("mesh/edge", &fault("expired")));
    assert!(metrics.failed("edge", &fault("cut off")));
    metrics.works("edge");
    assert!(metrics.failed("edge", &fault("cut off")));
}
