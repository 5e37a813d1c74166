//! A version as Temporal describes it.

use chrono::{DateTime, Utc};

use super::names::BuildId;

/// What a deployment says of one of its versions.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionSummary {
    /// Which.
    pub build: BuildId,
    /// How it stands.
    pub status: VersionStatus,
    /// When Temporal first heard of it.
    pub created: Option<DateTime<Utc>>,
    /// When it first was current or ramping. None: it never was, whatever its status says by now.
    pub first_activated: Option<DateTime<Utc>>,
    /// When it last became current. None: it never was.
    pub last_current: Option<DateTime<Utc>>,
    /// When it last ceased to be current or ramping, if it has.
    pub last_deactivated: Option<DateTime<Utc>>,
    /// Whether pinned workflows still run on it, if Temporal says.
    pub drainage: Option<Drainage>,
}

/// How a version stands (`WorkerDeploymentVersionStatus`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionStatus {
    /// Temporal says nothing, or what this program does not know.
    Unspecified,
    /// Made by a person's call: no worker of it ever polled.
    Created,
    /// Its workers polled, and it was never current or ramping.
    Inactive,
    /// It takes what is not pinned elsewhere.
    Current,
    /// It takes a part of that.
    Ramping,
    /// It takes nothing new, and pinned workflows may still run on it.
    Draining,
    /// It takes nothing new, and no pinned workflow ran on it when Temporal last looked.
    Drained,
}

/// Whether pinned workflows still run on a version (`VersionDrainageInfo`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Drainage {
    /// Whether they do.
    pub status: DrainageStatus,
    /// Since when that is so.
    pub changed: Option<DateTime<Utc>>,
    /// When Temporal last looked.
    pub checked: Option<DateTime<Utc>>,
}

/// Whether pinned workflows still run on a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DrainageStatus {
    /// They may.
    Draining,
    /// None does.
    Drained,
}

/// A version, and the task queues that its workers ever polled.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedVersion {
    /// What the deployment says of it, too.
    pub summary: VersionSummary,
    /// The task queues, without the kinds that Windlass does not know.
    pub task_queues: Vec<TaskQueue>,
}

/// A task queue of a version.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TaskQueue {
    /// Its name.
    pub name: String,
    /// What kind of tasks it holds.
    pub kind: TaskQueueKind,
}

/// What kind of tasks a task queue holds.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum TaskQueueKind {
    /// Tasks of workflows.
    Workflow,
    /// Activities.
    Activity,
    /// Nexus operations.
    Nexus,
}

/// The pollers of a version on a task queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pollers {
    /// How many of this version Temporal remembers.
    pub count: u32,
    /// How many of workers without a version: those whose `deployment_options` are absent or unversioned.
    pub unversioned: u32,
    /// When one of this version last asked.
    pub last_seen: Option<DateTime<Utc>>,
}

/// How many workflows run on a version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RunningWorkflows {
    /// Those that end on the build that they began on.
    pub pinned: u64,
    /// Those that move to the current version with their next task.
    pub auto_upgrade: u64,
}
