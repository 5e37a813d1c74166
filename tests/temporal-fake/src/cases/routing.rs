//! When the routing changes, and when it does not.

use super::{Ground, current, describe, guard, identity, queue, route, status, until};
use windlass_temporal::port::{
    BuildId, Identity, Percent, Ramp, RampTarget, Routing, RoutingWrite, TaskQueue, TaskQueueKind,
    TemporalError, VersionStatus,
};

fn ramp(build: &str, percent: f32) -> RoutingWrite {
    RoutingWrite::Ramp { to: BuildId::new(build), percent: Percent(percent) }
}

pub async fn ramped_and_current(ground: &dyn Ground) {
    ground.work("v1", &[queue(ground)]).await;
    route(ground, &current("v1")).await;
    ground.work("v2", &[queue(ground)]).await;
    route(ground, &ramp("v2", 25.0)).await;
    let to_v2 = Ramp { to: RampTarget::Version(BuildId::new("v2")), percent: Percent(25.0) };
    let described = describe(ground).await;
    assert_eq!(described.routing, Routing { current: Some(BuildId::new("v1")), ramp: Some(to_v2) });
    assert_eq!(described.last_modifier, Some(identity()));
    assert_eq!(status(ground, "v2").await, Some(VersionStatus::Ramping));

    route(ground, &RoutingWrite::ClearRamp).await;
    let v1_alone = Routing { current: Some(BuildId::new("v1")), ramp: None };
    assert_eq!(describe(ground).await.routing, v1_alone);

    route(ground, &ramp("v2", 50.0)).await;
    route(ground, &current("v2")).await;
    let v2_alone = Routing { current: Some(BuildId::new("v2")), ramp: None };
    assert_eq!(describe(ground).await.routing, v2_alone, "the ramp to it ends thereby");
    let listed = until(ground, "the deployment says when v2 became current", async || {
        let versions = describe(ground).await.versions;
        versions.into_iter().find(|v| v.build.as_str() == "v2" && v.last_current.is_some())
    });
    let listed = listed.await;
    assert!(listed.status == VersionStatus::Current && listed.first_activated.is_some(), "{listed:?}");

    route(ground, &RoutingWrite::Current(None)).await;
    assert_eq!(describe(ground).await.routing, Routing::default());
}

pub async fn stale_token(ground: &dyn Ground) {
    for build in ["v1", "v2"] {
        ground.work(build, &[queue(ground)]).await;
    }
    let old = guard(&describe(ground).await);
    route(ground, &current("v1")).await;
    let (port, of) = (ground.temporal(), ground.deployment());
    for write in [current("v2"), ramp("v2", 5.0)] {
        let refused = port.set_routing(&of, &write, &old).await;
        assert!(matches!(refused, Err(TemporalError::Conflict { .. })), "{write:?}: {refused:?}");
    }
    let accepted = port.set_routing(&of, &current("v1"), &old).await;
    assert!(accepted.is_ok(), "what is so already is accepted with any token: {accepted:?}");
}

pub async fn other_manager(ground: &dyn Ground) {
    ground.work("v1", &[queue(ground)]).await;
    ground.take_over("another operator").await;
    let described = describe(ground).await;
    assert_eq!(described.manager, Some(Identity::new("another operator")));
    let (port, of) = (ground.temporal(), ground.deployment());
    let ours = guard(&described);
    let refused = port.set_routing(&of, &current("v1"), &ours).await;
    let Err(TemporalError::OwnedByOther { manager, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(manager, Some(Identity::new("another operator")));
    assert_eq!(describe(ground).await.routing.current, None, "nothing was changed");

    let taken = port.set_manager(&of, true, &ours).await;
    assert!(taken.is_ok(), "anyone may take it: {taken:?}");
    assert_eq!(describe(ground).await.manager, Some(identity()));
    route(ground, &current("v1")).await;
    let ours = guard(&describe(ground).await);
    let given = port.set_manager(&of, false, &ours).await;
    assert!(given.is_ok(), "it is given back: {given:?}");
    assert_eq!(describe(ground).await.manager, None);
}

pub async fn missing_task_queues(ground: &dyn Ground) {
    let more = format!("{}-more", queue(ground));
    ground.work("v1", &[queue(ground), more.clone()]).await;
    let (port, of) = (ground.temporal(), ground.deployment());
    let known = TaskQueue { name: more.clone(), kind: TaskQueueKind::Workflow };
    let both = async || {
        let v1 = port.describe_version(&of, &BuildId::new("v1")).await.ok()?;
        v1.task_queues.contains(&known).then_some(())
    };
    until(ground, "both task queues are known", both).await;
    route(ground, &current("v1")).await;
    // A task queue on which nothing runs any more does not count.
    let started = async || ground.start("lacking", &more, Some("v1")).await.ok();
    until(ground, "the workflow is accepted", started).await;
    ground.work("v2", &[queue(ground)]).await;
    let ours = guard(&describe(ground).await);
    for write in [current("v2"), ramp("v2", 5.0)] {
        let refused = port.set_routing(&of, &write, &ours).await;
        assert!(matches!(refused, Err(TemporalError::MissingTaskQueues { .. })), "{write:?}: {refused:?}");
    }
    assert_eq!(ground.end("lacking").await, "v1");
}

pub async fn unseen_build(ground: &dyn Ground) {
    ground.work("v1", &[queue(ground)]).await;
    route(ground, &current("v1")).await;
    let ours = guard(&describe(ground).await);
    for write in [current("v9"), ramp("v9", 5.0)] {
        let refused = ground.temporal().set_routing(&ground.deployment(), &write, &ours).await;
        let is_refused =
            matches!(refused, Err(TemporalError::NotFound { .. } | TemporalError::NoPollers { .. }));
        assert!(is_refused, "{write:?}: {refused:?}");
    }
    assert_eq!(describe(ground).await.routing.current, Some(BuildId::new("v1")));
}

pub async fn ramp_by_hand(ground: &dyn Ground) {
    for build in ["v1", "v2"] {
        ground.work(build, &[queue(ground)]).await;
    }
    route(ground, &current("v1")).await;
    ground.ramp_by_hand("v2", 12.5, "a person").await;
    let described = describe(ground).await;
    let to_v2 = Ramp { to: RampTarget::Version(BuildId::new("v2")), percent: Percent(12.5) };
    assert_eq!(
        (described.routing.ramp, described.last_modifier),
        (Some(to_v2), Some(Identity::new("a person")))
    );
    // To workers without a version, which only people set.
    ground.ramp_by_hand("", 30.0, "a person").await;
    let unversioned = Ramp { to: RampTarget::Unversioned, percent: Percent(30.0) };
    assert_eq!(describe(ground).await.routing.ramp, Some(unversioned));
    route(ground, &RoutingWrite::ClearRamp).await;
    assert_eq!(describe(ground).await.routing.ramp, None);
}
