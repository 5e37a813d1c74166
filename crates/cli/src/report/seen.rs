//! The input of a report: a fleet with its nodes and their pods, as far as the user may read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use windlass_core::api::RawPlan;
use windlass_core::api::names::place_of;
use windlass_core::planner::window::relative;
use windlass_kube_port::View;
use windlass_kube_port::observed::{ObservedFleet, ObservedNode, ObservedPod};

/// A fleet and its objects.
#[derive(Clone, Debug)]
pub struct Seen {
    pub fleet: Arc<ObservedFleet>,
    /// Its nodes, by set and ordinal.
    pub nodes: Vec<Arc<ObservedNode>>,
    /// Their pods, by name.
    pub pods: BTreeMap<String, Arc<ObservedPod>>,
    /// True if pods were read, so that a missing one does not exist.
    pub has_pods: bool,
    /// What could not be read, each in a sentence.
    pub unread: Vec<String>,
}

/// A node's pod, if it was read.
#[derive(Clone, Copy, Debug)]
pub enum SeenPod<'a> {
    /// It exists.
    Is(&'a ObservedPod),
    /// It does not exist.
    IsNot,
    /// It could not be read.
    Unread,
}

/// The fleet with messages for a person who reads them now: how long it is until the window opens.
pub fn told_at(fleet: &Arc<ObservedFleet>, now: DateTime<Utc>) -> Arc<ObservedFleet> {
    let Some(at) = fleet.status.rollout.as_ref().and_then(|rollout| rollout.window_opens_at) else {
        return fleet.clone();
    };
    let mut fleet = (**fleet).clone();
    let status = &mut *fleet.status;
    let plan = status.plan.as_ref().and_then(|plan| plan.parse().ok()).map(|mut plan| {
        for task in &mut plan.tasks {
            task.message = relative(&task.message, at, now);
        }
        RawPlan::of(&plan)
    });
    status.plan = plan.or(status.plan.take());
    let rollout = status.rollout.iter_mut();
    let of_rollout = rollout.flat_map(|of| {
        of.unconverged.iter_mut().map(|node| &mut node.message).chain(std::iter::once(&mut of.message))
    });
    for message in of_rollout.chain(status.conditions.iter_mut().map(|condition| &mut condition.message)) {
        *message = relative(message, at, now);
    }
    Arc::new(fleet)
}

impl Seen {
    /// A fleet from a view. `unread` lists what may exist and is not in the view; `has_pods`: true if pods were read.
    #[must_use]
    pub fn of(view: &View, fleet: &Arc<ObservedFleet>, unread: &[String], has_pods: bool) -> Self {
        let meta = &fleet.meta;
        let mut nodes = view.nodes.group(&meta.namespace, &meta.uid);
        nodes.sort_by_cached_key(|node| place_of(&meta.name, &node.meta.name));
        let pods = view.pods.group(&meta.namespace, &meta.name);
        Self {
            fleet: told_at(fleet, crate::now()),
            nodes,
            pods: pods.into_iter().map(|pod| (pod.meta.name.clone(), pod)).collect(),
            has_pods,
            unread: unread.to_vec(),
        }
    }

    /// A node's pod.
    #[must_use]
    pub fn pod(&self, node: &str) -> Option<&Arc<ObservedPod>> {
        self.pods.get(&format!("{node}-0"))
    }

    /// The same, which also tells a missing pod from an unknown one.
    #[must_use]
    pub fn looked_for(&self, node: &str) -> SeenPod<'_> {
        match self.pod(node) {
            Some(pod) => SeenPod::Is(pod),
            None if self.has_pods => SeenPod::IsNot,
            None => SeenPod::Unread,
        }
    }
}
