//! The conditions of a fleet: every reason of the closed set can be reached, and kstatus can read them.

use crate::planner::fleet::blocker::Blocker;
use std::collections::BTreeSet;

use super::*;
use crate::api::conditions::{RECONCILING, STALLED, find};

type Case = (
    &'static str,
    FleetFacts,
    NodeDeploymentStatus,
    i64,
    &'static [(&'static str, &'static str, &'static str)],
);

fn rolled(
    facts: FleetFacts,
    rollout_target: RolloutTarget,
    target: &str,
    cause: Cause,
) -> (FleetFacts, NodeDeploymentStatus) {
    let status = rolling_out(&facts, &start(rollout_target, target, cause));
    (facts, status)
}

fn resting(facts: FleetFacts) -> (FleetFacts, NodeDeploymentStatus) {
    let status = at_rest(&facts);
    (facts, status)
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    let two = || fleet(2).wanting("v2");
    let done = |c: ChildFacts| c.granted("v2").converged();
    let v2 = |cause| rolled(two(), to("v2"), "v2", cause);
    let own = |cause| rolled(fleet(2), RolloutTarget::Own, "v1", cause);
    // Only what is a cause is one: another reason is not.
    let strange = || {
        let (facts, mut status) = v2(Cause::TemplateChanged);
        status.rollout.iter_mut().for_each(|rollout| "Applied".clone_into(&mut rollout.cause));
        (facts, status)
    };
    let held = two().held_below_ordinal(1).but(1, done);
    let conflict = super::super::Conflict { name: "db-1".into(), ordinal: 1, message: "taken".to_owned() };
    let mut taken = fleet(2).without(1);
    taken.conflicts.push(conflict);
    let case = |what, (facts, status): (FleetFacts, NodeDeploymentStatus), seconds, expected| -> Case {
        (what, facts, status, seconds, expected)
    };
    vec![
        case(
            "steady",
            resting(fleet(2)),
            0,
            &[
                ("Ready", "True", "AllNodesReady"),
                ("UpToDate", "True", "Applied"),
                ("RolloutInProgress", "False", "RolloutComplete"),
                ("Stalled", "False", "Progressing"),
                ("Reconciling", "False", "Settled"),
            ],
        ),
        case(
            "a new fleet without nodes",
            resting(new_fleet(2)),
            0,
            &[
                ("Ready", "False", "NotStarted"),
                ("UpToDate", "Unknown", "Applying"),
                ("RolloutInProgress", "False", "NotStarted"),
                ("Reconciling", "True", "Progressing"),
            ],
        ),
        case(
            "no node wanted, nothing completed",
            resting(new_fleet(2).with(|f| f.spec.replicas = 0)),
            0,
            &[
                ("Ready", "False", "NotStarted"),
                ("UpToDate", "Unknown", "NotStarted"),
                ("Reconciling", "False", "Settled"),
            ],
        ),
        case(
            "no node wanted any more, something else completed",
            resting(two().with(|f| f.spec.replicas = 0)),
            0,
            &[("UpToDate", "Unknown", "NotStarted"), ("RolloutInProgress", "False", "NotStarted")],
        ),
        case(
            "no node wanted any more, of what completed",
            resting(fleet(2).with(|f| f.spec.replicas = 0)),
            0,
            &[("UpToDate", "True", "Applied"), ("RolloutInProgress", "False", "RolloutComplete")],
        ),
        case(
            "filling again with something else",
            resting(two().without(1).with(|f| f.record.scaled_to_zero = true)),
            0,
            &[("UpToDate", "Unknown", "Applying"), ("RolloutInProgress", "False", "NotStarted")],
        ),
        case(
            "first nodes coming up",
            resting(fleet(2).never_completed().but(0, ChildFacts::never_ready)),
            0,
            &[("Ready", "False", "NodesInitializing"), ("Reconciling", "True", "Progressing")],
        ),
        case(
            "one down",
            resting(fleet(2).but(0, ChildFacts::down)),
            0,
            &[("Ready", "False", "NodesNotReady"), ("Reconciling", "True", "Progressing")],
        ),
        case(
            "one failed",
            resting(fleet(2).but(0, ChildFacts::failed)),
            0,
            &[("Ready", "False", "NodesFailed")],
        ),
        case(
            "a new template",
            v2(Cause::TemplateChanged),
            0,
            &[
                ("UpToDate", "Unknown", "Applying"),
                ("RolloutInProgress", "True", "TemplateChanged"),
                ("Reconciling", "True", "Progressing"),
            ],
        ),
        case(
            "operator drift",
            own(Cause::OperatorDrift),
            0,
            &[("RolloutInProgress", "True", "OperatorDrift")],
        ),
        case("child drift", own(Cause::ChildDrift), 0, &[("RolloutInProgress", "True", "ChildDrift")]),
        case(
            "restart",
            own(Cause::RestartRequested),
            0,
            &[("RolloutInProgress", "True", "RestartRequested")],
        ),
        case("retry", v2(Cause::RetryRequested), 0, &[("RolloutInProgress", "True", "RetryRequested")]),
        case(
            "a cause that another version knows",
            strange(),
            0,
            &[("RolloutInProgress", "True", "TemplateChanged")],
        ),
        case("superseded", v2(Cause::Superseded), 0, &[("RolloutInProgress", "True", "Superseded")]),
        case(
            "paused",
            rolled(two().paused(), to("v2"), "v2", Cause::TemplateChanged),
            9_000,
            &[("RolloutInProgress", "True", "Paused"), ("Stalled", "False", "Progressing")],
        ),
        case(
            "held by the partition",
            rolled(held, to("v2"), "v2", Cause::TemplateChanged),
            9_000,
            &[
                ("UpToDate", "Unknown", "PartitionHeld"),
                ("RolloutInProgress", "True", "PartitionHeld"),
                ("Stalled", "False", "Progressing"),
            ],
        ),
        case(
            "stalled",
            v2(Cause::TemplateChanged),
            600,
            &[
                ("UpToDate", "False", "Stalled"),
                ("RolloutInProgress", "True", "Stalled"),
                ("Stalled", "True", "NoProgress"),
                ("Reconciling", "False", "Settled"),
            ],
        ),
        case(
            "aborted",
            resting(two().rejecting("Aborted")),
            0,
            &[
                ("UpToDate", "False", "Aborted"),
                ("RolloutInProgress", "False", "RolloutAborted"),
                ("Stalled", "True", "Aborted"),
            ],
        ),
        case(
            "rolled back",
            resting(two().rejecting("RolledBack")),
            0,
            &[
                ("UpToDate", "False", "RolledBack"),
                ("RolloutInProgress", "False", "RolledBack"),
                ("Stalled", "True", "RolledBack"),
            ],
        ),
        case(
            "put right while the target is aborted",
            rolled(two().rejecting("Aborted"), RolloutTarget::Own, "v1", Cause::ChildDrift),
            0,
            &[("UpToDate", "False", "Aborted"), ("RolloutInProgress", "True", "ChildDrift")],
        ),
        case(
            "restarted while the target is rolled back",
            rolled(two().rejecting("RolledBack"), RolloutTarget::Own, "v1", Cause::RestartRequested),
            0,
            &[("UpToDate", "False", "RolledBack"), ("RolloutInProgress", "True", "RestartRequested")],
        ),
        case(
            "put right in vain while the target failed",
            rolled(
                two().rejecting("Failed").but(0, |c| c.running("v2")).but(1, |c| c.running("v2")),
                RolloutTarget::Own,
                "v1",
                Cause::ChildDrift,
            ),
            600,
            &[("UpToDate", "False", "Stalled"), ("Stalled", "True", "NoProgress")],
        ),
        case(
            "failed",
            resting(two().rejecting("Failed")),
            0,
            &[
                ("UpToDate", "False", "PlanFailed"),
                ("RolloutInProgress", "False", "RolloutFailed"),
                ("Stalled", "True", "PlanFailed"),
            ],
        ),
        case(
            "refused",
            resting(fleet(2).with(|f| f.findings.blocker = Some(Blocker::Spec("template: no".to_owned())))),
            0,
            &[
                ("UpToDate", "False", "InvalidSpec"),
                ("Stalled", "True", "InvalidSpec"),
                ("Ready", "True", "AllNodesReady"),
            ],
        ),
        case(
            "a name is taken",
            resting(taken),
            0,
            &[
                ("UpToDate", "False", "InvalidSpec"),
                ("Stalled", "True", "InvalidSpec"),
                ("Ready", "False", "NodesNotReady"),
            ],
        ),
        case(
            "a surplus node leaves",
            resting(fleet(2).with_surplus(node(2))),
            0,
            &[("Reconciling", "True", "Progressing")],
        ),
    ]
}

#[test]
fn each_condition_reports_the_current_state() {
    for (what, facts, status, seconds, expected) in cases() {
        let status = look(status, &facts, seconds);
        for (type_, truth, reason) in expected {
            let found = find(&status.conditions, type_).unwrap();
            assert_eq!((found.status.as_str(), found.reason.as_str()), (*truth, *reason), "{what}: {type_}");
        }
    }
}

#[test]
fn all_conditions_are_set_with_the_observed_generation() {
    for (what, facts, status, seconds, _) in cases() {
        let status = look(status, &facts, seconds);
        let types: BTreeSet<&str> = status.conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(
            types,
            BTreeSet::from(["Ready", "Reconciling", "RolloutInProgress", "Stalled", "UpToDate"]),
            "{what}"
        );
        assert!(status.conditions.iter().all(|c| c.observed_generation == 7), "{what}");
    }
}

#[test]
fn fleet_is_never_both_stalled_and_reconciling() {
    for (what, facts, status, seconds, _) in cases() {
        let status = look(status, &facts, seconds);
        let truth = |type_| find(&status.conditions, type_).unwrap().status == "True";
        assert!(!(truth(STALLED) && truth(RECONCILING)), "{what}");
    }
}

#[test]
fn every_in_place_rollout_reason_is_reachable() {
    let reached: BTreeSet<(String, String)> = cases()
        .into_iter()
        .flat_map(|(_, facts, status, seconds, _)| look(status, &facts, seconds).conditions)
        .map(|c| (c.type_, c.reason))
        .collect();
    let all: [(&str, &[&str]); 5] = [
        ("Ready", &["AllNodesReady", "NotStarted", "NodesInitializing", "NodesNotReady", "NodesFailed"]),
        (
            "UpToDate",
            &[
                "Applied",
                "Stalled",
                "RolledBack",
                "Aborted",
                "PlanFailed",
                "InvalidSpec",
                "NotStarted",
                "Applying",
                "PartitionHeld",
            ],
        ),
        (
            "RolloutInProgress",
            &[
                "TemplateChanged",
                "OperatorDrift",
                "ChildDrift",
                "RestartRequested",
                "RetryRequested",
                "Superseded",
                "PartitionHeld",
                "Stalled",
                "Paused",
                "NotStarted",
                "RolloutComplete",
                "RolloutFailed",
                "RolloutAborted",
                "RolledBack",
            ],
        ),
        ("Stalled", &["NoProgress", "RolledBack", "Aborted", "PlanFailed", "InvalidSpec", "Progressing"]),
        ("Reconciling", &["Progressing", "Settled"]),
    ];
    let expected: BTreeSet<(String, String)> = all
        .iter()
        .flat_map(|(type_, reasons)| reasons.iter().map(|r| ((*type_).to_owned(), (*r).to_owned())))
        .collect();
    assert_eq!(reached, expected);
}

#[test]
fn condition_keeps_transition_time_until_status_changes() {
    let facts = fleet(2);
    let status = look(at_rest(&facts), &facts, 0);
    let status = look(status, &facts.clone().but(0, ChildFacts::down), 30);
    let status = look(status, &facts.but(0, ChildFacts::failed), 60);
    let ready = find(&status.conditions, "Ready").unwrap();
    assert_eq!((ready.reason.as_str(), ready.last_transition_time), ("NodesFailed", later(30)));
}
