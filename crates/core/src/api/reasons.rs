//! The reasons that a user sees, as closed sets: those of conditions, of events, and in `unconverged`, which has the
//! kubelet's reasons as well. `docs/reference/conditions.md` explains every one of them; a test checks that.

use strum::{AsRefStr, Display, EnumString, IntoStaticStr};

use super::condition_types::{
    DISRUPTION_BUDGET_READY, HELD, NODE_UPDATE_IN_PROGRESS, READY, RECONCILING, ROLLOUT_IN_PROGRESS,
    SIDECAR_READY, STALLED, TOPOLOGY_KNOWN, Truth, UP_TO_DATE,
};

/// The reason for a condition's status, for an event, or for a node that has not converged.
/// `docs/reference/conditions.md` explains each.
#[allow(missing_docs, reason = "docs/reference/conditions.md explains each")]
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumString, Eq, IntoStaticStr, PartialEq)]
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
    ClaimsGrown,
    ConfigChanged,
    RestartRequested,
    RetryRequested,
    Superseded,
    FirstCreation,
    ScaledUp,
    ChildDrift,
    OperatorDrift,
    Paused,
    Waiting,
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
    RequestIgnored,
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
    ClaimsGrowing,
    Held,
    StrategyOverwritten,
    StatefulSetMissing,
    NameTaken,
    BudgetsOverlap,
    LabelMissing,
    Rejected,
    ReferencesUnread,
}

/// A condition type, a status, and the reasons that a condition may have with this status.
pub type Reasons = (&'static str, Truth, &'static [Reason]);

/// The conditions of a fleet.
pub const OF_FLEETS: &[Reasons] = &[
    (READY, Truth::True, &[Reason::AllNodesReady]),
    (
        READY,
        Truth::False,
        &[Reason::NotStarted, Reason::NodesInitializing, Reason::NodesNotReady, Reason::NodesFailed],
    ),
    (UP_TO_DATE, Truth::True, &[Reason::Applied]),
    (
        UP_TO_DATE,
        Truth::Unknown,
        &[
            Reason::Applying,
            Reason::PartitionHeld,
            Reason::ReadyToPromote,
            Reason::Promoting,
            Reason::NotStarted,
        ],
    ),
    (
        UP_TO_DATE,
        Truth::False,
        &[
            Reason::Stalled,
            Reason::RolledBack,
            Reason::Aborted,
            Reason::PlanFailed,
            Reason::InvalidSpec,
            Reason::HookFailed,
        ],
    ),
    (
        ROLLOUT_IN_PROGRESS,
        Truth::True,
        &[
            Reason::TemplateChanged,
            Reason::ClaimsGrown,
            Reason::ConfigChanged,
            Reason::RestartRequested,
            Reason::RetryRequested,
            Reason::Superseded,
            Reason::FirstCreation,
            Reason::ScaledUp,
            Reason::ChildDrift,
            Reason::OperatorDrift,
            Reason::Stalled,
            Reason::Paused,
            Reason::Waiting,
            Reason::PartitionHeld,
        ],
    ),
    (
        ROLLOUT_IN_PROGRESS,
        Truth::False,
        &[
            Reason::NotStarted,
            Reason::RolloutComplete,
            Reason::RolloutFailed,
            Reason::RolloutAborted,
            Reason::RolledBack,
        ],
    ),
    (
        STALLED,
        Truth::True,
        &[
            Reason::NoProgress,
            Reason::RolledBack,
            Reason::Aborted,
            Reason::PlanFailed,
            Reason::InvalidSpec,
            Reason::HookFailed,
        ],
    ),
    (STALLED, Truth::False, &[Reason::Progressing]),
    (RECONCILING, Truth::True, &[Reason::Progressing]),
    (RECONCILING, Truth::False, &[Reason::Settled]),
    (DISRUPTION_BUDGET_READY, Truth::False, &[Reason::NameTaken, Reason::BudgetsOverlap, Reason::Rejected]),
    (TOPOLOGY_KNOWN, Truth::False, &[Reason::LabelMissing]),
];

/// The conditions that only a StatefulSetRollout has. Its other conditions are those of a fleet.
pub const OF_ROLLOUTS: &[Reasons] = &[
    (HELD, Truth::True, &[Reason::Held]),
    (HELD, Truth::False, &[Reason::StrategyOverwritten, Reason::StatefulSetMissing, Reason::InvalidSpec]),
    (HELD, Truth::Unknown, &[Reason::Applying]),
];

/// The conditions of a node.
pub const OF_NODES: &[Reasons] = &[
    (READY, Truth::True, &[Reason::NodeReady]),
    (
        READY,
        Truth::False,
        &[
            Reason::NotStarted,
            Reason::NodesInitializing,
            Reason::PodNotReady,
            Reason::NodesFailed,
            Reason::Suspended,
        ],
    ),
    (NODE_UPDATE_IN_PROGRESS, Truth::True, &[Reason::UpdateStarted]),
    (
        NODE_UPDATE_IN_PROGRESS,
        Truth::False,
        &[Reason::NotStarted, Reason::UpdateComplete, Reason::UpdateFailed, Reason::UpdateSuperseded],
    ),
    (SIDECAR_READY, Truth::True, &[Reason::Ready]),
    (SIDECAR_READY, Truth::False, &[Reason::NotReady, Reason::NotConfigured]),
    (SIDECAR_READY, Truth::Unknown, &[Reason::Unreachable]),
    (
        STALLED,
        Truth::True,
        &[Reason::NoProgress, Reason::PlanFailed, Reason::InvalidSpec, Reason::HookFailed],
    ),
    (STALLED, Truth::False, &[Reason::Progressing]),
    (RECONCILING, Truth::True, &[Reason::Progressing]),
    (RECONCILING, Truth::False, &[Reason::Settled]),
];

/// The reasons of the operator's events about fleets.
pub const EVENTS_OF_FLEETS: &[Reason] = &[
    Reason::RolloutStarted,
    Reason::RolloutComplete,
    Reason::RolloutSuperseded,
    Reason::RolloutStalled,
    Reason::RolloutFailed,
    Reason::RolloutAborted,
    Reason::RolledBack,
    Reason::Promoted,
    Reason::StaleForcePromote,
    Reason::RequestIgnored,
    Reason::NodeCreated,
    Reason::NodeDeleted,
    Reason::InvalidSpec,
    Reason::SkipRefused,
    Reason::HookFailed,
    Reason::ApprovalRequested,
    Reason::NameTaken,
    Reason::BudgetsOverlap,
    Reason::Rejected,
    Reason::ReferencesUnread,
];

/// The reasons of the operator's events that only StatefulSetRollouts have. They also have those of fleets.
pub const EVENTS_OF_ROLLOUTS: &[Reason] = &[Reason::StrategyOverwritten];

/// The reasons of the operator's events about nodes.
pub const EVENTS_OF_NODES: &[Reason] = &[
    Reason::PlanStarted,
    Reason::PlanComplete,
    Reason::PlanFailed,
    Reason::TaskFailed,
    Reason::InvalidSpec,
    Reason::SkipRefused,
    Reason::RequestIgnored,
];

/// The reasons of the events that `windlass VERB` records.
pub const EVENTS_OF_VERBS: &[Reason] = &[
    Reason::PauseRequested,
    Reason::ResumeRequested,
    Reason::RestartRequested,
    Reason::AbortRequested,
    Reason::RetryRequested,
    Reason::SkipRequested,
    Reason::ApproveRequested,
    Reason::PromoteRequested,
    Reason::RollbackRequested,
];

/// The reasons in `unconverged` that do not come from the kubelet.
pub const UNCONVERGED: &[Reason] = &[
    Reason::NotReady,
    Reason::Missing,
    Reason::Terminating,
    Reason::SidecarUnreachable,
    Reason::InvalidSpec,
    Reason::Unschedulable,
    Reason::WaitingForWave,
    Reason::ClaimsGrowing,
];

/// True if a condition of a fleet, a StatefulSetRollout or a node may have this status and reason.
#[must_use]
pub fn is_known_reason(type_: &str, truth: Truth, reason: &str) -> bool {
    let allows = |reasons: &Reasons| {
        (reasons.0, reasons.1) == (type_, truth) && reasons.2.iter().any(|known| reason == known.as_ref())
    };
    OF_FLEETS.iter().chain(OF_ROLLOUTS).chain(OF_NODES).any(allows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/reference/conditions.md");

    /// The rows of the table under a heading, each as its cells. An empty first cell repeats the one above.
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
    fn docs_list_every_condition_reason_once() {
        for (heading, reasons) in [
            ("Conditions of a fleet", OF_FLEETS),
            ("Conditions of a StatefulSetRollout", OF_ROLLOUTS),
            ("Conditions of a node", OF_NODES),
        ] {
            let on_page = conditions_on_page(heading);
            let unique: BTreeSet<_> = on_page.iter().cloned().collect();
            assert_eq!(unique, in_code(reasons), "{heading}");
            assert_eq!(unique.len(), on_page.len(), "{heading}: one is there twice: {on_page:?}");
        }
    }

    #[test]
    fn docs_list_exactly_the_emitted_events() {
        let rows = table("Events");
        let about = |objects: &[&str]| -> BTreeSet<String> {
            let rows = rows.iter().filter(|row| objects.contains(&row[1].as_str()));
            rows.flat_map(|row| words(&row[0])).collect()
        };
        let set = |events: &[Reason]| -> BTreeSet<String> { events.iter().map(Reason::to_string).collect() };
        assert_eq!(about(&["fleet", "both"]), set(EVENTS_OF_FLEETS));
        assert_eq!(about(&["StatefulSetRollout"]), set(EVENTS_OF_ROLLOUTS));
        assert_eq!(about(&["node", "both"]), set(EVENTS_OF_NODES));
        assert_eq!(about(&["what was asked"]), set(EVENTS_OF_VERBS));
    }

    #[test]
    fn docs_list_every_unconverged_reason() {
        let on_page: BTreeSet<String> =
            table("Reasons in `unconverged`").into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(on_page, UNCONVERGED.iter().map(Reason::to_string).collect());
    }
}
