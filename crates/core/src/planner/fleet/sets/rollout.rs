//! A set of nodes other than the active one, and the rollout that creates one.

use chrono::{DateTime, Utc};

use super::super::child::{ChildFacts, Conflict};
use super::super::decision::{RolloutTarget, Strategy};
use crate::api::ids::field;
use crate::api::{BuildId, NodeDeploymentStatus, RetiringSet, RolloutHash, SetName, Stage};

/// A set of nodes other than the active one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SetFacts {
    /// Its nodes, by ordinal.
    pub children: Vec<ChildFacts>,
    /// Names of its nodes that are taken by other objects.
    pub conflicts: Vec<Conflict>,
    /// The number of its StatefulSets and pods that still exist.
    pub remains: usize,
    /// Its pods that still run or terminate although their nodes were removed by scaling down.
    pub shutting_down: Vec<String>,
    /// Its entry in the status, if it left service or was abandoned.
    pub retiring: Option<RetiringSet>,
    /// True if its nodes have other volume claims than the desired ones.
    pub claims_differ: bool,
}

impl SetFacts {
    /// True if nothing of it is left but, perhaps, its claims.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.children.is_empty() && self.remains == 0
    }
}

/// A rollout that creates a set of nodes, as it was persisted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SetRollout {
    /// Its strategy.
    pub strategy: Strategy,
    /// Its stage.
    pub stage: Stage,
    /// The rollout hash of its target.
    pub target: RolloutHash,
    /// The build ID of its target; `None` if it is generated.
    pub build_id: Option<BuildId>,
    /// The old set, which was active when it began; `None` if the status has lost it.
    pub incumbent: Option<SetName>,
    /// The new set.
    pub entrant: SetName,
    /// The height at which the old nodes halt (HardFork).
    pub halt_height: i64,
    /// When the new set last left service, if it served before.
    pub left_service_at: Option<DateTime<Utc>>,
}

impl SetRollout {
    /// The target that its nodes were granted.
    #[must_use]
    pub fn rollout_target(&self) -> RolloutTarget {
        RolloutTarget::Revision(self.target.clone())
    }

    /// The rollout in a status, if it is one that creates a set.
    #[must_use]
    pub fn of(status: &NodeDeploymentStatus) -> Option<Self> {
        let rollout = status.rollout.as_ref()?;
        let entrant = rollout.entrant()?;
        // The recipe of the plan counts only if the rollout has none: a plan may be lost or unreadable.
        let of_plan = || status.plan.as_ref().and_then(crate::api::RawPlan::recipe);
        let recipe = Some(rollout.recipe.clone()).filter(|recipe| !recipe.is_empty()).or_else(of_plan);
        let strategy = match (rollout.strategy.as_str(), recipe.as_deref()) {
            ("HardFork", _) => Strategy::HardFork,
            (_, Some("BlueGreenImmediate")) => Strategy::BlueGreenImmediate,
            _ => Strategy::BlueGreen,
        };
        Some(Self {
            strategy,
            stage: rollout.stage,
            target: rollout.target(),
            build_id: rollout.build_id(),
            incumbent: rollout.incumbent(),
            entrant,
            halt_height: rollout.halt_height,
            left_service_at: rollout.entrant_left_service_at,
        })
    }

    /// What its new set becomes if the rollout is abandoned now. A set that served before keeps the rest of its delay.
    #[must_use]
    pub fn given_up(&self, now: DateTime<Utc>) -> RetiringSet {
        RetiringSet {
            set: self.entrant.to_string(),
            hash: self.target.to_string(),
            build_id: field(self.build_id.as_ref()).to_owned(),
            since: self.left_service_at.unwrap_or(now),
            unpromoted: true,
            served: self.left_service_at.is_some(),
            halt_height: 0,
        }
    }

    /// The name of the old set for a message; empty if it is lost.
    #[must_use]
    pub fn incumbent_text(&self) -> &str {
        self.incumbent.as_ref().map_or("", SetName::as_str)
    }

    /// True if its old nodes have to halt now.
    #[must_use]
    pub fn is_halting(&self) -> bool {
        self.stage == Stage::Promoting && self.halt_height > 0
    }

    /// True if it may still be abandoned: nothing that cannot be undone has begun.
    #[must_use]
    pub fn is_revocable(&self) -> bool {
        !matches!(self.stage, Stage::Promoting | Stage::Retiring)
    }
}

/// How a user promotes a target, in a sentence. A value that was already used has no effect until the status no longer
/// contains it.
#[must_use]
pub fn how_to_promote(target: impl std::fmt::Display, is_spent: bool) -> String {
    if is_spent {
        return format!(
            "clear spec.forcePromote, whose value has already been used, wait until status.spentForcePromote is \
             empty, then set it to {target}"
        );
    }
    format!("set spec.forcePromote to {target}, or run windlass promote")
}

/// True if a node has halted at the height of this rollout.
#[must_use]
pub fn has_halted(child: &ChildFacts, rollout: &SetRollout) -> bool {
    rollout.halt_height > 0
        && child.sidecar.as_ref().is_some_and(|s| {
            s.halt_height == rollout.halt_height && s.halt_task.is_some() && s.halted_for == s.halt_task
        })
}
