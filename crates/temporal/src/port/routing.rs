//! Where tasks go, and how that is changed.

use super::names::{BuildId, ConflictToken, Identity};
use super::version::VersionSummary;

/// A deployment as Temporal describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedDeployment {
    /// What a write that is decided on this has to bring along.
    pub conflict_token: ConflictToken,
    /// Where tasks go.
    pub routing: Routing,
    /// Whether all task queues go by that routing (`routing_config_update_state` is not `IN_PROGRESS`).
    pub is_settled: bool,
    /// Who alone may change the routing; nobody: anyone.
    pub manager: Option<Identity>,
    /// Who changed something last.
    pub last_modifier: Option<Identity>,
    /// Its versions.
    pub versions: Vec<VersionSummary>,
}

/// Where tasks go that are not pinned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routing {
    /// The current version; none: workers without a version.
    pub current: Option<BuildId>,
    /// What takes a part from it.
    pub ramp: Option<Ramp>,
}

/// A part of the tasks that goes elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Ramp {
    /// Where to.
    pub to: RampTarget,
    /// How much.
    pub percent: Percent,
}

/// Where a ramp leads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RampTarget {
    /// To a version.
    Version(BuildId),
    /// To workers without a version: only a hand sets that.
    Unversioned,
}

/// A part of the tasks, from 0 to 100. A hand may have set one that is no whole number.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Percent(pub f32);

/// One change of the routing.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutingWrite {
    /// This part of the tasks goes to this version.
    Ramp {
        /// The version.
        to: BuildId,
        /// How much, 1 to 100.
        percent: Percent,
    },
    /// No part goes elsewhere (`build_id` empty, `percentage` 0).
    ClearRamp,
    /// This version is the current one; a ramp to it ends thereby. None (`build_id` empty): workers without a version.
    Current(Option<BuildId>),
}

/// What guards a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Guard {
    /// The token of the answer that the write was decided on.
    pub token: ConflictToken,
    /// Who writes.
    pub identity: Identity,
}
