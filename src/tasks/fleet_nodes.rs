//! How a fleet's nodes are made and removed. Whether they are is decided elsewhere.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};

use super::FleetScope;
use super::fleet_scope::owner_reference;
use super::node_scope::claim_names;
use crate::api::names::{
    ANNOTATION_OWNER_UID, ANNOTATION_RESTARTED_AT, LABEL_DEPLOYMENT, LABEL_MANAGED_BY, LABEL_NODE, LABEL_SET,
    MANAGER, node_name, place_of,
};
use crate::api::{ClaimRetention, Stage, TemplateMeta};
use crate::cluster::observed::{Observed, ObservedClaim, ObservedNode};
use crate::cluster::{ClusterError, Key, Kind, Target};
use crate::planner::fleet::leave::together;
use crate::planner::fleet::{ChildFacts, FleetFacts, Way};
use crate::render;

/// How many nodes are created, changed or removed at the same time.
pub const AT_ONCE: usize = 16;

/// Does something to each of many objects, some at the same time, and answers what came of each. One that changed in the
/// meantime holds up no other; that one did is the answer in the end, so that it is looked at again: what was refused
/// as a conflict need not announce itself.
pub async fn each<T, R, F>(
    items: impl IntoIterator<Item = T>,
    act: impl Fn(T) -> F,
) -> Result<Vec<R>, ClusterError>
where
    F: Future<Output = Result<R, ClusterError>>,
{
    let (mut answers, mut conflict) = (Vec::new(), None);
    let mut running = std::pin::pin!(stream::iter(items).map(act).buffered(AT_ONCE));
    while let Some(answer) = running.next().await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) if error.is_conflict() => {
                conflict.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    conflict.map_or(Ok(answers), Err)
}

/// Something that was done, to be told of in an event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Told {
    /// The event's reason.
    pub reason: &'static str,
    /// What tells it from others of its reason.
    pub cause: String,
    /// A sentence.
    pub note: String,
}

impl FleetScope {
    fn tell(&self, reason: &'static str, cause: &str, note: String) {
        let told = Told { reason, cause: cause.to_owned(), note };
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }

    /// Windlass's own labels and annotations of a node.
    #[must_use]
    pub fn own_metadata(&self, node: &str) -> TemplateMeta {
        let meta = &self.fleet.meta;
        let set = place_of(&meta.name, node).map(|(set, _)| set).unwrap_or_default();
        let text = str::to_owned;
        let mut annotations = BTreeMap::new();
        if !self.owns_by_reference() {
            annotations.insert(text(ANNOTATION_OWNER_UID), meta.uid.clone());
        }
        TemplateMeta {
            labels: BTreeMap::from([
                (text(LABEL_DEPLOYMENT), meta.name.clone()),
                (text(LABEL_NODE), text(node)),
                (text(LABEL_SET), text(set)),
                (text(LABEL_MANAGED_BY), text(MANAGER)),
            ]),
            annotations,
        }
    }

    /// Why what is wanted cannot be carried out over the nodes that there are, in a sentence, if so: they are updated where
    /// they are, and keep the volume claims that they were made with. Nodes that are made anew may have others.
    #[must_use]
    pub fn unchangeable_claims(&self) -> Option<String> {
        let facts = self.facts();
        if facts.way(&facts.requested).makes_set() || facts.undecided.is_some() {
            return None;
        }
        let claims = &self.spec.template.spec.volume_claim_templates;
        let meta = &self.fleet.meta;
        let differs = |child: &&ChildFacts| {
            let node = self.view.nodes.get(&Key::new(&meta.namespace, &child.name));
            let spec = node.as_ref().and_then(|node| node.spec.as_ref().ok());
            child.held != facts.requested && spec.is_some_and(|spec| spec.volume_claim_templates != *claims)
        };
        let child = facts.wanted().filter(|c| !c.terminating).find(differs)?;
        let yet =
            if facts.last_completed.is_empty() { ", as all are before anything has completed" } else { "" };
        Some(format!(
            "template.spec.volumeClaimTemplates: node {} was made with other volume claims, and nodes that are updated in \
             place{yet} keep theirs: set volumeClaimTemplates back to what they were, or delete the StatefulNodes with the \
             label windlass.dev/deployment={}, and they are made again with what is wanted (claims that exist stay)",
            child.name, meta.name
        ))
    }

    /// Creates the nodes of a set that are wanted and do not exist, each at the revision that is said for its
    /// ordinal; those created are counted before the next is asked about.
    pub async fn create_nodes(
        &self,
        facts: &FleetFacts,
        revision_for: impl Fn(&FleetFacts, i32) -> String,
    ) -> Result<(), ClusterError> {
        let missing = facts.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let mut facts = facts.clone();
        let mut new = Vec::new();
        for ordinal in missing {
            let revision = revision_for(&facts, ordinal);
            let restart = facts.restarted_at.clone();
            let Some(rendering) = facts.rendering(&revision, &restart).cloned() else { continue };
            if self.node_spec(&revision).is_none() {
                continue;
            }
            let child = ChildFacts {
                name: node_name(&self.fleet.meta.name, &facts.set, ordinal),
                ordinal,
                held: revision,
                granted: rendering.hash,
                restart,
                behind: true,
                ..ChildFacts::default()
            };
            facts.children.push(child.clone());
            new.push(child);
        }
        // A manifest is made when it is its turn: those of all nodes would be the fleet's template thousands of times.
        stream::iter(new.into_iter().map(Ok::<_, ClusterError>))
            .try_for_each_concurrent(AT_ONCE, |child| async move {
                let Some(manifest) = self.manifest(&child) else { return Ok(()) };
                let created = match self.cluster.create(Kind::StatefulNode, manifest).await {
                    Ok(created) => created,
                    // The watch will show whose it is.
                    Err(ClusterError::AlreadyExists { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                };
                let uid = created["metadata"]["uid"].as_str().unwrap_or_default();
                self.tell("NodeCreated", uid, format!("created node {}", child.name));
                Ok(())
            })
            .await
    }

    /// The manifest of a node that is to be as these facts say; `None` where its revision is gone.
    fn manifest(&self, child: &ChildFacts) -> Option<Value> {
        let name = child.name.as_str();
        let mut spec = (*self.node_spec(&child.held)?).clone();
        child.granted.clone_into(&mut spec.granted_hash);
        spec.watch_sidecar = spec.sidecar.is_some() && self.is_awaited(name);
        let mut own = self.own_metadata(name);
        if !child.restart.is_empty() {
            own.annotations.insert(ANNOTATION_RESTARTED_AT.to_owned(), child.restart.clone());
        }
        let metadata = render::metadata::new_child_metadata(&self.spec.template.metadata, &own);
        let owners =
            if self.owns_by_reference() { json!([owner_reference(&self.fleet.meta)]) } else { json!([]) };
        Some(json!({
            "apiVersion": Kind::StatefulNode.api_version(),
            "kind": Kind::StatefulNode.name(),
            "metadata": {
                "name": name,
                "namespace": self.fleet.meta.namespace,
                "labels": metadata.labels,
                "annotations": metadata.annotations,
                "ownerReferences": owners,
            },
            "spec": spec,
        }))
    }

    /// Whether a node is of the set that is to serve and does not yet: what its sidecar says is waited for.
    #[must_use]
    pub fn is_awaited(&self, node: &str) -> bool {
        let set = place_of(&self.fleet.meta.name, node).map(|(set, _)| set);
        self.set_rollout().is_some_and(|r| r.stage != Stage::Retiring && set == Some(r.entrant.as_str()))
    }

    /// Whether a node is one that a height is waited for on: that it says one at all, then that it halts at one.
    #[must_use]
    pub fn is_halting(&self, node: &str) -> bool {
        let set = place_of(&self.fleet.meta.name, node).map(|(set, _)| set);
        self.set_rollout().is_some_and(|r| r.way == Way::HardFork && set == Some(r.incumbent.as_str()))
    }

    /// Whether a node is of a set whose claims stay although its nodes go.
    #[must_use]
    pub fn keeps_claims(&self, node: &str) -> bool {
        let status = &self.fleet.status;
        let Some((set, _)) = place_of(&self.fleet.meta.name, node) else { return true };
        let goes_first = self.set_rollout().is_some_and(|r| {
            r.way == Way::BlueGreenImmediate && r.stage == Stage::Promoting && r.incumbent == set
        });
        goes_first || status.retiring.iter().any(|r| r.set == set && r.keeps_claims())
    }

    /// Deletes a node, if it is still there.
    pub async fn delete_node(&self, name: &str, why: &str) -> Result<(), ClusterError> {
        let Some(node) = self.view.nodes.get(&Key::new(&self.fleet.meta.namespace, name)) else {
            return Ok(());
        };
        self.cluster.delete(Target::of(Kind::StatefulNode, &node.meta)).await?;
        self.tell("NodeDeleted", &node.meta.uid, format!("deleted node {name}: {why}"));
        Ok(())
    }

    /// Lets the nodes of a set go together, those whose claims stay only once these are not theirs any more. Answers what
    /// one of them waits for, in a sentence.
    pub async fn remove_set(&self, set: &str, why: &str) -> Result<Option<String>, ClusterError> {
        let facts = self.facts();
        let children = if set == facts.set {
            facts.children.as_slice()
        } else {
            facts.sets.get(set).map(|set| set.children.as_slice()).unwrap_or_default()
        };
        self.let_go(together(children.iter()), why).await
    }

    /// Of nodes that are to be deleted those that may be, and why one of the others is not, in a sentence.
    pub(super) async fn without_kept(
        &self,
        delete: Vec<String>,
    ) -> Result<(Vec<String>, Option<String>), ClusterError> {
        let (mut free, mut kept) = (Vec::new(), None);
        for looked_at in each(delete, |name| self.unless_kept(name)).await? {
            match looked_at {
                Ok(name) => free.push(name),
                Err(why) => {
                    kept.get_or_insert(why);
                }
            }
        }
        Ok((free, kept))
    }

    /// A node that may be deleted; an error is why a claim that is to stay might go with it.
    async fn unless_kept(&self, name: String) -> Result<Result<String, String>, ClusterError> {
        let node = self.view.nodes.get(&Key::new(&self.fleet.meta.namespace, &name));
        let kept = match node {
            Some(node) => self.kept_for(&node).await?,
            None => None,
        };
        Ok(kept.map_or(Ok(name), Err))
    }

    /// Why a claim that is to stay might go with a node, in a sentence, if one might.
    async fn kept_for(&self, node: &ObservedNode) -> Result<Option<String>, ClusterError> {
        let name = &node.meta.name;
        let stay = self.spec.template.spec.volume_claim_retention == ClaimRetention::Retain;
        if !stay && !self.keeps_claims(name) {
            return Ok(None);
        }
        let retains = node.spec.as_ref().is_ok_and(|s| s.volume_claim_retention == ClaimRetention::Retain);
        let seen = node.status.observed_generation == node.meta.generation
            && !self.view.is_in_doubt(Kind::StatefulNode, &node.meta);
        // What is owned by a node that goes is collected with it.
        let (uid, namespace) = (&node.meta.uid, &node.meta.namespace);
        let owned = |claim: &ObservedClaim| claim.meta.owners.iter().any(|o| o.uid == *uid);
        let owns = |claim: &str| {
            Some(format!(
                "node {name} is not removed as long as PersistentVolumeClaim {claim} would go with it"
            ))
        };
        if let Some(claim) = self.view.claims.group(namespace, uid).first() {
            return Ok(owns(&claim.meta.name));
        }
        if !retains || !seen {
            return Ok(Some(format!(
                "node {name} is not removed before it has seen that its claims are to stay"
            )));
        }
        // The watch shows claims by a label, which somebody may have taken off: they are asked for by their names.
        for name in claim_names(node) {
            let live = self.cluster.get(Kind::PersistentVolumeClaim, namespace, &name).await?;
            let Some(live) = live.map(|claim| ObservedClaim::read(&claim)) else { continue };
            // A write that was not answered may still make it the node's.
            if owned(&live) || self.view.is_in_doubt(Kind::PersistentVolumeClaim, &live.meta) {
                return Ok(owns(&name));
            }
        }
        Ok(None)
    }
}
