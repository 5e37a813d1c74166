//! The state of a pod's containers: written by their runners, read by the status writer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::{api::core::v1::ContainerStatus, jiff::Timestamp};
use tokio::sync::watch;

/// The termination of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// `None` if it never ran.
    pub(crate) started: Option<Timestamp>,
    pub(crate) finished: Option<Timestamp>,
    pub(crate) id: String,
}

/// The state of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting { reason: String, message: String },
    Running { since: Timestamp },
    Ended(Ended),
}

impl State {
    pub(crate) fn waiting(reason: &str, message: impl Into<String>) -> Self {
        Self::Waiting { reason: reason.to_owned(), message: message.into() }
    }
}

/// The role of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has to complete before the next one starts.
    Init,
    /// An init container that keeps running.
    Sidecar,
    Main,
}

/// A container.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) role: Role,
    pub(crate) state: State,
    pub(crate) last: Option<Ended>,
    pub(crate) restarts: i32,
    pub(crate) started: bool,
    pub(crate) ready: bool,
    /// The ID of its process; empty before the first run.
    pub(crate) id: String,
    pub(crate) image_id: String,
}

/// Restores the record of a container from before the kubelet's start: its process is gone, as after a reboot.
pub(crate) fn with_past(record: &mut Record, past: &ContainerStatus, starts_again: impl Fn(i32) -> bool) {
    record.restarts = past.restart_count;
    let last = past.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    record.last = last.map(ended);
    let Some(state) = &past.state else { return };
    if let Some(running) = &state.running {
        record.image_id.clone_from(&past.image_id);
        let lost = Ended {
            code: 137,
            signal: Some(9),
            reason: "ContainerStatusUnknown".to_owned(),
            message: "The kubelet was started anew, and its processes are gone".to_owned(),
            started: running.started_at.as_ref().map(|time| time.0),
            finished: None,
            id: past.container_id.clone().unwrap_or_default(),
        };
        settle(record, lost, starts_again);
    } else if let Some(terminated) = &state.terminated {
        record.image_id.clone_from(&past.image_id);
        settle(record, ended(terminated), starts_again);
    }
}

fn settle(record: &mut Record, end: Ended, starts_again: impl Fn(i32) -> bool) {
    record.id.clone_from(&end.id);
    if starts_again(end.code) {
        record.last = Some(end);
        record.restarts += 1;
    } else {
        record.state = State::Ended(end);
    }
}

fn ended(past: &k8s_openapi::api::core::v1::ContainerStateTerminated) -> Ended {
    Ended {
        code: past.exit_code,
        signal: past.signal,
        reason: past.reason.clone().unwrap_or_default(),
        message: past.message.clone().unwrap_or_default(),
        started: past.started_at.as_ref().map(|time| time.0),
        finished: past.finished_at.as_ref().map(|time| time.0),
        id: past.container_id.clone().unwrap_or_default(),
    }
}

/// The state of a pod besides its containers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sandbox {
    /// Volumes and address are ready.
    pub(crate) ready: bool,
    /// No container runs or will start again.
    pub(crate) over: bool,
    pub(crate) started: Option<Timestamp>,
}

/// The table, with its watchers.
pub(crate) struct Table {
    inner: Mutex<(Sandbox, Vec<Record>)>,
    changed: watch::Sender<u64>,
}

impl Table {
    pub(crate) fn new(records: Vec<Record>) -> Self {
        let inner = Mutex::new((Sandbox::default(), records));
        Self { inner, changed: watch::Sender::new(0) }
    }

    pub(crate) fn read(&self) -> (Sandbox, Vec<Record>) {
        self.lock().clone()
    }

    pub(crate) fn record(&self, index: usize) -> Record {
        self.lock().1[index].clone()
    }

    pub(crate) fn set(&self, index: usize, change: impl FnOnce(&mut Record)) {
        change(&mut self.lock().1[index]);
        self.changed.send_modify(|turn| *turn += 1);
    }

    pub(crate) fn set_pod(&self, change: impl FnOnce(&mut Sandbox)) {
        change(&mut self.lock().0);
        self.changed.send_modify(|turn| *turn += 1);
    }

    /// Yields for each change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        let mut changes = self.changed.subscribe();
        changes.mark_changed();
        changes
    }

    /// Waits until `holds` is true for a container.
    pub(crate) async fn until(&self, index: usize, holds: impl Fn(&Record) -> bool) {
        let mut changes = self.changes();
        while !holds(&self.record(index)) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Sandbox, Vec<Record>)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
