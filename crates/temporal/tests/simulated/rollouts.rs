//! Rollouts, and what supersedes them.

use serde_json::json;
use windlass_temporal::port::{Percent, RoutingWrite};
use windlass_temporal_fake::{Fault, Write};

use crate::stage::{Stage, deployment, spec};

#[tokio::test(start_paused = true)]
async fn first_version_becomes_current_without_a_ramp() {
    let (s, v1) = Stage::running(spec("v1")).await;
    assert_eq!(s.condition("Ready"), "True/WorkersReady");
    assert_eq!(s.condition("RolloutInProgress"), "False/RolloutComplete");
    assert_eq!(s.record(&v1)["state"], "Current");
    assert!(matches!(s.temporal.writes()[0], Write::Manager(Some(_))), "{:?}", s.temporal.writes());
    assert_eq!(s.names(), [format!("orders-{v1}")]);
    let env = s.deployments()[0]["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    assert_eq!(env[2], json!({"name": "TEMPORAL_DEPLOYMENT_NAME", "value": "shop/orders"}));
}

#[tokio::test(start_paused = true)]
async fn version_ramps_and_previous_one_is_deleted_after_draining() {
    let (s, v1) = Stage::running(spec("v1")).await;
    assert_eq!(s.temporal.start(&deployment(), "long", None, 99.0), Some(v1.clone()));
    let v2 = s.roll_to("v2").await;
    s.until("the ramp", |s| s.condition("UpToDate") == "Unknown/Ramping").await;
    s.until_current(&v2).await;
    assert_eq!(s.ramps(), [100, 5, 50, 100], "no step is left out: {:?}", s.temporal.writes());
    s.seconds(60).await;
    assert_eq!(s.record(&v1)["state"], "Draining");
    assert_eq!(s.deployment_of(&v1).unwrap()["spec"]["replicas"], 2);
    s.temporal.end("long");
    s.until("v1 is gone", |s| s.record(&v1).is_null() && s.deployment_of(&v1).is_none()).await;
    assert!(s.temporal.writes().contains(&Write::DeleteVersion(v1.clone())));
    s.assert_no_orphans();
    let seen = s.cluster.version();
    s.seconds(300).await;
    let mut writes = Vec::new();
    s.cluster.replay(seen, |step| writes.push(format!("{:?}", step.after)));
    assert_eq!(writes, Vec::<String>::new(), "at rest nothing is written");
}

#[tokio::test(start_paused = true)]
async fn new_target_during_a_ramp_clears_the_ramp_first() {
    let (s, _) = Stage::running(spec("v1")).await;
    let v2 = s.roll_to("v2").await;
    s.until("the ramp", |s| s.status()["rampPercent"] == 5).await;
    let v3 = s.roll_to("v3").await;
    s.until_current(&v3).await;
    assert_eq!(s.ramps(), [100, 5, 0, 5, 50, 100]);
    assert_eq!(s.events("RolloutSuperseded"), 1);
    let history = s.status()["history"].clone();
    let outcomes: Vec<_> =
        history.as_array().unwrap().iter().map(|h| h["outcome"].as_str().unwrap().to_owned()).collect();
    assert_eq!(outcomes, ["Complete", "Superseded", "Complete"]);
    s.until("v2 goes", |s| s.record(&v2).is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn return_to_current_version_clears_the_ramp_without_rollout() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.set_image("v2").await;
    s.until("the ramp", |s| s.status()["rampPercent"] == 5).await;
    s.set_image("v1").await;
    s.until("no ramp", |s| s.status()["rampPercent"].is_null() && s.condition("UpToDate") == "True/Applied")
        .await;
    assert_eq!(s.ramps(), [100, 5, 0]);
    assert_eq!(s.status()["currentBuildID"], v1.as_str());
}

#[tokio::test(start_paused = true)]
async fn live_former_version_becomes_current_without_a_ramp() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.set_image("v1").await;
    s.until_current(&v1).await;
    assert_eq!(s.ramps(), [100, 5, 50, 100, 100]);
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn manual_strategy_never_promotes_nor_claims_the_manager() {
    let s = Stage::new();
    let mut manual = spec("v1");
    manual["rollout"] = json!({"strategy": "Manual"});
    s.create(manual).await;
    let v1 = s.target().await;
    s.until("it is ready", |s| s.condition("UpToDate") == "Unknown/ReadyToPromote").await;
    s.seconds(600).await;
    assert_eq!(s.condition("UpToDate"), "Unknown/ReadyToPromote");
    assert_eq!(s.temporal.writes(), Vec::new());
    let hash = s.status()["requestedRolloutHash"].clone();
    s.patch(json!({"spec": {"forcePromote": hash}})).await;
    s.until_current(&v1).await;
    assert_eq!(s.status()["spentForcePromote"], hash);
}

#[tokio::test(start_paused = true)]
async fn manually_changed_ramp_is_restored_and_its_step_restarts() {
    let mut slow = spec("v1");
    slow["rollout"] = json!({"steps": [{"percent": 20, "pauseSeconds": 60}]});
    let (s, _) = Stage::running(slow).await;
    let v2 = s.roll_to("v2").await;
    s.until("the ramp", |s| s.status()["rampPercent"] == 20).await;
    s.seconds(30).await;
    let by_hand = RoutingWrite::Ramp { to: v2.clone(), percent: Percent(90.0) };
    s.temporal.by_hand(&deployment(), &by_hand).unwrap();
    s.until("the event", |s| s.events("RampRestored") == 1).await;
    s.seconds(50).await;
    assert_eq!(s.status()["rampPercent"], 20, "its time began anew");
    s.until_current(&v2).await;
}

#[tokio::test(start_paused = true)]
async fn routing_that_is_never_reported_delays_no_rollout_for_good() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.set_fault(Fault::Unsettled);
    let v2 = s.roll_to("v2").await;
    s.until("it waits for Temporal", |s| s.message("UpToDate").contains("waiting for all task queues")).await;
    s.kill_operator();
    s.start_operator();
    s.until_current(&v2).await;
    s.until("it is complete", |s| s.condition("UpToDate") == "True/Applied").await;
    // Each step of the ramp, and the promotion.
    assert_eq!(s.events("RoutingUnconfirmed"), 3);
    assert_eq!(s.ramps(), [100, 5, 50, 100], "nothing is written twice");
    s.seconds(300).await;
    assert_eq!(s.events("RoutingUnconfirmed"), 3, "it is said once");
}

#[tokio::test(start_paused = true)]
async fn skip_and_retry_end_a_wait_for_the_routing() {
    let mut slow = spec("v1");
    slow["rollout"] = json!({"steps": [{"percent": 20, "pauseSeconds": 3600}]});
    slow["progressDeadlineSeconds"] = json!(30);
    let (s, _) = Stage::running(slow).await;
    s.temporal.set_fault(Fault::Unsettled);
    let v2 = s.roll_to("v2").await;
    let at = |type_: &'static str| {
        move |s: &Stage| {
            let plan = s.status()["plan"].clone();
            let tasks = plan["tasks"].as_array().cloned().unwrap_or_default();
            tasks.iter().any(|task| task["type"] == type_ && task["state"] == "Running")
        }
    };
    let id = |s: &Stage, type_: &str| {
        let tasks = s.status()["plan"]["tasks"].as_array().cloned().unwrap_or_default();
        let task = tasks.iter().find(|task| task["type"] == type_).cloned().unwrap_or_default();
        (task["id"].as_str().unwrap_or_default().to_owned(), task["attempt"].clone())
    };
    s.until("it ramps", at("ramp")).await;
    s.annotate("windlass.dev/skip", &id(&s, "set-current").0).await;
    s.until("it is refused", |s| s.events("SkipRefused") == 1).await;
    s.annotate("windlass.dev/skip", &id(&s, "ramp").0).await;
    s.until("it promotes", at("set-current")).await;
    s.until("it is stalled", |s| s.condition("Stalled") == "True/NoProgress").await;
    let plan = s.status()["plan"]["id"].as_str().unwrap_or_default().to_owned();
    s.annotate("windlass.dev/retry", &plan).await;
    s.until("it is a new attempt", |s| id(s, "set-current").1 == 2).await;
    s.annotate("windlass.dev/skip", &id(&s, "set-current").0).await;
    s.until("it is complete", |s| s.condition("UpToDate") == "True/Applied").await;
    s.until_current(&v2).await;
}

#[tokio::test(start_paused = true)]
async fn foreign_managed_routing_is_unchanged_until_released() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.manage(&deployment(), Some("alice"));
    let before = s.temporal.writes().len();
    let v2 = s.roll_to("v2").await;
    s.until("it says so", |s| s.condition("UpToDate") == "False/OwnedByOther").await;
    s.seconds(120).await;
    assert_eq!(s.temporal.writes().len(), before);
    assert!(s.message("UpToDate").contains("alice"), "{}", s.message("UpToDate"));
    assert_eq!(s.condition("Stalled"), "True/OwnedByOther");
    s.temporal.manage(&deployment(), None);
    s.until_current(&v2).await;
}

#[tokio::test(start_paused = true)]
async fn paused_rollout_stops_and_continues_when_resumed() {
    let (s, _) = Stage::running(spec("v1")).await;
    let v2 = s.roll_to("v2").await;
    s.until("the ramp", |s| s.status()["rampPercent"] == 5).await;
    s.patch(json!({"spec": {"paused": true}})).await;
    s.seconds(60).await;
    assert_eq!(s.status()["rampPercent"], 5);
    assert_eq!(s.condition("RolloutInProgress"), "True/Paused");
    s.patch(json!({"spec": {"paused": false}})).await;
    s.until_current(&v2).await;
}

#[tokio::test(start_paused = true)]
async fn aborted_rollout_is_reverted_and_can_be_retried() {
    let (s, v1) = Stage::running(spec("v1")).await;
    let v2 = s.roll_to("v2").await;
    s.until("the ramp", |s| s.status()["rampPercent"] == 5).await;
    let plan = s.status()["plan"]["id"].as_str().unwrap().to_owned();
    s.annotate("windlass.dev/abort", &plan).await;
    s.until("it is aborted", |s| {
        s.condition("UpToDate") == "False/Aborted" && s.status()["rampPercent"].is_null()
    })
    .await;
    s.seconds(60).await;
    assert_eq!(s.status()["currentBuildID"], v1.as_str());
    s.annotate("windlass.dev/retry", &plan).await;
    s.until_current(&v2).await;
}

#[tokio::test(start_paused = true)]
async fn restart_updates_workers_without_a_rollout() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.seconds(5).await;
    let at = "2099-01-01T00:00:00Z";
    s.annotate("windlass.dev/restartedAt", at).await;
    s.until("it is obeyed", |s| {
        let live = s.deployment_of(&v1).unwrap();
        live["spec"]["template"]["metadata"]["annotations"]["windlass.dev/restartedAt"] == at
    })
    .await;
    assert_eq!(s.status()["history"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn write_conflicting_with_a_manual_routing_change_is_retried() {
    let (s, _) = Stage::running(spec("v1")).await;
    let v2 = s.roll_to("v2").await;
    s.until("the ramp", |s| s.status()["rampPercent"] == 5).await;
    let half = RoutingWrite::Ramp { to: v2.clone(), percent: Percent(50.0) };
    s.temporal.hand_before(half, &deployment(), &v2, 30.0);
    s.until_current(&v2).await;
    assert_eq!(s.temporal.conflicts(), 1, "the token is that of the description that was decided on");
    assert_eq!(s.ramps(), [100, 5, 50, 100]);
}
