//! How far a rollout is, and which nodes it waits for.

use chrono::{DateTime, TimeDelta, Utc};

use super::child::ChildFacts;
use super::create::{creation_revision, may_start};
use super::decision::RolloutTarget;
use super::facts::FleetFacts;
use super::sets::{SetRollout, has_halted};
use super::wave::{LastPods, waits_for_turn};
use crate::api::status::{MAX_PROBLEM_BYTES, UNCONVERGED_LIMIT};
use crate::api::{NodeCounts, Problem, Reason, Unconverged};
use crate::engine::sentence::cut;

/// Counts the nodes of a rollout.
#[must_use]
pub fn counts(facts: &FleetFacts, rollout_target: &RolloutTarget) -> NodeCounts {
    let count = |wanted: &dyn Fn(&ChildFacts) -> bool| facts.wanted().filter(|c| wanted(c)).count() as i32;
    NodeCounts {
        total: facts.spec.replicas,
        updated: updated(facts, rollout_target).count() as i32,
        ready: count(&|c| c.pod.ready && !c.terminating),
        disrupted: facts.disrupted(),
        failed: count(&|c| c.pod.failed),
    }
}

/// A score that grows with progress: the number of updated nodes, plus the number of those that serve.
#[must_use]
pub fn score(facts: &FleetFacts, rollout_target: &RolloutTarget) -> i32 {
    let serving = updated(facts, rollout_target).filter(|c| c.is_serving()).count();
    (updated(facts, rollout_target).count() + serving) as i32
}

/// The number of updated nodes that are Ready, available or not. It is not a part of [`score`]: a status of an earlier
/// version records the best score without it, and would take the upgrade for progress.
#[must_use]
pub fn ready(facts: &FleetFacts, rollout_target: &RolloutTarget) -> i32 {
    updated(facts, rollout_target).filter(|c| c.pod.ready && !c.terminating).count() as i32
}

/// The updated nodes. A node that the partition holds back is at what it should run, but does not count.
fn updated<'a>(
    facts: &'a FleetFacts,
    rollout_target: &'a RolloutTarget,
) -> impl Iterator<Item = &'a ChildFacts> {
    facts
        .wanted()
        .filter(move |c| !facts.is_held_back(c, rollout_target) && facts.is_updated(c, rollout_target))
}

/// True if more nodes are Ready at the target than were before. What was not recorded before is no progress.
#[must_use]
pub fn is_more(ready: Option<i32>, best: Option<i32>) -> bool {
    best.is_some() && ready > best
}

/// True if every node that the partition does not hold back has converged, and only the partition is left. A node below
/// the partition that is missing or down is nothing that the rollout waits for.
#[must_use]
pub fn is_held_by_partition(facts: &FleetFacts, rollout_target: &RolloutTarget) -> bool {
    facts.differs_below_partition(rollout_target)
        && facts.is_converged_from(facts.held_below(), rollout_target)
}

/// The nodes that are listed, each with a rank: the lowest is the worst.
struct Named<'a> {
    before: &'a [Unconverged],
    now: DateTime<Utc>,
    found: Vec<(u8, Unconverged)>,
}

impl Named<'_> {
    fn add(&mut self, rank: u8, name: &str, reason: impl AsRef<str>, message: &str) {
        let reason = reason.as_ref();
        self.add_since(rank, name, reason, message, since(self.before, name, reason, self.now));
    }

    /// Adds a node whose own status contains the time since which it does not serve. A time in the future was written
    /// before the clock was set back. Then the node keeps the time since which it is listed; otherwise each reconcile
    /// would write another time.
    fn add_problem(&mut self, rank: u8, name: &str, problem: &Problem) {
        if problem.since > self.now {
            return self.add(rank, name, &problem.reason, &problem.message);
        }
        self.add_since(rank, name, &problem.reason, &problem.message, problem.since);
    }

    fn add_since(&mut self, rank: u8, name: &str, reason: &str, message: &str, since: DateTime<Utc>) {
        let message = cut(message, MAX_PROBLEM_BYTES);
        let node = Unconverged { name: name.to_owned(), reason: reason.to_owned(), message, since };
        self.found.push((rank, node));
    }

    fn worst_first(mut self) -> Vec<Unconverged> {
        self.found.sort_by(|(left_rank, left), (right_rank, right)| {
            (left_rank, &left.name).cmp(&(right_rank, &right.name))
        });
        self.found.into_iter().take(UNCONVERGED_LIMIT).map(|(_, u)| u).collect()
    }
}

/// Since when a node is listed. A node that was listed before keeps its time, even if its reason has changed; but the
/// time restarts when a node that served, waiting for the wave, stops serving, or the other way round. A time in the
/// future was written before the clock was set back.
fn since(before: &[Unconverged], name: &str, reason: &str, now: DateTime<Utc>) -> DateTime<Utc> {
    let serves = |reason: &str| reason == Reason::WaitingForWave.as_ref();
    let known = before.iter().find(|u| u.name == name && serves(&u.reason) == serves(reason));
    known.map_or(now, |u| u.since.min(now))
}

/// Why the last pod of a StatefulSet waits.
const WAITS_AS_LAST: &str = "the last pod of a StatefulSet waits for the other StatefulSets: the update can be \
     rolled back until it is updated";

/// The nodes that have not converged, the worst first, at most 20. `old`: the fleet and its rollout while a hard fork
/// waits for its old nodes; these are then listed as well. The times are taken over from `before`.
#[must_use]
pub fn unconverged(
    facts: &FleetFacts,
    rollout_target: &RolloutTarget,
    old: Option<(&FleetFacts, &SetRollout)>,
    before: &[Unconverged],
    now: DateTime<Utc>,
) -> Vec<Unconverged> {
    let mut named = Named { before, now, found: Vec::new() };
    match old {
        Some((fleet, rollout)) if rollout.is_revocable() => name_nodes_without_height(fleet, &mut named),
        Some((fleet, rollout)) => name_those_that_have_not_halted(fleet, rollout, &mut named),
        None => {}
    }
    // The same for all nodes, so it is computed once.
    let waits = waits_for(facts, rollout_target);
    let last_pods = LastPods::of(facts, rollout_target);
    for conflict in &facts.conflicts {
        named.add(0, conflict.name.as_str(), Reason::InvalidSpec, &conflict.message);
    }
    for child in facts.wanted() {
        if facts.is_updated(child, rollout_target) && !child.is_disrupted() {
            continue;
        }
        if child.terminating {
            named.add(3, child.name.as_str(), Reason::Terminating, "the node is being deleted");
        } else if let Some(problem) = &child.health.problem {
            // What was moved is what the others wait for.
            let waits = child.main_container_runs()
                && !facts.is_granted(child, rollout_target)
                && !child.state().is_in_flight();
            let rank = if child.pod.failed { 1 } else { 4 };
            if waits {
                let message = format!("{}; waiting for the wave", problem.message);
                named.add_problem(rank + 1, child.name.as_str(), &Problem { message, ..problem.clone() });
            } else {
                named.add_problem(rank, child.name.as_str(), problem);
            }
        } else if let Some(why) = &child.health.unreachable {
            named.add(4, child.name.as_str(), Reason::SidecarUnreachable, why);
        } else if facts.grows_claims() && child.growth.is_pending() {
            named.add(5, child.name.as_str(), Reason::ClaimsGrowing, child.growth.sentence());
        } else if !facts.is_granted(child, rollout_target) && !child.state().is_in_flight() {
            let is_last = !facts.spec.paused && last_pods.hold(child);
            let waits = if is_last { WAITS_AS_LAST } else { &waits };
            named.add(6, child.name.as_str(), Reason::WaitingForWave, waits);
        } else if child.controller.suspended {
            let why = "the node is suspended: Windlass updates it once its spec.suspend is false";
            named.add(4, child.name.as_str(), Reason::NotReady, why);
        } else {
            let at_hook = child.at_hook.as_ref().map(|at| format!("at hook {}: {}", at.hook, at.message));
            let message = if let Some(message) = &at_hook {
                message
            } else if child.pod.ready && !child.pod.available && !child.state().is_in_flight() {
                "Ready, but not yet for minReadySeconds"
            } else {
                "updating to the granted pod template"
            };
            named.add(5, child.name.as_str(), Reason::NotReady, message);
        }
    }
    named.worst_first()
}

/// Lists the old nodes that have reported no height, before any of them is asked to halt.
fn name_nodes_without_height(facts: &FleetFacts, named: &mut Named<'_>) {
    for child in facts.without_height() {
        let reason =
            if child.health.unreachable.is_some() { Reason::SidecarUnreachable } else { Reason::NotReady };
        named.add(2, child.name.as_str(), reason, &why_without_height(child));
    }
}

/// Why the height of a node is not known, and what to do.
#[must_use]
pub fn why_without_height(child: &ChildFacts) -> String {
    match (&child.health.unreachable, &child.sidecar) {
        (Some(why), _) => why.clone(),
        (None, Some(_)) => {
            "its sidecar reports no height: add --height-url to sidecar.args, or check the response of the \
             application at that URL"
                .to_owned()
        }
        (None, None) => {
            "it has no sidecar that reports a height: set sidecar.url to the URL of one".to_owned()
        }
    }
}

/// Lists the old nodes that have not halted. They come before the new ones, which only have to run at that point, and
/// do.
fn name_those_that_have_not_halted(facts: &FleetFacts, rollout: &SetRollout, named: &mut Named<'_>) {
    for child in facts.wanted().filter(|c| !has_halted(c, rollout)) {
        let refusal = child.sidecar.as_ref().and_then(|s| s.message.as_deref());
        if child.terminating {
            named.add(3, child.name.as_str(), Reason::Terminating, "the node is being deleted");
        } else if let Some(problem) = &child.health.problem {
            named.add_problem(if child.pod.failed { 1 } else { 2 }, child.name.as_str(), problem);
        } else if let Some(why) = &child.health.unreachable {
            named.add(2, child.name.as_str(), Reason::SidecarUnreachable, why);
        } else if let Some(why) = refusal {
            named.add(2, child.name.as_str(), Reason::NotReady, why);
        } else {
            let why = format!("it has not halted at height {}", rollout.halt_height);
            named.add(3, child.name.as_str(), Reason::NotReady, &why);
        }
    }
}

/// An entry for each ordinal that has no node, at most [`UNCONVERGED_LIMIT`].
#[must_use]
pub fn missing(
    facts: &FleetFacts,
    deployment: &str,
    rollout_target: &RolloutTarget,
    before: &[Unconverged],
    now: DateTime<Utc>,
) -> Vec<Unconverged> {
    let name = |ordinal| crate::api::names::node_name(deployment, &facts.set, ordinal);
    let entry = |ordinal| {
        let name = name(ordinal);
        let waits = facts.rollout.now.set().is_none()
            && creation_revision(facts, ordinal, Some(rollout_target)).is_none();
        let when = match facts.spec.max_initializing {
            Some(most) if !may_start(facts, ordinal) => {
                let starting = if most == 1 {
                    "no other node is starting".to_owned()
                } else {
                    format!("fewer than {most} nodes are starting")
                };
                format!(": Windlass creates it when {starting} (creation.maxInitializing)")
            }
            _ if waits => ": Windlass creates it at the target when the wave has room".to_owned(),
            _ => String::new(),
        };
        let message = format!("the node does not exist yet{when}");
        let since = since(before, &name, Reason::Missing.as_ref(), now);
        Unconverged { reason: Reason::Missing.to_string(), message, since, name }
    };
    facts.missing().into_iter().take(UNCONVERGED_LIMIT).map(entry).collect()
}

/// A node that has been unavailable for at least the progress deadline, with its current reason, in a sentence.
#[must_use]
pub fn overdue(facts: &FleetFacts, now: DateTime<Utc>) -> Option<String> {
    let (child, problem, _) = with_due(facts).find(|(_, _, due)| *due <= now)?;
    Some(format!("{}: {}: {}", child.name, problem.reason, problem.message))
}

/// When a node that does not serve becomes overdue.
#[must_use]
pub fn overdue_at(facts: &FleetFacts, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    with_due(facts).map(|(_, _, due)| due).filter(|at| *at > now).min()
}

/// The nodes that do not serve, each with the time at which it becomes overdue. The time that it is given is not counted.
fn with_due(facts: &FleetFacts) -> impl Iterator<Item = (&ChildFacts, &Problem, DateTime<Utc>)> {
    let allowed = TimeDelta::seconds(facts.spec.deadline_seconds);
    facts.wanted().filter_map(move |child| {
        let problem = child.health.problem.as_ref()?;
        let given = problem.allowed_until.into_iter().chain(child.health.wait.map(|wait| wait.until)).max();
        let since = given.map_or(problem.since, |given| given.max(problem.since));
        Some((child, problem, since + allowed))
    })
}

/// What a serving node that needs a grant waits for.
fn waits_for(facts: &FleetFacts, rollout_target: &RolloutTarget) -> String {
    if facts.spec.paused {
        return "the fleet is paused; the node gets its grant once spec.paused is false".to_owned();
    }
    if let Some(gate) = facts.waits_for_gate(rollout_target) {
        return gate;
    }
    if let Some(turn) = waits_for_turn(facts, rollout_target) {
        return turn;
    }
    format!("{}; the node gets its grant when the wave has room", facts.used_room())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_held_node_counts_neither_as_updated_nor_progress() {
        use super::super::facts::Rendering;
        let child = |ordinal: i32, revision: &str| {
            ChildFacts::default().with(|f| {
                f.ordinal = ordinal;
                f.spec_hash = Some(revision.into());
                f.grant.hash = Some(revision.into());
                f.pod.hash = Some(revision.into());
                f.pod.available = true;
                f.pod.ready = true;
            })
        };
        let renderings =
            ["v1", "v2"].map(|r| ((r.into(), None), Rendering { hash: r.into(), image: String::new() }));
        let held = FleetFacts::default().with(|f| {
            f.spec.replicas = 4;
            f.spec.partition = 2;
            f.record.last_completed = Some("v1".into());
            f.requested = "v2".into();
            f.children = vec![child(0, "v1"), child(1, "v1"), child(2, "v2"), child(3, "v2")];
            f.renderings = renderings.into();
        });
        let rollout_target = RolloutTarget::Revision("v2".into());
        assert!(is_held_by_partition(&held, &rollout_target));
        assert_eq!((counts(&held, &rollout_target).updated, score(&held, &rollout_target)), (2, 4));
        let released = held.clone().with(|f| f.spec.partition = 0);
        assert_eq!(score(&released, &rollout_target), 4, "what is still to be done was not done before");
        let own = held.with(|f| f.spec.partition = 0);
        assert_eq!(counts(&own, &RolloutTarget::Own).updated, 4);
    }

    #[test]
    fn unavailable_node_is_named_after_the_deadline() {
        let start = DateTime::from_timestamp(1_000, 0).unwrap();
        let problem = Problem {
            reason: "NotReady".into(),
            message: "it sleeps".into(),
            since: start,
            ..Problem::default()
        };
        let sick = ChildFacts::default().with(|f| {
            f.name = "db-1".into();
            f.health.problem = Some(problem);
        });
        let well = ChildFacts::default().with(|f| f.name = "db-0".into());
        let facts = FleetFacts::default().with(|f| {
            f.spec.deadline_seconds = 60;
            f.children = vec![well, sick];
        });
        let due = start + TimeDelta::seconds(60);
        assert_eq!(overdue_at(&facts, start), Some(due));
        assert_eq!(overdue(&facts, due - TimeDelta::seconds(1)), None);
        assert_eq!(overdue(&facts, due).as_deref(), Some("db-1: NotReady: it sleeps"));
        assert_eq!(overdue_at(&facts, due), None, "what is overdue is not waited for any more");
    }
}
