//! How a fleet is observed: everything that a decision about it rests on, put together from what is known of its
//! nodes, revisions and sets.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::FleetScope;
use super::node_scope::{effective_restart, later, parse_time};
use crate::api::conditions::{self, READY, SIDECAR_READY};
use crate::api::names::{
    ANNOTATION_ABORT, ANNOTATION_ASKED, ANNOTATION_OWNER_UID, ANNOTATION_RESTARTED_AT, ANNOTATION_RETRY,
    FIRST_SET, LABEL_DEPLOYMENT, LABEL_SET, node_name, place_of,
};
use crate::api::{OnHookFailure, Promotion, RawPlan, Stage, StrategyType};
use crate::cluster::memory::ReadPlan;
use crate::cluster::observed::{Meta, ObservedNode, ObservedRevision};
use crate::cluster::{Key, Kind};
use crate::engine::Plan;
use crate::planner::fleet::hooks::AtHook;
use crate::planner::fleet::sets::serving::{Pair, Seen, Witnesses, serving};
use crate::planner::fleet::{
    Cause, ChildFacts, Conflict, FleetFacts, Rendering, SetFacts, SetRollout, SidecarFacts, Way,
};
use crate::planner::hooks::step_of;
use crate::planner::node::decide::{awaited_removal, is_rolling, removal_of};
use crate::render;
use crate::revision::hash::pod_template_hash_under;
use crate::revision::{self, Hashes, RevisionData, revision_name};

/// A StatefulSet or a pod of a set of nodes.
struct Remnant {
    set: String,
    /// Its kind and name, for a sentence.
    what: String,
    /// Whether it goes by itself once its node is gone.
    goes: bool,
}

impl FleetScope {
    /// The rollout that makes a set, as it is persisted, if one does.
    #[must_use]
    pub fn set_rollout(&self) -> Option<SetRollout> {
        SetRollout::of(&self.fleet.status)
    }

    fn under_way(&self) -> Option<Cause> {
        let rollout = self.fleet.status.rollout.as_ref();
        let rollout = rollout.filter(|r| !matches!(r.stage, Stage::Promoting | Stage::Retiring))?;
        Some(Cause::of(&rollout.cause).unwrap_or(Cause::TemplateChanged))
    }

    /// The rollout whose target is read from the status, because it can no longer be taken back.
    fn promoting(&self) -> Option<SetRollout> {
        self.set_rollout().filter(|r| r.stage == Stage::Promoting)
    }

    /// The `unsafeCustomBuildID` of what is wanted; empty where it is generated.
    #[must_use]
    pub fn build_id(&self) -> String {
        self.promoting().map_or_else(|| self.spec.unsafe_custom_build_id.clone(), |r| r.build_id)
    }

    /// The rollout hash of what is wanted: by the spec, or by the promotion that is under way.
    #[must_use]
    pub fn requested(&self) -> String {
        self.promoting().map_or_else(|| self.specified(), |rollout| rollout.target)
    }

    /// The rollout hash of what the spec says, whatever is promoted meanwhile.
    #[must_use]
    pub fn specified(&self) -> String {
        let meta = &self.fleet.meta;
        let build_id = &self.spec.unsafe_custom_build_id;
        let hashes = || RevisionData::of(&self.spec.template.spec).rollout_hashes(build_id);
        self.hash_of(&meta.uid, build_id, meta.generation, hashes)
    }

    /// Whether a rollout hash is written down anywhere.
    fn is_recorded(&self, hash: &str) -> bool {
        let (meta, status) = (&self.fleet.meta, &self.fleet.status);
        let rollout = status.rollout.iter().flat_map(|r| [&r.target_hash, &r.from_hash]);
        let others = status.rejected.iter().map(|r| &r.hash).chain(status.retiring.iter().map(|r| &r.hash));
        let said = [&status.requested_rollout_hash, &status.last_completed_rollout_hash];
        let name = revision_name(&meta.name, &meta.uid, hash);
        let planned = || status.plan.as_ref().and_then(|plan| plan.parse().ok()).map(|plan| plan.target_hash);
        said.into_iter().chain(rollout).chain(others).any(|said| said == hash)
            || self.view.revisions.get(&Key::new(&meta.namespace, &name)).is_some()
            || planned().is_some_and(|planned| planned == hash)
    }

    fn hash_of(&self, uid: &str, build_id: &str, generation: i64, hashes: impl FnOnce() -> Hashes) -> String {
        let key = (uid.to_owned(), build_id.to_owned());
        if let Some((_, hash)) = self.memory.held.get(&key).filter(|(g, _)| *g == generation) {
            return hash;
        }
        let hash = hashes().called(|hash| self.is_recorded(hash)).to_owned();
        self.memory.held.put(key, (generation, hash.clone()));
        hash
    }

    /// The build IDs under which anything of this fleet may have been made.
    #[must_use]
    pub fn build_ids(&self) -> BTreeSet<String> {
        let status = &self.fleet.status;
        let retiring = status.retiring.iter().map(|set| set.build_id.clone());
        let rollout = status.rollout.iter().map(|rollout| rollout.build_id.clone());
        // What last completed did so under the recorded one, whatever the spec says by now.
        let recorded = status.active_build_id.clone();
        let known = [self.spec.unsafe_custom_build_id.clone(), self.active_build_id(), recorded];
        retiring.chain(rollout).chain(known).collect()
    }

    /// The build ID under which the active set was made. Nodes that are updated where they are take any.
    fn active_build_id(&self) -> String {
        let status = &self.fleet.status;
        let by_set = matches!(
            self.spec.update_strategy.strategy(),
            Some(StrategyType::BlueGreen | StrategyType::HardFork)
        );
        // What serves while others are made to take over stays what it is, whatever the strategy is by now.
        let by_set = by_set || self.set_rollout().is_some();
        if by_set && !status.last_completed_rollout_hash.is_empty() {
            status.active_build_id.clone()
        } else {
            self.spec.unsafe_custom_build_id.clone()
        }
    }

    /// The revisions of this fleet that are kept and can be read, by rollout hash. One content has another hash under
    /// each build ID.
    #[must_use]
    pub fn revisions(&self) -> BTreeMap<String, Arc<ObservedRevision>> {
        let meta = &self.fleet.meta;
        let mut kept = self.view.revisions.group(&meta.namespace, &meta.uid);
        kept.retain(|revision| revision.meta.is_controlled_by(&meta.uid));
        let build_ids = self.build_ids();
        let mut found: BTreeMap<String, Arc<ObservedRevision>> = BTreeMap::new();
        for revision in kept {
            for build_id in &build_ids {
                let Some(hash) = self.rollout_hash_of(&revision, build_id) else { continue };
                let is_its_own = revision_name(&meta.name, &meta.uid, &hash) == revision.meta.name;
                if is_its_own || !found.contains_key(&hash) {
                    found.insert(hash, revision.clone());
                }
            }
        }
        found
    }

    /// What a revision said, as far as a node or the template still holds it: its content hashes to this.
    #[must_use]
    pub fn held_content(&self, hash: &str) -> Option<RevisionData> {
        let build_ids = self.build_ids();
        let children = self.children();
        let specs = children.iter().filter_map(|node| node.spec.as_deref().ok());
        let contents = specs.chain([&self.spec.template.spec]).map(RevisionData::of);
        contents.into_iter().find(|data| build_ids.iter().any(|id| data.rollout_hashes(id).is(hash)))
    }

    pub(super) fn rollout_hash_of(&self, revision: &ObservedRevision, build_id: &str) -> Option<String> {
        let key = (revision.meta.uid.clone(), build_id.to_owned());
        if let Some((_, hash)) = self.memory.held.get(&key) {
            return Some(hash);
        }
        let hashes = RevisionData::from_value(&revision.data.value()).ok()?.rollout_hashes(build_id);
        let hash = hashes.called(|hash| self.is_recorded(hash)).to_owned();
        self.memory.held.put(key, (0, hash.clone()));
        Some(hash)
    }

    pub(super) fn look(&self) -> FleetFacts {
        let (spec, meta, status) = (&self.spec, &self.fleet.meta, &self.fleet.status);
        let requested = self.requested();
        let revisions = self.revisions();
        let (active, undecided) = match self.serving() {
            Ok(set) => (set, None),
            Err(sentence) => (self.recorded_set(), Some(sentence)),
        };
        let mut sets = self.other_sets(&active);
        let children = self.nodes_by_set().remove(&active).unwrap_or_default();
        let children: Vec<ChildFacts> = self.children_of(&active, &children);
        let nodes = sets.values().flat_map(|set| &set.children).chain(&children);
        let mut restarts: BTreeSet<String> = nodes.map(|c| c.restart.clone()).collect();
        restarts.insert(self.restarted_at.clone());
        let is_granted = |hash: &str| {
            let mut nodes = sets.values().flat_map(|set| &set.children).chain(&children);
            nodes.any(|child| child.granted == hash || child.running == hash)
        };
        let mut renderings = BTreeMap::new();
        for (hash, revision) in &revisions {
            for restart in &restarts {
                if let Some(rendering) = self.rendering(hash, revision, restart, is_granted) {
                    renderings.insert((hash.clone(), restart.clone()), rendering);
                }
            }
        }
        self.count_remains(&mut sets);
        let own_plan = self.own_plan_with_hooks();
        let annotation = |key| meta.annotation(key).unwrap_or_default().to_owned();
        let promoted = &spec.force_promote;
        FleetFacts {
            replicas: spec.replicas,
            max_unavailable: spec.max_unavailable(),
            partition: spec.partition(),
            paused: spec.paused,
            on_stall: spec.update_strategy.on_stall,
            deadline_seconds: spec.update_strategy.progress_deadline_seconds,
            terminating: meta.terminating,
            rejected: status.rejected.clone().filter(|r| r.hash == requested || self.invalid.is_some()),
            force_promote: *promoted == requested && *promoted != status.spent_force_promote,
            requested,
            last_completed: status.last_completed_rollout_hash.clone(),
            restarted_at: self.restarted_at.clone(),
            restart_request: restart_request(meta, &self.restarted_at),
            unrecorded: status.requested_rollout_hash.is_empty(),
            scaled_to_zero: status.scaled_to_zero,
            abort: annotation(ANNOTATION_ABORT),
            asked: annotation(ANNOTATION_ASKED),
            retry: self.retry_request(),
            invalid: self.invalid.as_ref().map(|invalid| invalid.sentence.clone()),
            not_applied: None,
            waits_for: None,
            undecided,
            selected: self.selected_set(),
            conflicts: self.conflicts(&active, &children),
            shutting_down: self.shutting_down(&active, spec.replicas),
            strategy: self.strategy(),
            promotion: spec.promotion(),
            build_id: self.build_id(),
            active_build_id: self.active_build_id(),
            retire_delay_seconds: spec.retire_delay_seconds(),
            halt_height: spec.halt_height(),
            set_rollout: self.set_rollout(),
            under_way: self.under_way(),
            at_hook: own_plan.as_ref().and_then(AtHook::of),
            rolling_back: self.hooks_that_roll_back(),
            steps: self.steps().unwrap_or_default(),
            step: own_plan.as_ref().and_then(step_of),
            set: active,
            sets,
            children,
            renderings,
        }
    }

    /// The persisted plan, where it has tasks of hooks or steps, and can be read.
    fn own_plan_with_hooks(&self) -> Option<Plan> {
        let raw = self.fleet.status.plan.as_ref()?;
        let may_be = raw.mentions("\"hook\"") || raw.mentions("\"step\"");
        may_be.then(|| raw.parse().ok()).flatten()
    }

    fn hooks_that_roll_back(&self) -> Vec<String> {
        let hooks = self.spec.update_strategy.hooks.iter();
        let back = hooks.filter(|hook| hook.on_failure() == OnHookFailure::Rollback);
        back.map(|hook| hook.name.clone()).collect()
    }

    /// `inPlace.steps`; an error is why they are none, in a sentence. Numbers and percentages are compared with their own
    /// kind: which of both is more depends on `replicas`.
    pub fn steps(&self) -> Result<Vec<IntOrString>, String> {
        let steps = self.spec.update_strategy.in_place.as_ref().map(|s| s.steps.clone()).unwrap_or_default();
        let numbers: Vec<i64> = steps
            .iter()
            .filter_map(|step| match step {
                IntOrString::Int(count) => Some(i64::from(*count)),
                IntOrString::String(_) => None,
            })
            .collect();
        let percents: Vec<i64> = steps
            .iter()
            .filter_map(|step| match step {
                IntOrString::Int(_) => None,
                IntOrString::String(text) => text.strip_suffix('%')?.parse().ok(),
            })
            .collect();
        let ascends = |list: &[i64]| list.is_sorted_by(|left, right| left < right);
        if ascends(&numbers) && ascends(&percents) {
            return Ok(steps);
        }
        Err("updateStrategy.inPlace.steps has to ascend: each step more nodes than the one before".to_owned())
    }

    /// The plan that a retry names, unless that was obeyed for hooks of it: `PLAN`, or `PLAN/2` for one more.
    fn retry_request(&self) -> String {
        let asked = self.fleet.meta.annotation(ANNOTATION_RETRY).unwrap_or_default();
        let is_spent = self.fleet.status.hook_retry.as_ref().is_some_and(|retry| retry.asked == asked);
        if is_spent { String::new() } else { retried_plan(asked).to_owned() }
    }

    fn strategy(&self) -> Way {
        match (self.spec.update_strategy.strategy(), self.spec.promotion()) {
            (Some(StrategyType::BlueGreen), Promotion::Immediately) => Way::BlueGreenImmediate,
            (Some(StrategyType::BlueGreen), _) => Way::BlueGreen,
            (Some(StrategyType::HardFork), _) => Way::HardFork,
            (Some(StrategyType::InPlace) | None, _) => Way::InPlace,
        }
    }

    fn recorded_set(&self) -> String {
        let recorded = &self.fleet.status.active_set;
        if recorded.is_empty() { FIRST_SET.to_owned() } else { recorded.clone() }
    }

    /// The set that serves: what the status says, or, where it says nothing or is not of now, what is seen to. An error
    /// says that nothing tells.
    pub(super) fn serving(&self) -> Result<String, String> {
        let status = &self.fleet.status;
        let is_ready = |n: &&Arc<ObservedNode>| conditions::is_true(&n.status.conditions, READY);
        let seen = |nodes: &Vec<Arc<ObservedNode>>| Seen {
            nodes: nodes.len(),
            ready: nodes.iter().filter(is_ready).count(),
        };
        let told = Witnesses {
            recorded: status.active_set.clone(),
            known: status.retiring.iter().map(|r| r.set.clone()).collect(),
            selected: self.selected_set(),
            sets: self.nodes_by_set().iter().map(|(set, nodes)| (set.clone(), seen(nodes))).collect(),
            rollout: self.set_rollout().as_ref().and_then(Pair::of),
            none_wanted: self.spec.replicas == 0,
        };
        serving(&self.fleet.meta.name, &told)
    }

    /// The set that the fleet's own Service selects, where it has one.
    fn selected_set(&self) -> Option<String> {
        let service = self.view.services.get(&self.fleet.meta.key())?;
        let ours = self.spec.service.is_some() && self.owns(&service.meta) && !service.meta.terminating;
        service.spec.value()["selector"][LABEL_SET].as_str().filter(|_| ours).map(str::to_owned)
    }

    /// Its nodes by the sets that their names tell.
    #[must_use]
    pub fn nodes_by_set(&self) -> BTreeMap<String, Vec<Arc<ObservedNode>>> {
        let mut sets: BTreeMap<String, Vec<Arc<ObservedNode>>> = BTreeMap::new();
        for node in &self.children() {
            let Some((set, _)) = place_of(&self.fleet.meta.name, &node.meta.name) else { continue };
            match sets.get_mut(set) {
                Some(nodes) => nodes.push(node.clone()),
                None => drop(sets.insert(set.to_owned(), vec![node.clone()])),
            }
        }
        sets
    }

    fn children_of(&self, set: &str, nodes: &[Arc<ObservedNode>]) -> Vec<ChildFacts> {
        let build_id = self.build_id_of(set);
        let held = |node: &ObservedNode| {
            let held = self.held(node, &build_id);
            if set == self.recorded_set() { self.as_completed(node, held) } else { held }
        };
        let mut children: Vec<ChildFacts> = nodes.iter().filter_map(|n| self.child(n, held(n))).collect();
        children.sort_by_key(|c| c.ordinal);
        children
    }

    /// The build ID under which a set was made, as far as anybody knows.
    fn build_id_of(&self, set: &str) -> String {
        let status = &self.fleet.status;
        let rollout = status.rollout.as_ref().filter(|r| r.entrant_set == set);
        if let Some(rollout) = rollout.filter(|r| r.stage != Stage::Retiring) {
            return rollout.build_id.clone();
        }
        match status.retiring.iter().find(|r| r.set == set) {
            Some(retiring) => retiring.build_id.clone(),
            None => self.active_build_id(),
        }
    }

    /// Every set but the active one of which there is anything, or is to be.
    fn other_sets(&self, active: &str) -> BTreeMap<String, SetFacts> {
        let status = &self.fleet.status;
        let mut nodes = self.nodes_by_set();
        nodes.remove(active);
        let entrant = status.rollout.as_ref().map(|r| r.entrant_set.clone());
        let retiring = status.retiring.iter().map(|r| r.set.clone());
        for name in retiring.chain(entrant).filter(|name| !name.is_empty() && name != active) {
            nodes.entry(name).or_default();
        }
        let claims = &self.spec.template.spec.volume_claim_templates;
        let of = |(name, nodes): (String, Vec<Arc<ObservedNode>>)| {
            let other =
                |n: &Arc<ObservedNode>| n.spec.as_ref().is_ok_and(|s| s.volume_claim_templates != *claims);
            let is_entrant = status.rollout.as_ref().is_some_and(|r| r.entrant_set == name);
            let children = self.children_of(&name, &nodes);
            let set = SetFacts {
                conflicts: if is_entrant { self.conflicts(&name, &children) } else { Vec::new() },
                children,
                remains: 0,
                retiring: status.retiring.iter().find(|r| r.set == name).cloned(),
                claims_differ: nodes.iter().any(other),
            };
            (name, set)
        };
        nodes.into_iter().map(of).collect()
    }

    /// Counts the StatefulSets and pods that are left of sets that go: their nodes are gone sooner. What a hand has cut loose
    /// from its owner goes with nobody, and is not waited for.
    fn count_remains(&self, sets: &mut BTreeMap<String, SetFacts>) {
        if sets.is_empty() {
            return;
        }
        for left in self.remains().iter().filter(|left| left.goes) {
            if let Some(set) = sets.get_mut(&left.set) {
                set.remains += 1;
            }
        }
    }

    /// Every StatefulSet and pod of the fleet that says to which set it belongs.
    fn remains(&self) -> Vec<Remnant> {
        let meta = &self.fleet.meta;
        let of_kind = |kind: Kind, m: &Meta| {
            let set = m.label(LABEL_SET).filter(|_| m.label(LABEL_DEPLOYMENT) == Some(&meta.name))?;
            let leaving = if m.terminating { " (terminating)" } else { "" };
            Some(Remnant {
                set: set.to_owned(),
                what: format!("{} {}{leaving}", kind.name(), m.name),
                goes: m.terminating || m.controller().is_some(),
            })
        };
        let stateful_sets = self.view.sets.group(&meta.namespace, &meta.name);
        let pods = self.view.pods.group(&meta.namespace, &meta.name);
        let of_sets = stateful_sets.iter().filter_map(|s| of_kind(Kind::StatefulSet, &s.meta));
        of_sets.chain(pods.iter().filter_map(|p| of_kind(Kind::Pod, &p.meta))).collect()
    }

    /// What nodes, StatefulSets and pods of a set are left, those included that a hand has cut loose: they may run.
    #[must_use]
    pub fn left_of(&self, set: &str) -> Vec<String> {
        let nodes = self.nodes_by_set().remove(set).unwrap_or_default();
        let nodes = nodes.iter().map(|node| format!("StatefulNode {}", node.meta.name));
        let others = self.remains().into_iter().filter(|left| left.set == set).map(|left| left.what);
        nodes.chain(others).collect()
    }

    /// What a revision renders to, called by the hash that nodes were granted or run, if any were.
    fn rendering(
        &self,
        hash: &str,
        revision: &ObservedRevision,
        restart: &str,
        is_granted: impl Fn(&str) -> bool,
    ) -> Option<Rendering> {
        let (hashes, image) = self.hashes_of(hash, revision, restart)?;
        Some(Rendering { hash: hashes.called(is_granted).to_owned(), image })
    }

    fn hashes_of(&self, hash: &str, revision: &ObservedRevision, restart: &str) -> Option<(Hashes, String)> {
        let key = (hash.to_owned(), restart.to_owned());
        if let Some((hashes, image)) = self.memory.renderings.get(&key) {
            return Some((hashes.into(), image));
        }
        let spec = RevisionData::from_value(&revision.data.value()).ok()?.apply_to(&self.spec.template.spec);
        let restart = (!restart.is_empty()).then_some(restart);
        let template = render::pod_template(&spec, restart, &self.options).ok()?;
        let hashes = Hashes::of(|version| pod_template_hash_under(version, &template));
        let image = revision::main_image(&spec).unwrap_or_default().to_owned();
        self.memory.renderings.put(key, (hashes.clone().into(), image.clone()));
        Some((hashes, image))
    }

    /// Since when a node is Ready, by our clock. A time in the future is of a clock that is ahead of ours, or that ours was
    /// set back from: such a node is Ready since we first saw it so.
    pub(super) fn ready_since(&self, node: &ObservedNode) -> Option<DateTime<Utc>> {
        let ready = conditions::find(&node.status.conditions, READY).filter(|c| c.status == "True")?;
        let since = ready.last_transition_time;
        if since <= self.now {
            return Some(since);
        }
        let passed = self.memory.ready_ahead_for(&node.meta.uid, since);
        let passed = TimeDelta::from_std(passed).unwrap_or_default();
        Some(self.now - passed)
    }

    /// Whether a node that is Ready since then has been so for minReadySeconds. No wait is no wait, whatever our clock says of the
    /// time at which it became Ready.
    pub(super) fn is_long_enough(&self, ready_since: Option<DateTime<Utc>>) -> bool {
        let least = TimeDelta::seconds(self.spec.min_ready_seconds);
        least.is_zero() || ready_since.is_some_and(|since| since + least <= self.now)
    }

    fn child(&self, node: &ObservedNode, held: String) -> Option<ChildFacts> {
        let meta = &node.meta;
        let (_, ordinal) = place_of(&self.fleet.meta.name, &meta.name)?;
        let status = &node.status;
        let spec = node.spec.as_ref();
        let ready_since = self.ready_since(node);
        let own_restart = effective_restart(node);
        let unreachable =
            conditions::find(&status.conditions, SIDECAR_READY).filter(|c| c.reason == "Unreachable");
        let read = self.read_plan(node);
        Some(ChildFacts {
            name: meta.name.clone(),
            ordinal,
            asked_to_leave: spec.is_ok_and(|s| !s.removal_id.is_empty()),
            leaves_by_plan: read.leaves,
            awaits_removal: read.awaited_removal.is_some_and(|id| spec.is_ok_and(|s| s.removal_id == id)),
            unreadable: spec.is_err(),
            surplus: ordinal >= self.spec.replicas,
            terminating: meta.terminating,
            behind: status.observed_generation != meta.generation
                || self.view.is_in_doubt(Kind::StatefulNode, meta),
            held,
            granted: spec.map(|s| s.granted_hash.clone()).unwrap_or_default(),
            grant_id: spec.map(|s| s.grant_id.clone()).unwrap_or_default(),
            spent_id: status.spent_grant_id.clone(),
            restart: later(&self.restarted_at, &own_restart).to_owned(),
            running: status.pod_template_hash.clone(),
            running_image: status.current_image.clone(),
            rolling: read.rolling,
            at_hook: read.at_hook,
            // What a rollout has ended since it has put right, and said.
            was_edited: status.edit_found_at.is_some_and(|at| at <= self.now && at > self.last_ended_at()),
            ready: ready_since.is_some(),
            ready_since,
            available: ready_since.is_some() && self.is_long_enough(ready_since),
            ever_ready: status.first_ready_at.is_some(),
            failed: status.phase == "Failed",
            pod_runs: status.pod_runs,
            unreachable: unreachable.map(|c| c.message.clone()),
            problem: status.problem.clone(),
            sidecar: sidecar_facts(node),
        })
    }

    /// When a plan of the fleet last ended: the latest of the times that have come, since a clock that was set back makes later
    /// plans end earlier.
    fn last_ended_at(&self) -> DateTime<Utc> {
        let ended = self.fleet.status.history.iter().filter_map(|entry| entry.finished_at);
        ended.filter(|at| *at <= self.now).max().unwrap_or_default()
    }

    /// What is said by a node's plan. Reading a plan costs more than all else that is read of a node, so it is done once for
    /// each time that the node changed.
    fn read_plan(&self, node: &ObservedNode) -> ReadPlan {
        let (uid, version) = (&node.meta.uid, &node.meta.resource_version);
        if let Some((_, read)) = self.memory.plans.get(uid).filter(|(at, _)| at == version) {
            return read;
        }
        let read = match node.status.plan.as_ref().map(RawPlan::parse) {
            Some(Ok(plan)) => ReadPlan {
                rolling: plan.is_active() && is_rolling(&plan.recipe),
                leaves: removal_of(&plan).is_some(),
                awaited_removal: awaited_removal(&plan).map(str::to_owned),
                at_hook: AtHook::of(&plan),
            },
            // What cannot be read may be anything; its executor fails it at its next reconcile.
            Some(Err(_)) => ReadPlan { rolling: true, ..ReadPlan::default() },
            None => ReadPlan::default(),
        };
        self.memory.plans.put(uid.clone(), (version.clone(), read.clone()));
        read
    }

    pub(super) fn held(&self, node: &ObservedNode, build_id: &str) -> String {
        let Ok(spec) = &node.spec else { return String::new() };
        let hashes = || {
            let found = || Ok::<_, Infallible>(RevisionData::of(spec).rollout_hashes(build_id).into());
            let Ok(hashes) = self.memory.rollout_hashes.of(spec, build_id, found);
            Hashes::from(hashes)
        };
        self.hash_of(&node.meta.uid, build_id, node.meta.generation, hashes)
    }

    /// The rollout hash that a node of the active set holds. Nodes that are updated in place take any build ID: one that is
    /// still at what last completed holds that, under the ID of then, unless just that is wanted without it.
    fn as_completed(&self, node: &ObservedNode, held: String) -> String {
        let status = &self.fleet.status;
        let completed = &status.last_completed_rollout_hash;
        let is_other = held != *completed && !completed.is_empty() && held != self.requested();
        if is_other && self.held(node, &status.active_build_id) == *completed {
            completed.clone()
        } else {
            held
        }
    }

    /// Whose an object is that is not this fleet's, in the words after its name.
    #[must_use]
    pub fn whose(&self, object: &Meta) -> String {
        if let Some(owner) = object.controller() {
            return format!("belongs to {} {} (uid {})", owner.kind, owner.name, owner.uid);
        }
        let Some(uid) = object.annotation(ANNOTATION_OWNER_UID) else {
            return "exists and belongs to no fleet".to_owned();
        };
        let Some(name) = object.label(LABEL_DEPLOYMENT) else {
            return format!("was left by a fleet that was deleted (uid {uid})");
        };
        let fleet = self.view.fleets.get(&Key::new(&object.namespace, name));
        if fleet.is_some_and(|fleet| fleet.meta.uid == uid) {
            format!("belongs to NodeDeployment {name} (uid {uid})")
        } else {
            format!("was left by NodeDeployment {name}, which was deleted (uid {uid})")
        }
    }

    /// Names of nodes of a set that belong to something else. These are its own, by ordinal.
    fn conflicts(&self, set: &str, own: &[ChildFacts]) -> Vec<Conflict> {
        let meta = &self.fleet.meta;
        let is_own = |ordinal: &i32| own.binary_search_by_key(ordinal, |child| child.ordinal).is_ok();
        let taken = |ordinal| {
            let name = node_name(&meta.name, set, ordinal);
            let node = self.view.nodes.get(&Key::new(&meta.namespace, &name))?;
            (!self.owns(&node.meta)).then(|| Conflict {
                message: format!(
                    "template: StatefulNode {name} {}; Windlass does not touch it: delete it, or give the fleet \
                     another name",
                    self.whose(&node.meta)
                ),
                name,
                ordinal,
            })
        };
        (0..self.spec.replicas).filter(|ordinal| !is_own(ordinal)).filter_map(taken).collect()
    }
}

/// The plan that a value of `windlass.dev/retry` names: what follows a slash tells one wish from another.
#[must_use]
pub fn retried_plan(asked: &str) -> &str {
    asked.split('/').next().unwrap_or_default()
}

/// What a node's sidecar last said of the pod that runs now.
fn sidecar_facts(node: &ObservedNode) -> Option<SidecarFacts> {
    let spec = node.spec.as_ref().ok()?;
    spec.sidecar.as_ref()?;
    let said = node.status.sidecar.as_ref().filter(|s| s.pod_uid == node.status.pod_uid);
    Some(SidecarFacts {
        caught_up: said.is_some_and(|s| s.caught_up),
        height: said.and_then(|s| s.height),
        halted_for: said.filter(|s| s.halted).map(|s| s.halt_task_id.clone()).unwrap_or_default(),
        halt_height: spec.halt_height,
        halt_task: spec.halt_task_id.clone(),
        message: said.map(|s| s.message.clone()).unwrap_or_default(),
    })
}

/// A restart that is asked for and was not yet obeyed. One from before the fleet was made was asked of another.
pub(super) fn restart_request(meta: &Meta, obeyed: &str) -> Option<String> {
    let asked = meta.annotation(ANNOTATION_RESTARTED_AT)?;
    let asked_at = parse_time(asked)?;
    if meta.created_at.is_some_and(|made| asked_at <= made) {
        return None;
    }
    parse_time(obeyed).is_none_or(|at| asked_at > at).then(|| asked.to_owned())
}
