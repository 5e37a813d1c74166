//! The reasons of a WorkerDeployment's conditions and events: a closed set. A test checks that
//! `docs/reference/temporal.md` explains every one.

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

/// The reason for a condition's status, or for a task's wait.
#[allow(missing_docs, reason = "docs/reference/temporal.md explains each")]
#[derive(
    AsRefStr,
    Clone,
    Copy,
    Debug,
    Deserialize,
    Display,
    EnumString,
    Eq,
    IntoStaticStr,
    PartialEq,
    Serialize,
    VariantArray,
)]
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
    Evacuating,
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
    EvacuationFailed,
    MissingTaskQueues,
    VersionLimitReached,
    OwnedByOther,
    RateLimited,
    TemporalUnreachable,
    CredentialsInvalid,
    ConnectionSecretNotFound,
    ConnectionNotFound,
    ConnectionNotAllowed,
    InvalidSpec,
    // Only in events.
    RolloutStarted,
    RolloutSuperseded,
    RolloutStalled,
    ApplyFailed,
    ApprovalRequested,
    RampRestored,
    RampCleared,
    RoutingUnconfirmed,
    VersionScaledDown,
    VersionRevived,
    VersionDeleted,
    EvacuationStarted,
    EvacuationComplete,
    EvacuationStalled,
    EvacuationRefused,
    EvacuationAborted,
    EvacuationSuperseded,
    StaleForcePromote,
    SkipRefused,
}

impl Reason {
    /// True if the reason persists until a person acts.
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
                | Self::EvacuationFailed
                | Self::MissingTaskQueues
                | Self::VersionLimitReached
                | Self::OwnedByOther
                | Self::CredentialsInvalid
                | Self::ConnectionSecretNotFound
                | Self::ConnectionNotFound
                | Self::ConnectionNotAllowed
                | Self::InvalidSpec
        )
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::Reason;

    #[test]
    fn documentation_explains_every_reason() {
        let page = include_str!("../../../../docs/reference/temporal.md");
        for word in Reason::VARIANTS {
            assert!(page.contains(word.as_ref()), "docs/reference/temporal.md does not name {word}");
        }
    }
}
