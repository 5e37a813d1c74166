//! Failure domains, and nodes that are updated last.

use proptest::prelude::*;

use super::super::facts::Group;
use super::super::forecast;
use super::super::leave;
use super::super::topology::{Domain, Order};
use super::super::wave::{Clause, next_grants, waits_for_turn};
use super::*;
use crate::api::{Groups, IntOrString, LastNodes, SidecarStatus, Topology};
use crate::observed::{Observed, ObservedPod};

/// A fleet that wants v2. Each letter is the domain of a node, from ordinal 0; `-` is none.
fn zones(domains: &str, most: i32, within: Option<&str>) -> FleetFacts {
    let topology = Topology {
        key: "zone".to_owned(),
        max_unavailable_domains: most,
        max_unavailable: within.map(|share| {
            share.parse().map_or_else(|_| IntOrString::String(share.to_owned()), IntOrString::Int)
        }),
    };
    let domain = |(ordinal, letter): (i32, char)| match letter {
        '-' => Domain::Unlabelled(ordinal),
        letter => Domain::Named(letter.to_string()),
    };
    let domains: Vec<Domain> = (0..).zip(domains.chars()).map(domain).collect();
    fleet(domains.len() as i32).wanting("v2").with(|f| {
        f.spec.topology = Some(topology.clone());
        for (child, domain) in f.children.iter_mut().zip(domains) {
            child.domain = domain;
        }
    })
}

fn last(facts: FleetFacts, ordinals: &[usize]) -> FleetFacts {
    facts.with(|f| ordinals.iter().for_each(|ordinal| f.children[*ordinal].order = Order::Last))
}

/// The ordinals of the nodes that are granted v2 now.
fn granted(facts: &FleetFacts) -> Vec<String> {
    let grants = next_grants(facts, &to("v2"));
    grants.iter().map(|grant| grant.name.as_str().trim_start_matches("db-").to_owned()).collect()
}

/// The waves of a whole rollout.
fn waves(facts: &FleetFacts) -> Vec<String> {
    let waves = forecast::in_place("db", facts, Some(&to("v2")));
    let names = |wave: &forecast::Wave| {
        let names: Vec<&str> = wave.iter().map(|turn| turn.name.as_str().trim_start_matches("db-")).collect();
        names.join(" ")
    };
    waves.iter().map(names).collect()
}

fn flying(child: ChildFacts) -> ChildFacts {
    child.granted("v2").rolling()
}

#[test]
fn nodes_of_one_domain_move_together_and_domains_one_after_another() {
    for (domains, most, within, expected) in [
        ("abcabc", 1, Some("100%"), vec!["5 2", "4 1", "3 0"]),
        ("aabbb", 1, Some("100%"), vec!["4 3 2", "1 0"]),
        ("aabbb", 1, Some("1"), vec!["4", "3", "2", "1", "0"]),
        ("aaaab", 1, Some("50%"), vec!["4", "3 2", "1 0"]),
        ("abcabc", 2, Some("100%"), vec!["5 2 4 1", "3 0"]),
        ("abcdabcd", 3, Some("1"), vec!["7 6 5", "3 2 1", "4", "0"]),
        // All domains could be unavailable at once.
        ("abab", 2, Some("100%"), vec!["3", "1", "2", "0"]),
        // Without a number of its own, that of the fleet applies.
        ("abcabc", 1, None, vec!["5", "2", "4", "1", "3", "0"]),
        ("abcabc", 2, None, vec!["5", "2", "4", "1", "3", "0"]),
        // A domain that separates nothing does not let the whole fleet go.
        ("aaa", 1, Some("100%"), vec!["2", "1", "0"]),
        ("aa-", 2, Some("100%"), vec!["2", "1", "0"]),
        // A node without a domain is one of its own.
        ("ab-a", 1, Some("100%"), vec!["3 0", "2", "1"]),
    ] {
        let within_words = within.unwrap_or("the fleet's");
        assert_eq!(waves(&zones(domains, most, within)), expected, "{domains} {most} {within_words}");
    }
    let two = zones("abab", 1, None).at_most(2);
    assert_eq!(waves(&two), ["3 1", "2 0"], "both limits hold");
    let two = zones("abab", 2, None).at_most(3);
    assert_eq!(waves(&two), ["3 1 2", "0"], "both limits hold");
}

#[test]
fn begun_domain_is_finished_before_another_one_begins() {
    let facts = zones("abab", 1, Some("100%")).but(2, |c| c.granted("v2").converged());
    assert_eq!(granted(&facts), ["0"]);
}

type Change = fn(ChildFacts) -> ChildFacts;

#[test]
fn no_node_of_another_domain_starts_while_one_is_unavailable() {
    let base = || zones("abcabc", 1, Some("100%"));
    let causes: [(&str, Change); 5] = [
        ("it moves", flying),
        ("it is at the target and not ready", |c| c.granted("v2").converged().down()),
        ("it is asked to leave", |c| c.with(|f| f.leave.asked = true)),
        ("it is not available yet", |c| c.granted("v2").converged().with(|f| f.pod.available = false)),
        ("its sidecar is unreachable", |c| {
            c.granted("v2").converged().with(|f| f.health.unreachable = Some("it does not answer".to_owned()))
        }),
    ];
    for (what, cause) in causes {
        assert_eq!(granted(&base().but(1, cause)), ["4"], "{what}");
    }
    assert_eq!(
        granted(&base().without(1)),
        Vec::<String>::new(),
        "the domain of a missing node is not known"
    );
    let shutting_down = base().with(|f| f.shutting_down = vec!["db-6-0".to_owned()]);
    assert_eq!(granted(&shutting_down), Vec::<String>::new());
    let two = zones("abcabc", 2, Some("100%")).but(1, flying);
    assert_eq!(granted(&two), ["4", "5", "2"]);
}

#[test]
fn broken_nodes_come_first_in_every_domain() {
    let facts = zones("abcabc", 1, Some("1")).but(0, ChildFacts::failed).but(1, ChildFacts::failed);
    assert_eq!(granted(&facts), ["1", "0"], "their main containers do not run");
    let facts = zones("abcabc", 1, Some("1")).but(0, ChildFacts::down).but(1, ChildFacts::down);
    assert_eq!(granted(&facts), ["1"], "only what moves keeps another domain");
    let last = last(zones("ab", 1, Some("1")).but(0, ChildFacts::down), &[0]);
    assert_eq!(granted(&last), ["0"], "even if it is updated last");
}

#[test]
fn last_nodes_wait_until_all_others_are_available() {
    let facts = || last(fleet(4).wanting("v2").at_most(2), &[2]);
    assert_eq!(waves(&facts()), ["3 1", "0", "2"]);
    let done = |c: ChildFacts| c.granted("v2").converged();
    let left = || facts().but(3, done).but(1, done).but(0, done);
    assert_eq!(granted(&left()), ["2"]);
    assert_eq!(waits_for_turn(&left(), &to("v2")), None);
    let unready = fleet(3).wanting("v2").with(|f| f.children = (0..3).map(|n| node(n).down()).collect());
    assert_eq!(waits_for_turn(&unready, &to("v2")), None, "nothing is last");
    let one_down = left().but(0, |c| done(c).down());
    assert_eq!(granted(&one_down), Vec::<String>::new(), "the wave has room for it");
    let sentence = waits_for_turn(&one_down, &to("v2")).unwrap();
    assert_eq!(sentence, "waiting for db-0 to be available before the nodes that order.last selects");
    assert_eq!(granted(&one_down.but(0, |c| c.with(|f| f.controller.suspended = true))), ["2"]);
    assert_eq!(granted(&last(fleet(2).wanting("v2"), &[0, 1])), ["1"], "all are last");
    // It became the primary after it had moved: the former one is as any other.
    let failed_over = last(fleet(3).wanting("v2").but(2, done), &[2]);
    assert_eq!(waves(&failed_over), ["1", "0"]);
    // The partition keeps a node.
    let held = last(fleet(3).wanting("v2").held_below_ordinal(1), &[2]);
    assert_eq!(waves(&held), ["1", "2"]);
    assert_eq!(waves(&last(zones("abab", 1, Some("100%")), &[3])), ["2 0", "1", "3"]);
}

/// A StatefulSet that is updated to v2.
fn group(ordinals: std::ops::Range<i32>) -> Group {
    Group { renderings: fleet(1).renderings, is_ordered: false, incomplete: Some("v2".into()), ordinals }
}

#[test]
fn last_pod_of_each_stateful_set_waits_for_the_others() {
    let facts = fleet(6).at_most(6).wanting("v2");
    let sets = facts.with(|f| f.groups = vec![group(4..6), group(2..4), group(0..2)]);
    assert_eq!(granted(&sets), ["5", "3", "1"]);
    let one_at_a_time = sets.with(|f| f.spec.groups = Groups::OneAtATime);
    assert_eq!(granted(&one_at_a_time), ["5", "4"]);
    assert_eq!(granted(&one_at_a_time.clone().but(0, ChildFacts::failed)), ["0", "5", "4"]);
    let half_running = one_at_a_time.but(0, ChildFacts::half_running);
    assert_eq!(granted(&half_running), ["5", "4"], "it waits for the turn of its StatefulSet");
}

#[test]
fn nodes_that_the_partition_holds_begin_no_domain() {
    let facts = zones("aab", 1, Some("100%")).held_below_ordinal(1);
    assert_eq!(granted(&facts), ["2"]);
    assert_eq!(granted(&facts.but(1, |c| c.granted("v2").converged())), ["2"]);
}

#[test]
fn pods_granted_in_the_same_pass_are_waited_for() {
    // Two StatefulSets: in that of ordinals 0 and 1 all are last, in the other one each pod waits for the others.
    let facts =
        last(fleet(4).wanting("v2").at_most(2), &[0, 1]).with(|f| f.groups = vec![group(2..4), group(0..2)]);
    assert_eq!(granted(&facts), ["3"]);
    assert_eq!(
        waves(&facts),
        ["3", "1", "2", "0"],
        "of two that wait for each other, the primary goes first"
    );
}

#[test]
fn primary_that_is_ready_is_not_updated_first_because_it_is_not_available_yet() {
    let starting = |c: ChildFacts| c.with(|f| f.pod.available = false);
    let facts = last(fleet(3).wanting("v2").at_most(2).but(0, starting), &[0]);
    assert_eq!(granted(&facts), ["2"]);
    // Nor is any other node, if another one is down.
    let facts = fleet(3).wanting("v2").but(0, starting).but(2, |c| c.granted("v2").converged().down());
    assert_eq!(granted(&facts), Vec::<String>::new());
}

#[test]
fn missing_node_is_waited_for_and_one_below_the_partition_is_not() {
    let done = |c: ChildFacts| c.granted("v2").converged();
    let facts = || last(fleet(4).wanting("v2").at_most(2), &[2]).but(3, done).but(1, done);
    assert_eq!(granted(&facts().without(0)), Vec::<String>::new());
    let sentence = waits_for_turn(&facts().without(0), &to("v2")).unwrap();
    assert!(sentence.starts_with("waiting for ordinal 0 to be available"), "{sentence}");
    let held = facts().held_below_ordinal(1).but(0, ChildFacts::down);
    assert_eq!(granted(&held), ["2"]);
}

#[test]
fn node_whose_role_is_unknown_waits_for_it() {
    let facts = fleet(2).wanting("v2").with(|f| f.children[1].order = Order::Unknown);
    assert_eq!(granted(&facts), ["0"]);
    let sentence = waits_for_turn(&facts, &to("v2")).unwrap();
    assert_eq!(sentence, "waiting for the sidecar of db-1 to report its role");
    let broken = facts.but(1, ChildFacts::failed);
    assert_eq!(granted(&broken)[0], "1", "a broken node comes first");
}

#[test]
fn turn_is_read_from_labels_or_the_role() {
    let by_labels = LastNodes {
        pod_labels: [("role", "primary"), ("shard", "a")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..LastNodes::default()
    };
    let turn = |labels: serde_json::Value| {
        let pod = ObservedPod::read(&serde_json::json!({"metadata": {"name": "db-0-0", "labels": labels}}));
        Order::by_labels(&by_labels, Some(&pod))
    };
    assert_eq!(turn(serde_json::json!({"role": "primary", "shard": "a", "x": "y"})), Order::Last);
    assert_eq!(turn(serde_json::json!({"role": "primary"})), Order::Any);
    assert_eq!(turn(serde_json::json!({"role": "replica", "shard": "a"})), Order::Any);
    assert_eq!(Order::by_labels(&by_labels, None), Order::Any);
    let by_role = LastNodes { sidecar: "leader".to_owned(), ..LastNodes::default() };
    let role = SidecarStatus { role: Some("leader".to_owned()), ..SidecarStatus::default() }.role;
    assert_eq!(Order::by_role(&by_role, role.as_deref()), Order::Last);
    assert_eq!(Order::by_role(&by_role, Some("")), Order::Any);
    assert_eq!(Order::by_role(&by_role, None), Order::Last, "it may be the leader");
}

#[test]
fn surplus_nodes_leave_one_domain_after_another() {
    let surplus = |facts: FleetFacts| {
        facts.with(|f| {
            f.spec.replicas = 2;
            f.children.iter_mut().skip(2).for_each(|child| child.surplus = true);
        })
    };
    let names =
        |facts: &FleetFacts| leave::in_waves(facts).ask.iter().map(ToString::to_string).collect::<Vec<_>>();
    let facts = surplus(zones("abbcbc", 1, Some("100%")));
    assert_eq!(names(&facts), ["db-5", "db-3"]);
    assert_eq!(names(&facts.clone().but(0, ChildFacts::down)), Vec::<String>::new());
    let ending = |domain: &str| {
        facts.clone().with(|f| {
            f.shutting_down = vec!["db-6-0".to_owned()];
            f.ending_domains = [("db-6-0".to_owned(), Domain::Named(domain.to_owned()))].into();
        })
    };
    assert_eq!(names(&ending("c")), ["db-5", "db-3"], "one of that domain has left already");
    assert_eq!(names(&ending("a")), Vec::<String>::new());
}

#[test]
fn used_room_names_the_domains() {
    let facts = zones("ab-", 1, None).but(1, ChildFacts::down).but(2, ChildFacts::down);
    let sentence = "2 nodes are disrupted (b: db-1; no known domain: db-2); at most 1 in at most 1 domain of zone may be";
    assert_eq!(facts.used_room(), sentence);
    assert_eq!(
        zones("ab", 2, None).used_room(),
        "0 nodes are disrupted; at most 1 in at most 2 domains of zone may be"
    );
    assert_eq!(facts.limit_at_once(), "at most 1 in at most 1 domain of zone unavailable at once");
    let share = |most, within| zones("abc", most, Some(within)).limit_at_once();
    assert_eq!(share(1, "100%"), "at most 100% of the nodes of at most 1 domain of zone unavailable at once");
    assert_eq!(share(2, "3"), "at most 3 in each of at most 2 domains of zone unavailable at once");
    assert_eq!(
        share(3, "3"),
        "at most 1 in at most 3 domains of zone unavailable at once",
        "it separates nothing"
    );
}

#[test]
fn nodes_without_a_domain_are_reported() {
    let refreshed = |facts: &FleetFacts| {
        let mut status = NodeDeploymentStatus::default();
        super::super::topology::report(&mut status, facts, (3, false, now()));
        status.conditions
    };
    assert_eq!(refreshed(&zones("ab", 1, None)), []);
    let unplaced = zones("ab", 1, None).with(|f| f.children[0].domain = Domain::Unplaced(0));
    assert_eq!(refreshed(&unplaced), [], "it is about to be scheduled");
    let conditions = refreshed(&zones("a--", 1, None));
    assert_eq!(
        (conditions[0].type_.as_str(), conditions[0].reason.as_str()),
        ("TopologyKnown", "LabelMissing")
    );
    assert!(
        conditions[0]
            .message
            .starts_with("the pods of db-1, db-2 have no label zone, and the operator does not read")
    );
}

proptest! {
    /// Whatever is down: a node that serves is granted something only if no more domains are disrupted afterwards than may be,
    /// and no more nodes of its domain.
    #[test]
    fn serving_grants_stay_within_the_domains(
        domains in "[abcd-]{1,9}",
        states in proptest::collection::vec(0..5_u8, 9),
        most in 1..4_i32,
        within in prop_oneof![Just("1"), Just("2"), Just("50%"), Just("100%")],
        turns in proptest::collection::vec(0..4_u8, 9),
    ) {
        let mut facts = zones(&domains, most, Some(within));
        for (child, (state, turn)) in facts.children.iter_mut().zip(states.iter().zip(&turns)) {
            *child = match state {
                0 => child.clone().down(),
                1 => child.clone().failed(),
                2 => flying(child.clone()),
                3 => child.clone().granted("v2").converged(),
                _ => child.clone(),
            };
            child.order = if *turn == 0 { Order::Last } else { Order::Any };
        }
        let grants = next_grants(&facts, &to("v2"));
        let mut disrupted: Vec<&ChildFacts> =
            facts.children.iter().filter(|child| child.counts_as_disrupted()).collect();
        let of = |name: &NodeName| facts.children.iter().find(|child| child.name == *name).unwrap();
        for grant in &grants {
            let child = of(&grant.name);
            if grant.clause == Clause::Serving {
                let others: std::collections::BTreeSet<&Domain> =
                    disrupted.iter().map(|other| &other.domain).filter(|domain| **domain != child.domain).collect();
                prop_assert!(others.len() < most as usize, "{grants:?}");
                let same = disrupted.iter().filter(|other| other.domain == child.domain).count();
                let size = facts.children.iter().filter(|other| other.domain == child.domain).count();
                let share = match within { "1" => 1, "2" => 2, "50%" => (size / 2).max(1), _ => size };
                prop_assert!(same < share, "{grants:?}");
            }
            if !child.counts_as_disrupted() && grant.clause != Clause::RunsTarget {
                disrupted.push(child);
            }
        }
        // A rollout over nodes that only serve ends.
        if states.iter().take(facts.children.len()).all(|state| *state > 2) {
            let moved = waves(&facts).iter().map(|wave| wave.split(' ').count()).sum::<usize>();
            let left = facts.children.iter().filter(|child| child.spec_hash != Some("v2".into())).count();
            prop_assert_eq!(moved, left);
        }
    }
}
