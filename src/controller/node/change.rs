//! What a reconcile changes in a node's status.

use crate::api::HistoryEntry;
use crate::controller::Next;
use crate::controller::events::Event;
use crate::engine::Plan;

/// What the status becomes, before what was observed is brought up to date in it.
pub(super) struct StatusChange {
    /// The plan as it now stands.
    pub(super) plan: Option<Plan>,
    /// The plans that ended.
    pub(super) entries: Vec<HistoryEntry>,
    /// Why the spec cannot be carried out, in a sentence.
    pub(super) invalid: Option<String>,
    /// Whether no more has happened than that the plan waits.
    pub(super) is_progress: bool,
    /// To be recorded once the status says it.
    pub(super) events: Vec<Event>,
    /// The same of the node's fleet.
    pub(super) of_fleet: Option<Event>,
    /// When to reconcile again.
    pub(super) next: Next,
}

impl StatusChange {
    pub(super) fn of(plan: Option<Plan>) -> Self {
        Self {
            plan,
            entries: Vec::new(),
            invalid: None,
            is_progress: false,
            events: Vec::new(),
            of_fleet: None,
            next: Next::on_event(),
        }
    }
}
