//! A version as Temporal describes it.

use chrono::{DateTime, Utc};

use super::names::BuildId;

/// The summary of a version in a deployment's description.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionSummary {
    /// Its build ID.
    pub build: BuildId,
    /// Its status.
    pub status: VersionStatus,
    /// When Temporal created the record.
    pub created: Option<DateTime<Utc>>,
    /// When it first became current or ramping; `None`: never, whatever its status is.
    pub first_activated: Option<DateTime<Utc>>,
    /// When it last became current; `None`: never.
    pub last_current: Option<DateTime<Utc>>,
    /// When it last stopped being current or ramping, if it has.
    pub last_deactivated: Option<DateTime<Utc>>,
    /// Its drainage, if Temporal reports one.
    pub drainage: Option<Drainage>,
}

/// The status of a version (`WorkerDeploymentVersionStatus`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionStatus {
    /// Absent, or a value that this program does not know.
    Unspecified,
    /// Created by an API call: no worker of it ever polled.
    Created,
    /// Its workers polled, but it was never current or ramping.
    Inactive,
    /// It gets the tasks that are not pinned to another version.
    Current,
    /// It gets a share of those tasks.
    Ramping,
    /// It gets no new workflows; pinned workflows may still run on it.
    Draining,
    /// It gets no new workflows, and no pinned workflow ran on it at Temporal's last check.
    Drained,
}

/// Whether pinned workflows still run on a version (`VersionDrainageInfo`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Drainage {
    /// The status at the last check.
    pub status: DrainageStatus,
    /// When the status last changed.
    pub changed: Option<DateTime<Utc>>,
    /// When Temporal last checked.
    pub checked: Option<DateTime<Utc>>,
}

/// The drainage status of a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DrainageStatus {
    /// Pinned workflows may run.
    Draining,
    /// No pinned workflow runs.
    Drained,
}

/// A version with every task queue that its workers have polled.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedVersion {
    /// The same summary that the deployment's description has.
    pub summary: VersionSummary,
    /// The task queues, without those of an unknown kind.
    pub task_queues: Vec<TaskQueue>,
}

/// A task queue of a version.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TaskQueue {
    /// Its name.
    pub name: String,
    /// The kind of its tasks.
    pub kind: TaskQueueKind,
}

/// The kind of a task queue.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum TaskQueueKind {
    /// Workflow tasks.
    Workflow,
    /// Activity tasks.
    Activity,
    /// Nexus tasks.
    Nexus,
}

/// The pollers of a version on a task queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pollers {
    /// Pollers of this version that Temporal remembers.
    pub count: u32,
    /// Pollers without a version: their `deployment_options` are absent or unversioned.
    pub unversioned: u32,
    /// When a poller of this version last polled.
    pub last_seen: Option<DateTime<Utc>>,
}

/// The running workflows of a version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RunningWorkflows {
    /// Pinned workflows: they end on the build that they started on.
    pub pinned: u64,
    /// Auto-upgrade workflows: they move to the current version with their next task.
    pub auto_upgrade: u64,
}
