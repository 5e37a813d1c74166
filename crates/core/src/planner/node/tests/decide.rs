//! Decisions about a node's plan: start, keep or supersede.

use super::super::NodeDecision::{self, Keep, Start, Supersede};
use super::super::decide::{
    awaited_removal, decide, for_removal, is_rolling, owed_hooks, recipes, removal_of,
};
use super::*;
use crate::api::{HookPoint, RemovalId, TaskType};
use crate::engine::TaskRecord;

fn starts(recipe: &'static str) -> NodeDecision {
    Start { recipe, attempt: 0 }
}

fn new_target(recipe: &'static str) -> NodeDecision {
    Supersede { reason: "NewTarget", next: Some(recipe) }
}

#[test]
fn node_without_plan_starts_the_recipe_matching_the_difference() {
    let same_image = |facts: NodeFacts| NodeFacts {
        wanted: Ok(RenderedTarget { hash: "v2".into(), image: image("v1") }),
        ..facts
    };
    let marking = || node().with_pod(pod("v1").kept_out_by_its_sidecar());
    let table: Vec<(&str, NodeFacts, NodeDecision)> = vec![
        ("nothing differs", node(), Keep),
        ("no StatefulSet", node().without_set(), starts(recipes::NODE_UPDATE)),
        ("another image", node().granted("v2"), starts(recipes::NODE_UPDATE)),
        (
            "another template under the same image",
            same_image(node().granted("v2")),
            starts(recipes::RESTART_NODE),
        ),
        (
            "the template's image is the same, the pod's is not",
            node().granted("v2").with_template("v2"),
            starts(recipes::NODE_UPDATE),
        ),
        (
            "another image than can be rendered",
            NodeFacts { wanted: Err("no".to_owned()), ..node().granted("v2") },
            starts(recipes::RESTART_NODE),
        ),
        ("its sidecar forgot that it was ready", marking(), starts(recipes::MARK_READY)),
        ("a plan and a forgetful sidecar", marking().granted("v2"), starts(recipes::NODE_UPDATE)),
        (
            "a forgetful sidecar under a grant that allows nothing",
            marking().granted_once_before("v2").rendering("v3"),
            starts(recipes::MARK_READY),
        ),
        ("its pod is to leave its machine", node().asked_to_move("pod-1"), starts(recipes::MOVE_NODE)),
        ("an earlier pod was to leave its machine", node().asked_to_move("pod-0"), Keep),
        (
            "an update moves the pod, too",
            node().granted("v2").asked_to_move("pod-1"),
            starts(recipes::NODE_UPDATE),
        ),
        ("a move and a forgetful sidecar", marking().asked_to_move("pod-1"), starts(recipes::MOVE_NODE)),
        ("suspended instead of moved", NodeFacts { suspended: true, ..node().asked_to_move("pod-1") }, Keep),
        ("it is deleted", NodeFacts { terminating: true, ..node().granted("v2") }, Keep),
        ("it is suspended", NodeFacts { suspended: true, ..node().granted("v2") }, Keep),
        ("a spent grant and a Ready pod elsewhere", node().granted_once_before("v2"), Keep),
        (
            "the StatefulSet of an earlier node leaves",
            NodeFacts { set: StatefulSetFact::Leaving, ..node() },
            Keep,
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(decide(&facts, None, now()), expected, "{what}");
    }
}

#[test]
fn active_plan_continues_until_its_target_or_grant_changes() {
    let roll = |target| plan(recipes::NODE_UPDATE, target);
    let mark = plan(recipes::MARK_READY, "v1");
    let marking = || node().with_pod(pod("v1").kept_out_by_its_sidecar());
    let table: Vec<(&str, NodeFacts, Plan, NodeDecision)> = vec![
        ("the same target", node().granted("v2"), roll("v2"), Keep),
        (
            "the same target, all done",
            node().granted("v2").with_template("v2").with_pod(pod("v2")),
            roll("v2"),
            Keep,
        ),
        ("a new target", node().granted("v3"), roll("v2"), new_target(recipes::NODE_UPDATE)),
        (
            "a move while it is marked ready",
            node().asked_to_move("pod-1"),
            mark.clone(),
            new_target(recipes::MOVE_NODE),
        ),
        (
            "a move, and then a new target",
            node().granted("v2").asked_to_move("pod-1"),
            plan(recipes::MOVE_NODE, "v1"),
            new_target(recipes::NODE_UPDATE),
        ),
        ("a move that was withdrawn ends by itself", node(), plan(recipes::MOVE_NODE, "v1"), Keep),
        (
            "a new target while a broken pod waits",
            node().with_template("v2").with_pod(pod("v2").that_cannot_run()).granted("v3"),
            roll("v2"),
            new_target(recipes::NODE_UPDATE),
        ),
        (
            "back to what runs, the template already moved",
            node().granted("v2").with_template("v2").granted("v1"),
            roll("v2"),
            new_target(recipes::NODE_UPDATE),
        ),
        (
            "back to what runs, nothing seems to differ, unseen",
            node().with_unseen_template("v1").granted("v1"),
            roll("v2"),
            new_target(recipes::RESTART_NODE),
        ),
        (
            "back to what runs, and it is converged",
            node().granted("v1"),
            roll("v2"),
            Supersede { reason: "NewTarget", next: None },
        ),
        (
            "a new target that this version cannot render",
            node().granted("v3").rendering("v4"),
            roll("v2"),
            new_target(recipes::NODE_UPDATE),
        ),
        (
            "the same target, which this version cannot render",
            node().granted("v2").rendering("v4"),
            roll("v2"),
            Keep,
        ),
        (
            "a spent grant and a Ready pod elsewhere",
            node().granted_once_before("v2"),
            roll("v2"),
            Supersede { reason: "GrantSpent", next: None },
        ),
        (
            "a spent grant, and the pod not running",
            node().granted_once_before("v2").with_pod(pod("v1").not_running()),
            roll("v2"),
            Keep,
        ),
        (
            "suspended",
            NodeFacts { suspended: true, ..node().granted("v2") },
            roll("v2"),
            Supersede { reason: "Suspended", next: None },
        ),
        ("deleted", NodeFacts { terminating: true, ..node().granted("v3") }, roll("v2"), Keep),
        ("only marking, nothing differs", marking(), mark.clone(), Keep),
        (
            "only marking, a new target",
            marking().granted("v2"),
            mark.clone(),
            new_target(recipes::NODE_UPDATE),
        ),
        ("only marking, a target that the spent grant forbids", node().granted_once_before("v2"), mark, Keep),
    ];
    for (what, facts, plan, expected) in table {
        assert_eq!(decide(&facts, Some(&plan), now()), expected, "{what}");
    }
}

#[test]
fn failed_plan_is_retried_after_backoff_or_for_a_new_target() {
    let failed = |target: &str| Plan {
        retry_at: Some(later(60)),
        attempt: 2,
        ..ended(plan(recipes::NODE_UPDATE, target), PlanState::Failed)
    };
    let wants_v2 = node().granted("v2");
    let table = [
        ("too early", failed("v2"), 59, Keep),
        ("in time", failed("v2"), 60, Start { recipe: recipes::NODE_UPDATE, attempt: 3 }),
        ("another target", failed("v1"), 0, starts(recipes::NODE_UPDATE)),
        (
            "a failed marking is not a failed roll",
            Plan { recipe: recipes::MARK_READY.to_owned(), ..failed("v2") },
            0,
            starts(recipes::NODE_UPDATE),
        ),
        (
            "a restart that failed backs off the update too",
            Plan { recipe: recipes::RESTART_NODE.to_owned(), ..failed("v2") },
            0,
            Keep,
        ),
        (
            "a complete plan",
            Plan { state: PlanState::Complete, ..failed("v2") },
            0,
            starts(recipes::NODE_UPDATE),
        ),
        (
            "a superseded plan",
            Plan { state: PlanState::Superseded, ..failed("v2") },
            0,
            starts(recipes::NODE_UPDATE),
        ),
    ];
    for (what, plan, seconds, expected) in table {
        assert_eq!(decide(&wants_v2, Some(&plan), later(seconds)), expected, "{what}");
    }
}

#[test]
fn pod_with_skipped_marking_is_not_marked_again() {
    let marking = node().with_pod(pod("v1").kept_out_by_its_sidecar());
    let over = skipped(plan(recipes::NODE_UPDATE, "v1"));
    assert_eq!(decide(&marking, Some(&over), now()), Keep);
    let successor = marking.clone().with_pod(pod("v1").of_another_uid().kept_out_by_its_sidecar());
    assert_eq!(decide(&successor, Some(&over), now()), starts(recipes::MARK_READY));
    let not_skipped = ended(plan(recipes::NODE_UPDATE, "v1"), PlanState::Complete);
    assert_eq!(decide(&marking, Some(&not_skipped), now()), starts(recipes::MARK_READY));
}

/// Asked to leave.
fn asked(facts: NodeFacts) -> NodeFacts {
    NodeFacts { removal_id: Some("remove-3".into()), ..facts }
}

/// A plan RemoveNode for this `removalID`.
fn removal_for(wish: &str) -> Plan {
    let mut plan = plan(recipes::REMOVE_NODE, "v1");
    plan.tasks[0].type_ = TaskType::AwaitRemoval.to_string();
    for_removal(&mut plan, Some(&wish.into()), &[]);
    plan
}

#[test]
fn removal_takes_precedence_over_all_other_plans() {
    let leave = || Supersede { reason: "Removal", next: Some(recipes::REMOVE_NODE) };
    let kept = |next| Supersede { reason: "Kept", next };
    let roll = || Some(plan(recipes::NODE_UPDATE, "v1"));
    let wish = || Some(removal_for("remove-3"));
    let unrenderable = || NodeFacts { wanted: Err("no".to_owned()), ..node() };
    let over = || Some(Plan { state: PlanState::Superseded, ..removal_for("remove-2") });
    let table: Vec<(&str, NodeFacts, Option<Plan>, NodeDecision)> = vec![
        ("it has no plan", asked(node()), None, starts(recipes::REMOVE_NODE)),
        ("it has one", asked(node()), roll(), leave()),
        ("it marks", asked(node()), Some(plan(recipes::MARK_READY, "v1")), leave()),
        ("it wants another", asked(node().granted("v2")), None, starts(recipes::REMOVE_NODE)),
        ("it cannot be rendered", asked(unrenderable()), None, starts(recipes::REMOVE_NODE)),
        ("it is suspended", NodeFacts { suspended: true, ..asked(node()) }, wish(), Keep),
        ("it is leaving", asked(node()), wish(), Keep),
        ("it is leaving, and wants another", asked(node().granted("v2")), wish(), Keep),
        (
            "it was leaving, and its hooks at AfterNode are owed",
            node(),
            Some({
                let mut plan = removal_for("remove-3");
                for_removal(&mut plan, Some(&"remove-3".into()), &[HookPoint::AfterNode]);
                plan
            }),
            kept(Some(recipes::RESTART_NODE)),
        ),
        (
            "it was leaving for a wish that was taken back",
            asked(node()),
            Some(removal_for("remove-1")),
            leave(),
        ),
        ("it was leaving once", asked(node()), over(), starts(recipes::REMOVE_NODE)),
        ("it is being deleted", NodeFacts { terminating: true, ..asked(node()) }, None, Keep),
        ("it is kept", node(), wish(), kept(None)),
        ("it is kept, and wants another", node().granted("v2"), wish(), kept(Some(recipes::NODE_UPDATE))),
        (
            "it is kept in the middle of what it was granted",
            NodeFacts { spent_grant_id: Some("before".into()), ..node().without_pod() },
            wish(),
            kept(Some(recipes::RESTART_NODE)),
        ),
        ("it is kept, and is down", node().without_pod(), wish(), kept(None)),
        ("it was kept", node(), over(), Keep),
    ];
    for (what, facts, plan, expected) in table {
        assert_eq!(decide(&facts, plan.as_ref(), now()), expected, "{what}");
    }
}

#[test]
fn failed_removal_plan_is_retried_after_its_backoff() {
    let retry_at = Some(now() + TimeDelta::seconds(10));
    let failed = Plan { state: PlanState::Failed, retry_at, attempt: 1, ..removal_for("remove-3") };
    assert_eq!(decide(&asked(node()), Some(&failed), now()), Keep);
    let later = now() + TimeDelta::seconds(10);
    let again = NodeDecision::Start { recipe: recipes::REMOVE_NODE, attempt: 2 };
    assert_eq!(decide(&asked(node()), Some(&failed), later), again);
    let kept = node().granted("v2");
    assert_eq!(
        decide(&kept, Some(&failed), now()),
        starts(recipes::NODE_UPDATE),
        "that it failed is nothing to it"
    );
}

#[test]
fn node_awaits_deletion_once_its_removal_plan_is_done() {
    let mut leaving = removal_for("remove-3");
    assert_eq!(awaited_removal(&leaving), Some("remove-3"));
    let mut hook = leaving.tasks[0].clone();
    hook.type_ = "mark-ready".to_owned();
    leaving.tasks.insert(0, hook);
    assert_eq!((removal_of(&leaving), awaited_removal(&leaving)), (Some("remove-3"), None));
    leaving.tasks[0].state = TaskState::Complete;
    assert_eq!(awaited_removal(&leaving), Some("remove-3"));
    leaving.state = PlanState::Superseded;
    assert_eq!(awaited_removal(&leaving), None);
    assert_eq!(awaited_removal(&plan(recipes::NODE_UPDATE, "v1")), None);
    assert!(!is_rolling(recipes::REMOVE_NODE));
}

/// A node whose claims grow.
fn growing(growth: Growth) -> NodeFacts {
    NodeFacts { growth, ..node() }
}

fn due() -> Growth {
    Growth::Due { why: "it is small".to_owned() }
}

#[test]
fn claims_grow_with_a_plan_that_every_other_plan_precedes() {
    let needs_pod = || Growth::NeedsNewPod { why: "it is small".to_owned(), pod_uid: "pod-1".to_owned() };
    let marking = || NodeFacts { growth: due(), ..node().with_pod(pod("v1").kept_out_by_its_sidecar()) };
    let updating = || NodeFacts { growth: due(), ..node().granted("v2") };
    let asked = NodeFacts {
        move_: Some(PodMove { pod_uid: "pod-1".to_owned(), node_name: String::new() }),
        ..growing(needs_pod())
    };
    for (case, facts, expected) in [
        ("they are small", growing(due()), starts(recipes::GROW_CLAIMS)),
        ("the StatefulSet has the old size", growing(Growth::OldTemplate), starts(recipes::GROW_CLAIMS)),
        ("an update, too", updating(), starts(recipes::NODE_UPDATE)),
        ("a forgetful sidecar, too", marking(), starts(recipes::MARK_READY)),
        ("suspended", NodeFacts { suspended: true, ..growing(due()) }, Keep),
        ("the fleet has to let its pod go", growing(needs_pod()), starts(recipes::GROW_CLAIMS)),
        ("its pod may go", asked.clone(), starts(recipes::RESTART_NODE)),
        ("it has no fleet", growing(needs_pod()).without_grant(), starts(recipes::RESTART_NODE)),
    ] {
        assert_eq!(decide(&facts, None, DateTime::UNIX_EPOCH), expected, "{case}");
    }
    let grow = || plan(recipes::GROW_CLAIMS, "v1");
    for (case, facts, plan, expected) in [
        ("it goes on", growing(due()), grow(), Keep),
        ("an update", updating(), grow(), new_target(recipes::NODE_UPDATE)),
        ("a forgetful sidecar", marking(), grow(), new_target(recipes::MARK_READY)),
        ("its pod may go", asked, grow(), new_target(recipes::RESTART_NODE)),
        (
            "somebody deleted its StatefulSet",
            growing(due()).without_set(),
            grow(),
            new_target(recipes::NODE_UPDATE),
        ),
        ("it deleted its StatefulSet", growing(Growth::Done).without_set(), grow(), Keep),
        (
            "it deleted its StatefulSet, and has another grant",
            NodeFacts { growth: Growth::Done, ..node().granted("v2").without_set() },
            grow(),
            new_target(recipes::NODE_UPDATE),
        ),
        (
            "it deleted its StatefulSet, and is suspended",
            NodeFacts { suspended: true, ..growing(Growth::Done).without_set() },
            grow(),
            Keep,
        ),
        (
            "it deleted its StatefulSet, and has to leave",
            NodeFacts { removal_id: RemovalId::recorded("r"), ..growing(Growth::Done).without_set() },
            grow(),
            Keep,
        ),
        ("while an update is under way", updating(), plan(recipes::NODE_UPDATE, "v2"), Keep),
    ] {
        assert_eq!(decide(&facts, Some(&plan), DateTime::UNIX_EPOCH), expected, "{case}");
    }
}

#[test]
fn plan_owes_the_hooks_that_what_it_did_requires() {
    use HookPoint::{AfterCreate, AfterNode, BeforeCreate, BeforeNode};
    use TaskState::{Complete, Pending, Skipped};
    // A hook of a list before the pod is replaced, and one after it.
    let with = |hooks: &[(HookPoint, TaskState)], replaced: TaskState| {
        let mut plan = plan(recipes::NODE_UPDATE, "v2");
        let mut replace = plan.tasks[0].clone();
        (replace.type_, replace.state) = (TaskType::ReplacePod.to_string(), replaced);
        let hooks = hooks.iter().map(|(at, state)| TaskRecord {
            type_: TaskType::AwaitApproval.to_string(),
            state: *state,
            params: serde_json::json!({"hook": "h", "at": at}),
            ..plan.tasks[0].clone()
        });
        plan.tasks = hooks.chain([replace, plan.tasks[1].clone()]).collect();
        plan
    };
    let table: Vec<(&str, Plan, &[HookPoint])> = vec![
        ("nothing is left", with(&[(AfterNode, Complete), (AfterCreate, Skipped)], Complete), &[]),
        ("the pod is not replaced", with(&[(AfterNode, Pending)], Pending), &[]),
        ("the pod is replaced", with(&[(AfterNode, Pending)], Complete), &[AfterNode]),
        ("its replacement was skipped", with(&[(AfterNode, Pending)], Skipped), &[AfterNode]),
        ("others do not wait for the pod", with(&[(BeforeCreate, Pending)], Pending), &[BeforeCreate]),
        (
            "in the order of the points",
            with(&[(AfterNode, Pending), (AfterCreate, Pending)], Complete),
            &[AfterCreate, AfterNode],
        ),
        ("a point that is not owed", with(&[(BeforeNode, Pending)], Complete), &[]),
    ];
    for (what, plan, expected) in table {
        assert_eq!(owed_hooks(&plan), expected, "{what}");
    }
}
