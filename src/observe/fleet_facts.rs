//! Observes a fleet: collects everything that a decision about it is based on, from its nodes, revisions and sets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::FleetScope;
use super::fleet_record::halt_height;
use super::restart::{restart_request, retried_plan};
use crate::api::conditions::{self, READY, STALLED, Truth};
use crate::api::names::{
    ANNOTATION_ABORT, ANNOTATION_ABORT_ROLLBACK, ANNOTATION_LAST_REQUEST, ANNOTATION_OWNER_UID,
    ANNOTATION_RESTARTED_AT, ANNOTATION_RETRY, LABEL_DEPLOYMENT, LABEL_SET, place_of,
};
use crate::api::{
    Ending, Groups, HookPoint, NodeDeploymentStatus, NodeName, OnHookFailure, PlanId, Promotion, RestartTime,
    Rollout, RolloutHash, SetName, StrategyType,
};
use crate::engine::Plan;
use crate::planner::fleet::facts::{
    Findings, RecordFacts, RequestFacts, Rollout as FleetRollout, RolloutFacts, ServiceFacts, SpecFacts,
};
use crate::planner::fleet::gate::Gate;
use crate::planner::fleet::hooks::AtHook;
use crate::planner::fleet::sets::serving::{ActiveSetEvidence, Seen, serving};
use crate::planner::fleet::{ChildFacts, Conflict, Domain, FleetFacts, FleetKind, SetFacts, Strategy};
use crate::planner::hooks::step_of;
use crate::revision::{ClaimsComparison, RevisionData, config};
use windlass_kube_port::observed::{Meta, ObservedNode};
use windlass_kube_port::{Key, Kind};

/// A StatefulSet or a pod of a set of nodes.
struct Remnant {
    set: SetName,
    /// The object's kind, name and state, for a message.
    what: String,
    /// True if it is removed without a person's help once its node is gone.
    goes: bool,
}

/// An object that remains of a set, and its state, for a message. If a person removed its owner reference, only a
/// person
/// deletes it.
#[must_use]
pub fn describe_remnant(kind: Kind, meta: &Meta) -> String {
    let state = match (meta.terminating, meta.controller().is_some()) {
        (true, _) => " (terminating)",
        (false, true) => "",
        (false, false) => " (it no longer has an owner: delete it)",
    };
    format!("{} {}{state}", kind.name(), meta.name)
}

impl FleetScope {
    pub(super) fn observe_facts(&self) -> FleetFacts {
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
        let mut restarts: BTreeSet<Option<RestartTime>> =
            nodes.flat_map(|c| [c.restarts.asked.clone(), c.restarts.told.clone()]).collect();
        restarts.insert(self.restarted_at.clone());
        if status.rejected.as_ref().is_some_and(|r| r.ending() == Some(Ending::Aborted)) {
            // Their pods may be from before the restart that was aborted.
            let moves = children.iter().filter(|c| !c.is_spent() && c.pod.hash != c.grant.hash);
            restarts.extend(moves.map(|c| self.restart_of_pod(&c.name)));
        }
        let mut renderings = BTreeMap::new();
        for (hash, revision) in &revisions {
            for restart in &restarts {
                if let Some(rendering) = self.rendering(hash, revision, restart.as_ref()) {
                    renderings.insert((hash.clone(), restart.clone()), rendering);
                }
            }
        }
        self.count_remains(&mut sets);
        FleetFacts {
            kind: FleetKind::Nodes,
            groups: Vec::new(),
            spec: self.spec_facts(),
            terminating: meta.terminating,
            requests: self.request_facts(&requested),
            record: self.record_facts(&requested),
            rollout: self.rollout_facts(),
            findings: Findings { undecided, blocker: self.blocker.clone(), ..Findings::default() },
            service: ServiceFacts { selected: self.selected_set(), is_missing: self.lacks_service() },
            requested,
            conflicts: self.conflicts(&active, &children),
            shutting_down: self.shutting_down(&active, spec.replicas),
            ending_domains: self.ending_domains(&active),
            ending: self.ending(),
            set: active,
            sets,
            children,
            renderings,
        }
    }

    /// The failure domains of the pods of a set that end although their nodes were removed.
    fn ending_domains(&self, set: &SetName) -> BTreeMap<String, Domain> {
        if self.spec.topology().is_none() {
            return BTreeMap::new();
        }
        let domain = |name: String| {
            let pod = self.view.pods.get(&Key::new(&self.fleet.meta.namespace, name.as_str()))?;
            let domain = self.domain_at(0, pod.node()?, Some(&pod));
            domain.name().is_some().then_some((name, domain))
        };
        self.shutting_down(set, self.spec.replicas).into_iter().filter_map(domain).collect()
    }

    pub(super) fn spec_facts(&self) -> SpecFacts {
        let spec = &self.spec;
        SpecFacts {
            replicas: spec.replicas,
            max_unavailable: spec.max_unavailable(),
            topology: spec.topology().cloned(),
            partition: spec.partition(),
            paused: spec.paused,
            on_stall: spec.update_strategy.on_stall,
            has_predecessors: !spec.update_strategy.after.is_empty(),
            deadline_seconds: spec.update_strategy.progress_deadline_seconds,
            strategy: self.strategy(),
            promotion: spec.promotion(),
            build_id: self.build_id(),
            retire_delay_seconds: spec.retire_delay_seconds(),
            halt_height: spec.halt_height(),
            steps: self.spec.update_strategy.in_place.as_ref().map(|s| s.steps.clone()).unwrap_or_default(),
            max_initializing: spec.creation.and_then(|creation| creation.max_initializing),
            creation_hooks: HookPoint::OF_NEW_NODES
                .into_iter()
                .filter(|point| spec.update_strategy.hooks.iter().any(|hook| hook.at == *point))
                .collect(),
            groups: Groups::Together,
        }
    }

    pub(super) fn request_facts(&self, requested: &RolloutHash) -> RequestFacts {
        let (meta, promoted) = (&self.fleet.meta, &self.spec.force_promote);
        let abort = meta.annotation(ANNOTATION_ABORT).and_then(PlanId::recorded);
        RequestFacts {
            asked: meta
                .annotation(ANNOTATION_LAST_REQUEST)
                .filter(|asked| !asked.is_empty())
                .map(str::to_owned),
            restart: restart_request(meta, self.restarted_at.as_ref()),
            abort_rolls_back: abort.as_ref().map(AsRef::as_ref) == meta.annotation(ANNOTATION_ABORT_ROLLBACK),
            abort,
            retry: self.retry_request(),
            open_window: self.open_window(),
            force_promote: *requested == **promoted && *promoted != self.fleet.status.spent_force_promote,
        }
    }

    pub(super) fn record_facts(&self, requested: &RolloutHash) -> RecordFacts {
        let status = &self.fleet.status;
        RecordFacts {
            existed: status.replicas,
            stalled: has_stalled(status),
            last_completed: status.last_completed(),
            rejected: status.rejected.clone().filter(|r| *requested == *r.hash || self.blocker.is_some()),
            differs_in_config_only: self.differs_in_config_only(requested),
            restarted_at: self.restarted_at.clone(),
            unrecorded: status.requested_rollout_hash.is_empty(),
            scaled_to_zero: status.scaled_to_zero,
            active_build_id: self.active_build_id(),
        }
    }

    fn differs_in_config_only(&self, requested: &RolloutHash) -> bool {
        let template = &self.spec.template.spec;
        if config::digest_in(&template.pod_template).is_empty() {
            return false;
        }
        let Some(completed) = self.fleet.status.last_completed().filter(|completed| completed != requested)
        else {
            return false;
        };
        let before = self.revisions().remove(&completed);
        let before = before.and_then(|before| RevisionData::from_value(&before.data.value()).ok());
        before.is_some_and(|before| before.differs_in_config_only(&self.desired_revision()))
    }

    pub(super) fn rollout_facts(&self) -> RolloutFacts {
        let own_plan = self.own_plan_with_hooks();
        RolloutFacts {
            now: FleetRollout::of(&self.fleet.status),
            at_hook: own_plan.as_ref().and_then(AtHook::of),
            rolling_back: self.hooks_that_roll_back(),
            step: own_plan.as_ref().and_then(step_of),
            gate: Gate::Open,
            limits: self.neighbours.limits().clone(),
        }
    }

    /// The restart that a node's pod was created with.
    fn restart_of_pod(&self, node: &NodeName) -> Option<RestartTime> {
        let pod = self.view.pods.get(&Key::new(&self.fleet.meta.namespace, node.pod()))?;
        pod.meta.annotation(ANNOTATION_RESTARTED_AT).and_then(RestartTime::recorded)
    }

    /// The persisted plan, if it has tasks of hooks or steps and can be parsed.
    pub(super) fn own_plan_with_hooks(&self) -> Option<Plan> {
        let raw = self.fleet.status.plan.as_ref()?;
        let may_be = raw.mentions("\"hook\"") || raw.mentions("\"step\"");
        may_be.then(|| raw.parse().ok()).flatten()
    }

    fn hooks_that_roll_back(&self) -> Vec<String> {
        let hooks = self.spec.update_strategy.hooks.iter();
        let back = hooks.filter(|hook| hook.on_failure() == OnHookFailure::Rollback);
        back.map(|hook| hook.name.clone()).collect()
    }

    /// The plan that a retry names (`PLAN`, or `PLAN/2` for another retry of it), unless that request was already used
    /// up for the plan's hooks.
    fn retry_request(&self) -> Option<PlanId> {
        let asked = self.fleet.meta.annotation(ANNOTATION_RETRY)?;
        let is_spent = self.fleet.status.hook_retry.as_ref().is_some_and(|retry| retry.request == asked);
        if is_spent { None } else { PlanId::recorded(retried_plan(asked)) }
    }

    fn strategy(&self) -> Strategy {
        match (self.spec.update_strategy.strategy(), self.spec.promotion()) {
            (Some(StrategyType::BlueGreen), Promotion::Immediately) => Strategy::BlueGreenImmediate,
            (Some(StrategyType::BlueGreen), _) => Strategy::BlueGreen,
            (Some(StrategyType::HardFork), _) => Strategy::HardFork,
            (Some(StrategyType::InPlace) | None, _) => Strategy::InPlace,
        }
    }

    pub(super) fn recorded_set(&self) -> SetName {
        self.fleet.status.active_set().unwrap_or(SetName::FIRST)
    }

    /// The set that serves: the one in the status or, if the status names none or is out of date, the one that the
    /// observed objects show. An error is a sentence: nothing shows which set serves.
    pub(super) fn serving(&self) -> Result<SetName, String> {
        let status = &self.fleet.status;
        let is_ready = |n: &&Arc<ObservedNode>| conditions::is_true(&n.status.conditions, READY);
        let seen = |nodes: &Vec<Arc<ObservedNode>>| Seen {
            nodes: nodes.len(),
            ready: nodes.iter().filter(is_ready).count(),
        };
        let sets = self.nodes_by_set();
        let retiring = status.retiring.iter().map(|retiring| retiring.set.as_str());
        let of_rollout = status.rollout.iter().flat_map(|r| [r.incumbent_set.as_str(), &r.entrant_set]);
        let known = retiring.chain(of_rollout).filter(|set| *set != status.active_set);
        let is_halting = |nodes: &[Arc<ObservedNode>]| halt_height(nodes).is_some();
        let halting = sets.iter().filter(|(_, nodes)| status.rollout.is_none() && is_halting(nodes));
        let told = ActiveSetEvidence {
            recorded: status.active_set(),
            known: known.filter_map(SetName::recorded).collect(),
            selected: self.selected_set(),
            halting: halting.map(|(set, _)| set.clone()).collect(),
            sets: sets.iter().map(|(set, nodes)| (set.clone(), seen(nodes))).collect(),
            none_wanted: self.spec.replicas == 0,
        };
        serving(&self.fleet.meta.name, &told)
    }

    /// The set that the fleet's own Service selects, if there is such a Service.
    pub(super) fn selected_set(&self) -> Option<SetName> {
        let service = self.view.services.get(&self.fleet.meta.key())?;
        let ours = self.spec.service.is_some() && self.owns(&service.meta) && !service.meta.terminating;
        service.spec.value()["selector"][LABEL_SET].as_str().filter(|_| ours).and_then(SetName::recorded)
    }

    /// True if the spec has a `service`, and the fleet has none of its own, or only one that is being deleted.
    fn lacks_service(&self) -> bool {
        let service = self.view.services.get(&self.fleet.meta.key());
        self.spec.service.is_some()
            && service.is_none_or(|service| !self.owns(&service.meta) || service.meta.terminating)
    }

    /// The fleet's nodes, grouped by the set in their names.
    #[must_use]
    pub(crate) fn nodes_by_set(&self) -> BTreeMap<SetName, Vec<Arc<ObservedNode>>> {
        let mut sets: BTreeMap<SetName, Vec<Arc<ObservedNode>>> = BTreeMap::new();
        for node in &self.children() {
            let Some((set, _)) = place_of(&self.fleet.meta.name, &node.meta.name) else { continue };
            sets.entry(set).or_default().push(node.clone());
        }
        sets
    }

    /// Every set except the active one that has nodes, is retiring, or is to be created.
    fn other_sets(&self, active: &SetName) -> BTreeMap<SetName, SetFacts> {
        let status = &self.fleet.status;
        let mut nodes = self.nodes_by_set();
        nodes.remove(active);
        let entrant = status.rollout.as_ref().and_then(Rollout::entrant);
        let retiring = status.retiring.iter().filter_map(|r| SetName::recorded(r.set.as_str()));
        for name in retiring.chain(entrant.clone()).filter(|name| name != active) {
            nodes.entry(name).or_default();
        }
        let mut claims = ClaimsComparison::with(&self.spec.template.spec.volume_claim_templates);
        let of = |(name, nodes): (SetName, Vec<Arc<ObservedNode>>)| {
            let has_others = |n: &Arc<ObservedNode>| {
                n.spec.as_ref().is_ok_and(|s| claims.is_other(&s.volume_claim_templates))
            };
            let is_entrant = entrant == name;
            let children = self.children_of(&name, &nodes);
            let set = SetFacts {
                conflicts: if is_entrant { self.conflicts(&name, &children) } else { Vec::new() },
                children,
                remains: 0,
                shutting_down: self.shutting_down(&name, self.spec.replicas),
                retiring: status.retiring.iter().find(|r| name == *r.set).cloned(),
                claims_differ: nodes.iter().any(has_others),
            };
            (name, set)
        };
        nodes.into_iter().map(of).collect()
    }

    /// Counts the StatefulSets and pods that remain of sets that are being removed: they outlive their nodes. An object
    /// that is not terminating and whose owner reference a person removed is not garbage-collected, so nothing waits
    /// for it.
    fn count_remains(&self, sets: &mut BTreeMap<SetName, SetFacts>) {
        if sets.is_empty() {
            return;
        }
        for left in self.remains().iter().filter(|left| left.goes) {
            if let Some(set) = sets.get_mut(&left.set) {
                set.remains += 1;
            }
        }
    }

    /// Every StatefulSet and pod of the fleet with a label that names its set.
    fn remains(&self) -> Vec<Remnant> {
        let meta = &self.fleet.meta;
        let of_kind = |kind: Kind, m: &Meta| {
            let ours = m.label(LABEL_DEPLOYMENT) == Some(&meta.name);
            let set = m.label(LABEL_SET).filter(|_| ours).and_then(SetName::recorded)?;
            Some(Remnant {
                set,
                what: describe_remnant(kind, m),
                goes: m.terminating || m.controller().is_some(),
            })
        };
        let stateful_sets = self.view.stateful_sets.group(&meta.namespace, &meta.name);
        let pods = self.view.pods.group(&meta.namespace, &meta.name);
        let of_sets = stateful_sets.iter().filter_map(|s| of_kind(Kind::StatefulSet, &s.meta));
        of_sets.chain(pods.iter().filter_map(|p| of_kind(Kind::Pod, &p.meta))).collect()
    }

    /// The nodes, StatefulSets and pods of a set that still exist, including those whose owner reference a person
    /// removed: they may run.
    #[must_use]
    pub(crate) fn left_of(&self, set: &SetName) -> Vec<String> {
        let nodes = self.nodes_by_set().remove(set).unwrap_or_default();
        let nodes = nodes.iter().map(|node| format!("StatefulNode {}", node.meta.name));
        let others = self.remains().into_iter().filter(|left| left.set == *set).map(|left| left.what);
        nodes.chain(others).collect()
    }

    /// Who owns an object that is not this fleet's, as the words that follow the object's name in a message.
    #[must_use]
    pub(crate) fn whose(&self, object: &Meta) -> String {
        if let Some(owner) = object.controller() {
            return format!("belongs to {} {} (uid {})", owner.kind, owner.name, owner.uid);
        }
        let Some(uid) = object.annotation(ANNOTATION_OWNER_UID) else {
            return "exists and belongs to no fleet".to_owned();
        };
        let Some(name) = object.label(LABEL_DEPLOYMENT) else {
            return format!("belongs to a deleted fleet (uid {uid})");
        };
        let fleet = self.view.fleets.get(&Key::new(&object.namespace, name));
        if fleet.is_some_and(|fleet| fleet.meta.uid == uid) {
            format!("belongs to NodeDeployment {name} (uid {uid})")
        } else {
            format!("belongs to the deleted NodeDeployment {name} (uid {uid})")
        }
    }

    /// The names of this set's nodes that belong to something else. `own` are the nodes that the set has, sorted by
    /// ordinal.
    fn conflicts(&self, set: &SetName, own: &[ChildFacts]) -> Vec<Conflict> {
        let meta = &self.fleet.meta;
        let is_own = |ordinal: &i32| own.binary_search_by_key(ordinal, |child| child.ordinal).is_ok();
        let taken = |ordinal| {
            let name = NodeName::of(&meta.name, set, ordinal);
            let node = self.view.nodes.get(&Key::new(&meta.namespace, name.as_str()))?;
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

/// True if the status reports a stall of its rollout. A stall from before the rollout says nothing about its target.
fn has_stalled(status: &NodeDeploymentStatus) -> bool {
    let began = status.rollout.as_ref().map(|rollout| rollout.started_at);
    let stalled = conditions::find(&status.conditions, STALLED).filter(|c| c.status == Truth::True.as_ref());
    stalled.is_some_and(|c| began.is_none_or(|began| c.last_transition_time >= began))
}
