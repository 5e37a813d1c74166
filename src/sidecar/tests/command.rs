//! The command `windlass sidecar`.

use std::time::Duration;

use super::super::{SidecarArgs, run};
use super::{args, ask, free_port, http};

#[tokio::test]
async fn address_in_use_error_gives_advice() {
    let (taken, _) = free_port().await;
    let bind = taken.local_addr().unwrap();
    let sentence = run(SidecarArgs { bind, ..args() }).await.unwrap_err();
    assert!(sentence.contains(&bind.to_string()) && sentence.contains("--bind"), "{sentence}");
}

#[tokio::test]
async fn command_serves_on_its_address() {
    let (listener, url) = free_port().await;
    let bind = listener.local_addr().unwrap();
    drop(listener);
    let serving = tokio::spawn(run(SidecarArgs { bind, ..args() }));
    while http().get(format!("{url}/healthz")).send().await.is_err() {
        assert!(!serving.is_finished());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(ask(http().get(format!("{url}/readyz"))).await.0, 503);
    serving.abort();
}
