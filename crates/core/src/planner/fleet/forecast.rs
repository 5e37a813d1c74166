//! Forecasts a rollout wave by wave, assuming that every node that moves converges. It calls the functions that decide
//! about a real fleet again and again, on facts in which their earlier decisions have taken effect. Pure.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::api::{GrantId, NodeName, PodTemplateHash, RolloutHash, SetName};

use super::child::ChildFacts;
use super::create::{creation_revision, may_start};
use super::decision::RolloutTarget;
use super::facts::FleetFacts;
use super::gate::Gate;
use super::leave;
use super::state::Health;
use super::topology::Order;
use super::wave::next_grants;

/// What is done to a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Action {
    /// It is created.
    Create,
    /// It is granted another revision, or the one that it drifted from. Its pod is replaced, unless it already runs
    /// that.
    Update,
    /// It is granted what it runs already: its pod stays.
    Adopt,
    /// It is removed.
    Remove,
}

/// The change of one node in a wave.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Turn {
    /// The node.
    pub name: NodeName,
    /// What is done to it.
    pub action: Action,
    /// The rollout hash of the revision in its spec after that; `None` if it is removed.
    pub revision: Option<RolloutHash>,
    /// Its failure domain, if it is known.
    pub domain: Option<String>,
    /// True if it is updated last.
    pub is_last: bool,
}

impl Turn {
    fn of(name: &NodeName, action: Action, revision: Option<RolloutHash>) -> Self {
        Self { name: name.clone(), action, revision, domain: None, is_last: false }
    }
}

/// The changes that happen at the same time, in the order in which they begin.
pub type Wave = Vec<Turn>;

/// The waves of a fleet whose nodes are updated in place. `rollout_target`: the target of the active rollout, if there
/// is one. Everything that waits for a user, for example the end of a pause, is assumed to happen.
#[must_use]
pub fn in_place(fleet: &str, facts: &FleetFacts, rollout_target: Option<&RolloutTarget>) -> Vec<Wave> {
    let mut facts = facts.clone().with(|f| (f.spec.paused, f.rollout.gate) = (false, Gate::Open));
    for child in &mut facts.children {
        child.grant.again_at = None;
        // Sidecars are asked for roles only during a rollout.
        if child.order == Order::Unknown {
            child.order = Order::Any;
        }
    }
    let mut waves = Vec::new();
    // Every wave but the last moves a node, which bounds the loop. A node may be created at one revision and then moved
    // to another.
    for _ in 0..=facts.children.len() + 2 * usize::try_from(facts.spec.replicas).unwrap_or_default() {
        let mut wave = remove(&mut facts);
        wave.extend(create(fleet, &mut facts, rollout_target));
        if let Some(rollout_target) = rollout_target {
            wave.extend(grant(&mut facts, rollout_target));
        }
        let moved = converge(&mut facts);
        if wave.is_empty() && !moved {
            break;
        }
        if !wave.is_empty() {
            waves.push(wave);
        }
    }
    waves
}

/// The waves of a rollout that is stuck, once the nodes that are out of service now serve again.
#[must_use]
pub fn in_place_once_up(fleet: &str, facts: &FleetFacts, rollout_target: &RolloutTarget) -> Vec<Wave> {
    let mut facts = facts.clone();
    for child in facts.children.iter_mut().filter(|child| !child.surplus && child.is_disrupted()) {
        child.pod.failed = false;
        if !child.state().is_in_flight() {
            (child.pod.ready, child.pod.available, child.pod.ever_ready) = (true, true, true);
            child.health.unreachable = None;
        }
    }
    in_place(fleet, &facts, Some(rollout_target))
}

/// The changes that bring a set to a revision, by ordinal: missing nodes are created, and existing nodes at another
/// revision are updated.
#[must_use]
pub fn entrants(fleet: &str, set: &SetName, facts: &FleetFacts, target: &RolloutHash) -> Wave {
    let there: &[ChildFacts] = facts.sets.get(set).map(|set| set.children.as_slice()).unwrap_or_default();
    let turn = |ordinal: i32| {
        let name = NodeName::of(fleet, set, ordinal);
        let action = match there.iter().find(|child| child.ordinal == ordinal) {
            None => Action::Create,
            Some(child) if child.spec_hash != *target => Action::Update,
            Some(_) => return None,
        };
        Some(Turn::of(&name, action, Some(target.clone())))
    };
    (0..facts.spec.replicas).filter_map(turn).collect()
}

/// The removal of the active set's nodes, including those that the waves in `beside` create. They leave together once
/// they no longer serve.
#[must_use]
pub fn incumbents(facts: &FleetFacts, beside: &[Wave]) -> Wave {
    let goes = |name: &NodeName| {
        beside.iter().flatten().any(|turn| turn.action == Action::Remove && turn.name == *name)
    };
    let made = beside.iter().flatten().filter(|turn| turn.action == Action::Create).map(|turn| &turn.name);
    let there = facts.children.iter().rev().filter(|child| !child.terminating).map(|child| &child.name);
    let leaves = |name: &NodeName| Turn::of(name, Action::Remove, None);
    made.chain(there.filter(|name| !goes(name))).map(leaves).collect()
}

/// The removal of the nodes of a new set that is abandoned: they leave together.
#[must_use]
pub fn given_up(facts: &FleetFacts) -> Wave {
    let children = facts.entrants().map(|set| set.children.as_slice()).unwrap_or_default();
    children.iter().rev().filter(|child| !child.terminating).map(leaves).collect()
}

/// The removal of nodes of inactive sets whose ordinals are beyond `spec.replicas`: they do not serve, and leave
/// together. `without`: the set that is abandoned as a whole.
#[must_use]
pub fn surplus(facts: &FleetFacts, without: Option<&SetName>) -> Wave {
    let others = facts.sets.iter().filter(|(name, _)| Some(*name) != without);
    let nodes = others.flat_map(|(_, set)| set.children.iter().rev());
    nodes.filter(|child| child.surplus && !child.terminating).map(leaves).collect()
}

/// The sets that neither serve nor take over, each with the time at which its remaining nodes leave. `without`: the set
/// that takes over again, or is abandoned at once.
#[must_use]
pub fn retired(facts: &FleetFacts, without: Option<&SetName>) -> Vec<(DateTime<Utc>, Wave)> {
    let others = facts.sets.iter().filter(|(name, _)| Some(*name) != without);
    let leaving = others.filter_map(|(_, set)| {
        // A set that receives traffic, or may, stays.
        let retiring = set.retiring.as_ref().filter(|retiring| facts.kept(retiring).is_none())?;
        let nodes = set.children.iter().rev().filter(|child| !child.surplus && !child.terminating);
        Some((facts.removal_of(retiring), nodes.map(leaves).collect()))
    });
    leaving.filter(|(_, wave): &(_, Wave)| !wave.is_empty()).collect()
}

fn leaves(child: &ChildFacts) -> Turn {
    Turn::of(&child.name, Action::Remove, None)
}

fn remove(facts: &mut FleetFacts) -> Wave {
    let asked = leave::in_waves(facts);
    let names = asked.ask.into_iter().chain(asked.delete);
    let mut wave = Vec::new();
    for name in names {
        if let Some(child) = facts.children.iter_mut().find(|child| child.name == name) {
            child.leave.asked = true;
            wave.push(Turn::of(&name, Action::Remove, None));
        }
    }
    wave
}

fn create(fleet: &str, facts: &mut FleetFacts, rollout_target: Option<&RolloutTarget>) -> Wave {
    let mut wave = Vec::new();
    for ordinal in facts.missing() {
        if !may_start(facts, ordinal) {
            continue;
        }
        let Some(revision) = creation_revision(facts, ordinal, rollout_target).cloned() else { continue };
        let restart = facts.record.restarted_at.clone();
        let Some(rendering) = facts.rendering(&revision, restart.as_ref()).cloned() else { continue };
        let name = NodeName::of(fleet, &facts.set, ordinal);
        wave.push(Turn::of(&name, Action::Create, Some(revision.clone())));
        let domain = facts.domain_of_missing(ordinal);
        let child = ChildFacts::to_be_created(name, ordinal, revision, rendering.hash, restart, domain);
        facts.children.push(child);
    }
    facts.children.sort_by_key(|child| child.ordinal);
    wave
}

fn grant(facts: &mut FleetFacts, rollout_target: &RolloutTarget) -> Wave {
    let mut wave = Vec::new();
    for grant in next_grants(facts, rollout_target) {
        let restarted_at = facts.record.restarted_at.clone();
        let Some(child) = facts.children.iter_mut().find(|child| child.name == grant.name) else { continue };
        let stays = child.pod.hash == grant.hash;
        child.spec_hash = Some(grant.revision.clone());
        child.grant.hash = Some(grant.hash.clone());
        child.grant.id = Some(GrantId::assumed());
        child.grant.spent_id = None;
        child.controller.status_outdated = true;
        if child.restarts.asked < restarted_at {
            child.restarts.asked = restarted_at;
        }
        let action = if stays { Action::Adopt } else { Action::Update };
        wave.push(Turn {
            domain: child.domain.name().map(str::to_owned),
            is_last: child.order == Order::Last,
            ..Turn::of(&grant.name, action, Some(grant.revision))
        });
    }
    wave
}

/// Lets the changes take effect: nodes that move have converged, nodes that leave are gone. Returns true if any node
/// was moving. A node that is down and has no new grant stays as it is.
fn converge(facts: &mut FleetFacts) -> bool {
    let before = facts.children.len();
    facts.children.retain(|child| !child.terminating && !child.leave.asked);
    let mut moved = facts.children.len() != before || !facts.shutting_down.is_empty();
    facts.shutting_down.clear();
    let images: Vec<(PodTemplateHash, String)> = facts
        .renderings
        .values()
        .map(|rendering| (rendering.hash.clone(), rendering.image.clone()))
        .collect();
    for child in &mut facts.children {
        if child.state().health() == Some(Health::Starting) {
            (child.pod.available, moved) = (true, true);
        }
        let stays_down = child.pod.failed && !child.controller.status_outdated;
        if child.surplus || !child.state().is_in_flight() || stays_down {
            continue;
        }
        moved = true;
        child.pod.hash.clone_from(&child.grant.hash);
        if let Some((_, image)) = images.iter().find(|(hash, _)| child.pod.hash == *hash) {
            child.pod.image.clone_from(image);
        }
        child.grant.spent_id.clone_from(&child.grant.id);
        (
            child.controller.status_outdated,
            child.controller.rolling,
            child.pod.failed,
            child.pod.was_edited,
        ) = (false, false, false, false);
        (child.pod.ready, child.pod.available, child.pod.ever_ready, child.pod.runs) =
            (true, true, true, true);
        child.health.problem = None;
        child.health.unreachable = None;
    }
    moved
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::super::facts::Rendering;
    use super::super::sets::SetFacts;
    use super::*;
    use crate::api::RetiringSet;

    fn child(ordinal: i32, revision: &str) -> ChildFacts {
        ChildFacts::default().with(|f| {
            f.name = format!("db-{ordinal}").into();
            f.ordinal = ordinal;
            f.spec_hash = Some(revision.into());
            f.grant.hash = Some(revision.into());
            f.pod.hash = Some(revision.into());
            f.pod.available = true;
            f.pod.ready = true;
            f.pod.ever_ready = true;
        })
    }

    fn facts(replicas: i32, most: i32) -> FleetFacts {
        let renderings =
            ["v1", "v2"].map(|r| ((r.into(), None), Rendering { hash: r.into(), image: String::new() }));
        FleetFacts::default().with(|f| {
            f.spec.replicas = replicas;
            f.spec.max_unavailable = most;
            f.set = "first".into();
            f.record.last_completed = Some("v1".into());
            f.requested = "v2".into();
            f.children = (0..replicas).map(|ordinal| child(ordinal, "v1")).collect();
            f.renderings = renderings.into();
        })
    }

    fn told(waves: &[Wave]) -> Vec<String> {
        let turn = |turn: &Turn| {
            let sign = match turn.action {
                Action::Create => "+",
                Action::Update => "",
                Action::Adopt => "=",
                Action::Remove => "-",
            };
            format!("{sign}{}", turn.name.as_str().trim_start_matches("db-"))
        };
        waves.iter().map(|wave| wave.iter().map(turn).collect::<Vec<_>>().join(" ")).collect()
    }

    fn rolled(facts: &FleetFacts) -> Vec<String> {
        told(&in_place("db", facts, Some(&RolloutTarget::Revision("v2".into()))))
    }

    #[test]
    fn nodes_roll_from_highest_ordinal_within_max_unavailable() {
        assert_eq!(rolled(&facts(5, 2)), ["4 3", "2 1", "0"]);
        assert_eq!(rolled(&facts(2, 1).with(|f| f.spec.paused = true)), ["1", "0"], "a pause ends");
    }

    #[test]
    fn nodes_at_the_target_roll_first_then_unavailable_ones() {
        let mut facts = facts(4, 1);
        facts.children[1].pod.hash = Some("v2".into());
        facts.children[1].grant.hash = Some("v2".into());
        (facts.children[2].pod.ready, facts.children[2].pod.available, facts.children[2].pod.failed) =
            (false, false, true);
        // The failed node takes no room of its own; with it the wave is full.
        assert_eq!(rolled(&facts), ["=1 2", "3", "0"]);
    }

    #[test]
    fn ungranted_unavailable_node_takes_room_in_every_wave() {
        let mut facts = facts(3, 1);
        facts.spec.partition = 1;
        (facts.children[0].pod.ready, facts.children[0].pod.available) = (false, false);
        assert_eq!(rolled(&facts), Vec::<String>::new());
        facts.spec.max_unavailable = 2;
        assert_eq!(rolled(&facts), ["2", "1"]);
    }

    #[test]
    fn forecast_includes_scale_out_and_scale_in() {
        let mut larger = facts(3, 1);
        larger.spec.replicas = 5;
        assert_eq!(
            rolled(&larger),
            ["+3", "+4", "2", "1", "0"],
            "each starts at the target, and none starts twice"
        );
        larger.spec.max_unavailable = 2;
        assert_eq!(rolled(&larger)[0], "+3 +4", "as many as the wave has room for");
        let mut smaller = facts(4, 1);
        smaller.spec.replicas = 2;
        for child in &mut smaller.children[2..] {
            child.surplus = true;
        }
        assert_eq!(told(&in_place("db", &smaller, None)), ["-3", "-2"]);
    }

    #[test]
    fn unavailable_nodes_with_running_main_container_roll_in_waves() {
        let unready = |facts: &mut FleetFacts, runs: bool| {
            for child in &mut facts.children {
                (child.pod.ready, child.pod.available, child.pod.failed, child.pod.runs) =
                    (false, false, true, runs);
            }
        };
        let mut half = facts(3, 1);
        unready(&mut half, true);
        assert_eq!(rolled(&half), ["2", "1", "0"], "a container beside the main one is broken");
        half.record.last_completed = None;
        half.children.iter_mut().for_each(|c| (c.pod.ever_ready, c.controller.rolling) = (false, true));
        assert_eq!(rolled(&half), ["2", "1", "0"], "and nothing ever completed");
        let mut broken = facts(3, 1);
        unready(&mut broken, false);
        assert_eq!(rolled(&broken), ["2 1 0"], "their main containers do not run");
        let mut smaller = facts(4, 1);
        smaller.spec.replicas = 2;
        unready(&mut smaller, true);
        smaller.children.iter_mut().for_each(|c| c.surplus = c.ordinal >= 2);
        assert_eq!(told(&in_place("db", &smaller, None)), ["-3", "-2"]);
    }

    #[test]
    fn restart_skips_nodes_held_by_the_partition() {
        let mut held = facts(3, 1);
        held.spec.partition = 2;
        let restart = Some("2030-01-31T12:00:00Z".into());
        held.record.restarted_at.clone_from(&restart);
        let again = Rendering { hash: "v1 again".into(), image: String::new() };
        held.renderings.insert(("v1".into(), restart.clone()), again);
        held.children.iter_mut().for_each(|c| c.restarts.asked.clone_from(&restart));
        let to_itself = RolloutTarget::Revision("v1".into());
        let waves = |facts: &FleetFacts| told(&in_place("db", facts, Some(&to_itself)));
        assert_eq!(waves(&held), ["2"]);
        held.spec.partition = 0;
        assert_eq!(waves(&held), ["2", "1", "0"]);
    }

    #[test]
    fn initial_nodes_are_created_together() {
        let mut first = facts(3, 1);
        first.children.clear();
        first.record.last_completed = None;
        assert_eq!(told(&in_place("db", &first, None)), ["+0 +1 +2"]);
    }

    #[test]
    fn surplus_nodes_of_other_sets_are_removed_together() {
        let set = |name: &str, replicas: i32, nodes: i32, retiring: bool| {
            let node = |ordinal| {
                child(ordinal, "v2").with(|f| {
                    f.name = format!("db-{name}-{ordinal}").into();
                    f.surplus = ordinal >= replicas;
                })
            };
            let retiring = retiring.then(|| RetiringSet {
                set: name.to_owned(),
                hash: "v2".to_owned(),
                build_id: String::new(),
                since: DateTime::UNIX_EPOCH,
                unpromoted: false,
                served: false,
                halt_height: 0,
            });
            let facts =
                SetFacts { children: (0..nodes).map(node).collect(), retiring, ..SetFacts::default() };
            (SetName::from(name), facts)
        };
        // replicas, nodes of the new set, nodes of a set that left service, the abandoned set; expected: the surplus
        // nodes, and the nodes that leave later.
        let table = [
            (3, 3, 0, None, "", ""),
            (2, 4, 0, None, "-new-3 -new-2", ""),
            (2, 4, 0, Some("new"), "", ""),
            (2, 3, 3, None, "-new-2 -old-2", "-old-1 -old-0"),
            (2, 3, 3, Some("new"), "-old-2", "-old-1 -old-0"),
            (4, 3, 3, None, "", "-old-2 -old-1 -old-0"),
        ];
        for (replicas, entrants, left, without, beyond, later) in table {
            let mut facts = facts(replicas, 1);
            facts.spec.retire_delay_seconds = 40;
            facts.sets = [set("new", replicas, entrants, false), set("old", replicas, left, true)].into();
            let context = format!("{replicas} {entrants} {left} {without:?}");
            let without = without.map(SetName::from);
            let without = without.as_ref();
            assert_eq!(told(&[surplus(&facts, without)]), [beyond], "{context}");
            let gone = retired(&facts, without);
            let at = DateTime::UNIX_EPOCH + TimeDelta::seconds(40);
            assert!(gone.iter().all(|(when, _)| *when == at), "{context}");
            let gone: Vec<Wave> = gone.into_iter().map(|(_, wave)| wave).collect();
            assert_eq!(told(&gone).join(" "), later, "{context}");
        }
        // A node that is already being deleted is not listed.
        let mut facts = facts(1, 1);
        let (name, mut going) = set("new", 1, 2, false);
        going.children[1].terminating = true;
        facts.sets = [(name, going)].into();
        assert_eq!(told(&[surplus(&facts, None)]), [""]);
    }

    #[test]
    fn sets_are_created_and_removed_as_a_whole() {
        let facts = facts(3, 1);
        assert_eq!(
            told(&[entrants("db", &"1a2b3".into(), &facts, &"v2".into())]),
            ["+1a2b3-0 +1a2b3-1 +1a2b3-2"]
        );
        assert_eq!(told(&[incumbents(&facts, &[])]), ["-2 -1 -0"]);
    }
}
