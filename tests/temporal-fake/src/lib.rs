//! A fake Temporal for tests: a small state machine of routing, drainage, pollers and gates, with the pitfalls of the
//! real one. The cases in `cases` run against both.

mod answers;
mod batches;
pub mod cases;
mod faults;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use windlass_clock::SharedClock;

use windlass_temporal::api::Connection;
use windlass_temporal::port::{
    BuildId, Connections, DeploymentName, Identity, Percent, Ramp, RampTarget, RoutingWrite, Temporal,
    TemporalError,
};

pub use faults::{Fault, GateEnd};
use state::{ScheduledFault, State};
pub use state::{Settings, Write};

/// A fake Temporal. Clones share its state.
#[derive(Clone)]
pub struct FakeTemporal {
    state: Arc<Mutex<State>>,
    clock: SharedClock,
}

impl FakeTemporal {
    /// A fake without deployments.
    #[must_use]
    pub fn new(clock: SharedClock, settings: Settings) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(settings))), clock }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the current fault.
    pub fn set_fault(&self, fault: Fault) {
        self.state().fault = fault;
    }

    /// Sets how many workers of a version poll these queues from now on; zero: they are gone.
    pub fn poll(&self, deployment: &DeploymentName, build: &BuildId, queues: &[&str], workers: u32) {
        let now = self.clock.now();
        self.state().poll(deployment, build, queues, workers, now);
    }

    /// Deletes a version's record, whatever runs on it, and cuts its workers off from then on.
    pub fn forget(&self, deployment: &DeploymentName, build: &BuildId) {
        let mut state = self.state();
        state.unheard.insert((deployment.clone(), build.clone()));
        if let Some(deployment) = state.deployments.get_mut(deployment) {
            deployment.versions.remove(build);
            deployment.token += 1;
        }
    }

    /// The task queues on which gates of a version were started.
    #[must_use]
    pub fn gated_queues(&self, build: &BuildId) -> Vec<String> {
        let state = self.state();
        let of = state.gates.values().filter(|gate| gate.build == *build);
        let mut queues: Vec<String> = of.map(|gate| gate.queue.clone()).collect();
        queues.sort();
        queues
    }

    /// The inputs of a version's gates.
    #[must_use]
    pub fn gate_inputs(&self, build: &BuildId) -> Vec<Option<serde_json::Value>> {
        let state = self.state();
        let of = state.gates.values().filter(|gate| gate.build == *build);
        of.map(|gate| gate.input.clone()).collect()
    }

    /// Starts a workflow, pinned to a version or routed; `share`, 0 to 100, decides whether the ramp gets it. Returns
    /// the version that it is pinned to; `None` if no worker would run it.
    #[allow(clippy::must_use_candidate, reason = "most tests only want it to run")]
    pub fn start(
        &self,
        deployment: &DeploymentName,
        id: &str,
        pinned: Option<&BuildId>,
        share: f32,
    ) -> Option<BuildId> {
        let now = self.clock.now();
        self.state().start(deployment, id, pinned, share, now)
    }

    /// Ends a workflow. Returns the build that it ran on, if it ran.
    #[allow(clippy::must_use_candidate, reason = "most tests only want it to end")]
    pub fn end(&self, id: &str) -> Option<BuildId> {
        self.state().end(id)
    }

    /// The build that a workflow is pinned to; `None` if it does not run.
    #[must_use]
    pub fn build_of(&self, id: &str) -> Option<BuildId> {
        let now = self.clock.now();
        let mut state = self.state();
        state.pass(now);
        state.workflows.get(id).map(|workflow| workflow.build.clone())
    }

    /// Makes each batch fail on this workflow from now on, or no longer.
    pub fn holds(&self, id: &str, holds: bool) {
        let mut state = self.state();
        if holds {
            state.immovable.insert(id.to_owned());
        } else {
            state.immovable.remove(id);
        }
    }

    /// The job IDs of all batches that were started.
    #[must_use]
    pub fn batches(&self) -> Vec<String> {
        self.state().batches.keys().cloned().collect()
    }

    /// The workflows that run on versions without workers.
    #[must_use]
    pub fn orphans(&self) -> Vec<String> {
        self.state().orphans()
    }

    /// Sets how the gates of a build end.
    pub fn gates_end(&self, build: &BuildId, end: GateEnd) {
        self.state().ends.insert(build.clone(), end);
    }

    /// Changes the routing as a person would: with another identity, and without a token.
    pub fn by_hand(
        &self,
        deployment: &DeploymentName,
        write: &windlass_temporal::port::RoutingWrite,
    ) -> Result<(), TemporalError> {
        let now = self.clock.now();
        self.state().route(deployment, write, now)
    }

    /// Sets the ramp as a person would: to a version, or to workers without one.
    pub fn ramp_by_hand(
        &self,
        deployment: &DeploymentName,
        build: Option<&BuildId>,
        percent: f32,
        who: &str,
    ) {
        let now = self.clock.now();
        let mut state = self.state();
        let Some(found) = state.deployments.get_mut(deployment) else { return };
        let before = found.routing.clone();
        let to = build.map_or(RampTarget::Unversioned, |build| RampTarget::Version(build.clone()));
        found.routing.ramp = Some(Ramp { to, percent: Percent(percent) });
        found.last_modifier = Some(Identity::new(who));
        state.rerouted(deployment, &before, now);
    }

    /// Sets a version's ramp by hand right before the given write, which was decided on the routing before.
    pub fn hand_before(
        &self,
        write: RoutingWrite,
        deployment: &DeploymentName,
        build: &BuildId,
        percent: f32,
    ) {
        let (of, now) = (deployment.clone(), self.clock.now());
        let by_hand = RoutingWrite::Ramp { to: build.clone(), percent: Percent(percent) };
        let act = move |state: &mut State| {
            // A change that a person may not make is ignored.
            let _ = state.route(&of, &by_hand, now);
        };
        self.state().hand = Some((write, Box::new(act)));
    }

    /// The number of routing changes refused for a stale token.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.state().conflicts
    }

    /// Sets or removes the manager.
    pub fn manage(&self, deployment: &DeploymentName, who: Option<&str>) {
        self.state().manage(deployment, who);
    }

    /// All writes so far.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.state().writes.iter().map(|(_, write)| write.clone()).collect()
    }

    /// All writes so far, with their times.
    #[must_use]
    pub fn timed_writes(&self) -> Vec<(DateTime<Utc>, Write)> {
        self.state().writes.clone()
    }

    /// The times at which the deletion of a version was requested, whatever the answer.
    #[must_use]
    pub fn asked_to_delete(&self, build: &BuildId) -> Vec<DateTime<Utc>> {
        self.state().deletes.iter().filter(|(_, of)| of == build).map(|(at, _)| *at).collect()
    }

    /// Sets a fault that starts at the given call and lasts this long.
    pub fn fail_at_call(&self, at_call: u64, fault: Fault, lasts: TimeDelta) {
        self.state().scheduled = Some(ScheduledFault { at_call, fault, lasts, until: None });
    }

    /// The number of calls of any kind.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// The number of times that a deployment was described.
    #[must_use]
    pub fn describes(&self) -> u64 {
        self.state().describes
    }

    /// Refuses from now on to start gates on this task queue, as one on which no worker polls.
    pub fn knows_no_queue(&self, queue: &str) {
        self.state().unknown_queues.insert(queue.to_owned());
    }

    /// The number of requests to start a gate, whatever the answer.
    #[must_use]
    pub fn asked_to_start(&self) -> u64 {
        self.state().starts
    }

    /// The number of gate workflows started.
    #[must_use]
    pub fn gates(&self) -> usize {
        self.state().gates.len()
    }

    /// The address of the last connection.
    #[must_use]
    pub fn address(&self) -> String {
        self.state().address.clone()
    }

    /// Runs `act` before or right after the given write, counted from now; tests kill the operator with it.
    pub fn at_write(&self, number: u64, before: bool, act: impl FnOnce() + Send + 'static) {
        self.state().trap = Some((number, before, Box::new(act)));
    }
}

#[async_trait]
impl Connections for FakeTemporal {
    async fn connect(&self, _: &str, connection: &Connection) -> Result<Arc<dyn Temporal>, TemporalError> {
        let now = self.clock.now();
        self.state().address.clone_from(&connection.address);
        if self.state().fault_at(now) == Fault::Secretless {
            return Err(TemporalError::SecretNotFound { message: "shop/temporal-key".to_owned() });
        }
        Ok(Arc::new(self.clone()))
    }
}
