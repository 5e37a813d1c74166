//! A set of nodes other than the active one, and the rollout that makes one.

use chrono::{DateTime, Utc};

use super::super::child::{ChildFacts, Conflict};
use super::super::decision::Strategy;
use crate::api::ids::field;
use crate::api::{BuildId, NodeDeploymentStatus, RetiringSet, RolloutHash, SetName, Stage};

/// A set of nodes other than the active one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SetFacts {
    /// Its nodes, by ordinal.
    pub children: Vec<ChildFacts>,
    /// Names of its nodes that belong to something else.
    pub conflicts: Vec<Conflict>,
    /// How many StatefulSets and pods of it are left.
    pub remains: usize,
    /// What the status says of it, if it neither serves nor enters.
    pub retiring: Option<RetiringSet>,
    /// Whether its nodes have other volume claims than what is wanted asks for.
    pub claims_differ: bool,
}

impl SetFacts {
    /// Whether nothing of it is left but, perhaps, its claims.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.children.is_empty() && self.remains == 0
    }
}

/// A rollout that makes a set of nodes, as it was persisted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SetRollout {
    /// How it goes.
    pub strategy: Strategy,
    /// Where it is.
    pub stage: Stage,
    /// The rollout hash that it goes to.
    pub target: RolloutHash,
    /// The build ID that it goes to; none where it is generated.
    pub build_id: Option<BuildId>,
    /// The set that served when it began; none where the status has lost that.
    pub incumbent: Option<SetName>,
    /// The set that is to serve.
    pub entrant: SetName,
    /// The height that the incumbents halt at (HardFork).
    pub halt_height: i64,
    /// When the set that is to serve last left service, where it did.
    pub left_service_at: Option<DateTime<Utc>>,
}

impl SetRollout {
    /// The one that a status tells of, if it does.
    #[must_use]
    pub fn of(status: &NodeDeploymentStatus) -> Option<Self> {
        let rollout = status.rollout.as_ref()?;
        let entrant = rollout.entrant()?;
        // A plan that is lost or cannot be read does not say how it went.
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

    /// What its entrants become if it is given up now: those that served before have the rest of their delay.
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

    /// The set that served when it began, in a sentence: nothing where that is lost.
    #[must_use]
    pub fn incumbent_text(&self) -> &str {
        self.incumbent.as_ref().map_or("", SetName::as_str)
    }

    /// Whether its old nodes are to halt by now.
    #[must_use]
    pub fn is_halting(&self) -> bool {
        self.stage == Stage::Promoting && self.halt_height > 0
    }

    /// Whether its target may still be given up: nothing that cannot be undone has begun.
    #[must_use]
    pub fn is_revocable(&self) -> bool {
        !matches!(self.stage, Stage::Promoting | Stage::Retiring)
    }
}

/// How a person promotes a target, in a sentence. A value that is spent does nothing until it was seen to be gone.
#[must_use]
pub fn how_to_promote(target: impl std::fmt::Display, is_spent: bool) -> String {
    if is_spent {
        return format!(
            "empty spec.forcePromote, whose value was used once already, wait until status.spentForcePromote is gone, then \
             set it to {target}"
        );
    }
    format!("set spec.forcePromote to {target}, as windlass promote does")
}

/// Whether a node has halted at the height of this rollout.
#[must_use]
pub fn has_halted(child: &ChildFacts, rollout: &SetRollout) -> bool {
    rollout.halt_height > 0
        && child.sidecar.as_ref().is_some_and(|s| {
            s.halt_height == rollout.halt_height && s.halt_task.is_some() && s.halted_for == s.halt_task
        })
}
