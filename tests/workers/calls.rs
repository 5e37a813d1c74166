//! Each call of the port, against a real server.

use std::time::Duration;

use serde_json::json;
use windlass_temporal::port::{
    BuildId, GateStart, GateState, Missing, Percent, Ramp, RampTarget, Routing, RoutingWrite,
    RunningWorkflows, TaskQueue, TaskQueueKind, TemporalError, VersionStatus,
};

use crate::stage::{Stage, identity};

fn missing<T: std::fmt::Debug>(answer: Result<T, TemporalError>) -> Missing {
    match answer {
        Err(TemporalError::NotFound { what, .. }) => what,
        other => panic!("not «not found», but {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_never_there_is_not_found_by_its_kind() {
    let stage = Stage::new("nothing").await;
    let build = BuildId::new("v1");
    assert_eq!(missing(stage.port.describe_deployment(&stage.name).await), Missing::Deployment);
    assert_eq!(missing(stage.port.describe_version(&stage.name, &build).await), Missing::Version);
    assert_eq!(missing(stage.port.describe_gate("no-such-gate").await), Missing::Workflow);
    assert_eq!(stage.port.end_gate("no-such-gate", "over", &identity()).await, Ok(()));
    assert_eq!(stage.port.delete_deployment(&stage.name, &identity()).await, Ok(()));
    let running = stage.port.running_workflows(&stage.name, &build).await;
    assert_eq!(running, Ok(RunningWorkflows::default()), "a count of nothing is nought");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_described_from_its_first_poll_on_ramped_and_made_current() {
    let stage = Stage::new("routed").await;
    let _v1 = stage.worker("v1").await;
    let described = stage.describe().await;
    assert_eq!(described.routing, Routing::default());
    assert_eq!((described.manager.clone(), described.versions.len()), (None, 1));
    let version = &described.versions[0];
    assert_eq!((version.build.as_str(), version.status), ("v1", VersionStatus::Inactive));
    assert!(version.created.is_some() && version.first_activated.is_none() && version.drainage.is_none());

    stage.make_current("v1").await;
    let _v2 = stage.worker("v2").await;
    stage.route(&RoutingWrite::Ramp { to: BuildId::new("v2"), percent: Percent(25.0) }).await;
    let ramp = Ramp { to: RampTarget::Version(BuildId::new("v2")), percent: Percent(25.0) };
    let described = stage.describe().await;
    assert_eq!(described.routing, Routing { current: Some(BuildId::new("v1")), ramp: Some(ramp) });
    assert_eq!(described.last_modifier, Some(identity()));
    assert_eq!(stage.status("v2").await, Some(VersionStatus::Ramping));

    stage.route(&RoutingWrite::ClearRamp).await;
    assert_eq!(stage.describe().await.routing, Routing { current: Some(BuildId::new("v1")), ramp: None });

    stage.make_current("v2").await;
    let listed = stage.until("the deployment says when v2 became current", async || {
        let listed =
            stage.describe().await.versions.into_iter().find(|version| version.build.as_str() == "v2")?;
        listed.last_current.is_some().then_some(listed)
    });
    let listed = listed.await;
    assert!(listed.status == VersionStatus::Current && listed.first_activated.is_some(), "{listed:?}");
    let described = stage.port.describe_version(&stage.name, &BuildId::new("v2")).await.unwrap();
    assert_eq!(described.summary.status, VersionStatus::Current);
    let queue = TaskQueue { name: stage.name.to_string(), kind: TaskQueueKind::Workflow };
    assert!(described.task_queues.contains(&queue), "{:?}", described.task_queues);

    stage.route(&RoutingWrite::Current(None)).await;
    assert_eq!(stage.describe().await.routing, Routing::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn pollers_are_counted_by_version_and_workflows_by_the_version_that_they_run_on() {
    let stage = Stage::new("counted").await;
    let (v1, v2) = (BuildId::new("v1"), BuildId::new("v2"));
    let _one = stage.worker("v1").await;
    let _two = stage.worker("v2").await;
    let queue = TaskQueue { name: stage.name.to_string(), kind: TaskQueueKind::Workflow };
    for build in [&v1, &v2] {
        let pollers = stage.until("pollers are seen", async || {
            let pollers = stage.port.pollers(&stage.name, build, &queue).await.expect("an answer");
            (pollers.count > 0).then_some(pollers)
        });
        assert!(pollers.await.last_seen.is_some());
    }
    let nobody = stage.port.pollers(&stage.name, &BuildId::new("v3"), &queue).await.unwrap();
    assert_eq!((nobody.count, nobody.unversioned, nobody.last_seen), (0, 0, None));

    let pinned = Some((stage.name.as_str(), "v1"));
    stage.person.start("Hold", "counted-1", stage.name.as_str(), pinned).await.expect("a workflow");
    stage
        .until("it is counted", async || {
            let running = stage.port.running_workflows(&stage.name, &v1).await.expect("a count");
            (running == RunningWorkflows { pinned: 1, auto_upgrade: 0 }).then_some(())
        })
        .await;
    assert_eq!(stage.port.running_workflows(&stage.name, &v2).await, Ok(RunningWorkflows::default()));
    stage.person.let_go("counted-1").await.expect("a signal");
    assert_eq!(stage.person.result("counted-1").await, "v1");
}

fn gate(stage: &Stage, id: &str, input: Option<serde_json::Value>) -> GateStart {
    GateStart {
        deployment: stage.name.clone(),
        build: BuildId::new("v1"),
        workflow_id: id.to_owned(),
        request_id: id.to_owned(),
        workflow_type: "Gate".to_owned(),
        task_queue: stage.name.to_string(),
        input,
        timeout: Duration::from_mins(1),
        identity: identity(),
    }
}

/// Starts a gate as soon as the version accepts pinned workflows, and waits for its end.
async fn ended(stage: &Stage, start: &GateStart) -> GateState {
    stage
        .until("the gate is taken", async || match stage.port.start_gate(start).await {
            Ok(()) => Some(()),
            Err(TemporalError::VersionNotReady { .. }) => None,
            Err(error) => panic!("{error}"),
        })
        .await;
    stage
        .until("the gate has ended", async || {
            let state = stage.port.describe_gate(&start.workflow_id).await.expect("a gate");
            (state != GateState::Running).then_some(state)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_says_how_it_went_in_the_workflows_own_words_and_starts_only_once() {
    let stage = Stage::new("gated").await;
    let _v1 = stage.worker("v1").await;
    let good = gate(&stage, "gate-good", Some(json!({"order": 7})));
    assert_eq!(ended(&stage, &good).await, GateState::Completed);
    assert_eq!(stage.port.start_gate(&good).await, Ok(()), "the same request again");
    let other = GateStart { request_id: "another".to_owned(), ..good.clone() };
    assert_eq!(stage.port.start_gate(&other).await, Ok(()), "another request for the same gate");
    assert_eq!(stage.port.describe_gate("gate-good").await, Ok(GateState::Completed), "it did not run again");

    let bad = gate(&stage, "gate-bad", Some(json!({"fail": "no stock, no sale"})));
    let words = GateState::Failed { message: "no stock, no sale".to_owned() };
    assert_eq!(ended(&stage, &bad).await, words);

    let none = gate(&stage, "gate-none", None);
    assert_eq!(ended(&stage, &none).await, GateState::Completed, "a gate without an argument");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_hangs_runs_until_its_time_is_up_or_it_is_ended() {
    let stage = Stage::new("hanging").await;
    let _v1 = stage.worker_with("v1", &[("GATE", "hang")]).await;
    let short = GateStart { timeout: Duration::from_secs(2), ..gate(&stage, "gate-short", None) };
    assert_eq!(ended(&stage, &short).await, GateState::TimedOut);
    let long = gate(&stage, "gate-long", None);
    stage.port.start_gate(&long).await.expect("it starts");
    assert_eq!(stage.port.describe_gate("gate-long").await, Ok(GateState::Running));
    stage.port.end_gate("gate-long", "its target was given up", &identity()).await.expect("it ends");
    let message = "its target was given up".to_owned();
    assert_eq!(stage.port.describe_gate("gate-long").await, Ok(GateState::Ended { message }));
    assert_eq!(stage.port.end_gate("gate-long", "again", &identity()).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_and_then_its_deployment_are_forgotten_when_asked() {
    let stage = Stage::new("forgotten").await;
    let v1 = BuildId::new("v1");
    let worker = stage.worker("v1").await;
    let refused = stage.port.delete_version(&stage.name, &v1, false, &identity()).await;
    assert!(matches!(refused, Err(TemporalError::VersionHasPollers { .. })), "{refused:?}");
    drop(worker);
    stage
        .until("its pollers are forgotten", async || {
            tokio::time::sleep(Duration::from_secs(3)).await;
            stage.port.delete_version(&stage.name, &v1, false, &identity()).await.ok()
        })
        .await;
    assert_eq!(stage.status("v1").await, None);
    stage
        .until("the deployment is forgotten", async || {
            stage.port.delete_deployment(&stage.name, &identity()).await.ok()
        })
        .await;
    assert_eq!(missing(stage.port.describe_deployment(&stage.name).await), Missing::Deployment);
}
