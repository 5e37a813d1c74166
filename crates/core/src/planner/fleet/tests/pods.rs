//! The pods of StatefulSets as the nodes of a fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use crate::api::{Groups, PodMove, Rejected, RestartTime, RolloutHash};
use crate::engine::{Builtin, Plan, PlanSeed, Recipe, TaskState};
use crate::observed::{Observed, ObservedPod, ObservedStatefulSet};
use crate::planner::fleet::drain::Draining;
use crate::planner::fleet::facts::{FleetKind, SpecFacts};
use crate::planner::fleet::pods::{
    Mode, PodPlan, PodSet, PodsInput, completed, desired, observe, pod_hash, revision_of,
};
use crate::planner::fleet::state::{Flight, Health, NodeState};
use crate::planner::fleet::{Clause, Domain, FleetFacts, RolloutTarget, next_grants};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_900_000_000, 0).unwrap()
}

/// What a pod is like: its revision, and a letter for its state.
type Like = (&'static str, char);

/// The pods of two StatefulSets.
type TwoSets<'a> = [&'a [Like]; 2];

/// A StatefulSet with an update strategy, its current and its update revision, and these pods; `-` for a missing one.
fn set(name: &str, policy: &str, revisions: (&str, &str), pods: &[Like]) -> PodSet {
    let object = ObservedStatefulSet::read(&json!({
        "metadata": {"name": name, "uid": format!("uid of {name}"), "generation": 1},
        "spec": {
            "replicas": pods.len(), "minReadySeconds": 10, "podManagementPolicy": policy, "selector": {"matchLabels": {"app": name}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1_000_000}},
            "template": {"spec": {"containers": [{"name": "main", "image": "db:1"}]}},
        },
        "status": {"observedGeneration": 1, "currentRevision": revisions.0, "updateRevision": revisions.1},
    }));
    let pods = pods.iter().enumerate().filter(|(_, (_, state))| *state != '-');
    PodSet {
        update_revision: object.update_revision.clone(),
        pods: pods.map(|(ordinal, like)| Arc::new(pod(name, ordinal, *like))).collect(),
        set: Arc::new(object),
        warnings: BTreeMap::new(),
        refusal: None,
        missing: BTreeMap::new(),
    }
}

/// R: Ready; r: Ready just now; n: not Ready; f: cannot run; t: terminating.
fn pod(set: &str, ordinal: usize, (revision, state): Like) -> ObservedPod {
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
    let running = json!({"running": {"startedAt": now() - TimeDelta::hours(1)}});
    let name = format!("{set}-{ordinal}");
    let mut object = json!({
        "metadata": {
            "name": name, "uid": format!("uid of {name}"), "creationTimestamp": now() - TimeDelta::hours(1),
            "labels": {"controller-revision-hash": revision},
            "ownerReferences": [{"kind": "StatefulSet", "name": set, "uid": format!("uid of {set}"), "controller": true}],
        },
        "spec": {"containers": [{"name": "main", "image": "db:1"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": if matches!(state, 'R' | 'r' | 't') { "True" } else { "False" },
                "lastTransitionTime": now() - TimeDelta::seconds(if state == 'r' { 1 } else { 1800 })}],
            "containerStatuses": [{"name": "main", "ready": matches!(state, 'R' | 'r'),
                "state": if state == 'f' { waiting } else { running }}],
        },
    });
    if state == 't' {
        object["metadata"]["deletionTimestamp"] = json!(now());
        object["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    }
    ObservedPod::read(&object)
}

/// The plan of a pod to a target, at its first task or with that behind it.
fn plan(pod: &str, target: &str, replaced: bool) -> PodPlan {
    let mut plan: Plan = Recipe::builtin(Builtin::PodUpdate).plan(PlanSeed {
        uid: "u",
        target_hash: target,
        now: now() - TimeDelta::minutes(5),
        attempt: 0,
        disambiguator: pod,
    });
    if replaced {
        plan.tasks[0].state = TaskState::Complete;
    }
    PodPlan { pod: pod.to_owned(), plan }
}

static NO_MOVES: BTreeMap<String, PodMove> = BTreeMap::new();
static NO_MACHINES: Draining = Draining::Machines(BTreeMap::new());

fn input<'a>(sets: &'a [PodSet], plans: &'a [PodPlan]) -> PodsInput<'a> {
    PodsInput {
        sets,
        plans,
        moves: &NO_MOVES,
        draining: &NO_MACHINES,
        domain: &|_, _| Domain::Fleet,
        last: None,
        target: None,
        rejected: None,
        began: None,
        restart: None,
        deadline_seconds: 600,
        unconverged: &[],
        now: now(),
    }
}

fn facts(input: &PodsInput<'_>, max_unavailable: i32, groups: Groups) -> FleetFacts {
    let pods = observe(input);
    let replicas = pods.children.len() as i32;
    let mut facts = FleetFacts {
        kind: FleetKind::Pods,
        groups: pods.groups,
        children: pods.children,
        shutting_down: pods.shutting_down,
        renderings: pods.renderings,
        requested: desired(input.sets),
        spec: SpecFacts { replicas, max_unavailable, groups, ..SpecFacts::default() },
        ..FleetFacts::default()
    };
    facts.record.last_completed = Some(completed(input.sets));
    facts
}

/// The pods that are granted the target, in order, each with the clause.
fn granted(
    input: &PodsInput<'_>,
    max_unavailable: i32,
    groups: Groups,
    target: RolloutHash,
) -> Vec<(String, Clause)> {
    let facts = facts(input, max_unavailable, groups);
    let grants = next_grants(&facts, &RolloutTarget::Revision(target));
    grants.into_iter().map(|grant| (grant.name.to_string(), grant.clause)).collect()
}

fn names(granted: &[(String, Clause)]) -> Vec<&str> {
    granted.iter().map(|(name, _)| name.as_str()).collect()
}

const OLD: Like = ("a", 'R');
const NEW: Like = ("b", 'R');

#[test]
fn broken_pods_move_first_and_serving_pods_within_the_wave() {
    let (down, failed, missing) = (("a", 'n'), ("b", 'f'), ("", '-'));
    let table: [(&str, &[Like], i32, &[&str]); 9] = [
        ("highest ordinal first", &[OLD, OLD, OLD], 1, &["db-2"]),
        ("two at once", &[OLD, OLD, OLD], 2, &["db-2", "db-1"]),
        ("the next one", &[OLD, OLD, NEW], 1, &["db-1"]),
        ("all have moved", &[NEW, NEW, NEW], 1, &[]),
        ("a pod at the target that is down uses the wave", &[OLD, OLD, ("b", 'n')], 1, &[]),
        ("a pod that is down moves, and uses the wave", &[down, OLD, OLD], 1, &["db-0"]),
        ("a broken pod at the target waits for a fix", &[OLD, OLD, failed], 1, &[]),
        ("a missing pod moves, and uses the wave", &[missing, OLD, OLD], 1, &["db-0"]),
        ("a terminating pod uses the wave", &[OLD, ("a", 't'), OLD], 1, &["db-1"]),
    ];
    for (what, pods, most, expected) in table {
        let sets = [set("db", "Parallel", ("a", "b"), pods)];
        let input = input(&sets, &[]);
        assert_eq!(names(&granted(&input, most, Groups::Together, desired(&sets))), expected, "{what}");
    }
}

#[test]
fn fix_replaces_a_broken_pod_regardless_of_the_wave() {
    let sets = [set("db", "Parallel", ("a", "c"), &[OLD, OLD, ("b", 'f')])];
    let plans = [plan("db-2", "b", true)];
    let input = input(&sets, &plans);
    let found = granted(&input, 1, Groups::Together, desired(&sets));
    assert_eq!(found, [("db-2".to_owned(), Clause::InFlightUnspent)]);
}

#[test]
fn rollback_moves_only_pods_that_moved() {
    let sets = [set("db", "Parallel", ("a", "b"), &[OLD, OLD, NEW, ("b", 'f')])];
    let plans = [plan("db-3", "b", true)];
    let (back, rejected) = (completed(&sets), desired(&sets));
    let rejected =
        Rejected { hash: rejected.to_string(), outcome: "RolledBack".to_owned(), ..Rejected::default() };
    let input = PodsInput { target: Some(&back), rejected: Some(&rejected), ..input(&sets, &plans) };
    assert_eq!(names(&granted(&input, 1, Groups::Together, back.clone())), ["db-3"]);
    assert_eq!(names(&granted(&input, 2, Groups::Together, back.clone())), ["db-3", "db-2"]);
}

#[test]
fn pod_recreated_unchanged_is_not_granted_for_a_while() {
    let created = |seconds: i64| {
        let mut of = set("db", "Parallel", ("a", "b"), &[OLD, ("a", 'n'), NEW]);
        let mut pod = (*of.pods[1]).clone();
        pod.meta.created_at = Some(now() - TimeDelta::seconds(seconds));
        of.pods[1] = Arc::new(pod);
        [of]
    };
    let table: [(&str, i64, Option<i64>, &[&str]); 5] = [
        ("it came back now", 3, Some(300), &[]),
        ("some time ago", 11, Some(300), &["db-1"]),
        ("before the rollout", 3, Some(2), &["db-1"]),
        ("there is no rollout yet", 3, None, &["db-1"]),
        ("the clock was set back since", -3600, Some(-3000), &["db-1"]),
    ];
    for (what, ago, began, expected) in table {
        let sets = created(ago);
        let target = desired(&sets);
        let began = began.map(|seconds| now() - TimeDelta::seconds(seconds));
        let input = PodsInput { target: Some(&target), began, ..input(&sets, &[]) };
        assert_eq!(names(&granted(&input, 1, Groups::Together, target.clone())), expected, "{what}");
    }
    // Without a pod, what matters is whether its controller creates one.
    let table = [
        (None, 59, &[][..]),
        (None, 60, &["db-1"][..]),
        (Some("create Pod db-1 in StatefulSet db failed"), 0, &["db-1"][..]),
        (Some("create Pod db-10 in StatefulSet db failed"), 0, &[][..]),
    ];
    for (refusal, missing, expected) in table {
        let mut of = set("db", "Parallel", ("a", "b"), &[OLD, ("", '-'), NEW]);
        of.missing.insert("db-1".to_owned(), TimeDelta::seconds(missing));
        of.refusal = refusal.map(|note| (now(), note.to_owned()));
        let sets = [of];
        let target = desired(&sets);
        let began = Some(now() - TimeDelta::hours(1));
        let input = PodsInput { target: Some(&target), began, ..input(&sets, &[]) };
        assert_eq!(names(&granted(&input, 1, Groups::Together, target.clone())), expected, "{refusal:?}");
    }
}

#[test]
fn missing_pod_reports_its_controllers_create_error() {
    let said = |ago: i64, note: &str| {
        let mut of = set("db", "Parallel", ("a", "b"), &[OLD, ("", '-')]);
        of.refusal = Some((now() - TimeDelta::seconds(ago), note.to_owned()));
        let sets = [of];
        let pods = observe(&input(&sets, &[]));
        pods.children[1].health.problem.clone().unwrap().message
    };
    let refusal = "create Pod db-1 in StatefulSet db failed error: exceeded quota: small";
    let unknown = "StatefulSet db has no pod with this name";
    assert_eq!(said(5, refusal), refusal);
    assert_eq!(said(5, &refusal.replace("db-1", "db-0")), unknown);
    assert_eq!(said(600, refusal), unknown);
}

#[test]
fn ordered_ready_set_keeps_pods_above_an_unready_one() {
    for (policy, expected) in [("OrderedReady", &["db-0"][..]), ("Parallel", &["db-0", "db-3"][..])] {
        let sets = [set("db", policy, ("a", "b"), &[("a", 'n'), OLD, OLD, OLD])];
        let input = input(&sets, &[]);
        assert_eq!(names(&granted(&input, 2, Groups::Together, desired(&sets))), expected, "{policy}");
    }
}

#[test]
fn last_pod_of_each_set_waits_for_the_others() {
    let (down, starts) = (("a", 'n'), ("b", 'n'));
    let begun = [OLD, NEW];
    let ready = ("a", 'r');
    let table: [(&str, TwoSets<'_>, &[&str]); 10] = [
        ("the others have not moved", [&begun, &[OLD, OLD]], &["y-1"]),
        ("one of the others moves in the same wave", [&[OLD, OLD], &[OLD, OLD]], &["x-1", "y-1"]),
        ("one of the others starts", [&begun, &[OLD, starts]], &[]),
        ("one of its own starts", [&[OLD, starts], &begun], &[]),
        ("all the others have moved", [&begun, &begun], &["x-0", "y-0"]),
        ("another last one starts", [&begun, &[starts, NEW]], &["x-0"]),
        ("it is down", [&[down, NEW], &[OLD, OLD]], &["x-0", "y-1"]),
        ("it has become Ready again", [&[ready, NEW], &[OLD, OLD]], &["y-1"]),
        ("both pods of another set start", [&begun, &[starts, starts]], &[]),
        ("sets of one pod", [&[OLD], &[OLD]], &["x-0", "y-0"]),
    ];
    let of = |[first, second]: TwoSets<'_>, groups| {
        let sets = [set("x", "Parallel", ("a", "b"), first), set("y", "Parallel", ("a", "b"), second)];
        granted(&input(&sets, &[]), 9, groups, desired(&sets))
    };
    for (what, pods, expected) in table {
        assert_eq!(names(&of(pods, Groups::Together)), expected, "{what}");
    }
    assert_eq!(names(&of([&begun, &[OLD, OLD]], Groups::OneAtATime)), ["x-0"]);
    // One that has completed, or does not change, is not waited for.
    let sets =
        [set("x", "Parallel", ("a", "b"), &[OLD, NEW]), set("y", "Parallel", ("b", "b"), &[NEW, ("b", 'n')])];
    assert_eq!(names(&granted(&input(&sets, &[]), 2, Groups::Together, desired(&sets))), ["x-0"]);
}

#[test]
fn one_at_a_time_finishes_each_stateful_set_in_turn() {
    let pods = |first: &[Like], second: &[Like]| {
        [set("x", "Parallel", ("a", "b"), first), set("y", "Parallel", ("a", "b"), second)]
    };
    let of = |sets: &[PodSet], groups| {
        names(&granted(&input(sets, &[]), 9, groups, desired(sets)))
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let begun = pods(&[OLD, OLD], &[OLD, OLD]);
    assert_eq!(of(&begun, Groups::Together), ["x-1", "y-1"]);
    assert_eq!(of(&begun, Groups::OneAtATime), ["x-1", "x-0"]);
    assert_eq!(of(&pods(&[NEW, ("b", 'n')], &[OLD, OLD]), Groups::OneAtATime), [""; 0]);
    assert_eq!(of(&pods(&[NEW, NEW], &[OLD, OLD]), Groups::OneAtATime), ["y-1", "y-0"]);
    assert_eq!(of(&pods(&[OLD, OLD], &[("c", 'f'), OLD]), Groups::OneAtATime), ["y-0", "x-1", "x-0"]);
}

#[test]
fn update_window_is_open_while_a_pod_is_replaced() {
    let (before, after) = (plan("db-1", "b", false), plan("db-1", "b", true));
    let back = plan("db-1", "a", false);
    let (hold, window) = (Mode::Hold, Mode::Window);
    // With the plan, and without any.
    let table: [(&str, &[Like], &PodPlan, Mode, Mode); 8] = [
        ("a pod is about to be replaced", &[OLD, OLD], &before, window, hold),
        ("its successor starts, and others have not moved", &[OLD, ("b", 'n')], &after, hold, hold),
        ("the last one starts", &[NEW, ("b", 'n')], &after, window, window),
        ("the last one is Ready, and its plan is not over", &[NEW, NEW], &after, window, hold),
        ("all have moved, and one is gone", &[NEW, ("", '-')], &after, window, window),
        ("a pod goes back to the current revision", &[OLD, NEW], &back, hold, hold),
        ("a pod is to go back, and a hold would complete the update", &[NEW, NEW], &back, window, hold),
        ("it terminates", &[NEW, ("b", 't')], &back, hold, window),
    ];
    for (what, pods, plan, expected, without) in table {
        let set = set("db", "Parallel", ("a", "b"), pods);
        let of = |plans: &[PodPlan]| set.mode_now(plans, true);
        assert_eq!((of(std::slice::from_ref(plan)), of(&[])), (expected, without), "{what}");
    }
    let rejected = set("db", "Parallel", ("a", "b"), &[NEW, NEW]);
    assert_eq!(
        rejected.mode_now(&[], false),
        window,
        "an update that was aborted does not complete by itself"
    );
}

#[test]
fn restart_applies_to_pods_created_before_it() {
    let restart = RestartTime::recorded(now().to_rfc3339()).unwrap();
    let sets = [set("db", "Parallel", ("a", "a"), &[OLD, OLD])];
    let input = PodsInput { restart: Some((&restart, now())), ..input(&sets, &[]) };
    let pods = observe(&input);
    let hash = |child: usize| pods.children[child].pod.hash.as_ref().unwrap().to_string();
    assert_eq!(hash(0), "a");
    let target = pod_hash("a", Some(&restart)).unwrap();
    assert_eq!(revision_of(target.as_str()), "a");
    assert_eq!(names(&granted(&input, 1, Groups::Together, desired(&sets))), ["db-1"]);
}

#[test]
fn pod_state_maps_to_node_state() {
    let flight = |flight, health| NodeState::InFlight(flight, health);
    let table: [(&str, Like, bool, NodeState); 5] = [
        ("it serves", OLD, false, NodeState::AtRest(Health::Serving)),
        ("it is not Ready", ("a", 'n'), false, NodeState::AtRest(Health::Down)),
        ("it terminates", ("a", 't'), false, NodeState::AtRest(Health::Down)),
        ("it is granted another revision", OLD, true, flight(Flight::Moving, Health::Serving)),
        ("its successor starts", ("b", 'n'), true, flight(Flight::Arrived, Health::Down)),
    ];
    for (what, like, has_plan, expected) in table {
        let sets = [set("db", "Parallel", ("a", "b"), &[like])];
        let plans = if has_plan { vec![plan("db-0", "b", false)] } else { Vec::new() };
        assert_eq!(observe(&input(&sets, &plans)).children[0].state(), expected, "{what}");
    }
}

#[test]
fn pods_beyond_replicas_count_until_deleted() {
    let mut of = set("db", "Parallel", ("a", "b"), &[OLD, OLD]);
    of.pods.push(Arc::new(pod("db", 2, ("a", 't'))));
    let sets = [of];
    let input = input(&sets, &[]);
    let pods = observe(&input);
    assert_eq!((pods.children.len(), pods.shutting_down), (2, vec!["db-2".to_owned()]));
    assert!(pods.ending.is_some());
    assert_eq!(names(&granted(&input, 1, Groups::Together, desired(&sets))), [""; 0]);
}
