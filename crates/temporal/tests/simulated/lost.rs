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

/// Status and reason of each condition.
fn conditions(s: &Stage) -> [String; 5] {
    ["Ready", "UpToDate", "RolloutInProgress", "Stalled", "Reconciling"].map(|type_| s.condition(type_))
}

#[tokio::test(start_paused = true)]
async fn rate_limit_is_reported_only_after_a_minute() {
    let s = two_versions().await;
    let (before, conditions_before) = (s.deployments(), conditions(&s));
    assert_eq!(conditions_before[1], "True/Applied");
    for _ in 0..3 {
        s.temporal.set_fault(Fault::Limiting);
        s.until("a read was limited", |s| !s.status()["temporalLostAt"].is_null()).await;
        s.seconds(50).await;
        assert_eq!(conditions(&s), conditions_before, "{}", s.message("UpToDate"));
        s.temporal.set_fault(Fault::None);
        s.until("a read succeeded", |s| s.status()["temporalLostAt"].is_null()).await;
    }
    s.temporal.set_fault(Fault::Limiting);
    // The workflow on the first version ends, and its retirement becomes due: the last answer does not say so.
    s.temporal.end("long");
    s.until("it is reported", |s| s.condition("UpToDate") == "Unknown/RateLimited").await;
    assert_eq!(s.condition("Reconciling"), "True/Progressing");
    s.seconds(300).await;
    assert_eq!(s.deployments(), before, "nothing is scaled down");
    s.temporal.set_fault(Fault::None);
    s.until("v1 goes", |s| s.names().len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn rate_limit_during_a_rollout_keeps_the_reason_of_its_wait() {
    let mut spec = spec("v1");
    spec["rollout"]["steps"] = json!([{"percent": 5, "pauseSeconds": 120}]);
    let (s, _) = Stage::running(spec.clone()).await;
    let v2 = s.roll_to("v2").await;
    s.until("it ramps", |s| s.status()["rampPercent"] == 5).await;
    s.until("it pauses", |s| s.condition("UpToDate") == "Unknown/Ramping").await;
    s.temporal.set_fault(Fault::Limiting);
    s.until("a read was limited", |s| s.message("UpToDate").contains("the rate of requests")).await;
    for _ in 0..25 {
        s.seconds(2).await;
        assert_eq!(s.condition("UpToDate"), "Unknown/Ramping");
    }
    s.until("it is reported", |s| s.condition("UpToDate") == "Unknown/RateLimited").await;
    s.temporal.set_fault(Fault::None);
    s.until_current(&v2).await;
    // A new target is not known to be applied.
    s.temporal.set_fault(Fault::Limiting);
    s.set_image("v3").await;
    s.target().await;
    assert_eq!(s.condition("UpToDate"), "Unknown/NotStarted");
    s.until("it is reported", |s| s.condition("UpToDate") == "Unknown/RateLimited").await;
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
