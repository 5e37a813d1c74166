//! Why a pod does not serve, as the kubelet or the scheduler reports it.

use chrono::{DateTime, TimeDelta, Utc};

use super::facts::PodFacts;
use crate::api::status::MAX_PROBLEM_BYTES;
use crate::api::{Problem, Reason};
use crate::engine::sentence::cut;
use crate::observed::{ContainerState, ObservedPod};
use crate::render::SIDECAR_CONTAINER;

/// Waiting reasons that go away by themselves.
const PASSING: [&str; 2] = ["PodInitializing", "ContainerCreating"];

/// How long a container has to run until its kubelet forgets that it crashed. From then on it is only slow to become
/// ready.
const START_FORGOTTEN: TimeDelta = TimeDelta::minutes(10);

/// A group of reasons between which a kubelet alternates because of one problem of one container.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Class {
    /// The image cannot be pulled. The kubelet reports why a pull failed, then that it backs off.
    Image,
    /// The container is restarted again and again: it waits, runs for a moment and ends, or does not even start.
    Start,
}

impl Class {
    /// The class of a waiting reason; `None` for the reasons that a kubelet repeats unchanged (an invalid image name, a
    /// missing Secret).
    fn of(reason: &str) -> Option<Self> {
        match reason {
            "ErrImagePull"
            | "ImagePullBackOff"
            | "ImageInspectError"
            | "RegistryUnavailable"
            | "SignatureValidationFailed" => Some(Self::Image),
            "CrashLoopBackOff" | "RunContainerError" | "StartError" | "PostStartHookError" => {
                Some(Self::Start)
            }
            _ => None,
        }
    }

    /// The most informative reason of the class: it says that there was more than one try.
    fn telling(self) -> &'static str {
        match self {
            Self::Image => "ImagePullBackOff",
            Self::Start => "CrashLoopBackOff",
        }
    }
}

/// A problem of a pod.
struct Found {
    reason: String,
    message: String,
    /// The container, if one causes the problem.
    container: String,
    /// True if it cannot resolve itself soon.
    lasting: bool,
}

impl Found {
    fn of_pod(reason: Reason, message: String, lasting: bool) -> Self {
        Self { reason: reason.into(), message, container: String::new(), lasting }
    }
}

/// The facts that decisions need about a pod. `main` is the main container's name (empty for the first), `set_uid` the
/// UID of its StatefulSet, `before` the problem in the node's status.
#[must_use]
pub fn pod_facts(
    pod: &ObservedPod,
    main: &str,
    set_uid: Option<&str>,
    before: Option<&Problem>,
    now: DateTime<Utc>,
) -> PodFacts {
    let spec_main = pod.images.iter().find(|(name, _)| name == main).or_else(|| pod.images.first());
    let (main_name, main_image) = spec_main.cloned().unwrap_or_default();
    let state = pod.container(&main_name);
    let found = problem_of(pod, before, now);
    let cannot_run = found.as_ref().is_some_and(|found| found.lasting);
    let of_main = |found: &Found| found.container.is_empty() || found.container == main_name;
    let main_cannot_run =
        found.as_ref().is_some_and(|found| found.lasting && of_main(found)) || state.is_some_and(crashes);
    let started = |s: &ContainerState| s.has_image || s.running || s.ended || s.restarts > 0;
    PodFacts {
        uid: pod.meta.uid.clone(),
        revision: pod.revision.clone(),
        owned: set_uid.is_some_and(|uid| pod.meta.is_controlled_by(uid)),
        terminating: pod.meta.terminating,
        ready: pod.is_ready() && !pod.meta.terminating,
        ready_since: pod.ready.as_ref().filter(|c| c.holds).and_then(|c| c.since),
        unready_since: pod.ready.as_ref().filter(|c| !c.holds).and_then(|c| c.since),
        running: state.is_some_and(|s| s.running && s.has_image),
        made_for: pod.made_for(),
        main_image,
        sidecar_unready: pod.container(SIDECAR_CONTAINER).is_some_and(|s| s.init && s.running && !s.ready),
        problem: found.map(|Found { reason, message, container, lasting: _ }| Problem {
            reason,
            message: cut(&message, MAX_PROBLEM_BYTES),
            since: since(before, now),
            pod_uid: if container.is_empty() { String::new() } else { pod.meta.uid.clone() },
            container,
        }),
        cannot_run,
        main_cannot_run,
        never_started: !state.is_some_and(started),
    }
}

/// True if a container waits to be started again after it crashed. It may not be the one whose problem is reported.
fn crashes(container: &ContainerState) -> bool {
    container.waiting.as_ref().is_some_and(|(reason, _)| !PASSING.contains(&reason.as_str()))
}

/// Since when a node does not serve, by the problem in its status, whatever its reason was and whichever pod it was
/// about. A time in the future was written before the clock was set back.
fn since(before: Option<&Problem>, now: DateTime<Utc>) -> DateTime<Utc> {
    before.map_or(now, |p| p.since.min(now))
}

fn problem_of(pod: &ObservedPod, before: Option<&Problem>, now: DateTime<Utc>) -> Option<Found> {
    if pod.meta.terminating {
        return Some(Found::of_pod(
            Reason::Terminating,
            format!("pod {} is terminating", pod.meta.name),
            false,
        ));
    }
    if let Some(found) = before.and_then(|before| goes_on(pod, before, now)) {
        return Some(found);
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
        return Some(Found { reason: reason.clone(), message, container: container.clone(), lasting: true });
    }
    if let Some(scheduled) = pod.scheduled.as_ref().filter(|c| !c.holds && !c.reason.is_empty()) {
        let lasting = scheduled.reason == Reason::Unschedulable;
        let reason = if lasting { Reason::Unschedulable } else { Reason::NotReady };
        return Some(Found::of_pod(reason, scheduled.message.clone(), lasting));
    }
    // The StatefulSet controller replaces it.
    if pod.phase == "Failed" {
        return Some(Found::of_pod(Reason::NotReady, format!("pod {} has failed", pod.meta.name), false));
    }
    if pod.is_ready() {
        return None;
    }
    let message = match pod.containers.iter().find(|c| !c.ready) {
        Some(c) if c.running => {
            format!("container {} of pod {} runs and is not ready", c.name, pod.meta.name)
        }
        Some(c) => format!("container {} of pod {} does not run yet", c.name, pod.meta.name),
        None => format!("pod {} is not ready", pod.meta.name),
    };
    Some(Found::of_pod(Reason::NotReady, message, false))
}

/// The known problem of this pod, if the kubelet now reports the same problem with another reason. Otherwise each of
/// these reasons would cause a status write, and the node would become Failed and recover several times a minute.
fn goes_on(pod: &ObservedPod, before: &Problem, now: DateTime<Utc>) -> Option<Found> {
    let class = Class::of(&before.reason).filter(|_| before.pod_uid == pod.meta.uid)?;
    let container = pod.containers.iter().find(|c| c.name == before.container)?;
    let goes_on = if let Some((reason, _)) = &container.waiting {
        Class::of(reason) == Some(class)
    } else {
        // An init container that is done has terminated as well, and counts as ready.
        let is_new = container.running_since.is_none_or(|since| now - since < START_FORGOTTEN);
        let tries = container.ended || (container.running && container.restarts > 0 && is_new);
        class == Class::Start && tries && !container.ready
    };
    if !goes_on {
        return None;
    }
    // The more informative reason replaces the first one once; the cause is kept in the message.
    let telling = class.telling();
    let (reason, message) = if let Some((reason, message)) = &container.waiting
        && reason == telling
        && before.reason != telling
    {
        (telling, with_cause(message, &before.message))
    } else {
        (before.reason.as_str(), before.message.clone())
    };
    Some(Found { reason: reason.to_owned(), message, container: container.name.clone(), lasting: true })
}

/// Adds the cause to the kubelet's message that it backs off; newer kubelets include it themselves.
fn with_cause(message: &str, cause: &str) -> String {
    if message.is_empty() || cause.is_empty() || message.contains(cause) {
        return if message.is_empty() { cause } else { message }.to_owned();
    }
    format!("{message}; {cause}")
}
