//! Why a pod does not serve, in the kubelet's or the scheduler's own words.

use chrono::{DateTime, Utc};

use super::facts::PodFacts;
use crate::api::Problem;
use crate::api::status::MAX_PROBLEM_BYTES;
use crate::cluster::observed::ObservedPod;
use crate::engine::sentence::cut;
use crate::render::SIDECAR_CONTAINER;

/// Waiting reasons that pass by themselves.
const PASSING: [&str; 2] = ["PodInitializing", "ContainerCreating"];

/// Reads a pod into what decisions need. `main` is the main container's name (empty: the first), `set_uid`
/// its StatefulSet's UID, `before` the problem that the node's status holds for the pod `before_uid`.
#[must_use]
pub fn pod_facts(
    pod: &ObservedPod,
    main: &str,
    set_uid: Option<&str>,
    before: Option<&Problem>,
    before_uid: &str,
    now: DateTime<Utc>,
) -> PodFacts {
    let spec_main = pod.images.iter().find(|(name, _)| name == main).or_else(|| pod.images.first());
    let (main_name, main_image) = spec_main.cloned().unwrap_or_default();
    let state = pod.container(&main_name);
    let found = problem_of(pod, before.filter(|_| before_uid == pod.meta.uid));
    let cannot_run = found.as_ref().is_some_and(|(_, _, lasting)| *lasting);
    PodFacts {
        uid: pod.meta.uid.clone(),
        revision: pod.revision.clone(),
        owned: set_uid.is_some_and(|uid| pod.meta.is_controlled_by(uid)),
        terminating: pod.meta.terminating,
        ready: pod.is_ready() && !pod.meta.terminating,
        ready_since: pod.ready.as_ref().filter(|c| c.holds).and_then(|c| c.since),
        running: state.is_some_and(|s| s.running && !s.image_id.is_empty()),
        main_image,
        sidecar_unready: pod.container(SIDECAR_CONTAINER).is_some_and(|s| s.init && s.running && !s.ready),
        problem: found.map(|(reason, message, _)| {
            // Whichever pod it began with: one that never ran is not yet the one that the status names.
            let since = since(before, &reason, now);
            Problem { reason, message: cut(&message, MAX_PROBLEM_BYTES), since }
        }),
        cannot_run,
    }
}

/// Since when a node has a problem of this reason; `before` is the one that its status holds. A time in the future was
/// written by a clock that has since been set back.
pub(super) fn since(before: Option<&Problem>, reason: &str, now: DateTime<Utc>) -> DateTime<Utc> {
    before.filter(|p| p.reason == reason).map_or(now, |p| p.since.min(now))
}

/// The reason, the sentence, and whether it cannot pass by itself soon.
fn problem_of(pod: &ObservedPod, before: Option<&Problem>) -> Option<(String, String, bool)> {
    if pod.meta.terminating {
        return Some(("Terminating".to_owned(), format!("pod {} is terminating", pod.meta.name), false));
    }
    if let Some(waiting) = pod.containers.iter().find_map(|c| {
        let (reason, message) = c.waiting.as_ref()?;
        (!reason.is_empty() && !PASSING.contains(&reason.as_str())).then_some((&c.name, reason, message))
    }) {
        let (container, reason, message) = waiting;
        let message = if message.is_empty() {
            format!("container {container} waits: {reason}")
        } else {
            message.clone()
        };
        return Some((reason.clone(), message, true));
    }
    if let Some(scheduled) = pod.scheduled.as_ref().filter(|c| !c.holds && !c.reason.is_empty()) {
        let lasting = scheduled.reason == "Unschedulable";
        let reason = if lasting { "Unschedulable" } else { "NotReady" };
        return Some((reason.to_owned(), scheduled.message.clone(), lasting));
    }
    // Its StatefulSet's controller replaces it.
    if pod.phase == "Failed" {
        return Some(("NotReady".to_owned(), format!("pod {} has failed", pod.meta.name), false));
    }
    if pod.is_ready() {
        return None;
    }
    // A crash loop shows as running for a moment at every try: it stays one until the pod is Ready.
    let restarted = pod.containers.iter().find(|c| c.restarts > 0 && c.running && !c.ready);
    if let (Some(_), Some(before)) = (restarted, before.filter(|p| p.reason == "CrashLoopBackOff")) {
        return Some((before.reason.clone(), before.message.clone(), true));
    }
    let message = match pod.containers.iter().find(|c| !c.ready) {
        Some(c) if c.running => {
            format!("container {} of pod {} runs and is not ready", c.name, pod.meta.name)
        }
        Some(c) => format!("container {} of pod {} does not run yet", c.name, pod.meta.name),
        None => format!("pod {} is not ready", pod.meta.name),
    };
    Some(("NotReady".to_owned(), message, false))
}
