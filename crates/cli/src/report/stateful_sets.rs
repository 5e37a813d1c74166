//! The report of a StatefulSetRollout: that of a fleet whose nodes are pods, and its StatefulSets.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::fleet::not_seen;
use super::node::SEEN_WITHIN;
use super::seen::told_at;
use super::{FleetReport, Health, NodeReport, Seen, SeenPod, Verdict};
use windlass_core::api::at_hook::message_of;
use windlass_core::api::conditions::{self, Condition, RECONCILING, Truth, UP_TO_DATE};
use windlass_core::api::{
    NodeDeploymentSpec, PodUpdate, StatefulSetRolloutSpec, StatefulSetStatus, Unconverged,
};
use windlass_core::planner::node::problem::in_words;
use windlass_engine::Plan;
use windlass_kube_port::observed::{
    Observed, ObservedFleet, ObservedPod, ObservedRollout, ObservedStatefulSet,
};

/// The condition that says whether Windlass alone updates the pods.
pub const HELD: &str = "Held";
/// The strategy in a report.
const STRATEGY: &str = "StatefulSet";

/// A StatefulSetRollout and its pods.
#[derive(Clone, Debug)]
pub struct SeenStatefulSets {
    /// As a fleet without nodes: its status, and its pods by name.
    pub seen: Seen,
    /// The selected StatefulSets, in the order in which they are updated.
    pub sets: Vec<StatefulSetStatus>,
    /// The pods that are being updated.
    updates: Vec<PodUpdate>,
    /// A StatefulSet that changed since the operator reconciled it.
    changed: Option<String>,
}

impl SeenStatefulSets {
    /// An object with its pods. `pods` may have others; `None` if they could not be read, for which `unread` has the
    /// reason.
    #[must_use]
    pub fn of(object: &Value, pods: Option<&[Arc<ObservedPod>]>, unread: &[String]) -> Self {
        let status = &object["status"];
        let sets: Vec<StatefulSetStatus> = readable(&status["statefulSets"]);
        let spec = serde_json::from_value::<StatefulSetRolloutSpec>(object["spec"].clone());
        let spec = spec.map_err(|error| format!("cannot read spec: {error}"));
        Self::with(ObservedFleet::read(object), spec, sets, readable(&status["nodes"]), pods, unread)
    }

    /// The same of an object from a cache.
    #[must_use]
    pub fn of_observed(
        rollout: &ObservedRollout,
        pods: Option<&[Arc<ObservedPod>]>,
        unread: &[String],
    ) -> Self {
        let status = &rollout.status;
        let fleet = ObservedFleet {
            meta: rollout.meta.clone(),
            spec: Err(String::new()),
            status: Box::new(status.rollout.clone()),
            unreadable: rollout.unreadable.clone(),
        };
        let spec = rollout.spec.as_deref().cloned().map_err(Clone::clone);
        Self::with(fleet, spec, status.stateful_sets.clone(), status.nodes.clone(), pods, unread)
    }

    fn with(
        fleet: ObservedFleet,
        spec: Result<StatefulSetRolloutSpec, String>,
        sets: Vec<StatefulSetStatus>,
        updates: Vec<PodUpdate>,
        pods: Option<&[Arc<ObservedPod>]>,
        unread: &[String],
    ) -> Self {
        let replicas = sets.iter().map(|set| set.replicas).sum();
        let as_fleet = |spec: StatefulSetRolloutSpec| Arc::new(spec.as_fleet(replicas));
        let spec: Result<Arc<NodeDeploymentSpec>, String> = spec.map(as_fleet);
        let is_own = |pod: &&Arc<ObservedPod>| owner(pod, &sets).is_some();
        let own = pods.into_iter().flatten().filter(is_own);
        let seen = Seen {
            pods: own.map(|pod| (pod.meta.name.clone(), pod.clone())).collect(),
            fleet: told_at(&Arc::new(ObservedFleet { spec, ..fleet }), crate::now()),
            nodes: Vec::new(),
            has_pods: pods.is_some(),
            unread: unread.to_vec(),
        };
        Self { seen, sets, updates, changed: None }
    }

    /// The same, with the StatefulSets as they are now: right after a change, it is not reported as up to date.
    #[must_use]
    pub fn beside(mut self, live: &[ObservedStatefulSet]) -> Self {
        let is_changed = |set: &&StatefulSetStatus| {
            let live = live.iter().find(|live| !set.uid.is_empty() && live.meta.uid == set.uid);
            live.is_some_and(|live| !live.is_observed() || live.update_revision != set.update_revision)
        };
        self.changed = self.sets.iter().find(is_changed).map(|set| set.name.clone());
        self
    }

    /// The update of a pod, if it has one.
    #[must_use]
    pub fn update(&self, pod: &str) -> Option<Plan> {
        let update = self.updates.iter().find(|update| update.name == pod)?;
        update.plan.as_ref()?.parse().ok().filter(Plan::is_active)
    }

    /// The StatefulSet of a pod, also of one that does not exist.
    #[must_use]
    pub fn set_of(&self, pod: &str) -> Option<&StatefulSetStatus> {
        match self.seen.pods.get(pod) {
            Some(pod) => owner(pod, &self.sets),
            None => self.sets.iter().find(|set| ordinal(pod, &set.name).is_some()),
        }
    }

    /// The revision that the pods of a StatefulSet go to: the current one while they are rolled back.
    fn target<'a>(&self, set: &'a StatefulSetStatus) -> &'a str {
        let status = &self.seen.fleet.status;
        let is_back = status.rollout.as_ref().is_some_and(|rollout| {
            !rollout.target_hash.is_empty() && rollout.target_hash != status.requested_rollout_hash
        });
        if is_back { &set.current_revision } else { &set.update_revision }
    }

    /// Each pod that exists, or that the status names, by StatefulSet and ordinal.
    fn pods(&self, now: DateTime<Utc>) -> Vec<NodeReport> {
        let unconverged: BTreeMap<&str, &Unconverged> = self
            .seen
            .fleet
            .status
            .rollout
            .iter()
            .flat_map(|rollout| &rollout.unconverged)
            .map(|pod| (pod.name.as_str(), pod))
            .collect();
        let named = self.updates.iter().map(|update| update.name.as_str()).chain(unconverged.keys().copied());
        let mut names: Vec<&str> = self.seen.pods.keys().map(String::as_str).chain(named).collect();
        let place = |name: &&str| {
            let index = self.sets.iter().position(|set| Some(set) == self.set_of(name));
            let ordinal = index.and_then(|index| ordinal(name, &self.sets[index].name));
            (index.is_none(), index, ordinal, (*name).to_owned())
        };
        names.sort_by_cached_key(place);
        names.dedup();
        names.into_iter().map(|name| self.pod(name, unconverged.get(name).copied(), now)).collect()
    }

    fn pod(&self, name: &str, unconverged: Option<&Unconverged>, now: DateTime<Utc>) -> NodeReport {
        let looked_for = match self.seen.pods.get(name) {
            Some(pod) => SeenPod::Is(pod),
            None if self.seen.has_pods => SeenPod::IsNot,
            None => SeenPod::Unread,
        };
        let pod = if let SeenPod::Is(pod) = looked_for { Some(pod) } else { None };
        let set = self.set_of(name);
        let target = set.map_or("", |set| self.target(set));
        let plan = self.update(name);
        let task = plan.as_ref().and_then(Plan::current_task);
        let is_ready = pod.is_some_and(|pod| pod.is_ready() && !pod.meta.terminating);
        let says = unconverged.map(|unconverged| NodeReport::named("", unconverged));
        let said = says.as_ref().map(|report| report.health);
        let at_target = pod.is_some_and(|pod| !target.is_empty() && pod.revision == target);
        let since = pod.and_then(|pod| pod.ready.as_ref()).filter(|ready| !ready.holds);
        let since = since.and_then(|ready| ready.since);
        let is_late = since.is_some_and(|since| now - since > SEEN_WITHIN);
        let health = match (looked_for, said) {
            _ if is_ready && plan.is_some() => Health::Moving,
            _ if is_ready && at_target => Health::Serving,
            _ if is_ready => Health::Before,
            (SeenPod::Unread, Some(health)) => health,
            (_, Some(health)) if health != Health::Before => health,
            _ if plan.is_some() || pod.is_some_and(|pod| pod.meta.terminating) => Health::Moving,
            (SeenPod::Unread, None) => Health::Before,
            _ => Health::Down,
        };
        let unseen = health == Health::Down && said.is_none() && is_late;
        let of_pod = || pod.and_then(in_words).unwrap_or_default();
        let message = match (health, &says, task) {
            (Health::Serving | Health::Before, _, _) => String::new(),
            (Health::Moving, _, Some(task)) if !task.message.is_empty() => message_of(task),
            (Health::Failed | Health::Down, Some(says), _) => says.message.clone(),
            _ if unseen => "it is not Ready; the operator has not observed that".to_owned(),
            (Health::Moving, _, _) => moves(looked_for).to_owned(),
            (_, _, _) if pod.is_none() => "it does not exist".to_owned(),
            _ => of_pod(),
        };
        let ill = matches!(health, Health::Failed | Health::Down);
        let set_name = set.map(|set| set.name.clone()).unwrap_or_default();
        NodeReport {
            name: name.to_owned(),
            health,
            image: pod.and_then(|pod| pod.images.first()).map(|(_, image)| image.clone()).unwrap_or_default(),
            target_image: self.image_at(&set_name, target),
            revision: pod.map(|pod| short(&pod.revision, &set_name).to_owned()).unwrap_or_default(),
            target_revision: short(target, &set_name).to_owned(),
            reason: says.as_ref().filter(|_| ill).map(|says| says.reason.clone()).unwrap_or_default(),
            message,
            since: says.and_then(|says| says.since).or(since).filter(|_| health.is_listed_by_name()),
            task: task.map(|task| task.type_.clone()).unwrap_or_default(),
            unseen,
            set: set_name,
        }
    }

    /// The image of a StatefulSet's pods at a revision; empty if there is no such pod.
    fn image_at(&self, set: &str, revision: &str) -> String {
        let mut pods = self.seen.pods.values();
        let of_set = |pod: &&Arc<ObservedPod>| {
            pod.revision == revision && owner(pod, &self.sets).is_some_and(|owner| owner.name == set)
        };
        let image = pods.find(of_set).and_then(|pod| pod.images.first().cloned());
        image.map(|(_, image)| image).unwrap_or_default()
    }
}

/// The state of a pod whose plan has no message.
fn moves(pod: SeenPod<'_>) -> &'static str {
    match pod {
        SeenPod::Is(pod) if pod.meta.terminating => "the old pod is terminating",
        SeenPod::Is(pod) if !pod.is_ready() => "it is starting",
        SeenPod::IsNot => "it is being created",
        _ => "",
    }
}

/// The elements of a list that can be read: a later version of Windlass may have written others.
fn readable<T: serde::de::DeserializeOwned>(list: &Value) -> Vec<T> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| serde_json::from_value(item.clone()).ok()).collect()
}

/// The StatefulSet that controls a pod, by its UID.
fn owner<'a>(pod: &ObservedPod, sets: &'a [StatefulSetStatus]) -> Option<&'a StatefulSetStatus> {
    let uid = &pod.meta.owners.iter().find(|owner| owner.controller)?.uid;
    sets.iter().find(|set| !set.uid.is_empty() && set.uid == *uid)
}

/// The ordinal of a StatefulSet's pod with this name.
fn ordinal(pod: &str, set: &str) -> Option<u32> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    digits.parse().ok().filter(|_| digits.chars().all(|c| c.is_ascii_digit()))
}

/// A revision without its StatefulSet's name.
#[must_use]
pub fn short<'a>(revision: &'a str, set: &str) -> &'a str {
    revision.strip_prefix(set).and_then(|rest| rest.strip_prefix('-')).unwrap_or(revision)
}

/// The report of a StatefulSetRollout.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetsReport {
    /// StatefulSetRollout, to distinguish it from a fleet in a mixed list.
    pub kind: String,
    /// The same as of a fleet; its nodes are pods, and the set of each is its StatefulSet.
    #[serde(flatten)]
    pub fleet: FleetReport,
    /// The selected StatefulSets, in the order in which they are updated.
    pub stateful_sets: Vec<StatefulSetStatus>,
}

impl StatefulSetsReport {
    /// Reports on an object.
    #[must_use]
    pub fn of(seen: &SeenStatefulSets, now: DateTime<Utc>) -> Self {
        let mut fleet = FleetReport::with(&seen.seen, seen.pods(now), now);
        STRATEGY.clone_into(&mut fleet.strategy);
        let conditions = &seen.seen.fleet.status.conditions;
        // Replicas are not checked here: without any, the conditions decide.
        if fleet.verdict == Verdict::ScaledToZero {
            let is_applied = conditions::is_true(conditions, UP_TO_DATE);
            fleet.verdict = if is_applied { Verdict::UpToDate } else { Verdict::Progressing };
            let why =
                [UP_TO_DATE, RECONCILING].into_iter().filter_map(|type_| conditions::find(conditions, type_));
            let why = why.map(|c| c.message.as_str()).find(|message| !message.is_empty() && !is_applied);
            why.unwrap_or_default().clone_into(&mut fleet.waiting_for);
        }
        if let Some(rollout) = &mut fleet.rollout {
            let is_new = |pod: &&NodeReport| pod.revision == pod.target_revision;
            let image = |pod: Option<&NodeReport>| pod.map(|pod| pod.image.clone()).unwrap_or_default();
            let pods = || fleet.nodes.iter().filter(|pod| !pod.revision.is_empty());
            rollout.to_image = image(pods().find(is_new));
            rollout.from_image = image(pods().find(|pod| !is_new(pod)));
        }
        if let Some(name) = seen.changed.as_ref().filter(|_| fleet.verdict == Verdict::UpToDate) {
            fleet.verdict = Verdict::Progressing;
            fleet.waiting_for = format!("StatefulSet {name} changed; the operator has not observed that yet");
        }
        if let Some(held) = not_held(conditions).filter(|_| not_seen(&seen.seen.fleet).is_none()) {
            let sentence = format!("not held: {}: {}", held.reason, held.message);
            fleet.remarks.push(sentence);
        }
        // Not for an active rollout, nor for one that has not started: nobody deletes the object to stop these.
        let status = &seen.seen.fleet.status;
        let is_paused = seen.seen.fleet.spec.as_ref().is_ok_and(|spec| spec.paused);
        let is_behind = |set: &&StatefulSetStatus| set.current_revision != set.update_revision;
        let left: i32 = seen.sets.iter().filter(is_behind).map(|set| set.replicas - set.updated).sum();
        if left > 0 && (status.rejected.is_some() || is_paused) {
            let pods = if left == 1 { "1 pod".to_owned() } else { format!("{left} pods") };
            fleet.remarks.push(format!("if this object is deleted, Kubernetes may update {pods} by itself"));
        }
        Self { kind: "StatefulSetRollout".to_owned(), fleet, stateful_sets: seen.sets.clone() }
    }

    /// The pods of a StatefulSet.
    pub fn pods<'a>(&'a self, set: &'a StatefulSetStatus) -> impl Iterator<Item = &'a NodeReport> {
        self.fleet.nodes.iter().filter(|pod| pod.set == set.name)
    }

    /// True if a StatefulSet exists and is held, and each of its pods is Ready at the update revision.
    #[must_use]
    pub fn is_at_rest(&self, set: &StatefulSetStatus) -> bool {
        let is_well = set.held && set.updated == set.replicas && set.ready == set.replicas;
        is_well && !set.uid.is_empty() && self.pods(set).all(|pod| pod.health >= Health::Settling)
    }
}

/// The condition [`HELD`], if it does not hold.
#[must_use]
pub fn not_held(conditions: &[Condition]) -> Option<&Condition> {
    conditions::find(conditions, HELD).filter(|held| held.status != Truth::True.as_ref())
}
