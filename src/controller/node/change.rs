//! The changes that a reconcile makes to a node's status.

use crate::api::HistoryEntry;
use crate::controller::Next;
use crate::controller::events::Event;
use crate::engine::Plan;

/// Changes to the status, before the observed state is refreshed in it.
pub(super) struct StatusChange {
    /// The plan as it is now.
    pub(super) plan: Option<Plan>,
    /// History entries of the plans that ended.
    pub(super) entries: Vec<HistoryEntry>,
    /// Why the spec cannot be carried out, in one sentence.
    pub(super) invalid: Option<String>,
    /// True if the plan only waits, so that the write may be delayed.
    pub(super) is_progress: bool,
    /// Events about the node, recorded after the status is written.
    pub(super) events: Vec<Event>,
    /// An event about the node's fleet, recorded after the status is written.
    pub(super) of_fleet: Option<Event>,
    /// When to requeue.
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
