//! Decides which nodes leave, and when. A node is first asked to leave, and deleted once its own plan waits for nothing
//! else. Until then the request can be withdrawn, and the node continues to serve. Pure.

use std::ops::AddAssign;

use chrono::{DateTime, Utc};

use super::child::ChildFacts;
use super::facts::FleetFacts;
use super::topology::ByDomain;
use crate::api::NodeName;
use crate::engine::sentence::some_of;

/// What is done about nodes that leave, each list from the highest ordinal.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Leave {
    /// The nodes that are asked to leave.
    pub ask: Vec<NodeName>,
    /// The nodes that are deleted.
    pub delete: Vec<NodeName>,
}

/// The surplus nodes of the active set: those whose main container runs leave in waves, the others at once. None leaves
/// while the fleet is paused.
#[must_use]
pub fn in_waves(facts: &FleetFacts) -> Leave {
    if facts.spec.paused {
        return Leave::default();
    }
    let surplus = || facts.children.iter().rev().filter(|c| c.surplus && !c.terminating);
    // A node that was asked to leave serves until it is deleted, so only nodes that are down by then count against the
    // deletion. If another node goes down after a node was asked, the latter stays until there is room again.
    let goes = |c: &ChildFacts| c.is_moving(None) && (c.terminating || !c.leave.asked);
    let asking = used_room(facts, |c| c.is_moving(None), ChildFacts::is_disrupted);
    let going = used_room(facts, goes, |c| !c.state().is_undisturbed());
    Leave {
        ask: those_with_room(facts, asking, surplus().filter(|c| c.has_reachable_sidecar())),
        delete: those_with_room(facts, going, surplus().filter(|c| c.can_be_deleted())),
    }
}

/// How many nodes of a domain are moving or leaving, and how many are disrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Out {
    moving: i32,
    disrupted: i32,
}

impl AddAssign for Out {
    fn add_assign(&mut self, other: Self) {
        self.moving += other.moving;
        self.disrupted += other.disrupted;
    }
}

fn used_room(
    facts: &FleetFacts,
    is_moving: impl Fn(&ChildFacts) -> bool,
    is_disrupted: impl Fn(&ChildFacts) -> bool,
) -> ByDomain<Out> {
    let of = |child: &ChildFacts| Out {
        moving: i32::from(is_moving(child)),
        disrupted: i32::from(is_disrupted(child)),
    };
    ByDomain::count(facts, of, || Out { moving: 0, disrupted: 1 }, || Out { moving: 1, disrupted: 1 })
}

/// The candidates that may leave: first those whose main container does not run; then, while there is room, those that
/// are not Ready and whose main container runs, those that count as disrupted and may still serve, and those that serve.
/// Each is counted before the next is considered. Nodes that are only down do not keep each other.
fn those_with_room<'a>(
    facts: &FleetFacts,
    mut room: ByDomain<Out>,
    candidates: impl Iterator<Item = &'a ChildFacts>,
) -> Vec<NodeName> {
    let (down, others): (Vec<&ChildFacts>, Vec<&ChildFacts>) = candidates.partition(|c| c.is_down());
    let (running, broken): (Vec<&ChildFacts>, Vec<&ChildFacts>) =
        down.into_iter().partition(|c| c.main_container_runs());
    let (serving, out): (Vec<&ChildFacts>, Vec<&ChildFacts>) =
        others.into_iter().partition(|c| c.state().is_undisturbed());
    let mut go: Vec<NodeName> = broken.iter().map(|c| c.name.clone()).collect();
    go.extend(one_after_another(
        facts,
        &mut room,
        &running,
        |out| &mut out.moving,
        |child| child.is_moving(None) && !child.leave.asked,
    ));
    go.extend(one_after_another(facts, &mut room, &out, |out| &mut out.disrupted, |_| true));
    go.extend(one_after_another(facts, &mut room, &serving, |out| &mut out.disrupted, |_| false));
    go
}

/// The candidates that find room, which each takes. Those that count already count only once they leave: several of them would
/// keep each other, and nothing but their removal may end that.
fn one_after_another(
    facts: &FleetFacts,
    room: &mut ByDomain<Out>,
    candidates: &[&ChildFacts],
    field: impl Fn(&mut Out) -> &mut i32,
    counts: impl Fn(&ChildFacts) -> bool,
) -> Vec<NodeName> {
    let add = |room: &mut ByDomain<Out>, child: &ChildFacts, number: i32| {
        let mut out = Out::default();
        *field(&mut out) = number;
        room.add(&child.domain, out);
    };
    for child in candidates.iter().filter(|child| counts(child)) {
        add(room, child, -1);
    }
    let (go, stay): (Vec<&ChildFacts>, Vec<&ChildFacts>) = candidates.iter().partition(|child| {
        let has_room = room.has_room(facts, child, |out| *field(&mut { *out }), 0);
        if has_room {
            add(room, child, 1);
        }
        has_room
    });
    for child in stay.iter().filter(|child| counts(child)) {
        add(room, child, 1);
    }
    go.iter().map(|child| child.name.clone()).collect()
}

/// The removal of nodes that do not serve. They leave together.
#[must_use]
pub fn together<'a>(children: impl DoubleEndedIterator<Item = &'a ChildFacts>) -> Leave {
    let staying: Vec<&ChildFacts> = children.rev().filter(|c| !c.terminating).collect();
    let names = |wanted: fn(&ChildFacts) -> bool| {
        staying.iter().filter(|c| wanted(c)).map(|c| c.name.clone()).collect()
    };
    Leave { ask: names(ChildFacts::has_reachable_sidecar), delete: names(ChildFacts::can_be_deleted) }
}

/// The nodes that have a `removalID`, but are desired again.
#[must_use]
pub fn kept(facts: &FleetFacts, now: DateTime<Utc>) -> Vec<NodeName> {
    let active = facts.children.iter().filter(|_| !facts.active_set_is_removed());
    // A time in the future was written before the clock was set back, and says nothing about the delay.
    let lives = |set: &&super::SetFacts| {
        set.retiring.as_ref().is_none_or(|r| r.since <= now && facts.removal_of(r) > now)
    };
    // A clock that is set back restarts a part of the delay. A node whose plan began after the delay continues, and so
    // does a node that has begun its removal hook: that hook never runs twice. If the delay was increased since, a node
    // that has not begun its removal hook stays.
    let others = facts.sets.values().filter(lives).flat_map(|set| {
        let leaves = move |c: &&ChildFacts| {
            set.retiring.as_ref().is_none_or(|retiring| {
                !c.leave.began_hook && c.leave.since.is_none_or(|since| since < facts.removal_of(retiring))
            })
        };
        set.children.iter().filter(leaves)
    });
    let stays = |c: &&ChildFacts| c.leave.asked && !c.surplus && !c.terminating;
    active.chain(others).filter(stays).map(|c| c.name.clone()).collect()
}

/// What the nodes that should leave wait for, in a sentence; `None` if no node should leave.
#[must_use]
pub fn waits_for(facts: &FleetFacts) -> Option<String> {
    let waits = [before_they_leave(facts), removal_message(facts)];
    let waits: Vec<String> = waits.into_iter().flatten().collect();
    (!waits.is_empty()).then(|| waits.join("; "))
}

/// What the surplus nodes wait for that are not being deleted yet.
fn before_they_leave(facts: &FleetFacts) -> Option<String> {
    let surplus = || facts.children.iter().rev().filter(|c| c.surplus && !c.terminating);
    surplus().next()?;
    if facts.spec.paused {
        let names = list(surplus().map(|c| c.name.as_str()));
        return Some(format!(
            "waiting for the fleet to be resumed before {names} can be removed: spec.paused is true"
        ));
    }
    let may = in_waves(facts);
    // A node that was asked and may not be deleted is blocked as well: another node went down in the meantime.
    let held = |c: &&ChildFacts| {
        let asked = c.can_be_deleted() && !may.delete.contains(&c.name);
        asked || (c.has_reachable_sidecar() && !may.ask.contains(&c.name))
    };
    let held: Vec<&str> = surplus().filter(held).map(|c| c.name.as_str()).collect();
    if held.is_empty() {
        return Some(format!("waiting for {} to be removed", list(surplus().map(|c| c.name.as_str()))));
    }
    let disrupted = facts.children.iter().filter(|c| c.is_disrupted() && !held.contains(&c.name.as_str()));
    let mut names: Vec<String> = disrupted.map(|c| c.name.to_string()).collect();
    names.extend(facts.missing().iter().map(|ordinal| format!("ordinal {ordinal}")));
    names.extend(facts.shutting_down.iter().cloned());
    let count = names.len();
    let names = list(names.iter().map(String::as_str));
    let used = if facts.spec.topology.is_some() { facts.used_room() } else { facts.limit(count, &names) };
    Some(format!("waiting for the wave before {} can be removed: {used}", list(held.into_iter())))
}

/// The surplus nodes that are being deleted. Usually a deletion completes at once. A finalizer may delay it, so the
/// message names the node.
fn removal_message(facts: &FleetFacts) -> Option<String> {
    let going = facts.children.iter().rev().filter(|c| c.surplus && c.terminating);
    let going: Vec<&str> = going.map(|c| c.name.as_str()).collect();
    (!going.is_empty()).then(|| format!("waiting for the deletion of {} to complete", some_of(&going)))
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    some_of(&names.collect::<Vec<_>>())
}
