//! Batch operations of the fake: they move workflows at a rate, one batch at a time.

use chrono::{DateTime, TimeDelta, Utc};

use super::state::{State, Workflow, Write};
use windlass_temporal::port::{
    BatchMove, BatchState, BuildId, DescribedBatch, Missing, PinnedWorkflows, TemporalError,
};

/// A batch counts what it has moved in pages of this many workflows.
const PAGE: u64 = 1000;
/// A batch reports nothing before it sends its first heartbeat.
const FIRST_HEARTBEAT: TimeDelta = TimeDelta::milliseconds(2_500);

/// A batch operation.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    workflows: PinnedWorkflows,
    to: BuildId,
    started: DateTime<Utc>,
    /// The IDs that it selected at its start.
    left: Vec<String>,
    total: u64,
    moved: u64,
    failed: u64,
    state: BatchState,
}

impl Batch {
    pub fn described(&self, now: DateTime<Utc>) -> DescribedBatch {
        let is_running = self.state == BatchState::Running;
        let is_silent = is_running && now - self.started < FIRST_HEARTBEAT;
        let complete = if is_running { self.moved / PAGE * PAGE } else { self.moved };
        DescribedBatch {
            state: self.state,
            total: if is_silent { 0 } else { self.total },
            complete,
            failed: if is_running { 0 } else { self.failed },
        }
    }

    pub fn stop(&mut self) {
        if self.state == BatchState::Running {
            self.state = BatchState::Failed;
        }
    }
}

/// The condition of a query that the fake understands.
enum Condition<'a> {
    Is(&'a str),
    StartsWith(&'a str),
}

impl<'a> Condition<'a> {
    fn of(query: &'a str) -> Result<Self, TemporalError> {
        let quoted = |text: &'a str| text.trim().strip_prefix('\'')?.strip_suffix('\'');
        let rest = query.trim().strip_prefix("WorkflowId").map(str::trim);
        let is = rest.and_then(|rest| quoted(rest.strip_prefix('=')?)).map(Self::Is);
        let starts = || rest.and_then(|rest| quoted(rest.strip_prefix("STARTS_WITH")?)).map(Self::StartsWith);
        is.or_else(starts)
            .ok_or_else(|| TemporalError::Refused { message: format!("invalid query: {query}") })
    }

    fn holds(&self, id: &str) -> bool {
        match self {
            Self::Is(wanted) => id == *wanted,
            Self::StartsWith(prefix) => id.starts_with(prefix),
        }
    }
}

impl State {
    /// The IDs of the workflows that a query selects.
    pub fn selected(&self, of: &PinnedWorkflows) -> Result<Vec<String>, TemporalError> {
        let condition = of.query.as_deref().map(Condition::of).transpose()?;
        let is_selected = |(id, workflow): &(&String, &Workflow)| {
            workflow.is_on(&of.deployment, &of.build)
                && condition.as_ref().is_none_or(|condition| condition.holds(id))
        };
        Ok(self.workflows.iter().filter(is_selected).map(|(id, _)| id.clone()).collect())
    }

    /// Starts a batch. Temporal checks the limit of running ones before it looks for one with the same ID.
    pub fn start_batch(&mut self, batch: &BatchMove, now: DateTime<Utc>) -> Result<(), TemporalError> {
        let running = self.batches.values().filter(|batch| batch.state == BatchState::Running).count();
        if running >= self.settings.batches {
            let message = "Max concurrent batch operations is reached".to_owned();
            return Err(TemporalError::TooManyBatches { message });
        }
        if self.batches.contains_key(&batch.job_id) {
            return Ok(());
        }
        let left = self.selected(&batch.workflows)?;
        let started = Batch {
            workflows: batch.workflows.clone(),
            to: batch.to.clone(),
            started: now,
            total: left.len() as u64,
            left,
            moved: 0,
            failed: 0,
            state: BatchState::Running,
        };
        self.batches.insert(batch.job_id.clone(), started);
        self.writes.push((now, Write::Batch(batch.job_id.clone())));
        Ok(())
    }

    /// Moves as many workflows as the running batches could move until now.
    pub fn move_workflows(&mut self, now: DateTime<Utc>) {
        let mut batches = std::mem::take(&mut self.batches);
        for batch in batches.values_mut().filter(|batch| batch.state == BatchState::Running) {
            let age = (now - batch.started).num_milliseconds().max(0) as u64;
            let due =
                (age * self.settings.moves_per_second / 1000).saturating_sub(batch.moved + batch.failed);
            let due = batch.left.len().min(due as usize);
            let ids: Vec<String> = batch.left.drain(..due).collect();
            for id in ids {
                if self.move_workflow(batch, &id, now) {
                    batch.moved += 1;
                } else {
                    batch.failed += 1;
                }
            }
            // An empty batch takes a moment, too.
            if batch.left.is_empty() && age > 500 {
                batch.state = BatchState::Completed;
            }
        }
        self.batches = batches;
    }

    /// Moves a workflow. One that has ended counts as moved; one whose task queue the version does not poll fails.
    fn move_workflow(&mut self, batch: &Batch, id: &str, now: DateTime<Utc>) -> bool {
        let Some(workflow) = self.workflows.get_mut(id) else { return true };
        if self.immovable.contains(id) {
            return false;
        }
        let deployment = self.deployments.get_mut(&batch.workflows.deployment);
        let Some(deployment) = deployment else { return false };
        let Some(version) = deployment.versions.get_mut(&batch.to) else { return false };
        version.wake(&deployment.routing, &batch.to, now);
        workflow.build = batch.to.clone();
        true
    }

    pub fn batch(&self, job_id: &str) -> Result<&Batch, TemporalError> {
        self.batches.get(job_id).ok_or_else(|| TemporalError::NotFound {
            what: Missing::Batch,
            message: format!("workflow not found for ID: {job_id}"),
        })
    }
}
