//! What must hold after every change in the store, whoever made it. The rules of grants are checked on the changes
//! themselves: which nodes Windlass took down, and which plan is behind each effect.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass_sim::{AuditEntry, Step};

use super::plans::Plans;
use super::release::Release;
use super::sets::{self, Around, Sets};
use super::state::{self, Stored};
use super::words::{self, Words};
use super::{Evidence, writes};
use crate::catalogue::deeds::Deed;
use crate::catalogue::faults::Fault;
use crate::catalogue::platform;

/// A pause that was stored less than this before a request was sent may have come after the reconcile had read the
/// fleet: the lag of its watch event, and the one or two requests that a reconcile may wait for.
const PAUSE_IS_SEEN_MICROS: u64 = 20_000;

/// The author of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Actor {
    Operator,
    /// An operator that another one has superseded: its last write may come late.
    OldOperator,
    Person,
    Other,
}

/// A grant: the hash, its ID, and the ID of the last one that was spent.
#[derive(Clone, Debug)]
struct Grant {
    hash: String,
    id: String,
    spent: String,
}

impl Grant {
    fn of(node: &state::NodeState) -> Self {
        Self { hash: node.granted.clone(), id: node.grant_id.clone(), spent: node.spent_id.clone() }
    }
}

#[derive(Default)]
struct Watcher {
    stored: Stored,
    plans: Plans,
    /// Nodes whose main container ran and that Windlass took down, until they serve.
    taken: BTreeSet<String>,
    /// Each node's previous grant, and when the write that changed it was answered.
    regranted: BTreeMap<String, (u64, Grant)>,
    /// Nodes whose grant takes nothing down: they did not serve when they got it.
    free: BTreeSet<String>,
    /// Nodes that somebody else has touched, with their plan at that time: only another plan can repair them.
    disturbed: BTreeMap<String, String>,
    alone: bool,
    /// The wave size in the last observed fleet.
    allowed: i64,
    /// `spec.replicas` when an operator last wrote that it had observed the spec.
    read_replicas: Option<i64>,
    /// The last completed hash that was ever in the status.
    last_completed: String,
    /// True if others change statuses, or nodes are ill: then fewer rules apply.
    tampered: bool,
    words: Words,
    sets: Sets,
    release: Release,
    /// True if a person requests a restart during the run.
    restarts: bool,
    /// When the request of this change was sent, and when it was answered.
    request: Option<(u64, u64)>,
    /// When the request that last paused the fleet was answered.
    paused: Option<u64>,
    found: Vec<String>,
}

/// Checks every change since the run began.
pub fn examine(evidence: &mut Evidence<'_>) {
    let makers = Makers::of(evidence.audit);
    let ill = evidence.strikes(|f| matches!(f, Fault::Ill(_)));
    let tampered =
        evidence.point.strikes.iter().any(|s| s.fault.starts_with("F12") || s.fault.starts_with("F16-lost"));
    let restarts = evidence.strikes(|f| matches!(f, Fault::Person(Deed::Restart)));
    let mut watcher =
        Watcher { alone: evidence.world.scenario.is_alone(), tampered, restarts, ..Watcher::default() };
    let first = evidence.first_version;
    let complete = evidence.world.cluster.replay(100, |step| {
        let actor = makers.of_version(step.version);
        if step.version <= first {
            watcher.take_in(step);
            if let Some((kind, name)) = place(step) {
                watcher.release.step(kind, &name, step.after, actor == Actor::Operator);
            }
            return;
        }
        let found = watcher.found.len();
        watcher.request = makers.request(step.version).map(|entry| (entry.sent_micros, entry.at_micros));
        watcher.step(step, actor, ill);
        for what in &mut watcher.found[found..] {
            *what = format!("{what} @{}", step.version);
        }
    });
    if !complete {
        watcher.found.push("the history was cut: safety cannot be told".to_owned());
    }
    evidence.failures.append(&mut watcher.found);
}

/// The authors of changes, from the audit log.
pub struct Makers<'a> {
    audit: &'a [AuditEntry],
    /// Requests that changed something, by the last version that they made.
    by_end: BTreeMap<u64, usize>,
    /// The first version that each operator made.
    began: BTreeMap<&'a str, u64>,
}

impl<'a> Makers<'a> {
    pub fn of(audit: &'a [AuditEntry]) -> Self {
        let changed = || audit.iter().enumerate().filter(|(_, e)| e.wrote.0 < e.wrote.1);
        let by_end = changed().map(|(index, entry)| (entry.wrote.1, index)).collect();
        let mut began: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in audit.iter().filter(|e| writes::is_operators(e) && e.wrote.1 > 0) {
            let first = began.entry(&entry.user_agent).or_insert(entry.wrote.1);
            *first = entry.wrote.1.min(*first);
        }
        Self { audit, by_end, began }
    }

    /// The request that made a version.
    pub fn request(&self, version: u64) -> Option<&AuditEntry> {
        let found = self.by_end.range(version..).next().map(|(_, index)| &self.audit[*index]);
        found.filter(|entry| entry.wrote.0 < version)
    }

    pub fn of_version(&self, version: u64) -> Actor {
        let Some(entry) = self.request(version) else { return Actor::Other };
        if entry.user_agent == "person" {
            return Actor::Person;
        }
        if !writes::is_operators(entry) {
            return Actor::Other;
        }
        // Agents are numbered: one with a higher number has superseded this one.
        let mut newer = self.began.iter().filter(|(agent, _)| **agent > entry.user_agent.as_str());
        if newer.any(|(_, first)| *first <= entry.wrote.0) { Actor::OldOperator } else { Actor::Operator }
    }
}

impl Watcher {
    fn fail(&mut self, what: impl Into<String>) {
        self.found.push(what.into());
    }

    fn disturb(&mut self, name: &str) {
        let plan = self.stored.nodes.get(name).map(|node| node.plan.id.clone()).unwrap_or_default();
        self.disturbed.insert(name.to_owned(), plan);
    }

    fn take_in(&mut self, step: Step<'_>) {
        let Some((kind, name)) = place(step) else { return };
        let stored = &mut self.stored;
        match (kind, step.after) {
            ("NodeDeployment", after) => {
                stored.fleet = after.map(state::fleet);
                if let Some(fleet) = stored.fleet.as_ref().filter(|fleet| fleet.observed) {
                    self.read_replicas = Some(fleet.replicas);
                }
                let completed = stored.fleet.as_ref().map(|fleet| fleet.completed.clone());
                if let Some(completed) = completed.filter(|completed| !completed.is_empty()) {
                    self.last_completed = completed;
                }
                let allowed = stored.fleet.as_ref().map_or(self.allowed, |fleet| fleet.max_unavailable);
                // Grants given under a larger wave are finished. Until an operator has written, guarded, that it
                // observed the smaller one, its requests may be older.
                let unread = stored.fleet.as_ref().is_some_and(|fleet| !fleet.observed);
                let under_way = unread
                    || !self.taken.is_empty()
                    || stored.nodes.values().any(state::NodeState::is_in_flight);
                self.allowed = if under_way { allowed.max(self.allowed) } else { allowed };
            }
            ("StatefulNode", Some(after)) => drop(stored.nodes.insert(name, state::node(after))),
            ("StatefulNode", None) => drop(stored.nodes.remove(&name)),
            ("StatefulSet", Some(after)) => {
                let set = state::set(after);
                self.words.by_set(&name, &set);
                stored.sets.insert(name, set);
            }
            ("StatefulSet", None) => drop(stored.sets.remove(&name)),
            ("Pod", Some(after)) => drop(stored.pods.insert(name, state::pod(after))),
            ("Pod", None) => drop(stored.pods.remove(&name)),
            ("Service", after) if name == "db" => stored.selected = after.map(state::selected),
            _ => {}
        }
        self.sets.take_in(&self.stored);
    }

    fn released(&mut self, kind: &str, name: &str, step: Step<'_>, actor: Actor) {
        let found = self.release.step(kind, name, step.after, actor == Actor::Operator);
        if !self.tampered {
            self.found.extend(found);
        }
    }

    fn step(&mut self, step: Step<'_>, actor: Actor, ill: bool) {
        let Some((kind, name)) = place(step) else { return };
        match kind {
            "NodeDeployment" => self.fleet(step, actor, ill),
            "StatefulNode" => self.node(&name, step, actor),
            "StatefulSet" => self.set(&name, step, actor),
            "Pod" => self.pod(&name, step, actor),
            _ => {}
        }
        let found = self.of_sets(kind, &name, step, actor, ill);
        self.found.extend(found);
        self.hear(kind, &name, step, actor);
        self.released(kind, &name, step, actor);
        self.take_in(step);
    }

    fn of_sets(&mut self, kind: &str, name: &str, step: Step<'_>, actor: Actor, ill: bool) -> Option<String> {
        let disturbed = &self.disturbed;
        let around = Around {
            stored: &self.stored,
            read_replicas: self.read_replicas,
            disturbed: &|node| disturbed.contains_key(node),
            by_operator: matches!(actor, Actor::Operator | Actor::OldOperator),
            by_person: actor == Actor::Person,
            ill,
            restarts: self.restarts,
        };
        let sets = &mut self.sets;
        match kind {
            // Deleting a namespace deletes its content.
            "Namespace" if is_leaving(step) => sets.namespace_goes(),
            "PersistentVolumeClaim" if is_leaving(step) => sets.claim(name, &around),
            // If a status was lost or changed by another, it is no evidence.
            _ if self.tampered || self.alone => None,
            "NodeDeployment" => sets.fleet(step, &around),
            "Service" if name == "db" => sets.service(step, &around),
            "StatefulNode" => Sets::node(name, step, is_leaving(step), &around),
            // Its creation disrupts no pod.
            "StatefulSet" if step.before.is_some() && changes_template(step) => Sets::effect(name, &around),
            "Pod" if is_leaving(step) => Sets::effect(name.strip_suffix("-0").unwrap_or(name), &around),
            _ => None,
        }
    }

    /// Checks the claims of a new status.
    fn hear(&mut self, kind: &str, name: &str, step: Step<'_>, actor: Actor) {
        if !matches!(kind, "NodeDeployment" | "StatefulNode") {
            return;
        }
        let object = format!("{kind} {name}");
        if actor == Actor::Person {
            self.words.by_person(&object, step);
            return;
        }
        let disturbed = &self.disturbed;
        let mut found = vec![self.words.of_plan(&object, step)];
        if kind == "NodeDeployment" && !self.tampered {
            let of_fleet = self.stored.nodes.iter().filter(|(name, _)| !disturbed.contains_key(*name));
            found.push(words::of_what_is_complete(step, of_fleet));
        }
        let pod = self.stored.pods.get(&format!("{name}-0"));
        if let (Some(before), Some(after), Some(pod)) = (self.stored.nodes.get(name), step.after, pod)
            && kind == "StatefulNode"
            && !disturbed.contains_key(name)
        {
            found.push(self.words.of_what_runs(name, before, &state::node(after), pod));
        }
        self.found.extend(found.into_iter().flatten());
    }

    fn fleet(&mut self, step: Step<'_>, actor: Actor, ill: bool) {
        let before = self.stored.fleet.clone().unwrap_or_default();
        let Some(now) = step.after.map(state::fleet) else { return };
        if now.paused && !before.paused {
            self.paused = self.request.map(|(_, answered)| answered);
        }
        if actor == Actor::Person {
            return;
        }
        if !self.tampered
            && let Err(what) = self.plans.follow("the fleet", &before.plan, &now.plan)
        {
            self.fail(what);
        }
        // A set's rollout is complete with the switch; its plan continues until the old set is gone.
        let of_set = now.plan.recipe.starts_with("BlueGreen") || now.plan.recipe == "HardFork";
        let completes = now.plan.state == "Complete" && before.plan != now.plan && !of_set;
        // Traffic moved to nodes that ran at that time; by the time of the write none may be wanted.
        let moved = before.active_set != now.active_set
            && now.replicas == 0
            && self.stored.selected.as_ref() == Some(&now.active_set);
        // A lost field that is recovered did not complete now, nor did one that is dropped because it contradicts the rest.
        let found_again =
            now.completed.is_empty() || before.completed.is_empty() && now.completed == self.last_completed;
        if (completes || before.completed != now.completed && !found_again) && !ill && !moved {
            self.check_completion(now.replicas, &now.active_set);
        }
    }

    /// A completed rollout was observed: every node runs the target and is Ready.
    fn check_completion(&mut self, replicas: i64, set: &str) {
        if replicas == 0 {
            self.fail("oracle 4: a rollout completes over no node at all");
        }
        for ordinal in 0..replicas {
            let name = windlass::api::names::node_name("db", &set.into(), ordinal as i32);
            if self.disturbed.contains_key(&name) {
                continue;
            }
            let node = self.stored.nodes.get(&name);
            let set = self.stored.sets.get(&name);
            let pod = self.stored.pods.get(&format!("{name}-0"));
            let at_target = match (node, set, pod) {
                (Some(node), Some(set), Some(pod)) => {
                    pod.ready
                        && !pod.leaving
                        && set.stamp == node.granted
                        && self.words.made_of(&name, &pod.revision) == Some(&node.granted)
                        && node.running == node.granted
                }
                _ => false,
            };
            if !at_target {
                self.fail(format!(
                    "oracle 4: completed though {name} does not run the target: {node:?} {set:?} {pod:?}"
                ));
            }
        }
    }

    fn node(&mut self, name: &str, step: Step<'_>, actor: Actor) {
        let before = self.stored.nodes.get(name).cloned();
        if actor == Actor::Person {
            self.disturb(name);
            // A node that a person disowned is not part of the fleet or its wave.
            if step.after.is_some_and(is_nobodys) {
                self.taken.remove(name);
            }
            // A suspended node was down by a person's wish. When it comes back, its pod may differ from the grant:
            // until it serves with that, it is not a node that Windlass takes down.
            let is_down = self.stored.pods.get(&format!("{name}-0")).is_none_or(|pod| !pod.ready);
            if is_down && ends_suspension(step) {
                self.free.insert(name.to_owned());
            }
        }
        if is_leaving(step) && actor == Actor::Operator {
            self.check_removal(name);
        }
        if step.after.is_none() || is_leaving(step) {
            self.taken.remove(name);
        }
        let Some(now) = step.after.map(state::node).filter(|_| actor != Actor::Person) else { return };
        let Some(before) = before else {
            // A recreated node does not serve yet.
            self.free.insert(name.to_owned());
            self.disturb(name);
            self.taken.remove(name);
            return;
        };
        if !self.tampered
            && let Err(what) = self.plans.follow(name, &before.plan, &now.plan)
        {
            self.fail(what);
        }
        if before.grant_id != now.grant_id || before.granted != now.granted {
            let answered = self.request.map_or(0, |(_, answered)| answered);
            self.regranted.insert(name.to_owned(), (answered, Grant::of(&before)));
            self.check_grant(name, &before, &now.grant_id, actor);
        }
        let serves = now.ready && !now.is_in_flight();
        if serves {
            self.free.remove(name);
            let pod = self.stored.pods.get(&format!("{name}-0"));
            let is_up =
                pod.is_some_and(|pod| pod.ready && !pod.leaving) && self.stored.sets.contains_key(name);
            let is_healed = self.disturbed.get(name).is_some_and(|plan| *plan != now.plan.id);
            if is_up && is_healed && (before.behind || before.plan.is_rolling()) {
                self.disturbed.remove(name);
            }
        }
    }

    /// A serving node is removed with a plan of its own, within the wave of its set, and not while the fleet is
    /// paused.
    fn check_removal(&mut self, name: &str) {
        let Some(node) = self.stored.nodes.get(name).cloned().filter(|node| node.ready) else { return };
        let Some(fleet) = self.stored.fleet.clone().filter(|f| !f.leaving && !self.tampered) else { return };
        if node.removal_id.is_empty() || node.plan.leaves_for != node.removal_id {
            self.fail(format!("oracle 4: {name} is deleted and does not wait for that: {node:?}"));
        }
        let of_rollout = fleet.rollout.is_some();
        if sets::set_of(name) != fleet.active_set || of_rollout {
            return;
        }
        // A reconcile does not re-read its facts between its own requests.
        let known = self
            .paused
            .zip(self.request)
            .is_none_or(|(paused, (sent, _))| sent > paused + PAUSE_IS_SEEN_MICROS);
        if fleet.paused && known {
            self.fail(format!("oracle 4: {name} is deleted although the fleet is paused"));
        }
        let taken = self.taken.iter().filter(|taken| *taken != name).count() as i64;
        if taken >= self.allowed {
            let taken = &self.taken;
            self.fail(format!(
                "oracle 4: {name} leaves while {taken:?} are down, and {} may be",
                self.allowed
            ));
        }
    }

    fn check_grant(&mut self, name: &str, before: &state::NodeState, grant_id: &str, actor: Actor) {
        let runs = self.stored.pods.get(&format!("{name}-0")).is_some_and(|pod| pod.runs && !pod.leaving);
        if (!before.ever_ready || before.failed) && !runs {
            self.free.insert(name.to_owned());
        } else if !before.is_in_flight() {
            self.free.remove(name);
        }
        // What was under way when the fleet was deleted is no violation.
        let Some(fleet) = self.stored.fleet.clone() else { return };
        let of_plan = fleet.plan.state == "Active" && grant_id.starts_with(&fleet.plan.id);
        // A grant of an old leader that lands after another leader has superseded its plan takes down one node
        // besides the wave (docs/dev/model.md).
        if actor == Actor::OldOperator && !of_plan {
            self.free.insert(name.to_owned());
        }
        let pinned = fleet.outcome == "Aborted";
        if actor == Actor::Operator && !self.tampered && !of_plan && !pinned {
            self.fail(format!(
                "oracle 4: {name} is granted {grant_id} outside of any plan: {:?}",
                fleet.plan
            ));
        }
    }

    fn set(&mut self, name: &str, step: Step<'_>, actor: Actor) {
        if actor == Actor::Person {
            self.disturb(name);
        }
        if actor == Actor::Operator && step.after.is_some() && changes_template(step) {
            let stamp = step.after.map(state::set).unwrap_or_default().stamp;
            let plan = self.stored.nodes.get(name).map(|node| &node.plan);
            // A node that leaves serves until its hooks are done, so a StatefulSet that was deleted comes back.
            let is_restored = step.before.is_none()
                && plan.is_some_and(|plan| plan.has_hooks_before_removal() && plan.target == stamp);
            if !is_restored {
                self.check_plan(name, "writes the template of", Some(&stamp));
            }
        }
    }

    /// Every effect has a plan that was persisted before it.
    fn check_plan(&mut self, name: &str, what: &str, stamp: Option<&str>) {
        let Some(node) = self.stored.nodes.get(name).cloned() else { return };
        if self.tampered {
            return;
        }
        if !node.plan.is_rolling() {
            self.fail(format!("oracle 4: Windlass {what} {name} without a plan: {:?}", node.plan));
        } else if stamp.is_some_and(|stamp| stamp != node.plan.target) {
            self.fail(format!("oracle 4: Windlass {what} {name} as its plan does not say: {:?}", node.plan));
        }
    }

    fn pod(&mut self, pod: &str, step: Step<'_>, actor: Actor) {
        let name = pod.strip_suffix("-0").unwrap_or(pod).to_owned();
        let now = step.after.map(state::pod);
        if actor == Actor::Person {
            self.disturb(&name);
        }
        if now.as_ref().is_some_and(|p| p.ready && !p.leaving) {
            self.taken.remove(&name);
        }
        if actor == Actor::Operator && is_leaving(step) {
            self.check_plan(&name, "deletes the pod of", None);
            self.check_replacement(&name, pod);
        }
    }

    fn check_replacement(&mut self, name: &str, pod: &str) {
        let Some(before) = self.stored.pods.get(pod).cloned() else { return };
        // A node that was scaled away meanwhile is in no wave any more.
        let Some(node) = self.stored.nodes.get(name).cloned() else { return };
        // The sender of a delete did not know a grant that was answered later.
        let sent = self.request.map_or(u64::MAX, |(sent, _)| sent);
        let unread = self.regranted.get(name).filter(|(answered, _)| *answered >= sent);
        let grant = unread.map_or_else(|| Grant::of(&node), |(_, earlier)| earlier.clone());
        // The pod's own hash counts, whatever the StatefulSet's revision is now.
        let at_grant = self.words.made_of(name, &before.revision) == Some(&grant.hash);
        let is_moved = node.moves == before.uid;
        if at_grant && before.ready && !is_moved && !self.disturbed.contains_key(name) {
            self.fail(format!("oracle 4: Windlass deletes {pod}, which is at its grant"));
        }
        let is_spent = !grant.hash.is_empty() && grant.id == grant.spent;
        if is_spent && before.runs && !is_moved && !self.tampered {
            self.fail(format!(
                "oracle 4: Windlass deletes {pod}, whose main container runs, and its grant is spent"
            ));
        }
        // An entrant set that does not serve yet is in no wave, even if its nodes exist from before.
        let fleet = self.stored.fleet.as_ref();
        let enters = fleet.is_some_and(|f| {
            let entrant = f.rollout.as_ref().map(|rollout| rollout.entrant.as_str());
            entrant.is_some_and(|set| set != f.active_set && set == sets::set_of(name))
        });
        if !before.runs || self.free.contains(name) || self.alone || enters {
            return;
        }
        self.taken.insert(name.to_owned());
        let allowed = self.allowed;
        // Each set has a wave of its own: one that served before is removed at once.
        let is_of_set = |taken: &&String| sets::set_of(taken) == sets::set_of(name);
        let taken: Vec<String> = self.taken.iter().filter(is_of_set).cloned().collect();
        if taken.len() as i64 > allowed {
            self.fail(format!("oracle 4: Windlass took down {taken:?} at once, and may take {allowed}"));
        }
    }
}

/// True if nothing on an object names its owner.
fn is_nobodys(object: &Value) -> bool {
    let meta = &object["metadata"];
    meta["ownerReferences"].as_array().is_none_or(Vec::is_empty)
        && meta["annotations"][windlass::api::names::ANNOTATION_OWNER_UID].is_null()
}

/// True if this change ends the suspension of a node.
fn ends_suspension(step: Step<'_>) -> bool {
    let is_suspended = |object: Option<&Value>| object.is_some_and(|o| o["spec"]["suspend"] == true);
    is_suspended(step.before) && step.after.is_some() && !is_suspended(step.after)
}

pub fn place(step: Step<'_>) -> Option<(&str, String)> {
    let object = step.after.or(step.before)?;
    let name = object["metadata"]["name"].as_str()?.to_owned();
    Some((object["kind"].as_str()?, name))
}

fn template(object: Option<&Value>) -> Option<Value> {
    object.map(|o| o["spec"]["template"].clone())
}

/// True if this change is of the template itself, not only of what admission makes of it.
pub fn changes_template(step: Step<'_>) -> bool {
    let (before, after) = (template(step.before), template(step.after));
    let own = |template: Option<Value>| template.as_ref().map(platform::without_admission);
    before != after && own(before) != own(after)
}

/// True if this change starts or completes the object's deletion.
pub fn is_leaving(step: Step<'_>) -> bool {
    let leaves = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
    match (step.before, step.after) {
        (Some(before), None) => !leaves(before),
        (Some(before), Some(after)) => !leaves(before) && leaves(after),
        (None, _) => false,
    }
}
