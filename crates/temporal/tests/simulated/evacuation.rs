//! Pinned workflows move from one version to another, with one batch.

use serde_json::{Value, json};
use windlass_sim::AuditEntry;
use windlass_temporal::port::{BatchMove, BuildId, Identity, PinnedWorkflows, Temporal};
use windlass_temporal_fake::{Fault, Settings, Write};

use crate::killed::Death;
use crate::stage::{Stage, deployment, spec};

/// A stage whose second version is current, with workflows on the first, which drains.
async fn draining(settings: Settings, count: usize) -> (Stage, BuildId, BuildId) {
    let s = Stage::with(settings);
    let mut spec = spec("v1");
    spec["rollout"] = json!({"strategy": "AllAtOnce"});
    s.create(spec).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    for index in 0..count {
        s.temporal.start(&deployment(), &format!("w-{index}"), None, 99.0);
    }
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.until("v1 drains", |s| s.record(&v1)["state"] == "Draining").await;
    (s, v1, v2)
}

async fn request(s: &Stage, from: &BuildId, to: &BuildId, query: Option<&str>) {
    let mut request = json!({"from": from, "to": to, "at": s.clock_time()});
    if let Some(query) = query {
        request["query"] = json!(query);
    }
    s.annotate("windlass.dev/evacuate", &request.to_string()).await;
}

fn phase(s: &Stage) -> Value {
    s.status()["evacuation"]["phase"].clone()
}

async fn until_phase(s: &Stage, wanted: &str) {
    s.until(&format!("the evacuation is {wanted}"), |s| phase(s) == wanted).await;
}

fn batches(s: &Stage) -> Vec<String> {
    let of = |write| match write {
        Write::Batch(id) => Some(id),
        _ => None,
    };
    s.temporal.writes().into_iter().filter_map(of).collect()
}

fn assert_all_on(s: &Stage, build: &BuildId, count: usize) {
    for index in 0..count {
        assert_eq!(s.temporal.build_of(&format!("w-{index}")).as_ref(), Some(build), "workflow {index}");
    }
}

#[tokio::test(start_paused = true)]
async fn evacuation_moves_workflows_with_one_batch_and_drains_the_version() {
    let (s, v1, v2) = draining(Settings::default(), 3).await;
    let before = s.status();
    request(&s, &v1, &v2, None).await;
    until_phase(&s, "Moving").await;
    assert_eq!(s.condition("Reconciling"), "True/Progressing");
    assert_eq!(s.condition("UpToDate"), "True/Applied", "the target is current throughout");
    until_phase(&s, "Complete").await;
    assert_all_on(&s, &v2, 3);
    assert_eq!(batches(&s).len(), 1, "{:?}", batches(&s));
    let status = s.status();
    let shown = &status["evacuation"];
    let numbers = [&shown["workflows"], &shown["moved"], &shown["failed"], &shown["batchID"]];
    assert_eq!(numbers, [&json!(3), &json!(3), &json!(0), &json!(batches(&s)[0])]);
    for field in ["lastCompletedRolloutHash", "currentRevision", "updateRevision", "rejected"] {
        assert_eq!(status[field], before[field], "{field}");
    }
    assert_eq!(s.condition("RolloutInProgress"), "False/RolloutComplete");
    let last = status["history"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        [&last["recipe"], &last["outcome"], &last["fromHash"], &last["targetHash"]],
        [&json!("Evacuate"), &json!("Complete"), &json!(v1), &json!(v2)]
    );
    let rollouts = s.metrics.text();
    assert!(rollouts.contains("windlass_worker_rollouts_total{outcome=\"Complete\"} 2"), "{rollouts}");
    for reason in ["EvacuationStarted", "EvacuationComplete"] {
        assert_eq!(s.events(reason), 1, "{reason}");
    }
    s.until("v1 is retired", |s| s.record(&v1).is_null() && s.deployment_of(&v1).is_none()).await;
    s.seconds(60).await;
    assert_eq!((batches(&s).len(), phase(&s)), (1, json!("Complete")), "the request is used up");
    s.assert_no_orphans();
}

/// The whole evacuation of three workflows, whatever dies.
async fn evacuated(s: &Stage, v1: &BuildId, v2: &BuildId, what: &str) {
    request(s, v1, v2, None).await;
    until_phase(s, "Complete").await;
    assert_all_on(s, v2, 3);
    assert_eq!(batches(s).len(), 1, "{what}: {:?}", batches(s));
    let history = s.status()["history"].clone();
    let plans = history.as_array().unwrap().iter().filter(|entry| entry["recipe"] == "Evacuate");
    assert_eq!(plans.count(), 1, "{what}: {history}");
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn operator_death_at_any_write_of_an_evacuation_sends_one_batch() {
    let of_operator = |entry: &&AuditEntry| entry.user_agent == "operator" && entry.is_write();
    let count = |s: &Stage| s.cluster.audit().iter().filter(of_operator).count() as u64;
    let (clean, v1, v2) = draining(Settings::default(), 3).await;
    let before = count(&clean);
    evacuated(&clean, &v1, &v2, "nobody dies").await;
    let writes = count(&clean) - before;
    assert!(writes >= 6, "{writes}");
    for dies_before in [true, false] {
        for write in 1..=writes {
            let (s, v1, v2) = draining(Settings::default(), 3).await;
            let kill: Box<dyn FnOnce() + Send> = Box::new(s.killer());
            let death = Death { write: count(&s) + write, before: dies_before, kill: Some(kill) };
            s.cluster.set_faults(Box::new(death));
            evacuated(&s, &v1, &v2, &format!("write {write} to Kubernetes, before: {dies_before}")).await;
        }
        let (s, v1, v2) = draining(Settings::default(), 3).await;
        s.temporal.at_write(1, dies_before, s.killer());
        evacuated(&s, &v1, &v2, &format!("the batch, before: {dies_before}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn evacuation_survives_lost_answers_and_an_outage() {
    let (s, v1, v2) = draining(Settings { moves_per_second: 1, ..Settings::default() }, 3).await;
    s.temporal.set_fault(Fault::LosesAnswers);
    request(&s, &v1, &v2, None).await;
    s.until("the batch is sent", |s| !batches(s).is_empty()).await;
    s.temporal.set_fault(Fault::Down);
    s.until("Temporal is lost", |s| s.condition("UpToDate") == "Unknown/TemporalUnreachable").await;
    s.seconds(60).await;
    s.temporal.set_fault(Fault::None);
    until_phase(&s, "Complete").await;
    assert_all_on(&s, &v2, 3);
    assert_eq!(batches(&s).len(), 1);
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn rollout_waits_for_a_running_batch_and_supersedes_the_drain() {
    let slow = Settings { drainage: chrono::TimeDelta::minutes(10), ..Settings::default() };
    let (s, v1, v2) = draining(slow, 500).await;
    request(&s, &v1, &v2, None).await;
    s.until("the batch runs", |s| s.status()["evacuation"]["batchID"].is_string()).await;
    let v3 = s.roll_to("v3").await;
    s.until("the rollout waits", |s| s.condition("UpToDate") == "Unknown/Evacuating").await;
    assert!(s.message("UpToDate").contains("windlass abort wwd/orders"), "{}", s.message("UpToDate"));
    assert_eq!(phase(&s), "Moving");
    s.until_current(&v3).await;
    assert_all_on(&s, &v2, 500);
    assert_eq!(phase(&s), "Superseded", "v1 has not drained yet");
    assert_eq!(batches(&s).len(), 1);
    let history = s.status()["history"].clone();
    let outcomes: Vec<&Value> = history.as_array().unwrap().iter().map(|entry| &entry["outcome"]).collect();
    assert_eq!(outcomes, ["Complete", "Complete", "Superseded", "Complete"]);
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn new_target_supersedes_an_evacuation_that_waits_for_another_batch() {
    let (s, v1, v2) = draining(Settings { moves_per_second: 1, ..Settings::default() }, 400).await;
    let other = BatchMove {
        job_id: "of-a-person".to_owned(),
        workflows: PinnedWorkflows { deployment: deployment(), build: v1.clone(), query: None },
        to: v2.clone(),
        reason: "by hand".to_owned(),
        identity: Identity::new("a person"),
    };
    s.temporal.start_batch(&other).await.unwrap();
    request(&s, &v1, &v2, None).await;
    let waits = |s: &Stage| s.message("Reconciling").contains("another batch operation runs");
    s.until("it waits for the other batch", waits).await;
    assert_eq!((phase(&s), s.condition("Stalled")), (json!("Moving"), "False/Progressing".to_owned()));
    let v3 = s.roll_to("v3").await;
    s.until_current(&v3).await;
    assert_eq!(phase(&s), "Superseded");
    assert_eq!(batches(&s), ["of-a-person"]);
}

#[tokio::test(start_paused = true)]
async fn evacuation_waits_for_another_batch_to_end() {
    let (s, v1, v2) = draining(Settings { moves_per_second: 1, ..Settings::default() }, 20).await;
    let other = BatchMove {
        job_id: "of-a-person".to_owned(),
        workflows: PinnedWorkflows {
            deployment: deployment(),
            build: v1.clone(),
            query: Some("WorkflowId STARTS_WITH 'w-1'".to_owned()),
        },
        to: v2.clone(),
        reason: "by hand".to_owned(),
        identity: Identity::new("a person"),
    };
    s.temporal.start_batch(&other).await.unwrap();
    request(&s, &v1, &v2, None).await;
    until_phase(&s, "Complete").await;
    assert_all_on(&s, &v2, 20);
    assert_eq!(batches(&s).len(), 2, "the other one, and one of its own");
}

#[tokio::test(start_paused = true)]
async fn unmovable_workflow_holds_the_evacuation_until_retry() {
    let (s, v1, v2) = draining(Settings::default(), 3).await;
    s.temporal.holds("w-1", true);
    request(&s, &v1, &v2, None).await;
    s.until("it is stalled", |s| s.condition("Stalled") == "True/EvacuationFailed").await;
    assert!(s.message("Stalled").contains("could not move 1"), "{}", s.message("Stalled"));
    assert_eq!((phase(&s), s.condition("UpToDate")), (json!("Failed"), "True/Applied".to_owned()));
    assert_eq!(s.events("EvacuationFailed"), 1);
    s.temporal.holds("w-1", false);
    let plan = s.status()["plan"]["id"].as_str().unwrap().to_owned();
    s.annotate("windlass.dev/retry", &plan).await;
    until_phase(&s, "Complete").await;
    assert_all_on(&s, &v2, 3);
    let expected: Vec<String> =
        [1, 2].map(|attempt| format!("windlass-evacuate-{plan}-1-{attempt}")).to_vec();
    assert_eq!(batches(&s), expected);
    assert_eq!(s.condition("Stalled"), "False/Progressing");
}

#[tokio::test(start_paused = true)]
async fn failed_evacuation_does_not_hold_a_rollout() {
    let (s, v1, v2) = draining(Settings::default(), 3).await;
    s.temporal.holds("w-1", true);
    request(&s, &v1, &v2, None).await;
    s.until("it is stalled", |s| s.condition("Stalled") == "True/EvacuationFailed").await;
    let v3 = s.roll_to("v3").await;
    s.until_current(&v3).await;
    assert_eq!(phase(&s), "Superseded");
    assert!(s.deployment_of(&v1).is_some(), "a workflow still runs on it");
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn aborted_evacuation_stops_its_batch_and_rejects_no_target() {
    let (s, v1, v2) = draining(Settings { moves_per_second: 1, ..Settings::default() }, 60).await;
    request(&s, &v1, &v2, None).await;
    s.until("the batch runs", |s| s.status()["evacuation"]["batchID"].is_string()).await;
    let plan = s.status()["plan"]["id"].as_str().unwrap().to_owned();
    s.annotate("windlass.dev/abort", &plan).await;
    until_phase(&s, "Aborted").await;
    let on = |s: &Stage, build: &BuildId| {
        (0..60).filter(|index| s.temporal.build_of(&format!("w-{index}")).as_ref() == Some(build)).count()
    };
    let moved = on(&s, &v2);
    s.seconds(60).await;
    assert!(moved < 60 && on(&s, &v2) == moved, "the batch is stopped at {moved}");
    assert_eq!(on(&s, &v1), 60 - moved);
    assert_eq!(s.status()["rejected"], Value::Null);
    assert_eq!((s.condition("UpToDate"), s.events("EvacuationAborted")), ("True/Applied".to_owned(), 1));
    assert_eq!(s.condition("RolloutInProgress"), "False/RolloutComplete");
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn query_moves_only_the_selected_workflows() {
    let (s, v1, v2) = draining(Settings::default(), 3).await;
    request(&s, &v1, &v2, Some("WorkflowId = 'w-1'")).await;
    until_phase(&s, "Complete").await;
    let build = |id: &str| s.temporal.build_of(id).unwrap();
    assert_eq!([build("w-0"), build("w-1"), build("w-2")], [v1.clone(), v2.clone(), v1.clone()]);
    assert_eq!(
        (s.status()["evacuation"]["workflows"].clone(), s.record(&v1)["state"].clone()),
        (json!(1), json!("Draining"))
    );
    // One that Temporal cannot read changes nothing.
    request(&s, &v1, &v2, Some("WorkflowType ! 'x'")).await;
    until_phase(&s, "Failed").await;
    let message = s.status()["evacuation"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("WorkflowType ! 'x'"), "{message}");
    assert_eq!((batches(&s).len(), s.status()["rejected"].clone()), (1, Value::Null));
    assert_eq!((s.events("EvacuationFailed"), s.events("RolloutFailed")), (1, 0));
    assert_eq!(s.condition("UpToDate"), "True/Applied");
}

#[tokio::test(start_paused = true)]
async fn impossible_evacuation_is_refused_with_a_message() {
    let (s, v1, v2) = draining(Settings::default(), 1).await;
    let now = s.clock_time();
    for (number, (annotation, words)) in [
        (json!({"from": v2, "to": v1, "at": now}).to_string(), "is the current version"),
        (json!({"from": v1, "to": v1, "at": now}).to_string(), "name two versions"),
        (json!({"from": "v9", "to": v2, "at": now}).to_string(), "Temporal lists no version v9"),
        (json!({"from": v1, "to": v2}).to_string(), "missing field `at`"),
        (
            json!({"from": v1, "to": v2, "at": "2001-01-01T00:00:00Z"}).to_string(),
            "before the object was created",
        ),
        (json!({"from": v1, "to": v2, "at": now, "query": "a) OR (b"}).to_string(), "balance them"),
    ]
    .into_iter()
    .enumerate()
    {
        s.annotate("windlass.dev/evacuate", &annotation).await;
        s.until(words, |s| s.status()["evacuation"]["message"].as_str().is_some_and(|m| m.contains(words)))
            .await;
        assert_eq!(phase(&s), "Refused", "{words}");
        let described = s.temporal.describes();
        s.seconds(40).await;
        assert!(s.temporal.describes() - described < 20, "{words}: the object is at rest");
        assert_eq!(s.events("EvacuationRefused"), number + 1, "{words}: one event for each request");
    }
    assert_eq!(batches(&s), Vec::<String>::new());
    // The next request is not affected.
    request(&s, &v1, &v2, None).await;
    until_phase(&s, "Complete").await;
}

#[tokio::test(start_paused = true)]
async fn retired_version_gets_its_workers_back_for_an_evacuation() {
    let (s, v1, v2) = draining(Settings::default(), 0).await;
    s.patch(json!({"spec": {"sunset": {"deleteDelaySeconds": 3600}}})).await;
    s.until("v1 is scaled to zero", |s| s.record(&v1)["replicas"] == 0).await;
    s.temporal.start(&deployment(), "w-0", None, 99.0);
    let v3 = s.roll_to("v3").await;
    s.until_current(&v3).await;
    request(&s, &v2, &v1, None).await;
    until_phase(&s, "Complete").await;
    assert_all_on(&s, &v1, 1);
    assert_eq!(s.deployment_of(&v1).unwrap()["spec"]["replicas"], 2);
    s.until("v2 is retired", |s| s.record(&v2)["replicas"] == 0).await;
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn paused_evacuation_sends_no_batch_until_it_is_resumed() {
    let (s, v1, v2) = draining(Settings::default(), 3).await;
    s.patch(json!({"spec": {"paused": true}})).await;
    request(&s, &v1, &v2, None).await;
    s.until("it waits", |s| s.message("Reconciling").contains("spec.paused is true")).await;
    s.seconds(700).await;
    assert_eq!((batches(&s).len(), s.condition("Stalled")), (0, "False/Progressing".to_owned()));
    s.patch(json!({"spec": {"paused": false}})).await;
    until_phase(&s, "Complete").await;
    assert_all_on(&s, &v2, 3);
}

#[tokio::test(start_paused = true)]
async fn deletion_during_an_evacuation_loses_no_workflow() {
    let (s, v1, v2) = draining(Settings { moves_per_second: 1, ..Settings::default() }, 20).await;
    request(&s, &v1, &v2, None).await;
    s.until("a workflow has moved", |s| s.temporal.build_of("w-0").as_ref() == Some(&v2)).await;
    s.delete().await;
    s.seconds(90).await;
    assert_eq!(phase(&s), "Superseded");
    assert!(s.deployment_of(&v1).is_some() && s.deployment_of(&v2).is_some(), "workflows run on both");
    for index in 0..20 {
        s.temporal.end(&format!("w-{index}"));
    }
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn workflows_of_a_rejected_version_move_back() {
    let (s, v1, _) = draining(Settings::default(), 0).await;
    // v3 takes tasks in its ramp, and is aborted.
    let steps = json!([{"percent": 50, "pauseSeconds": 3600}]);
    s.patch(json!({"spec": {"rollout": {"strategy": "Progressive", "steps": steps}}})).await;
    let v3 = s.roll_to("v3").await;
    s.until("v3 ramps", |s| s.status()["rampPercent"] == 50).await;
    assert_eq!(s.temporal.start(&deployment(), "w-0", None, 1.0).as_ref(), Some(&v3));
    let plan = s.status()["plan"]["id"].as_str().unwrap().to_owned();
    s.annotate("windlass.dev/abort", &plan).await;
    s.until("the ramp is cleared", |s| s.status()["rampingBuildID"].is_null()).await;
    let v2 = BuildId::new(s.status()["currentBuildID"].as_str().unwrap());
    assert_ne!(v1, v2);
    request(&s, &v3, &v2, None).await;
    until_phase(&s, "Complete").await;
    assert_all_on(&s, &v2, 1);
    assert_eq!(s.condition("UpToDate"), "False/Aborted", "the target is still rejected");
    assert_eq!(s.condition("RolloutInProgress"), "False/RolloutAborted");
    s.assert_no_orphans();
}
