//! The reasons of a WorkerDeployment's conditions and events: a closed set. A test checks that `docs/temporal.md`
//! explains every one.

use serde::{Deserialize, Serialize};

/// Why a condition has its value, or what a task waits for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[allow(missing_docs, reason = "docs/temporal.md explains each")]
pub enum Reason {
    // Conditions that are met, or not yet.
    WorkersReady,
    WorkersNotReady,
    NotStarted,
    Applied,
    Applying,
    Ramping,
    Promoting,
    ReadyToPromote,
    WaitingForPollers,
    GateRunning,
    Paused,
    Progressing,
    Settled,
    Terminating,
    // Why a rollout began.
    TemplateChanged,
    RetryRequested,
    Superseded,
    ChildDrift,
    // How a rollout ended.
    RolloutComplete,
    RolloutFailed,
    RolloutAborted,
    RolledBack,
    Aborted,
    PlanFailed,
    // What blocks a rollout.
    NoProgress,
    Stalled,
    GateFailed,
    HookFailed,
    MissingTaskQueues,
    VersionLimitReached,
    OwnedByOther,
    RateLimited,
    TemporalUnreachable,
    CredentialsInvalid,
    ConnectionSecretNotFound,
    InvalidSpec,
}

impl Reason {
    /// The reason as it is written into conditions and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WorkersReady => "WorkersReady",
            Self::WorkersNotReady => "WorkersNotReady",
            Self::NotStarted => "NotStarted",
            Self::Applied => "Applied",
            Self::Applying => "Applying",
            Self::Ramping => "Ramping",
            Self::Promoting => "Promoting",
            Self::ReadyToPromote => "ReadyToPromote",
            Self::WaitingForPollers => "WaitingForPollers",
            Self::GateRunning => "GateRunning",
            Self::Paused => "Paused",
            Self::Progressing => "Progressing",
            Self::Settled => "Settled",
            Self::Terminating => "Terminating",
            Self::TemplateChanged => "TemplateChanged",
            Self::RetryRequested => "RetryRequested",
            Self::Superseded => "Superseded",
            Self::ChildDrift => "ChildDrift",
            Self::RolloutComplete => "RolloutComplete",
            Self::RolloutFailed => "RolloutFailed",
            Self::RolloutAborted => "RolloutAborted",
            Self::RolledBack => "RolledBack",
            Self::Aborted => "Aborted",
            Self::PlanFailed => "PlanFailed",
            Self::NoProgress => "NoProgress",
            Self::Stalled => "Stalled",
            Self::GateFailed => "GateFailed",
            Self::HookFailed => "HookFailed",
            Self::MissingTaskQueues => "MissingTaskQueues",
            Self::VersionLimitReached => "VersionLimitReached",
            Self::OwnedByOther => "OwnedByOther",
            Self::RateLimited => "RateLimited",
            Self::TemporalUnreachable => "TemporalUnreachable",
            Self::CredentialsInvalid => "CredentialsInvalid",
            Self::ConnectionSecretNotFound => "ConnectionSecretNotFound",
            Self::InvalidSpec => "InvalidSpec",
        }
    }

    /// True if the reason does not pass by itself: a person has to act.
    #[must_use]
    pub fn needs_somebody(self) -> bool {
        matches!(
            self,
            Self::NoProgress
                | Self::RolledBack
                | Self::Aborted
                | Self::PlanFailed
                | Self::GateFailed
                | Self::HookFailed
                | Self::MissingTaskQueues
                | Self::VersionLimitReached
                | Self::OwnedByOther
                | Self::CredentialsInvalid
                | Self::ConnectionSecretNotFound
                | Self::InvalidSpec
        )
    }
}

/// The reasons of the events that the operator sends about a WorkerDeployment.
pub const EVENTS: &[&str] = &[
    "RolloutStarted",
    "RolloutComplete",
    "RolloutSuperseded",
    "RolloutStalled",
    "RolloutFailed",
    "ApplyFailed",
    "RolloutAborted",
    "RolledBack",
    "GateFailed",
    "HookFailed",
    "ApprovalRequested",
    "RampRestored",
    "RampCleared",
    "VersionScaledDown",
    "VersionRevived",
    "VersionDeleted",
    "OwnedByOther",
    "VersionLimitReached",
    "StaleForcePromote",
    "SkipRefused",
    "InvalidSpec",
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_explains_every_word() {
        let page = include_str!("../../../../docs/temporal.md");
        let source = include_str!("reasons.rs");
        let reasons = source.lines().filter_map(|line| line.trim().strip_prefix("Self::")?.split('"').nth(1));
        let words: Vec<&str> = reasons.chain(super::EVENTS.iter().copied()).collect();
        assert!(words.len() > 40, "{words:?}");
        for word in words {
            assert!(page.contains(word), "docs/temporal.md does not name {word}");
        }
    }
}
