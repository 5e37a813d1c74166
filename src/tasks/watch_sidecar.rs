//! Asking a node's sidecar again and again while the fleet's rollout waits for what it says: whether the application
//! has caught up, and whether it has halted. The wish stands in the node's spec, the answer in its status.

use std::sync::PoisonError;
use std::time::Duration;

use crate::api::status::MAX_PROBLEM_BYTES;
use crate::api::{SidecarStatus, StatefulNodeSpec};
use crate::cluster::observed::ObservedNode;
use crate::engine::sentence::cut;
use crate::planner::node::status::SidecarAnswer;
use crate::sidecar::{TaskRequest, TaskState};

use super::NodeScope;
use super::sidecar_peer::{SidecarPeer, is_there};

/// How long until the sidecar is asked again, if no event comes first.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How often, in seconds, a height is written that is all that changed, where the node's own deadline is a long one.
const HEIGHT_SECONDS: i64 = 30;

/// Asks the sidecar if there is a wish to, and keeps what it says. Answers when to ask again.
pub async fn watch(scope: &NodeScope, node: &ObservedNode) -> Option<Duration> {
    let spec = node.spec.as_deref().ok().filter(|s| s.asks_sidecar());
    let facts = scope.facts(node);
    let pod = scope.pod().filter(|_| facts.staying_pod().is_some());
    let (Some(spec), Some(pod)) = (spec, pod.filter(|_| !facts.terminating)) else {
        keep(scope, None);
        return None;
    };
    let before = node.status.sidecar.clone().filter(|s| s.pod_uid == pod.meta.uid);
    // Before it runs there is nothing to ask; its start is an event.
    if !spec.sidecar.as_ref().is_some_and(|sidecar| is_there(sidecar, &pod)) {
        keep(scope, before);
        return Some(ASK_AGAIN);
    }
    match ask(scope, node, spec, &pod.ip).await {
        Ok((ready, said)) => {
            scope.answered(if ready { SidecarAnswer::Ready } else { SidecarAnswer::NotReady });
            let said = SidecarStatus { pod_uid: pod.meta.uid.clone(), ..said };
            keep(scope, Some(without_small_steps(scope, node, before.as_ref(), said)));
        }
        Err(sentence) => {
            scope.answered(SidecarAnswer::Unreachable(sentence));
            keep(scope, before);
        }
    }
    Some(ASK_AGAIN)
}

/// What is worth a write. A height changes all the time: where nothing else does, the one that was written stands for a
/// while.
fn without_small_steps(
    scope: &NodeScope,
    node: &ObservedNode,
    before: Option<&SidecarStatus>,
    said: SidecarStatus,
) -> SidecarStatus {
    // As long as nobody waits for it to grow it is enough that it has said one.
    if !node.spec.as_ref().is_ok_and(|spec| spec.halt_height > 0) {
        let height = before.and_then(|b| b.height).or(said.height);
        return SidecarStatus { height, ..said };
    }
    let Some(before) = before.filter(|b| b.height.is_some() && said.height.is_some()) else { return said };
    let only_height = SidecarStatus { height: before.height, ..said.clone() };
    let interval = height_interval(node.spec.as_ref().map_or(0, |spec| spec.progress_deadline_seconds));
    let recent = scope.memory.was_saved_within(&node.meta.uid, interval);
    if recent && only_height == *before { only_height } else { said }
}

/// A height that grows has to be seen to before a wait for it counts as standing still.
fn height_interval(deadline_seconds: i64) -> Duration {
    let seconds = (deadline_seconds / 2).min(HEIGHT_SECONDS);
    ASK_AGAIN.max(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

fn keep(scope: &NodeScope, said: Option<SidecarStatus>) {
    *scope.said.lock().unwrap_or_else(PoisonError::into_inner) = said;
}

async fn ask(
    scope: &NodeScope,
    node: &ObservedNode,
    spec: &StatefulNodeSpec,
    ip: &str,
) -> Result<(bool, SidecarStatus), String> {
    let Some(sidecar) = &spec.sidecar else { return Err("the node has no sidecar".to_owned()) };
    let peer = SidecarPeer::of(scope, node, sidecar, ip)?;
    let mut answer = SidecarStatus::default();
    if spec.halt_height > 0 {
        // One that was restarted has forgotten it.
        let mut task = peer.task(&spec.halt_task_id).await?;
        if task.is_none() {
            peer.submit(&TaskRequest::halt_at_height(&spec.halt_task_id, spec.halt_height)).await?;
            task = peer.task(&spec.halt_task_id).await?;
        }
        answer.halted = task.as_ref().is_some_and(|t| t.state == TaskState::Complete);
        let failed = task.filter(|t| t.state == TaskState::Failed);
        answer.message = failed.map(|t| cut(&t.message, MAX_PROBLEM_BYTES)).unwrap_or_default();
        answer.halt_task_id.clone_from(&spec.halt_task_id);
    }
    let status = peer.status().await?;
    answer.caught_up = status.caught_up;
    answer.height = status.height;
    Ok((status.ready, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_height_is_written_twice_in_a_short_deadline_and_twice_a_minute_in_a_long_one() {
        for (deadline, interval) in [(600, 30), (60, 30), (59, 29), (20, 10), (8, 5), (1, 5), (0, 5)] {
            assert_eq!(height_interval(deadline).as_secs(), interval, "{deadline}");
        }
    }
}
