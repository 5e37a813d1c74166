//! The fleet's PodDisruptionBudget. Nothing waits for it: what keeps the fleet from having it is only reported.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ReconcileError;
use super::fleet_objects::{identity, moved_to};
use super::patches::{metadata_change, metadata_ops};
use super::reverted::{self, budget_of};
use crate::api::names::{LABEL_DEPLOYMENT, LABEL_SET};
use crate::api::{IntOrString, SetName, TemplateMeta};
use crate::observe::FleetScope;
use crate::observe::fleet_scope::owner_reference;
use crate::planner::fleet::budget::{BudgetProblem, min_available};
use crate::render::fleet_selector;
use windlass_kube_port::observed::{ObservedBudget, Owner};
use windlass_kube_port::{ClusterError, Kind, PatchOp, Target};

const KIND: Kind = Kind::PodDisruptionBudget;

/// Brings the fleet's PodDisruptionBudget to what the spec says. Returns what keeps it from that.
pub async fn apply(fleet: &FleetScope) -> Result<Option<BudgetProblem>, ReconcileError> {
    match write(fleet).await {
        Ok(problem) => Ok(problem),
        // Somebody else has just created or deleted it; the watch shows that.
        Err(ClusterError::AlreadyExists { .. } | ClusterError::NotFound { .. }) => Ok(None),
        Err(error) => {
            let error = ReconcileError::Children(error);
            let why = error.refused().or_else(|| error.refused_delete()).or_else(|| error.denial());
            why.map(|why| Some(BudgetProblem::rejected(&why))).ok_or(error)
        }
    }
}

async fn write(fleet: &FleetScope) -> Result<Option<BudgetProblem>, ClusterError> {
    let meta = &fleet.fleet.meta;
    let known = fleet.view.budgets.get(&meta.key());
    // One of a fleet of the same name that was deleted goes by itself.
    let is_of_earlier = |known: &ObservedBudget| {
        let owner = known.meta.controller();
        let is_fleets = |owner: &Owner| owner.kind == Kind::NodeDeployment.name() && owner.name == meta.name;
        owner.is_some_and(is_fleets) && !fleet.owns(&known.meta)
    };
    if known.as_ref().is_some_and(|known| known.meta.terminating || is_of_earlier(known)) {
        return Ok(None);
    }
    let (own, other) = match known {
        Some(known) if fleet.owns(&known.meta) => (Some(known), None),
        known => (None, known),
    };
    let wanted = min_available(&fleet.spec, fleet.facts().children.len());
    let service = fleet.view.services.get(&meta.key());
    let set = moved_to(fleet, service.as_deref()).unwrap_or_else(|| fleet.facts().set.clone());
    let problem = || {
        let taken = other.map(|other| BudgetProblem::name_taken(&meta.name, &fleet.whose(&other.meta)));
        taken.or_else(|| overlap(fleet, &set))
    };
    let problem = wanted.and_then(|_| problem());
    let Some(wanted) = wanted.filter(|_| problem.is_none()) else {
        if let Some(own) = own {
            fleet.cluster.delete(Target::of(KIND, &own.meta)).await?;
        }
        return Ok(problem);
    };
    let Some(own) = own else {
        fleet.cluster.create(KIND, manifest(fleet, wanted, &set)).await?;
        return Ok(None);
    };
    let ops_of = |own: &ObservedBudget| ops(fleet, own, wanted, &set);
    let (probes, id) = (&fleet.caches.probes, budget_of(&meta.uid));
    let due = reverted::due(probes, &id, &own.meta, ops_of(&own));
    if !due.is_empty() {
        let target = Target::of(KIND, &own.meta);
        reverted::write((fleet.cluster.as_ref(), probes), &id, target, due, ops_of).await?;
    }
    let stored = fleet.view.budgets.get(&meta.key());
    let reverted = stored.and_then(|stored| reverted::sentence(probes, &id, &stored.meta));
    Ok(reverted.map(|sentence| BudgetProblem::rejected(&sentence)))
}

/// Another budget that selects pods of the set that serves.
fn overlap(fleet: &FleetScope, set: &SetName) -> Option<BudgetProblem> {
    let meta = &fleet.fleet.meta;
    // Windlass' budgets of other fleets select by the names of these.
    let is_of_another = |budget: &ObservedBudget| {
        budget.meta.is_managed() && budget.meta.label(LABEL_DEPLOYMENT) != Some(&meta.name)
    };
    let others = fleet.view.budgets.list(&meta.namespace, |budget| {
        budget.meta.name != meta.name && !budget.meta.terminating && !is_of_another(budget)
    });
    if others.is_empty() {
        return None;
    }
    let pods = fleet.view.pods.group(&meta.namespace, &meta.name);
    let of_set = pods.iter().filter(|pod| pod.meta.label(LABEL_SET) == Some(set.as_str()));
    let mut labels: Vec<BTreeMap<String, String>> = of_set
        .map(|pod| pod.meta.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
        .collect();
    if labels.is_empty() {
        labels.push(labels_of_template(fleet, set));
    }
    BudgetProblem::overlap(others.iter().map(AsRef::as_ref), &labels)
}

/// The labels that all pods of a set will have.
fn labels_of_template(fleet: &FleetScope, set: &SetName) -> BTreeMap<String, String> {
    let template = &fleet.spec.template.spec.pod_template["metadata"]["labels"];
    let texts = template.as_object().into_iter().flatten();
    let mut labels: BTreeMap<String, String> =
        texts.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    labels.extend(fleet_selector(&fleet.fleet.meta.name, set));
    labels
}

fn selector(fleet: &FleetScope, set: &SetName) -> Value {
    json!({"matchLabels": fleet_selector(&fleet.fleet.meta.name, set)})
}

/// Under `deletionPolicy: Retain` it is deleted with the fleet as well: nobody would adjust it any more.
fn manifest(fleet: &FleetScope, min_available: i32, set: &SetName) -> Value {
    let meta = &fleet.fleet.meta;
    json!({
        "apiVersion": KIND.api_version(),
        "kind": KIND.name(),
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": identity(fleet).labels(),
            "ownerReferences": [owner_reference(meta)],
        },
        "spec": {"minAvailable": min_available, "selector": selector(fleet, set)},
    })
}

/// The operations that bring the budget to its desired state. Windlass leaves all other fields alone.
fn ops(fleet: &FleetScope, own: &ObservedBudget, min_available: i32, set: &SetName) -> Vec<PatchOp> {
    let labels = TemplateMeta { labels: identity(fleet).labels(), ..TemplateMeta::default() };
    let change = metadata_change(&own.meta, &TemplateMeta::default(), &labels);
    let mut ops = metadata_ops(&own.meta, &change);
    if own.min_available != Some(IntOrString::Int(min_available)) {
        ops.push(PatchOp::set("/spec/minAvailable", json!(min_available)));
    }
    if own.max_unavailable.is_some() {
        ops.push(PatchOp::remove("/spec/maxUnavailable"));
    }
    let selector = selector(fleet, set);
    if json!(own.selector) != selector {
        ops.push(PatchOp::set("/spec/selector", selector));
    }
    ops
}
