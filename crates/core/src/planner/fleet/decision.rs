//! What may be decided about a fleet: that a rollout starts or ends, where it goes, how, and why.

use crate::api::{RolloutHash, Stage};

/// Which revision a plan moves nodes to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RolloutTarget {
    /// Every node to this rollout hash.
    Revision(RolloutHash),
    /// Every node to the revision that it holds: what drifted is put right.
    Own,
}

/// How a rollout goes: its recipe.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Strategy {
    /// The nodes of the active set are updated where they are.
    #[default]
    InPlace,
    /// A set is made beside the active one, and takes over.
    BlueGreen,
    /// The active set goes, then another is made.
    BlueGreenImmediate,
    /// A set is made, the active one halts at a height, then the new one takes over.
    HardFork,
}

impl Strategy {
    /// The recipe's name.
    #[must_use]
    pub fn recipe(self) -> &'static str {
        match self {
            Self::InPlace => "InPlace",
            Self::BlueGreen => "BlueGreen",
            Self::BlueGreenImmediate => "BlueGreenImmediate",
            Self::HardFork => "HardFork",
        }
    }

    /// The way of a recipe, if it is one of Windlass's own.
    #[must_use]
    pub fn of_recipe(name: &str) -> Option<Self> {
        let ways = [Self::InPlace, Self::BlueGreen, Self::BlueGreenImmediate, Self::HardFork];
        ways.into_iter().find(|strategy| strategy.recipe() == name)
    }

    /// The strategy's name.
    #[must_use]
    pub fn api_name(self) -> &'static str {
        match self {
            Self::BlueGreenImmediate => "BlueGreen",
            other => other.recipe(),
        }
    }

    /// Whether it makes a set of nodes.
    #[must_use]
    pub fn makes_set(self) -> bool {
        self != Self::InPlace
    }

    /// Where a rollout begins that goes this way.
    #[must_use]
    pub fn first_stage(self) -> Stage {
        match self {
            Self::InPlace => Stage::Updating,
            Self::BlueGreen | Self::HardFork => Stage::CreatingEntrants,
            Self::BlueGreenImmediate => Stage::Promoting,
        }
    }
}

crate::engine::words! {
    /// Why a rollout was started: a reason of the condition RolloutInProgress.
    pub enum Cause {
        /// The template changed.
        TemplateChanged,
        /// This version of Windlass renders another template.
        OperatorDrift,
        /// A node or its StatefulSet was changed by hand.
        ChildDrift,
        /// A restart was asked for.
        RestartRequested,
        /// A rejected target is tried again.
        RetryRequested,
        /// A new target took the place of another in the middle of a rollout.
        Superseded,
    }
}

/// A rollout to be started.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Start {
    /// Where it goes.
    pub rollout_target: RolloutTarget,
    /// The rollout hash that its plan names.
    pub target: RolloutHash,
    /// Why.
    pub cause: Cause,
    /// How.
    pub strategy: Strategy,
}

/// What is to be done about a fleet's plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FleetDecision {
    /// Go on with the plan that there is, if there is one.
    Keep,
    /// Start a rollout.
    Start(Start),
    /// End the active plan as Superseded and start another in the same write.
    Supersede(Start),
    /// End the active plan as Aborted, and reject its target.
    Abort,
    /// End the active plan as RolledBack, reject its target and start the way back in the same write.
    RollBack(Start),
    /// End the active plan as Superseded: no node is wanted any more.
    ScaledToZero,
    /// End the active plan as Superseded, with its entrants: what serves is what is wanted.
    Withdraw,
    /// End the active plan as RolledBack, with its entrants, and reject its target. Where they carry the traffic already, it
    /// goes back first.
    TakeBack,
    /// End the active plan as Complete, since traffic has moved, and start another in the same write.
    CompleteAndStart(Start),
    /// Go on with a promotion whose plan has failed, by another plan.
    Resume(Start),
}
