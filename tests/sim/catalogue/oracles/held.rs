//! What must hold in front of StatefulSets that somebody else created: the end, and every change on the way there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use windlass_sim::Step;

use super::Evidence;
use super::end::condition;
use super::plans::Plans;
use super::safety::{Actor, Makers, changes_template, is_leaving, place};
use super::state;
use crate::catalogue::deeds::Deed;
use crate::catalogue::faults::Fault;
use crate::catalogue::scenario::NAMESPACE;
use crate::catalogue::world::World;

/// The partition of a StatefulSet that is held.
const HOLD: i64 = 1_000_000;
/// A change that was written less than this before a request was sent may have come after the objects were read.
const CHANGE_IS_SEEN_MICROS: u64 = 20_000;
const BEFORE: &str = "windlass.dev/update-strategy";

fn is_held(set: &Value) -> bool {
    set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] == HOLD
}

/// The strategy that a release restores.
pub fn before(set: &Value) -> Value {
    let text = set["metadata"]["annotations"][BEFORE].as_str().unwrap_or_default();
    let mut strategy: Value = serde_json::from_str(text).unwrap_or_default();
    if strategy["type"] == "RollingUpdate" && strategy["rollingUpdate"].is_null() {
        // A person left out what is the default.
        strategy["rollingUpdate"] = json!({"partition": 0});
    }
    strategy
}

fn is_ready(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && condition(pod, "Ready").0 == "True"
}

fn revision(pod: &Value) -> &Value {
    &pod["metadata"]["labels"]["controller-revision-hash"]
}

/// True if every StatefulSet has all its pods, Ready and of this revision.
fn has_pods_of(world: &World, wanted: &str) -> bool {
    world.stateful_sets().iter().all(|set| {
        let name = set["metadata"]["name"].as_str().unwrap_or_default();
        let replicas = set["spec"]["replicas"].as_i64().unwrap_or_default();
        let serves = |pod: &Value| is_ready(pod) && *revision(pod) == set["status"][wanted];
        let pod = |ordinal: i64| world.get("v1", "Pod", &format!("{name}-{ordinal}"));
        set["status"]["observedGeneration"] == set["metadata"]["generation"]
            && (0..replicas).all(|ordinal| pod(ordinal).is_some_and(|pod| serves(&pod)))
    })
}

/// True if all is held, at rest and at what is desired, or at what was before if that was taken back.
pub fn is_well(world: &World, object: &Value) -> bool {
    let reason = condition(object, "UpToDate").1;
    let taken_back = reason == "RolledBack" && world.scenario.ending() == reason;
    let asked = &object["metadata"]["annotations"]["windlass.dev/restartedAt"];
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
        && (taken_back || reason == "Applied" && condition(object, "Stalled").0 == "False")
        && condition(object, "Reconciling").0 == "False"
        && condition(object, "Held").0 == "True"
        && object["status"]["rollout"].is_null()
        && object["status"]["nodes"].is_null()
        && object["status"]["plan"]["state"] != "Active"
        && (asked.is_null() || *asked == object["status"]["restartedAt"])
        && world.stateful_sets().iter().all(is_held)
        && has_pods_of(world, if taken_back { "currentRevision" } else { "updateRevision" })
}

/// True if every StatefulSet is as if nobody had been in front of it.
pub fn is_released(world: &World) -> bool {
    let is_own = |set: &Value| !is_held(set) && set["metadata"]["annotations"][BEFORE].is_null();
    let kinds = ["StatefulSetRollout"];
    world.cluster.snapshot_of(NAMESPACE, &kinds).is_empty() && world.stateful_sets().iter().all(is_own)
}

#[derive(Default)]
struct Watcher {
    plans: Plans,
    /// The object, as it is stored.
    object: Value,
    sets: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    /// Pods that served and that Windlass deleted, until one with their name serves.
    taken: BTreeSet<String>,
    allowed: i64,
    /// True if somebody else writes strategies, statuses or releases: then less can be told.
    disturbed: bool,
    /// When the request was sent that wrote this change, and when a person last wrote a StatefulSet.
    sent: u64,
    written: u64,
    /// True if admission rewrites what Windlass writes.
    rewritten: bool,
    found: Vec<String>,
}

/// Checks every change since the scenario's change.
pub fn examine(evidence: &mut Evidence<'_>) {
    let makers = Makers::of(evidence.audit);
    let is_disturbed = |fault: &Fault| {
        // A request that is never answered is not in the audit log: its effect has no author.
        let written = matches!(fault, Fault::Person(Deed::EditStrategy) | Fault::Unanswered);
        written || matches!(fault, Fault::Person(deed) if deed.is_the_end())
    };
    let tampered = |name: &str| {
        name.starts_with("F12") || name.starts_with("F16-lost") || name.starts_with("F16-revisions")
    };
    let disturbed =
        evidence.strikes(is_disturbed) || evidence.point.strikes.iter().any(|strike| tampered(&strike.fault));
    let rewritten = evidence.strikes(|fault| matches!(fault, Fault::Platform(..)));
    let mut watcher = Watcher {
        rewritten,
        allowed: evidence.world.scenario.max_unavailable,
        disturbed,
        ..Watcher::default()
    };
    let first = evidence.first_version;
    let complete = evidence.world.cluster.replay(100, |step| {
        if step.version > first {
            let found = watcher.found.len();
            watcher.sent = makers.request(step.version).map_or(u64::MAX, |entry| entry.sent_micros);
            watcher.step(step, makers.of_version(step.version));
            for what in &mut watcher.found[found..] {
                *what = format!("{what} @{}", step.version);
            }
        }
        watcher.take_in(step);
    });
    if !complete {
        watcher.found.push("the history was cut: safety cannot be told".to_owned());
    }
    evidence.failures.append(&mut watcher.found);
}

impl Watcher {
    fn fail(&mut self, what: impl Into<String>) {
        self.found.push(format!("oracle 4: {}", what.into()));
    }

    fn take_in(&mut self, step: Step<'_>) {
        let Some((kind, name)) = place(step) else { return };
        match (kind, step.after) {
            ("StatefulSetRollout", after) => self.object = after.cloned().unwrap_or_default(),
            ("StatefulSet", Some(after)) => drop(self.sets.insert(name, after.clone())),
            ("Pod", Some(after)) => {
                if is_ready(after) {
                    self.taken.remove(&name);
                }
                self.pods.insert(name, after.clone());
            }
            ("Pod", None) => drop(self.pods.remove(&name)),
            _ => {}
        }
    }

    fn step(&mut self, step: Step<'_>, actor: Actor) {
        let Some((kind, name)) = place(step) else { return };
        let by_operator = matches!(actor, Actor::Operator | Actor::OldOperator);
        if kind == "StatefulSet" && actor == Actor::Person {
            self.written = self.sent;
        }
        match kind {
            "StatefulSet" if by_operator => self.set(&name, step),
            "Pod" if is_leaving(step) => self.pod_goes(&name, step, actor),
            "PersistentVolumeClaim" if by_operator => self.fail(format!("Windlass writes the claim {name}")),
            "StatefulSetRollout" if actor != Actor::Person => self.told(step),
            _ => {}
        }
    }

    /// Of a StatefulSet, Windlass writes the update strategy and one annotation.
    fn set(&mut self, name: &str, step: Step<'_>) {
        let (Some(before), Some(after)) = (step.before, step.after) else {
            return self.fail(format!("Windlass creates or deletes the StatefulSet {name}"));
        };
        if changes_template(step) || before["spec"]["replicas"] != after["spec"]["replicas"] {
            self.fail(format!("Windlass changes the template or the replicas of {name}"));
        }
    }

    /// A pod is deleted by Windlass under a grant that was stored before, or by somebody else; the StatefulSet controller moves
    /// none.
    fn pod_goes(&mut self, name: &str, step: Step<'_>, actor: Actor) {
        let Some(pod) = step.before else { return };
        let set = name.rsplit_once('-').map(|(set, _)| set.to_owned()).unwrap_or_default();
        match actor {
            Actor::Operator | Actor::OldOperator => {}
            Actor::Person => return,
            Actor::Other => {
                let of_set = self.sets.get(&set);
                let is_wanted = of_set.is_some_and(|set| ordinal(name) < set["spec"]["replicas"].as_i64());
                let moves = of_set.is_some_and(|set| *revision(pod) != set["status"]["updateRevision"]);
                if is_wanted && moves && is_ready(pod) && !self.disturbed {
                    self.fail(format!("{name}, which served, is moved by another than Windlass"));
                }
                return;
            }
        }
        let granted = self.object["status"]["nodes"].as_array().into_iter().flatten();
        let uid = &pod["metadata"]["uid"];
        let is_granted = granted
            .into_iter()
            .any(|g| g["name"] == name && g["podUID"] == *uid && g["plan"]["state"] == "Active");
        if !is_granted && actor == Actor::Operator && !self.disturbed {
            self.fail(format!("{name} is deleted and was not granted: {}", self.object["status"]["nodes"]));
        }
        if is_ready(pod) {
            // What was scaled down meanwhile is not missed.
            let sets = &self.sets;
            self.taken.retain(|pod| {
                let set = pod.rsplit_once('-').and_then(|(set, _)| sets.get(set));
                set.is_some_and(|set| ordinal(pod) < set["spec"]["replicas"].as_i64())
            });
            self.taken.insert(name.to_owned());
            if self.taken.len() as i64 > self.allowed {
                self.fail(format!(
                    "Windlass deleted {:?} at once, and may delete {}",
                    self.taken, self.allowed
                ));
            }
        }
    }

    /// Checks the claims of a new status.
    fn told(&mut self, step: Step<'_>) {
        let Some(after) = step.after.filter(|_| !self.disturbed) else { return };
        let before = step.before.cloned().unwrap_or_default();
        let (was, now) = (state::plan(&before["status"]["plan"]), state::plan(&after["status"]["plan"]));
        if let Err(what) = self.plans.follow("the rollout", &was, &now) {
            self.found.push(what);
        }
        let applied = |object: &Value| condition(object, "UpToDate").1 == "Applied";
        // Where admission rewrites a template, the write that holds it makes another revision, which comes a moment later.
        // So it is where a person has changed a template while the status was written.
        let is_of_before = self.sent < self.written.saturating_add(CHANGE_IS_SEEN_MICROS);
        if !applied(after) || applied(&before) || self.rewritten || is_of_before {
            return;
        }
        for (name, pod) in &self.pods {
            let set = name.rsplit_once('-').and_then(|(set, _)| self.sets.get(set));
            let Some(set) = set.filter(|set| ordinal(name) < set["spec"]["replicas"].as_i64()) else {
                continue;
            };
            // What the StatefulSet has become since is another rollout.
            let is_of_now = set["status"]["observedGeneration"] == set["metadata"]["generation"];
            if is_of_now && *revision(pod) != set["status"]["updateRevision"] {
                self.found.push(format!("oracle 4: completed though {name} is at {}", revision(pod)));
            }
        }
    }
}

fn ordinal(pod: &str) -> Option<i64> {
    pod.rsplit_once('-')?.1.parse().ok()
}
