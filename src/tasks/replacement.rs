//! What a node's plan is about to replace. `replace-pod` asks it, and so may tasks that come before it and
//! have to do something for the old pod: what they prepare is then exactly what will be taken down.

use std::sync::Arc;
use std::time::Duration;

use super::{CHILD_CHANGED, NodeScope};
use crate::cluster::Kind;
use crate::cluster::observed::ObservedPod;
use crate::engine::{Outcome, TaskError};

/// What there is to replace.
#[derive(Clone, Debug)]
pub enum Replacement {
    /// This pod was made for something else than the grant and is to be taken down.
    Due(Arc<ObservedPod>),
    /// The pod that was made for the grant is there: nothing is to be replaced, or not any more.
    Done,
    /// It cannot be told yet, or what the plan rests on is gone: a task answers with this.
    NotNow(Outcome),
}

/// How long a pod that says that it was made for the grant may be of a revision that is not known. The StatefulSet controller
/// makes a pod first and then tells in the status of which revision, and the two are watched apart.
const UNKNOWN_REVISION: Duration = Duration::from_secs(10);

impl NodeScope {
    /// How much longer it is waited for what the revision of this pod is.
    fn doubts_revision_for(&self, pod_uid: &str) -> Duration {
        UNKNOWN_REVISION.saturating_sub(self.memory.revision_unknown_for(pod_uid))
    }

    /// Where nobody knows the revision of the pod, asks for the StatefulSet itself: its watch may be late. Answers whether it
    /// has asked.
    pub(super) async fn asks_for_revision(&self) -> Result<bool, TaskError> {
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

    /// What there is to replace, once the StatefulSet holds the granted template.
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
            return invalidated("the node's StatefulSet is gone");
        };
        if !facts.template_is_granted() {
            return invalidated("the StatefulSet's template is not the granted one");
        }
        // A pod deleted before the controller has seen the new template would come back at the old one.
        if !set.observed {
            return waiting("waiting for the StatefulSet controller to see the new template");
        }
        // The pod that comes may be Ready before a status says which revision it is of, and the revision move meanwhile.
        self.memory.learn_revision(&set.uid, &set.update_revision);
        let Some(pod) = &facts.pod else {
            return waiting("waiting for the StatefulSet controller to create the pod");
        };
        if pod.terminating {
            return waiting("waiting for the old pod to terminate");
        }
        if facts.is_at_grant(pod) {
            return Ok(Replacement::Done);
        }
        if facts.is_of_an_unknown_revision(pod) {
            let left = self.doubts_revision_for(&pod.uid);
            if !left.is_zero() {
                let what = "waiting to see which revision the StatefulSet has given to its pod";
                return Ok(Replacement::NotNow(Outcome::recheck(what, left)));
            }
        }
        if facts.is_kept_by_spent_grant() {
            return waiting("waiting for a new grant: the last one was already used");
        }
        match self.pod().filter(|live| live.meta.uid == pod.uid && pod.owned) {
            Some(live) => Ok(Replacement::Due(live)),
            None => waiting("waiting for the pod of this name, which is not the StatefulSet's"),
        }
    }
}
