//! What versions need beside a plan: workers, or to go.

use std::time::Duration;

use windlass_engine::Plan;

use super::look::Look;
use crate::api::VersionState;
use crate::cluster::ClusterError;
use crate::events::Event;
use crate::observe;
use crate::planner::routing;
use crate::planner::sunset::{Act, Making, Wanted, act};
use crate::port::BuildId;

/// How soon it is looked again at what is about to go.
const MOVING: Duration = Duration::from_secs(3);

/// What came of looking after a version.
enum Tended {
    /// Nothing more is to be done now.
    Rests,
    /// Some of it is to go within this time.
    Moves(Duration),
    /// Nothing is left of it.
    Gone,
}

impl Look<'_> {
    /// The pollers of the version that a plan is about; and at rest, seldom, those of the current one.
    pub(super) async fn ask_for_pollers(&mut self, active: bool) {
        let Some(temporal) = self.temporal.clone() else { return };
        let build =
            if active { Some(self.facts.target.build.clone()) } else { self.facts.current().cloned() };
        let Some(build) = build else { return };
        if active || self.cx.pollers_are_due(&self.facts.uid, &build) {
            observe::ask_for_pollers(&mut self.facts, &build, &*temporal).await;
        }
    }

    /// Does what versions need, each for itself. Answers with those of which nothing is left, and how soon the next of the
    /// others is to go, if one is.
    pub(super) async fn tend(
        &mut self,
        active: bool,
        plan: Option<&Plan>,
    ) -> (Vec<BuildId>, Option<Duration>) {
        let target = self.facts.target.build.clone();
        let planned = plan.filter(|plan| active && plan.target_hash == self.facts.target.hash);
        let is_rejected = self.facts.status.rejected.is_some();
        let wanted = Wanted {
            target: planned.is_some() || (self.facts.is_at_target() && !is_rejected),
            planned: planned.map(|plan| (&target, Making::of(&self.facts, plan, self.are_hooks_fine))),
        };
        let builds: Vec<BuildId> = self.facts.versions.keys().cloned().collect();
        let mut forgotten = Vec::new();
        let mut pending: Option<Duration> = None;
        let soonest = |pending: Option<Duration>, next| Some(pending.map_or(next, |other| other.min(next)));
        for build in builds {
            match self.tend_to(&build, &wanted).await {
                Ok(Tended::Rests) => {}
                Ok(Tended::Moves(next)) => pending = soonest(pending, next),
                Ok(Tended::Gone) => {
                    self.cx.is_deleted(&self.facts.uid, &build);
                    forgotten.push(build);
                }
                // What is wrong with one version keeps no other waiting, nor the plan.
                Err(error) => {
                    pending = soonest(pending, MOVING);
                    self.tell_of_trouble(&build, &error);
                }
            }
        }
        (forgotten, pending)
    }

    async fn tend_to(&mut self, build: &BuildId, wanted: &Wanted<'_>) -> Result<Tended, ClusterError> {
        let mut next = act(&self.facts, &self.facts.versions[build], wanted, self.now);
        let left = self.cx.until_delete(&self.facts.uid, build);
        if next == Act::Count && self.is_only_a_record(build) && !left.is_zero() {
            // It would be counted only for what Temporal may not be asked yet.
            return Ok(Tended::Moves(left));
        }
        // Only where that matters is it counted what runs, and then decided by what was found.
        if let (Act::Count, Some(temporal)) = (next, self.temporal.clone()) {
            observe::count(&mut self.facts, build, &*temporal).await;
            next = act(&self.facts, &self.facts.versions[build], wanted, self.now);
        }
        if next == Act::Serve {
            self.count_for_people(build).await;
        }
        match next {
            Act::Serve => {
                let was_sunset = self.facts.versions[build].workers.as_ref().is_some_and(|w| w.is_sunset);
                if self.children.serve(&self.facts, build).await? && was_sunset {
                    let note = format!("workflows run on {build} again: its workers are given back");
                    self.tell(Event::normal("VersionRevived", format!("{build}/{}", self.now), note));
                }
            }
            Act::ScaleDown => {
                self.children.scale_down(build).await?;
                let note = format!("no workflow runs on {build}: it has no more pods");
                self.tell(Event::normal("VersionScaledDown", format!("{build}/{}", self.now), note));
                return Ok(Tended::Moves(MOVING));
            }
            Act::DeleteWorkers => {
                self.children.delete(build).await?;
                let note = format!("no workflow runs on {build}: its Deployment is deleted");
                self.tell(Event::normal("VersionDeleted", format!("{build}/{}", self.now), note));
                return Ok(Tended::Moves(MOVING));
            }
            Act::DeleteRecord => {
                self.delete_record(build, false).await;
                return Ok(Tended::Moves(self.cx.until_delete(&self.facts.uid, build).max(MOVING)));
            }
            Act::Forget => return Ok(Tended::Gone),
            Act::Count => return Ok(Tended::Moves(MOVING)),
            Act::Leave => {}
        }
        Ok(Tended::Rests)
    }

    /// Whether nothing is left of a version but what Temporal knows of it, and nobody has pinned a workflow to it since: that
    /// would have it drain.
    fn is_only_a_record(&self, build: &BuildId) -> bool {
        let version = &self.facts.versions[build];
        let drains = self.facts.state(version) == VersionState::Draining;
        version.workers.is_none() && version.listed.is_some() && !drains
    }

    /// Of a version that drains a person wants to know how much there is left to do.
    async fn count_for_people(&mut self, build: &BuildId) {
        let version = &self.facts.versions[build];
        let drains = self.facts.state(version) == VersionState::Draining && version.running.is_none();
        if let Some(temporal) = self.temporal.clone().filter(|_| drains)
            && self.cx.count_is_due(&self.facts.uid, build)
        {
            observe::count(&mut self.facts, build, &*temporal).await;
        }
    }

    fn tell_of_trouble(&self, build: &BuildId, error: &ClusterError) {
        // Somebody else was faster, and it is looked at again soon.
        if matches!(error, ClusterError::Conflict(_) | ClusterError::Gone(_)) {
            return;
        }
        let note = format!("the workers of {build} could not be changed: {error}");
        self.tell(Event::warning("ApplyFailed", note.clone(), note));
    }

    /// Asks Temporal to forget a version: seldom, since each time it looks at the drainage anew.
    pub(crate) async fn delete_record(&self, build: &BuildId, skip_drainage: bool) {
        let (Some(temporal), None) = (&self.temporal, self.facts.other_manager()) else { return };
        if !self.cx.may_delete(&self.facts.uid, build) {
            return;
        }
        let of = &self.facts.deployment;
        if let Err(error) = temporal.delete_version(of, build, skip_drainage, &self.facts.identity).await {
            tracing::debug!(%of, %build, %error, "Temporal does not forget a version yet");
        }
    }

    pub(super) async fn clear_stray_ramp(&self) {
        let (Some(write), Some(temporal)) = (routing::stray_ramp(&self.facts, false), &self.temporal) else {
            return;
        };
        let Some(guard) = self.scope().guard() else { return };
        if temporal.set_routing(&self.facts.deployment, &write, &guard).await.is_ok() {
            let note = "a ramp that belongs to no rollout is taken back: all tasks go to the current version";
            self.tell(Event::normal("RampCleared", self.now.to_string(), note));
        }
    }
}
