//! Results of pure functions, so that they are not computed in each reconcile: hashing and parsing are most of its work.
//! A process that starts with an empty cache computes them once more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};

use super::remembered::{Remembered, Subject};
use crate::api::{AtHook, BuildId, PodTemplateHash, RemovalId, RestartTime, RolloutHash, StatefulNodeSpec};
use crate::planner::fleet::Rendering;
use crate::planner::node::RenderedTarget;
use windlass_kube_port::observed::{ObservedFleet, ObservedNode};

/// The result of rendering a node's spec, at one generation and with one restart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RenderedSpec {
    /// The generation of the spec.
    pub generation: i64,
    /// The restart that applies.
    pub restart: Option<RestartTime>,
    /// The result. Nodes with the same content share it in memory.
    pub found: Arc<RenderedTarget>,
}

/// What a fleet needs to know about the plan of one of its nodes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReadPlan {
    /// True if the plan is active and may replace the pod.
    pub rolling: bool,
    /// True if the plan is active and lets claims grow.
    pub grows: bool,
    /// True if the plan is active and removes the node.
    pub leaves: bool,
    /// When it began.
    pub started_at: Option<DateTime<Utc>>,
    /// True if it has begun a hook at `BeforeRemove`.
    pub began_removal_hook: bool,
    /// The removal that the plan waits for, if it waits for nothing else.
    pub awaited_removal: Option<RemovalId>,
    /// The current hook.
    pub at_hook: Option<Box<AtHook>>,
    /// The target of a plan that has marked the node ready, and when.
    pub marked: Option<Box<(PodTemplateHash, DateTime<Utc>)>>,
    /// The target of a plan that has replaced the node's pod, and when.
    pub replaced: Option<Box<(PodTemplateHash, DateTime<Utc>)>>,
}

/// The number of contents that are remembered: two for each rollout, for a few fleets that roll at the same time.
const MAX_CONTENTS: usize = 16;

/// Results that depend on the content of a spec only, that is, on the fields that are the same in all nodes of a
/// revision. Thousands of nodes share an entry.
pub struct ByContent<V> {
    known: Mutex<VecDeque<(Arc<StatefulNodeSpec>, String, V)>>,
}

impl<V> Default for ByContent<V> {
    fn default() -> Self {
        Self { known: Mutex::default() }
    }
}

impl<V: Clone> ByContent<V> {
    /// Returns the result for this content and the text `beside`, which is computed if it is not remembered.
    pub fn of<E>(
        &self,
        spec: &Arc<StatefulNodeSpec>,
        beside: &str,
        find: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        let is_of_content = |entry: &&(Arc<StatefulNodeSpec>, String, V)| {
            entry.1 == beside && has_same_content(&entry.0, spec)
        };
        if let Some((_, _, found)) = self.known().iter().find(is_of_content) {
            return Ok(found.clone());
        }
        let found = find()?;
        let mut known = self.known();
        known.truncate(MAX_CONTENTS - 1);
        known.push_front((spec.clone(), beside.to_owned(), found.clone()));
        Ok(found)
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<(Arc<StatefulNodeSpec>, String, V)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if two specs certainly have the same content. Equal templates are shared in memory.
fn has_same_content(a: &StatefulNodeSpec, b: &StatefulNodeSpec) -> bool {
    let StatefulNodeSpec {
        image,
        main_container,
        pod_template,
        volume_claim_templates,
        volume_claim_retention,
        ports,
        service_annotations,
        sidecar,
        progress_deadline_seconds,
        // Fields for a single node.
        suspend: _,
        granted_hash: _,
        grant_id: _,
        halt_height: _,
        halt_task_id: _,
        watch_sidecar: _,
        removal_id: _,
        move_: _,
        claim_sizes: _,
    } = a;
    pod_template.is_same(&b.pod_template)
        && volume_claim_templates.is_same(&b.volume_claim_templates)
        && *image == b.image
        && *main_container == b.main_container
        && *sidecar == b.sidecar
        && *ports == b.ports
        && *service_annotations == b.service_annotations
        && *volume_claim_retention == b.volume_claim_retention
        && *progress_deadline_seconds == b.progress_deadline_seconds
}

/// Nodes of a fleet for which a check found nothing to do and nothing to report.
pub struct Settled {
    /// The fleet at the time of the check.
    fleet: Arc<ObservedFleet>,
    /// What else the check depended on.
    beside: String,
    /// The nodes at the time of the check, sorted by address. The references keep the addresses from being reused.
    nodes: Vec<Arc<ObservedNode>>,
}

impl Settled {
    /// Records these nodes of this fleet.
    #[must_use]
    pub fn new(fleet: Arc<ObservedFleet>, beside: String, mut nodes: Vec<Arc<ObservedNode>>) -> Self {
        nodes.sort_unstable_by_key(Arc::as_ptr);
        Self { fleet, beside, nodes }
    }

    /// True if nothing has changed since that applies at once, neither in the fleet nor in `beside`.
    #[must_use]
    pub fn holds(&self, fleet: &ObservedFleet, beside: &str) -> bool {
        let (now, then) = (&fleet.status, &self.fleet.status);
        let same_spec =
            matches!((&fleet.spec, &self.fleet.spec), (Ok(now), Ok(then)) if Arc::ptr_eq(now, then));
        same_spec
            && self.beside == beside
            && now.rollout == then.rollout
            && now.plan == then.plan
            && now.retiring == then.retiring
            && now.deletion_policy == then.deletion_policy
            && now.volume_claim_retention == then.volume_claim_retention
    }

    /// True if the node is one of them and has not changed.
    #[must_use]
    pub fn has(&self, node: &Arc<ObservedNode>) -> bool {
        self.nodes.binary_search_by_key(&Arc::as_ptr(node), Arc::as_ptr).is_ok()
    }
}

/// The content of a fleet's nodes, which is no object.
impl Subject for (RolloutHash, Option<RestartTime>) {
    fn subject(&self) -> &str {
        self.0.as_str()
    }
}

/// The results.
#[derive(Default)]
pub struct Computed {
    /// By object UID and build ID: a generation, and the rollout hash of the spec at that generation.
    pub spec_hashes: Remembered<(String, Option<BuildId>), (i64, RolloutHash)>,
    /// By node UID: a resourceVersion, and the node's plan at that version.
    pub plans: Remembered<str, (String, ReadPlan)>,
    /// By content of a node's spec and build ID: the rollout hash.
    pub rollout_hashes: ByContent<RolloutHash>,
    /// By content of a node's spec and restart: the pod template hash and the main container's image.
    pub template_hashes: ByContent<Arc<RenderedTarget>>,
    /// By node UID: the last result of rendering its spec.
    pub rendered: Remembered<str, RenderedSpec>,
    /// By rollout hash and restart: the pod template hash and the main container's image.
    pub renderings: Remembered<(RolloutHash, Option<RestartTime>), Rendering>,
    /// By fleet UID: the nodes that already have everything that applies at once, while the same set serves.
    pub settled: Remembered<str, Arc<Settled>>,
    /// By fleet UID: the nodes whose claims already follow the fleet's spec, for one state of the claims.
    pub released: Remembered<str, Arc<Settled>>,
    /// By fleet UID and node name: the key of a topology, and the domain in which the node's pod last was.
    pub domains: Remembered<str, (String, String)>,
}

impl Computed {
    /// Removes what was computed of the object with this UID.
    pub fn forget(&self, uid: &str) {
        let Self {
            spec_hashes,
            plans,
            rendered,
            settled,
            released,
            domains,
            // By content, which many objects share.
            rollout_hashes: _,
            template_hashes: _,
            renderings: _,
        } = self;
        spec_hashes.forget(uid);
        plans.forget(uid);
        rendered.forget(uid);
        settled.forget(uid);
        released.forget(uid);
        domains.forget(uid);
    }

    /// The number of entries about objects, by the name of the map.
    #[cfg(test)]
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("spec_hashes", self.spec_hashes.size()),
            ("plans", self.plans.size()),
            ("rendered", self.rendered.size()),
            ("settled", self.settled.size()),
            ("released", self.released.size()),
            ("domains", self.domains.size()),
        ]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::convert::Infallible;

    use serde_json::{Value, json};

    use super::*;
    use windlass_kube_port::observed::Observed;

    fn node(version: u32, spec: &Value) -> Arc<ObservedNode> {
        let metadata = json!({"name": "db-0", "uid": "u", "resourceVersion": version.to_string(), "generation": version});
        Arc::new(ObservedNode::read(&json!({"metadata": metadata, "spec": spec})))
    }

    #[test]
    fn cached_results_are_shared_by_equal_content_only() {
        let spec = |image: &str, grant: &str| {
            let template = json!({"spec": {"containers": [{"name": "db", "image": "by content"}]}});
            node(1, &json!({"image": image, "grantID": grant, "podTemplate": template})).spec.clone().unwrap()
        };
        let known = ByContent::default();
        let of = |spec: &Arc<StatefulNodeSpec>, beside: &str, found: u32| {
            let Ok(found) = known.of(spec, beside, || Ok::<_, Infallible>(found));
            found
        };
        assert_eq!(of(&spec("db:1", "a"), "", 1), 1);
        assert_eq!(of(&spec("db:1", "b"), "", 2), 1, "what is said to one node is no content");
        assert_eq!(of(&spec("db:2", "a"), "", 3), 3);
        assert_eq!(of(&spec("db:1", "a"), "a restart", 4), 4);
        for image in 0..MAX_CONTENTS {
            of(&spec(&image.to_string(), ""), "", 5);
        }
        assert_eq!(
            (of(&spec("db:1", "a"), "", 6), known.known().len()),
            (6, MAX_CONTENTS),
            "it is forgotten"
        );
    }

    #[test]
    fn node_is_settled_until_it_or_its_fleet_changes() {
        let fleet = |status: Value| {
            let spec = json!({"replicas": 1, "updateStrategy": {"type": "InPlace"},
                "template": {"spec": {"podTemplate": {"spec": {}}}}});
            ObservedFleet::read(&json!({"metadata": {"name": "db"}, "spec": spec, "status": status}))
        };
        let then = fleet(json!({"phase": "Running"}));
        assert_eq!(then.spec.as_ref().err(), None);
        let (known, changed) = (node(1, &json!({"podTemplate": {}})), node(1, &json!({"podTemplate": {}})));
        let settled = Settled::new(
            Arc::new(then.clone()),
            "first".to_owned(),
            vec![known.clone(), node(2, &json!({}))],
        );
        assert!(settled.has(&known) && !settled.has(&changed), "another object in memory is another state");
        let with = |status: Value| ObservedFleet { status: fleet(status).status, ..then.clone() };
        assert!(settled.holds(&with(json!({"phase": "Failed"})), "first"), "the phase applies to no node");
        assert!(!settled.holds(&then, "second"));
        assert!(!settled.holds(&with(json!({"deletionPolicy": "Retain"})), "first"));
        assert!(!settled.holds(&with(json!({"volumeClaimRetention": "Retain"})), "first"));
        assert!(
            !settled.holds(
                &with(json!({"retiring": [{"set": "first", "since": "2030-01-01T00:00:00Z"}]})),
                "first"
            )
        );
        assert!(!settled.holds(&with(json!({"rollout": {"entrantSet": "second"}})), "first"));
        assert!(!settled.holds(&fleet(json!({})), "first"), "a spec that was read anew may be another");
    }
}
