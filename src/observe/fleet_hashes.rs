//! The hashes of a fleet: of the desired state, of what its revisions and nodes hold, and of what these render to.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use super::FleetScope;
use crate::api::ids::field;
use crate::api::{
    BuildId, NodeName, RestartTime, RetiringSet, Rollout, RolloutHash, SetName, Stage, StrategyType,
};
use crate::planner::fleet::sets::decide::remains_after_switch;
use crate::planner::fleet::{Rendering, SetRollout};
use crate::render;
use crate::revision::{self, RevisionData, config, pod_template_hash, revision_name};
use windlass_kube_port::Key;
use windlass_kube_port::observed::{ObservedNode, ObservedRevision};

impl FleetScope {
    /// The persisted rollout, if it creates a set.
    #[must_use]
    pub(crate) fn set_rollout(&self) -> Option<SetRollout> {
        SetRollout::of(&self.fleet.status)
    }

    /// The rollout whose target is read from the status, because it can no longer be undone or must be finished first.
    /// Unless the fleet is paused, a rollout that is stuck at a failed hook does not count: another target replaces it.
    #[must_use]
    #[doc(hidden)]
    pub fn promoting(&self) -> Option<SetRollout> {
        let rollout = self.set_rollout().filter(|r| r.stage == Stage::Promoting)?;
        let plan = self.own_plan_with_hooks().filter(|_| !self.spec.paused);
        let stands = plan.is_some_and(|plan| remains_after_switch(&plan, &rollout));
        (!stands).then_some(rollout)
    }

    /// The desired `unsafeCustomBuildID`; `None` if the build ID is generated.
    #[must_use]
    pub(crate) fn build_id(&self) -> Option<BuildId> {
        self.promoting().map_or_else(|| self.spec.build_id(), |rollout| rollout.build_id)
    }

    /// The rollout hash of the desired state: of the spec, or of the promotion that is under way.
    #[must_use]
    #[doc(hidden)]
    pub fn requested(&self) -> RolloutHash {
        self.promoting().map_or_else(|| self.specified(), |rollout| rollout.target)
    }

    /// The rollout hash of the spec, whatever is being promoted: of the revision that has the same content, if the
    /// spec is
    /// only written otherwise.
    #[must_use]
    #[doc(hidden)]
    pub fn specified(&self) -> RolloutHash {
        if let Some(pods) = &self.pods {
            return self.desired_revisions(pods);
        }
        let written = self.written();
        let same = self.fleet.status.same_content.as_ref().filter(|same| written == *same.written_hash);
        same.and_then(|same| RolloutHash::recorded(same.recorded_hash.as_str())).unwrap_or(written)
    }

    /// The rollout hash of the spec as it is written, apart from claims that have grown.
    #[must_use]
    #[doc(hidden)]
    pub fn written(&self) -> RolloutHash {
        let meta = &self.fleet.meta;
        let build_id = self.spec.build_id();
        let build_id = build_id.as_ref();
        let template = &self.spec.template.spec;
        let hash = || RevisionData::of(template).rollout_hash(field(build_id));
        // The data of ConfigMaps and Secrets changes without a new generation.
        let of = match config::digest_in(&template.pod_template) {
            "" => meta.uid.clone(),
            digest => format!("{}/{digest}", meta.uid),
        };
        let written = self.hash_of(&of, build_id, meta.generation, hash);
        let desired = self.desired_revision();
        let has_grown = desired.volume_claim_templates != template.volume_claim_templates;
        // A target that was recorded with its own sizes stays one.
        if !has_grown || self.meant_hashes().contains(&written) {
            return written;
        }
        let base = format!("{of}/claims");
        self.hash_of(&base, build_id, meta.generation, || desired.rollout_hash(field(build_id)))
    }

    /// The part of the spec that belongs to a revision. Claims that are larger than those that the nodes of the active set were
    /// created with have the nodes' sizes: a volume grows without a new revision. Computed for each node of a rollout, so it does
    /// not list the nodes.
    #[must_use]
    pub(crate) fn desired_revision(&self) -> RevisionData {
        let data = RevisionData::of(&self.spec.template.spec);
        if data.volume_claim_templates.is_empty() {
            return data;
        }
        let (meta, set) = (&self.fleet.meta, self.recorded_set());
        let of_nodes = || {
            let ordinals = 0..self.spec.replicas;
            let names = ordinals.map(|ordinal| NodeName::of(&meta.name, &set, ordinal).to_string());
            let mut nodes = names.filter_map(|name| self.view.nodes.get(&Key::new(&meta.namespace, name)));
            let node = nodes.find(|node| node.spec.is_ok() && self.owns(&node.meta))?;
            Some(node.spec.as_ref().ok()?.volume_claim_templates.clone())
        };
        let of_current = || {
            let completed = self.fleet.status.last_completed()?;
            let stored = self.revisions().remove(&completed)?;
            Some(RevisionData::from_value(&stored.data.value()).ok()?.volume_claim_templates)
        };
        match of_nodes().or_else(of_current) {
            Some(claims) if !claims.is_same(&data.volume_claim_templates) => data.with_sizes_of(&claims),
            _ => data,
        }
    }

    /// The recorded rollout hashes that the spec may still mean if it is written otherwise, the current one first.
    #[must_use]
    pub(crate) fn meant_hashes(&self) -> Vec<RolloutHash> {
        let status = &self.fleet.status;
        let of_rollout = status.rollout.as_ref().map(|rollout| rollout.target_hash.as_str());
        let rejected = status.rejected.as_ref().map(|rejected| rejected.hash.as_str());
        let said = [status.last_completed_rollout_hash.as_str(), &status.requested_rollout_hash];
        let retiring = status.retiring.iter().map(|retiring| retiring.hash.as_str());
        let all = said.into_iter().chain(of_rollout).chain(rejected).chain(retiring);
        let mut meant: Vec<RolloutHash> = Vec::new();
        for hash in all.filter_map(RolloutHash::recorded) {
            if !meant.contains(&hash) {
                meant.push(hash);
            }
        }
        meant
    }

    pub(super) fn hash_of(
        &self,
        uid: &str,
        build_id: Option<&BuildId>,
        generation: i64,
        hash: impl FnOnce() -> RolloutHash,
    ) -> RolloutHash {
        let key = (uid.to_owned(), build_id.cloned());
        if let Some((_, hash)) = self.caches.computed.spec_hashes.get(&key).filter(|(g, _)| *g == generation)
        {
            return hash;
        }
        let hash = hash();
        self.caches.computed.spec_hashes.put(&key, (generation, hash.clone()));
        hash
    }

    /// The build IDs under which anything of this fleet may have been created.
    #[must_use]
    pub(crate) fn build_ids(&self) -> BTreeSet<Option<BuildId>> {
        let status = &self.fleet.status;
        let retiring = status.retiring.iter().map(RetiringSet::build_id);
        let rollout = status.rollout.iter().map(Rollout::build_id);
        // The last completed revision has the recorded build ID, whatever the spec says now.
        let known = [self.spec.build_id(), self.active_build_id(), status.active_build_id()];
        retiring.chain(rollout).chain(known).collect()
    }

    /// The build ID under which the active set was created. For nodes that are updated in place it is the build ID of
    /// the spec.
    pub(super) fn active_build_id(&self) -> Option<BuildId> {
        let status = &self.fleet.status;
        let by_set = matches!(
            self.spec.update_strategy.strategy(),
            Some(StrategyType::BlueGreen | StrategyType::HardFork)
        );
        // The set that serves while another is created keeps its build ID, even if the strategy has changed since.
        let by_set = by_set || self.set_rollout().is_some();
        if by_set && !status.last_completed_rollout_hash.is_empty() {
            status.active_build_id()
        } else {
            self.spec.build_id()
        }
    }

    /// The kept revisions of this fleet that can be parsed, by rollout hash. The same content has a different hash
    /// under each build ID.
    #[must_use]
    pub(crate) fn revisions(&self) -> BTreeMap<RolloutHash, Arc<ObservedRevision>> {
        let meta = &self.fleet.meta;
        let mut kept = self.view.revisions.group(&meta.namespace, &meta.uid);
        kept.retain(|revision| revision.meta.is_controlled_by(&meta.uid));
        let build_ids = self.build_ids();
        let mut found: BTreeMap<RolloutHash, Arc<ObservedRevision>> = BTreeMap::new();
        for revision in kept {
            for build_id in &build_ids {
                let Some(hash) = self.rollout_hash_of(&revision, build_id.as_ref()) else { continue };
                let is_its_own = revision_name(&meta.name, &meta.uid, &hash) == *revision.meta.name;
                if is_its_own || !found.contains_key(&hash) {
                    found.insert(hash, revision.clone());
                }
            }
        }
        found
    }

    /// The content of a revision with this hash, if a node or the template still holds it.
    #[must_use]
    pub(crate) fn held_content(&self, hash: &RolloutHash) -> Option<RevisionData> {
        let build_ids = self.build_ids();
        let children = self.children();
        let specs = children.iter().filter_map(|node| node.spec.as_deref().ok());
        let contents = specs.chain([&self.spec.template.spec]).map(RevisionData::of);
        contents
            .into_iter()
            .find(|data| build_ids.iter().any(|id| data.rollout_hash(field(id.as_ref())) == *hash))
    }

    pub(super) fn rollout_hash_of(
        &self,
        revision: &ObservedRevision,
        build_id: Option<&BuildId>,
    ) -> Option<RolloutHash> {
        // Under the fleet's UID: it is forgotten with the fleet.
        let key = (format!("{}/{}", self.fleet.meta.uid, revision.meta.uid), build_id.cloned());
        if let Some((_, hash)) = self.caches.computed.spec_hashes.get(&key) {
            return Some(hash);
        }
        let hash = RevisionData::from_value(&revision.data.value()).ok()?.rollout_hash(field(build_id));
        self.caches.computed.spec_hashes.put(&key, (0, hash.clone()));
        Some(hash)
    }

    /// The build ID under which a set was created, as far as it is recorded.
    pub(super) fn build_id_of(&self, set: &SetName) -> Option<BuildId> {
        let status = &self.fleet.status;
        let rollout = status.rollout.as_ref().filter(|r| *set == *r.entrant_set);
        if let Some(rollout) = rollout.filter(|r| r.stage != Stage::Retiring) {
            return rollout.build_id();
        }
        match status.retiring.iter().find(|r| *set == *r.set) {
            Some(retiring) => retiring.build_id(),
            None => self.active_build_id(),
        }
    }

    /// What a revision renders to.
    pub(super) fn rendering(
        &self,
        hash: &RolloutHash,
        revision: &ObservedRevision,
        restart: Option<&RestartTime>,
    ) -> Option<Rendering> {
        let key = (hash.clone(), restart.cloned());
        if let Some(known) = self.caches.computed.renderings.get(&key) {
            return Some(known);
        }
        let spec = RevisionData::from_value(&revision.data.value()).ok()?.apply_to(&self.spec.template.spec);
        let restart = restart.map(RestartTime::as_str);
        let template = render::pod_template(&spec, restart, &self.options).ok()?;
        let image = revision::main_image(&spec).unwrap_or_default().to_owned();
        let rendering = Rendering { hash: pod_template_hash(&template), image };
        self.caches.computed.renderings.put(&key, rendering.clone());
        Some(rendering)
    }

    /// The rollout hash of a node's spec; `None` if the spec cannot be read.
    pub(super) fn spec_hash(&self, node: &ObservedNode, build_id: Option<&BuildId>) -> Option<RolloutHash> {
        let spec = node.spec.as_ref().ok()?;
        let hash = || {
            let found = || Ok::<_, Infallible>(RevisionData::of(spec).rollout_hash(field(build_id)));
            let Ok(hash) = self.caches.computed.rollout_hashes.of(spec, field(build_id), found);
            hash
        };
        Some(self.hash_of(&node.meta.uid, build_id, node.meta.generation, hash))
    }

    /// The rollout hash that a node of the active set holds. The spec of a node that is updated in place does not
    /// record a build ID. A node that still holds what last completed gets that hash, computed with the recorded build
    /// ID, unless its hash with the current build ID is the desired one.
    pub(super) fn as_completed(
        &self,
        node: &ObservedNode,
        spec_hash: Option<RolloutHash>,
    ) -> Option<RolloutHash> {
        let status = &self.fleet.status;
        let Some(completed) = status.last_completed() else { return spec_hash };
        let is_other = spec_hash != completed && spec_hash != self.requested();
        if is_other && self.spec_hash(node, status.active_build_id().as_ref()) == completed {
            Some(completed)
        } else {
            spec_hash
        }
    }
}
