//! The effect of single fields of the spec, and events and metrics.

use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};
use windlass_temporal::port::{DeploymentName, Percent, RoutingWrite};
use windlass_temporal_fake::Fault;

use crate::stage::{NAMESPACE, Stage, deployment, spec};

#[tokio::test(start_paused = true)]
async fn returning_version_is_gated_only_with_on_rollback() {
    for (asked, gates) in [(false, 0), (true, 1)] {
        let mut gated = spec("v1");
        gated["rollout"]["gate"] =
            json!({"workflowType": "Check", "timeoutSeconds": 60, "onRollback": asked});
        let (s, v1) = Stage::running(gated).await;
        s.temporal.start(&deployment(), "long", None, 99.0);
        let v2 = s.roll_to("v2").await;
        s.until_current(&v2).await;
        let before = s.temporal.gates();
        s.set_image("v1").await;
        s.until_current(&v1).await;
        assert_eq!(s.temporal.gates() - before, gates, "onRollback: {asked}");
        assert_eq!(s.ramps(), [100, 5, 50, 100, 100], "onRollback: {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn gate_runs_once_on_each_named_queue_with_its_input() {
    let mut gated = spec("v1");
    gated["rollout"]["gate"] = json!({
        "workflowType": "Check", "timeoutSeconds": 60, "taskQueues": ["orders", "refunds"],
        "input": {"fail": "no such table: orders"},
    });
    let s = Stage::new();
    s.create(gated).await;
    s.until("the input tells it to fail", |s| s.condition("UpToDate") == "False/GateFailed").await;
    assert!(s.message("UpToDate").contains("no such table: orders"), "{}", s.message("UpToDate"));
    let v1 = s.target().await;
    let plan = s.status()["plan"]["id"].as_str().unwrap().to_owned();
    assert_eq!(s.status()["plan"]["tasks"][4]["type"], "run-gate");
    // A plan keeps the gate it started with: another input is another plan.
    s.patch(json!({"spec": {"rollout": {"gate": {"input": {"fail": null}}}}})).await;
    s.annotate("windlass.dev/abort", &plan).await;
    s.until("it is given up", |s| s.condition("RolloutInProgress") == "False/RolloutAborted").await;
    s.annotate("windlass.dev/retry", &plan).await;
    s.until_current(&v1).await;
    let mut queues = s.temporal.gated_queues(&v1);
    queues.dedup();
    assert_eq!(queues, ["orders", "refunds"]);
}

#[tokio::test(start_paused = true)]
async fn promotion_by_hash_or_build_id_skips_remaining_steps() {
    for by_build in [false, true] {
        let mut slow = spec("v1");
        slow["rollout"] =
            json!({"steps": [{"percent": 5, "pauseSeconds": 3000}, {"percent": 50, "pauseSeconds": 3000}]});
        let (s, _) = Stage::running(slow).await;
        let v2 = s.roll_to("v2").await;
        s.until("the first step", |s| s.status()["rampPercent"] == 5).await;
        s.seconds(60).await;
        let asked = if by_build { json!(v2.as_str()) } else { s.status()["requestedRolloutHash"].clone() };
        s.patch(json!({"spec": {"forcePromote": asked}})).await;
        s.until_current(&v2).await;
        assert_eq!(s.ramps(), [100, 5, 100], "by build ID: {by_build}");
        assert_eq!(s.status()["spentForcePromote"], asked);
        assert_eq!(s.events("StaleForcePromote"), 0);
        // A used value promotes nothing else.
        s.set_image("v3").await;
        s.until("the next has its steps", |s| s.status()["rampPercent"] == 5).await;
        s.seconds(60).await;
        assert_eq!(s.status()["rampPercent"], 5);
    }
}

#[tokio::test(start_paused = true)]
async fn stale_promotion_is_reported_once_and_ignored() {
    let mut slow = spec("v1");
    slow["rollout"] = json!({"steps": [{"percent": 5, "pauseSeconds": 3000}]});
    let (s, _) = Stage::running(slow).await;
    s.set_image("v2").await;
    s.until("the first step", |s| s.status()["rampPercent"] == 5).await;
    s.patch(json!({"spec": {"forcePromote": "v1:0123456789abcdef"}})).await;
    s.until("it is told", |s| s.events("StaleForcePromote") > 0).await;
    s.seconds(120).await;
    assert_eq!((s.status()["rampPercent"].clone(), s.events("StaleForcePromote")), (json!(5), 1));
}

#[tokio::test(start_paused = true)]
async fn foreign_deployment_name_is_left_and_another_name_is_used() {
    let s = Stage::new();
    let mut paused = spec("v1");
    paused["paused"] = json!(true);
    s.create(paused).await;
    let v1 = s.target().await;
    let name = format!("orders-{v1}");
    let theirs: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "theirs"}},
            "template": {
                "metadata": {"labels": {"app": "theirs"}},
                "spec": {"containers": [{"name": "worker", "image": "theirs:1"}]},
            },
        },
    }))
    .unwrap();
    s.api("Deployment").create(&PostParams::default(), &theirs).await.unwrap();
    let before = s.api("Deployment").get(&name).await.unwrap();
    s.patch(json!({"spec": {"paused": false}})).await;
    s.until_current(&v1).await;
    let made = s.deployment_of(&v1).unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(made != name && made.starts_with("orders-"), "{made}");
    assert_eq!(s.record(&v1)["deployment"], made);
    assert_eq!(s.api("Deployment").get(&name).await.unwrap().metadata.generation, before.metadata.generation);
}

#[tokio::test(start_paused = true)]
async fn deployment_name_in_temporal_can_be_set_in_the_spec() {
    let mut named = spec("v1");
    named["deploymentName"] = json!("billing");
    let (s, v1) = Stage::running(named).await;
    let env = s.deployments()[0]["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    assert_eq!(env[2], json!({"name": "TEMPORAL_DEPLOYMENT_NAME", "value": "billing"}));
    let billing = DeploymentName::new("billing");
    assert_eq!(s.temporal.start(&billing, "long", None, 99.0), Some(v1));
    assert_eq!(s.temporal.start(&deployment(), "other", None, 99.0), None);
}

#[tokio::test(start_paused = true)]
async fn oldest_revisions_beyond_the_limit_are_deleted_unless_needed() {
    let mut short = spec("v1");
    short["revisionHistoryLimit"] = json!(1);
    short["rollout"] = json!({"strategy": "AllAtOnce"});
    let (s, v1) = Stage::running(short).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    let mut builds = vec![v1.clone()];
    for tag in ["v2", "v3", "v4", "v5"] {
        let build = s.roll_to(tag).await;
        s.until_current(&build).await;
        let last = builds.last().unwrap().clone();
        if last != v1 {
            s.until("the one before has gone", |s| s.record(&last).is_null()).await;
        }
        builds.push(build);
    }
    s.seconds(60).await;
    let list = s.api("ControllerRevision").list(&kube::api::ListParams::default()).await.unwrap();
    let label = |r: &DynamicObject| r.metadata.labels.as_ref().unwrap()["windlass.dev/build-id"].clone();
    let mut kept: Vec<String> = list.items.iter().map(label).collect();
    kept.sort();
    // v1 has a workflow, v5 is current, and v4 is within the history limit.
    let mut expected: Vec<String> = [0, 3, 4].map(|index: usize| builds[index].to_string()).to_vec();
    expected.sort();
    assert_eq!(kept, expected);
}

#[tokio::test(start_paused = true)]
async fn stray_ramp_is_cleared_with_an_event() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    let by_hand = RoutingWrite::Ramp { to: v1, percent: Percent(30.0) };
    s.temporal.by_hand(&deployment(), &by_hand).unwrap();
    s.until("it is told", |s| s.events("RampCleared") == 1).await;
    assert_eq!(s.ramps().last(), Some(&0));
    s.seconds(120).await;
    assert_eq!((s.events("RampCleared"), s.status()["rampPercent"].clone()), (1, Value::Null));
}

#[tokio::test(start_paused = true)]
async fn stalled_rollout_is_reported_once() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.set_image("broken").await;
    s.until("it is told", |s| s.events("RolloutStalled") == 1).await;
    s.seconds(600).await;
    assert_eq!(s.events("RolloutStalled"), 1);
    assert_eq!(s.condition("Stalled"), "True/NoProgress");
}

#[tokio::test(start_paused = true)]
async fn metrics_cover_versions_outcomes_and_lost_temporal() {
    let (s, v1) = Stage::running(spec("v1")).await;
    let of = |name: &str, value: u32| format!("{name}{{namespace=\"shop\",name=\"orders\"}} {value}\n");
    let assert_metric = |s: &Stage, line: &str| {
        let text = s.metrics.text();
        assert!(text.contains(line), "{line} is not in {text}");
    };
    s.temporal.start(&deployment(), "long", None, 99.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.seconds(10).await;
    assert_metric(&s, &of("windlass_worker_versions", 2));
    assert_metric(&s, "windlass_worker_rollouts_total{outcome=\"Complete\"} 2\n");
    assert_metric(&s, &of("windlass_temporal_unreachable", 0));
    s.temporal.set_fault(Fault::Down);
    s.until("it is noticed", |s| s.condition("UpToDate").ends_with("TemporalUnreachable")).await;
    assert_metric(&s, &of("windlass_temporal_unreachable", 1));
    assert_metric(
        &s,
        "windlass_worker_up_to_date_reason{namespace=\"shop\",name=\"orders\",reason=\"TemporalUnreachable\"} 1\n",
    );
    s.temporal.set_fault(Fault::None);
    s.temporal.end("long");
    s.until("v1 is gone", |s| s.record(&v1).is_null()).await;
    assert_metric(&s, &of("windlass_temporal_unreachable", 0));
    assert_metric(&s, &of("windlass_worker_versions", 1));
    s.delete().await;
    s.until("it is gone", |s| s.object().is_none()).await;
    s.seconds(5).await;
    assert!(!s.metrics.text().contains("name=\"orders\""), "{}", s.metrics.text());
}

#[tokio::test(start_paused = true)]
async fn metrics_are_deleted_after_a_manual_finalizer_removal() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.set_fault(Fault::Down);
    s.until("it is noticed", |s| s.condition("UpToDate").ends_with("TemporalUnreachable")).await;
    s.delete().await;
    s.patch(json!({"metadata": {"finalizers": null}})).await;
    s.until("it is gone", |s| s.object().is_none()).await;
    s.seconds(60).await;
    assert!(!s.metrics.text().contains("name=\"orders\""), "{}", s.metrics.text());
}
