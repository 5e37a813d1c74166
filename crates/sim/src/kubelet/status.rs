//! Computes the status of a pod. Pure: time is an argument.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Pace,
    conditions::{conditions, dead, evicted, phase},
    image,
    loops::{self, BACKOFF_FIRST, BACKOFF_LAST},
    outlook::{Now, Outlook, is_native_sidecar, text},
    probe::probe_path,
    steering::{Fare, Orders, Report},
};

/// How long a `slow` container takes to become ready.
const SLOW: Duration = Duration::from_secs(5);

/// How long it takes until a pod is evicted or rejected.
const EVICTED: Duration = Duration::from_secs(3);

/// The state of a pod between statuses.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) ip: String,
    /// When the kubelet accepted the pod, as in its status.
    pub(super) started: Option<String>,
    /// The last result of the sidecar's probe.
    pub(super) probed: bool,
    containers: BTreeMap<String, ContainerLife>,
    pace: Pace,
    /// When it is gone, from when its deletion was first observed.
    leaves: Option<Instant>,
    /// When it is evicted.
    evicted: Option<Instant>,
}

#[derive(Clone, Debug)]
struct ContainerLife {
    state: State,
    /// `None`: since before this kubelet.
    since: Option<Instant>,
    since_wall: String,
    /// The restarts before the present state.
    restarts: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    Crashes,
    Waits,
    Ended,
    Restarts,
    Pulls,
}

impl Life {
    /// Restores the state of a pod that an earlier kubelet may have started.
    pub(super) fn adopt(pod: &Pod, ip: String) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let taken = status.pod_ip.filter(|ip| !ip.is_empty());
        let started = status.start_time.map(|time| text_of(&time));
        let mut life = Self { ip: taken.unwrap_or(ip), started, ..Self::default() };
        let inits = status.init_container_statuses.into_iter().flatten();
        for container in inits.chain(status.container_statuses.into_iter().flatten()) {
            let state = container.state.unwrap_or_default();
            let running = state.running.and_then(|running| running.started_at);
            let ended = state.terminated.and_then(|ended| ended.started_at);
            let crashes =
                state.waiting.and_then(|w| w.reason).is_some_and(|reason| reason == "CrashLoopBackOff");
            let (state, since_wall) = match (running, ended) {
                (Some(at), _) => (State::Runs, text_of(&at)),
                (None, Some(at)) => (State::Ended, text_of(&at)),
                (None, None) if crashes => (State::Crashes, life.started.clone().unwrap_or_default()),
                (None, None) => continue,
            };
            let restarts = container.restart_count - i32::from(crashes);
            life.containers
                .insert(container.name, ContainerLife { state, since: None, since_wall, restarts });
        }
        life
    }

    /// The same with these durations.
    pub(super) fn at(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// When a deleted pod is gone.
    pub(super) fn gone_at(&mut self, pod: &Pod, orders: &Orders, now: Now) -> Instant {
        let until = pod.metadata.deletion_timestamp.as_ref().filter(|_| orders.lingers);
        let until = until.and_then(|until| text_of(until).parse::<DateTime<Utc>>().ok());
        let stop = until.map(|until| (until - now.wall).to_std().unwrap_or_default());
        let leaves = self.leaves.get_or_insert(now.instant + stop.unwrap_or(self.pace.stop));
        *leaves
    }

    /// The desired status; `None` for a pod that its node has never started and never will.
    pub(super) fn outlook(&mut self, pod: &Pod, orders: &Orders, now: Now) -> Option<Outlook> {
        if orders.dead {
            return dead(pod, now);
        }
        if orders.evicted {
            let due = *self.evicted.get_or_insert(now.instant + EVICTED);
            if due <= now.instant {
                return Some(Outlook { status: evicted(pod, now), again: None, warning: None });
            }
            // Under pressure a kubelet starts no other pod.
            if self.containers.is_empty() {
                return Some(Outlook {
                    status: json!({"phase": "Pending"}),
                    again: Some(due),
                    warning: None,
                });
            }
        }
        let spec = pod.spec.as_ref()?;
        let ends = spec.restart_policy.as_deref().is_some_and(|policy| policy != "Always");
        let started = self.started.get_or_insert_with(|| text(now.wall)).clone();
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        let unmounted = all.into_iter().any(|container| orders.fare(&container.name) == Fare::Creating);
        let mut view = View { pod, orders, now, again: None, blocked: false, unmounted };
        let inits: Vec<Value> = spec
            .init_containers
            .iter()
            .flatten()
            .map(|container| view.init_container(self, container))
            .collect();
        let initialized = !view.blocked;
        let mains: Vec<Value> =
            spec.containers.iter().map(|container| view.main_container(self, container, ends)).collect();
        let again = view.again.into_iter().chain(self.evicted.filter(|_| orders.evicted)).min();

        let phase = phase(spec.restart_policy.as_deref(), &mains);
        let sidecars = spec.init_containers.iter().flatten().zip(&inits);
        let asleep = sidecars.filter(|(container, _)| is_native_sidecar(container)).map(|(_, status)| status);
        let unready: Vec<&str> = asleep
            .chain(&mains)
            .filter(|status| status["ready"] != true)
            .filter_map(|status| status["name"].as_str())
            .collect();
        let has_sandbox = !view.unmounted;
        let conditions = conditions(pod, phase, initialized, has_sandbox, &unready, now);
        let mut status = json!({
            "phase": phase,
            "conditions": conditions,
            "hostIP": "127.0.0.1",
            "hostIPs": [{"ip": "127.0.0.1"}],
            "podIP": self.ip,
            "podIPs": [{"ip": self.ip}],
            "startTime": started,
            "containerStatuses": mains,
        });
        if !inits.is_empty() {
            status["initContainerStatuses"] = Value::Array(inits);
        }
        shorten(&mut status, orders.report);
        let unmounted =
            || ("FailedMount", "MountVolume.SetUp failed for volume \"data\": no such device".to_owned());
        Some(Outlook { status, again, warning: (!has_sandbox).then(unmounted) })
    }

    /// Moves a container into a state; a change from running or crashing to running is a restart.
    fn enter(&mut self, container: &str, state: State, now: Now) -> ContainerLife {
        let fresh =
            || ContainerLife { state, since: Some(now.instant), since_wall: text(now.wall), restarts: 0 };
        let life = self.containers.entry(container.to_owned()).or_insert_with(fresh);
        if life.state != state {
            let restarts = match life.state {
                State::Crashes => life.restarts + crashes(life.since, now.instant).0,
                State::Restarts => {
                    life.restarts + life.since.map_or(0, |since| loops::crash(since, now.instant).again)
                }
                _ => life.restarts,
            };
            *life = ContainerLife { restarts, ..fresh() };
        }
        life.clone()
    }
}

/// An iteration over a pod's containers, in order.
struct View<'a> {
    pod: &'a Pod,
    orders: &'a Orders,
    now: Now,
    again: Option<Instant>,
    /// True once an init container blocks those after it.
    blocked: bool,
    /// True if a volume cannot be mounted, so that no container is created.
    unmounted: bool,
}

impl View<'_> {
    fn init_container(&mut self, life: &mut Life, container: &Container) -> Value {
        let fare = self.orders.fare(&container.name);
        let native = is_native_sidecar(container);
        if self.blocked || self.unmounted {
            self.blocked = true;
            return waiting(container, 0, "PodInitializing", "");
        }
        match fare {
            Fare::NoImage | Fare::Creating | Fare::Pulls => self.blocked = true,
            Fare::Crashes | Fare::Restarts | Fare::OutOfMemory => self.blocked = !native,
            _ if !native => return self.ended(life, container, 0),
            _ => {}
        }
        let probed = match probe_path(container) {
            Some(_) if self.pod.annotations().contains_key(super::SIDECAR_URL) => life.probed,
            _ => true,
        };
        self.container(life, container, fare, probed)
    }

    fn main_container(&mut self, life: &mut Life, container: &Container, ends: bool) -> Value {
        if self.blocked {
            return waiting(container, 0, "PodInitializing", "");
        }
        let never =
            self.pod.spec.as_ref().is_some_and(|spec| spec.restart_policy.as_deref() == Some("Never"));
        let fare = if self.unmounted { Fare::Creating } else { self.orders.fare(&container.name) };
        match fare {
            Fare::Runs if ends => self.ended(life, container, 0),
            Fare::Slow if ends && self.slow_is_over(life, container) => self.ended(life, container, 0),
            Fare::Crashes | Fare::Restarts | Fare::OutOfMemory if never => self.ended(life, container, 1),
            fare => self.container(life, container, fare, true),
        }
    }

    fn slow_is_over(&mut self, life: &mut Life, container: &Container) -> bool {
        if life.containers.get(&container.name).is_some_and(|life| life.state == State::Ended) {
            return true;
        }
        let since = life.enter(&container.name, State::Runs, self.now).since;
        self.waited(since, SLOW)
    }

    /// True if `long` has passed; else schedules a check for then.
    fn waited(&mut self, since: Option<Instant>, long: Duration) -> bool {
        let Some(due) = since.map(|since| since + long) else { return true };
        if due <= self.now.instant {
            return true;
        }
        self.again = self.again.into_iter().chain([due]).min();
        false
    }

    fn container(&mut self, life: &mut Life, container: &Container, fare: Fare, probed: bool) -> Value {
        let image = container.image.as_deref().unwrap_or_default();
        let name = &container.name;
        match fare {
            Fare::Creating => {
                let restarts = life.enter(name, State::Waits, self.now).restarts;
                waiting(container, restarts, "ContainerCreating", "")
            }
            Fare::NoImage => {
                let restarts = life.enter(name, State::Waits, self.now).restarts;
                let message =
                    format!("Back-off pulling image \"{image}\": ErrImagePull: {}", not_found(image));
                waiting(container, restarts, "ImagePullBackOff", &message)
            }
            Fare::Pulls => {
                let pulls = life.enter(name, State::Pulls, self.now);
                let turn = loops::pull(pulls.since.unwrap_or(self.now.instant), self.now.instant);
                self.look_again(turn.until);
                let why = not_found(image);
                let (reason, message) = match turn.part {
                    0 => ("ErrImagePull", why),
                    _ => (
                        "ImagePullBackOff",
                        format!("Back-off pulling image \"{image}\": ErrImagePull: {why}"),
                    ),
                };
                waiting(container, pulls.restarts, reason, &message)
            }
            Fare::Crashes => self.crashing(life, container),
            Fare::Restarts => self.restarting(life, container, 1, "Error"),
            Fare::OutOfMemory => self.restarting(life, container, 137, "OOMKilled"),
            Fare::Runs | Fare::Stays | Fare::Unready | Fare::Slow => {
                let run = life.enter(name, State::Runs, self.now);
                let ready = match fare {
                    Fare::Unready => false,
                    Fare::Slow => self.waited(run.since, SLOW),
                    _ => self.waited(run.since, life.pace.start),
                };
                let state = json!({"running": {"startedAt": run.since_wall}});
                let mut status =
                    self.begun(container, run.restarts, ready && probed, &state, &run.since_wall);
                status["started"] = (ready || container.startup_probe.is_none()).into();
                status
            }
        }
    }

    fn crashing(&mut self, life: &mut Life, container: &Container) -> Value {
        let name = &container.name;
        let crash = life.enter(name, State::Crashes, self.now);
        let (count, delay, next) = crashes(crash.since, self.now.instant);
        self.again = self.again.into_iter().chain(next).min();
        let state = self.backs_off(name, delay);
        let mut status = self.begun(container, crash.restarts + count, false, &state, &crash.since_wall);
        status["started"] = false.into();
        status
    }

    /// The status of a crashing container: running, terminated, or in back-off.
    fn restarting(&mut self, life: &mut Life, container: &Container, code: i32, reason: &str) -> Value {
        let run = life.enter(&container.name, State::Restarts, self.now);
        let turn = loops::crash(run.since.unwrap_or(self.now.instant), self.now.instant);
        self.look_again(turn.until);
        // Within this attempt: its running time tells a crashing container from a slow one.
        let ago = TimeDelta::from_std(self.now.instant - turn.began).unwrap_or_default();
        let at = &text(self.now.wall - ago);
        let end =
            json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": at, "finishedAt": at}});
        let state = match turn.part {
            0 => json!({"running": {"startedAt": at}}),
            1 => end.clone(),
            _ => self.backs_off(&container.name, turn.delay),
        };
        let mut status = self.begun(container, run.restarts + turn.again, false, &state, at);
        status["started"] = (turn.part == 0 && container.startup_probe.is_none()).into();
        if turn.part == 2 || turn.again > 0 {
            status["lastState"] = end;
        }
        status
    }

    fn backs_off(&self, container: &str, delay: Duration) -> Value {
        let message = format!(
            "back-off {}s restarting failed container={container} pod={}_{}({})",
            delay.as_secs(),
            self.pod.name_any(),
            self.pod.namespace().unwrap_or_default(),
            self.pod.uid().unwrap_or_default()
        );
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
    }

    fn look_again(&mut self, at: Instant) {
        self.again = self.again.into_iter().chain([at]).min();
    }

    fn ended(&mut self, life: &mut Life, container: &Container, code: i32) -> Value {
        let end = life.enter(&container.name, State::Ended, self.now);
        let reason = if code == 0 { "Completed" } else { "Error" };
        let state = json!({"terminated": {
            "exitCode": code, "reason": reason, "startedAt": end.since_wall, "finishedAt": end.since_wall,
        }});
        // A completed init container counts as ready; a main one does not.
        let init = self.pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
        let ready = init.is_some_and(|init| init.iter().any(|init| init.name == container.name));
        let mut status = self.begun(container, end.restarts, ready, &state, &end.since_wall);
        status["started"] = false.into();
        status
    }

    /// A container whose image was pulled and which has run at least once.
    fn begun(&self, container: &Container, restarts: i32, ready: bool, state: &Value, since: &str) -> Value {
        let image = container.image.as_deref().unwrap_or_default();
        let uid = self.pod.uid().unwrap_or_default();
        let id =
            |run: i32| format!("containerd://{}", image::hex(&format!("{uid}/{}/{run}", container.name)));
        let last = if restarts == 0 {
            json!({})
        } else {
            json!({"terminated": {
                "exitCode": 1, "reason": "Error", "startedAt": since, "finishedAt": since,
                "containerID": id(restarts - 1),
            }})
        };
        json!({
            "name": container.name, "image": image::normalised(image), "imageID": image::id(image),
            "containerID": id(restarts), "ready": ready, "started": true, "restartCount": restarts,
            "state": state, "lastState": last,
        })
    }
}

/// Leaves out what the kubelet does not report.
fn shorten(status: &mut Value, report: Report) {
    match report {
        Report::Full => {}
        Report::Kwok => {
            let lists = ["containerStatuses", "initContainerStatuses"];
            let all = status.as_object_mut().into_iter().flatten();
            let of_containers = all.filter(|(field, _)| lists.contains(&field.as_str()));
            for container in of_containers.flat_map(|(_, list)| list.as_array_mut().into_iter().flatten()) {
                container["imageID"] = "".into();
                if let Some(container) = container.as_object_mut() {
                    container.retain(|field, _| {
                        !matches!(field.as_str(), "containerID" | "lastState" | "started")
                    });
                }
            }
        }
        Report::Virtual => {
            for field in ["containerStatuses", "initContainerStatuses", "hostIP", "hostIPs"] {
                status[field] = Value::Null;
            }
            for condition in status["conditions"].as_array_mut().into_iter().flatten() {
                condition["lastTransitionTime"] = Value::Null;
            }
        }
    }
}

fn not_found(image: &str) -> String {
    format!("failed to pull and unpack image \"{}\": not found", image::normalised(image))
}

fn waiting(container: &Container, restarts: i32, reason: &str, message: &str) -> Value {
    let mut waiting = json!({"reason": reason});
    if !message.is_empty() {
        waiting["message"] = message.into();
    }
    json!({
        "name": container.name, "image": container.image, "imageID": "", "ready": false, "started": false,
        "restartCount": restarts, "state": {"waiting": waiting}, "lastState": {},
    })
}

/// The restarts of a container that started to crash at `since`, its current back-off, and its next restart.
fn crashes(since: Option<Instant>, now: Instant) -> (i32, Duration, Option<Instant>) {
    let mut count = 1;
    let mut delay = BACKOFF_FIRST;
    // A crash from before this kubelet stays as it was.
    let Some(mut due) = since.map(|since| since + delay) else { return (count, delay, None) };
    while due <= now {
        count += 1;
        delay = BACKOFF_LAST.min(delay * 2);
        due += delay;
    }
    (count, delay, Some(due))
}

fn text_of(time: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time) -> String {
    serde_json::to_value(time).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
