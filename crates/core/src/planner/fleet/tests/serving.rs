//! Which set serves if the status does not name it, and which set is kept because it may be that one.

use std::collections::BTreeSet;

use super::super::sets::SetFacts;
use super::super::sets::serving::{ActiveSetEvidence, Seen, serving};
use super::*;
use crate::api::{RetiringSet, SetName};

/// The set that the status names, the sets that it knows not to serve, the set that the Service selects, and the sets
/// with their number of nodes and of nodes that are Ready.
fn told(recorded: &str, known: &[&str], selected: &str, sets: &[(&str, usize, usize)]) -> ActiveSetEvidence {
    ActiveSetEvidence {
        recorded: SetName::recorded(recorded),
        known: known.iter().map(|s| (*s).into()).collect(),
        selected: SetName::recorded(selected),
        sets: sets
            .iter()
            .map(|(s, nodes, ready)| ((*s).into(), Seen { nodes: *nodes, ready: *ready }))
            .collect(),
        halting: BTreeSet::new(),
        none_wanted: false,
    }
}

#[test]
fn serving_set_is_derived_from_available_evidence() {
    let both = [("first", 2, 2), ("v2", 2, 2)];
    for (what, told, expected) in [
        ("a new fleet", told("", &[], "", &[]), "first"),
        ("a status that names one", told("v2", &[], "first", &both), "v2"),
        ("one that was scaled to 0", told("v2", &[], "", &[]), "v2"),
        (
            "one whose nodes are lost while the old ones retire",
            told("v2", &["first"], "", &[("first", 2, 2)]),
            "v2",
        ),
        ("a lost status over one set", told("", &[], "", &[("v2", 2, 0)]), "v2"),
        ("a lost status and a Service", told("", &[], "v2", &both), "v2"),
        (
            "its rollout is lost, and the Service selects the other set",
            told("first", &[], "v2", &both),
            "first",
        ),
        ("a Service over what is Ready", told("", &[], "v2", &[("first", 2, 2), ("v2", 2, 0)]), "v2"),
        ("a name without nodes", told("old", &[], "", &[("v2", 2, 0)]), "v2"),
        ("a name without nodes, and a Service", told("old", &[], "first", &both), "first"),
        (
            "no node is wanted, and one comes late of a set that was given up",
            ActiveSetEvidence { none_wanted: true, ..told("first", &[], "", &[("v2", 1, 0)]) },
            "first",
        ),
    ] {
        assert_eq!(serving("db", &told), Ok(expected.into()), "{what}");
    }
}

#[test]
fn ambiguous_serving_set_requires_manual_resolution() {
    for (what, told) in [
        ("two Ready sets", told("", &[], "", &[("first", 2, 1), ("v2", 2, 2)])),
        ("one that is Ready", told("", &[], "", &[("first", 2, 0), ("v2", 2, 2)])),
        ("a name without nodes, and one Ready set", told("old", &[], "", &[("first", 1, 1), ("v2", 2, 0)])),
        ("none is Ready", told("", &[], "", &[("first", 2, 0), ("v2", 2, 0)])),
        ("a name without nodes over two", told("old", &[], "", &[("first", 2, 1), ("v2", 2, 2)])),
        ("a Service that selects nothing", told("", &[], "old", &[("first", 2, 1), ("v2", 2, 2)])),
    ] {
        let sentence = serving("db", &told).unwrap_err();
        for part in ["first", "v2", "kubectl delete statefulnodes", "windlass.dev/deployment=db"] {
            assert!(sentence.contains(part), "{what}: {sentence}");
        }
    }
    let undecided = fleet(2).wanting("v2").with(|f| f.findings.undecided = Some("nothing says".to_owned()));
    let decided = super::super::decide(&undecided, None, &RolloutTarget::Own, false);
    assert_eq!(decided, super::super::FleetDecision::Keep);
}

#[test]
fn successor_of_halting_nodes_is_not_guessed() {
    let halting = |known: &[&str]| ActiveSetEvidence {
        halting: [SetName::FIRST].into(),
        ..told("first", known, "first", &[("first", 2, 2), ("v2", 2, 2), ("v3", 2, 2)])
    };
    let sentence = serving("db", &halting(&[])).unwrap_err();
    assert!(sentence.contains("takes over") && sentence.contains("v2 (2 of 2"), "{sentence}");
    assert_eq!(serving("db", &halting(&["v3"])), Ok(SetName::FIRST));
}

#[test]
fn set_is_kept_if_it_serves_or_is_not_provably_superfluous() {
    let known = |hash: &str, unpromoted: bool| RetiringSet {
        set: "v2".to_owned(),
        hash: hash.to_owned(),
        build_id: String::new(),
        since: now(),
        unpromoted,
        served: false,
        halt_height: 0,
    };
    let with = |ready: bool, selected: &str| {
        let children = vec![node(0).with(|f| f.pod.ready = ready)];
        fleet(1).with(|f| {
            f.set = SetName::FIRST;
            f.service.selected = SetName::recorded(selected);
            f.sets = [("v2".into(), SetFacts { children, ..SetFacts::default() })].into();
        })
    };
    for (what, facts, set, kept) in [
        ("known to have served", with(true, ""), known("v2", false), false),
        ("known never to have served", with(true, ""), known("v2", true), false),
        ("the Service selects it", with(true, "v2"), known("v2", false), true),
        ("nobody knows it, and it is Ready", with(true, ""), known("", false), true),
        ("nobody knows it, and it is down for now", with(false, ""), known("", false), true),
        ("nobody knows it, and the Service selects another", with(true, "first"), known("", false), false),
    ] {
        assert_eq!(facts.kept(&set).is_some(), kept, "{what}");
    }
    let mut leaving = with(true, "");
    leaving.sets.get_mut("v2").unwrap().children[0].terminating = true;
    assert_eq!(leaving.kept(&known("", false)), None, "its nodes are going already");
}
