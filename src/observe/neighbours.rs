//! The other fleets of the operator: which of them come before a fleet, and how many roll now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::api::conditions::{self, UP_TO_DATE};
use crate::api::names::{ANNOTATION_RELEASE, argument_of};
use crate::api::{NodeDeploymentStatus, PlanId, Predecessor, RawPlan};
use crate::planner::fleet::gate::Limits;
use crate::planner::fleet::{Cause, FleetKind};
use windlass_kube_port::observed::Meta;
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

/// What is known of a fleet.
struct Neighbour {
    meta: Meta,
    status: Box<NodeDeploymentStatus>,
    after: Vec<Predecessor>,
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

    fn get(&self, (kind, key): &Place) -> Option<Neighbour> {
        self.views.get()?.iter().find_map(|view| match kind {
            FleetKind::Nodes => view.fleets.get(key).map(|fleet| Neighbour {
                after: fleet.spec.as_ref().map(|spec| spec.update_strategy.after.clone()).unwrap_or_default(),
                meta: fleet.meta.clone(),
                status: fleet.status.clone(),
            }),
            FleetKind::Pods => view.rollouts.get(key).map(|rollout| Neighbour {
                after: rollout.spec.as_ref().map(|spec| spec.strategy.after.clone()).unwrap_or_default(),
                meta: rollout.meta.clone(),
                status: Box::new(rollout.status.rollout.clone()),
            }),
        })
    }

    /// What a fleet waits for, in a sentence: the first of its predecessors that is not up to date.
    pub(super) fn why_after(&self, meta: &Meta, after: &[Predecessor]) -> Option<String> {
        self.views.get()?;
        let release = meta.annotation(ANNOTATION_RELEASE);
        after.iter().find_map(|of| {
            let name = format!("{} {}", of.kind, of.name);
            let Some(other) = self.get(&place(&meta.namespace, of)) else {
                return Some(format!(
                    "waiting for {name}, which does not exist or is not read by this operator"
                ));
            };
            let Some(why) = why_not_up_to_date(&other) else {
                let has = other.meta.annotation(ANNOTATION_RELEASE).unwrap_or("none");
                return release.filter(|release| *release != has).map(|release| {
                    format!("waiting for {name} to have {ANNOTATION_RELEASE}={release}, and not {has}")
                });
            };
            Some(format!("waiting for {name} to be up to date{why}"))
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
                paths.extend(other.after.iter().map(|of| {
                    let mut longer = path.clone();
                    longer.push(of.clone());
                    longer
                }));
            }
        }
        None
    }

    /// Takes a turn for the rollout with this plan, or says what it waits for. A turn ends once the status of the fleet says
    /// that no rollout is active, or that it waits again.
    pub(super) fn why_no_turn(
        &self,
        kind: FleetKind,
        meta: &Meta,
        plan: &PlanId,
        cause: Cause,
    ) -> Option<String> {
        let views = self.views.get()?;
        if !self.limits.apply_to(cause) {
            return None;
        }
        if !views.iter().all(|view| view.is_ready()) {
            return Some("waiting until the other fleets are known: see --max-rollouts".to_owned());
        }
        let own = (kind, meta.key());
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others = Vec::new();
        let mut look = |kind: FleetKind, of: &Meta, status: &NodeDeploymentStatus| {
            let at = (kind, of.key());
            let Some(rollout) = status.rollout.as_ref().filter(|_| !of.terminating) else {
                begun.remove(&at);
                return;
            };
            if begun.get(&at) != status.plan.as_ref().and_then(RawPlan::id).as_ref() {
                begun.remove(&at);
            }
            if at != own && (!rollout.waiting || begun.contains_key(&at)) {
                let cause = rollout.cause.parse().unwrap_or(Cause::TemplateChanged);
                others.push((argument_of(kind.short(), &of.name, &of.namespace), cause));
            }
        };
        for view in views {
            for fleet in view.fleets.list_all(|_| true) {
                look(FleetKind::Nodes, &fleet.meta, &fleet.status);
            }
            for rollout in view.rollouts.list_all(|_| true) {
                look(FleetKind::Pods, &rollout.meta, &rollout.status.rollout);
            }
        }
        others.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        let why = self.limits.why_not(cause, &others);
        if why.is_none() {
            begun.insert(own, plan.clone());
        }
        why
    }
}

fn place(namespace: &str, of: &Predecessor) -> Place {
    let kind = if of.kind == "StatefulSetRollout" { FleetKind::Pods } else { FleetKind::Nodes };
    (kind, Key::new(namespace, of.name.as_str()))
}

/// Why a fleet is not up to date, as the end of a sentence; `None` if it is.
fn why_not_up_to_date(other: &Neighbour) -> Option<String> {
    let Neighbour { meta, status, .. } = other;
    if meta.terminating {
        return Some(", which is being deleted".to_owned());
    }
    let is_up_to_date = conditions::is_true(&status.conditions, UP_TO_DATE) && status.rollout.is_none();
    if is_up_to_date && status.observed_generation == meta.generation {
        return None;
    }
    let condition =
        conditions::find(&status.conditions, UP_TO_DATE).filter(|condition| condition.status != "True");
    Some(condition.map_or_else(String::new, |condition| format!(" ({})", condition.reason)))
}
