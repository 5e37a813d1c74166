//! The buttons, and who carries them out.

use async_trait::async_trait;

use crate::api::{NodeDeploymentStatus, Stage};
use crate::cluster::observed::ObservedFleet;
use crate::engine::{Plan, PlanState};

/// The longest reason: it is kept in an annotation, and told in an event. The form says so, too.
pub(super) const MOST_OF_A_REASON: usize = 200;

/// A button: a verb of the command line.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Button {
    /// Begin nothing more.
    Pause,
    /// Go on.
    Resume,
    /// Move traffic to the new nodes.
    Promote,
    /// Say that a hook that waits for a person may go on.
    Approve,
    /// Stop the rollout where it is.
    Abort,
    /// Go back to what ran before.
    Rollback,
    /// Try again what failed or was given up.
    Retry,
    /// Go on without the task that is waited for.
    Skip,
    /// Restart every node, in waves.
    Restart,
}

impl Button {
    /// All of them, in the order in which they stand.
    pub const ALL: [Self; 9] = [
        Self::Pause,
        Self::Resume,
        Self::Promote,
        Self::Approve,
        Self::Abort,
        Self::Rollback,
        Self::Retry,
        Self::Skip,
        Self::Restart,
    ];

    /// The verb's word, as it is typed and as it stands in an address.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Promote => "promote",
            Self::Approve => "approve",
            Self::Abort => "abort",
            Self::Rollback => "rollback",
            Self::Retry => "retry",
            Self::Skip => "skip",
            Self::Restart => "restart",
        }
    }

    /// What stands on it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Promote => "Promote",
            Self::Approve => "Approve",
            Self::Abort => "Abort",
            Self::Rollback => "Roll back",
            Self::Retry => "Retry",
            Self::Skip => "Skip",
            Self::Restart => "Restart",
        }
    }

    /// What it is for.
    #[must_use]
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Pause => "Begin nothing more of this fleet's rollouts until it is resumed.",
            Self::Resume => "Go on with what was paused.",
            Self::Promote => "Move traffic to the nodes that wait to take over.",
            Self::Approve => "Let the hook go on that waits for a person.",
            Self::Abort => {
                "Stop the rollout. Nodes stay at what they run, and the target is not tried again by itself."
            }
            Self::Rollback => "Set the template to the revision that last completed.",
            Self::Retry => "Try again what failed, was aborted or rolled back.",
            Self::Skip => "Go on without the task that is waited for.",
            Self::Restart => "Restart every node, in waves.",
        }
    }

    /// The verb of this word.
    #[must_use]
    pub fn called(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|button| button.word() == word)
    }

    /// Whether it is offered first: it does something, as far as the object tells. The others are there all the same, and
    /// say why they do nothing. `plan`: that of the status, where it can be read.
    #[must_use]
    pub fn suits(self, fleet: &ObservedFleet, plan: Option<&Plan>) -> bool {
        let status = &fleet.status;
        let paused = fleet.spec.as_ref().is_ok_and(|spec| spec.paused);
        let is_active = plan.is_some_and(Plan::is_active);
        let hook = |state: &str| status.hooks.iter().any(|hook| hook.state == state);
        match self {
            Self::Pause => !paused,
            Self::Resume => paused,
            Self::Promote => waits_for_promotion(status),
            Self::Approve => hook("AwaitingApproval"),
            Self::Abort => is_active && status.rollout.is_some(),
            Self::Rollback => !status.last_completed_rollout_hash.is_empty(),
            Self::Retry => {
                let failed = plan.is_some_and(|plan| plan.state == PlanState::Failed);
                status.rejected.is_some() || hook("Failed") || (failed && status.rollout.is_some())
            }
            Self::Skip => hook("Failed") || is_active && plan.is_some_and(awaits),
            Self::Restart => true,
        }
    }
}

fn waits_for_promotion(status: &NodeDeploymentStatus) -> bool {
    let waits = |stage| matches!(stage, Stage::AwaitingEntrants | Stage::AwaitingPromotion);
    status.rollout.as_ref().is_some_and(|rollout| !rollout.entrant_set.is_empty() && waits(rollout.stage))
}

/// Whether the plan is at a task that may be skipped.
fn awaits(plan: &Plan) -> bool {
    plan.current_task()
        .is_some_and(|task| matches!(task.type_.as_str(), "await-caught-up" | "await-nodes-at-height"))
}

/// What a person asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Deed {
    /// The fleet's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What is to be done.
    pub button: Button,
    /// What they looked at when they asked: nothing else is done. Empty where they have not looked yet.
    pub seal: String,
    /// Whether a field is written that another program applies from elsewhere.
    pub force: bool,
}

/// What a deed would do, as it was asked in a dry run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rehearsed {
    /// What is said of it, in a few words.
    pub said: String,
    /// Whether it would change anything.
    pub changes: bool,
    /// What it comes to, a sentence or a line each.
    pub then: Vec<String>,
    /// What it would do is this: to be handed back with the deed.
    pub seal: String,
}

/// Why a deed is not done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refused {
    /// Why.
    pub sentence: String,
    /// Where it is done if that is insisted on: what it would do, to be handed back with the deed.
    pub insist: Option<String>,
}

/// Who carries the buttons out.
#[async_trait]
pub trait Hands: Send + Sync {
    /// Says what a deed would do, without doing it: the API server is asked in a dry run.
    async fn rehearse(&self, deed: &Deed) -> Result<Rehearsed, Refused>;
    /// Does it, and says what was done.
    async fn carry_out(&self, deed: &Deed, reason: Option<&str>) -> Result<String, Refused>;
}
