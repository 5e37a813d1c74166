//! Checks a wave against the API server itself. A cache may lag while a node goes down. So before a write that takes
//! down nodes that serve, the fleet's pods are read from the API server. If they differ from what the decision assumed,
//! it is not carried out and the reconcile starts again: the read has updated the cache, and the nodes' own controller
//! corrects their statuses.
//!
//! One read serves a wave, not each of its grants, of which there may be a hundred per second. The read stays valid for
//! as long as it would take to read that many pods again at a bounded rate ([`LivePods::stands`]), and newer watch
//! events about a pod take precedence over it.

use std::sync::Arc;
use std::time::Duration;

use super::many::{OnFailure, for_each_concurrent};
use crate::api::names::{LABEL_DEPLOYMENT, LABEL_SET};
use crate::api::{GrantedBy, LastNodes, NodeName, SetName};
use crate::cache::live_pods::LivePods;
use crate::engine::sentence::some_of;
use crate::observe::FleetScope;
use crate::observe::fleet_children::runs_main_container;
use crate::observe::fleet_facts::describe_remnant;
use crate::planner::fleet::{ChildFacts, Clause, FleetFacts, Grant, Order};
use windlass_kube_port::observed::{Meta, ObservedPod};
use windlass_kube_port::{ClusterError, Key, Kind, LivePod, Selector};

/// The requeue delay if the pods differ from what was assumed. The read updates the cache, so the nodes' own reconciles
/// usually change their statuses and requeue the fleet earlier.
pub const REQUEUE_STALE_PODS: Duration = Duration::from_secs(2);

impl FleetScope {
    /// Writes these grants. Grants that are safe only if the nodes are as assumed are written only if the API server
    /// confirms it. Returns a sentence that says what differs from the assumption, if something does.
    pub(crate) async fn grant_if_pods_confirmed(
        &self,
        facts: &FleetFacts,
        grants: Vec<Grant>,
        by: GrantedBy<'_>,
    ) -> Result<Option<String>, ClusterError> {
        let (mut free, mut broken, mut resting) = (Vec::new(), Vec::new(), Vec::new());
        for grant in grants {
            match grant.clause {
                Clause::RunsTarget | Clause::InFlightUnspent => free.push(grant),
                Clause::Failed | Clause::NeverReady => broken.push(grant),
                Clause::Serving | Clause::Down => resting.push(grant),
            }
        }
        self.grant_all(free, by).await?;
        let mut differs = None;
        if !broken.is_empty() {
            // A broken node moves whatever the others do, so only its own pod counts.
            let nodes: Vec<&str> = broken.iter().map(|grant| grant.name.as_str()).collect();
            let running = self.find_running_pods(&facts.children, &nodes).await?;
            let (held, go): (Vec<Grant>, Vec<Grant>) =
                broken.into_iter().partition(|grant| running.contains(&grant.name));
            let held: Vec<&str> = held.iter().map(|grant| grant.name.as_str()).collect();
            differs = (!held.is_empty()).then(|| look_again_at(&held));
            self.grant_all(go, by).await?;
        }
        if resting.is_empty() {
            return Ok(differs);
        }
        let taken: Vec<&str> = resting.iter().map(|grant| grant.name.as_str()).collect();
        let of_others = self.find_stale_pods(&facts.children, &taken).await?;
        if of_others.is_none() {
            self.grant_all(resting, by).await?;
        }
        Ok(of_others.or(differs))
    }

    /// Checks with the API server that nodes are as a decision assumes, before nodes of `taken` are taken down: each
    /// node that counts as serving has the same pod, Ready, and each node of `taken` that counts as disrupted has not
    /// become Ready, nor has its main container started, unnoticed. `None` means that all of this is true.
    pub(crate) async fn find_stale_pods(
        &self,
        children: &[ChildFacts],
        taken: &[&str],
    ) -> Result<Option<String>, ClusterError> {
        if taken.is_empty() && children.iter().all(ChildFacts::is_disrupted) {
            return Ok(None);
        }
        let live = self.live_pods(children).await?;
        // A pod that was not Ready for a moment has to be Ready for minReadySeconds again.
        let unbroken = self.spec.min_ready_seconds > 0;
        let differs = |child: &&ChildFacts| {
            if self.is_placed_otherwise(child) {
                return true;
            }
            if child.is_disrupted() {
                return taken.contains(&child.name.as_str()) && self.is_better(&live, child);
            }
            let pod = self.pod_of(&child.name);
            !live.serves(&pod, self.cached(&pod).as_deref(), unbroken)
        };
        let differing: Vec<&str> = children.iter().filter(differs).map(|c| c.name.as_str()).collect();
        Ok((!differing.is_empty()).then(|| look_again_at(&differing)))
    }

    /// True if a pod is in another domain than a decision assumed, or is no longer, or only now, updated last. The last read of
    /// the pods has updated the cache.
    fn is_placed_otherwise(&self, child: &ChildFacts) -> bool {
        let (topology, last) = (self.spec.topology(), self.labels_of_last());
        if topology.is_none() && last.is_none() {
            return false;
        }
        let pod = self.cached(&self.pod_of(&child.name));
        let pod = pod.as_deref();
        self.domain_at(child.ordinal, child.name.as_str(), pod) != child.domain
            || last.is_some_and(|last| Order::by_labels(last, pod) != child.order)
    }

    /// What selects the nodes that are updated last, if that is labels.
    fn labels_of_last(&self) -> Option<&LastNodes> {
        self.spec.last().filter(|last| !last.pod_labels.is_empty())
    }

    /// The nodes of `taken` whose main containers run, by what the API server itself shows. A decision that takes them
    /// to be broken, so that they move whatever the others do, is based on stale data.
    pub(crate) async fn find_running_pods(
        &self,
        children: &[ChildFacts],
        taken: &[&str],
    ) -> Result<Vec<NodeName>, ClusterError> {
        let live = self.live_pods(children).await?;
        let taken = children.iter().filter(|child| taken.contains(&child.name.as_str()));
        let running = taken.filter(|child| self.is_better(&live, child));
        Ok(running.map(|child| child.name.clone()).collect())
    }

    /// True if a node that counts as disrupted is Ready, or its main container runs and does not count as running. The
    /// last
    /// read of the pods has updated the cache.
    fn is_better(&self, live: &LivePods, child: &ChildFacts) -> bool {
        let key = Key::new(&self.fleet.meta.namespace, child.name.as_str());
        let runs = || {
            let (node, pod) = (self.view.nodes.get(&key), self.cached(&self.pod_of(&child.name)));
            match (node, pod) {
                (Some(node), Some(pod)) => runs_main_container(&node, &pod),
                (None, Some(pod)) if self.pods.is_some() => {
                    let main = pod.images.first().map_or("", |(name, _)| name);
                    !pod.meta.terminating && pod.runs(main)
                }
                _ => false,
            }
        };
        self.has_come_up(live, child) || (!child.main_container_runs() && runs())
    }

    /// The pods of a set that the API server itself shows, in words for a message. No watch shows a pod from which a
    /// person removed the label of its node, and it may still run.
    pub(crate) async fn live_pods_of(&self, set: &SetName) -> Result<Vec<String>, ClusterError> {
        let meta = &self.fleet.meta;
        let of_set = Selector::Labels(format!("{LABEL_DEPLOYMENT}={},{LABEL_SET}={set}", meta.name));
        let pods = self.cluster.selected(Kind::Pod, &meta.namespace, of_set).await?;
        Ok(pods.iter().map(|pod| describe_remnant(Kind::Pod, &Meta::read(pod))).collect())
    }

    /// True if the pod of a node that counts as down is Ready, and the node's status may not say so yet.
    fn has_come_up(&self, live: &LivePods, child: &ChildFacts) -> bool {
        let pod = self.pod_of(&child.name);
        let heard = self.cached(&pod);
        // Without a sidecar a node whose pod is Ready is Ready as soon as its status is written.
        let lags = child.is_down() && child.sidecar.is_none();
        let heard = heard.as_deref();
        live.has_come_up(&pod, heard)
            || (lags && child.controller.status_outdated && live.is_ready(&pod, heard))
            || (lags && live.is_newly_ready(&pod, heard, self.now))
    }

    /// The name of a node's pod.
    fn pod_of(&self, node: &NodeName) -> String {
        if self.pods.is_some() { node.to_string() } else { node.pod() }
    }

    fn cached(&self, pod: &str) -> Option<Arc<ObservedPod>> {
        self.view.pods.get(&Key::new(&self.fleet.meta.namespace, pod))
    }

    /// The fleet's pods, from the API server unless the last read is still valid.
    async fn live_pods(&self, children: &[ChildFacts]) -> Result<Arc<LivePods>, ClusterError> {
        let uid = &self.fleet.meta.uid;
        // A failover may have changed a label at any time.
        let is_valid = |live: &Arc<LivePods>| live.is_fresh() && self.labels_of_last().is_none();
        if let Some(live) = self.caches.probes.live_pods.get(uid).filter(is_valid) {
            return Ok(live);
        }
        let live = Arc::new(self.read_pods(children).await?);
        self.caches.probes.live_pods.put(uid, live.clone());
        Ok(live)
    }

    async fn read_pods(&self, children: &[ChildFacts]) -> Result<LivePods, ClusterError> {
        let meta = &self.fleet.meta;
        let (namespace, names) = (&meta.namespace, || children.iter().map(|child| self.pod_of(&child.name)));
        // Its group in the cache, and the label selector of a request.
        let lists: Vec<(String, String)> = match &self.pods {
            None => vec![(meta.name.clone(), format!("{LABEL_DEPLOYMENT}={}", meta.name))],
            Some(pods) => pods.lists(&self.view),
        };
        // The read updates the cache, so what was known before is collected first.
        let known = lists.iter().flat_map(|(group, _)| self.view.pods.group(namespace, group));
        let known = known.map(|pod| (pod.meta.name.clone(), LivePod::cached(&pod))).collect();
        let _turn = self.caches.probes.turns.take().await;
        let mut live = LivePods::of(known);
        for (_, labels) in &lists {
            live.extend(self.cluster.live_pods(namespace, labels).await?);
        }
        // A pod whose label was removed is not in the list but is still the same pod: it is read by name.
        let unlisted: Vec<String> = names().filter(|name| !live.has(name)).collect();
        let ask = |name: String| async move { self.cluster.live_pod(namespace, &name).await };
        let found: Vec<Option<LivePod>> = for_each_concurrent(unlisted, OnFailure::Stop, ask).await?;
        live.extend(found.into_iter().flatten());
        Ok(live.done())
    }
}

fn look_again_at(nodes: &[&str]) -> String {
    format!(
        "waiting for the next reconcile of {}: the pods on the API server differ from the cache, and Windlass takes \
         down no available node on stale data",
        some_of(nodes)
    )
}
