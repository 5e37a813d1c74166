//! The fleet of a node, whose spec contains the node's hooks.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::api::names::ANNOTATION_ABORT;
use crate::api::{
    Ending, Hook, NodeDeploymentSpec, NodeDeploymentStatus, RawPlan, Rejected, StatefulNodeSpec,
};
use crate::revision::RevisionData;
use windlass_kube_port::observed::{ObservedFleet, ObservedNode};
use windlass_kube_port::{Key, View};

/// The node's view of its fleet.
#[derive(Clone, Debug, Default)]
pub(super) struct OfFleet {
    /// The fleet, if it exists and is not being deleted.
    pub(super) fleet: Option<Arc<ObservedFleet>>,
}

impl OfFleet {
    pub(super) fn of(fleet: Option<Arc<ObservedFleet>>) -> Self {
        Self { fleet: fleet.filter(|fleet| !fleet.meta.terminating) }
    }

    pub(super) fn spec(&self) -> Option<&Arc<NodeDeploymentSpec>> {
        self.fleet.as_ref()?.spec.as_ref().ok()
    }

    /// True if this version cannot read the fleet's spec: which hooks it has, and whether it is paused, is not known.
    pub(super) fn is_unreadable(&self) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| fleet.spec.is_err())
    }

    pub(super) fn hooks(&self) -> &[Hook] {
        self.spec().map(|spec| spec.update_strategy.hooks.as_slice()).unwrap_or_default()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.spec().is_some_and(|spec| spec.paused)
    }

    /// True if the fleet has decided on the spec that it has now, and the node still holds what it decided. Until then
    /// the node is about to be granted something else, and must not be brought to what it was granted before only
    /// because the hook that kept it from there was removed in the same change.
    pub(super) fn has_decided_on(&self, view: &View, node: &ObservedNode, now: DateTime<Utc>) -> bool {
        let (Some(fleet), Ok(spec)) = (&self.fleet, &node.spec) else { return true };
        let status = &fleet.status;
        if status.observed_generation != fleet.meta.generation {
            return false;
        }
        let Some(rollout) = &status.rollout else {
            return !is_given_back(status, spec, node, now);
        };
        if rollout.own_revisions {
            return true;
        }
        // A spec that cannot be carried out, and an abort that is still to be obeyed, leave the rollout as it is.
        let plan = status.plan.as_ref().and_then(RawPlan::id);
        let is_aborted = plan.is_some_and(|id| fleet.meta.annotation(ANNOTATION_ABORT) == Some(id.as_str()));
        let is_wanted = status.rejected.is_some() || status.requested_rollout_hash == rollout.target_hash;
        if !is_wanted || (is_aborted && rollout.entrant().is_none()) {
            return false;
        }
        // Nodes below a partition, and those of a set that is to go, stay at what last completed.
        let held = RevisionData::of(spec);
        let holds = |name: &str| {
            let stored = view.revisions.get(&Key::new(&fleet.meta.namespace, name))?;
            let data = RevisionData::from_value(&stored.data.value()).ok()?;
            Some(data.diff(&held).is_empty())
        };
        holds(&rollout.target_revision).unwrap_or(true) || holds(&status.current_revision) == Some(true)
    }

    /// True if the fleet requests a retry of this hook task of one of its nodes.
    pub(super) fn retries(&self, tried: &str) -> bool {
        let obeyed = self.fleet.as_ref().and_then(|fleet| fleet.status.hook_retry.as_ref());
        obeyed.is_some_and(|retry| retry.tasks.iter().any(|task| task == tried))
    }
}

/// How long a node waits for an abort to replace its grant. There may be nothing to replace it with.
const ABORT_GRACE: TimeDelta = TimeDelta::seconds(60);

/// True if an abort is about to replace a grant that the node has not carried out.
fn is_given_back(
    status: &NodeDeploymentStatus,
    spec: &StatefulNodeSpec,
    node: &ObservedNode,
    now: DateTime<Utc>,
) -> bool {
    let is_aborted = status.rejected.as_ref().and_then(Rejected::ending) == Some(Ending::Aborted);
    let ended = status.history.last().and_then(|entry| entry.finished_at);
    let granted = spec.grant_id().filter(|id| !id.is_by_abort());
    is_aborted
        && ended.is_some_and(|at| now - at < ABORT_GRACE)
        && granted.is_some_and(|id| Some(id) != node.status.spent_grant_id())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use windlass_kube_port::Kind;
    use windlass_kube_port::observed::Observed;

    /// What a fleet of this generation and status has decided for a node whose spec has this image.
    fn has_decided(fleet: &Value, image: &str, seconds: i64) -> bool {
        let view = View::shared();
        let content = |image: &str| json!({"image": image, "podTemplate": {"spec": {"containers": [{"name": "main"}]}}});
        for (name, image) in [("db-1", "db:1"), ("db-2", "db:2")] {
            let spec = serde_json::from_value(content(image)).unwrap();
            view.observe(
                Kind::ControllerRevision,
                &json!({"metadata": {"name": name, "namespace": "shop", "uid": name}, "revision": 1,
                    "data": RevisionData::of(&spec).to_value()}),
            );
        }
        let mut object = json!({"metadata": {"name": "db", "namespace": "shop", "uid": "u", "generation": 3},
            "spec": {"replicas": 2, "updateStrategy": {"type": "InPlace"}, "template": {"spec": content("db:2")}},
            "status": {"observedGeneration": 3, "requestedRolloutHash": "v2", "currentRevision": "db-1",
                "plan": {"id": "0123456789", "state": "Active"}}});
        json_patch::merge(&mut object, fleet);
        let mut node = json!({"metadata": {"name": "db-0", "namespace": "shop", "uid": "n"}, "spec": content(image),
            "status": {"spentGrantID": "0-1"}});
        node["spec"]["grantedHash"] = json!("h");
        node["spec"]["grantID"] = json!("0123456789-4");
        let (fleet, node) = (ObservedFleet::read(&object), ObservedNode::read(&node));
        assert_eq!((fleet.spec.as_ref().err(), node.spec.as_ref().err()), (None, None));
        let fleet = OfFleet::of(Some(Arc::new(fleet)));
        let now = DateTime::from_timestamp(1_900_000_000 + seconds, 0).unwrap();
        fleet.has_decided_on(&view, &node, now)
    }

    #[test]
    fn fleet_decision_covers_nodes_at_their_expected_revision() {
        let to_v2 = json!({"targetHash": "v2", "targetRevision": "db-2", "stage": "Updating"});
        let status = |changes: Value| {
            let mut fleet = json!({"status": {"rollout": to_v2}});
            json_patch::merge(&mut fleet, &json!({"status": changes}));
            fleet
        };
        let mut aborted = status(json!({}));
        aborted["metadata"] = json!({"annotations": {"windlass.dev/abort": "0123456789"}});
        let rejected = json!({"hash": "v2", "planID": "0123456789", "outcome": "Aborted"});
        let ended =
            json!({"planID": "0123456789", "outcome": "Aborted", "finishedAt": "2030-03-17T17:46:40Z"});
        let after = json!({"rollout": null, "rejected": rejected, "history": [ended]});
        let back = json!({"rollout": {"targetHash": "v1", "targetRevision": "db-1"}, "requestedRolloutHash": "v2",
            "rejected": {"hash": "v2", "planID": "0", "outcome": "RolledBack"}});
        for (what, fleet, image, seconds, expected) in [
            ("at its target", status(json!({})), "db:2", 0, true),
            ("below the partition", status(json!({})), "db:1", 0, true),
            ("at neither", status(json!({})), "db:3", 0, false),
            ("a spec that was not looked at", status(json!({"observedGeneration": 2})), "db:2", 0, false),
            (
                "a spec that cannot be carried out",
                status(json!({"requestedRolloutHash": "v3"})),
                "db:2",
                0,
                false,
            ),
            ("an abort that is to be obeyed", aborted, "db:2", 0, false),
            ("rolled back", status(back.clone()), "db:1", 0, true),
            ("to be rolled back", status(back), "db:2", 0, false),
            ("each at its own", status(json!({"rollout": {"ownRevisions": true}})), "db:3", 0, true),
            ("just aborted", status(after.clone()), "db:2", 30, false),
            ("nothing to give back", status(after), "db:2", 90, true),
            ("no rollout", status(json!({"rollout": null})), "db:3", 0, true),
        ] {
            assert_eq!(has_decided(&fleet, image, seconds), expected, "{what}");
        }
    }
}
