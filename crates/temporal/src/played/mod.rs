//! A played Temporal: a small state machine of routing, drainage, pollers and gates, with the traps of the real one, for
//! tests. What both have to do alike is in the cases that run against both.

mod answers;
pub mod cases;
mod moods;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use windlass_clock::SharedClock;

use crate::api::Connection;
use crate::port::{
    BuildId, Connections, DeploymentName, Identity, Percent, Ramp, RampTarget, RoutingWrite, Temporal,
    TemporalError,
};

pub use moods::{GateEnd, Mood};
use state::{Illness, State};
pub use state::{Settings, Write};

/// A played Temporal. Clones are the same one.
#[derive(Clone)]
pub struct Played {
    state: Arc<Mutex<State>>,
    clock: SharedClock,
}

impl Played {
    /// One without any deployment, which reads the time from this clock.
    #[must_use]
    pub fn new(clock: SharedClock, settings: Settings) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(settings))), clock }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what is wrong from now on.
    pub fn is(&self, mood: Mood) {
        self.state().mood = mood;
    }

    /// So many workers of a version ask for tasks on these queues from now on; none: they are gone.
    pub fn poll(&self, deployment: &DeploymentName, build: &BuildId, queues: &[&str], workers: u32) {
        let now = self.clock.now();
        self.state().poll(deployment, build, queues, workers, now);
    }

    /// Somebody has deleted a version's record, without regard to what runs on it; and its workers do not get through from now on.
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

    /// Starts a workflow: pinned to a version, or where the routing leads, as a share from 0 to 100 of the ramp decides.
    /// Answers with the version that it is pinned to; none: nobody would carry it out.
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

    /// Ends a workflow. Answers with the build that it ran on, if it ran.
    #[allow(clippy::must_use_candidate, reason = "most tests only want it to end")]
    pub fn end(&self, id: &str) -> Option<BuildId> {
        self.state().end(id)
    }

    /// The workflows that run on versions without workers.
    #[must_use]
    pub fn orphans(&self) -> Vec<String> {
        self.state().orphans()
    }

    /// How the gates of a build end from now on.
    pub fn gates_end(&self, build: &BuildId, end: GateEnd) {
        self.state().ends.insert(build.clone(), end);
    }

    /// Changes the routing as a person would, with an identity of their own and without a token.
    pub fn by_hand(
        &self,
        deployment: &DeploymentName,
        write: &crate::port::RoutingWrite,
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

    /// Has a person set the ramp of a version to this share right before this write, which was decided on what was before.
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
            // What a hand may not do it does not do.
            let _ = state.route(&of, &by_hand, now);
        };
        self.state().hand = Some((write, Box::new(act)));
    }

    /// How many changes of the routing were refused because of what they were decided on.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.state().conflicts
    }

    /// Makes somebody the manager, or nobody.
    pub fn manage(&self, deployment: &DeploymentName, who: Option<&str>) {
        self.state().manage(deployment, who);
    }

    /// Every write so far.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.state().writes.iter().map(|(_, write)| write.clone()).collect()
    }

    /// Every write so far, with when it was carried out.
    #[must_use]
    pub fn timed_writes(&self) -> Vec<(DateTime<Utc>, Write)> {
        self.state().writes.clone()
    }

    /// When a version was asked to be deleted, whatever the answer was.
    #[must_use]
    pub fn asked_to_delete(&self, build: &BuildId) -> Vec<DateTime<Utc>> {
        self.state().deletes.iter().filter(|(_, of)| of == build).map(|(at, _)| *at).collect()
    }

    /// Sets what is wrong from its so-manieth call on, for so long.
    pub fn falls_ill(&self, at_call: u64, mood: Mood, lasts: TimeDelta) {
        self.state().illness = Some(Illness { at_call, mood, lasts, until: None });
    }

    /// How many calls there were, of any kind.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// How often a deployment was described.
    #[must_use]
    pub fn describes(&self) -> u64 {
        self.state().describes
    }

    /// How many workflows were started as gates.
    #[must_use]
    pub fn gates(&self) -> usize {
        self.state().gates.len()
    }

    /// Has it die before its so-manieth write from now on, or right after it: what the operator is for a test that kills it.
    pub fn at_write(&self, number: u64, before: bool, act: impl FnOnce() + Send + 'static) {
        self.state().trap = Some((number, before, Box::new(act)));
    }
}

#[async_trait]
impl Connections for Played {
    async fn connect(&self, _: &str, _: &Connection) -> Result<Arc<dyn Temporal>, TemporalError> {
        let now = self.clock.now();
        if self.state().mood_at(now) == Mood::Secretless {
            return Err(TemporalError::SecretNotFound { message: "shop/temporal-key".to_owned() });
        }
        Ok(Arc::new(self.clone()))
    }
}
