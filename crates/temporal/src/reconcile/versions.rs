//! What versions need beside a plan: workers, or to go.

use windlass_engine::Plan;

use super::look::Look;
use crate::cluster::ClusterError;
use crate::events::News;
use crate::observe;
use crate::planner::routing;
use crate::planner::sunset::{Act, Wanted, act};
use crate::port::BuildId;

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

    /// Does what versions need, each for itself. Answers with those of which nothing is left, and whether some is to go
    /// soon.
    pub(super) async fn tend(
        &mut self,
        active: bool,
        plan: Option<&Plan>,
    ) -> Result<(Vec<BuildId>, bool), ClusterError> {
        let target = self.facts.target.build.clone();
        let is_target_planned = active && plan.is_some_and(|plan| plan.target_hash == self.facts.target.hash);
        let is_rejected = self.facts.status.rejected.is_some();
        let wanted = Wanted {
            target: is_target_planned || (self.facts.is_at_target() && !is_rejected),
            planned: is_target_planned.then_some(&target),
        };
        let builds: Vec<BuildId> = self.facts.versions.keys().cloned().collect();
        let mut forgotten = Vec::new();
        let mut pending = false;
        for build in builds {
            let mut next = act(&self.facts, &self.facts.versions[&build], &wanted, self.now);
            // Only where that matters is it counted what runs, and then decided by what was found.
            if let (Act::Count, Some(temporal)) = (next, self.temporal.clone()) {
                observe::count(&mut self.facts, &build, &*temporal).await;
                next = act(&self.facts, &self.facts.versions[&build], &wanted, self.now);
            }
            // The plan's own task makes and updates the version that it is about.
            let is_planned = is_target_planned && build == target;
            match next {
                Act::Serve if is_planned => {}
                Act::Serve => {
                    let was_sunset =
                        self.facts.versions[&build].workers.as_ref().is_some_and(|w| w.is_sunset);
                    if self.children.serve(&self.facts, &build).await? && was_sunset {
                        let note = format!("workflows run on {build} again: its workers are given back");
                        self.tell(News::normal("VersionRevived", format!("{build}/{}", self.now), note));
                    }
                }
                Act::ScaleDown => {
                    self.children.scale_down(&build).await?;
                    let note = format!("no workflow runs on {build}: it has no more pods");
                    self.tell(News::normal("VersionScaledDown", format!("{build}/{}", self.now), note));
                    pending = true;
                }
                Act::DeleteWorkers => {
                    self.children.delete(&build).await?;
                    let note = format!("no workflow runs on {build}: its Deployment is deleted");
                    self.tell(News::normal("VersionDeleted", format!("{build}/{}", self.now), note));
                    pending = true;
                }
                Act::DeleteRecord => {
                    pending = true;
                    self.delete_record(&build, false).await;
                }
                Act::Forget => forgotten.push(build),
                Act::Count => pending = true,
                Act::Leave => {}
            }
        }
        Ok((forgotten, pending))
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
            self.tell(News::normal("RampCleared", self.now.to_string(), note));
        }
    }
}
