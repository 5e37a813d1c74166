//! Why a pod is not ready, as the kubelet or the scheduler reports it.

use chrono::{DateTime, Utc};

use super::cause::{self, START_FORGOTTEN};
use super::facts::PodFacts;
use crate::api::status::MAX_PROBLEM_BYTES;
use crate::api::{Problem, Reason};
use crate::engine::sentence::cut;
use crate::observed::{ContainerState, ObservedPod, PodCondition};
use crate::planner::waits::{self, PASSING};
use crate::render::SIDECAR_CONTAINER;

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

    /// The most informative reason of the class: it shows that there was more than one attempt.
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
    /// The UID of the pod that it is about, if the same words about another pod would be another problem.
    pod_uid: String,
    /// True if it cannot resolve itself soon.
    lasting: bool,
}

impl Found {
    fn of_pod(reason: Reason, message: String, lasting: bool) -> Self {
        let (container, pod_uid) = (String::new(), String::new());
        Self { reason: reason.to_string(), message, container, pod_uid, lasting }
    }

    fn of_whole_pod(uid: &str, message: String) -> Self {
        Self { pod_uid: uid.to_owned(), ..Self::of_pod(Reason::NotReady, message, false) }
    }

    fn of_container(
        pod: &ObservedPod,
        container: &str,
        reason: &str,
        message: String,
        lasting: bool,
    ) -> Self {
        let (reason, container, pod_uid) = (reason.to_owned(), container.to_owned(), pod.meta.uid.clone());
        Self { reason, message, container, pod_uid, lasting }
    }
}

/// Why a pod is not Ready, for users: a container's reason and message, or a sentence about the pod; `None` if it is
/// Ready.
#[must_use]
pub fn in_words(pod: &ObservedPod) -> Option<String> {
    // The time matters only for what was known before.
    let Found { reason, message, container, .. } = problem_of(pod, None, None, DateTime::UNIX_EPOCH)?;
    let is_ours = reason == Reason::NotReady.as_ref() || reason == Reason::Terminating.as_ref();
    Some(match (is_ours, container.is_empty()) {
        (true, _) => message,
        (false, true) => format!("{reason}: {message}"),
        (false, false) => format!("container {container}: {reason}: {message}"),
    })
}

/// The facts that decisions need about a pod. `main` is the main container's name (empty for the first), `set_uid` the
/// UID of its StatefulSet, `before` the problem in the node's status, `warning` the last event about why it cannot start.
#[must_use]
pub fn pod_facts(
    pod: &ObservedPod,
    main: &str,
    set_uid: Option<&str>,
    before: Option<&Problem>,
    warning: Option<&str>,
    now: DateTime<Utc>,
) -> PodFacts {
    let spec_main = pod.images.iter().find(|(name, _)| name == main).or_else(|| pod.images.first());
    let (main_name, main_image) = spec_main.cloned().unwrap_or_default();
    let state = pod.container(&main_name);
    let found = problem_of(pod, before, warning, now);
    let cannot_run = found.as_ref().is_some_and(|found| found.lasting);
    let of_main = |found: &Found| found.container.is_empty() || found.container == main_name;
    let main_cannot_run =
        found.as_ref().is_some_and(|found| found.lasting && of_main(found)) || state.is_some_and(crashes);
    let running = pod.runs(&main_name);
    PodFacts {
        uid: pod.meta.uid.clone(),
        revision: pod.revision.clone(),
        owned: set_uid.is_some_and(|uid| pod.meta.is_controlled_by(uid)),
        terminating: pod.meta.terminating,
        ready: pod.is_ready() && !pod.meta.terminating,
        ready_since: pod.ready.as_ref().filter(|c| c.holds).and_then(|c| c.since),
        unready_since: pod.ready.as_ref().filter(|c| !c.holds).and_then(|c| c.since),
        running,
        made_for: pod.made_for(),
        main_image,
        sidecar_unready: pod.has_sidecar && pod.runs(SIDECAR_CONTAINER) && !is_ready(pod, SIDECAR_CONTAINER),
        problem: found.map(|Found { reason, message, container, pod_uid, lasting: _ }| Problem {
            reason,
            message: cut(&message, MAX_PROBLEM_BYTES),
            since: since(before, now),
            container,
            pod_uid,
            ..Problem::default()
        }),
        wait: waits::of_first_start(pod, now),
        cannot_run,
        main_cannot_run,
        never_started: !running && !state.is_some_and(has_started),
    }
}

/// True if a node does not serve because a container ends soon after each start.
#[must_use]
pub fn is_crash(problem: &Problem) -> bool {
    Class::of(&problem.reason) == Some(Class::Start)
}

/// True if a container is ready, or, where nothing is reported about it, its pod is.
fn is_ready(pod: &ObservedPod, container: &str) -> bool {
    pod.container(container).map_or_else(|| pod.is_ready(), |container| container.ready)
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

fn has_started(container: &ContainerState) -> bool {
    container.running || container.ended || container.termination.is_some() || container.restarts > 0
}

/// The most specific cause that is known.
fn problem_of(
    pod: &ObservedPod,
    before: Option<&Problem>,
    warning: Option<&str>,
    now: DateTime<Utc>,
) -> Option<Found> {
    // A pod that has ended is deleted by its StatefulSet controller: that is the same problem.
    if pod.has_ended() {
        return Some(ended(pod, before));
    }
    if pod.meta.terminating {
        return Some(Found::of_pod(Reason::Terminating, cause::terminating(pod), false));
    }
    if let Some(found) = before.and_then(|before| goes_on(pod, before, now)) {
        return Some(found);
    }
    if let Some(found) = pod.containers.iter().find_map(|container| waits(pod, container)) {
        return Some(found);
    }
    if let Some(scheduled) = pod.scheduled.as_ref().filter(|c| !c.holds && !c.reason.is_empty()) {
        return Some(unscheduled(pod, scheduled, before));
    }
    (!pod.is_ready()).then(|| unready(pod, before, warning, now))
}

/// A pod that has ended. If one pod after the other ends for the same reason, the problem is still that of the first.
fn ended(pod: &ObservedPod, before: Option<&Problem>) -> Found {
    let message = cause::ended(pod);
    let is_same = |known: &&Problem| cause::differ_in_numbers_only(&known.message, &message);
    match before.filter(|known| is_of_whole_pod(known)).filter(is_same) {
        Some(known) => Found::of_whole_pod(&known.pod_uid, known.message.clone()),
        None => Found::of_whole_pod(&pod.meta.uid, message),
    }
}

/// A container that waits because it failed.
fn waits(pod: &ObservedPod, container: &ContainerState) -> Option<Found> {
    let (reason, message) = container.waiting.as_ref()?;
    if PASSING.contains(&reason.as_str()) {
        return None;
    }
    let name = &container.name;
    let message =
        if message.is_empty() { format!("container {name} is waiting: {reason}") } else { message.clone() };
    let end = container.termination.as_ref().filter(|_| Class::of(reason) == Some(Class::Start));
    let message = end.map_or_else(|| message.clone(), |end| cause::with_termination(&message, end));
    Some(Found::of_container(pod, name, reason, message, true))
}

fn unscheduled(pod: &ObservedPod, scheduled: &PodCondition, before: Option<&Problem>) -> Found {
    let PodCondition { reason, message, .. } = scheduled;
    if *reason != Reason::Unschedulable.as_ref() {
        return Found::of_pod(Reason::NotReady, cause::unscheduled(pod, reason, message), false);
    }
    let known = before.filter(|known| known.reason == *reason).map(|known| &known.message);
    let known = known.filter(|known| cause::differ_in_numbers_only(known, message));
    Found::of_pod(Reason::Unschedulable, known.unwrap_or(message).clone(), true)
}

/// A pod that is not Ready, and no container of which waits in a failure.
fn unready(pod: &ObservedPod, before: Option<&Problem>, warning: Option<&str>, now: DateTime<Utc>) -> Found {
    let (container, message) = cause::unready(pod, now);
    let is_starting = pod.phase != "Running" && !pod.has_sandbox && !pod.containers.iter().any(has_started);
    if let Some(warning) = warning.filter(|_| is_starting) {
        return Found::of_whole_pod(&pod.meta.uid, format!("{message}; last warning: {warning}"));
    }
    match before.filter(|before| is_starting && is_not_over(before, pod)) {
        Some(before) => Found::of_whole_pod(&before.pod_uid, before.message.clone()),
        None if container.is_empty() => Found::of_pod(Reason::NotReady, message, false),
        None => Found::of_container(pod, &container, Reason::NotReady.as_ref(), message, false),
    }
}

/// True if a problem of a pod as a whole may not be over: this pod could not start, or an earlier one has ended, and the
/// kubelet has not accepted this pod yet. A kubelet that rejects one pod after the other has one problem.
fn is_not_over(before: &Problem, pod: &ObservedPod) -> bool {
    is_of_whole_pod(before) && (before.pod_uid == pod.meta.uid || pod.containers.is_empty())
}

/// True if a problem is about one pod, and about none of its containers.
#[must_use]
pub fn is_of_whole_pod(problem: &Problem) -> bool {
    problem.container.is_empty() && !problem.pod_uid.is_empty()
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
        (telling, with_cause(message, cause::without_termination(&before.message)))
    } else {
        (before.reason.as_str(), before.message.clone())
    };
    let end = container.termination.as_ref().filter(|_| class == Class::Start);
    let message = end.map_or_else(|| message.clone(), |end| cause::with_termination(&message, end));
    Some(Found::of_container(pod, &container.name, reason, message, true))
}

/// Adds the cause to the kubelet's message that it backs off; newer kubelets include it themselves.
fn with_cause(message: &str, cause: &str) -> String {
    if message.is_empty() || cause.is_empty() || message.contains(cause) {
        return if message.is_empty() { cause } else { message }.to_owned();
    }
    format!("{message}; {cause}")
}
