//! What the tasks of hooks are handed: the fleet's list as it is now, what is known of the values, whose plan it is. A node
//! has no hooks of its own: its fleet's are looked up when its plan is carried out, so that a change applies at once and
//! writes nothing.

use std::sync::Arc;

use super::Context;
use crate::api::RawPlan;
use crate::api::names::{
    ANNOTATION_APPROVE, ANNOTATION_OWNER_UID, FIRST_SET, LABEL_DEPLOYMENT, LABEL_SET, place_of, pod_name,
};
use crate::cluster::observed::{Meta, ObservedFleet, ObservedNode};
use crate::cluster::{Key, Kind};
use crate::engine::Plan;
use crate::hooks::Values;
use crate::revision::main_image;
use crate::tasks::hooks::{HookScope, JobOwner, TYPES};

/// What the tasks of hooks in a fleet's plan are handed; `None` where it has no hooks.
pub(super) fn of_fleet(cx: &Context, fleet: &ObservedFleet) -> Option<HookScope> {
    let rollout = fleet.status.rollout.as_ref();
    let set = rollout.map(|rollout| rollout.entrant_set.as_str()).filter(|set| !set.is_empty());
    let mut values = values(fleet)?;
    values.set = Some(set.unwrap_or_else(|| active_set(fleet)).to_owned());
    let spec = fleet.spec.as_ref().ok()?;
    values.image = main_image(&spec.template.spec).map(str::to_owned);
    scope(cx, fleet, &fleet.meta, Kind::NodeDeployment, values)
}

/// What the tasks of hooks in a node's plan are handed; `None` where its fleet has no hooks.
pub(super) fn of_node(cx: &Context, node: &ObservedNode) -> Option<HookScope> {
    let fleet = fleet_of(cx, &node.meta)?;
    let mut values = values(&fleet)?;
    let place = place_of(&fleet.meta.name, &node.meta.name);
    let set = place.map(|(set, _)| set).or_else(|| node.meta.label(LABEL_SET));
    values.set = set.map(str::to_owned);
    values.ordinal = place.map(|(_, ordinal)| ordinal.to_string());
    values.node = Some(node.meta.name.clone());
    values.image = node.spec.as_ref().ok().and_then(|spec| main_image(spec)).map(str::to_owned);
    let pod = pod_name(&node.meta.name);
    let found = cx.view.pods.get(&Key::new(&node.meta.namespace, &pod));
    values.pod = Some(pod);
    // An address that a pod gave back may be another one's by now.
    values.pod_ip = found.filter(|pod| !pod.meta.terminating && !pod.ip.is_empty()).map(|pod| pod.ip.clone());
    scope(cx, &fleet, &node.meta, Kind::StatefulNode, values)
}

fn scope(cx: &Context, fleet: &ObservedFleet, owner: &Meta, kind: Kind, values: Values) -> Option<HookScope> {
    let spec = fleet.spec.as_ref().ok()?;
    let paused = || format!("waiting for fleet {} to be resumed: spec.paused is true", fleet.meta.name);
    let approved = [owner, &fleet.meta].into_iter().filter_map(|meta| meta.annotation(ANNOTATION_APPROVE));
    Some(HookScope {
        hooks: spec.update_strategy.hooks.iter().cloned().map(Arc::new).collect(),
        owner: JobOwner {
            kind,
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            fleet: fleet.meta.name.clone(),
        },
        values,
        rules: cx.hook_rules.clone(),
        cluster: cx.cluster.clone(),
        askers: cx.hook_askers.clone(),
        approved: approved.map(str::to_owned).collect(),
        skip: None,
        hold: spec.paused.then(paused),
    })
}

/// Whether a plan has something that must outlive this process, and is not persisted yet: that a hook has begun, since when
/// its time runs, and what its task keeps.
pub(super) fn keeps_more(stored: Option<&RawPlan>, plan: &Plan) -> bool {
    let Some(record) = plan.current_task() else { return false };
    if record.progress.is_null() && !TYPES.contains(&record.type_.as_str()) {
        return false;
    }
    let stored = stored.and_then(|stored| stored.parse().ok());
    let kept = stored.as_ref().and_then(|stored| stored.tasks.iter().find(|task| task.id == record.id));
    kept.is_none_or(|kept| {
        (&kept.progress, kept.started_at, kept.attempt)
            != (&record.progress, record.started_at, record.attempt)
    })
}

/// What is known of the values from the fleet alone; `None` where it has no hooks.
fn values(fleet: &ObservedFleet) -> Option<Values> {
    let spec = fleet.spec.as_ref().ok()?;
    if spec.update_strategy.hooks.is_empty() {
        return None;
    }
    let status = &fleet.status;
    let known = |hash: &str| (!hash.is_empty()).then(|| hash.to_owned());
    let rollout = status.rollout.as_ref();
    let from = rollout.and_then(|rollout| known(&rollout.from_hash));
    let target = rollout.and_then(|rollout| known(&rollout.target_hash));
    Some(Values {
        fleet: Some(fleet.meta.name.clone()),
        namespace: Some(fleet.meta.namespace.clone()),
        from_hash: Some(from.unwrap_or_else(|| status.last_completed_rollout_hash.clone())),
        target_hash: Some(target.unwrap_or_else(|| status.requested_rollout_hash.clone())),
        ..Values::default()
    })
}

fn active_set(fleet: &ObservedFleet) -> &str {
    let set = fleet.status.active_set.as_str();
    if set.is_empty() { FIRST_SET } else { set }
}

/// The fleet that a node belongs to.
fn fleet_of(cx: &Context, node: &Meta) -> Option<Arc<ObservedFleet>> {
    let owner = node.controller().filter(|owner| owner.kind == Kind::NodeDeployment.name());
    let (name, uid) = match owner {
        Some(owner) => (owner.name.as_str(), owner.uid.as_str()),
        None => (node.label(LABEL_DEPLOYMENT)?, node.annotation(ANNOTATION_OWNER_UID)?),
    };
    let fleet = cx.view.fleets.get(&Key::new(&node.namespace, name))?;
    (fleet.meta.uid == uid).then_some(fleet)
}
