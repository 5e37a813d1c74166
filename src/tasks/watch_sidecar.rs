//! Queries a node's sidecar repeatedly while the fleet's rollout waits for what it reports: whether the application has
//! caught up, and whether it has halted. The node's spec has the request, its status the answer.

use std::time::Duration;

use crate::api::status::MAX_PROBLEM_BYTES;
use crate::api::{SidecarStatus, StatefulNodeSpec};
use crate::engine::sentence::cut;
use crate::planner::node::status::SidecarAnswer;
use crate::probe::{Halt, RequestKind, SIDECAR_VALIDITY, SidecarReport, SidecarRequest};
use windlass_kube_port::observed::ObservedNode;

use super::NodeScope;
use super::sidecar_peer::{ask, is_there};

/// How often, in seconds, a status is written if only the height has changed and the node's progress deadline is long.
const HEIGHT_SECONDS: i64 = 30;

/// The result of querying a node's sidecar.
#[derive(Debug)]
pub struct Watched {
    /// The sidecar's last answer, for the node's status.
    pub status: Option<SidecarStatus>,
    /// When to requeue.
    pub again: Option<Duration>,
}

/// Queries the sidecar, if the node's spec asks for that.
#[must_use]
pub fn watch(scope: &NodeScope, node: &ObservedNode) -> Watched {
    let spec = node.spec.as_deref().ok().filter(|s| s.watches_sidecar());
    let facts = scope.facts(node);
    let pod = scope.pod().filter(|_| facts.staying_pod().is_some());
    let (Some(spec), Some(pod)) = (spec, pod.filter(|_| !facts.terminating)) else {
        scope.prober.settle(&scope.key, RequestKind::Watch);
        return Watched { status: None, again: None };
    };
    let before = node.status.sidecar.clone().filter(|s| s.pod_uid == pod.meta.uid);
    // There is nothing to query before the sidecar runs. Its start is a watch event.
    let Some(sidecar) = spec.sidecar.as_ref().filter(|sidecar| is_there(sidecar, &pod)) else {
        return Watched { status: before, again: Some(SIDECAR_VALIDITY) };
    };
    let halt =
        (spec.halt_height > 0).then(|| Halt { task_id: spec.halt_task_id.clone(), height: spec.halt_height });
    let heard = match ask(scope, node, sidecar, &pod, SidecarRequest::Watch { halt }) {
        Ok(heard) => heard,
        Err(sentence) => {
            scope.answered(SidecarAnswer::Unreachable(sentence));
            return Watched { status: before, again: Some(SIDECAR_VALIDITY) };
        }
    };
    let status = match heard.last {
        Some(Ok(said)) => {
            scope.answered(if said.ready { SidecarAnswer::Ready } else { SidecarAnswer::NotReady });
            let status = status_of(said, &pod.meta.uid, spec);
            Some(without_small_steps(scope, node, before.as_ref(), status))
        }
        Some(Err(sentence)) => {
            scope.answered(SidecarAnswer::Unreachable(sentence));
            before
        }
        None => {
            scope.answered(SidecarAnswer::Awaited);
            before
        }
    };
    Watched { status, again: Some(heard.again) }
}

/// The status for an answer.
fn status_of(said: SidecarReport, pod_uid: &str, spec: &StatefulNodeSpec) -> SidecarStatus {
    let SidecarReport { ready: _, caught_up, height, role, halted, refusal } = said;
    let halt_task_id = if spec.halt_height > 0 { spec.halt_task_id.clone() } else { String::new() };
    let message = cut(&refusal, MAX_PROBLEM_BYTES);
    SidecarStatus { pod_uid: pod_uid.to_owned(), caught_up, height, role, halted, halt_task_id, message }
}

/// The status to write. The height changes all the time: if nothing else has changed, the height that was written last
/// is kept for a while.
fn without_small_steps(
    scope: &NodeScope,
    node: &ObservedNode,
    before: Option<&SidecarStatus>,
    said: SidecarStatus,
) -> SidecarStatus {
    // Until the node is asked to halt nobody waits for the height to grow, so the first one reported is enough.
    if !node.spec.as_ref().is_ok_and(|spec| spec.halt_height > 0) {
        let height = before.and_then(|b| b.height).or(said.height);
        return SidecarStatus { height, ..said };
    }
    let Some(before) = before.filter(|b| b.height.is_some() && said.height.is_some()) else { return said };
    let only_height = SidecarStatus { height: before.height, ..said.clone() };
    let interval = height_interval(node.spec.as_ref().map_or(0, |spec| spec.progress_deadline_seconds));
    let recent = scope.status_writes.was_within(&node.meta.uid, interval);
    if recent && only_height == *before { only_height } else { said }
}

/// How often a new height is written. A growing height has to be observed within the deadline, or the wait counts as
/// stalled.
fn height_interval(deadline_seconds: i64) -> Duration {
    let seconds = (deadline_seconds / 2).min(HEIGHT_SECONDS);
    SIDECAR_VALIDITY.max(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn height_interval_is_half_the_deadline_within_5_and_30_seconds() {
        for (deadline, interval) in [(600, 30), (60, 30), (59, 29), (20, 10), (8, 5), (1, 5), (0, 5)] {
            assert_eq!(height_interval(deadline).as_secs(), interval, "{deadline}");
        }
    }
}
