//! The possible decisions about a fleet: that a rollout starts or ends, its target, its strategy and its cause.

use strum::{AsRefStr, Display, EnumString, IntoStaticStr};

use crate::api::{Reason, Rollout, RolloutHash, Stage};

/// Which revision a plan moves nodes to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RolloutTarget {
    /// Every node to this rollout hash.
    Revision(RolloutHash),
    /// Every node to the revision in its own spec: drift is repaired.
    Own,
}

/// How a rollout is carried out: the name of its recipe.
#[derive(AsRefStr, Clone, Copy, Debug, Default, Display, EnumString, Eq, IntoStaticStr, PartialEq)]
pub enum Strategy {
    /// The nodes of the active set are updated in place.
    #[default]
    InPlace,
    /// A new set is created next to the active one, and takes over.
    BlueGreen,
    /// The active set is removed, then a new one is created.
    BlueGreenImmediate,
    /// A new set is created, the active one halts at a height, then the new one takes over.
    HardFork,
    /// The claims of the active set's nodes grow. No pod is replaced, except one whose file system grows only when it is
    /// started.
    GrowClaims,
}

impl Strategy {
    /// The recipe's name.
    #[must_use]
    pub fn recipe(self) -> &'static str {
        self.into()
    }

    /// The strategy of a recipe, if it is a built-in one.
    #[must_use]
    pub fn of_recipe(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// The strategy's name in the API.
    #[must_use]
    pub fn api_name(self) -> &'static str {
        match self {
            Self::BlueGreenImmediate => "BlueGreen",
            Self::GrowClaims => "InPlace",
            other => other.recipe(),
        }
    }

    /// True if it creates a set of nodes.
    #[must_use]
    pub fn creates_set(self) -> bool {
        !matches!(self, Self::InPlace | Self::GrowClaims)
    }

    /// The first stage of a rollout with this strategy.
    #[must_use]
    pub fn first_stage(self) -> Stage {
        match self {
            Self::InPlace | Self::GrowClaims => Stage::Updating,
            Self::BlueGreen | Self::HardFork => Stage::CreatingEntrants,
            Self::BlueGreenImmediate => Stage::Promoting,
        }
    }
}

/// Why a rollout was started: a reason of the condition RolloutInProgress.
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumString, Eq, Ord, PartialEq, PartialOrd)]
pub enum Cause {
    /// The template changed.
    TemplateChanged,
    /// This version of Windlass renders another template.
    OperatorDrift,
    /// A node or its StatefulSet was changed by somebody else.
    ChildDrift,
    /// The volume claims in the template have grown.
    ClaimsGrown,
    /// The data of ConfigMaps or Secrets changed that the template names.
    ConfigChanged,
    /// A restart was requested.
    RestartRequested,
    /// A rejected target, or a repair, is retried.
    RetryRequested,
    /// A new target replaced another one in the middle of a rollout.
    Superseded,
    /// The nodes of a new fleet are created, and a hook follows.
    FirstCreation,
    /// A higher number of replicas adds nodes, and a hook follows.
    ScaledUp,
}

impl Cause {
    /// True if the rollout takes down no node: it waits for no window and no other fleet.
    #[must_use]
    pub fn only_creates(self) -> bool {
        matches!(self, Self::FirstCreation | Self::ScaledUp)
    }
}

/// True if a stored rollout takes down no node.
pub(super) fn only_creates(rollout: &Rollout) -> bool {
    rollout.cause.parse().is_ok_and(Cause::only_creates)
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::TemplateChanged => Self::TemplateChanged,
            Cause::OperatorDrift => Self::OperatorDrift,
            Cause::ChildDrift => Self::ChildDrift,
            Cause::ClaimsGrown => Self::ClaimsGrown,
            Cause::ConfigChanged => Self::ConfigChanged,
            Cause::RestartRequested => Self::RestartRequested,
            Cause::RetryRequested => Self::RetryRequested,
            Cause::Superseded => Self::Superseded,
            Cause::FirstCreation => Self::FirstCreation,
            Cause::ScaledUp => Self::ScaledUp,
        }
    }
}

/// A rollout that is to start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Start {
    /// Its target.
    pub rollout_target: RolloutTarget,
    /// The rollout hash that its plan names.
    pub target: RolloutHash,
    /// Its cause.
    pub cause: Cause,
    /// Its strategy.
    pub strategy: Strategy,
}

/// What has to be done with a fleet's plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FleetDecision {
    /// Continue with the existing plan, if there is one.
    Keep,
    /// Start a rollout.
    Start(Start),
    /// End the active plan as Superseded and start another in the same write.
    Supersede(Start),
    /// End the active plan as Aborted, and reject its target.
    Abort,
    /// End the active plan as RolledBack, reject its target and start the rollback in the same write.
    RollBack(Start),
    /// End the active plan as Superseded: no nodes are desired any more.
    ScaledToZero,
    /// End the active plan as Superseded and abandon its new set: the active set is what is desired.
    CancelToCurrent,
    /// End the active plan as RolledBack, abandon its new set, and reject its target. If the new set already receives
    /// traffic, the traffic is moved back first.
    CancelAfterFailure,
    /// End the active plan as Complete, since traffic was switched, and start another in the same write.
    CompleteAndStart(Start),
    /// Continue a promotion whose plan has failed, with another plan.
    Resume(Start),
}
