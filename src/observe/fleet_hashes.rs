//! What is wanted of a fleet, what its revisions and nodes hold, and what these render to, each called by its hash.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use super::FleetScope;
use crate::api::ids::field;
use crate::api::{
    BuildId, PodTemplateHash, RestartTime, RetiringSet, Rollout, RolloutHash, SetName, Stage, StrategyType,
};
use crate::cluster::Key;
use crate::cluster::observed::{ObservedNode, ObservedRevision};
use crate::planner::fleet::sets::decide::stands_after_switch;
use crate::planner::fleet::{Rendering, SetRollout};
use crate::render;
use crate::revision::hash::pod_template_hash_under;
use crate::revision::{self, Hashes, RevisionData, revision_name};

impl FleetScope {
    /// The rollout that makes a set, as it is persisted, if one does.
    #[must_use]
    pub fn set_rollout(&self) -> Option<SetRollout> {
        SetRollout::of(&self.fleet.status)
    }

    /// The rollout whose target is read from the status, because it can no longer be taken back, or is to be finished first.
    /// One that stands at a hook which failed is not: another target takes its place.
    #[must_use]
    pub fn promoting(&self) -> Option<SetRollout> {
        let rollout = self.set_rollout().filter(|r| r.stage == Stage::Promoting)?;
        let plan = self.own_plan_with_hooks().filter(|_| !self.spec.paused);
        let stands = plan.is_some_and(|plan| stands_after_switch(&plan, &rollout));
        (!stands).then_some(rollout)
    }

    /// The `unsafeCustomBuildID` of what is wanted; none where it is generated.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        self.promoting().map_or_else(|| self.spec.build_id(), |rollout| rollout.build_id)
    }

    /// The rollout hash of what is wanted: by the spec, or by the promotion that is under way.
    #[must_use]
    pub fn requested(&self) -> RolloutHash {
        self.promoting().map_or_else(|| self.specified(), |rollout| rollout.target)
    }

    /// The rollout hash of what the spec says, whatever is promoted meanwhile.
    #[must_use]
    pub fn specified(&self) -> RolloutHash {
        let meta = &self.fleet.meta;
        let build_id = self.spec.build_id();
        let build_id = build_id.as_ref();
        let hashes = || RevisionData::of(&self.spec.template.spec).rollout_hashes(field(build_id));
        self.hash_of(&meta.uid, build_id, meta.generation, hashes)
    }

    /// Whether a rollout hash is written down anywhere.
    pub(super) fn is_recorded(&self, hash: &RolloutHash) -> bool {
        let (meta, status) = (&self.fleet.meta, &self.fleet.status);
        let rollout = status.rollout.iter().flat_map(|r| [&r.target_hash, &r.from_hash]);
        let others = status.rejected.iter().map(|r| &r.hash).chain(status.retiring.iter().map(|r| &r.hash));
        let said = [&status.requested_rollout_hash, &status.last_completed_rollout_hash];
        let name = revision_name(&meta.name, &meta.uid, hash);
        let planned = || status.plan.as_ref().and_then(|plan| plan.parse().ok()).map(|plan| plan.target_hash);
        said.into_iter().chain(rollout).chain(others).any(|said| *hash == **said)
            || self.view.revisions.get(&Key::new(&meta.namespace, name.as_str())).is_some()
            || planned().is_some_and(|planned| *hash == *planned)
    }

    pub(super) fn hash_of(
        &self,
        uid: &str,
        build_id: Option<&BuildId>,
        generation: i64,
        hashes: impl FnOnce() -> Hashes<RolloutHash>,
    ) -> RolloutHash {
        let key = (uid.to_owned(), build_id.cloned());
        if let Some((_, hash)) = self.memory.spec_hashes.get(&key).filter(|(g, _)| *g == generation) {
            return hash;
        }
        let hash = hashes().called(|hash| self.is_recorded(hash)).clone();
        self.memory.spec_hashes.put(&key, (generation, hash.clone()));
        hash
    }

    /// The build IDs under which anything of this fleet may have been made.
    #[must_use]
    pub fn build_ids(&self) -> BTreeSet<Option<BuildId>> {
        let status = &self.fleet.status;
        let retiring = status.retiring.iter().map(RetiringSet::build_id);
        let rollout = status.rollout.iter().map(Rollout::build_id);
        // What last completed did so under the recorded one, whatever the spec says by now.
        let known = [self.spec.build_id(), self.active_build_id(), status.active_build_id()];
        retiring.chain(rollout).chain(known).collect()
    }

    /// The build ID under which the active set was made. Nodes that are updated where they are take any.
    pub(super) fn active_build_id(&self) -> Option<BuildId> {
        let status = &self.fleet.status;
        let by_set = matches!(
            self.spec.update_strategy.strategy(),
            Some(StrategyType::BlueGreen | StrategyType::HardFork)
        );
        // What serves while others are made to take over stays what it is, whatever the strategy is by now.
        let by_set = by_set || self.set_rollout().is_some();
        if by_set && !status.last_completed_rollout_hash.is_empty() {
            status.active_build_id()
        } else {
            self.spec.build_id()
        }
    }

    /// The revisions of this fleet that are kept and can be read, by rollout hash. One content has another hash under
    /// each build ID.
    #[must_use]
    pub fn revisions(&self) -> BTreeMap<RolloutHash, Arc<ObservedRevision>> {
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

    /// What a revision said, as far as a node or the template still holds it: its content hashes to this.
    #[must_use]
    pub fn held_content(&self, hash: &RolloutHash) -> Option<RevisionData> {
        let build_ids = self.build_ids();
        let children = self.children();
        let specs = children.iter().filter_map(|node| node.spec.as_deref().ok());
        let contents = specs.chain([&self.spec.template.spec]).map(RevisionData::of);
        contents
            .into_iter()
            .find(|data| build_ids.iter().any(|id| data.rollout_hashes(field(id.as_ref())).is(hash)))
    }

    pub(super) fn rollout_hash_of(
        &self,
        revision: &ObservedRevision,
        build_id: Option<&BuildId>,
    ) -> Option<RolloutHash> {
        let key = (revision.meta.uid.clone(), build_id.cloned());
        if let Some((_, hash)) = self.memory.spec_hashes.get(&key) {
            return Some(hash);
        }
        let hashes = RevisionData::from_value(&revision.data.value()).ok()?.rollout_hashes(field(build_id));
        let hash = hashes.called(|hash| self.is_recorded(hash)).clone();
        self.memory.spec_hashes.put(&key, (0, hash.clone()));
        Some(hash)
    }

    /// The build ID under which a set was made, as far as anybody knows.
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

    /// What a revision renders to, called by the hash that nodes were granted or run, if any were.
    pub(super) fn rendering(
        &self,
        hash: &RolloutHash,
        revision: &ObservedRevision,
        restart: Option<&RestartTime>,
        is_granted: impl Fn(&PodTemplateHash) -> bool,
    ) -> Option<Rendering> {
        let (hashes, image) = self.hashes_of(hash, revision, restart)?;
        Some(Rendering { hash: hashes.called(is_granted).clone(), image })
    }

    pub(super) fn hashes_of(
        &self,
        hash: &RolloutHash,
        revision: &ObservedRevision,
        restart: Option<&RestartTime>,
    ) -> Option<(Hashes<PodTemplateHash>, String)> {
        let key = (hash.clone(), restart.cloned());
        if let Some((hashes, image)) = self.memory.renderings.get(&key) {
            return Some((hashes.into(), image));
        }
        let spec = RevisionData::from_value(&revision.data.value()).ok()?.apply_to(&self.spec.template.spec);
        let restart = restart.map(RestartTime::as_str);
        let template = render::pod_template(&spec, restart, &self.options).ok()?;
        let hashes = Hashes::of(|version| pod_template_hash_under(version, &template));
        let image = revision::main_image(&spec).unwrap_or_default().to_owned();
        self.memory.renderings.put(&key, (hashes.clone().into(), image.clone()));
        Some((hashes, image))
    }

    /// The rollout hash of what a node's spec says; none where that cannot be read.
    pub(super) fn spec_hash(&self, node: &ObservedNode, build_id: Option<&BuildId>) -> Option<RolloutHash> {
        let spec = node.spec.as_ref().ok()?;
        let hashes = || {
            let found = || Ok::<_, Infallible>(RevisionData::of(spec).rollout_hashes(field(build_id)).into());
            let Ok(hashes) = self.memory.rollout_hashes.of(spec, field(build_id), found);
            Hashes::from(hashes)
        };
        Some(self.hash_of(&node.meta.uid, build_id, node.meta.generation, hashes))
    }

    /// The rollout hash that a node of the active set holds. Nodes that are updated in place take any build ID: one that is
    /// still at what last completed holds that, under the ID of then, unless just that is wanted without it.
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
