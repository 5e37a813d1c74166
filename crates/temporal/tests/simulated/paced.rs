//! Calls that time out.

use std::sync::Arc;
use std::time::Duration;

use windlass_clock::{SystemClock, monotonic};
use windlass_temporal::Metrics;
use windlass_temporal::api::Connection;
use windlass_temporal::port::{DeploymentName, Pace, Paced, Temporal, TemporalError};
use windlass_temporal_fake::{FakeTemporal, Fault, Settings};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How long a failing call took.
async fn failed_call(port: &Paced) -> Duration {
    let began = monotonic();
    let answer = port.describe_deployment(&DeploymentName::new("shop/orders")).await;
    assert!(matches!(answer, Err(TemporalError::Unreachable { .. })), "{answer:?}");
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn calls_fail_fast_for_five_seconds_after_a_timeout() {
    let fake = FakeTemporal::new(Arc::new(SystemClock), Settings::default());
    let pace = Arc::new(Pace::default());
    let to = |namespace: &str| {
        let connection = Connection {
            address: "temporal:7233".into(),
            namespace: namespace.into(),
            ..Connection::default()
        };
        Paced::new(Arc::new(fake.clone()), connection, pace.clone(), Metrics::default())
    };
    fake.set_fault(Fault::Slow(Duration::from_mins(1)));
    assert_eq!(failed_call(&to("a")).await, seconds(15));
    assert_eq!(failed_call(&to("a")).await, Duration::ZERO);
    assert_eq!(failed_call(&to("b")).await, seconds(15), "another namespace may be another Temporal");
    tokio::time::advance(seconds(5)).await;
    assert_eq!(failed_call(&to("a")).await, seconds(15));
    // A server that is down refuses at once, so that each call is tried.
    tokio::time::advance(seconds(5)).await;
    fake.set_fault(Fault::Down);
    assert!(failed_call(&to("a")).await < seconds(5));
    let calls = fake.calls();
    failed_call(&to("a")).await;
    assert_eq!(fake.calls(), calls + 1);
}
