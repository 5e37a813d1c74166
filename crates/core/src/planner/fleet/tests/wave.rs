//! The clauses under which a grant is issued: for each, cases in which it grants and cases in which it does not.

use super::super::gate::Gate;
use super::super::wave::{Clause, keeps_for_others, may_grant, next_grants};
use super::*;
use crate::api::RestartTime;

/// The clause for node 0; the other nodes, if any, may be in the way.
fn may(facts: &FleetFacts) -> Option<Clause> {
    may_grant(facts, 0, &to("v2"))
}

/// In flight to v2 with the grant unspent.
fn flying(child: ChildFacts) -> ChildFacts {
    child.granted("v2").rolling()
}

/// In flight under a spent grant: its pod is lost and comes back.
fn refilling(child: ChildFacts) -> ChildFacts {
    child.without_pod()
}

/// An abort granted it another template than that of its pod.
fn kept(child: ChildFacts) -> ChildFacts {
    child.granted("v3").seen().with(|f| f.grant.id = Some("abort-5".into()))
}

/// In flight under a spent grant, though it serves: its status is behind its spec.
fn unheard(child: ChildFacts) -> ChildFacts {
    child.with(|f| f.controller.status_outdated = true)
}

/// In flight under a spent grant, though it serves: a plan repairs its StatefulSet.
fn repairing(child: ChildFacts) -> ChildFacts {
    child.with(|f| f.controller.rolling = true)
}

fn two() -> FleetFacts {
    fleet(2).wanting("v2")
}

/// Its controller holds it, since the name of its StatefulSet is taken; it has never run.
fn held(child: ChildFacts) -> ChildFacts {
    child
        .never_ready()
        .with(|f| {
            f.pod.image = String::new();
            f.pod.hash = None;
        })
        .with_problem("InvalidSpec", "StatefulSet db-1 exists and has no owner that Windlass knows")
}

type Change = fn(ChildFacts) -> ChildFacts;

#[test]
fn held_unstarted_node_takes_no_room_but_blocks_convergence() {
    let held = |c: ChildFacts| held(c.granted("v2").seen());
    let facts = two().but(1, held);
    assert_eq!((may(&facts), facts.disrupted()), (Some(Clause::Serving), 0));
    assert_eq!(may(&facts.clone().but(0, refilling)), Some(Clause::Down));
    let of_three = fleet(3).wanting("v2").but(1, held).but(2, flying).with(|f| f.spec.replicas = 3);
    assert_eq!(may(&of_three), None, "the third one moves");
    let all_but_it = facts.but(0, |c| c.granted("v2").converged());
    assert!(!all_but_it.is_converged(&to("v2")));
    let began: Vec<(&str, Change)> = vec![
        ("it was ready once", |c| c.with(|f| f.pod.ever_ready = true)),
        ("its main container runs", ChildFacts::with_running_pod),
        ("it runs another hash", |c| c.running("v1")),
        ("it is rolled", ChildFacts::rolling),
        ("its status is behind", |c| c.with(|f| f.controller.status_outdated = true)),
        ("it is only down", |c| c.with_problem("NotReady", "it is not ready")),
    ];
    for (what, began) in began {
        assert_eq!(may(&two().but(1, |c| began(held(c)))), None, "{what}");
    }
}

#[test]
fn held_node_is_granted_as_usual() {
    let spent = |c: ChildFacts| held(c).with(|f| f.grant.spent_id = f.grant.id.clone());
    let down = two().but(0, spent).but(1, ChildFacts::down);
    assert_eq!(may(&down), Some(Clause::Down));
    assert_eq!(may(&two().but(0, spent).but(1, flying)), None, "another one is in flight");
    let unspent = two().but(0, |c| held(c.granted("v3").seen())).but(1, flying);
    assert_eq!(may(&unspent), Some(Clause::InFlightUnspent));
}

#[test]
fn grant_uses_the_first_matching_clause() {
    let busy = || two().but(1, flying);
    let down = || two().but(1, ChildFacts::down);
    let table: Vec<(&str, FleetFacts, Option<Clause>)> = vec![
        ("(a) runs the target already", busy().but(0, |c| c.running("v2")), Some(Clause::RunsTarget)),
        ("(a) even not ready", busy().but(0, |c| c.running("v2").down()), Some(Clause::RunsTarget)),
        ("(b) in flight, unspent", busy().but(0, |c| c.granted("v3").seen()), Some(Clause::InFlightUnspent)),
        (
            "(b) and it failed",
            busy().but(0, |c| c.granted("v3").seen().failed()),
            Some(Clause::InFlightUnspent),
        ),
        (
            "(b) the pod that an abort kept does not run",
            busy().but(0, |c| kept(c).with(|f| f.pod.ready = false)),
            Some(Clause::InFlightUnspent),
        ),
        ("(b) the pod that an abort kept runs", busy().but(0, kept), None),
        ("(c) failed under a spent grant", busy().but(0, ChildFacts::failed), Some(Clause::Failed)),
        ("(c) its main container runs", busy().but(0, ChildFacts::half_running), None),
        ("(d) its main container runs, room", two().but(0, ChildFacts::half_running), Some(Clause::Down)),
        ("(d) its main container runs, another's does not", down().but(0, ChildFacts::half_running), None),
        (
            "(d) its main container runs, another's does not and is in flight",
            two().at_most(2).but(0, ChildFacts::half_running).but(1, |c| flying(c.without_pod())),
            Some(Clause::Down),
        ),
        ("(d) down, room", two().but(0, ChildFacts::down), Some(Clause::Down)),
        ("(d) down, another in flight", busy().but(0, ChildFacts::down), None),
        ("(d) down, another down but not in flight", down().but(0, ChildFacts::down), Some(Clause::Down)),
        ("(d) in flight on a spent grant, room", two().but(0, refilling), Some(Clause::Down)),
        ("(d) in flight on a spent grant, another in flight", busy().but(0, refilling), None),
        (
            "(d) in flight on a spent grant, as another is",
            two().but(0, refilling).but(1, refilling),
            Some(Clause::Down),
        ),
        ("(e) serving, status behind, room", two().but(0, unheard), Some(Clause::Serving)),
        ("(e) serving, status behind, another down", down().but(0, unheard), None),
        ("(e) serving, status behind, another missing", two().but(0, unheard).without(1), None),
        ("(e) serving, in repair, another down", down().but(0, repairing), None),
        ("(d) missing ones are not in flight", two().but(0, ChildFacts::down).without(1), Some(Clause::Down)),
        ("(e) serving, room", two(), Some(Clause::Serving)),
        ("(e) serving, another in flight", busy(), None),
        ("(e) serving, another down", down(), None),
        ("(e) serving, another missing", two().without(1), None),
        ("(e) serving, another leaving", two().but(1, ChildFacts::terminating), None),
        ("(e) serving, another unreachable", two().but(1, ChildFacts::unreachable), None),
        ("(e) serving, another drifted", two().but(1, |c| c.running("v3")), Some(Clause::Serving)),
        ("(e) drifted, room", two().but(0, |c| c.running("v3")), Some(Clause::Serving)),
        ("(e) drifted, another down", down().but(0, |c| c.running("v3")), None),
        (
            "(f) never ready, nothing completed",
            busy().never_completed().but(0, |c| c.never_ready().granted("v1")),
            Some(Clause::NeverReady),
        ),
        ("(f) once ready, nothing completed", down().never_completed(), None),
        (
            "(f) never ready, something completed",
            busy().but(0, |c| c.never_ready().with(|f| f.grant.spent_id = f.grant.id.clone()).down()),
            None,
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(may(&facts), expected, "{what}");
    }
}

fn granted_at_once(facts: &FleetFacts, revision: &str) -> Vec<(String, Clause)> {
    next_grants(facts, &to(revision)).into_iter().map(|g| (g.name.to_string(), g.clause)).collect()
}

/// Five nodes whose exporters are in a crash loop while their main containers run.
fn half_running() -> FleetFacts {
    (0..5).fold(fleet(5), |facts, ordinal| facts.but(ordinal, ChildFacts::half_running))
}

/// The node was created at v1 and has never been Ready.
fn created(child: ChildFacts) -> ChildFacts {
    child.with(|f| {
        f.pod.ever_ready = false;
        f.grant.id = None;
        f.grant.spent_id = None;
        f.controller.rolling = true;
    })
}

#[test]
fn nodes_with_running_main_containers_are_repaired_in_waves() {
    let never = || (0..5).fold(half_running().never_completed(), |facts, i| facts.but(i, created));
    let slow = |c: ChildFacts| c.down().with_running_pod();
    let restart: RestartTime = "2030-01-31T12:00:00Z".into();
    let mut restarted = half_running();
    let again = Rendering { hash: "v1 again".into(), image: image("v1") };
    restarted.renderings.insert(("v1".into(), Some(restart.clone())), again);
    restarted.children.iter_mut().for_each(|c| c.restarts.asked = Some(restart.clone()));
    let table: Vec<(&str, FleetFacts, &str)> = vec![
        ("a fix", half_running().wanting("v2"), "v2"),
        ("a fix of a fleet that never completed", never().wanting("v2"), "v2"),
        ("they are only not Ready", (0..5).fold(fleet(5).wanting("v2"), |f, i| f.but(i, slow)), "v2"),
        ("a restart", restarted, "v1"),
    ];
    for (what, facts, target) in table {
        let down = |name: &str| vec![(name.to_owned(), Clause::Down)];
        assert_eq!(granted_at_once(&facts, target), down("db-4"), "{what}");
        let more: Vec<String> =
            granted_at_once(&facts.clone().at_most(2), target).into_iter().map(|(name, _)| name).collect();
        assert_eq!(more, ["db-4", "db-3"], "{what}");
        if target != "v2" {
            continue;
        }
        let under_way = facts.clone().but(4, |c| c.granted("v2").seen());
        assert_eq!(granted_at_once(&under_way, target), [], "{what}: it is under way");
        let repaired = facts.but(4, |c| {
            c.granted("v2").converged().with(|f| {
                f.pod.failed = false;
                f.pod.runs = false;
            })
        });
        assert_eq!(granted_at_once(&repaired, target), down("db-3"), "{what}: the next");
    }
}

#[test]
fn node_with_a_failed_fix_holds_the_wave_and_gets_the_next() {
    let tried = |c: ChildFacts| c.granted("v2").rolling().running("v2").half_running();
    let facts = half_running().wanting("v2").but(1, tried);
    assert_eq!(granted_at_once(&facts, "v2"), []);
    assert_eq!(granted_at_once(&facts.clone().wanting("v3"), "v3"), [("db-1".to_owned(), Clause::Down)]);
    assert_eq!(
        granted_at_once(&facts.wanting("v1"), "v1"),
        [("db-1".to_owned(), Clause::Down)],
        "the way back"
    );
}

#[test]
fn freely_moved_running_nodes_do_not_all_move_again() {
    let tried = |c: ChildFacts| c.granted("v2").rolling().running("v2").half_running();
    let facts = (0..5).fold(fleet(5).wanting("v3"), |facts, i| facts.but(i, tried));
    assert_eq!(granted_at_once(&facts, "v3"), [("db-4".to_owned(), Clause::Down)]);
    let broken = (0..5).fold(facts, |facts, i| facts.but(i, |c| c.with(|f| f.pod.runs = false)));
    assert_eq!(granted_at_once(&broken, "v3").len(), 5, "their main containers do not run");
}

#[test]
fn created_nodes_that_cannot_start_do_not_block_each_other() {
    let stuck = |c: ChildFacts| created(c).with(|f| f.pod.hash = None).down();
    let facts = fleet(5).but(3, stuck).but(4, stuck);
    assert_eq!(granted_at_once(&facts.clone().wanting("v2"), "v2"), [("db-4".to_owned(), Clause::Down)]);
    let fixed = facts.but(4, |c| c.granted("v2").converged());
    assert_eq!(granted_at_once(&fixed.wanting("v2"), "v2"), [("db-3".to_owned(), Clause::Down)]);
}

#[test]
fn new_node_may_start_after_the_target_failed_on_another() {
    let starting = |c: ChildFacts| c.down().with(|f| f.pod.ever_ready = false);
    let facts = fleet(3).wanting("v2").but(2, |c| c.granted("v2").seen().failed()).but(1, starting);
    assert_eq!(granted_at_once(&facts, "v2"), []);
    let failed = facts.clone().but(1, ChildFacts::failed);
    assert_eq!(granted_at_once(&failed, "v2"), [("db-1".to_owned(), Clause::Failed)]);
    let clause_of_1 = |facts: FleetFacts| may_grant(&facts.at_most(2), 1, &to("v2"));
    assert_eq!(clause_of_1(facts.clone()), Some(Clause::Serving), "it needs the room of a node that serves");
    assert_eq!(clause_of_1(facts.but(1, |c| c.with(|f| f.pod.ever_ready = true))), Some(Clause::Down));
}

#[test]
fn node_running_an_ungranted_revision_needs_a_grant() {
    let edited = |c: ChildFacts| c.half_running().with(|f| f.pod.hash = Some("edited".into()));
    let facts = (0..5).fold(fleet(5), |facts, i| facts.but(i, edited));
    assert!(facts.child(0).state().is_drifted() && facts.child(0).is_disrupted());
    let names: Vec<_> = next_grants(&facts, &RolloutTarget::Own).into_iter().map(|g| g.name).collect();
    assert_eq!(names, ["db-4"]);
}

#[test]
fn leaving_node_with_running_main_container_takes_room() {
    let leaves = |c: ChildFacts| c.half_running().with(|f| f.leave.asked = true);
    let facts = half_running().wanting("v2");
    assert_eq!(granted_at_once(&facts.clone().with_surplus(leaves(node(5))), "v2"), []);
    let broken = |c: ChildFacts| c.failed().with(|f| f.leave.asked = true);
    assert_eq!(granted_at_once(&facts.with_surplus(broken(node(5))), "v2").len(), 1);
}

#[test]
fn unreachable_node_counts_as_down_but_needs_wave_room() {
    let unreachable = |c: ChildFacts| c.down().unreachable();
    let table = [
        ("alone", two().but(0, unreachable), Some(Clause::Serving)),
        ("another down", two().but(0, unreachable).but(1, ChildFacts::down), None),
        ("another like it", two().but(0, unreachable).but(1, unreachable), Some(Clause::Serving)),
        ("another like it, in flight", two().but(0, unreachable).but(1, |c| flying(unreachable(c))), None),
        (
            "Ready, another like it",
            two().but(0, ChildFacts::unreachable).but(1, ChildFacts::unreachable),
            None,
        ),
        (
            "reachable and down, another down",
            two().but(0, ChildFacts::down).but(1, ChildFacts::down),
            Some(Clause::Down),
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(may(&facts), expected, "{what}");
    }
}

/// They are repaired one after another.
#[test]
fn unready_unreachable_nodes_do_not_block_each_other() {
    let unreachable = |c: ChildFacts| c.down().unreachable();
    let facts = fleet(3).wanting("v2").but(0, unreachable).but(1, unreachable).but(2, unreachable);
    let names = |facts: &FleetFacts| -> Vec<NodeName> {
        next_grants(facts, &to("v2")).into_iter().map(|grant| grant.name).collect()
    };
    assert_eq!(names(&facts), ["db-2"]);
    assert_eq!(names(&facts.clone().at_most(2)), ["db-2", "db-1"]);
    assert_eq!(names(&facts.but(2, flying)), Vec::<NodeName>::new(), "it is under way to it");
}

#[test]
fn node_being_scaled_in_takes_wave_room() {
    let one = fleet(1).wanting("v2");
    assert_eq!(may(&one.clone().with_surplus(flying(node(1)))), None);
    assert_eq!(may(&one.clone().with_surplus(node(1))), Some(Clause::Serving));
    let down = one.but(0, ChildFacts::down);
    assert_eq!(
        may(&down.clone().with_surplus(flying(node(1)))),
        None,
        "a node that is down waits for it too"
    );
    assert_eq!(may(&down), Some(Clause::Down));
}

#[test]
fn terminating_pod_of_a_removed_node_takes_wave_room() {
    let left = |facts: FleetFacts| facts.with(|f| f.shutting_down = vec!["db-2-0".to_owned()]);
    assert_eq!(may(&two()), Some(Clause::Serving));
    assert_eq!(may(&left(two())), None);
    assert_eq!(may(&left(two()).at_most(2)), Some(Clause::Serving));
    assert_eq!(may(&left(two().but(0, ChildFacts::down))), None, "a node that is down waits for it too");
}

#[test]
fn grants_do_not_exceed_max_unavailable() {
    let table = [
        ("one of five", fleet(5), vec!["db-4"]),
        ("two of five", fleet(5).at_most(2), vec!["db-4", "db-3"]),
        ("two, one is down already", fleet(5).at_most(2).but(0, ChildFacts::down), vec!["db-0", "db-4"]),
        ("two, one is missing", fleet(5).at_most(2).without(4), vec!["db-3"]),
        ("two, one in flight to the target", fleet(5).at_most(2).but(2, flying), vec!["db-4"]),
        ("two, two in flight to the target", fleet(5).at_most(2).but(2, flying).but(3, flying), vec![]),
        ("one, in flight to another target", fleet(5).but(2, |c| c.granted("v3").seen()), vec!["db-2"]),
        ("more than there are", fleet(2).at_most(5), vec!["db-1", "db-0"]),
    ];
    for (what, facts, expected) in table {
        let grants = next_grants(&facts.wanting("v2"), &to("v2"));
        let names: Vec<&str> = grants.iter().map(|g| g.name.as_str()).collect();
        assert_eq!(names, expected, "{what}");
        assert!(grants.iter().all(|g| g.revision == "v2" && g.hash == hash("v2")), "{what}");
    }
}

#[test]
fn max_unavailable_percentage_rounds_down_to_at_least_one() {
    for (max, replicas, expected) in [
        (serde_json::json!(null), 10, 1),
        (serde_json::json!(2), 10, 2),
        (serde_json::json!("50%"), 5, 2),
        (serde_json::json!("50%"), 1, 1),
        (serde_json::json!("1%"), 99, 1),
        (serde_json::json!("25%"), 10_000, 2_500),
        (serde_json::json!("100%"), 7, 7),
    ] {
        let spec: crate::api::NodeDeploymentSpec = serde_json::from_value(serde_json::json!({
            "replicas": replicas,
            "template": {"spec": {"podTemplate": {}}},
            "updateStrategy": {"type": "InPlace", "inPlace": {"maxUnavailable": max}},
        }))
        .unwrap();
        assert_eq!(spec.max_unavailable(), expected, "{max} of {replicas}");
    }
}

#[test]
fn grant_order_is_target_then_unavailable_then_serving() {
    let facts = fleet(5)
        .at_most(3)
        .wanting("v2")
        .but(0, |c| c.running("v2"))
        .but(1, ChildFacts::down)
        .but(2, ChildFacts::failed);
    let order: Vec<(String, Clause)> =
        next_grants(&facts, &to("v2")).into_iter().map(|g| (g.name.to_string(), g.clause)).collect();
    let expected = [("db-0", Clause::RunsTarget), ("db-2", Clause::Failed), ("db-1", Clause::Down)];
    assert_eq!(order, expected.map(|(name, clause)| (name.to_owned(), clause)));
}

#[test]
fn stuck_node_does_not_block_others_if_the_wave_has_room() {
    let stuck = |c: ChildFacts| c.granted("v2").seen().failed();
    let grants = |max| next_grants(&fleet(3).at_most(max).wanting("v2").but(0, stuck), &to("v2"));
    assert_eq!(grants(1), vec![]);
    assert_eq!(grants(2).len(), 1);
}

#[test]
fn leaving_updated_or_partitioned_nodes_are_not_granted() {
    let facts = fleet(4)
        .at_most(4)
        .wanting("v2")
        .held_below_ordinal(1)
        .but(1, ChildFacts::terminating)
        .but(2, |c| c.granted("v2").converged())
        .with_surplus(node(4));
    let names: Vec<NodeName> = next_grants(&facts, &to("v2")).into_iter().map(|g| g.name).collect();
    assert_eq!(names, ["db-3"]);
}

#[test]
fn node_ahead_below_partition_gets_the_current_revision() {
    let facts = fleet(2).wanting("v2").held_below_ordinal(1).but(0, |c| c.granted("v2").converged());
    let grants = next_grants(&facts, &to("v2"));
    assert_eq!((grants.len(), grants[0].name.as_str(), grants[0].revision.as_str()), (1, "db-1", "v2"));
    let facts = facts.but(1, |c| c.granted("v2").converged());
    let grants = next_grants(&facts, &to("v2"));
    assert_eq!((grants[0].name.as_str(), grants[0].revision.as_str()), ("db-0", "v1"));
}

#[test]
fn drifted_nodes_roll_at_their_own_revision() {
    let facts = fleet(2)
        .at_most(2)
        .wanting("v2")
        .but(0, |c| c.running("v3"))
        .but(1, |c| c.granted("v2").converged().running("v3"));
    let grants: Vec<(String, String)> = next_grants(&facts, &RolloutTarget::Own)
        .into_iter()
        .map(|g| (g.name.to_string(), g.revision.to_string()))
        .collect();
    assert_eq!(grants, [("db-1", "v2"), ("db-0", "v1")].map(|(n, r)| (n.to_owned(), r.to_owned())));
}

#[test]
fn unrenderable_revision_is_not_granted() {
    let mut facts = fleet(1).wanting("v2");
    facts.renderings.retain(|(revision, _), _| *revision != "v2");
    assert_eq!(next_grants(&facts, &to("v2")), vec![]);
}

#[test]
fn granted_node_whose_main_container_does_not_run_takes_room_once() {
    let facts = fleet(2).at_most(2).wanting("v2").but(0, ChildFacts::half_running).but(1, ChildFacts::failed);
    let both = [("db-1".to_owned(), Clause::Failed), ("db-0".to_owned(), Clause::Down)];
    assert_eq!(granted_at_once(&facts, "v2"), both);
}

#[test]
fn only_one_node_tries_a_target_that_waits_at_its_gate() {
    let closed = |gate: Gate| {
        let facts = fleet(4).at_most(4).wanting("v2").but(3, ChildFacts::failed).but(2, ChildFacts::failed);
        facts.with(|f| f.rollout.gate = gate.clone())
    };
    let names = |facts: &FleetFacts| -> Vec<String> {
        granted_at_once(facts, "v2").into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(&closed(Gate::Open)).len(), 4);
    let facts = closed(Gate::Person);
    assert_eq!(names(&facts), ["db-3"], "those that serve wait, and one that failed tries it");
    let tried = facts.clone().but(3, |c| c.granted("v2").seen().failed());
    assert_eq!(names(&tried), Vec::<String>::new(), "it failed there, too");
    let runs = facts.clone().but(3, |c| c.running("v2"));
    assert_eq!(names(&runs), ["db-3", "db-2"], "one that runs it already tries nothing");
    let slow = facts.but(2, |c| c.with(|f| f.pod.failed = false)).but(3, |c| c.granted("v2").converged());
    assert_eq!(names(&slow), Vec::<String>::new(), "one that is only not Ready may come back");
}

#[test]
fn restart_of_what_is_down_for_a_moment_waits_at_the_gate() {
    let facts = |gate: Gate| {
        let mut facts = fleet(4).at_most(4).but(3, ChildFacts::failed).but(2, ChildFacts::failed);
        facts = facts.but(1, |c| c.down().with_running_pod());
        // A new version of Windlass renders the same revision otherwise.
        for rendering in facts.renderings.values_mut() {
            rendering.hash = "another template of v1".into();
        }
        facts.with(|f| f.rollout.gate = gate.clone())
    };
    let names = |facts: &FleetFacts| -> Vec<String> {
        next_grants(facts, &to("v1")).into_iter().map(|grant| grant.name.to_string()).collect()
    };
    assert_eq!(names(&facts(Gate::Open)).len(), 4);
    assert_eq!(names(&facts(Gate::Person)), ["db-3"], "one that failed tries it");
    let tried =
        facts(Gate::Person).but(3, |c| c.with(|f| f.grant.hash = Some("another template of v1".into())));
    assert_eq!(names(&tried), Vec::<String>::new(), "it has not come back");
}

#[test]
fn pod_that_serves_stays_while_others_are_down() {
    let facts = fleet(3);
    let keeps = |facts: &FleetFacts| keeps_for_others(facts, facts.child(0));
    assert_eq!(keeps(&facts), None);
    assert_eq!(keeps(&facts.clone().but(0, ChildFacts::down)), None, "it is down itself");
    let down = facts.clone().but(1, ChildFacts::down);
    assert_eq!(keeps(&down).unwrap(), "waiting for other pods to become available: db-1");
    assert_eq!(keeps(&down.clone().at_most(2)), None, "the wave has room");
    let more = down.at_most(2).but(0, ChildFacts::down).with(|f| f.shutting_down = vec!["db-3-0".to_owned()]);
    assert_eq!(keeps(&more).unwrap(), "waiting for other pods to become available: db-1, db-3-0");
}
