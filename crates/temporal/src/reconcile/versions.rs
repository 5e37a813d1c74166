//! Maintains the versions independently of the plan: their workers and their retirement.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_engine::Plan;
use windlass_kube_port::{ClusterError, Event};

use super::resources::{Fate, Kinds};
use super::state::Reconcile;
use crate::api::{Reason, VersionState};
use crate::context::RESOURCES_PATIENCE;
use crate::observe;
use crate::planner::evacuate::{self, Evacuation};
use crate::planner::sunset::{Act, Making, NeededVersions, act, drained_since, is_contested};
use crate::planner::{Workers, routing};
use crate::port::BuildId;

/// Requeue while a version is being retired.
const MOVING: Duration = Duration::from_secs(3);

/// Requeue after a count that failed: the visibility store allows a namespace only ten queries a second.
const COUNT_AGAIN: Duration = Duration::from_secs(15);

/// The result of maintaining a version.
enum VersionOutcome {
    /// Nothing is left to do.
    Idle,
    /// Check again after this time.
    Requeue(Duration),
    /// It may be due to be retired: check again after this time.
    Undecided(Duration),
    /// It is scaled down or deleted, or will be as soon as its other objects are deleted.
    Retiring,
    /// The version no longer exists.
    Gone,
}

impl Reconcile<'_> {
    /// Counts the pollers of the active plan's version. Without one, counts those of the current version, at a lower
    /// rate.
    pub(super) async fn count_pollers(&mut self, plan: Option<&Plan>) {
        let Some(temporal) = self.temporal.clone() else { return };
        let target =
            evacuate::rollout(plan).filter(|plan| plan.is_active()).map(|_| &self.facts.target.build);
        let refuge = plan.and_then(evacuate::refuge_before_batch);
        let is_urgent = target.is_some() || refuge.is_some();
        let Some(build) = refuge.as_ref().or(target).or_else(|| self.facts.current()).cloned() else {
            return;
        };
        if is_urgent || self.cx.pollers_are_due(&self.facts.uid, &build) {
            observe::count_pollers(&mut self.facts, &build, &*temporal).await;
        }
    }

    /// Maintains each version; a failure does not affect the others. Returns the versions that no longer exist,
    /// and when to check the others again.
    pub(super) async fn maintain_versions(
        &mut self,
        active: bool,
        plan: Option<&Plan>,
    ) -> (Vec<BuildId>, Option<Duration>) {
        let target = self.facts.target.build.clone();
        let planned =
            evacuate::rollout(plan).filter(|plan| active && plan.target_hash == self.facts.target.hash);
        let evacuation = evacuate::active(plan).and_then(Evacuation::of);
        let is_rejected = self.facts.status.rejected.is_some();
        let wanted = NeededVersions {
            target: planned.is_some() || (self.facts.is_at_target() && !is_rejected),
            planned: planned.map(|plan| (&target, Making::of(&self.facts, plan, self.is_accepted))),
            refuge: evacuation.as_ref().map(|evacuation| &evacuation.to),
        };
        let builds: Vec<BuildId> = self.facts.versions.keys().cloned().collect();
        let kinds = self.kinds_in_use().await;
        let (mut forgotten, mut fates) = (Vec::new(), BTreeMap::new());
        let mut pending: Option<Duration> = None;
        let soonest = |pending: Option<Duration>, next| Some(pending.map_or(next, |other| other.min(next)));
        for build in builds {
            match self.maintain_version(&build, &wanted, &kinds).await {
                Ok(VersionOutcome::Idle) => {}
                Ok(VersionOutcome::Requeue(next)) => pending = soonest(pending, next),
                Ok(VersionOutcome::Retiring) => {
                    pending = soonest(pending, MOVING);
                    fates.insert(build, Fate::Delete);
                }
                Ok(VersionOutcome::Undecided(next)) => {
                    pending = soonest(pending, next);
                    fates.insert(build, Fate::Keep);
                }
                Ok(VersionOutcome::Gone) => {
                    self.cx.is_deleted(&self.facts.uid, &build);
                    forgotten.push(build);
                }
                // A problem with one version blocks neither the others nor the plan.
                Err(error) => {
                    pending = soonest(pending, MOVING);
                    self.report_failure(&build, &error);
                    fates.insert(build, Fate::Keep);
                }
            }
        }
        if let Some(next) = self.maintain_resources(&kinds, &fates).await {
            pending = soonest(pending, next);
        }
        (forgotten, pending)
    }

    async fn maintain_version(
        &mut self,
        build: &BuildId,
        wanted: &NeededVersions<'_>,
        kinds: &Kinds,
    ) -> Result<VersionOutcome, ClusterError> {
        let mut next = act(&self.facts, &self.facts.versions[build], wanted, self.now);
        let left = self.cx.until_delete(&self.facts.uid, build);
        if next == Act::Count && self.is_only_a_record(build) && !left.is_zero() {
            // The count is needed only for a deletion that is not due yet.
            return Ok(VersionOutcome::Requeue(left));
        }
        let left = self.cx.until_scale_down(&self.facts.uid, build);
        let is_contested = is_contested(&self.facts, &self.facts.versions[build], self.now);
        if matches!(next, Act::Count | Act::ScaleDown) && is_contested && !left.is_zero() {
            // An autoscaler would revert each write.
            return Ok(VersionOutcome::Requeue(left));
        }
        // Count only where the decision depends on it, then decide again.
        if let (Act::Count, Some(temporal)) = (next, self.temporal.clone()) {
            observe::count(&mut self.facts, build, &*temporal).await;
            next = act(&self.facts, &self.facts.versions[build], wanted, self.now);
        }
        let is_retired = matches!(next, Act::ScaleDown | Act::DeleteWorkers);
        if is_retired && self.has_resources(kinds, build) {
            if !self.cx.has_waited_for_resources(&self.facts.uid, build) {
                return Ok(VersionOutcome::Retiring);
            }
            let note = format!(
                "objects of {build} still exist {} s after Windlass deleted them; it is scaled down anyway",
                RESOURCES_PATIENCE.as_secs()
            );
            self.record_event(Event::warning(Reason::ApplyFailed, note.clone(), note));
        }
        if next == Act::Serve {
            self.cx.end_wait_for_resources(&self.facts.uid, build);
            self.count_for_people(build).await;
        }
        match next {
            Act::Serve => {
                let workers = self.facts.versions[build].workers.as_ref();
                let was_sunset = workers.is_some_and(Workers::is_sunset);
                let is_made =
                    wanted.planned.is_some_and(|(of, making)| of == build && making == Making::Over);
                if self.children.serve(&self.facts, build, is_made).await? && was_sunset {
                    let note =
                        format!("Windlass restores the workers of {build}: workflows may run on it again");
                    self.record_event(Event::normal(
                        Reason::VersionRevived,
                        format!("{build}/{}", self.now),
                        note,
                    ));
                }
            }
            Act::ScaleDown => {
                self.children.scale_down(build).await?;
                self.cx.is_scaled_down(&self.facts.uid, build);
                let is_reported = self.facts.state(&self.facts.versions[build]) == VersionState::Drained;
                let although = if is_reported { "" } else { " (Temporal does not report it as drained)" };
                let note = format!("no workflow runs on {build}{although}: Windlass scales its workers to 0");
                // One event, even if another client scales it up several times.
                let since = drained_since(&self.facts.versions[build]).unwrap_or(self.now);
                self.record_event(Event::normal(Reason::VersionScaledDown, format!("{build}/{since}"), note));
                return Ok(VersionOutcome::Retiring);
            }
            Act::DeleteWorkers => {
                self.children.delete(build).await?;
                let note = format!("no workflow runs on {build}: Windlass deletes its Deployment");
                self.record_event(Event::normal(
                    Reason::VersionDeleted,
                    format!("{build}/{}", self.now),
                    note,
                ));
                return Ok(VersionOutcome::Retiring);
            }
            Act::DeleteRecord => {
                // No workflow runs on one that Temporal never reports as drained.
                let drains = self.facts.state(&self.facts.versions[build]) == VersionState::Draining;
                self.delete_record(build, drains).await;
                return Ok(VersionOutcome::Requeue(self.cx.until_delete(&self.facts.uid, build).max(MOVING)));
            }
            Act::Forget => return Ok(VersionOutcome::Gone),
            Act::Count => {
                let has_failed = self.facts.versions[build].uncounted.is_some();
                return Ok(VersionOutcome::Undecided(if has_failed { COUNT_AGAIN } else { MOVING }));
            }
            Act::Leave => {}
        }
        Ok(VersionOutcome::Idle)
    }

    /// True if only Temporal's record of a version is left, and no workflow was pinned to it since: that would make
    /// it drain.
    fn is_only_a_record(&self, build: &BuildId) -> bool {
        let version = &self.facts.versions[build];
        let drains = self.facts.state(version) == VersionState::Draining;
        version.workers.is_none() && version.listed.is_some() && !drains
    }

    /// Counts the workflows of a draining version, for display.
    async fn count_for_people(&mut self, build: &BuildId) {
        let version = &self.facts.versions[build];
        let drains = self.facts.state(version) == VersionState::Draining && version.running.is_none();
        if let Some(temporal) = self.temporal.clone().filter(|_| drains)
            && self.cx.count_is_due(&self.facts.uid, build)
        {
            observe::count_for_display(&mut self.facts, build, &*temporal).await;
        }
    }

    fn report_failure(&self, build: &BuildId, error: &ClusterError) {
        // The object changed in between; the next reconcile tries again.
        if matches!(error, ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) {
            return;
        }
        let note = format!("could not update the workers of {build}: {}", error.message());
        self.record_event(Event::warning(Reason::ApplyFailed, note.clone(), note));
    }

    /// Deletes Temporal's record of a version, at a low rate: each request makes Temporal re-check the drainage.
    pub(crate) async fn delete_record(&self, build: &BuildId, skip_drainage: bool) {
        let (Some(temporal), None) = (&self.temporal, self.facts.other_manager()) else { return };
        if !self.cx.may_delete(&self.facts.uid, build) {
            return;
        }
        let of = &self.facts.deployment;
        if let Err(error) = temporal.delete_version(of, build, skip_drainage, &self.facts.identity).await {
            tracing::debug!(%of, %build, %error, "could not delete the record of a version in Temporal yet");
        }
    }

    pub(super) async fn clear_stray_ramp(&self) {
        let (Some(write), Some(temporal)) = (routing::stray_ramp(&self.facts, false), &self.temporal) else {
            return;
        };
        let Some(guard) = self.scope().guard() else { return };
        if temporal.set_routing(&self.facts.deployment, &write, &guard).await.is_ok() {
            let note =
                "Windlass removed a ramp that belongs to no rollout: all tasks go to the current version";
            self.record_event(Event::normal(Reason::RampCleared, self.now.to_string(), note));
        }
    }
}
