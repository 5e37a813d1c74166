//! The scope of one node, which its tasks work with: the observed objects, and the port for changes.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::growth::growth_to;
use super::recorder::SidecarRecorder;
use super::restart::effective_restart;
use crate::api::ids::field;
use crate::api::names::{ANNOTATION_FIRST_START, LABEL_DEPLOYMENT, LABEL_SET, claim_name, pod_name};
use crate::api::{GrantId, PodTemplateHash, RawPlan, RestartTime, StatefulNodeSpec};
use crate::cache::computed::RenderedSpec;
use crate::cache::probes::{CheckedTemplate, FoundTemplate};
use crate::cache::{Caches, Sightings, StatusWrites};
use crate::engine::TaskError;
use crate::planner::growth::Growth;
use crate::planner::node::{
    LiveStatefulSet, NodeFacts, RenderedTarget, Running, StatefulSetFact, Template, problem::pod_facts,
    status::SidecarAnswer,
};
use crate::probe::SidecarProber;
use crate::render::{self, NodeIdentity, RenderOptions};
use crate::revision::{self, pod_template_hash};
use crate::sidecar::SidecarClient;
use windlass_kube_port::observed::{
    Meta, ObservedClaim, ObservedNode, ObservedPod, ObservedService, ObservedStatefulSet, Owner,
};
use windlass_kube_port::{Cluster, ClusterError, Key, Kind, View};

/// What the tasks of one node work with.
#[derive(Clone)]
pub struct NodeScope {
    /// The node's namespace and name.
    pub key: Key,
    /// The state of the node that this reconcile decided on, as `decided_on` returns it: its tasks act on no other.
    pub(crate) decided_on: (String, i64, Option<RestartTime>),
    /// The watch caches.
    pub(crate) view: Arc<View>,
    /// The port for changes to the cluster.
    pub cluster: Arc<dyn Cluster>,
    /// Answers and results that need not be asked for and computed again.
    pub(crate) caches: Arc<Caches>,
    /// What this process has seen and no object records.
    pub(crate) sightings: Arc<Sightings>,
    /// When statuses were written.
    pub(crate) status_writes: Arc<StatusWrites>,
    /// What an embedding platform adds to pods.
    pub(crate) options: Arc<RenderOptions>,
    /// The client for sidecars, for custom tasks. A call blocks the reconcile: Windlass's own tasks use the prober.
    pub sidecars: Arc<dyn SidecarClient>,
    /// Sends requests to sidecars in the background, outside of reconciles.
    pub(crate) prober: Arc<SidecarProber>,
    /// The time of this reconcile.
    pub now: DateTime<Utc>,
    /// The sidecar's answer, as far as this reconcile knows it.
    pub(crate) answers: SidecarRecorder,
}

/// What a node's spec renders to.
pub struct Rendered {
    /// The pod template, without the node's identity.
    pub template: Value,
    /// The hash under which it is recorded.
    pub hash: PodTemplateHash,
    /// Its own hash.
    pub own_hash: PodTemplateHash,
    /// The main container's image.
    pub image: String,
}

/// The owner of an existing StatefulSet or Service with a node's name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Belongs {
    /// The node itself.
    Here,
    /// An earlier node of the same name; the object is being removed.
    Earlier,
    /// Something else, described in a sentence.
    Elsewhere(String),
}

impl NodeScope {
    /// The node, as the cache has it now.
    #[must_use]
    pub fn node(&self) -> Option<Arc<ObservedNode>> {
        self.view.nodes.get(&self.key)
    }

    /// The node, or an error for a task if, since this reconcile began, the node was deleted or its desired state has
    /// changed. The plan was not made for that state, and its tasks must not carry it out.
    pub fn require(&self) -> Result<Arc<ObservedNode>, TaskError> {
        let gone = || TaskError::transient(format!("StatefulNode {} no longer exists", self.key));
        let node = self.node().ok_or_else(gone)?;
        let now = decided_on(&node);
        if now.0 != self.decided_on.0 {
            return Err(gone());
        }
        if now != self.decided_on {
            return Err(TaskError::transient(format!(
                "the desired state of StatefulNode {} has just changed",
                self.key
            )));
        }
        Ok(node)
    }

    /// The StatefulSet with the node's name, which may belong to something else.
    #[must_use]
    pub fn set(&self) -> Option<Arc<ObservedStatefulSet>> {
        self.view.stateful_sets.get(&self.key)
    }

    /// The Service with the node's name, which may belong to something else.
    #[must_use]
    pub fn service(&self) -> Option<Arc<ObservedService>> {
        self.view.services.get(&self.key)
    }

    /// The pod with the name of the node's pod, which may belong to something else.
    #[must_use]
    pub fn pod(&self) -> Option<Arc<ObservedPod>> {
        self.view.pods.get(&Key::new(&self.key.namespace, pod_name(&self.key.name)))
    }

    /// Everything that a decision is based on, as the caches have it now.
    #[must_use]
    pub fn facts(&self, node: &ObservedNode) -> NodeFacts {
        let set = self.set();
        let set_fact = match set.as_deref() {
            None => StatefulSetFact::Missing,
            Some(set) => match belongs(&set.meta, &node.meta, "StatefulSet") {
                Belongs::Here if !set.meta.terminating => StatefulSetFact::Live(self.live(node, set)),
                // The controller reports a StatefulSet that belongs elsewhere; no decision may be based on it.
                Belongs::Here | Belongs::Earlier | Belongs::Elsewhere(_) => StatefulSetFact::Leaving,
            },
        };
        let set_uid = set.as_ref().map(|s| s.meta.uid.as_str());
        let status = &node.status;
        let wanted = self.wanted(node);
        let rendered = wanted.as_ref().map(|wanted| &wanted.hash).ok();
        let pod = self.pod().map(|pod| {
            let main = main_container_of(&pod, node, rendered);
            let warning = self.view.refusals.last(&pod.meta.uid).map(|told| told.note);
            let before = status.problem.as_ref();
            pod_facts(&pod, &main, set_uid, before, warning.as_deref(), self.now)
        });
        let spec = node.spec.as_ref();
        let spent = status.spent_grant_id();
        // The pod of something else's StatefulSet, or of an earlier node of this name, says nothing about this node. If
        // the StatefulSet was lost, the pod is the node's if the status recorded it as such.
        let is_orphan = self.pod().is_some_and(|pod| pod.meta.controller().is_none());
        let pod = pod.filter(|p| match set.as_deref() {
            // While the StatefulSet is replaced, its pod has no owner for a moment.
            Some(set) if p.owned || (is_orphan && p.uid == status.pod_uid) => {
                belongs(&set.meta, &node.meta, "StatefulSet") == Belongs::Here
            }
            Some(_) => false,
            None => p.uid == status.pod_uid,
        });
        let has_none = pod.is_none() && !node.meta.terminating;
        NodeFacts {
            wanted,
            granted_hash: spec.ok().and_then(|s| s.granted()),
            grant_id: GrantId::in_force(
                spec.ok().and_then(|s| s.grant_id()),
                spent.as_ref(),
                node.meta.generation,
            ),
            spent_grant_id: spent,
            set: set_fact,
            pod,
            refused: self.caches.probes.no_pod.get(&node.meta.uid).and_then(|known| known.why),
            awaits: if has_none { self.awaits(node) } else { None },
            previous: Running {
                hash: status.running(),
                image: status.current_image.clone(),
                pod_uid: Some(status.pod_uid.clone()).filter(|uid| !uid.is_empty()),
            },
            terminating: node.meta.terminating,
            suspended: spec.is_ok_and(|s| s.suspend),
            removal_id: spec.ok().and_then(|s| s.removal_id()),
            move_: spec.ok().and_then(|s| s.move_.clone()),
            growth: self.growth(node),
        }
    }

    /// What is left to do until the node's claims have the sizes in its spec.
    #[must_use]
    pub fn growth(&self, node: &ObservedNode) -> Growth {
        let sizes = node.spec.as_ref().ok().map(|spec| &spec.claim_sizes);
        sizes.map_or(Growth::Done, |sizes| {
            growth_to(sizes, &self.key, (&self.view, &self.sightings, self.now))
        })
    }

    /// The object that has to be deleted before the node's pod can be created, in a sentence: the pod of an earlier
    /// StatefulSet of this
    /// name, or a claim. A pod that mounts a claim which is about to be deleted with an earlier node would run on it,
    /// and
    /// lose its data when it is replaced for the first time.
    #[must_use]
    pub fn awaits(&self, node: &ObservedNode) -> Option<String> {
        let (set, pod) = (self.set(), self.pod());
        let is_of_earlier = |owner: &Owner| {
            let is_named = owner.kind == Kind::StatefulSet.name() && owner.name == node.meta.name;
            is_named && set.as_ref().is_none_or(|set| set.meta.uid != owner.uid)
        };
        if let Some(pod) = pod.as_ref().filter(|pod| pod.meta.terminating)
            && pod.meta.controller().is_some_and(is_of_earlier)
        {
            let name = &pod.meta.name;
            return Some(format!(
                "waiting for pod {name} of an earlier StatefulSet with this name to terminate"
            ));
        }
        let claims: Vec<Arc<ObservedClaim>> = self.claims(node).collect();
        if let Some(claim) = claims.iter().find(|claim| goes_with_earlier(&claim.meta, &node.meta)) {
            let name = &claim.meta.name;
            return Some(format!(
                "waiting for PersistentVolumeClaim {name} to be deleted with the earlier node with this name"
            ));
        }
        // A claim that a pod uses is not removed, and a pod that nobody controls is adopted with its claims.
        let claim = claims.iter().find(|claim| claim.meta.terminating && pod.is_none())?;
        let name = &claim.meta.name;
        Some(format!("waiting for the deletion of PersistentVolumeClaim {name} to complete"))
    }

    /// The node's volume claims that exist.
    pub fn claims<'a>(&'a self, node: &'a ObservedNode) -> impl Iterator<Item = Arc<ObservedClaim>> + 'a {
        let names = claim_names(node).into_iter();
        names.filter_map(|name| self.view.claims.get(&Key::new(&node.meta.namespace, name)))
    }

    /// Those of them that may have data: no hooks at `BeforeCreate` are due for them, and they neither are being deleted nor
    /// are about to be, with an earlier node of this name.
    pub fn used_claims<'a>(
        &'a self,
        node: &'a ObservedNode,
    ) -> impl Iterator<Item = Arc<ObservedClaim>> + 'a {
        self.claims(node).filter(|claim| {
            !claim.meta.terminating
                && claim.meta.annotation(ANNOTATION_FIRST_START).is_none()
                && !goes_with_earlier(&claim.meta, &node.meta)
        })
    }

    /// The names of the node's volume claims that do not exist.
    #[must_use]
    pub fn missing_claims(&self, node: &ObservedNode) -> Vec<String> {
        let is_missing =
            |name: &String| self.view.claims.get(&Key::new(&node.meta.namespace, name)).is_none();
        claim_names(node).into_iter().filter(is_missing).collect()
    }

    fn live(&self, node: &ObservedNode, set: &ObservedStatefulSet) -> LiveStatefulSet {
        let named = set.made_for.as_ref().map(|made_for| made_for.main_container.as_str());
        let main = named.unwrap_or_else(|| main_container(node));
        let image = set.images.iter().find(|(name, _)| name == main).or_else(|| set.images.first());
        let recorded = node.status.stateful_set.as_ref().filter(|recorded| recorded.uid == set.meta.uid);
        let mut known_revisions = recorded.map(|recorded| recorded.revisions.clone()).unwrap_or_default();
        let mut unwritten = self.sightings.revisions(&set.meta.uid);
        unwritten.retain(|revision| !known_revisions.contains(revision));
        known_revisions.extend(unwritten);
        // Before its first plan is over, a new node has as little of a status as one that has lost it.
        let is_being_made = node.status.plan.as_ref().is_some_and(RawPlan::may_be_active);
        if node.status.stateful_set.is_none() && node.status.running().is_none() && !is_being_made {
            known_revisions.extend(self.revision_without_status(set));
        }
        LiveStatefulSet {
            uid: set.meta.uid.clone(),
            generation: set.meta.generation,
            template: self.template(node, set).unwrap_or(Template::Unknown),
            observed: set.is_observed(),
            replicas: set.replicas,
            update_revision: set.update_revision.clone(),
            known_revisions,
            made_for: set.made_for.as_deref().cloned(),
            template_digest: set.template_digest.clone(),
            main_image: image.map(|(_, image)| image.clone()).unwrap_or_default(),
        }
    }

    /// The revision of the pod, if the node's status says nothing, as after its loss, and the pod says that it was
    /// created
    /// for the template that the StatefulSet has. Its revision is an earlier one, and without a record a pod that
    /// serves
    /// would be replaced, with those of all nodes whose status was lost. Nothing follows for a pod at the update
    /// revision:
    /// if somebody edited the template of a new node, that is theirs, and the pod repeats what the template says.
    fn revision_without_status(&self, set: &ObservedStatefulSet) -> Option<String> {
        let pod = self.pod().filter(|pod| pod.meta.is_controlled_by(&set.meta.uid))?;
        let made_for = pod.made_for()?;
        let is_same = set.made_for.as_deref().is_some_and(|of_set| of_set.hash == made_for.hash);
        let revision = pod.meta.label("controller-revision-hash")?;
        let is_earlier = set.revision_of_now().is_some_and(|of_now| revision != of_now);
        (is_same && is_earlier).then(|| revision.to_owned())
    }

    /// What the StatefulSet's template is; `None` if that requires a request to the API server first.
    #[must_use]
    pub fn template(&self, node: &ObservedNode, set: &ObservedStatefulSet) -> Option<Template> {
        let generation = set.meta.generation;
        if let Some(known) =
            self.caches.probes.templates.get(&set.meta.uid).filter(|k| k.generation == generation)
        {
            match known.found {
                FoundTemplate::Rendered(hash) => return Some(Template::At(hash)),
                FoundTemplate::OtherThan(hash) => {
                    if self.wanted(node).is_ok_and(|wanted| wanted.hash == hash) {
                        return Some(Template::Unknown);
                    }
                }
            }
        }
        let recorded = node.status.stateful_set.as_ref().filter(|recorded| recorded.uid == set.meta.uid);
        let untouched = recorded.is_some_and(|recorded| {
            // A template that the API server once made of our own write is ours, even if it would default it
            // differently now.
            let same = !set.template_digest.is_empty() && recorded.template_digest == set.template_digest;
            recorded.generation == generation || same
        });
        set.written_for().filter(|_| untouched).map(Template::At)
    }

    /// The hash and image of what the node's spec renders to; an error is a sentence about the spec.
    pub fn wanted(&self, node: &ObservedNode) -> Result<RenderedTarget, String> {
        // One reconcile needs it many times, and hashing is most of its work, so it is cached.
        let (uid, generation, restart) = (&node.meta.uid, node.meta.generation, effective_restart(node));
        let known = self.caches.computed.rendered.get(uid);
        let known = known.filter(|k| k.generation == generation && k.restart == restart);
        let found = if let Some(known) = known {
            known.found
        } else {
            let spec = node.spec.as_ref().map_err(Clone::clone)?;
            let found = || {
                let Rendered { own_hash, image, .. } = self.rendered(node)?;
                Ok::<_, String>(Arc::new(RenderedTarget { hash: own_hash, image }))
            };
            let found = self.caches.computed.template_hashes.of(spec, field(restart.as_ref()), found)?;
            self.caches
                .computed
                .rendered
                .put(uid, RenderedSpec { generation, restart, found: found.clone() });
            found
        };
        let RenderedTarget { hash, image } = RenderedTarget::clone(&found);
        Ok(RenderedTarget { hash: self.recorded_hash(node, hash), image })
    }

    /// The hash under which the rendered template is recorded. A template that is only written otherwise goes on under
    /// the
    /// hash of the one that was written.
    fn recorded_hash(&self, node: &ObservedNode, rendered: PodTemplateHash) -> PodTemplateHash {
        let same = self.caches.probes.same_templates.get(&node.meta.uid);
        same.filter(|same| same.is_same && same.rendered == rendered).map_or(rendered, |same| same.written)
    }

    /// What the node's spec renders to; an error is a sentence about the spec.
    pub fn rendered(&self, node: &ObservedNode) -> Result<Rendered, String> {
        let spec = node.spec.as_ref().map_err(Clone::clone)?;
        let restart = effective_restart(node);
        let restart = restart.as_ref().map(RestartTime::as_str);
        let template = render::pod_template(spec, restart, &self.options).map_err(|e| e.to_string())?;
        let own_hash = pod_template_hash(&template);
        let image = revision::main_image(spec).unwrap_or_default().to_owned();
        Ok(Rendered { template, hash: self.recorded_hash(node, own_hash.clone()), own_hash, image })
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

    /// Remembers which template a write of ours has given a StatefulSet. `answer` is the stored object.
    pub fn wrote_template(&self, answer: &Value, hash: &PodTemplateHash) {
        let meta = Meta::read(answer);
        let checked =
            CheckedTemplate { generation: meta.generation, found: FoundTemplate::Rendered(hash.clone()) };
        self.caches.probes.templates.put(&meta.uid, checked);
    }

    /// Records the sidecar's answer.
    pub fn answered(&self, answer: SidecarAnswer) {
        self.answers.record(answer);
    }

    /// Reads from the API server who owns an object with the node's name, which may be one that no watch shows.
    pub async fn whose(&self, kind: Kind, node: &ObservedNode) -> Result<Option<Belongs>, ClusterError> {
        let found = self.cluster.get(kind, &self.key.namespace, &self.key.name).await?;
        if found.is_some() {
            self.caches.probes.free.take(&(node.meta.uid.clone(), kind));
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

/// The name of the main container by a node's spec: the configured one, or the first in the template.
fn main_container(node: &ObservedNode) -> &str {
    let spec = node.spec.as_ref().ok();
    spec.and_then(|s| revision::main_container(&s.main_container, &s.pod_template)).unwrap_or_default()
}

/// The name of a pod's main container. It comes from the template, and is not simply the pod's first container:
/// admission can put its own containers before those of the template. A pod that was made for a template other than the
/// one with the hash `rendered` names its main container in its annotations.
pub(crate) fn main_container_of(
    pod: &ObservedPod,
    node: &ObservedNode,
    rendered: Option<&PodTemplateHash>,
) -> String {
    let of_another = pod.made_for().filter(|made_for| Some(&made_for.hash) != rendered);
    of_another.map_or_else(|| main_container(node).to_owned(), |made_for| made_for.main_container)
}

/// The fleet of a node. A person may have removed the node's label; a pod that is created meanwhile would lack it for
/// as long as the pod lives, and would get no traffic from the fleet's Service.
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

/// True if a claim is deleted with its node, or because an earlier node of this name was: it is owned by either, or by
/// the StatefulSet or pod of the node, which the StatefulSet controller makes its owners unless the claim retention of
/// the StatefulSet is Retain.
#[must_use]
pub fn is_deleted_with(claim: &Meta, node: &Meta) -> bool {
    let by_name = |owner: &Owner| {
        (owner.kind == Kind::StatefulSet.name() && owner.name == node.name)
            || (owner.kind == Kind::Pod.name() && owner.name == pod_name(&node.name))
    };
    claim.owners.iter().any(|owner| is_node_of_name(owner, node) || by_name(owner))
}

/// True if a claim is about to be deleted with an earlier node of a node's name.
fn goes_with_earlier(claim: &Meta, node: &Meta) -> bool {
    let is_own = claim.owners.iter().any(|owner| owner.uid == node.uid);
    !is_own && claim.owners.iter().any(|owner| is_earlier_node(owner, node))
}

/// True if an owner is the node, or an earlier node of its name.
#[must_use]
pub fn is_node_of_name(owner: &Owner, node: &Meta) -> bool {
    owner.uid == node.uid || is_earlier_node(owner, node)
}

/// True if an owner is an earlier node of this node's name. The objects of such an owner are about to be deleted.
#[must_use]
pub fn is_earlier_node(owner: &Owner, node: &Meta) -> bool {
    owner.kind == Kind::StatefulNode.name() && owner.name == node.name && owner.uid != node.uid
}

/// True if a node has claims, and its StatefulSet deletes them when it is deleted or scaled down.
#[must_use]
pub fn deletes_claims(set: &ObservedStatefulSet, node: &ObservedNode) -> bool {
    set.deletes_claims && !claim_names(node).is_empty()
}

/// Identifies a node and its desired state: its UID, the generation of its spec, and the restart that applies to it.
#[must_use]
pub fn decided_on(node: &ObservedNode) -> (String, i64, Option<RestartTime>) {
    (node.meta.uid.clone(), node.meta.generation, effective_restart(node))
}

/// The owner of an object that has a node's name.
#[must_use]
pub fn belongs(object: &Meta, node: &Meta, kind: &str) -> Belongs {
    belongs_by_name(object, Kind::StatefulNode.name(), node, kind)
}

/// The owner of an object that should be controlled by `owner`, which is of the kind `by`.
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
                "{kind} {} exists and {whose}; Windlass does not touch it: delete it, or give the node another name",
                object.name
            ))
        }
    }
}

/// A node's spec, or a terminal error for a task.
pub fn spec_of(node: &ObservedNode) -> Result<&StatefulNodeSpec, TaskError> {
    node.spec.as_deref().map_err(|e| TaskError::terminal(e.clone()))
}
