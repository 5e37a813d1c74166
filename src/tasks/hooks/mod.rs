//! What hooks do: a task for each action. They stand in plans whose fleet has hooks, and in recipes of one's own, where
//! `params: {hook: NAME}` says which hook of the fleet it is.

mod approval;
mod http;
mod job;
mod manifest;
mod query;
mod trouble;
mod turn;
mod wait;

#[cfg(test)]
mod tests;

pub use approval::AwaitApproval;
pub use http::CallHttp;
pub use job::{RunJob, Unfit, check_all, delete_jobs};
pub use manifest::{JobOwner, job_name};
pub use query::CheckQuery;
pub use wait::Wait;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::api::{Hook, HookPoint, NodeDeploymentSpec};
use crate::asking::hooks::{HookAskers, HookOwner};
use crate::cluster::{Cluster, Key, Kind};
use crate::hooks::{HookRules, Values};

/// What the tasks of hooks find in their environment, in plans of a fleet and of its nodes.
#[derive(Clone)]
pub struct HookScope {
    /// The hooks that are listed now.
    pub hooks: HookList,
    /// Whose plan it is.
    pub owner: JobOwner,
    /// What is known of the values at this point. The IDs of plan and task are added from those.
    pub values: Values,
    /// What the operator was told of hooks when it was started.
    pub rules: Arc<HookRules>,
    /// The port to the cluster.
    pub cluster: Arc<dyn Cluster>,
    /// Those who ask peers beside the reconciles.
    pub askers: Arc<HookAskers>,
    /// What `windlass.dev/approve` says, on the object and on its fleet.
    pub approved: Vec<String>,
    /// The point that `skip` and `hold` are about.
    pub about: About,
    /// Why a hook need not be carried out here and now.
    pub skip: Option<String>,
    /// Why nothing may be begun now.
    pub hold: Option<String>,
}

/// The hooks that are listed now.
#[derive(Clone, Debug, Default)]
pub enum HookList {
    /// None: there is no fleet.
    #[default]
    Nobodys,
    /// Those of a fleet's spec, which its nodes share.
    Fleet(Arc<NodeDeploymentSpec>),
    /// These.
    These(Arc<[Hook]>),
}

impl HookList {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Hook] {
        match self {
            Self::Nobodys => &[],
            Self::Fleet(spec) => &spec.update_strategy.hooks,
            Self::These(hooks) => hooks,
        }
    }

    /// Where they are listed.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::These(_) => "spec.hooks",
            Self::Nobodys | Self::Fleet(_) => "updateStrategy.hooks",
        }
    }
}

/// Which tasks a scope speaks of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum About {
    /// Those at every point.
    #[default]
    EveryPoint,
    /// Those at this one, at which the plan was when the scope was made.
    Point(Option<HookPoint>),
}

impl HookScope {
    /// The hook of a name.
    #[must_use]
    pub fn hook(&self, name: &str) -> Option<&Hook> {
        self.hooks.all().iter().find(|hook| hook.name == name)
    }

    /// For whom peers are asked.
    #[must_use]
    pub fn asks_for(&self) -> HookOwner {
        let key = Key::new(&self.owner.namespace, &self.owner.name);
        if self.owner.kind == Kind::StatefulNode { HookOwner::Node(key) } else { HookOwner::Fleet(key) }
    }
}

/// The params of a hook's task.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HookParams {
    /// The hook's name.
    pub hook: String,
    /// Where it stands, in plans that have it from the fleet's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<HookPoint>,
    /// After which step, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}
