//! Which pod a node's plan is about to replace. `replace-pod` uses this, and so can earlier tasks that have to prepare
//! the old pod: they then prepare exactly the pod that will be deleted.

use std::sync::Arc;
use std::time::Duration;

use super::{CHILD_CHANGED, KEPT_BY_GRANT, NodeScope, UNSEEN};
use crate::cache::Sighting;
use crate::engine::{Outcome, TaskError};
use windlass_kube_port::Kind;
use windlass_kube_port::observed::ObservedPod;

/// The pod to be replaced, if any.
#[derive(Clone, Debug)]
pub enum Replacement {
    /// This pod was not made for the grant, or is to be moved to another machine: it is to be deleted.
    Due(Arc<ObservedPod>),
    /// The pod that was made for the grant exists: there is nothing to replace, or nothing any more.
    Done,
    /// It is not known yet, or the plan's assumptions no longer hold: the task returns this outcome.
    NotNow(Outcome),
}

/// How long the revision of a pod that claims to be made for the grant may be unknown. The StatefulSet controller
/// creates a pod first and records its revision in the status later, and pods and StatefulSets are watched separately.
const UNKNOWN_REVISION: Duration = Duration::from_secs(10);

impl NodeScope {
    /// How much longer to wait for the revision of this pod to become known.
    fn doubts_revision_for(&self, node_uid: &str, pod_uid: &str) -> Duration {
        let what = Sighting::UnknownRevision(pod_uid.to_owned());
        UNKNOWN_REVISION.saturating_sub(self.sightings.elapsed(node_uid, what))
    }

    /// If the pod's revision is unknown, reads the StatefulSet from the API server: its watch may lag. Returns true if
    /// the revision was unknown.
    pub(super) async fn needs_revision_lookup(&self) -> Result<bool, TaskError> {
        let node = self.require()?;
        let facts = self.facts(&node);
        if !facts.staying_pod().is_some_and(|pod| facts.is_of_an_unknown_revision(pod)) {
            return Ok(false);
        }
        let found = self.cluster.get(Kind::StatefulSet, &self.key.namespace, &self.key.name).await?;
        if let Some(set) = found {
            self.view.observe(Kind::StatefulSet, &set);
        }
        Ok(true)
    }

    /// The pod to be replaced, once the StatefulSet has the granted template.
    ///
    /// ```
    /// use windlass::engine::{Outcome, TaskContext, TaskError};
    /// use windlass::tasks::{NodeScope, Replacement};
    ///
    /// fn prepare(cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
    ///     match cx.env.get::<NodeScope>()?.replacement()? {
    ///         Replacement::Due(pod) => println!("{} at {} goes", pod.meta.name, pod.ip),
    ///         Replacement::Done => {}
    ///         Replacement::NotNow(outcome) => return Ok(outcome),
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub fn replacement(&self) -> Result<Replacement, TaskError> {
        let node = self.require()?;
        let facts = self.facts(&node);
        let invalidated = |what| Ok(Replacement::NotNow(Outcome::invalidated(CHILD_CHANGED, what)));
        let waiting = |what| Ok(Replacement::NotNow(Outcome::waiting(what)));
        let Some(set) = facts.live() else {
            return invalidated("the node's StatefulSet no longer exists");
        };
        if !facts.template_is_granted() {
            return invalidated("the StatefulSet's template is not the granted one");
        }
        // A pod deleted before the controller has seen the new template would come back at the old one.
        if !set.observed {
            return waiting(UNSEEN);
        }
        // The new pod may be Ready before a status reports its revision, and the revision may change in between.
        self.sightings.saw_revision(&set.uid, &set.update_revision);
        let Some(pod) = &facts.pod else {
            return waiting("waiting for the StatefulSet controller to create the pod");
        };
        if pod.terminating {
            return waiting("waiting for the old pod to terminate");
        }
        if facts.is_in_place(pod) {
            return Ok(Replacement::Done);
        }
        if facts.is_of_an_unknown_revision(pod) {
            let left = self.doubts_revision_for(&node.meta.uid, &pod.uid);
            if !left.is_zero() {
                let what = "waiting for the revision that the StatefulSet controller gave to the pod";
                return Ok(Replacement::NotNow(Outcome::recheck(what, left)));
            }
        }
        if facts.is_kept_by_grant() {
            return waiting(KEPT_BY_GRANT);
        }
        match self.pod().filter(|live| live.meta.uid == pod.uid && pod.owned) {
            Some(live) => Ok(Replacement::Due(live)),
            None => waiting(
                "waiting for the pod with this name, which does not belong to the StatefulSet, to be \
                deleted",
            ),
        }
    }
}
