//! Converts Temporal's messages to the port's values.

use chrono::{DateTime, Utc};
use temporalio_protos::temporal::api::{
    deployment::v1::{
        RoutingConfig, VersionDrainageInfo, WorkerDeploymentInfo, WorkerDeploymentOptions,
        WorkerDeploymentVersion, WorkerDeploymentVersionInfo,
        worker_deployment_info::WorkerDeploymentVersionSummary,
    },
    enums::v1::{
        RoutingConfigUpdateState, TaskQueueType, VersionDrainageStatus, WorkerDeploymentVersionStatus,
        WorkerVersioningMode,
    },
    taskqueue::v1::PollerInfo,
    workflowservice::v1::describe_worker_deployment_version_response::VersionTaskQueue,
};
use windlass_temporal::port::{
    BuildId, ConflictToken, DeploymentName, DescribedDeployment, Drainage, DrainageStatus, Identity, Percent,
    Pollers, Ramp, RampTarget, Routing, TaskQueue, TaskQueueKind, VersionStatus, VersionSummary,
};

/// A message's time; `None` if it is invalid.
macro_rules! time {
    ($stamp:expr) => {
        $stamp.as_ref().and_then(|stamp| time(stamp.seconds, stamp.nanos))
    };
}

fn time(seconds: i64, nanos: i32) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(seconds, u32::try_from(nanos).ok()?)
}

fn identity(name: &str) -> Option<Identity> {
    (!name.is_empty()).then(|| Identity::new(name))
}

fn build(version: Option<&WorkerDeploymentVersion>) -> Option<BuildId> {
    version.map(|version| version.build_id.as_str()).filter(|id| !id.is_empty()).map(BuildId::new)
}

pub(crate) fn deployment(info: &WorkerDeploymentInfo, conflict_token: Vec<u8>) -> DescribedDeployment {
    DescribedDeployment {
        conflict_token: ConflictToken::new(conflict_token),
        routing: info.routing_config.as_ref().map(routing).unwrap_or_default(),
        is_settled: info.routing_config_update_state() != RoutingConfigUpdateState::InProgress,
        manager: identity(&info.manager_identity),
        last_modifier: identity(&info.last_modifier_identity),
        versions: info.version_summaries.iter().filter_map(summary).collect(),
    }
}

fn routing(config: &RoutingConfig) -> Routing {
    let percent = Percent(config.ramping_version_percentage);
    let ramp = match build(config.ramping_deployment_version.as_ref()) {
        Some(id) => Some(Ramp { to: RampTarget::Version(id), percent }),
        None if percent.0 > 0.0 => Some(Ramp { to: RampTarget::Unversioned, percent }),
        None => None,
    };
    Routing { current: build(config.current_deployment_version.as_ref()), ramp }
}

/// A summary without a build ID is not of a version.
fn summary(of: &WorkerDeploymentVersionSummary) -> Option<VersionSummary> {
    Some(VersionSummary {
        build: build(of.deployment_version.as_ref())?,
        status: status(of.status()),
        created: time!(of.create_time),
        first_activated: time!(of.first_activation_time),
        last_current: time!(of.last_current_time),
        last_deactivated: time!(of.last_deactivation_time),
        drainage: of.drainage_info.as_ref().and_then(drainage),
    })
}

pub(crate) fn version(info: &WorkerDeploymentVersionInfo) -> Option<VersionSummary> {
    Some(VersionSummary {
        build: build(info.deployment_version.as_ref())?,
        status: status(info.status()),
        created: time!(info.create_time),
        first_activated: time!(info.first_activation_time),
        last_current: time!(info.last_current_time),
        last_deactivated: time!(info.last_deactivation_time),
        drainage: info.drainage_info.as_ref().and_then(drainage),
    })
}

fn status(status: WorkerDeploymentVersionStatus) -> VersionStatus {
    match status {
        WorkerDeploymentVersionStatus::Created => VersionStatus::Created,
        WorkerDeploymentVersionStatus::Inactive => VersionStatus::Inactive,
        WorkerDeploymentVersionStatus::Current => VersionStatus::Current,
        WorkerDeploymentVersionStatus::Ramping => VersionStatus::Ramping,
        WorkerDeploymentVersionStatus::Draining => VersionStatus::Draining,
        WorkerDeploymentVersionStatus::Drained => VersionStatus::Drained,
        WorkerDeploymentVersionStatus::Unspecified => VersionStatus::Unspecified,
    }
}

fn drainage(info: &VersionDrainageInfo) -> Option<Drainage> {
    let status = match info.status() {
        VersionDrainageStatus::Draining => DrainageStatus::Draining,
        VersionDrainageStatus::Drained => DrainageStatus::Drained,
        VersionDrainageStatus::Unspecified => return None,
    };
    Some(Drainage { status, changed: time!(info.last_changed_time), checked: time!(info.last_checked_time) })
}

/// A task queue; `None` if its kind is unknown.
pub(crate) fn task_queue(queue: &VersionTaskQueue) -> Option<TaskQueue> {
    let kind = match queue.r#type() {
        TaskQueueType::Workflow => TaskQueueKind::Workflow,
        TaskQueueType::Activity => TaskQueueKind::Activity,
        TaskQueueType::Nexus => TaskQueueKind::Nexus,
        TaskQueueType::Unspecified => return None,
    };
    Some(TaskQueue { name: queue.name.clone(), kind })
}

pub(crate) fn queue_type(kind: TaskQueueKind) -> TaskQueueType {
    match kind {
        TaskQueueKind::Workflow => TaskQueueType::Workflow,
        TaskQueueKind::Activity => TaskQueueType::Activity,
        TaskQueueKind::Nexus => TaskQueueType::Nexus,
    }
}

pub(crate) fn pollers(all: &[PollerInfo], deployment: &DeploymentName, build: &BuildId) -> Pollers {
    let mut pollers = Pollers::default();
    for poller in all {
        match poller.deployment_options.as_ref().filter(|options| is_versioned(options)) {
            None => pollers.unversioned += 1,
            Some(options)
                if options.deployment_name == deployment.as_str() && options.build_id == build.as_str() =>
            {
                pollers.count += 1;
                pollers.last_seen = pollers.last_seen.max(time!(poller.last_access_time));
            }
            Some(_) => {}
        }
    }
    pollers
}

fn is_versioned(options: &WorkerDeploymentOptions) -> bool {
    options.worker_versioning_mode() == WorkerVersioningMode::Versioned
}
