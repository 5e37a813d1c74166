//! What the tasks of a fleet are handed: how it is observed, and how its nodes are written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::node_scope::{effective_restart, later, metadata_ops, parse_time};
use crate::api::conditions::{self, READY, SIDECAR_READY};
use crate::api::names::{
    ANNOTATION_ABORT, ANNOTATION_OWNER_UID, ANNOTATION_RESTARTED_AT, ANNOTATION_RETRY, node_name,
};
use crate::api::{NodeDeploymentSpec, RawPlan, StatefulNodeSpec};
use crate::cluster::observed::{Meta, ObservedFleet, ObservedNode, ObservedRevision};
use crate::cluster::{Cluster, ClusterError, Kind, Memory, Part, PatchOp, Target, View};
use crate::planner::fleet::{ChildFacts, Conflict, FleetFacts, Grant, Rendering, Scope};
use crate::planner::node::decide::is_rolling;
use crate::render::{self, MetadataChange, RenderOptions};
use crate::revision::{self, RevisionData};

/// How many grants are written at the same time.
const GRANTS_AT_ONCE: usize = 16;

/// What the tasks of a fleet are handed.
#[derive(Clone)]
pub struct FleetScope {
    /// The fleet as this reconcile sees it.
    pub fleet: Arc<ObservedFleet>,
    /// Its spec.
    pub spec: Arc<NodeDeploymentSpec>,
    /// What is known of the cluster.
    pub view: Arc<View>,
    /// The port to change it.
    pub cluster: Arc<dyn Cluster>,
    /// What this process has learned.
    pub memory: Arc<Memory>,
    /// What an embedding platform adds to pods.
    pub options: Arc<RenderOptions>,
    /// Where the active plan goes.
    pub scope: Scope,
    /// The latest restart that is obeyed (RFC 3339); empty for none.
    pub restarted_at: String,
    /// Why what is wanted cannot be started, in a sentence.
    pub invalid: Option<String>,
    /// The time of this reconcile.
    pub now: DateTime<Utc>,
    /// What was known when somebody last asked in this reconcile.
    pub known: Arc<Mutex<Option<KnownFacts>>>,
}

/// Facts, and at which state of what is known they were put together: the changes of nodes and of revisions so
/// far, and why what is wanted cannot be started. Everything else stays the same for one reconcile.
pub type KnownFacts = ((u64, u64, Option<String>), Arc<FleetFacts>);

impl FleetScope {
    /// Takes a restart that was asked for before there was any node as obeyed: the first nodes are made
    /// with it, and nothing has to be restarted.
    #[must_use]
    pub fn obeying_from_the_start(mut self) -> Self {
        let status = &self.fleet.status;
        if status.last_completed_rollout_hash.is_empty()
            && status.plan.is_none()
            && self.children().is_empty()
            && let Some(asked) = restart_request(&self.fleet.meta, &self.restarted_at)
        {
            self.restarted_at = asked;
        }
        self
    }

    /// The rollout hash of what the spec wants.
    #[must_use]
    pub fn requested(&self) -> String {
        let uid = &self.fleet.meta.uid;
        let generation = self.fleet.meta.generation;
        if let Some((_, hash)) = self.memory.held.get(uid).filter(|(g, _)| *g == generation) {
            return hash;
        }
        let hash = revision::rollout_hash(&self.spec.template.spec, &self.spec.unsafe_custom_build_id);
        self.memory.held.put(uid.clone(), (generation, hash.clone()));
        hash
    }

    /// The revisions of this fleet that are kept and can be read, by rollout hash.
    #[must_use]
    pub fn revisions(&self) -> BTreeMap<String, Arc<ObservedRevision>> {
        let uid = &self.fleet.meta.uid;
        let kept = self.view.revisions.list(&self.fleet.meta.namespace, |r| r.meta.is_controlled_by(uid));
        kept.into_iter().filter_map(|revision| Some((self.rollout_hash_of(&revision)?, revision))).collect()
    }

    fn rollout_hash_of(&self, revision: &ObservedRevision) -> Option<String> {
        if let Some((_, hash)) = self.memory.held.get(&revision.meta.uid) {
            return Some(hash);
        }
        let data = RevisionData::from_value(&revision.data).ok()?;
        let hash = data.rollout_hash(&self.spec.unsafe_custom_build_id);
        self.memory.held.put(revision.meta.uid.clone(), (0, hash.clone()));
        Some(hash)
    }

    /// Whether a node, or the fleet's Service, belongs to this fleet.
    #[must_use]
    pub fn owns(&self, child: &Meta) -> bool {
        let uid = &self.fleet.meta.uid;
        child.is_controlled_by(uid)
            || (child.controller().is_none() && child.annotation(ANNOTATION_OWNER_UID) == Some(uid))
    }

    /// Its nodes as they are known now.
    #[must_use]
    pub fn children(&self) -> Vec<Arc<ObservedNode>> {
        self.view.nodes.list(&self.fleet.meta.namespace, |n| self.owns(&n.meta))
    }

    /// Everything that a decision rests on, as it is known now.
    #[must_use]
    pub fn facts(&self) -> Arc<FleetFacts> {
        // Read first: a change in the middle makes the next to ask look again.
        let changes = self.view.nodes.changes() + self.view.doubts_so_far();
        let at = (changes, self.view.revisions.changes(), self.invalid.clone());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((then, facts)) if *then == at => facts.clone(),
            _ => known.insert((at, Arc::new(self.look()))).1.clone(),
        }
    }

    fn look(&self) -> FleetFacts {
        let (spec, meta, status) = (&self.spec, &self.fleet.meta, &self.fleet.status);
        let requested = self.requested();
        let revisions = self.revisions();
        let mut children: Vec<ChildFacts> = self.children().iter().filter_map(|n| self.child(n)).collect();
        children.sort_by_key(|c| c.ordinal);
        let mut restarts: BTreeSet<&str> = children.iter().map(|c| c.restart.as_str()).collect();
        restarts.insert(&self.restarted_at);
        let mut renderings = BTreeMap::new();
        for (hash, revision) in &revisions {
            for restart in &restarts {
                if let Some(rendering) = self.rendering(hash, revision, restart) {
                    renderings.insert((hash.clone(), (*restart).to_owned()), rendering);
                }
            }
        }
        let annotation = |key| meta.annotation(key).unwrap_or_default().to_owned();
        FleetFacts {
            replicas: spec.replicas,
            max_unavailable: spec.max_unavailable(),
            partition: spec.partition(),
            paused: spec.paused,
            on_stall: spec.update_strategy.on_stall,
            deadline_seconds: spec.update_strategy.progress_deadline_seconds,
            terminating: meta.terminating,
            rejected: status.rejected.clone().filter(|r| r.hash == requested),
            requested,
            last_completed: status.last_completed_rollout_hash.clone(),
            restarted_at: self.restarted_at.clone(),
            restart_request: restart_request(meta, &self.restarted_at),
            scaled_to_zero: status.scaled_to_zero,
            abort: annotation(ANNOTATION_ABORT),
            retry: annotation(ANNOTATION_RETRY),
            invalid: self.invalid.clone(),
            conflicts: self.conflicts(),
            children,
            renderings,
        }
    }

    fn rendering(&self, hash: &str, revision: &ObservedRevision, restart: &str) -> Option<Rendering> {
        let key = (hash.to_owned(), restart.to_owned());
        if let Some((hash, image)) = self.memory.renderings.get(&key) {
            return Some(Rendering { hash, image });
        }
        let spec = RevisionData::from_value(&revision.data).ok()?.apply_to(&self.spec.template.spec);
        let restart = (!restart.is_empty()).then_some(restart);
        let template = render::pod_template(&spec, restart, &self.options).ok()?;
        let rendering = Rendering {
            hash: revision::pod_template_hash(&template),
            image: revision::main_image(&spec).unwrap_or_default().to_owned(),
        };
        self.memory.renderings.put(key, (rendering.hash.clone(), rendering.image.clone()));
        Some(rendering)
    }

    fn child(&self, node: &ObservedNode) -> Option<ChildFacts> {
        let meta = &node.meta;
        let ordinal = ordinal_of(&self.fleet.meta.name, &meta.name)?;
        let status = &node.status;
        let spec = node.spec.as_ref();
        let ready = conditions::find(&status.conditions, READY).filter(|c| c.status == "True");
        let ready_since = ready.map(|c| c.last_transition_time);
        // No wait is no wait, whatever our clock says of the time at which the node became Ready.
        let least = TimeDelta::seconds(self.spec.min_ready_seconds);
        let long_enough = least.is_zero() || ready_since.is_some_and(|since| since + least <= self.now);
        let own_restart = effective_restart(node);
        let unreachable =
            conditions::find(&status.conditions, SIDECAR_READY).is_some_and(|c| c.reason == "Unreachable");
        Some(ChildFacts {
            name: meta.name.clone(),
            ordinal,
            surplus: ordinal >= self.spec.replicas,
            terminating: meta.terminating,
            behind: status.observed_generation != meta.generation
                || self.view.is_in_doubt(Kind::StatefulNode, meta),
            held: self.held(node),
            granted: spec.map(|s| s.granted_hash.clone()).unwrap_or_default(),
            grant_id: spec.map(|s| s.grant_id.clone()).unwrap_or_default(),
            spent_id: status.spent_grant_id.clone(),
            restart: later(&self.restarted_at, &own_restart).to_owned(),
            running: status.pod_template_hash.clone(),
            running_image: status.current_image.clone(),
            rolling: self.rolling(node),
            ready: ready.is_some(),
            ready_since,
            available: ready.is_some() && long_enough,
            ever_ready: status.first_ready_at.is_some(),
            failed: status.phase == "Failed",
            unreachable,
            problem: status.problem.clone(),
        })
    }

    /// Whether a plan that rolls the node is active. Reading a plan costs more than all else that is read of a
    /// node, so it is done once for each time that the node changed.
    fn rolling(&self, node: &ObservedNode) -> bool {
        let (uid, version) = (&node.meta.uid, &node.meta.resource_version);
        if let Some((_, rolling)) = self.memory.rolling.get(uid).filter(|(at, _)| at == version) {
            return rolling;
        }
        let rolling = match node.status.plan.as_ref().map(RawPlan::parse) {
            Some(Ok(plan)) => plan.is_active() && is_rolling(&plan.recipe),
            // What cannot be read may be anything; its executor fails it at its next reconcile.
            Some(Err(_)) => true,
            None => false,
        };
        self.memory.rolling.put(uid.clone(), (version.clone(), rolling));
        rolling
    }

    fn held(&self, node: &ObservedNode) -> String {
        let Ok(spec) = &node.spec else { return String::new() };
        let known = self.memory.held.get(&node.meta.uid).filter(|(g, _)| *g == node.meta.generation);
        known.map_or_else(
            || {
                let hash = revision::rollout_hash(spec, &self.spec.unsafe_custom_build_id);
                self.memory.held.put(node.meta.uid.clone(), (node.meta.generation, hash.clone()));
                hash
            },
            |(_, hash)| hash,
        )
    }

    fn conflicts(&self) -> Vec<Conflict> {
        let meta = &self.fleet.meta;
        let taken = |ordinal| {
            let name = node_name(&meta.name, ordinal);
            let node = self.view.nodes.get(&crate::cluster::Key::new(&meta.namespace, &name))?;
            (!self.owns(&node.meta)).then(|| Conflict {
                message: format!(
                    "template: StatefulNode {name} {}; Windlass does not touch it: delete it, or give the fleet \
                     another name",
                    whose(&node.meta)
                ),
                name,
                ordinal,
            })
        };
        (0..self.spec.replicas).filter_map(taken).collect()
    }

    /// The spec of a node of this fleet at a revision.
    #[must_use]
    pub fn node_spec(&self, revision: &str) -> Option<StatefulNodeSpec> {
        let stored = self.revisions().remove(revision)?;
        let data = RevisionData::from_value(&stored.data).ok()?;
        Some(data.apply_to(&self.spec.template.spec))
    }

    /// Gives these grants, some at the same time: each is a write of its own, and none rests on another. One
    /// that fails does not cut others short: what was written has to be known before anything else is decided.
    pub async fn grant_all(&self, grants: Vec<Grant>, plan_id: &str) -> Result<(), ClusterError> {
        let writes = stream::iter(grants).map(|grant| async move { self.grant(&grant, plan_id).await });
        let results: Vec<Result<(), ClusterError>> = writes.buffer_unordered(GRANTS_AT_ONCE).collect().await;
        results.into_iter().collect()
    }

    /// Writes a revision into a node and grants it, in one guarded write. A node that changed in the
    /// meantime is left for the next reconcile, which its change brings about.
    pub async fn grant(&self, grant: &Grant, plan_id: &str) -> Result<(), ClusterError> {
        let key = crate::cluster::Key::new(&self.fleet.meta.namespace, &grant.name);
        let (Some(node), Some(mut spec)) = (self.view.nodes.get(&key), self.node_spec(&grant.revision))
        else {
            return Ok(());
        };
        spec.granted_hash.clone_from(&grant.hash);
        spec.grant_id = format!("{plan_id}-{}", node.meta.generation);
        spec.suspend = node.spec.as_ref().is_ok_and(|s| s.suspend);
        let mut ops = vec![PatchOp::set("/spec", json!(spec))];
        let own = effective_restart(&node);
        ops.extend(restart_ops(&node.meta, later(&self.restarted_at, &own)));
        match self.cluster.patch(Target::of(Kind::StatefulNode, &node.meta), Part::Main, ops).await {
            Ok(_) | Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The operations that tell a node of a restart; none when it knows.
fn restart_ops(meta: &Meta, restart: &str) -> Vec<PatchOp> {
    if restart.is_empty() || meta.annotation(ANNOTATION_RESTARTED_AT) == Some(restart) {
        return Vec::new();
    }
    let change = MetadataChange {
        annotations: [(ANNOTATION_RESTARTED_AT.to_owned(), Some(restart.to_owned()))].into(),
        ..MetadataChange::default()
    };
    metadata_ops(meta, &change)
}

/// A restart that is asked for and was not yet obeyed.
fn restart_request(meta: &Meta, obeyed: &str) -> Option<String> {
    let asked = meta.annotation(ANNOTATION_RESTARTED_AT)?;
    let asked_at = parse_time(asked)?;
    parse_time(obeyed).is_none_or(|at| asked_at > at).then(|| asked.to_owned())
}

/// Whose a node is that is not this fleet's, in the words after its name.
fn whose(meta: &Meta) -> String {
    if let Some(owner) = meta.controller() {
        return format!("belongs to {} {} (uid {})", owner.kind, owner.name, owner.uid);
    }
    match meta.annotation(ANNOTATION_OWNER_UID) {
        Some(uid) => format!("was left by a fleet that was deleted (uid {uid})"),
        None => "exists and belongs to no fleet".to_owned(),
    }
}

/// The ordinal in a node's name, where it has the form that this fleet gives.
#[must_use]
pub fn ordinal_of(deployment: &str, node: &str) -> Option<i32> {
    let digits = node.strip_prefix(deployment)?.strip_prefix('-')?;
    let canonical = digits == "0" || !digits.starts_with('0');
    (canonical && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

/// The first few of some names, for a sentence.
#[must_use]
pub fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A fleet's `metadata` as a JSON value for a child's owner reference.
#[must_use]
pub fn owner_reference(meta: &Meta) -> Value {
    json!({
        "apiVersion": format!("{}/{}", crate::api::names::GROUP, crate::api::names::VERSION),
        "kind": "NodeDeployment",
        "name": meta.name,
        "uid": meta.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
