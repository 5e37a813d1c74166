//! Why a pod does not serve, in the kubelet's or the scheduler's own words.

use chrono::{DateTime, TimeDelta, Utc};

use super::facts::PodFacts;
use crate::api::status::MAX_PROBLEM_BYTES;
use crate::api::{Problem, Reason};
use crate::engine::sentence::cut;
use crate::observed::ObservedPod;
use crate::render::SIDECAR_CONTAINER;

/// Waiting reasons that pass by themselves.
const PASSING: [&str; 2] = ["PodInitializing", "ContainerCreating"];

/// How long a container runs until its kubelet forgets that it crashed: then it is one that is slow to be ready.
const START_FORGOTTEN: TimeDelta = TimeDelta::minutes(10);

/// What a kubelet alternates between while one thing is wrong with one container.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Class {
    /// The image is not to be had. A pull that fails says why, the wait for the next one says that it backs off.
    Image,
    /// The container is started again and again. It waits, runs for a moment, ends, and may not even start.
    Start,
}

impl Class {
    /// The class of a waiting reason. Those that a kubelet repeats unchanged (a name that is no image's, a missing
    /// Secret) have none.
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

    /// The word that says most: that it was tried more than once.
    fn telling(self) -> &'static str {
        match self {
            Self::Image => "ImagePullBackOff",
            Self::Start => "CrashLoopBackOff",
        }
    }
}

/// What is wrong with a pod.
struct Found {
    reason: String,
    message: String,
    /// The container, where one is to blame.
    container: String,
    /// Whether it cannot pass by itself soon.
    lasting: bool,
}

impl Found {
    fn of_pod(reason: Reason, message: String, lasting: bool) -> Self {
        Self { reason: reason.into(), message, container: String::new(), lasting }
    }
}

/// Reads a pod into what decisions need. `main` is the main container's name (empty: the first), `set_uid`
/// its StatefulSet's UID, `before` the problem that the node's status holds.
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
    }
}

/// Since when a node does not serve, by the problem that its status holds: whatever the reason was then, and whichever
/// pod it was about. A time in the future was written by a clock that has since been set back.
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
    // Its StatefulSet's controller replaces it.
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

/// The problem that is known of this very pod, where the kubelet only shows it from another side by now: each of its
/// words told anew would be a write, and a node that Fails and recovers several times a minute.
fn goes_on(pod: &ObservedPod, before: &Problem, now: DateTime<Utc>) -> Option<Found> {
    let class = Class::of(&before.reason).filter(|_| before.pod_uid == pod.meta.uid)?;
    let container = pod.containers.iter().find(|c| c.name == before.container)?;
    let goes_on = if let Some((reason, _)) = &container.waiting {
        Class::of(reason) == Some(class)
    } else {
        // An init container that did its work has ended too, and counts as ready.
        let is_new = container.running_since.is_none_or(|since| now - since < START_FORGOTTEN);
        let tries = container.ended || (container.running && container.restarts > 0 && is_new);
        class == Class::Start && tries && !container.ready
    };
    if !goes_on {
        return None;
    }
    // Once, the more telling word takes the place of the first; why it is so stays.
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

/// That the kubelet backs off, and why: newer kubelets say so themselves.
fn with_cause(message: &str, cause: &str) -> String {
    if message.is_empty() || cause.is_empty() || message.contains(cause) {
        return if message.is_empty() { cause } else { message }.to_owned();
    }
    format!("{message}; {cause}")
}
