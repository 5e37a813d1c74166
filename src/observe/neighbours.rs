//! The other fleets of the operator: which of them come before a fleet, and how many roll now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use chrono::{DateTime, Utc};

use crate::api::conditions::{self, UP_TO_DATE};
use crate::api::names::{ANNOTATION_RELEASE, argument_of};
use crate::api::{NodeDeploymentStatus, PlanId, Predecessor, RawPlan, Stage};
use crate::planner::fleet::gate::{Limits, WaitingFor};
use crate::planner::fleet::{Cause, FleetKind};
use windlass_kube_port::observed::{Meta, ObservedFleet, ObservedRollout, ObservedStatefulSet};
use windlass_kube_port::{Key, View};

/// A fleet among all kinds of fleets.
type Place = (FleetKind, Key);

/// All fleets of the operator. Without views, as on the command line, nothing is known of any.
#[derive(Default)]
pub struct Neighbours {
    views: OnceLock<Vec<Arc<View>>>,
    limits: Limits,
    /// The plans that may begin although the cache does not show that yet. Two fleets never take the same turn.
    begun: Mutex<BTreeMap<Place, PlanId>>,
}

/// A fleet that another one waits for.
enum Neighbour {
    Nodes(Arc<ObservedFleet>),
    Pods(Arc<ObservedRollout>, Vec<Arc<ObservedStatefulSet>>),
}

/// A rollout that wants to begin.
pub(super) struct Turn<'a> {
    pub kind: FleetKind,
    pub meta: &'a Meta,
    pub plan: &'a PlanId,
    pub cause: Cause,
    pub began: DateTime<Utc>,
}

impl Neighbour {
    fn meta(&self) -> &Meta {
        match self {
            Self::Nodes(fleet) => &fleet.meta,
            Self::Pods(rollout, _) => &rollout.meta,
        }
    }

    fn status(&self) -> &NodeDeploymentStatus {
        match self {
            Self::Nodes(fleet) => &fleet.status,
            Self::Pods(rollout, _) => &rollout.status.rollout,
        }
    }

    fn after(&self) -> &[Predecessor] {
        match self {
            Self::Nodes(fleet) => fleet.spec.as_ref().map_or(&[], |spec| &spec.update_strategy.after),
            Self::Pods(rollout, _) => rollout.spec.as_ref().map_or(&[], |spec| &spec.strategy.after),
        }
    }

    /// Its release: an annotation beside the template. A StatefulSetRollout has none while its StatefulSets differ.
    fn release(&self) -> Option<&str> {
        match self {
            Self::Nodes(fleet) => fleet.meta.annotation(ANNOTATION_RELEASE),
            Self::Pods(_, sets) => {
                let mut of_sets = sets.iter().map(|set| set.meta.annotation(ANNOTATION_RELEASE));
                let first = of_sets.next().flatten();
                first.filter(|first| of_sets.all(|other| other == Some(*first)))
            }
        }
    }

    /// Why it is not up to date, as the end of a sentence; `None` if it is.
    fn why_not_up_to_date(&self) -> Option<String> {
        let (meta, status) = (self.meta(), self.status());
        if meta.terminating {
            return Some(", which is being deleted".to_owned());
        }
        if let Self::Pods(rollout, sets) = self {
            let recorded = &rollout.status.stateful_sets;
            let is_known = |set: &Arc<ObservedStatefulSet>| {
                let known = recorded.iter().find(|known| known.uid == set.meta.uid);
                set.is_observed() && known.is_some_and(|known| known.update_revision == set.update_revision)
            };
            if let Some(set) = sets.iter().find(|set| !is_known(set)) {
                return Some(format!(" (StatefulSet {} has changed)", set.meta.name));
            }
        }
        let is_up_to_date = conditions::is_true(&status.conditions, UP_TO_DATE) && status.rollout.is_none();
        if is_up_to_date && status.observed_generation == meta.generation {
            return None;
        }
        let condition = conditions::find(&status.conditions, UP_TO_DATE);
        let condition = condition.filter(|condition| condition.status != "True");
        Some(condition.map_or_else(String::new, |condition| format!(" ({})", condition.reason)))
    }
}

impl Neighbours {
    /// Those of an operator with these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Sets the caches of all fleets.
    pub fn know(&self, views: Vec<Arc<View>>) {
        // Only the first call has an effect. An operator has one set of caches.
        let _ = self.views.set(views);
    }

    /// How many fleets may roll at the same time.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What is not listed yet, in a sentence.
    fn why_unknown(views: &[Arc<View>]) -> Option<String> {
        let is_listed = |view: &Arc<View>| {
            if view.is_of_rollouts() { view.rollouts.is_ready() } else { view.fleets.is_ready() }
        };
        let unlisted = views.iter().find(|view| !is_listed(view))?;
        let kind = if unlisted.is_of_rollouts() { "StatefulSetRollouts" } else { "NodeDeployments" };
        Some(format!("waiting until the {kind} of all namespaces of the operator are listed"))
    }

    fn get(&self, (kind, key): &Place) -> Option<Neighbour> {
        self.views.get()?.iter().find_map(|view| match kind {
            FleetKind::Nodes => view.fleets.get(key).map(Neighbour::Nodes),
            FleetKind::Pods => view.rollouts.get(key).map(|rollout| {
                let of_status = rollout.status.stateful_sets.iter();
                let set = |name: &str| view.stateful_sets.get(&Key::new(&key.namespace, name));
                let sets = of_status.filter_map(|known| set(&known.name)).collect();
                Neighbour::Pods(rollout, sets)
            }),
        })
    }

    /// What a fleet waits for, in a sentence: the first of its predecessors that is not up to date.
    pub(super) fn why_after(&self, kind: FleetKind, meta: &Meta, after: &[Predecessor]) -> Option<String> {
        let views = self.views.get().filter(|_| !after.is_empty())?;
        if let Some(sentence) = Self::why_unknown(views) {
            return Some(sentence);
        }
        let own = self.get(&(kind, meta.key()));
        let release = own.as_ref().and_then(Neighbour::release);
        after.iter().find_map(|of| {
            let name = format!("{} {}", of.kind, of.name);
            let Some(other) = self.get(&place(&meta.namespace, of)) else {
                return Some(format!(
                    "waiting for {name}, which does not exist or is not read by this operator"
                ));
            };
            if let Some(why) = other.why_not_up_to_date() {
                return Some(format!("waiting for {name} to be up to date{why}"));
            }
            let release = release.filter(|release| other.release() != Some(*release))?;
            let has = other.release().map_or_else(|| "it has none".to_owned(), |has| format!("it has {has}"));
            Some(format!("waiting for {name} to have {ANNOTATION_RELEASE}={release}: {has}"))
        })
    }

    /// Which fleets wait for each other, in a sentence, if this fleet is one of them.
    pub(super) fn cycle(&self, kind: FleetKind, meta: &Meta, after: &[Predecessor]) -> Option<String> {
        let own = (kind, meta.key());
        let mut seen = BTreeSet::new();
        let mut paths: Vec<Vec<Predecessor>> = after.iter().map(|of| vec![of.clone()]).collect();
        while let Some(path) = paths.pop() {
            let last = path.last()?;
            let at = place(&meta.namespace, last);
            if at == own {
                let through: Vec<String> = path.iter().map(|of| format!("{} {}", of.kind, of.name)).collect();
                return Some(format!(
                    "this object waits for itself, through {}: remove one of these entries",
                    through.join(", then ")
                ));
            }
            if seen.insert(at.clone())
                && let Some(other) = self.get(&at)
            {
                paths.extend(other.after().iter().map(|of| {
                    let mut longer = path.clone();
                    longer.push(of.clone());
                    longer
                }));
            }
        }
        None
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<Place, PlanId>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets that a fleet took a turn: its status says what it does.
    pub(super) fn give_back(&self, kind: FleetKind, meta: &Meta) {
        let mut begun = self.begun();
        if !begun.is_empty() {
            begun.remove(&(kind, meta.key()));
        }
    }

    /// Takes a turn for a rollout, or says what it waits for. Rollouts take turns in the order in which they began.
    pub(super) fn why_no_turn(&self, turn: &Turn<'_>) -> Option<String> {
        let views = self.views.get().filter(|_| self.limits.apply_to(turn.cause))?;
        if let Some(sentence) = Self::why_unknown(views) {
            return Some(sentence);
        }
        let own = (turn.kind, turn.meta.key());
        let mut begun = self.begun();
        let mut rolling: Vec<(DateTime<Utc>, Place, Cause)> = Vec::new();
        // Those that wait and began earlier.
        let mut queued = rolling.clone();
        let mut look = |kind: FleetKind, of: &Meta, status: &NodeDeploymentStatus| {
            let rollout = status.rollout.as_ref().filter(|_| !of.terminating);
            let Some(rollout) = rollout.filter(|rollout| rollout.stage != Stage::Retiring) else { return };
            let place = (kind, of.key());
            let has_begun = || {
                let plan = status.plan.as_ref().and_then(RawPlan::id);
                plan.is_some() && begun.get(&place) == plan.as_ref()
            };
            let rolls = rollout.waiting_for.is_empty() || has_begun();
            let is_earlier = (rollout.started_at, &place) < (turn.began, &own);
            let queues = rollout.waiting_for.parse() == Ok(WaitingFor::Turn) && is_earlier;
            let cause = rollout.cause.parse().unwrap_or(Cause::TemplateChanged);
            let list = if rolls { &mut rolling } else { &mut queued };
            if place != own && !cause.only_creates() && (rolls || queues) {
                list.push((rollout.started_at, place, cause));
            }
        };
        for view in views {
            for fleet in view.fleets.list_all(|fleet| fleet.spec.is_ok()) {
                look(FleetKind::Nodes, &fleet.meta, &fleet.status);
            }
            for rollout in view.rollouts.list_all(|rollout| rollout.spec.is_ok()) {
                look(FleetKind::Pods, &rollout.meta, &rollout.status.rollout);
            }
        }
        let named = |mut list: Vec<(DateTime<Utc>, Place, Cause)>| {
            list.sort();
            let name = |(kind, key): Place| argument_of(kind.short(), &key.name, &key.namespace);
            list.into_iter().map(|(_, place, cause)| (name(place), cause)).collect()
        };
        let why = self.limits.why_not(turn.cause, named(rolling), named(queued));
        if why.is_none() {
            begun.insert(own, turn.plan.clone());
        }
        why
    }
}

fn place(namespace: &str, of: &Predecessor) -> Place {
    let kind = if of.kind == "StatefulSetRollout" { FleetKind::Pods } else { FleetKind::Nodes };
    (kind, Key::new(namespace, of.name.as_str()))
}
