//! The words that a user meets, each a closed set: the reasons of conditions and of events, and what `unconverged` says
//! beside the kubelet's own words. `docs/operations.md` explains every one of them, which a test holds it to.

use Reason::*;

use super::condition_types::{
    NODE_UPDATE_IN_PROGRESS, READY, RECONCILING, ROLLOUT_IN_PROGRESS, SIDECAR_READY, STALLED, Truth,
    UP_TO_DATE,
};

crate::engine::words! {
    /// Why a condition has its value, why an event was sent, why a node has not converged. `docs/operations.md` explains each.
    #[allow(missing_docs, reason = "docs/operations.md explains each")]
    pub enum Reason {
        AllNodesReady,
        NotStarted,
        NodesInitializing,
        NodesNotReady,
        NodesFailed,
        Applied,
        Applying,
        PartitionHeld,
        ReadyToPromote,
        Promoting,
        Stalled,
        RolledBack,
        Aborted,
        PlanFailed,
        InvalidSpec,
        HookFailed,
        TemplateChanged,
        RestartRequested,
        RetryRequested,
        Superseded,
        ChildDrift,
        OperatorDrift,
        Paused,
        RolloutComplete,
        RolloutFailed,
        RolloutAborted,
        NoProgress,
        Progressing,
        Settled,
        NodeReady,
        PodNotReady,
        Suspended,
        UpdateStarted,
        UpdateComplete,
        UpdateFailed,
        UpdateSuperseded,
        Ready,
        NotReady,
        NotConfigured,
        Unreachable,
        RolloutStarted,
        RolloutSuperseded,
        RolloutStalled,
        Promoted,
        StaleForcePromote,
        NodeCreated,
        NodeDeleted,
        SkipRefused,
        ApprovalRequested,
        PlanStarted,
        PlanComplete,
        TaskFailed,
        PauseRequested,
        ResumeRequested,
        AbortRequested,
        SkipRequested,
        ApproveRequested,
        PromoteRequested,
        RollbackRequested,
        Missing,
        Terminating,
        SidecarUnreachable,
        Unschedulable,
        WaitingForWave,
    }
}

/// A condition's type, its status, and the reasons that it may have then.
pub type Reasons = (&'static str, Truth, &'static [Reason]);

/// The conditions of a fleet.
pub const OF_FLEETS: &[Reasons] = &[
    (READY, Truth::True, &[AllNodesReady]),
    (READY, Truth::False, &[NotStarted, NodesInitializing, NodesNotReady, NodesFailed]),
    (UP_TO_DATE, Truth::True, &[Applied]),
    (UP_TO_DATE, Truth::Unknown, &[Applying, PartitionHeld, ReadyToPromote, Promoting, NotStarted]),
    (UP_TO_DATE, Truth::False, &[Stalled, RolledBack, Aborted, PlanFailed, InvalidSpec, HookFailed]),
    (
        ROLLOUT_IN_PROGRESS,
        Truth::True,
        &[
            TemplateChanged,
            RestartRequested,
            RetryRequested,
            Superseded,
            ChildDrift,
            OperatorDrift,
            Stalled,
            Paused,
            PartitionHeld,
        ],
    ),
    (
        ROLLOUT_IN_PROGRESS,
        Truth::False,
        &[NotStarted, RolloutComplete, RolloutFailed, RolloutAborted, RolledBack],
    ),
    (STALLED, Truth::True, &[NoProgress, RolledBack, Aborted, PlanFailed, InvalidSpec, HookFailed]),
    (STALLED, Truth::False, &[Progressing]),
    (RECONCILING, Truth::True, &[Progressing]),
    (RECONCILING, Truth::False, &[Settled]),
];

/// The conditions of a node.
pub const OF_NODES: &[Reasons] = &[
    (READY, Truth::True, &[NodeReady]),
    (READY, Truth::False, &[NotStarted, NodesInitializing, PodNotReady, NodesFailed, Suspended]),
    (NODE_UPDATE_IN_PROGRESS, Truth::True, &[UpdateStarted]),
    (NODE_UPDATE_IN_PROGRESS, Truth::False, &[NotStarted, UpdateComplete, UpdateFailed, UpdateSuperseded]),
    (SIDECAR_READY, Truth::True, &[Ready]),
    (SIDECAR_READY, Truth::False, &[NotReady, NotConfigured]),
    (SIDECAR_READY, Truth::Unknown, &[Unreachable]),
    (STALLED, Truth::True, &[NoProgress, PlanFailed, InvalidSpec, HookFailed]),
    (STALLED, Truth::False, &[Progressing]),
    (RECONCILING, Truth::True, &[Progressing]),
    (RECONCILING, Truth::False, &[Settled]),
];

/// The reasons of the operator's events about fleets.
pub const EVENTS_OF_FLEETS: &[Reason] = &[
    RolloutStarted,
    RolloutComplete,
    RolloutSuperseded,
    RolloutStalled,
    RolloutFailed,
    RolloutAborted,
    RolledBack,
    Promoted,
    StaleForcePromote,
    NodeCreated,
    NodeDeleted,
    InvalidSpec,
    SkipRefused,
    HookFailed,
    ApprovalRequested,
];

/// The reasons of the operator's events about nodes.
pub const EVENTS_OF_NODES: &[Reason] =
    &[PlanStarted, PlanComplete, PlanFailed, TaskFailed, InvalidSpec, SkipRefused];

/// The reasons of the events that `windlass VERB` sends.
pub const EVENTS_OF_VERBS: &[Reason] = &[
    PauseRequested,
    ResumeRequested,
    RestartRequested,
    AbortRequested,
    RetryRequested,
    SkipRequested,
    ApproveRequested,
    PromoteRequested,
    RollbackRequested,
];

/// The reasons in `unconverged` that are not the kubelet's.
pub const UNCONVERGED: &[Reason] =
    &[NotReady, Missing, Terminating, SidecarUnreachable, InvalidSpec, Unschedulable, WaitingForWave];

/// Whether a condition of a fleet or a node may say this.
#[must_use]
pub fn may_say(type_: &str, truth: Truth, reason: &str) -> bool {
    let allows = |reasons: &Reasons| {
        (reasons.0, reasons.1) == (type_, truth) && reasons.2.iter().any(|known| *reason == *known)
    };
    OF_FLEETS.iter().chain(OF_NODES).any(allows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/operations.md");

    /// The rows of the table under a heading, each as its cells. Where the first cell is empty the one above counts.
    fn table(heading: &str) -> Vec<Vec<String>> {
        let section = PAGE.split("\n## ").find(|s| s.lines().next() == Some(heading)).unwrap();
        let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
        let mut rows: Vec<Vec<String>> = Vec::new();
        for line in lines {
            let mut cells: Vec<String> =
                line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect();
            if cells[0].is_empty() {
                cells[0].clone_from(&rows.last().unwrap()[0]);
            }
            assert!(cells.len() > 2 || !cells[1].is_empty(), "{line}");
            rows.push(cells);
        }
        rows
    }

    fn words(cell: &str) -> impl Iterator<Item = String> + '_ {
        cell.split(',').map(|word| word.trim().to_owned())
    }

    fn conditions_on_page(heading: &str) -> Vec<(String, String)> {
        let rows = table(heading);
        rows.iter().flat_map(|row| words(&row[1]).map(|reason| (row[0].clone(), reason))).collect()
    }

    fn in_code(reasons: &[Reasons]) -> BTreeSet<(String, String)> {
        let each = reasons.iter().flat_map(|(type_, truth, reasons)| {
            reasons.iter().map(move |reason| (format!("{type_}={truth}"), reason.to_string()))
        });
        each.collect()
    }

    #[test]
    fn the_page_for_operators_explains_every_reason_of_every_condition_once_and_no_other() {
        for (heading, reasons) in [("Conditions of a fleet", OF_FLEETS), ("Conditions of a node", OF_NODES)] {
            let on_page = conditions_on_page(heading);
            let unique: BTreeSet<_> = on_page.iter().cloned().collect();
            assert_eq!(unique, in_code(reasons), "{heading}");
            assert_eq!(unique.len(), on_page.len(), "{heading}: one is there twice: {on_page:?}");
        }
    }

    #[test]
    fn the_page_for_operators_explains_every_event_and_no_other() {
        let rows = table("Events");
        let about = |objects: &[&str]| -> BTreeSet<String> {
            let rows = rows.iter().filter(|row| objects.contains(&row[1].as_str()));
            rows.flat_map(|row| words(&row[0])).collect()
        };
        let set = |events: &[Reason]| -> BTreeSet<String> { events.iter().map(Reason::to_string).collect() };
        assert_eq!(about(&["fleet", "both"]), set(EVENTS_OF_FLEETS));
        assert_eq!(about(&["node", "both"]), set(EVENTS_OF_NODES));
        assert_eq!(about(&["what was asked"]), set(EVENTS_OF_VERBS));
    }

    #[test]
    fn the_page_for_operators_explains_every_word_of_windlass_in_unconverged_and_no_other() {
        let on_page: BTreeSet<String> =
            table("Reasons in `unconverged`").into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(on_page, UNCONVERGED.iter().map(Reason::to_string).collect());
    }
}
