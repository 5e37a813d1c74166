//! Maps changes to the objects to reconcile: watches feed the caches, and each change adds the objects that it concerns
//! to the workqueues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use kube::Client;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::api::RawPlan;
use crate::api::names::{LABEL_DEPLOYMENT, LABEL_MANAGED_BY, LABEL_NODE, LABEL_POD_NAME, MANAGER, place_of};
use crate::planner::fleet::gate::WaitingFor;
use crate::probe::hooks::HookOwner;
use windlass_kube_port::observed::{Meta, ObservedFleet, ObservedNode, ObservedRollout};
use windlass_kube_port::refusals::{self, EventsOf};
use windlass_kube_port::watch::{Namespaces, watch};
use windlass_kube_port::workqueue::Request;
use windlass_kube_port::{Key, Kind, View};

/// How long a fleet's reconcile may wait after a change of a node that is under way. The fleet acts when the node has
/// finished; before that, it only counts. Two of the three writes to a node in a rollout are of this kind.
const OF_A_NODE_UNDER_WAY: Duration = Duration::from_millis(500);
/// How long a node's reconcile may wait after an intermediate change of what its plan waits for: a StatefulSet that its
/// controller has not observed, a pod that is not Ready. The final change is reconciled at once, and if it comes
/// sooner, there is one reconcile instead of five.
const ON_THE_WAY: Duration = Duration::from_millis(500);

/// Starts a watch of each kind, and a watch of the events that say why a StatefulSet has no pod.
pub fn start(
    client: &Client,
    scope: &Namespaces,
    view: &Arc<View>,
    fleets: UnboundedSender<Request>,
    nodes: UnboundedSender<Request>,
    helpers: &mut JoinSet<()>,
) {
    let managed = format!("{LABEL_MANAGED_BY}={MANAGER}");
    let of_fleets = format!("{LABEL_DEPLOYMENT},!{LABEL_NODE}");
    let triggers = Triggers { view: view.clone(), fleets, nodes };
    let api = |kind| scope.api(client, view, kind);
    let v = || view.clone();
    let streams: [(Kind, BoxStream<'static, Meta>); 8] = [
        (
            Kind::NodeDeployment,
            watch(api(Kind::NodeDeployment), None, Kind::NodeDeployment, v(), |v| &v.fleets),
        ),
        (Kind::StatefulNode, watch(api(Kind::StatefulNode), None, Kind::StatefulNode, v(), |v| &v.nodes)),
        (
            Kind::StatefulSet,
            watch(api(Kind::StatefulSet), Some(&managed), Kind::StatefulSet, v(), |v| &v.stateful_sets),
        ),
        (Kind::Service, watch(api(Kind::Service), Some(&managed), Kind::Service, v(), |v| &v.services)),
        (Kind::Pod, watch(api(Kind::Pod), Some(LABEL_NODE), Kind::Pod, v(), |v| &v.pods)),
        (
            Kind::PersistentVolumeClaim,
            watch(
                api(Kind::PersistentVolumeClaim),
                Some(LABEL_NODE),
                Kind::PersistentVolumeClaim,
                v(),
                |v| &v.claims,
            ),
        ),
        (
            Kind::PodDisruptionBudget,
            watch(api(Kind::PodDisruptionBudget), None, Kind::PodDisruptionBudget, v(), |v| &v.budgets),
        ),
        (
            Kind::ControllerRevision,
            watch(api(Kind::ControllerRevision), Some(&of_fleets), Kind::ControllerRevision, v(), |v| {
                &v.revisions
            }),
        ),
    ];
    let streams = streams.into_iter().chain(machines(client, view).map(|stream| (Kind::Node, stream)));
    let (news, mut told) = unbounded_channel();
    view.notify(news);
    let own = triggers.clone();
    helpers.spawn(async move {
        while let Some((kind, meta)) = told.recv().await {
            own.on_change(kind, &meta);
        }
    });
    let own = triggers.clone();
    let refused = move |set: Meta| own.node(&set.namespace, set.name);
    for of in [EventsOf::Refusals, EventsOf::Pods, EventsOf::Claims] {
        helpers.spawn(refusals::watch(of, api(Kind::Event), view.clone(), refused.clone()));
    }
    for (kind, mut stream) in streams {
        let triggers = triggers.clone();
        helpers.spawn(async move {
            while let Some(meta) = stream.next().await {
                triggers.on_change(kind, &meta);
            }
        });
    }
}

/// A watch of machines, if any of them is read.
fn machines(client: &Client, view: &Arc<View>) -> Option<BoxStream<'static, Meta>> {
    let api = || Namespaces::All.api(client, view, Kind::Node);
    view.watches_machines().then(|| watch(api(), None, Kind::Node, view.clone(), |view| &view.machines))
}

/// Starts a watch of StatefulSetRollouts, of the StatefulSets that Windlass did not create, and of their pods.
pub fn of_rollouts(
    client: &Client,
    scope: &Namespaces,
    view: &Arc<View>,
    rollouts: UnboundedSender<Request>,
    helpers: &mut JoinSet<()>,
) -> RolloutTriggers {
    let triggers = RolloutTriggers { view: view.clone(), rollouts };
    let not_ours = format!("{LABEL_MANAGED_BY}!={MANAGER}");
    let of_sets = format!("{LABEL_POD_NAME},!{LABEL_NODE}");
    let api = |kind| scope.api(client, view, kind);
    let v = || view.clone();
    let streams: [BoxStream<'static, Meta>; 3] = [
        watch(api(Kind::StatefulSetRollout), None, Kind::StatefulSetRollout, v(), |v| &v.rollouts),
        watch(api(Kind::StatefulSet), Some(&not_ours), Kind::StatefulSet, v(), |v| &v.stateful_sets),
        watch(api(Kind::Pod), Some(&of_sets), Kind::Pod, v(), |v| &v.pods),
    ];
    let (news, mut told) = unbounded_channel();
    view.notify(news);
    let own = triggers.clone();
    helpers.spawn(async move {
        while let Some((_, meta)) = told.recv().await {
            own.requeue_all(&meta.namespace);
        }
    });
    if let Some(mut machines) = machines(client, view) {
        let triggers = triggers.clone();
        helpers.spawn(async move {
            while machines.next().await.is_some() {
                triggers.requeue_of(&triggers.view.rollouts.list_all(|_| true));
            }
        });
    }
    for of in [EventsOf::Refusals, EventsOf::Pods] {
        let triggers = triggers.clone();
        let tell = move |set: Meta| triggers.requeue_all(&set.namespace);
        helpers.spawn(refusals::watch(of, api(Kind::Event), view.clone(), tell));
    }
    for mut stream in streams {
        let triggers = triggers.clone();
        helpers.spawn(async move {
            while let Some(meta) = stream.next().await {
                triggers.requeue_all(&meta.namespace);
            }
        });
    }
    triggers
}

/// Requeues StatefulSetRollouts.
#[derive(Clone)]
pub struct RolloutTriggers {
    view: Arc<View>,
    rollouts: UnboundedSender<Request>,
}

impl RolloutTriggers {
    /// Requeues all of a namespace: there are few, and an object may concern several.
    fn requeue_all(&self, namespace: &str) {
        self.requeue_of(&self.view.rollouts.list(namespace, |_| true));
    }

    fn requeue_of(&self, rollouts: &[Arc<ObservedRollout>]) {
        for rollout in rollouts {
            // The receiver is gone only when the operator stops.
            let _ = self.rollouts.send(rollout.meta.key().into());
        }
    }

    /// Requeues those that asked for the answer of a hook's peer.
    pub fn answered(&self, owner: &HookOwner) {
        let (HookOwner::Fleet(key) | HookOwner::Node(key)) = owner;
        self.requeue_all(&key.namespace);
    }
}

#[derive(Clone)]
struct Triggers {
    view: Arc<View>,
    fleets: UnboundedSender<Request>,
    nodes: UnboundedSender<Request>,
}

impl Triggers {
    fn on_change(&self, kind: Kind, meta: &Meta) {
        let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
        let label = |key: &str| meta.label(key).map(str::to_owned);
        let owner = |kind: &str| meta.owners.iter().find(|o| o.kind == kind).map(|o| o.name.clone());
        let fleet = || owner(Kind::NodeDeployment.name()).or_else(|| label(LABEL_DEPLOYMENT));
        match kind {
            Kind::NodeDeployment => {
                let key = Key::new(&namespace, name.clone());
                self.nodes_at_hooks(&key);
                self.those_that_wait_for(&key);
                self.fleet(&namespace, name);
            }
            Kind::StatefulNode => {
                match fleet() {
                    Some(fleet) if self.is_under_way(&Key::new(&namespace, &name)) => {
                        self.fleet_within(&namespace, fleet, OF_A_NODE_UNDER_WAY);
                    }
                    Some(fleet) => self.fleet(&namespace, fleet),
                    // Its labels are unknown or were removed: any fleet of this namespace may miss the node.
                    None => self.every_fleet(&namespace),
                }
                self.node(&namespace, name);
            }
            Kind::StatefulSet => {
                self.fleet_without(&namespace, &name, label(LABEL_DEPLOYMENT));
                let set = self.view.stateful_sets.get(&Key::new(&namespace, &name));
                self.node_waits(&namespace, name, set.is_some_and(|set| !set.is_observed()));
            }
            Kind::Service => {
                self.fleet(&namespace, name.clone());
                self.node(&namespace, name);
            }
            Kind::Pod => {
                let node = label(LABEL_NODE).or_else(|| name.strip_suffix("-0").map(str::to_owned));
                let node = node.unwrap_or_default();
                self.fleet_without(&namespace, &node, label(LABEL_DEPLOYMENT));
                let pod = self.view.pods.get(&Key::new(&namespace, name));
                self.node_waits(&namespace, node, pod.is_some_and(|pod| !pod.is_ready()));
            }
            Kind::PersistentVolumeClaim => {
                let node = label(LABEL_NODE).unwrap_or_default();
                // A set of nodes is removed only once its nodes no longer own its claims.
                let of_node = self.view.nodes.get(&Key::new(&namespace, &node));
                if let Some(fleet) = of_node.and_then(|n| n.meta.label(LABEL_DEPLOYMENT).map(str::to_owned)) {
                    self.fleet(&namespace, fleet);
                }
                self.node(&namespace, node);
            }
            // Any fleet of the namespace may have pods that a budget of somebody else selects.
            Kind::PodDisruptionBudget => match owner(Kind::NodeDeployment.name()) {
                Some(_) if meta.is_managed() => self.fleet(&namespace, name),
                _ => self.every_fleet(&namespace),
            },
            Kind::ControllerRevision => match fleet() {
                Some(fleet) => self.fleet(&namespace, fleet),
                None => self.every_fleet(&namespace),
            },
            Kind::Node => self.fleets_on(&name),
            Kind::Event
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::ServiceAccount
            | Kind::PriorityClass
            | Kind::StatefulSetRollout
            | Kind::WorkerDeployment
            | Kind::TemporalConnection
            | Kind::ClusterTemporalConnection
            | Kind::Deployment
            | Kind::Dynamic(_)
            | Kind::Job => {}
        }
    }

    fn fleet(&self, namespace: &str, name: String) {
        self.fleet_within(namespace, name, Duration::ZERO);
    }

    fn fleet_within(&self, namespace: &str, name: String, time: Duration) {
        let key = Key::new(namespace, name);
        if self.view.fleets.get(&key).is_some() {
            // The receiver is gone only when the operator stops.
            let _ = self.fleets.send(Request::after(key, time));
        }
    }

    /// True while a node carries out a grant: the grant has not started a plan yet, or the plan is not over.
    fn is_under_way(&self, node: &Key) -> bool {
        let Some(node) = self.view.nodes.get(node) else { return false };
        let granted = node.spec.as_ref().ok().and_then(|spec| spec.grant_id());
        let is_granted = granted.is_some() && granted != node.status.spent_grant_id();
        !node.meta.terminating
            && (is_granted || node.status.plan.as_ref().is_some_and(RawPlan::may_be_active))
    }

    /// Requeues the nodes of a fleet that have an active plan, if the fleet has hooks of nodes or the plan has some: the
    /// nodes read them from the fleet.
    fn nodes_at_hooks(&self, fleet: &Key) {
        let Some(fleet) = self.view.fleets.get(fleet) else { return };
        let Ok(spec) = &fleet.spec else { return };
        let has_any = spec.update_strategy.hooks.iter().any(|hook| hook.at.is_of_node());
        let nodes = self.view.nodes.group(&fleet.meta.namespace, &fleet.meta.uid);
        // A plan may have a hook that was taken out of the list.
        let may_have = |plan: &RawPlan| plan.may_be_active() && (has_any || plan.mentions("\"hook\""));
        for node in &nodes {
            if node.status.plan.as_ref().is_some_and(may_have) {
                let _ = self.nodes.send(node.meta.key().into());
            }
        }
    }

    /// Requeues the fleets that may begin now that this one is done, waits for something, or was deleted: the one whose
    /// turn is next, and those that are after it.
    fn those_that_wait_for(&self, fleet: &Key) {
        let rolls = |changed: &ObservedFleet| {
            changed.status.rollout.as_ref().is_some_and(|rollout| rollout.waiting_for.is_empty())
        };
        if self.view.fleets.get(fleet).is_some_and(|changed| rolls(&changed)) {
            return;
        }
        let waits =
            |fleet: &ObservedFleet| fleet.status.rollout.as_ref()?.waiting_for.parse::<WaitingFor>().ok();
        let waiting = self.view.fleets.list_all(|other| waits(other).is_some());
        let begins =
            |other: &&Arc<ObservedFleet>| other.status.rollout.as_ref().map(|rollout| rollout.started_at);
        let next = waiting.iter().filter(|other| waits(other) == Some(WaitingFor::Turn)).min_by_key(begins);
        let is_after = |other: &&Arc<ObservedFleet>| {
            let after = other.spec.iter().flat_map(|spec| &spec.update_strategy.after);
            other.meta.namespace == fleet.namespace && after.into_iter().any(|of| of.name == fleet.name)
        };
        for other in waiting.iter().filter(is_after).chain(next) {
            let _ = self.fleets.send(other.meta.key().into());
        }
    }

    /// Requeues the fleet of an object whose node is gone: the fleet may wait for the deletion of such objects.
    fn fleet_without(&self, namespace: &str, node: &str, fleet: Option<String>) {
        if self.view.nodes.get(&Key::new(namespace, node)).is_some() {
            return;
        }
        if let Some(fleet) = fleet {
            return self.fleet(namespace, fleet);
        }
        // If a relist did not find the object any more, only its name is known, and that tells which fleets it may
        // belong to.
        for fleet in self.view.fleets.list(namespace, |f| place_of(&f.meta.name, node).is_some()) {
            let _ = self.fleets.send(fleet.meta.key().into());
        }
    }

    /// Requeues the fleets that have pods on a machine, or have moved some off it.
    fn fleets_on(&self, machine: &str) {
        let pods = self.view.pods.list_all(|pod| pod.machine == machine);
        let is_moved = |node: &ObservedNode| {
            let asked = node.spec.as_ref().ok().and_then(|spec| spec.move_.as_ref());
            asked.is_some_and(|asked| asked.node_name == machine)
        };
        let nodes = self.view.nodes.list_all(is_moved);
        let metas = pods.iter().map(|pod| &pod.meta).chain(nodes.iter().map(|node| &node.meta));
        let fleets: BTreeSet<(&str, &str)> =
            metas.filter_map(|meta| Some((meta.namespace.as_str(), meta.label(LABEL_DEPLOYMENT)?))).collect();
        for (namespace, fleet) in fleets {
            self.fleet(namespace, fleet.to_owned());
        }
    }

    fn every_fleet(&self, namespace: &str) {
        for fleet in self.view.fleets.list(namespace, |_| true) {
            let _ = self.fleets.send(fleet.meta.key().into());
        }
    }

    fn node(&self, namespace: &str, name: String) {
        self.node_waits(namespace, name, false);
    }

    /// Requeues a node. The request may wait if the change is intermediate and the node is under way.
    fn node_waits(&self, namespace: &str, name: String, is_on_the_way: bool) {
        let key = Key::new(namespace, name);
        if self.view.nodes.get(&key).is_none() {
            return;
        }
        let may_wait = is_on_the_way && self.is_under_way(&key);
        let after = if may_wait { ON_THE_WAY } else { Duration::ZERO };
        let _ = self.nodes.send(Request::after(key, after));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::{Value, json};
    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;
    use windlass_kube_port::observed::{Observed, ObservedFleet, ObservedNode};

    struct Requests {
        triggers: Triggers,
        fleets: UnboundedReceiver<Request>,
        nodes: UnboundedReceiver<Request>,
    }

    fn object(name: &str, version: u32, rest: &Value) -> Value {
        let mut object = json!({"metadata": {"namespace": "shop", "name": name, "uid": format!("uid of {name}"),
            "resourceVersion": version.to_string(), "generation": version,
            "labels": {"windlass.dev/deployment": "db", "windlass.dev/node": "db-0"}}});
        json_patch::merge(&mut object, rest);
        object
    }

    fn only(requests: &mut UnboundedReceiver<Request>, name: &str) -> Duration {
        let request = requests.try_recv().unwrap();
        assert_eq!(request.key, Key::new("shop", name));
        assert!(requests.try_recv().is_err(), "one change, one request");
        request.after
    }

    impl Requests {
        fn of_fleet_db() -> Self {
            let ((fleets, of_fleets), (nodes, of_nodes)) = (unbounded_channel(), unbounded_channel());
            let view = View::shared();
            view.fleets.observe(ObservedFleet::read(&object("db", 1, &json!({"spec": {}}))));
            Self { triggers: Triggers { view, fleets, nodes }, fleets: of_fleets, nodes: of_nodes }
        }

        /// How long the fleet's reconcile may wait after its node db-0 has changed to this status.
        fn after_node(&mut self, version: u32, status: &Value) -> Duration {
            let spec = json!({"image": "db:2", "podTemplate": {"spec": {"containers": [{"name": "db"}]}}, "grantedHash": "aa", "grantID": "2"});
            let node = object("db-0", version, &json!({"spec": spec, "status": status}));
            self.triggers.view.nodes.observe(ObservedNode::read(&node));
            self.triggers.on_change(Kind::StatefulNode, &Meta::read(&node));
            assert_eq!(
                only(&mut self.nodes, "db-0"),
                Duration::ZERO,
                "a node's own changes are for it to act on"
            );
            only(&mut self.fleets, "db")
        }

        /// How long the reconcile of node db-0 may wait after its StatefulSet or its pod has changed to this.
        fn after_child(&mut self, kind: Kind, child: &Value) -> Duration {
            self.triggers.view.observe(kind, child);
            self.triggers.on_change(kind, &Meta::read(child));
            only(&mut self.nodes, "db-0")
        }
    }

    fn plan(state: &str, task: &str) -> Value {
        json!({"id": "p1", "recipe": "NodeUpdate", "targetHash": "aa", "state": state,
            "startedAt": "2026-01-01T00:00:00Z", "tasks": [{"type": "ReplacePod", "name": "replace-pod", "state": task}]})
    }

    #[test]
    fn fleet_reconciles_at_once_on_node_plan_end_only() {
        let mut requests = Requests::of_fleet_db();
        let waits = [
            ("a grant that no plan was started for", json!({"spentGrantID": "1"})),
            ("a plan that was started", json!({"plan": plan("Active", "Pending"), "spentGrantID": "1"})),
            ("one that goes on", json!({"plan": plan("Active", "Complete"), "spentGrantID": "1"})),
        ];
        for (version, (what, status)) in waits.into_iter().enumerate() {
            assert_eq!(requests.after_node(version as u32 + 1, &status), OF_A_NODE_UNDER_WAY, "{what}");
        }
        let at_once = [
            ("the plan's end", json!({"plan": plan("Complete", "Complete"), "spentGrantID": "2"})),
            ("a pod that runs no more", json!({"spentGrantID": "2", "phase": "Pending"})),
        ];
        for (version, (what, status)) in at_once.into_iter().enumerate() {
            assert_eq!(requests.after_node(version as u32 + 10, &status), Duration::ZERO, "{what}");
        }
    }

    #[test]
    fn node_reconciles_at_once_on_awaited_changes_only() {
        let set = |version, seen: u32| {
            object("db-0", version, &json!({"spec": {}, "status": {"observedGeneration": seen}}))
        };
        let pod = |version, ready: &str| {
            object(
                "db-0-0",
                version,
                &json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}}),
            )
        };
        let steps = [
            ("a StatefulSet that was not observed", Kind::StatefulSet, set(1, 0), ON_THE_WAY),
            ("one that was", Kind::StatefulSet, set(2, 2), Duration::ZERO),
            ("a pod that is not Ready", Kind::Pod, pod(1, "False"), ON_THE_WAY),
            ("a pod that is", Kind::Pod, pod(2, "True"), Duration::ZERO),
        ];
        for (status, is_under_way) in [
            (json!({"plan": plan("Active", "Pending"), "spentGrantID": "1"}), true),
            (json!({"plan": plan("Complete", "Complete"), "spentGrantID": "2"}), false),
        ] {
            let mut requests = Requests::of_fleet_db();
            requests.after_node(1, &status);
            for (what, kind, child, after) in &steps {
                let after = if is_under_way { *after } else { Duration::ZERO };
                assert_eq!(requests.after_child(*kind, child), after, "{what}, under way: {is_under_way}");
            }
            let gone = Meta::read(&pod(3, "False"));
            requests.triggers.view.pods.forget(&gone);
            requests.triggers.on_change(Kind::Pod, &gone);
            assert_eq!(only(&mut requests.nodes, "db-0"), Duration::ZERO, "a pod that is gone");
        }
    }

    #[test]
    fn foreign_budget_requeues_every_fleet_own_budget_only_its_own() {
        let mut requests = Requests::of_fleet_db();
        let fleet = object("db2", 2, &json!({"spec": {}}));
        requests.triggers.view.fleets.observe(ObservedFleet::read(&fleet));
        let mut requeued_by = |metadata: Value| {
            let budget = json!({"metadata": metadata});
            requests.triggers.on_change(Kind::PodDisruptionBudget, &Meta::read(&budget));
            std::iter::from_fn(|| requests.fleets.try_recv().ok()).map(|r| r.key.name).collect::<Vec<_>>()
        };
        let owners = json!([{"kind": "NodeDeployment", "name": "db", "uid": "u", "controller": true}]);
        let labels = json!({"app.kubernetes.io/managed-by": "windlass"});
        let own = json!({"namespace": "shop", "name": "db", "labels": labels, "ownerReferences": owners});
        assert_eq!(requeued_by(own), ["db"]);
        let both = ["db", "db2"];
        let edited = json!({"namespace": "shop", "name": "db", "ownerReferences": owners});
        assert_eq!(requeued_by(edited), both);
        assert_eq!(requeued_by(json!({"namespace": "shop", "name": "theirs"})), both);
        assert!(requeued_by(json!({"namespace": "other", "name": "theirs"})).is_empty());
    }
}
