//! Describes why a pod is not Ready, from its status: the most specific cause, as a sentence. A sentence contains
//! nothing that changes while its cause stays, such as a number of restarts.

use chrono::{DateTime, TimeDelta, Utc};

use crate::observed::{ClosedGate, ContainerState, ObservedPod, Termination};

/// How long a container has to run until its kubelet forgets that it crashed. From then on it is only slow to become
/// ready.
pub(super) const START_FORGOTTEN: TimeDelta = TimeDelta::minutes(10);

/// What precedes the way in which a container last ended, after the kubelet's message about it.
const LAST_TERMINATION: &str = "; last termination: ";

/// Why a pod is being deleted, as far as its status says.
#[must_use]
pub fn terminating(pod: &ObservedPod) -> String {
    format!("pod {} is terminating{}", pod.meta.name, after(&own_reason(pod)))
}

/// How a pod ended, and what follows.
#[must_use]
pub fn ended(pod: &ObservedPod) -> String {
    let own = own_reason(pod);
    let failed = |c: &&ContainerState| c.termination.as_ref().is_some_and(|end| end.exit_code != 0);
    let container = pod.containers.iter().find(failed);
    let why = match container.and_then(|c| Some((c, c.termination.as_ref()?))) {
        Some((container, end)) if own.is_empty() => {
            format!("container {}: {}", container.name, in_words(end))
        }
        _ => own,
    };
    let (name, phase) = (&pod.meta.name, &pod.phase);
    format!("pod {name} has ended, {phase}{}; the StatefulSet controller replaces it", after(&why))
}

/// Why a pod is not scheduled, unless the scheduler has tried and found no place for it.
#[must_use]
pub fn unscheduled(pod: &ObservedPod, reason: &str, message: &str) -> String {
    format!("pod {} is not scheduled: {reason}{}", pod.meta.name, after(message))
}

/// Why a pod that is not Ready is not, if no container waits in a failure: the container, if it is one, and a sentence.
#[must_use]
pub fn unready(pod: &ObservedPod, now: DateTime<Utc>) -> (String, String) {
    let name = &pod.meta.name;
    let unready = || pod.containers.iter().filter(|c| !c.ready && !is_done(c));
    let lately = |c: &&ContainerState| c.running_since.is_none_or(|since| now - since < START_FORGOTTEN);
    let ends = unready().filter(lately).find_map(|c| Some((c, c.termination.as_ref()?)));
    if let Some((container, end)) = ends {
        let sentence = format!("container {} of pod {name} is not ready", container.name);
        return (container.name.clone(), with_termination(&sentence, end));
    }
    // A container that is not running is more specific than a running one, which may wait for it.
    if let Some(container) = unready().find(|c| !c.running).or(unready().next()) {
        let does = if container.running { "is running but not ready" } else { "is not running yet" };
        return (container.name.clone(), format!("container {} of pod {name} {does}", container.name));
    }
    let sentence = match (pod.closed_gates.first(), &pod.ready) {
        (Some(gate), _) => closed(gate, name),
        (None, None) => format!("pod {name} is not ready: its status has no condition Ready"),
        (None, Some(ready)) if !ready.message.is_empty() => {
            format!("pod {name} is not ready: {}{}", ready.reason, after(&ready.message))
        }
        (None, Some(_)) if !pod.containers.is_empty() => {
            format!("pod {name} is not ready, although its containers are: its machine may be unreachable")
        }
        (None, Some(_)) => format!("pod {name} is not ready"),
    };
    (String::new(), sentence)
}

/// True if it is an init container that has done its work. Not every kubelet calls that ready.
fn is_done(container: &ContainerState) -> bool {
    container.init && container.ended && container.termination.as_ref().is_none_or(|end| end.exit_code == 0)
}

fn closed(gate: &ClosedGate, pod: &str) -> String {
    let why = match &gate.condition {
        None => "the pod does not have this condition".to_owned(),
        Some(condition) if condition.reason.is_empty() => condition.message.clone(),
        Some(condition) => format!("{}{}", condition.reason, after(&condition.message)),
    };
    format!("readiness gate {} of pod {pod} is not True{}", gate.name, after(&why))
}

/// A message about a container, followed by how it last ended. As long as it ends in the same way, the message stays as
/// it is: its last words may differ each time.
#[must_use]
pub fn with_termination(message: &str, end: &Termination) -> String {
    let (says, known) = parts(message);
    let head = head(end);
    if known.is_some_and(|known| known.split(": ").next() == Some(&head)) {
        return message.to_owned();
    }
    format!("{says}{LAST_TERMINATION}{}", in_words(end))
}

/// The message without how the container last ended.
#[must_use]
pub fn without_termination(message: &str) -> &str {
    parts(message).0
}

fn parts(message: &str) -> (&str, Option<&str>) {
    message.split_once(LAST_TERMINATION).map_or((message, None), |(says, known)| (says, Some(known)))
}

fn head(end: &Termination) -> String {
    let reason = if end.reason.is_empty() { String::new() } else { format!("{}, ", end.reason) };
    let signal = if end.signal == 0 { String::new() } else { format!(", signal {}", end.signal) };
    format!("{reason}exit code {}{signal}", end.exit_code)
}

fn in_words(end: &Termination) -> String {
    let words: Vec<&str> = end.message.split_whitespace().collect();
    format!("{}{}", head(end), after(&words.join(" ")))
}

/// The pod's own reason and message.
fn own_reason(pod: &ObservedPod) -> String {
    let message = pod.message.trim().trim_end_matches('.');
    if pod.reason.is_empty() { message.to_owned() } else { format!("{}{}", pod.reason, after(message)) }
}

/// True if two messages differ in nothing but numbers, as the scheduler's do while a cluster grows.
#[must_use]
pub fn differ_in_numbers_only(left: &str, right: &str) -> bool {
    let without = |text: &str| -> String { text.chars().filter(|c| !c.is_ascii_digit()).collect() };
    without(left) == without(right)
}

fn after(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}
