//! What the tasks of one node are handed: how it is observed, and the port to change it.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::recorder::SidecarRecorder;
use super::restart::effective_restart;
use crate::api::ids::field;
use crate::api::names::{LABEL_DEPLOYMENT, LABEL_SET, claim_name, pod_name};
use crate::api::{MadeFor, PodTemplateHash, RestartTime, StatefulNodeSpec};
use crate::asking::Askers;
use crate::cluster::memory::{CheckedTemplate, FoundTemplate, RenderedSpec};
use crate::cluster::observed::{Meta, ObservedNode, ObservedPod, ObservedService, ObservedSet};
use crate::cluster::{Cluster, ClusterError, Key, Kind, Memory, View};
use crate::engine::TaskError;
use crate::planner::node::{
    LiveSet, NodeFacts, PodFacts, RenderedTarget, Running, SetFact, Template, problem::pod_facts,
    status::SidecarAnswer,
};
use crate::render::{self, NodeIdentity, RenderOptions};
use crate::revision::{self, HashVersion, Hashes, hash::pod_template_hash_under};
use crate::sidecar::SidecarClient;

/// What the tasks of one node are handed.
#[derive(Clone)]
pub struct NodeScope {
    /// The node.
    pub key: Key,
    /// The node that this reconcile decided on, as [`decided_on`] names it: its tasks act on no other.
    pub decided_on: (String, i64, Option<RestartTime>),
    /// What is known of the cluster.
    pub view: Arc<View>,
    /// The port to change it.
    pub cluster: Arc<dyn Cluster>,
    /// What this process has learned.
    pub memory: Arc<Memory>,
    /// What an embedding platform adds to pods.
    pub options: Arc<RenderOptions>,
    /// The way to sidecars, for tasks of one's own. It is waited for: what Windlass itself asks goes through the askers.
    pub sidecars: Arc<dyn SidecarClient>,
    /// Those who ask sidecars beside the reconciles.
    pub askers: Arc<Askers>,
    /// The time of this reconcile.
    pub now: DateTime<Utc>,
    /// What the sidecar answered, as this reconcile knows it.
    pub answers: SidecarRecorder,
}

/// A node and what its spec renders to.
pub struct Rendered {
    /// The pod template, without the node's identity.
    pub template: Value,
    /// Its hash.
    pub hash: PodTemplateHash,
    /// Its hashes under every algorithm.
    pub hashes: Hashes<PodTemplateHash>,
    /// The main container's image.
    pub image: String,
}

/// To whom an existing StatefulSet or Service of a node's name belongs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Belongs {
    /// To the node.
    Here,
    /// To an earlier node of the same name; it is being removed.
    Earlier,
    /// To something else, in a sentence.
    Elsewhere(String),
}

impl NodeScope {
    /// The node as it is known now.
    #[must_use]
    pub fn node(&self) -> Option<Arc<ObservedNode>> {
        self.view.nodes.get(&self.key)
    }

    /// The node, or an error for a task: since this reconcile began it went, or its spec became another one.
    /// The plan is not made for that, and its tasks must not carry it out.
    pub fn require(&self) -> Result<Arc<ObservedNode>, TaskError> {
        let gone = || TaskError::transient(format!("StatefulNode {} is gone", self.key));
        let node = self.node().ok_or_else(gone)?;
        let now = decided_on(&node);
        if now.0 != self.decided_on.0 {
            return Err(gone());
        }
        if now != self.decided_on {
            return Err(TaskError::transient(format!(
                "what is wanted of StatefulNode {} has just changed",
                self.key
            )));
        }
        Ok(node)
    }

    /// The StatefulSet with its name, which may belong to something else.
    #[must_use]
    pub fn set(&self) -> Option<Arc<ObservedSet>> {
        self.view.stateful_sets.get(&self.key)
    }

    /// The Service with its name, which may belong to something else.
    #[must_use]
    pub fn service(&self) -> Option<Arc<ObservedService>> {
        self.view.services.get(&self.key)
    }

    /// The pod with its name, which may belong to something else.
    #[must_use]
    pub fn pod(&self) -> Option<Arc<ObservedPod>> {
        self.view.pods.get(&Key::new(&self.key.namespace, pod_name(&self.key.name)))
    }

    /// Everything that a decision rests on, as it is known now.
    #[must_use]
    pub fn facts(&self, node: &ObservedNode) -> NodeFacts {
        let set = self.set();
        let set_fact = match set.as_deref() {
            None => SetFact::Missing,
            Some(set) => match belongs(&set.meta, &node.meta, "StatefulSet") {
                Belongs::Here if !set.meta.terminating => SetFact::Live(self.live(node, set)),
                // One that belongs elsewhere the controller reports; nothing may be decided on it.
                Belongs::Here | Belongs::Earlier | Belongs::Elsewhere(_) => SetFact::Leaving,
            },
        };
        let set_uid = set.as_ref().map(|s| s.meta.uid.as_str());
        let status = &node.status;
        let wanted = self.wanted(node);
        let normalized = |hash: PodTemplateHash| self.normalize_hash(node, hash);
        let said_by = |made_for: MadeFor| MadeFor { hash: normalized(made_for.hash), ..made_for };
        let rendered = wanted.as_ref().map(|wanted| &wanted.hash).ok();
        let pod = self.pod().map(|pod| {
            let main = main_container_of(&pod, node, rendered);
            let facts = pod_facts(&pod, &main, set_uid, status.problem.as_ref(), self.now);
            PodFacts { made_for: facts.made_for.map(said_by), ..facts }
        });
        let spec = node.spec.as_ref();
        NodeFacts {
            wanted,
            granted_hash: spec.ok().and_then(|s| s.granted()),
            grant_id: spec.ok().and_then(|s| s.grant_id()),
            spent_grant_id: status.spent_grant_id(),
            set: set_fact,
            // The pod of a StatefulSet of somebody else, or of an earlier node of this name, says nothing of
            // this node. Where the StatefulSet is lost, the pod is its own if it was known to be.
            pod: pod.filter(|p| match set.as_deref() {
                Some(set) => p.owned && belongs(&set.meta, &node.meta, "StatefulSet") == Belongs::Here,
                None => p.uid == status.pod_uid,
            }),
            refused: self.memory.no_pod.get(&node.meta.uid).and_then(|known| known.why),
            previous: Running {
                hash: status.running().map(normalized),
                image: status.current_image.clone(),
                pod_uid: Some(status.pod_uid.clone()).filter(|uid| !uid.is_empty()),
            },
            terminating: node.meta.terminating,
            suspended: spec.is_ok_and(|s| s.suspend),
            removal_id: spec.ok().and_then(|s| s.removal_id()),
        }
    }

    fn live(&self, node: &ObservedNode, set: &ObservedSet) -> LiveSet {
        let named = set.made_for.as_ref().map(|made_for| made_for.main_container.as_str());
        let main = named.unwrap_or_else(|| main_container(node));
        let image = set.images.iter().find(|(name, _)| name == main).or_else(|| set.images.first());
        let recorded = node.status.stateful_set.as_ref().filter(|recorded| recorded.uid == set.meta.uid);
        let mut known_revisions = recorded.map(|recorded| recorded.revisions.clone()).unwrap_or_default();
        let mut unwritten = self.memory.revisions.get(&set.meta.uid).unwrap_or_default();
        unwritten.retain(|revision| !known_revisions.contains(revision));
        known_revisions.extend(unwritten);
        LiveSet {
            uid: set.meta.uid.clone(),
            generation: set.meta.generation,
            template: self.template(node, set).unwrap_or(Template::Unknown),
            observed: set.is_observed(),
            update_revision: set.update_revision.clone(),
            known_revisions,
            made_for: set.made_for.as_deref().map(|made_for| MadeFor {
                hash: self.normalize_hash(node, made_for.hash.clone()),
                ..made_for.clone()
            }),
            template_digest: set.template_digest.clone(),
            main_image: image.map(|(_, image)| image.clone()).unwrap_or_default(),
        }
    }

    /// What the StatefulSet's template is; `None` when that has to be asked of the API server first.
    #[must_use]
    pub fn template(&self, node: &ObservedNode, set: &ObservedSet) -> Option<Template> {
        let generation = set.meta.generation;
        if let Some(known) = self.memory.templates.get(&set.meta.uid).filter(|k| k.generation == generation) {
            match known.found {
                FoundTemplate::Rendered(hash) => return Some(Template::At(self.normalize_hash(node, hash))),
                FoundTemplate::OtherThan(hash) => {
                    if self.wanted(node).is_ok_and(|wanted| wanted.hash == hash) {
                        return Some(Template::Unknown);
                    }
                }
            }
        }
        let recorded = node.status.stateful_set.as_ref().filter(|recorded| recorded.uid == set.meta.uid);
        let untouched = recorded.is_some_and(|recorded| {
            // What the API server once made of our own write is ours, whatever it would make of it now.
            let same = !set.template_digest.is_empty() && recorded.template_digest == set.template_digest;
            recorded.generation == generation || same
        });
        set.written_for().filter(|_| untouched).map(|hash| Template::At(self.normalize_hash(node, hash)))
    }

    /// The hash and image of what the node's spec renders to; an error is a sentence about the spec.
    pub fn wanted(&self, node: &ObservedNode) -> Result<RenderedTarget, String> {
        let (hashes, image) = self.hashes(node)?;
        Ok(RenderedTarget { hash: self.preferred_hash(node, &hashes), image })
    }

    /// What the node's spec renders to, under every algorithm. It is asked for many times in a reconcile, and hashing is
    /// most of a reconcile's work: what was found is remembered.
    fn hashes(&self, node: &ObservedNode) -> Result<(Hashes<PodTemplateHash>, String), String> {
        let (uid, generation, restart) = (&node.meta.uid, node.meta.generation, effective_restart(node));
        let known = self.memory.rendered.get(uid);
        if let Some(known) = known.filter(|k| k.generation == generation && k.restart == restart) {
            let (hashes, image) = &*known.found;
            return Ok((hashes.clone().into(), image.clone()));
        }
        let spec = node.spec.as_ref().map_err(Clone::clone)?;
        let found = || self.rendered(node).map(|found| Arc::new((found.hashes.into(), found.image)));
        let found = self.memory.template_hashes.of(spec, field(restart.as_ref()), found)?;
        self.memory.rendered.put(uid, RenderedSpec { generation, restart, found: found.clone() });
        let (hashes, image) = &*found;
        Ok((hashes.clone().into(), image.clone()))
    }

    /// The hash under which the rendered template is recorded: the granted, running, stamped or planned one, whichever
    /// matches first; otherwise the hash of the newest algorithm.
    fn preferred_hash(&self, node: &ObservedNode, hashes: &Hashes<PodTemplateHash>) -> PodTemplateHash {
        let granted = || node.spec.as_ref().ok().and_then(|spec| spec.granted());
        let written = || self.set().and_then(|set| set.written_for());
        let planned =
            || node.status.plan.as_ref().and_then(|plan| plan.parse().ok()).map(|plan| plan.target_hash);
        let recorded = std::iter::once_with(granted)
            .chain(std::iter::once_with(|| node.status.running()))
            .chain(std::iter::once_with(written))
            .chain(std::iter::once_with(|| planned().and_then(PodTemplateHash::recorded)));
        hashes.first_of(recorded.flatten())
    }

    /// Maps a recorded hash to the one under which the node records the same template.
    fn normalize_hash(&self, node: &ObservedNode, recorded: PodTemplateHash) -> PodTemplateHash {
        if HashVersion::known().len() < 2 {
            return recorded;
        }
        match self.hashes(node) {
            Ok((hashes, _)) if hashes.is(&recorded) => self.preferred_hash(node, &hashes),
            _ => recorded,
        }
    }

    /// What the node's spec renders to; an error is a sentence about the spec.
    pub fn rendered(&self, node: &ObservedNode) -> Result<Rendered, String> {
        let spec = node.spec.as_ref().map_err(Clone::clone)?;
        let restart = effective_restart(node);
        let restart = restart.as_ref().map(RestartTime::as_str);
        let template = render::pod_template(spec, restart, &self.options).map_err(|e| e.to_string())?;
        let hashes = Hashes::of(|version| pod_template_hash_under(version, &template));
        let image = revision::main_image(spec).unwrap_or_default().to_owned();
        Ok(Rendered { template, hash: self.preferred_hash(node, &hashes), hashes, image })
    }

    /// The node's identity for rendering.
    #[must_use]
    pub fn identity(&self, node: &ObservedNode) -> NodeIdentity {
        let meta = &node.meta;
        NodeIdentity {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            deployment: deployment_of(meta),
            set: meta.label(LABEL_SET).map(str::to_owned),
            metadata: render::applied_metadata(&meta.labels, &meta.annotations),
        }
    }

    /// Remembers what a write of ours made of a StatefulSet's template.
    pub fn wrote_template(&self, answer: &Value, hash: &PodTemplateHash) {
        let meta = Meta::read(answer);
        let checked =
            CheckedTemplate { generation: meta.generation, found: FoundTemplate::Rendered(hash.clone()) };
        self.memory.templates.put(&meta.uid, checked);
    }

    /// Notes what the sidecar answered.
    pub fn answered(&self, answer: SidecarAnswer) {
        self.answers.record(answer);
    }

    /// Finds out to whom a name belongs that no watch has shown.
    pub async fn whose(&self, kind: Kind, node: &ObservedNode) -> Result<Option<Belongs>, ClusterError> {
        let found = self.cluster.get(kind, &self.key.namespace, &self.key.name).await?;
        if found.is_some() {
            self.memory.free.take(&(node.meta.uid.clone(), kind));
        }
        Ok(found.map(|object| {
            let owner = belongs(&Meta::read(&object), &node.meta, kind.name());
            if owner != Belongs::Elsewhere(String::new()) && !matches!(owner, Belongs::Elsewhere(_)) {
                self.view.observe(kind, &object);
            }
            owner
        }))
    }
}

/// The name of the main container by a node's spec: the one that is asked for, or the first of the template.
fn main_container(node: &ObservedNode) -> &str {
    let spec = node.spec.as_ref().ok();
    spec.and_then(|s| revision::main_container(&s.main_container, &s.pod_template)).unwrap_or_default()
}

/// The name of a pod's main container. It is that of the template, and never just the pod's first: admission puts containers
/// of its own before those of the template. A pod that was made for another template than the one with the hash `rendered`
/// says which it is.
fn main_container_of(pod: &ObservedPod, node: &ObservedNode, rendered: Option<&PodTemplateHash>) -> String {
    let of_another = pod.made_for().filter(|made_for| Some(&made_for.hash) != rendered);
    of_another.map_or_else(|| main_container(node).to_owned(), |made_for| made_for.main_container)
}

/// The fleet of a node. Its label may have been taken off by hand; a pod made meanwhile would lack it for as long
/// as it lives, and with it its place behind the fleet's Service.
fn deployment_of(node: &Meta) -> Option<String> {
    let owner = node.controller().filter(|owner| owner.kind == Kind::NodeDeployment.name());
    owner.map(|owner| owner.name.clone()).or_else(|| node.label(LABEL_DEPLOYMENT).map(str::to_owned))
}

/// The names of a node's volume claims.
#[must_use]
pub fn claim_names(node: &ObservedNode) -> Vec<String> {
    let spec = node.spec.as_ref().ok();
    let templates = spec.map(|spec| spec.volume_claim_templates.as_slice()).unwrap_or_default();
    let names = templates.iter().filter_map(|t| t["metadata"]["name"].as_str());
    names.map(|name| claim_name(name, &node.meta.name)).collect()
}

/// What a node is and what is wanted of it: its UID, the generation of its spec, and the restart that it is to obey.
#[must_use]
pub fn decided_on(node: &ObservedNode) -> (String, i64, Option<RestartTime>) {
    (node.meta.uid.clone(), node.meta.generation, effective_restart(node))
}

/// To whom an object of a node's name belongs.
#[must_use]
pub fn belongs(object: &Meta, node: &Meta, kind: &str) -> Belongs {
    belongs_by_name(object, Kind::StatefulNode.name(), node, kind)
}

/// To whom an object belongs that is to be controlled by an object of a kind.
#[must_use]
pub fn belongs_by_name(object: &Meta, by: &str, owner: &Meta, kind: &str) -> Belongs {
    if object.is_controlled_by(&owner.uid) {
        return Belongs::Here;
    }
    match object.controller() {
        Some(earlier) if earlier.kind == by && earlier.name == owner.name => Belongs::Earlier,
        other => {
            let whose = other.map_or_else(
                || "has no owner that Windlass knows".to_owned(),
                |o| format!("belongs to {} {}", o.kind, o.name),
            );
            Belongs::Elsewhere(format!(
                "{kind} {} exists and {whose}; Windlass does not touch it: rename or remove it, or give the \
                 node another name",
                object.name
            ))
        }
    }
}

/// A node's spec, or a terminal error for a task.
pub fn spec_of(node: &ObservedNode) -> Result<&StatefulNodeSpec, TaskError> {
    node.spec.as_deref().map_err(|e| TaskError::terminal(e.clone()))
}
