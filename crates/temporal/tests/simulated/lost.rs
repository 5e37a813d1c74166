//! A Temporal that does not answer, or answers wrongly.

use serde_json::json;
use windlass_temporal_fake::Fault;

use crate::stage::{Stage, deployment, spec};

/// A stage with a current version and a draining one, whose retirement would be long due if it were drained.
async fn two_versions() -> Stage {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s.set_image("v2").await;
    s.until_current(&s.target().await).await;
    s
}

#[tokio::test(start_paused = true)]
async fn nothing_is_changed_on_unreliable_responses() {
    for (fault, reason) in [
        (Fault::Down, "Unknown/TemporalUnreachable"),
        (Fault::Forgetful, "Unknown/TemporalUnreachable"),
        (Fault::Empty, "Unknown/TemporalUnreachable"),
        (Fault::Foreign, "Unknown/TemporalUnreachable"),
        (Fault::Limiting, "Unknown/RateLimited"),
        (Fault::Refusing, "False/CredentialsInvalid"),
    ] {
        let s = two_versions().await;
        let before = s.deployments();
        let writes = s.temporal.writes().len();
        s.temporal.set_fault(fault.clone());
        s.until("it says so", |s| s.condition("UpToDate") == reason).await;
        s.seconds(600).await;
        assert_eq!(s.deployments(), before, "{fault:?}");
        assert!(s.message("UpToDate").starts_with("since 20"), "{}", s.message("UpToDate"));
        s.set_image("v3").await;
        s.seconds(120).await;
        assert_eq!(s.temporal.writes().len(), writes, "{fault:?}");
        s.temporal.set_fault(Fault::None);
        let v3 = s.target().await;
        s.until_current(&v3).await;
        s.assert_no_orphans();
    }
}

#[tokio::test(start_paused = true)]
async fn unverified_connection_is_not_given_to_workers() {
    let s = two_versions().await;
    let before = s.deployments();
    let address = |deployment: &serde_json::Value| {
        deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"].clone()
    };
    for fault in [Fault::Down, Fault::Forgetful, Fault::Empty, Fault::Foreign] {
        s.temporal.set_fault(fault.clone());
        s.patch(json!({"spec": {"connection": {"address": "misspelt:7233"}, "replicas": 2}})).await;
        s.until("it is said", |s| s.condition("UpToDate") == "Unknown/TemporalUnreachable").await;
        s.seconds(300).await;
        assert_eq!(s.deployments(), before, "{fault:?}");
        s.patch(json!({"spec": {"connection": {"address": "temporal:7233"}}})).await;
        s.temporal.set_fault(Fault::None);
        s.until("it is found", |s| s.condition("UpToDate") == "True/Applied").await;
    }
    s.assert_no_orphans();
    // Lost workers are recreated all the same, and once Temporal is reachable all of them get the new connection.
    s.temporal.set_fault(Fault::Down);
    s.patch(json!({"spec": {"connection": {"address": "moved:7233"}}})).await;
    s.until("it is said", |s| s.condition("UpToDate") == "Unknown/TemporalUnreachable").await;
    let name = s.names()[0].clone();
    s.api("Deployment").delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    s.until("it is there again", |s| s.names().len() == 2).await;
    s.temporal.set_fault(Fault::None);
    s.until("all have where it is", |s| s.deployments().iter().all(|d| address(d) == "moved:7233")).await;
}
