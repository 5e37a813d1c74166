//! The PodDisruptionBudget of a fleet: the number that evictions must leave available, and what keeps the fleet from
//! having one. Nothing else depends on it. Pure.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use kube::core::{Selector, SelectorExt};

use crate::api::conditions::{self, DISRUPTION_BUDGET_READY, Truth};
use crate::api::{DisruptionBudget, NodeDeploymentSpec, NodeDeploymentStatus, Reason};
use crate::observed::ObservedBudget;

/// How to go without a budget.
const REMEDY: &str = "set disruptionBudget to None";

/// `minAvailable` of the fleet's budget; `None` if it should have none. A fleet of one node has none: it would block
/// every drain of the machine. `existing`: the nodes that exist. Those that leave still count, or evictions could take
/// more of the others meanwhile.
///
/// An integer, because a percentage and `maxUnavailable` count the pods that the controllers of existing pods desire.
/// Each node is a StatefulSet of its own: while a pod is missing, its StatefulSet is not counted, and another pod may
/// be evicted.
#[must_use]
pub fn min_available(spec: &NodeDeploymentSpec, existing: usize) -> Option<i32> {
    let nodes = spec.replicas.max(i32::try_from(existing).unwrap_or(i32::MAX));
    let is_wanted = spec.disruption_budget == DisruptionBudget::Managed && nodes > 1;
    is_wanted.then(|| (nodes - spec.max_unavailable()).max(0))
}

/// What keeps a fleet from having its budget.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BudgetProblem {
    /// The reason of the condition.
    pub reason: Reason,
    /// The message of the condition.
    pub message: String,
}

impl BudgetProblem {
    /// The name belongs to another object. `whose`: the words that follow the object's name.
    #[must_use]
    pub fn name_taken(name: &str, whose: &str) -> Self {
        let message =
            format!("PodDisruptionBudget {name} {whose}; Windlass does not touch it: delete it, or {REMEDY}");
        Self { reason: Reason::NameTaken, message }
    }

    /// The API server does not store the budget.
    #[must_use]
    pub fn rejected(why: &str) -> Self {
        let message = format!("{why}; Windlass retries. To go without a PodDisruptionBudget, {REMEDY}");
        Self { reason: Reason::Rejected, message }
    }

    /// The first of these budgets that selects one of the pods with these labels. The API server rejects every eviction
    /// of a pod that two budgets select.
    #[must_use]
    pub fn overlap<'a>(
        others: impl IntoIterator<Item = &'a ObservedBudget>,
        pods: &[BTreeMap<String, String>],
    ) -> Option<Self> {
        let other = others.into_iter().find(|other| {
            let selector = selector(other);
            selector.is_some_and(|selector| pods.iter().any(|pod| selector.matches(pod)))
        })?;
        let other = &other.meta.name;
        let message = format!(
            "PodDisruptionBudget {other} selects pods of this fleet, so Windlass keeps no budget of its own, and only \
             {other} limits evictions. To keep {other}, {REMEDY}; otherwise delete {other}",
        );
        Some(Self { reason: Reason::BudgetsOverlap, message })
    }
}

/// What a budget selects. An empty selector selects every pod, an absent one selects none.
fn selector(budget: &ObservedBudget) -> Option<Selector> {
    budget.selector.clone().and_then(|selector| Selector::try_from(selector).ok())
}

/// Updates the condition, which a fleet has only while there is a problem.
pub fn report(
    status: &mut NodeDeploymentStatus,
    found: Result<(), &BudgetProblem>,
    generation: i64,
    now: DateTime<Utc>,
) {
    let conditions = &mut status.conditions;
    match found {
        Ok(()) => conditions.retain(|condition| condition.type_ != DISRUPTION_BUDGET_READY),
        Err(BudgetProblem { reason, message }) => {
            let (type_, truth) = (DISRUPTION_BUDGET_READY, Truth::False);
            conditions::set(conditions, type_, truth, reason, message, generation, now);
        }
    }
}
