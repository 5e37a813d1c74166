//! Pods that leave machines that are being drained: which are due, and which may move now.

use serde_json::json;

use super::super::drain::{Drain, Draining, ended_moves, next_moves, waits_for};
use super::super::topology::{Domain, Order};
use super::*;
use crate::api::{IntOrString, PodMove, Topology};
use crate::observed::{Observed, ObservedMachine, ObservedPod};
use crate::planner::fleet::next_grants;

fn on(machine: &str, uid: &str) -> PodMove {
    PodMove { pod_uid: uid.to_owned(), node_name: machine.to_owned() }
}

/// Its pod is on a machine that is being drained.
fn due(child: ChildFacts) -> ChildFacts {
    child.with(|f| f.pod.drain = Drain::Due(on("m1", "pod-1")))
}

/// It was asked to move its pod, and still has it.
fn asked(child: ChildFacts) -> ChildFacts {
    child.with(|f| f.pod.drain = Drain::Asked(on("m1", "pod-1")))
}

/// The names of the nodes that may move their pods now.
fn last(child: ChildFacts) -> ChildFacts {
    child.with(|f| f.order = Order::Last)
}

/// All have to leave; each is in one of these domains, of which all nodes may be unavailable.
fn in_domains(domains: &[&str], most: i32) -> FleetFacts {
    fleet(domains.len() as i32).with(|f| {
        f.spec.topology = Some(Topology {
            key: "zone".to_owned(),
            max_unavailable_domains: most,
            max_unavailable: Some(IntOrString::String("100%".to_owned())),
        });
        f.children = (0..)
            .zip(domains)
            .map(|(n, domain)| due(node(n)).with(|c| c.domain = Domain::Named((*domain).to_owned())))
            .collect();
    })
}

fn moves(facts: &FleetFacts) -> Vec<String> {
    next_moves(facts, &RolloutTarget::Own).into_iter().map(|request| request.name.to_string()).collect()
}

/// A pod on a machine.
fn pod(uid: &str, machine: &str) -> ObservedPod {
    let spec = json!({"nodeName": machine, "tolerations": [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]});
    ObservedPod::read(&json!({"metadata": {"name": "db-0-0", "uid": uid}, "spec": spec}))
}

fn tolerating(pod: &ObservedPod, keys: &[&str]) -> ObservedPod {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    ObservedPod { tolerations: keys.into(), ..pod.clone() }
}

/// A machine with these taints.
fn machine(name: &str, taints: &[&str]) -> ObservedMachine {
    let taints: Vec<_> = taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
    ObservedMachine::read(&json!({"metadata": {"name": name}, "spec": {"taints": taints}}))
}

fn draining(names: &[&str]) -> Draining {
    let machines: Vec<ObservedMachine> = names.iter().map(|name| machine(name, &["leaving"])).collect();
    Draining::of(machines.iter(), &["leaving".to_owned()])
}

#[test]
fn pod_leaves_a_drained_machine_once() {
    let (here, moved) = (pod("pod-1", "m1"), pod("pod-2", "m2"));
    let asked = on("m1", "pod-1");
    let none: &[&str] = &[];
    for (what, asked, pod, machines, expected) in [
        ("no machine is drained", None, Some(&here), none, Drain::None),
        ("its machine is drained", None, Some(&here), &["m1"], Drain::Due(asked.clone())),
        ("another machine is drained", None, Some(&here), &["m2"], Drain::None),
        ("it has no pod", None, None, &["m1"], Drain::None),
        ("it tolerates the taint", None, Some(&tolerating(&here, &["leaving"])), &["m1"], Drain::None),
        ("it tolerates every taint", None, Some(&tolerating(&here, &[""])), &["m1"], Drain::None),
        ("it was asked", Some(&asked), Some(&here), &["m1"], Drain::Asked(asked.clone())),
        ("it was asked, and the machine is back", Some(&asked), Some(&here), none, Drain::Withdrawn),
        ("its pod is deleted", Some(&asked), None, &["m1"], Drain::None),
        ("it has moved", Some(&asked), Some(&moved), &["m1"], Drain::None),
        ("it has moved, and the machine is back", Some(&asked), Some(&moved), none, Drain::Over),
        (
            "it has moved, and has to again",
            Some(&asked),
            Some(&moved),
            &["m1", "m2"],
            Drain::Due(on("m2", "pod-2")),
        ),
        (
            "it came back to the machine",
            Some(&asked),
            Some(&pod("pod-2", "m1")),
            &["m1"],
            Drain::Returned(on("m1", "pod-2")),
        ),
    ] {
        assert_eq!(Drain::of(asked, pod, &draining(machines), None), expected, "{what}");
    }
}

#[test]
fn pod_is_restarted_once_for_a_file_system_that_grows() {
    let (old, new, asked) = (pod("pod-1", "m1"), pod("pod-2", "m1"), on("", "pod-1"));
    let none: &[&str] = &[];
    for (what, asked, pod, machines, to_restart, expected) in [
        ("it is due", None, &old, none, Some("pod-1"), Drain::Due(asked.clone())),
        ("its machine is drained as well", None, &old, &["m1"], Some("pod-1"), Drain::Due(on("m1", "pod-1"))),
        ("it was asked", Some(&asked), &old, none, Some("pod-1"), Drain::Asked(asked.clone())),
        ("it has grown without", Some(&asked), &old, none, None, Drain::Withdrawn),
        ("it was restarted", Some(&asked), &new, none, None, Drain::Over),
        ("it has to be again", Some(&asked), &new, none, Some("pod-2"), Drain::Due(on("", "pod-2"))),
        ("its machine is drained since", Some(&asked), &new, &["m1"], None, Drain::Due(on("m1", "pod-2"))),
    ] {
        assert_eq!(Drain::of(asked, Some(pod), &draining(machines), to_restart), expected, "{what}");
    }
}

#[test]
fn request_stands_until_the_machines_are_known() {
    let (here, asked) = (pod("pod-1", "m1"), on("m1", "pod-1"));
    let of =
        |asked: Option<&PodMove>, pod: ObservedPod| Drain::of(asked, Some(&pod), &Draining::Unknown, None);
    assert_eq!(of(Some(&asked), here.clone()), Drain::Asked(asked.clone()));
    assert_eq!(of(Some(&asked), pod("pod-2", "m1")), Drain::Returned(on("m1", "pod-2")));
    assert_eq!(of(Some(&asked), pod("pod-2", "m2")), Drain::None);
    assert_eq!(of(None, here), Drain::None);
}

#[test]
fn machine_is_drained_if_cordoned_tainted_or_deleted() {
    let cordoned = json!({"metadata": {"name": "m1"}, "spec": {"unschedulable": true,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}});
    let deleted = json!({"metadata": {"name": "m1", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for (what, machine, expected) in [
        ("nothing", machine("m1", &[]), false),
        ("another taint", machine("m1", &["other"]), false),
        ("one of the taints", machine("m1", &["other", "leaving"]), true),
        ("it is cordoned", ObservedMachine::read(&cordoned), true),
        ("it is being deleted", ObservedMachine::read(&deleted), true),
    ] {
        let draining = Draining::of(std::iter::once(&machine), &["leaving".to_owned()]);
        assert_eq!((draining.has("m1"), !draining.is_empty()), (expected, expected), "{what}");
        assert_eq!(draining.moves(&pod("pod-1", "m1")), expected, "{what}");
    }
    let both = ObservedMachine { unschedulable: true, ..machine("m1", &["leaving"]) };
    let both = Draining::of(std::iter::once(&both), &["leaving".to_owned()]);
    assert!(both.moves(&tolerating(&pod("pod-1", "m1"), &["leaving"])), "it would not be scheduled there");
}

#[test]
fn pods_move_within_the_wave() {
    let all_due =
        |replicas| fleet(replicas).with(|f| f.children = (0..replicas).map(node).map(due).collect());
    let none: &[&str] = &[];
    let table = vec![
        ("no machine is drained", fleet(3), none),
        ("one at a time, from the highest ordinal", all_due(3), &["db-2"]),
        ("as many as may be unavailable", all_due(3).at_most(2), &["db-2", "db-1"]),
        ("only the one on the machine", fleet(3).but(1, due), &["db-1"]),
        ("one that was asked takes the room", all_due(3).but(1, asked), none),
        (
            "one that is down takes the room",
            all_due(3).but(0, |c| c.down().with(|f| f.pod.drain = Drain::None)),
            none,
        ),
        ("one that is missing takes the room", all_due(3).without(1), none),
        ("a node that is down moves first", all_due(3).but(0, |c| due(c.down())), &["db-0"]),
        (
            "all that are down may move together",
            all_due(3).at_most(2).but(0, |c| due(c.down())),
            &["db-0", "db-2"],
        ),
        (
            "all are Ready, none for long enough",
            {
                fleet(3).with(|f| {
                    f.children = (0..3).map(|n| due(node(n).with(|c| c.pod.available = false))).collect();
                })
            },
            none,
        ),
        (
            "no sidecar can be reached",
            {
                fleet(3).with(|f| {
                    f.children =
                        (0..3).map(|n| due(node(n).unreachable().with(|c| c.pod.ready = false))).collect();
                })
            },
            none,
        ),
        ("a paused fleet moves all the same", all_due(2).paused(), &["db-1"]),
        (
            "a node that leaves is not moved",
            all_due(1).with(|f| f.spec.replicas = 0).but(0, |c| c.with(|f| f.surplus = true)),
            none,
        ),
        ("one that drifted needs a grant", all_due(2).but(1, |c| c.running("v2")), &["db-0"]),
        (
            "one in flight is already moving",
            all_due(2).at_most(2).but(1, |c| due(c.granted("v2").seen())),
            &["db-0"],
        ),
        (
            "nothing moves while the set is not known",
            all_due(2).with(|f| f.findings.undecided = Some("?".to_owned())),
            none,
        ),
        ("nothing moves when the fleet is deleted", all_due(2).with(|f| f.terminating = true), none),
        ("the primary leaves last", all_due(3).at_most(2).but(2, last), &["db-1", "db-0"]),
        (
            "the primary waits until the others have left",
            all_due(2).at_most(2).but(1, last).but(0, asked),
            none,
        ),
        ("nothing else has to leave", fleet(2).but(1, |c| last(due(c))), &["db-1"]),
        ("a primary that is down leaves first", all_due(2).but(0, |c| last(due(c.down()))), &["db-0"]),
        ("its role is not known", all_due(2).but(1, |c| c.with(|f| f.order = Order::Unknown)), &["db-0"]),
        ("one domain at a time", in_domains(&["a", "b", "a"], 1).at_most(2), &["db-2", "db-0"]),
        ("as many as the budget allows", in_domains(&["a", "b", "a"], 1), &["db-2"]),
        ("two domains at a time", in_domains(&["a", "b", "a", "c"], 2).at_most(3), &["db-3", "db-2", "db-0"]),
        (
            "one that came back stays",
            fleet(1).but(0, |c| c.with(|f| f.pod.drain = Drain::Returned(on("m1", "p")))),
            none,
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(moves(&facts), expected, "{what}");
    }
}

#[test]
fn asked_node_counts_as_in_flight_until_its_pod_is_gone() {
    let facts = fleet(2).but(0, asked);
    assert!(facts.children[0].state().is_in_flight() && facts.disrupted() == 1);
    let facts = fleet(2).but(0, |c| c.with(|f| f.pod.drain = Drain::Withdrawn));
    assert!(facts.children[0].state().is_in_flight(), "its executor may be moving it");
}

#[test]
fn update_begins_with_nodes_on_drained_machines() {
    let facts = fleet(3).wanting("v2").but(0, due);
    let grants = next_grants(&facts, &to("v2"));
    assert_eq!(grants.iter().map(|grant| grant.name.as_str()).collect::<Vec<_>>(), ["db-0"]);
}

#[test]
fn requests_end_when_the_machine_is_back() {
    let facts = fleet(4)
        .but(0, due)
        .but(1, asked)
        .but(2, |c| c.with(|f| f.pod.drain = Drain::Withdrawn))
        .but(3, |c| c.with(|f| f.pod.drain = Drain::Over));
    let ended: Vec<String> =
        ended_moves(&facts).into_iter().map(|request| request.name.to_string()).collect();
    assert_eq!(ended, ["db-2", "db-3"]);
}

#[test]
fn waiting_message_names_nodes_and_machine() {
    let elsewhere = |child: ChildFacts| child.with(|f| f.pod.drain = Drain::Due(on("m2", "pod-1")));
    for (facts, expected) in [
        (fleet(3).but(1, due), "db-1 has to leave machine m1, which is being drained"),
        (fleet(3).but(1, due).but(2, asked), "db-1, db-2 have to leave machine m1, which is being drained"),
        (
            fleet(3).but(1, due).but(2, elsewhere),
            "db-1, db-2 have to leave machines m1, m2, which are being drained",
        ),
    ] {
        let expected = format!("{expected}, at most 1 unavailable at once");
        assert_eq!(waits_for(&facts), Some(expected));
    }
    let back = fleet(1).but(0, |c| c.with(|f| f.pod.drain = Drain::Returned(on("m1", "p"))));
    assert!(waits_for(&back).unwrap().starts_with("db-0 was scheduled to machine m1 again"));
    assert_eq!(waits_for(&fleet(2)), None);
}
