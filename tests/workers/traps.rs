//! Pitfalls for clients of Temporal, as seen on a real server; these tests fail when a new version differs.

use windlass_temporal::port::{
    BuildId, Guard, Identity, Percent, RampTarget, RoutingWrite, TaskQueue, TaskQueueKind, TemporalError,
    VersionStatus,
};

use crate::stage::{Stage, identity};

fn current(build: &str) -> RoutingWrite {
    RoutingWrite::Current(Some(BuildId::new(build)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_decided_on_an_old_look_is_a_conflict_unless_it_changes_nothing() {
    let stage = Stage::new("stale").await;
    let _v1 = stage.worker("v1").await;
    let _v2 = stage.worker("v2").await;
    let old = Stage::guard(&stage.describe().await);
    stage.make_current("v1").await;
    let refused = stage.port.set_routing(&stage.name, &current("v2"), &old).await;
    assert!(matches!(refused, Err(TemporalError::Conflict { .. })), "{refused:?}");
    let ramp = RoutingWrite::Ramp { to: BuildId::new("v2"), percent: Percent(5.0) };
    let refused = stage.port.set_routing(&stage.name, &ramp, &old).await;
    assert!(matches!(refused, Err(TemporalError::Conflict { .. })), "{refused:?}");
    let accepted = stage.port.set_routing(&stage.name, &current("v1"), &old).await;
    assert!(accepted.is_ok(), "what is so already is accepted with any token: {accepted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_keeps_others_from_the_routing_and_nobody_from_taking_over() {
    let stage = Stage::new("managed").await;
    let _v1 = stage.worker("v1").await;
    stage.person.take_over(stage.name.as_str(), "another operator").await.expect("anyone may");
    let described = stage.describe().await;
    assert_eq!(described.manager, Some(Identity::new("another operator")));
    let guard = Stage::guard(&described);
    let refused = stage.port.set_routing(&stage.name, &current("v1"), &guard).await;
    let Err(TemporalError::OwnedByOther { manager, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(manager, Some(Identity::new("another operator")));
    assert_eq!(stage.describe().await.routing.current, None, "nothing was changed");

    let taken = stage.port.set_manager(&stage.name, true, &guard).await;
    assert!(taken.is_ok(), "the server lets anyone take it: {taken:?}");
    assert_eq!(stage.describe().await.manager, Some(identity()));
    stage.make_current("v1").await;
    let guard = Stage::guard(&stage.describe().await);
    stage.port.set_manager(&stage.name, false, &guard).await.expect("it is given back");
    assert_eq!(stage.describe().await.manager, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_lacks_a_task_queue_of_the_current_one_is_refused() {
    let stage = Stage::new("lacking").await;
    let both = format!("{0},{0}-more", stage.name);
    let _v1 = stage.worker_with("v1", &[("TASK_QUEUES", &both)]).await;
    let more = TaskQueue { name: format!("{}-more", stage.name), kind: TaskQueueKind::Workflow };
    stage
        .until("both task queues are known", async || {
            let v1 = stage.port.describe_version(&stage.name, &BuildId::new("v1")).await.ok()?;
            v1.task_queues.contains(&more).then_some(())
        })
        .await;
    stage.make_current("v1").await;
    // A task queue on which nothing runs any more does not count.
    let pinned = Some((stage.name.as_str(), "v1"));
    stage.person.start("Hold", "lacking-1", &more.name, pinned).await.expect("a workflow");
    let _v2 = stage.worker("v2").await;
    let guard = Stage::guard(&stage.describe().await);
    for write in [current("v2"), RoutingWrite::Ramp { to: BuildId::new("v2"), percent: Percent(5.0) }] {
        let refused = stage.port.set_routing(&stage.name, &write, &guard).await;
        assert!(matches!(refused, Err(TemporalError::MissingTaskQueues { .. })), "{write:?}: {refused:?}");
    }
    stage.person.let_go("lacking-1").await.expect("a signal");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_never_polled_is_not_found_and_no_traffic_goes_there() {
    let stage = Stage::new("unseen").await;
    let _v1 = stage.worker("v1").await;
    stage.make_current("v1").await;
    let guard = Stage::guard(&stage.describe().await);
    for write in [current("v9"), RoutingWrite::Ramp { to: BuildId::new("v9"), percent: Percent(5.0) }] {
        let refused = stage.port.set_routing(&stage.name, &write, &guard).await;
        let told = matches!(refused, Err(TemporalError::NotFound { .. } | TemporalError::NoPollers { .. }));
        assert!(told, "{write:?}: {refused:?}");
    }
    assert_eq!(stage.describe().await.routing.current, Some(BuildId::new("v1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_tasks_is_not_deleted_and_a_drained_version_is_revived_by_a_pin() {
    let stage = Stage::new("drained").await;
    let v1 = BuildId::new("v1");
    let _one = stage.worker("v1").await;
    stage.make_current("v1").await;
    stage.person.start("Hold", "drained-1", stage.name.as_str(), None).await.expect("a workflow");
    // It is on v1 once its first task is done.
    stage
        .until("it is counted", async || {
            let running = stage.port.running_workflows(&stage.name, &v1).await.ok()?;
            (running.pinned == 1).then_some(())
        })
        .await;
    let refused = stage.port.delete_version(&stage.name, &v1, false, &identity()).await;
    assert!(matches!(refused, Err(TemporalError::VersionRouted { .. })), "{refused:?}");
    let _two = stage.worker("v2").await;
    stage.make_current("v2").await;
    stage.until_status("v1", VersionStatus::Draining).await;
    stage.person.let_go("drained-1").await.expect("a signal");
    assert_eq!(stage.person.result("drained-1").await, "v1", "it ends on the build that it began on");
    stage.until_status("v1", VersionStatus::Drained).await;

    stage
        .person
        .start("Hold", "drained-2", stage.name.as_str(), Some((stage.name.as_str(), "v1")))
        .await
        .expect("a pinned workflow");
    stage.until_status("v1", VersionStatus::Draining).await;
    stage.person.let_go("drained-2").await.expect("a signal");
    assert_eq!(stage.person.result("drained-2").await, "v1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_is_pinned_by_its_first_task_and_not_by_its_start() {
    let stage = Stage::new("begun").await;
    let one = stage.worker("v1").await;
    stage.make_current("v1").await;
    drop(one);
    stage.person.start("Hold", "begun-1", stage.name.as_str(), None).await.expect("a workflow");
    assert_eq!(
        stage.person.build_of("begun-1").await.expect("it is there"),
        None,
        "no worker has taken it up"
    );
    let _two = stage.worker("v2").await;
    stage.make_current("v2").await;
    stage
        .until("it is pinned", async || {
            stage.person.build_of("begun-1").await.ok()?.filter(|build| build == "v2").map(drop)
        })
        .await;
    // From here on it stays, whatever becomes current.
    let _three = stage.worker("v3").await;
    stage.make_current("v3").await;
    stage.person.let_go("begun-1").await.expect("a signal");
    assert_eq!(stage.person.result("begun-1").await, "v2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_drains_a_version_that_never_was_active_and_its_activation_tells() {
    let stage = Stage::new("never").await;
    let _v1 = stage.worker("v1").await;
    let pinned = Some((stage.name.as_str(), "v1"));
    stage
        .until("a pinned workflow is taken", async || {
            let started = stage.person.start("Gate", "never-1", stage.name.as_str(), pinned).await;
            started.ok()
        })
        .await;
    stage.until_status("v1", VersionStatus::Drained).await;
    let v1 = stage.port.describe_version(&stage.name, &BuildId::new("v1")).await.expect("it is there");
    assert_eq!((v1.summary.first_activated, v1.summary.last_current), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ramp_by_hand_is_seen_as_it_is() {
    let stage = Stage::new("by-hand").await;
    let _v1 = stage.worker("v1").await;
    let _v2 = stage.worker("v2").await;
    stage.make_current("v1").await;
    stage.person.ramp(stage.name.as_str(), "v2", 12.5, "a person").await.expect("a ramp");
    let ramp = stage.describe().await.routing.ramp.expect("a ramp");
    assert_eq!((ramp.to, ramp.percent), (RampTarget::Version(BuildId::new("v2")), Percent(12.5)));
    assert_eq!(stage.describe().await.last_modifier, Some(Identity::new("a person")));
    // To workers without a version, which only people set.
    stage.person.ramp(stage.name.as_str(), "", 30.0, "a person").await.expect("a ramp");
    let ramp = stage.describe().await.routing.ramp.expect("a ramp");
    assert_eq!((ramp.to, ramp.percent), (RampTarget::Unversioned, Percent(30.0)));
    let guard = Guard { identity: identity(), ..Stage::guard(&stage.describe().await) };
    stage.port.set_routing(&stage.name, &RoutingWrite::ClearRamp, &guard).await.expect("it is taken back");
    assert_eq!(stage.describe().await.routing.ramp, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_workers_are_gone_is_made_current_without_a_word() {
    let stage = Stage::new("deserted").await;
    let _one = stage.worker("v1").await;
    stage.make_current("v1").await;
    let two = stage.worker("v2").await;
    let queue = TaskQueue { name: stage.name.to_string(), kind: TaskQueueKind::Workflow };
    drop(two);
    stage
        .until("nobody polls as v2", async || {
            let pollers = stage.port.pollers(&stage.name, &BuildId::new("v2"), &queue).await.ok()?;
            (pollers.count == 0).then_some(())
        })
        .await;
    stage.make_current("v2").await;
    assert_eq!(stage.describe().await.routing.current, Some(BuildId::new("v2")));
}
