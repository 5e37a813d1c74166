//! The life cycle of versions.

use super::{Ground, current, describe, identity, missing, queue, route, status, until, until_status};
use windlass_temporal::port::{
    BuildId, Missing, Routing, RunningWorkflows, TaskQueue, TaskQueueKind, TemporalError, VersionStatus,
};

pub async fn what_was_never_there(ground: &dyn Ground) {
    let (port, of, build) = (ground.temporal(), ground.deployment(), BuildId::new("v1"));
    assert_eq!(missing(port.describe_deployment(&of).await), Missing::Deployment);
    assert_eq!(missing(port.describe_version(&of, &build).await), Missing::Version);
    let gate = format!("{of}-no-such-gate");
    assert_eq!(missing(port.describe_gate(&gate).await), Missing::Workflow);
    assert_eq!(port.end_gate(&gate, "over", &identity()).await, Ok(()));
    assert_eq!(port.delete_deployment(&of, &identity()).await, Ok(()));
    let running = port.running_workflows(&of, &build).await;
    assert_eq!(running, Ok(RunningWorkflows::default()), "a count of nothing is nought");
}

pub async fn first_poll(ground: &dyn Ground) {
    ground.work("v1", &[queue(ground)]).await;
    let described = describe(ground).await;
    assert_eq!(described.routing, Routing::default());
    assert_eq!((described.manager, described.versions.len()), (None, 1));
    let version = &described.versions[0];
    assert_eq!((version.build.as_str(), version.status), ("v1", VersionStatus::Inactive));
    assert!(version.created.is_some() && version.first_activated.is_none() && version.drainage.is_none());
    // A worker polls for activities and for workflows; either may be known first.
    let (port, of, build) = (ground.temporal(), ground.deployment(), BuildId::new("v1"));
    let known = TaskQueue { name: queue(ground), kind: TaskQueueKind::Workflow };
    let described = async || port.describe_version(&of, &build).await.ok();
    let seen = async || described().await.filter(|v1| v1.task_queues.contains(&known));
    until(ground, "its task queue is known", seen).await;
}

pub async fn pollers_and_counts(ground: &dyn Ground) {
    let (port, of, queue) = (ground.temporal(), ground.deployment(), queue(ground));
    let known = TaskQueue { name: queue.clone(), kind: TaskQueueKind::Workflow };
    let (v1, v2) = (BuildId::new("v1"), BuildId::new("v2"));
    for build in ["v1", "v2"] {
        ground.work(build, std::slice::from_ref(&queue)).await;
    }
    for build in [&v1, &v2] {
        let seen = async || port.pollers(&of, build, &known).await.ok().filter(|pollers| pollers.count > 0);
        assert!(until(ground, "pollers are seen", seen).await.last_seen.is_some());
    }
    let nobody = port.pollers(&of, &BuildId::new("v3"), &known).await;
    assert!(
        nobody.as_ref().is_ok_and(|p| (p.count, p.unversioned, p.last_seen) == (0, 0, None)),
        "{nobody:?}"
    );

    assert_eq!(until_started(ground, "counted", Some("v1")).await, Ok(()));
    let one = Ok(RunningWorkflows { pinned: 1, auto_upgrade: 0 });
    until(ground, "it is counted", async || (port.running_workflows(&of, &v1).await == one).then_some(()))
        .await;
    assert_eq!(port.running_workflows(&of, &v2).await, Ok(RunningWorkflows::default()));
    assert_eq!(ground.end("counted").await, "v1");
}

/// Starts a workflow as soon as it is accepted: a version is listed before workflows can be pinned to it.
async fn until_started(ground: &dyn Ground, id: &str, pinned: Option<&str>) -> Result<(), String> {
    let started = async || ground.start(id, &queue(ground), pinned).await.ok();
    until(ground, "the workflow is accepted", started).await;
    Ok(())
}

pub async fn drained_and_revived(ground: &dyn Ground) {
    let (port, of, v1) = (ground.temporal(), ground.deployment(), BuildId::new("v1"));
    ground.work("v1", &[queue(ground)]).await;
    route(ground, &current("v1")).await;
    assert_eq!(until_started(ground, "first", None).await, Ok(()));
    let is_there = async || port.running_workflows(&of, &v1).await.is_ok_and(|r| r.pinned == 1).then_some(());
    until(ground, "it is on v1 once its first task is done", is_there).await;
    let refused = port.delete_version(&of, &v1, false, &identity()).await;
    assert!(matches!(refused, Err(TemporalError::VersionRouted { .. })), "{refused:?}");
    ground.work("v2", &[queue(ground)]).await;
    route(ground, &current("v2")).await;
    until_status(ground, "v1", VersionStatus::Draining).await;
    let refused = port.delete_version(&of, &v1, false, &identity()).await;
    assert!(matches!(refused, Err(TemporalError::VersionDraining { .. })), "{refused:?}");
    assert_eq!(ground.end("first").await, "v1", "it ends on the build that it began on");
    until_status(ground, "v1", VersionStatus::Drained).await;

    assert_eq!(until_started(ground, "second", Some("v1")).await, Ok(()));
    until_status(ground, "v1", VersionStatus::Draining).await;
    assert_eq!(ground.end("second").await, "v1");
    until_status(ground, "v1", VersionStatus::Drained).await;
}

pub async fn deleted(ground: &dyn Ground) {
    let (port, of, v1) = (ground.temporal(), ground.deployment(), BuildId::new("v1"));
    ground.work("v1", &[queue(ground)]).await;
    let refused = port.delete_version(&of, &v1, false, &identity()).await;
    assert!(matches!(refused, Err(TemporalError::VersionHasPollers { .. })), "{refused:?}");
    let refused = port.delete_deployment(&of, &identity()).await;
    assert!(matches!(refused, Err(TemporalError::Refused { .. })), "it has a version: {refused:?}");
    ground.stop("v1").await;
    let forgotten = async || {
        for _ in 0..20 {
            ground.moment().await;
        }
        port.delete_version(&of, &v1, false, &identity()).await.ok()
    };
    until(ground, "its pollers are forgotten", forgotten).await;
    assert_eq!(status(ground, "v1").await, None);
    let again = port.delete_version(&of, &v1, false, &identity()).await;
    assert_eq!(again, Ok(()), "it is gone already, and its deployment is known");
    let forgotten = async || port.delete_deployment(&of, &identity()).await.ok();
    until(ground, "the deployment is forgotten", forgotten).await;
    assert_eq!(missing(port.describe_deployment(&of).await), Missing::Deployment);
}
