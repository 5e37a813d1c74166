//! The tasks of a pod's plan, where the pod is one of an existing StatefulSet.

use std::sync::Arc;

use super::replace_pod::{delete_pod, move_pod};
use super::{CHILD_CHANGED, UNSEEN};
use crate::apply::fleet_pods::REQUEUE_STALE_PODS;
use crate::engine::{Outcome, TaskContext, TaskError};
use crate::observe::pods::PodScope;
use crate::planner::fleet::drain::Drain;
use crate::planner::fleet::pods::{Mode, PodSet, revision_of};
use crate::planner::fleet::wave::keeps_for_others;
use crate::planner::fleet::{ChildFacts, FleetFacts};
use windlass_kube_port::observed::ObservedPod;
use windlass_kube_port::{Kind, Target};

/// The pod, and what it has to become.
struct Pod {
    set: PodSet,
    facts: Arc<FleetFacts>,
    /// The pod that exists now.
    live: Option<Arc<ObservedPod>>,
}

impl Pod {
    fn of(scope: &PodScope) -> Option<Self> {
        let name = scope.update.name.as_str();
        let set = scope.pods.observed(&scope.fleet.view).into_iter().find(|set| set.has(name))?;
        let live = set.pods.iter().find(|pod| pod.meta.name == name).cloned();
        Some(Self { set, facts: scope.fleet.facts(), live })
    }

    fn child(&self, scope: &PodScope) -> Option<&ChildFacts> {
        self.facts.children.iter().find(|child| child.name == *scope.update.name)
    }

    /// True if the pod is at the target, and stays on its machine.
    fn is_in_place(&self, scope: &PodScope, target: &str) -> bool {
        let leaves = self.child(scope).is_some_and(|child| matches!(child.pod.drain, Drain::Asked(_)));
        self.is_at(scope, target) && !leaves
    }

    fn is_at(&self, scope: &PodScope, target: &str) -> bool {
        let hash = self.child(scope).and_then(|child| child.pod.hash.as_ref());
        hash.is_some_and(|hash| *hash.as_str() == *target)
            && self.live.as_ref().is_some_and(|pod| !pod.meta.terminating)
    }
}

/// `replace-pod`: deletes the pod that was there when the plan began, while the update strategy lets the StatefulSet
/// controller create the next one at the target, and waits for that.
pub(super) async fn replace(scope: &PodScope, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
    let (name, target) = (&scope.update.name, cx.plan.target_hash.as_str());
    let changed = |what: String| Ok(Outcome::invalidated(CHILD_CHANGED, what));
    let Some(pod) = Pod::of(scope) else {
        return changed(format!("no selected StatefulSet has a pod {name} any longer"));
    };
    let (set, revision) = (&pod.set, revision_of(target));
    if pod.is_in_place(scope, target) {
        return Ok(Outcome::Done);
    }
    if revision != set.update_revision && revision != set.current_revision() {
        return changed(format!("{revision} is no longer a revision of StatefulSet {}", set.set.meta.name));
    }
    // Once a pod is deleted, the StatefulSet can be held without completing.
    let goes_back = set.mode_for(target) == Mode::Hold && set.would_complete();
    if Mode::of(&set.set) != set.mode_for(target) && !goes_back {
        return Ok(Outcome::waiting(format!(
            "waiting for the update strategy of StatefulSet {} to allow this update",
            set.set.meta.name
        )));
    }
    // A pod that is deleted before the controller has observed the update strategy may come back at another revision.
    if !set.set.is_observed() {
        return Ok(Outcome::waiting(UNSEEN));
    }
    let Some(live) = &pod.live else {
        return Ok(Outcome::waiting("waiting for the StatefulSet controller to create the pod"));
    };
    if live.meta.terminating {
        return Ok(Outcome::waiting("waiting for the old pod to terminate"));
    }
    if live.meta.uid != scope.update.pod_uid {
        return changed(format!("pod {name} is not the pod that this plan replaces"));
    }
    if let Some(sentence) = keeps(scope, &pod).await? {
        return Ok(Outcome::recheck(sentence, REQUEUE_STALE_PODS));
    }
    let target = Target::of(Kind::Pod, &live.meta);
    if scope.update.as_move().is_some() {
        let cannot_run = |child: &ChildFacts| child.pod.failed && !child.main_container_runs();
        return move_pod(&*scope.fleet.cluster, target, pod.child(scope).is_some_and(cannot_run)).await;
    }
    delete_pod(&*scope.fleet.cluster, target).await
}

/// Why a pod that serves may not be deleted now, in a sentence: pods have gone down since it was granted, which may be
/// hours
/// ago.
async fn keeps(scope: &PodScope, pod: &Pod) -> Result<Option<String>, TaskError> {
    let (facts, child) = (&pod.facts, pod.child(scope));
    if !child.is_some_and(|child| child.pod.ready) {
        return Ok(None);
    }
    if let Some(sentence) = child.and_then(|child| keeps_for_others(facts, child)) {
        return Ok(Some(sentence));
    }
    Ok(scope.fleet.find_stale_pods(&facts.children, &[]).await?)
}

/// `mark-ready`: the new pod is available.
pub(super) fn ready(scope: &PodScope, cx: &TaskContext<'_>) -> Outcome {
    let (name, target) = (&scope.update.name, cx.plan.target_hash.as_str());
    let pod = Pod::of(scope);
    let Some((pod, child)) = pod.as_ref().and_then(|pod| Some((pod, pod.child(scope)?))) else {
        return Outcome::invalidated(
            CHILD_CHANGED,
            format!("no selected StatefulSet has a pod {name} any longer"),
        );
    };
    // It may be recreated at the target, within the deadline of the first one.
    let Some(live) = pod.live.as_ref().filter(|live| !live.meta.terminating) else {
        return Outcome::waiting("waiting for the StatefulSet controller to create the pod again");
    };
    if !pod.is_at(scope, target) {
        let what = format!("pod {name} is at {} and no longer at the target", live.revision);
        return Outcome::invalidated(CHILD_CHANGED, what);
    }
    if child.pod.available {
        return Outcome::Done;
    }
    let why = child.health.problem.as_ref().map(|p| format!("{}: {}", p.reason, p.message));
    let message = match why {
        Some(why) => format!("waiting for the pod to be Ready: {why}"),
        None => "waiting for the pod to be Ready for minReadySeconds".to_owned(),
    };
    let until = child.health.wait.and_then(|wait| (wait.until - scope.fleet.now).to_std().ok());
    match until {
        Some(until) if child.pod.ready => Outcome::recheck(message, until),
        _ => Outcome::waiting(message),
    }
}
