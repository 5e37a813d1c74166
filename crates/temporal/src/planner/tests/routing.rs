//! The tasks of plans, and their routing changes.

use chrono::TimeDelta;
use serde_json::json;

use super::{facts, now, tasks, version};
use crate::api::{Reason, VersionRecord, VersionState};
use crate::planner::facts::{Standing, TemporalState, believe};
use crate::planner::routing::{Next, ramp, set_current, stray_ramp};
use crate::planner::sunset::{Act, NeededVersions, act};
use crate::port::{
    BuildId, Identity, Missing, Percent, Ramp, RampTarget, RoutingWrite, RunningWorkflows, TemporalError,
    VersionStatus,
};

const BEGIN: [&str; 4] = ["create-version", "await-available", "await-registered", "claim-manager"];

#[test]
fn plan_tasks_match_the_strategy_and_direction() {
    let steps =
        json!({"steps": [{"percent": 5}, {"percent": 50, "gate": true}], "gate": {"workflowType": "W"}});
    let new = [&BEGIN[..], &["run-gate", "ramp 5", "run-gate", "ramp 50", "set-current"]].concat();
    assert_eq!(tasks(&facts(steps.clone())), new);
    assert_eq!(tasks(&facts(json!({}))), [&BEGIN[..], &["set-current"]].concat());
    let manual = [
        "create-version",
        "await-available",
        "await-registered",
        "await-promote",
        "claim-manager",
        "set-current",
    ];
    assert_eq!(tasks(&facts(json!({"strategy": "Manual"}))), manual);

    let mut back = facts(steps);
    let two = BuildId::new("two");
    let mut lives = version(&two, VersionStatus::Draining, true);
    super::edit(&mut lives, |pool| pool.template_hash = Some(back.target.template_hash.clone()));
    back.versions.insert(two.clone(), lives);
    assert_eq!(tasks(&back), [&BEGIN[..], &["set-current"]].concat(), "it was current, and its workers run");
    back.versions.get_mut(&two).unwrap().listed.as_mut().unwrap().last_current = None;
    assert_eq!(tasks(&back), new, "it only ramped and was never current");

    let mut ramped = facts(json!({}));
    let TemporalState::Known(described) = &mut ramped.temporal else { panic!() };
    described.routing.ramp =
        Some(Ramp { to: RampTarget::Version(BuildId::new("other")), percent: Percent(5.0) });
    assert_eq!(tasks(&ramped)[0], "clear-ramp");
}

#[test]
fn workers_without_observed_pollers_get_no_tasks() {
    let mut f = facts(json!({}));
    let reason = |next: Next| match next {
        Next::Wait { reason, .. } => Some(reason),
        _ => None,
    };
    assert_eq!(reason(set_current(&f, None, now())), Some(Reason::WorkersNotReady));
    let two = BuildId::new("two");
    f.versions.insert(two.clone(), version(&two, VersionStatus::Inactive, false));
    for (pollers, waits) in [(None, true), (Some(0), true), (Some(1), false)] {
        f.versions.get_mut(&two).unwrap().pollers = pollers;
        assert_eq!(
            reason(set_current(&f, None, now())) == Some(Reason::WaitingForPollers),
            waits,
            "{pollers:?}"
        );
    }
    assert_eq!(set_current(&f, None, now()), Next::Write(RoutingWrite::Current(Some(two.clone()))));
    f.spec.paused = true;
    assert_eq!(reason(set_current(&f, None, now())), Some(Reason::Paused));
    f.spec.paused = false;
    let TemporalState::Known(described) = &mut f.temporal else { panic!() };
    described.manager = Some(Identity::new("alice"));
    assert_eq!(reason(set_current(&f, None, now())), Some(Reason::OwnedByOther));
    let TemporalState::Known(described) = &mut f.temporal else { panic!() };
    described.routing.ramp = Some(Ramp { to: RampTarget::Version(two), percent: Percent(5.0) });
    assert_eq!(stray_ramp(&f, false), None, "the ramp of another manager is not cleared either");
}

#[test]
fn step_pause_counts_from_the_observed_ramp() {
    let mut f = facts(json!({}));
    let two = BuildId::new("two");
    let mut served = version(&two, VersionStatus::Ramping, true);
    served.pollers = Some(2);
    f.versions.insert(two.clone(), served);
    let TemporalState::Known(described) = &mut f.temporal else { panic!() };
    described.routing.ramp = Some(Ramp { to: RampTarget::Version(two.clone()), percent: Percent(5.0) });
    let pause = TimeDelta::seconds(60);
    let is_done = |ago: Option<i64>| {
        let set_at = ago.map(|seconds| now() - TimeDelta::seconds(seconds));
        ramp(&f, 5, pause, set_at, now()) == Next::Done
    };
    assert_eq!(
        [None, Some(0), Some(59), Some(60), Some(9000)].map(is_done),
        [false, false, false, true, true]
    );
    let next = ramp(&f, 50, pause, None, now());
    assert_eq!(next, Next::Write(RoutingWrite::Ramp { to: two, percent: Percent(50.0) }));
}

#[test]
fn routing_write_waits_for_all_task_queues() {
    let mut f = facts(json!({}));
    let two = BuildId::new("two");
    let mut served = version(&two, VersionStatus::Ramping, true);
    served.pollers = Some(2);
    f.versions.insert(two.clone(), served);
    let (pause, just_now) = (TimeDelta::zero(), Some(now()));
    let described = |f: &mut super::Facts, is_settled: bool, current: &BuildId| {
        let TemporalState::Known(described) = &mut f.temporal else { panic!() };
        described.is_settled = is_settled;
        described.routing.current = Some(current.clone());
        described.routing.ramp =
            (*current != two).then(|| Ramp { to: RampTarget::Version(two.clone()), percent: Percent(5.0) });
    };
    let one = BuildId::new("one");
    for is_settled in [false, true] {
        described(&mut f, is_settled, &one);
        assert_eq!(ramp(&f, 5, pause, just_now, now()) == Next::Done, is_settled);
        described(&mut f, is_settled, &two);
        let current = |ago: Option<i64>| {
            let set_at = ago.map(|seconds| now() - TimeDelta::seconds(seconds));
            set_current(&f, set_at, now()) == Next::Done
        };
        assert_eq!(
            [None, Some(0), Some(59), Some(60)].map(current),
            [is_settled, is_settled, is_settled, true]
        );
    }
    // Temporal never reports it, and nobody polls.
    described(&mut f, false, &two);
    f.versions.get_mut(&two).unwrap().pollers = Some(0);
    let next = set_current(&f, Some(now() - TimeDelta::hours(1)), now());
    assert!(matches!(next, Next::Wait { reason: Reason::WaitingForPollers, .. }), "{next:?}");
}

#[test]
fn response_without_known_versions_is_not_trusted() {
    let f = facts(json!({}));
    let TemporalState::Known(described) = &f.temporal else { panic!() };
    let missing = || TemporalError::NotFound { what: Missing::Deployment, message: String::new() };
    let among = |answer, status: &_, standing: &_| {
        matches!(believe(answer, status, &f.deployment, standing), TemporalState::Lost { .. })
    };
    let none = Standing::default();
    let is_lost = |answer, status: &_| among(answer, status, &none);
    let mut status = f.status.clone();
    assert!(!is_lost(Err(missing()), &status), "before the first worker polls, Temporal has no record");
    status.versions = vec![VersionRecord {
        resources: Vec::new(),
        pools: Vec::new(),
        build_id: BuildId::new("one"),
        revision: None,
        deployment: Some("orders-one".into()),
        state: VersionState::Current,
        replicas: 1,
        ready: 1,
        since: None,
        drained_since: None,
        running_workflows: None,
        pollers: None,
    }];
    assert!(is_lost(Err(missing()), &status));
    assert!(is_lost(Ok(described.clone()), &status), "it lists none");
    let mut lists = described.clone();
    let stranger = version(&BuildId::new("stranger"), VersionStatus::Current, true).listed.unwrap();
    lists.versions = vec![stranger];
    assert!(is_lost(Ok(lists.clone()), &status), "it lists only what was never here");
    lists.versions.push(f.versions[&BuildId::new("one")].listed.clone().unwrap());
    assert!(!is_lost(Ok(lists.clone()), &status));
    // Workers that are older than the status.
    status.versions.clear();
    let mut left = Standing { builds: vec![BuildId::new("one")], unrecorded: vec![BuildId::new("one")] };
    assert!(among(Err(missing()), &status, &left));
    assert!(among(Ok(described.clone()), &status, &left));
    assert!(!among(Ok(lists.clone()), &status, &left), "it lists them");
    lists.versions.truncate(1);
    assert!(among(Ok(lists), &status, &left), "it lists only what was never here");
    left.unrecorded.clear();
    assert!(!among(Err(missing()), &status, &left), "these were just created");
}

#[test]
fn version_is_scaled_down_only_when_drained_due_and_counted() {
    let mut f = facts(json!({}));
    let old = BuildId::new("old");
    let mut drained = version(&old, VersionStatus::Drained, true);
    drained.listed.as_mut().unwrap().drainage = Some(crate::port::Drainage {
        status: crate::port::DrainageStatus::Drained,
        changed: Some(now() - TimeDelta::seconds(3_700)),
        checked: None,
    });
    f.versions.insert(old.clone(), drained);
    let of = |f: &crate::planner::Facts| act(f, &f.versions[&old], &NeededVersions::default(), now());
    assert_eq!(of(&f), Act::Count);
    for (pinned, wanted) in [(0, Act::ScaleDown), (1, Act::Serve)] {
        f.versions.get_mut(&old).unwrap().running = Some(RunningWorkflows { pinned, auto_upgrade: 9 });
        assert_eq!(of(&f), wanted);
    }
    f.versions.get_mut(&old).unwrap().running = Some(RunningWorkflows::default());
    f.spec.sunset.scale_down_delay_seconds = 3_701;
    assert_eq!(of(&f), Act::Leave, "a second too early");
    f.spec.sunset.scale_down_delay_seconds = 0;
    f.temporal = TemporalState::Lost { reason: Reason::TemporalUnreachable, message: String::new() };
    assert_eq!(of(&f), Act::Leave);
}
