//! The revision at which a missing node is created.

use super::super::create::creation_revision;
use super::super::gate::Gate;
use super::*;

use crate::api::{AtHook, HookPoint, RolloutHash};

type Case<'a> = (&'static str, FleetFacts, Option<&'a RolloutTarget>, &'static str);

#[test]
fn missing_node_gets_the_target_unless_other_nodes_are_unstable() {
    let rolling = to("v2");
    let own = RolloutTarget::Own;
    let base = || fleet(3).wanting("v2").without(2);
    let steady = || fleet(3).without(2);
    let table: Vec<Case> = vec![
        ("all others serve", base(), Some(&rolling), "v2"),
        ("another in flight", base().but(0, |c| c.granted("v2")), Some(&rolling), "v1"),
        ("another failed at its grant", base().but(0, ChildFacts::failed), Some(&rolling), "v1"),
        (
            "another never ready",
            base().but(0, |c| c.with(|f| f.pod.ever_ready = false)),
            Some(&rolling),
            "v1",
        ),
        ("another down at its grant", base().but(0, ChildFacts::down), Some(&rolling), "v2"),
        ("another drifted", base().but(0, |c| c.running("v3")), Some(&rolling), "v2"),
        (
            "another in flight, two allowed",
            base().at_most(2).but(0, |c| c.granted("v2")),
            Some(&rolling),
            "v2",
        ),
        (
            "two in flight, two allowed",
            base().at_most(2).but(0, |c| c.granted("v2")).but(1, |c| c.granted("v2")),
            Some(&rolling),
            "v1",
        ),
        ("a surplus one in flight", base().with_surplus(node(3).granted("v2")), Some(&rolling), "v1"),
        ("paused", base().paused(), Some(&rolling), "v1"),
        ("paused, and never completed", base().paused().never_completed(), Some(&rolling), "v2"),
        (
            "never completed, another in flight",
            base().never_completed().but(0, |c| c.granted("v2")),
            Some(&rolling),
            "v2",
        ),
        ("below the partition", base().held_below_ordinal(3), Some(&rolling), "v1"),
        ("above the partition", base().held_below_ordinal(2), Some(&rolling), "v2"),
        (
            "below the partition, never completed",
            base().held_below_ordinal(3).never_completed(),
            Some(&rolling),
            "v2",
        ),
        ("no rollout", steady(), None, "v1"),
        ("no rollout, the wanted one aborted", base().rejecting("Aborted"), None, "v1"),
        ("no rollout, rolled back", base().rejecting("RolledBack"), None, "v1"),
        (
            "no rollout, rejected and never completed",
            base().rejecting("Aborted").never_completed(),
            None,
            "v2",
        ),
        ("drift is put right", steady().but(0, |c| c.granted("v1")), Some(&own), "v1"),
        ("drift is put right while the wanted one is rejected", base().rejecting("Failed"), Some(&own), "v1"),
    ];
    for (what, facts, rollout_target, expected) in table {
        assert_eq!(creation_revision(&facts, 2, rollout_target), Some(&expected.into()), "{what}");
    }
}

#[test]
fn fleet_that_was_scaled_to_zero_is_filled_with_the_target() {
    let rolling = to("v2");
    let base = || fleet(3).wanting("v2").without(2);
    let table: Vec<Case> = vec![
        (
            "below the partition, filling again from nothing",
            base().held_below_ordinal(3).with(|f| f.record.scaled_to_zero = true),
            Some(&rolling),
            "v1",
        ),
        (
            "filling again from nothing, another in flight",
            base().with(|f| {
                f.record.scaled_to_zero = true;
                f.children = vec![node(0).never_ready().granted("v2")];
            }),
            Some(&rolling),
            "v2",
        ),
        (
            "filled again with what was before, and one of these in flight",
            base().with(|f| f.record.scaled_to_zero = true).but(0, |c| c.granted("v2")),
            Some(&rolling),
            "v1",
        ),
        (
            "filling again, another one already serves the target",
            base().with(|f| {
                f.record.scaled_to_zero = true;
                f.children = vec![
                    node(0).granted("v2").converged().with(|f| f.spec_hash = Some("v2".into())),
                    node(1).granted("v2"),
                ];
            }),
            Some(&rolling),
            "v2",
        ),
        (
            "filling again, another one served what was before",
            base().with(|f| {
                f.record.scaled_to_zero = true;
                f.children = vec![node(0), node(1).granted("v2")];
            }),
            Some(&rolling),
            "v1",
        ),
        (
            "filling again from nothing, paused",
            base().paused().with(|f| {
                f.record.scaled_to_zero = true;
                f.children = vec![];
            }),
            None,
            "v2",
        ),
    ];
    for (what, facts, rollout_target, expected) in table {
        assert_eq!(creation_revision(&facts, 2, rollout_target), Some(&expected.into()), "{what}");
    }
}

/// A hook before a rollout may be a backup: nothing of the new template runs until it is done.
#[test]
fn missing_node_stays_at_old_revision_while_a_hook_blocks() {
    let rolling = to("v2");
    let base = || fleet(3).wanting("v2").without(2);
    let at = |at, failed| Some(AtHook { point: Some(at), failed, ..AtHook::default() });
    let of_fleet = |at_hook| base().with(|f| f.rollout.at_hook = at_hook);
    let of_node = |failed| {
        let at_hook = at(HookPoint::BeforeNode, failed);
        base().at_most(2).but(0, |c| c.granted("v2").with(|f| f.at_hook = at_hook.clone()))
    };
    let left = |c: ChildFacts| c.granted("v3").with(|f| f.at_hook = at(HookPoint::BeforeNode, true));
    let table: Vec<Case> = vec![
        ("before the rollout", of_fleet(at(HookPoint::BeforeRollout, false)), Some(&rolling), "v1"),
        ("before the rollout, failed", of_fleet(at(HookPoint::BeforeRollout, true)), Some(&rolling), "v1"),
        ("after the rollout", of_fleet(at(HookPoint::AfterRollout, false)), Some(&rolling), "v2"),
        ("before a node", of_node(false), Some(&rolling), "v2"),
        ("before a node, failed", of_node(true), Some(&rolling), "v1"),
        ("failed at what nobody wants", base().at_most(2).but(0, left), Some(&rolling), "v2"),
        (
            "a new fleet",
            of_fleet(at(HookPoint::BeforeRollout, false)).never_completed(),
            Some(&rolling),
            "v2",
        ),
    ];
    for (what, facts, rollout_target, expected) in table {
        assert_eq!(creation_revision(&facts, 2, rollout_target), Some(&expected.into()), "{what}");
    }
}

/// A new node would be replaced right after its start.
#[test]
fn new_node_waits_for_room_to_start_at_the_target() {
    let rolling = to("v2");
    // The third of three was just asked for.
    let base = || fleet(3).wanting("v2").without(2).with(|f| f.record.existed = 2);
    let moving = || base().but(0, |c| c.granted("v2").rolling());
    let asks = AtHook { asks: true, ..AtHook::default() };
    let table: Vec<(&str, FleetFacts, Option<&str>)> = vec![
        ("the wave has room", base(), Some("v2")),
        ("another moves", moving(), None),
        ("another is new", base().but(1, |c| c.granted("v2").with(|f| f.pod.ever_ready = false)), None),
        ("another waits for a fix", base().but(0, ChildFacts::failed), None),
        ("two at once", moving().at_most(2), Some("v2")),
        ("it is no new one", moving().with(|f| f.record.existed = 3), Some("v1")),
        ("the target failed on another", moving().but(0, ChildFacts::failed), Some("v1")),
        (
            "another finds no machine",
            moving().but(0, |c| c.failed().with_problem("Unschedulable", "unbound claims")),
            None,
        ),
        (
            "another has not reported since it was granted the target",
            base().but(0, |c| c.granted("v2").failed().with(|f| f.controller.status_outdated = true)),
            None,
        ),
        ("the rollout is stalled", moving().with(|f| f.record.stalled = true), Some("v1")),
        (
            "a person has to approve a hook",
            moving().but(0, |c| c.with(|f| f.at_hook = Some(asks.clone()))),
            Some("v1"),
        ),
        ("paused", moving().paused(), Some("v1")),
        ("below the partition", moving().held_below_ordinal(3), Some("v1")),
    ];
    for (what, facts, expected) in table {
        let expected = expected.map(RolloutHash::from);
        assert_eq!(creation_revision(&facts, 2, Some(&rolling)), expected.as_ref(), "{what}");
    }
    let lost = fleet(3).wanting("v2").without(1).with(|f| f.record.existed = 2);
    let lost = lost.but(0, |c| c.granted("v2").rolling());
    assert_eq!(creation_revision(&lost, 1, Some(&rolling)), Some(&"v1".into()), "there is a higher one");
}

#[test]
fn no_node_is_created_at_a_template_that_names_missing_objects() {
    let rolling = to("v2");
    let base = || fleet(3).wanting("v2").without(2);
    let new = || base().with(|f| f.record.last_completed = None);
    let again = || {
        base().with(|f| {
            f.record.scaled_to_zero = true;
            f.children.clear();
        })
    };
    let table = [
        ("first creation", new(), None, Some("v2"), None),
        ("filled again from nothing", again(), None, Some("v2"), Some("v1")),
        ("room in a rollout", base(), Some(&rolling), Some("v2"), Some("v1")),
        ("lost", fleet(3).without(2), None, Some("v1"), Some("v1")),
    ];
    for (what, facts, at, open, closed) in table {
        let revision = |facts: &FleetFacts| creation_revision(facts, 2, at).map(ToString::to_string);
        assert_eq!(revision(&facts).as_deref(), open, "{what}");
        let facts = facts.with(|f| f.rollout.gate = Gate::Missing("Secret tls".to_owned()));
        assert_eq!(revision(&facts).as_deref(), closed, "{what}, objects are missing");
    }
}
