//! The probes of one run of a container: results go into the table, and a failed liveness or startup probe ends the
//! run.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container, ExecAction, Probe};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    action::Action,
    clock::monotonic,
    events::About,
    processes::Processes,
    setting::Setting,
    table::{Role, Table},
};

/// The probes of a running container.
pub(crate) struct Probes<'a> {
    pub(crate) container: &'a Container,
    pub(crate) setting: &'a Setting,
    pub(crate) processes: &'a Arc<Processes>,
    pub(crate) table: &'a Table,
    pub(crate) index: usize,
    pub(crate) events: About,
    /// The container's start.
    pub(crate) since: Instant,
}

/// The failed probe, with its grace period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) probe: &'static str,
    pub(crate) grace: Option<Duration>,
}

/// The result of a probe, after its threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Success,
    Failure,
}

impl Probes<'_> {
    /// Probes until the container has to be restarted.
    pub(crate) async fn run(&self) -> Failed {
        if let Some(probe) = &self.container.startup_probe
            && self.first(probe, "Startup").await == Found::Failure
        {
            return Failed { probe: "startup", grace: grace(probe) };
        }
        let unprobed = self.container.readiness_probe.is_none();
        let role = self.table.record(self.index).role;
        self.table.set(self.index, |record| {
            record.started = true;
            // An init container becomes ready by completing.
            record.ready |= unprobed && role != Role::Init;
        });
        let readiness = async {
            match &self.container.readiness_probe {
                Some(probe) => self.readiness(probe).await,
                None => std::future::pending().await,
            }
        };
        let liveness = async {
            match &self.container.liveness_probe {
                Some(probe) => {
                    self.until(probe, "Liveness", Found::Failure).await;
                    Failed { probe: "liveness", grace: grace(probe) }
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            failed = liveness => failed,
            () = readiness => std::future::pending().await,
        }
    }

    /// Probes only readiness, until dropped.
    pub(crate) async fn only_readiness(&self) -> Infallible {
        let readiness = self.container.readiness_probe.as_ref();
        if let Some(probe) = readiness.filter(|_| self.table.record(self.index).started) {
            self.readiness(probe).await;
        }
        std::future::pending().await
    }

    async fn readiness(&self, probe: &Probe) {
        let mut turns = Turns::new(probe, self.since);
        let mut counted = Counted::new(probe);
        loop {
            turns.next().await;
            if let Some(found) = counted.count(self.once(probe, "Readiness").await) {
                let ready = found == Found::Success;
                if self.table.record(self.index).ready != ready {
                    self.table.set(self.index, |record| record.ready = ready);
                }
            }
        }
    }

    /// Probes until a threshold is reached.
    async fn first(&self, probe: &Probe, name: &'static str) -> Found {
        let mut turns = Turns::new(probe, self.since);
        let mut counted = Counted::new(probe);
        loop {
            turns.next().await;
            if let Some(found) = counted.count(self.once(probe, name).await) {
                return found;
            }
        }
    }

    async fn until(&self, probe: &Probe, name: &'static str, wanted: Found) {
        let mut turns = Turns::new(probe, self.since);
        let mut counted = Counted::new(probe);
        loop {
            turns.next().await;
            if counted.count(self.once(probe, name).await) == Some(wanted) {
                return;
            }
        }
    }

    async fn once(&self, probe: &Probe, name: &'static str) -> bool {
        let within = seconds(probe.timeout_seconds, 1);
        match action(probe).run(self.setting, self.processes, within).await {
            Ok(()) => true,
            Err(why) => {
                self.events.warning("Unhealthy", format!("{name} probe failed: {why}"));
                false
            }
        }
    }
}

fn grace(probe: &Probe) -> Option<Duration> {
    let seconds = probe.termination_grace_period_seconds?;
    Some(Duration::from_secs(seconds.max(0).cast_unsigned()))
}

fn action(probe: &Probe) -> Action {
    if let Some(ExecAction { command }) = &probe.exec {
        return Action::Exec(command.clone().unwrap_or_default());
    }
    if let Some(get) = &probe.http_get {
        return Action::Http(get.clone());
    }
    match &probe.tcp_socket {
        Some(tcp) => Action::Tcp(tcp.clone()),
        None => Action::Unsupported("a gRPC probe"),
    }
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    let value = value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0);
    Duration::from_secs(value.unwrap_or(default))
}

/// The schedule of a probe: after its initial delay, then each period.
struct Turns {
    next: Instant,
    period: Duration,
}

impl Turns {
    fn new(probe: &Probe, since: Instant) -> Self {
        let delay = probe.initial_delay_seconds.unwrap_or_default().max(0).unsigned_abs();
        Self {
            next: since + Duration::from_secs(u64::from(delay)),
            period: seconds(probe.period_seconds, 10),
        }
    }

    async fn next(&mut self) {
        sleep_until(self.next).await;
        // Missed periods are not made up for.
        let now = monotonic();
        if now.duration_since(self.next) > self.period {
            self.next = now;
        }
        self.next += self.period;
        // Avoids a busy loop.
        sleep(Duration::from_millis(1)).await;
    }
}

/// Counts consecutive successes and failures.
struct Counted {
    success: i32,
    failure: i32,
    row: (bool, i32),
}

impl Counted {
    fn new(probe: &Probe) -> Self {
        let (success, failure) = (probe.success_threshold.unwrap_or(1), probe.failure_threshold.unwrap_or(3));
        Self { success: success.max(1), failure: failure.max(1), row: (true, 0) }
    }

    /// The result, once its threshold is reached.
    fn count(&mut self, success: bool) -> Option<Found> {
        self.row = if self.row.0 == success { (success, self.row.1.saturating_add(1)) } else { (success, 1) };
        match self.row {
            (true, times) if times >= self.success => Some(Found::Success),
            (false, times) if times >= self.failure => Some(Found::Failure),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_count_consecutive_results() {
        let probe = Probe { success_threshold: Some(2), failure_threshold: Some(3), ..Probe::default() };
        let mut counted = Counted::new(&probe);
        let mut results = Vec::new();
        for success in [false, false, true, false, false, false, true, true] {
            results.push(counted.count(success));
        }
        let (no, yes) = (Some(Found::Failure), Some(Found::Success));
        assert_eq!(results, [None, None, None, None, None, no, None, yes]);
    }
}
