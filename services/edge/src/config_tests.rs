//! Values that cannot work.

use super::*;

#[test]
fn a_value_that_cannot_work_is_refused_by_its_key() {
    type Spoil = fn(&mut Config);
    let cases: [(Spoil, &str); 15] = [
        (|c| c.body_limit = ByteSize::mib(2), "edge.body_limit: '2.0 MiB' must be between"),
        (|c| c.data_directory = PathBuf::new(), "edge.data_directory: '' must be a path"),
        (|c| c.budget.burst = 0, "edge.budget.burst: '0' must be above zero"),
        (|c| c.budget.store_events = 0, "edge.budget.store_events: '0' must be above zero"),
        (|c| c.budget.undelivered_bytes = ByteSize::b(1), "edge.budget.undelivered_bytes: '1 B' must be at"),
        (|c| c.http.bodies_in_flight = ByteSize::b(0), "edge.http.bodies_in_flight: '0 B' must be at least"),
        (|c| c.http.idle_timeout = Duration::ZERO, "edge.http.idle_timeout: '0s' must be at least 10ms"),
        (|c| c.delivery.retry_cap = Duration::ZERO, "edge.delivery.retry_cap: '0s' must be at least edge"),
        (
            |c| c.settle.max = Duration::ZERO,
            "edge.settle.max: '0s' must be at least edge.settle.failed (20m)",
        ),
        (|c| c.retention.sweep = Duration::ZERO, "edge.retention.sweep: '0s' must be at least 10ms"),
        (|c| c.delivery.call_timeout = Duration::ZERO, "edge.delivery.call_timeout: '0s' must be above"),
        (|c| c.delivery.targets.push(Target::Broker), "edge.delivery.targets: 'broker' is always one"),
        (|c| c.delivery.targets.push(Target::Dora), "edge.delivery.targets: 'dora' is named twice"),
        (|c| c.peers.dora_recorder = "dora".into(), "edge.peers.dora_recorder: 'dora' must be host:port"),
        (|c| c.peers.outcome_span = "http://a:1".into(), "edge.peers.outcome_span: 'http://a:1' must be"),
    ];
    assert_eq!(Config::default().check(), Ok(()));
    for (spoil, expected) in cases {
        let mut config = Config::default();
        spoil(&mut config);
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
