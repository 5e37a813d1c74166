//! Observes the nodes of a fleet: what each node holds, runs and waits for.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::FleetScope;
use super::node_scope::main_container_of;
use super::restart::{effective_restart, later};
use crate::api::conditions::{self, READY, SIDECAR_READY, Truth};
use crate::api::names::{place_of, pod_name};
use crate::api::{
    AtHook, GrantId, HookPoint, NodeName, NodePhase, PodTemplateHash, RawPlan, Reason, RemovalId,
    RolloutHash, SetName, TaskId, TaskType, Topology,
};
use crate::cache::Sighting;
use crate::cache::computed::ReadPlan;
use crate::engine::{Plan, TaskRecord, TaskState};
use crate::planner::fleet::child::{
    ControllerFacts, GrantFacts, HealthFacts, LeaveFacts, PodFacts, RestartFacts,
};
use crate::planner::fleet::drain::{Drain, Draining};
use crate::planner::fleet::{ChildFacts, Domain, GrantTime, Order, SidecarFacts};
use crate::planner::growth::Growth;
use crate::planner::hooks::has_begun_at;
use crate::planner::node::decide::{awaited_removal, is_rolling, recipes, removal_of};
use crate::planner::node::problem::{is_crash, is_of_whole_pod};
use crate::planner::waits::{self, Wait};
use windlass_kube_port::observed::{Meta, ObservedNode, ObservedPod};
use windlass_kube_port::{Key, Kind, LivePod};

/// By how much the clocks of the API server and of Windlass may differ.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::minutes(1);
/// How much later than its pod becomes Ready a node may be marked ready: the kubelet says whole seconds.
const MARK_LAGS: TimeDelta = TimeDelta::seconds(2);

impl FleetScope {
    pub(super) fn children_of(&self, set: &SetName, nodes: &[Arc<ObservedNode>]) -> Vec<ChildFacts> {
        let build_id = self.build_id_of(set);
        let held = |node: &ObservedNode| {
            let held = self.spec_hash(node, build_id.as_ref());
            if *set == self.recorded_set() { self.as_completed(node, held) } else { held }
        };
        let draining = self.view.draining();
        let mut children: Vec<ChildFacts> =
            nodes.iter().filter_map(|n| self.child(n, held(n), &draining)).collect();
        children.sort_by_key(|c| c.ordinal);
        children
    }

    /// Since when a node is Ready, by our clock. A transition time in the future means that the other clock is ahead of
    /// ours, or that ours was set back: such a node counts as Ready since this process first saw that time.
    pub(super) fn ready_since(&self, node: &ObservedNode) -> Option<DateTime<Utc>> {
        let ready =
            conditions::find(&node.status.conditions, READY).filter(|c| c.status == Truth::True.as_ref())?;
        let since = ready.last_transition_time;
        let (uid, what) = (&node.meta.uid, Sighting::ReadyAhead(since));
        let passed = if since > self.now {
            Some(self.sightings.elapsed(uid, what))
        } else {
            self.sightings.known(uid, &what)
        };
        let passed = passed.and_then(|passed| TimeDelta::from_std(passed).ok());
        Some(passed.map_or(since, |passed| since.min(self.now - passed)))
    }

    /// True if a node that has been Ready since then has been so for `minReadySeconds`. If that is 0, this is always
    /// true, whatever the clocks say.
    pub(super) fn is_long_enough(&self, ready_since: Option<DateTime<Utc>>) -> bool {
        let least = TimeDelta::seconds(self.spec.min_ready_seconds);
        least.is_zero() || ready_since.is_some_and(|since| since + least <= self.now)
    }

    fn child(
        &self,
        node: &ObservedNode,
        spec_hash: Option<RolloutHash>,
        draining: &Draining,
    ) -> Option<ChildFacts> {
        let meta = &node.meta;
        let (_, ordinal) = place_of(&self.fleet.meta.name, &meta.name)?;
        let status = &node.status;
        let spec = node.spec.as_ref();
        let ready_since = self.ready_since(node);
        let own_restart = effective_restart(node);
        let unreachable = conditions::find(&status.conditions, SIDECAR_READY)
            .filter(|c| c.reason == Reason::Unreachable.as_ref());
        let read = self.read_plan(node);
        let removal_id = spec.ok().and_then(|spec| spec.removal_id());
        let spent = status.spent_grant_id();
        let granted = spec.ok().and_then(|spec| spec.granted());
        let available = ready_since.is_some() && self.is_long_enough(ready_since);
        let pod = || self.view.pods.get(&Key::new(&meta.namespace, pod_name(&meta.name)));
        let pod = if available { None } else { pod() };
        let grant_id =
            GrantId::in_force(spec.ok().and_then(|s| s.grant_id()), spent.as_ref(), meta.generation);
        let is_proven =
            available || (grant_id == spent && self.had_been_available(node, &read, granted.as_ref()));
        let wait = match ready_since {
            Some(since) => Wait::of(since, self.spec.min_ready_seconds).filter(|_| !available),
            None => pod.as_deref().and_then(|pod| waits::of_pod(pod, self.now)),
        };
        let growth = match self.growth(node) {
            // It records the end of its plan in a moment.
            Growth::Done if read.grows => Growth::OldTemplate,
            growth => growth,
        };
        Some(ChildFacts {
            name: NodeName::recorded(meta.name.as_str())?,
            ordinal,
            surplus: ordinal >= self.spec.replicas,
            terminating: meta.terminating,
            leave: LeaveFacts {
                asked: removal_id.is_some(),
                by_plan: read.leaves,
                began_hook: read.began_removal_hook,
                since: read.started_at.filter(|_| read.leaves),
                awaits_removal: read.awaited_removal.is_some() && read.awaited_removal == removal_id,
            },
            spec_hash,
            restarts: RestartFacts {
                asked: later(self.restarted_at.as_ref(), own_restart.as_ref()).cloned(),
                told: own_restart,
            },
            controller: ControllerFacts {
                unreadable: spec.is_err(),
                status_outdated: status.observed_generation != meta.generation
                    || self.view.has_pending_outcome(Kind::StatefulNode, meta),
                rolling: read.rolling,
                suspended: spec.is_ok_and(|spec| spec.suspend),
            },
            pod: PodFacts {
                hash: status.running(),
                image: status.current_image.clone(),
                // Edits from before the last finished rollout are already repaired and reported.
                was_edited: status
                    .edit_found_at
                    .is_some_and(|at| at <= self.now && at > self.last_ended_at()),
                ready: ready_since.is_some(),
                ready_since,
                available,
                ever_ready: self.has_served(node),
                failed: status.phase == NodePhase::Failed.as_ref(),
                // The status of a failed node takes a container that crashed for one that cannot run, until it has run
                // for some time.
                runs: status.pod_runs
                    || (status.phase == NodePhase::Failed.as_ref()
                        && pod.as_deref().is_some_and(|pod| runs_main_container(node, pod))),
                drain: self.drain(node, draining, &growth),
            },
            grant: GrantFacts {
                again_at: None,
                time: self.grant_time(node, &read, pod.as_deref(), granted.as_ref(), wait, available),
                is_proven,
                hash: granted,
                id: grant_id,
                spent_id: spent,
            },
            health: HealthFacts {
                unreachable: unreachable.map(|c| c.message.clone()),
                problem: status.problem.clone(),
                wait,
            },
            at_hook: read.at_hook.map(|at| *at),
            sidecar: sidecar_facts(node),
            growth,
            domain: self.domain(ordinal, &meta.name),
            order: self.order(node),
        })
    }

    /// The failure domain of a node.
    fn domain(&self, ordinal: i32, node: &str) -> Domain {
        let pod = self.spec.topology().and_then(|_| self.pod_of_node(node));
        self.domain_at(ordinal, node, pod.as_deref())
    }

    /// The failure domain of a node with this pod. Until a pod is scheduled, it is that of the previous one.
    pub(crate) fn domain_at(&self, ordinal: i32, node: &str, pod: Option<&ObservedPod>) -> Domain {
        let Some(topology) = self.spec.topology() else { return Domain::Fleet };
        let (known, place) = (&self.caches.computed.domains, format!("{}/{node}", self.fleet.meta.uid));
        match pod {
            Some(pod) if let Some(found) = self.domain_of_pod(topology, pod) => {
                known.put(&place, (topology.key.clone(), found.clone()));
                Domain::Named(found)
            }
            Some(pod) if !pod.machine.is_empty() => Domain::Unlabelled(ordinal),
            Some(_) | None => match known.get(&place).filter(|(key, _)| *key == topology.key) {
                Some((_, domain)) => Domain::Named(domain),
                None => Domain::Unplaced(ordinal),
            },
        }
    }

    /// The value of the topology's label: a pod's own or, if Nodes are watched, that of its machine. An empty one says nothing.
    fn domain_of_pod(&self, topology: &Topology, pod: &ObservedPod) -> Option<String> {
        let value = |meta: &Meta| {
            let value = meta.label(&topology.key).filter(|value| !value.is_empty());
            value.map(str::to_owned)
        };
        value(&pod.meta).or_else(|| value(&self.view.machines.get(&Key::new("", pod.machine.as_str()))?.meta))
    }

    fn pod_of_node(&self, node: &str) -> Option<Arc<ObservedPod>> {
        self.view.pods.get(&Key::new(&self.fleet.meta.namespace, pod_name(node)))
    }

    /// When a node is updated, by `order`.
    fn order(&self, node: &ObservedNode) -> Order {
        match self.spec.last() {
            None => Order::Any,
            Some(last) if last.sidecar.is_empty() => {
                Order::by_labels(last, self.pod_of_node(&node.meta.name).as_deref())
            }
            Some(last) => {
                let is_unreachable = conditions::find(&node.status.conditions, SIDECAR_READY)
                    .is_some_and(|c| c.reason == Reason::Unreachable.as_ref());
                match node.status.sidecar.as_ref().filter(|s| s.pod_uid == node.status.pod_uid) {
                    _ if is_unreachable => Order::by_role(last, None),
                    Some(said) => Order::by_role(last, said.role.as_deref()),
                    None if node.spec.as_ref().is_ok_and(|spec| spec.sidecar.is_some()) => Order::Unknown,
                    None => Order::by_role(last, None),
                }
            }
        }
    }

    /// Whether a node's pod has to be replaced, because its machine is being drained or its volumes grow.
    fn drain(&self, node: &ObservedNode, draining: &Draining, growth: &Growth) -> Drain {
        let asked = node.spec.as_ref().ok().and_then(|spec| spec.move_.as_ref());
        let to_restart = growth.pod_to_replace();
        if asked.is_none() && draining.is_empty() && to_restart.is_none() {
            return Drain::None;
        }
        let pod = self.view.pods.get(&Key::new(&node.meta.namespace, pod_name(&node.meta.name)));
        Drain::of(asked, pod.as_deref(), draining, to_restart)
    }

    /// The time that a node has to become available with what it was granted.
    fn grant_time(
        &self,
        node: &ObservedNode,
        read: &ReadPlan,
        pod: Option<&ObservedPod>,
        granted: Option<&PodTemplateHash>,
        wait: Option<Wait>,
        available: bool,
    ) -> GrantTime {
        let problem = node.status.problem.as_ref();
        let is_granted = |pod: &ObservedPod| {
            let made_for = pod.made_for().map(|made_for| made_for.hash);
            !pod.meta.terminating && made_for.as_ref() == granted && granted.is_some()
        };
        let replaced = read.replaced.as_deref().filter(|(hash, _)| Some(hash) == granted).map(|(_, at)| *at);
        // The StatefulSet controller replaces pods that fail, which does not restart the time. Deleting a pod does.
        let of_series = replaced.filter(|_| problem.is_some_and(is_of_whole_pod));
        let has_sidecar = node.spec.as_ref().is_ok_and(|spec| spec.sidecar.is_some());
        let begun = match pod {
            // It may still have to catch up.
            _ if available => self.ready_since(node).filter(|_| has_sidecar),
            Some(pod) if is_granted(pod) => of_series.or(pod.meta.created_at),
            // It may have been down long before it was granted anything.
            None if node.status.phase == NodePhase::Failed.as_ref() => {
                problem.map(|p| p.since).max(read.started_at)
            }
            None => replaced,
            _ => None,
        };
        let Some(begun) = begun else { return GrantTime::None };
        let given = wait.map(|wait| wait.until).max(problem.and_then(|problem| problem.allowed_until));
        let least = TimeDelta::seconds(if available { self.spec.min_ready_seconds } else { 0 });
        let allowed = TimeDelta::seconds(self.spec.update_strategy.progress_deadline_seconds);
        let until = given.map_or(begun, |given| given.max(begun)) + least + allowed;
        // A time so far in the future was written before the clock was set back.
        let is_of_another_clock = begun > self.now + allowed.max(CLOCKS_DIFFER);
        if until <= self.now || is_of_another_clock { GrantTime::Over } else { GrantTime::Until(until) }
    }

    /// True if a node that is down was available with what it was granted before: it had been Ready with that for
    /// `minReadySeconds` and, if its container crashes now, for `progressDeadlineSeconds`. If it is not known when it became
    /// Ready with it, that was before its last plan. The first grant of a node counts as spent, so it shows nothing.
    fn had_been_available(
        &self,
        node: &ObservedNode,
        read: &ReadPlan,
        granted: Option<&PodTemplateHash>,
    ) -> bool {
        let crashes = node.status.problem.as_ref().is_some_and(is_crash);
        let of_crash = if crashes { self.spec.update_strategy.progress_deadline_seconds } else { 0 };
        let least = TimeDelta::seconds(self.spec.min_ready_seconds.max(of_crash));
        let marked = read.marked.as_deref().filter(|(hash, _)| Some(hash) == granted);
        let down_since = node.status.problem.as_ref().map(|problem| problem.since);
        let served = down_since.zip(marked).map(|(down, (_, marked))| down - *marked + MARK_LAGS);
        self.has_served(node) && (least.is_zero() || served.is_none_or(|served| served >= least))
    }

    /// True if a node was ever Ready. Its status may have lost the time.
    pub(super) fn has_served(&self, node: &ObservedNode) -> bool {
        node.status.first_ready_at.is_some() || self.served_since(node).is_some()
    }

    /// Since when a node is Ready, by its status, or by its pod if the status says nothing.
    pub(super) fn served_since(&self, node: &ObservedNode) -> Option<DateTime<Utc>> {
        self.ready_since(node).or_else(|| self.pod_ready_since(node))
    }

    /// Since when the node's pod is Ready, as far as is known.
    fn pod_ready_since(&self, node: &ObservedNode) -> Option<DateTime<Utc>> {
        let pod = self.view.pods.get(&Key::new(&node.meta.namespace, pod_name(&node.meta.name)))?;
        Some(LivePod::cached(&pod)).filter(|pod| pod.ready).and_then(|pod| pod.since)
    }

    /// When a plan of the fleet last ended: the latest time that is not in the future. After a clock was set back,
    /// later plans may have earlier times.
    pub(super) fn last_ended_at(&self) -> DateTime<Utc> {
        let ended = self.fleet.status.history.iter().filter_map(|entry| entry.finished_at);
        ended.filter(|at| *at <= self.now).max().unwrap_or_default()
    }

    /// What a fleet needs from a node's plan. Parsing the plan costs more than everything else that is read from a
    /// node, so it is done once per resourceVersion.
    pub(super) fn read_plan(&self, node: &ObservedNode) -> ReadPlan {
        let (uid, version) = (&node.meta.uid, &node.meta.resource_version);
        if let Some((_, read)) = self.caches.computed.plans.get(uid).filter(|(at, _)| at == version) {
            return read;
        }
        let raw = node.status.plan.as_ref();
        let read = match raw.map(RawPlan::parse) {
            Some(Ok(plan)) => ReadPlan {
                rolling: plan.is_active() && is_rolling(&plan.recipe),
                grows: plan.is_active() && plan.recipe == recipes::GROW_CLAIMS,
                leaves: removal_of(&plan).is_some(),
                started_at: Some(plan.started_at),
                began_removal_hook: removal_of(&plan).is_some()
                    && has_begun_at(&plan, HookPoint::BeforeRemove),
                awaited_removal: awaited_removal(&plan).and_then(RemovalId::recorded),
                at_hook: AtHook::of(&plan).map(Box::new),
                marked: completed(&plan, TaskType::MarkReady),
                replaced: completed(&plan, TaskType::ReplacePod),
            },
            // A plan that cannot be parsed may be any plan, unless it is over. The node's executor fails it at its next
            // reconcile.
            Some(Err(_)) => {
                ReadPlan { rolling: raw.is_some_and(|raw| !raw.is_over()), ..ReadPlan::default() }
            }
            None => ReadPlan::default(),
        };
        self.caches.computed.plans.put(uid, (version.clone(), read.clone()));
        read
    }
}

/// True if the main container of a node's pod runs now.
pub(crate) fn runs_main_container(node: &ObservedNode, pod: &ObservedPod) -> bool {
    !pod.meta.terminating && pod.runs(&main_container_of(pod, node, None))
}

/// The target of a plan that replaces the node's pod, and when it has completed a task of this type.
fn completed(plan: &Plan, of: TaskType) -> Option<Box<(PodTemplateHash, DateTime<Utc>)>> {
    let done = |task: &&TaskRecord| of.is(task) && task.state == TaskState::Complete;
    let task = plan.tasks.iter().find(done).filter(|_| is_rolling(&plan.recipe))?;
    PodTemplateHash::recorded(plan.target_hash.as_str()).zip(task.finished_at).map(Box::new)
}

/// What a node's sidecar last reported about the pod that runs now.
fn sidecar_facts(node: &ObservedNode) -> Option<SidecarFacts> {
    let spec = node.spec.as_ref().ok()?;
    spec.sidecar.as_ref()?;
    let said = node.status.sidecar.as_ref().filter(|s| s.pod_uid == node.status.pod_uid);
    Some(SidecarFacts {
        caught_up: said.is_some_and(|s| s.caught_up),
        height: said.and_then(|s| s.height),
        halted_for: said.filter(|s| s.halted).and_then(|s| TaskId::recorded(s.halt_task_id.as_str())),
        halt_height: spec.halt_height,
        halt_task: TaskId::recorded(spec.halt_task_id.as_str()),
        message: said.map(|s| s.message.clone()).filter(|message| !message.is_empty()),
    })
}
