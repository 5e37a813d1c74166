//! The routing of tasks, and its changes.

use super::names::{BuildId, ConflictToken, Identity};
use super::version::VersionSummary;

/// A deployment as Temporal describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedDeployment {
    /// The token for a write that is based on this response.
    pub conflict_token: ConflictToken,
    /// The version that receives the tasks.
    pub routing: Routing,
    /// True if all task queues follow that routing (`routing_config_update_state` is not `IN_PROGRESS`).
    pub is_settled: bool,
    /// The only identity that may change the routing; `None`: any may.
    pub manager: Option<Identity>,
    /// The identity of the last change.
    pub last_modifier: Option<Identity>,
    /// Its versions.
    pub versions: Vec<VersionSummary>,
}

/// The version that receives the unpinned tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routing {
    /// The current version; `None`: workers without a version.
    pub current: Option<BuildId>,
    /// The version that gets a share of the tasks, if any.
    pub ramp: Option<Ramp>,
}

/// A share of the tasks that goes to another version than the current one.
#[derive(Clone, Debug, PartialEq)]
pub struct Ramp {
    /// The version that gets the share.
    pub to: RampTarget,
    /// The share.
    pub percent: Percent,
}

/// The target of a ramp.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RampTarget {
    /// A version.
    Version(BuildId),
    /// Workers without a version; only people set that.
    Unversioned,
}

/// A share of the tasks, from 0 to 100. One that a person set may be fractional.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Percent(pub f32);

/// One change of the routing.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutingWrite {
    /// Sends this share of the tasks to this version.
    Ramp {
        /// The version.
        to: BuildId,
        /// The share, 1 to 100.
        percent: Percent,
    },
    /// Ends the ramp (`build_id` empty, `percentage` 0).
    ClearRamp,
    /// Makes this version the current one, which ends a ramp to it. `None` (`build_id` empty): workers without a
    /// version.
    Current(Option<BuildId>),
}

/// The preconditions of a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Guard {
    /// The token of the response that the write is based on.
    pub token: ConflictToken,
    /// The identity of the writer.
    pub identity: Identity,
}
