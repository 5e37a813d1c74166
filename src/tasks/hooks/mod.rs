//! The tasks of hooks, one for each action. They are part of the plans of fleets with hooks, and of custom recipes,
//! where `params: {hook: NAME}` names the fleet's hook.

mod approval;
mod deleted_jobs;
mod http;
mod job;
mod job_problem;
mod manifest;
mod query;
mod turn;
mod wait;

#[cfg(test)]
mod tests;

pub use approval::AwaitApproval;
pub use deleted_jobs::DeletedJobs;
pub use http::CallHttp;
pub use job::{LOOK as LOOK_AT_JOB, RunJob, Unfit, check_all, delete_jobs, waits_for_job};
pub use manifest::{JobOwner, job_name};
pub use query::CheckQuery;
pub use wait::Wait;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::api::{Hook, HookPoint, NodeDeploymentSpec};
use crate::hooks::{HookRules, Values};
use crate::probe::hooks::{HookOwner, HookProber};
use windlass_kube_port::{Cluster, Key, Kind};

/// What hook tasks find in their environment, in plans of a fleet and of its nodes.
#[derive(Clone)]
pub struct HookScope {
    /// The hooks that are listed in the spec now.
    pub hooks: HookList,
    /// The object whose plan it is.
    pub owner: JobOwner,
    /// The values that are known at this point. Tasks add the IDs of the plan and of the task.
    pub values: Values,
    /// The operator's configuration of hooks.
    pub rules: Arc<HookRules>,
    /// The port to the cluster.
    pub cluster: Arc<dyn Cluster>,
    /// Sends requests in the background, outside of reconciles.
    pub prober: Arc<HookProber>,
    /// The values of `windlass.dev/approve` on the object and on its fleet.
    pub approved: Vec<String>,
    /// The hook points that `skip` and `hold` apply to.
    pub about: About,
    /// Why hooks are skipped, if so.
    pub skip: Option<String>,
    /// Why no hook may start now, if so.
    pub hold: Option<String>,
    /// What a hook of any action waits for, if so.
    pub awaits: Option<Awaited>,
}

/// What a hook waits for before it starts or goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Awaited {
    /// In a sentence.
    pub sentence: String,
    /// True if the hook's time-out runs.
    pub is_timed: bool,
}

/// The hooks that are listed in the spec now.
#[derive(Clone, Debug, Default)]
pub enum HookList {
    /// No hooks: there is no fleet.
    #[default]
    Unknown,
    /// The hooks of a fleet's spec, which its nodes share.
    Fleet(Arc<NodeDeploymentSpec>),
    /// These hooks.
    These(Arc<[Hook]>),
}

impl HookList {
    /// All hooks in the list.
    #[must_use]
    pub fn all(&self) -> &[Hook] {
        match self {
            Self::Unknown => &[],
            Self::Fleet(spec) => &spec.update_strategy.hooks,
            Self::These(hooks) => hooks,
        }
    }

    /// The path of the field that lists the hooks.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::These(_) => "spec.hooks",
            Self::Unknown | Self::Fleet(_) => "updateStrategy.hooks",
        }
    }
}

/// The hook points that the `skip` and `hold` of a scope apply to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum About {
    /// All hook points.
    #[default]
    EveryPoint,
    /// Only this point, which the plan was at when the scope was created.
    Point(Option<HookPoint>),
}

impl HookScope {
    /// The hook with this name.
    #[must_use]
    pub fn hook(&self, name: &str) -> Option<&Hook> {
        self.hooks.all().iter().find(|hook| hook.name == name)
    }

    /// The object on whose behalf peers are queried.
    #[must_use]
    pub fn hook_owner(&self) -> HookOwner {
        let key = |name: &str| Key::new(&self.owner.namespace, name);
        match (self.owner.kind, &self.values.pod) {
            (Kind::StatefulNode, _) => HookOwner::Node(key(&self.owner.name)),
            // A pod has no object of its own: its plan is in the status of the StatefulSetRollout.
            (Kind::StatefulSetRollout, Some(pod)) => HookOwner::Node(key(pod)),
            _ => HookOwner::Fleet(key(&self.owner.name)),
        }
    }
}

/// The params of a hook's task.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HookParams {
    /// The hook's name.
    pub hook: String,
    /// The hook's point, in plans that have the hook from the fleet's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<HookPoint>,
    /// The number of nodes that the hook follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i32>,
    /// The step that the hook follows, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}
