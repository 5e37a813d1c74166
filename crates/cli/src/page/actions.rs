//! The buttons, and the interface of their implementation.

use async_trait::async_trait;

use super::subject::PageKind;
use crate::verbs::Verb;
use windlass_core::api::{HookState, NodeDeploymentStatus, Stage, TaskType};
use windlass_engine::{Plan, PlanState};
use windlass_kube_port::observed::ObservedFleet;

/// The longest reason, in characters: it goes into an annotation and an event. The form states it too.
pub(super) const MAX_REASON_CHARS: usize = 200;

/// A button: a verb of the command line.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Button {
    /// Pause rollouts.
    Pause,
    /// Resume rollouts.
    Resume,
    /// Move traffic to the new nodes.
    Promote,
    /// Approve a hook that waits for a person.
    Approve,
    /// Stop the rollout where it is.
    Abort,
    /// Roll back to the previous revision.
    Rollback,
    /// Retry a rejected target or a failed hook.
    Retry,
    /// Skip the current task.
    Skip,
    /// Restart every node, in waves.
    Restart,
}

impl Button {
    /// All buttons, in order of display.
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

    /// The verb, as in the command line and in the page's paths.
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

    /// The label.
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

    /// What the button is for.
    #[must_use]
    pub fn purpose(self, kind: PageKind) -> &'static str {
        match self {
            Self::Pause if kind == PageKind::StatefulSets => {
                "Pause the rollout: no further pod is updated until you resume it."
            }
            Self::Abort if kind == PageKind::StatefulSets => {
                "Stop the rollout. Pods keep their revisions, and Windlass does not retry the target by itself."
            }
            Self::Rollback if kind == PageKind::StatefulSets => {
                "Stop the rollout and roll back the updated pods, in waves. The template is not changed."
            }
            Self::Restart if kind == PageKind::StatefulSets => "Restart every pod, in waves.",
            Self::Pause if matches!(kind, PageKind::Sheet(_)) => "Pause the rollouts until you resume them.",
            Self::Promote if matches!(kind, PageKind::Sheet(_)) => "Make the target the current version.",
            Self::Abort if matches!(kind, PageKind::Sheet(_)) => {
                "Stop the rollout. Windlass rejects its target until you retry it or change it. An evacuation only stops."
            }
            Self::Restart if matches!(kind, PageKind::Sheet(_)) => "Restart every pod.",
            Self::Pause => "Pause this fleet's rollouts until you resume them.",
            Self::Resume => "Resume the paused rollouts.",
            Self::Promote => "Move traffic to the new nodes.",
            Self::Approve => "Approve the hook that waits for a person.",
            Self::Abort => {
                "Stop the rollout. Nodes keep their revisions, and Windlass does not retry the target by itself."
            }
            Self::Rollback => "Set the template to the last completed revision.",
            Self::Retry => "Retry a target that failed, was aborted or rolled back, or a failed hook.",
            Self::Skip => "Skip the current task.",
            Self::Restart => "Restart every node, in waves.",
        }
    }

    /// The verb with its flags, as on the command line.
    #[must_use]
    pub fn verb(self, kind: PageKind) -> String {
        match (self, kind) {
            (Self::Rollback, PageKind::StatefulSets) => "abort --rollback".to_owned(),
            _ => self.word().to_owned(),
        }
    }

    /// True if the page has the button for the kind. Pods of a StatefulSetRollout are updated where they are, so nothing is
    /// promoted. The rollback of a sheet's object reads its revisions, which only the command line does.
    #[must_use]
    pub fn is_for(self, kind: PageKind) -> bool {
        match kind {
            PageKind::Fleet => true,
            PageKind::StatefulSets => self != Self::Promote,
            PageKind::Sheet(_) => self != Self::Rollback,
        }
    }

    /// The verb that decides what the button writes; `None` for the rollback to a stored revision.
    #[must_use]
    pub fn decides(self, kind: PageKind) -> Option<Verb> {
        Some(match self {
            Self::Pause => Verb::Pause,
            Self::Resume => Verb::Resume,
            Self::Promote => Verb::Promote { hash: None },
            Self::Approve => Verb::Approve { task: None },
            Self::Abort => Verb::Abort { rollback: false },
            Self::Retry => Verb::Retry,
            Self::Skip => Verb::Skip { task: None },
            Self::Restart => Verb::Restart,
            Self::Rollback if kind == PageKind::StatefulSets => Verb::Abort { rollback: true },
            Self::Rollback => return None,
        })
    }

    /// The button with this verb.
    #[must_use]
    pub fn called(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|button| button.word() == word)
    }

    /// True if the button would have an effect, judging by the object; those are shown first. The others explain why
    /// they have none. `plan` is that of the status, if it can be read.
    #[must_use]
    pub fn suits(self, kind: PageKind, fleet: &ObservedFleet, plan: Option<&Plan>) -> bool {
        let status = &fleet.status;
        let paused = fleet.spec.as_ref().is_ok_and(|spec| spec.paused);
        let is_active = plan.is_some_and(Plan::is_active);
        let hook = |state: HookState| status.hooks.iter().any(|hook| hook.state == state.as_ref());
        match self {
            Self::Pause => !paused,
            Self::Resume => paused,
            Self::Promote => waits_for_promotion(status),
            Self::Approve => hook(HookState::AwaitingApproval),
            Self::Abort => is_active && status.rollout.is_some(),
            Self::Rollback if kind == PageKind::StatefulSets => is_active && status.rollout.is_some(),
            Self::Rollback => !status.last_completed_rollout_hash.is_empty(),
            Self::Retry => {
                let failed = plan.is_some_and(|plan| plan.state == PlanState::Failed);
                status.rejected.is_some() || hook(HookState::Failed) || (failed && status.rollout.is_some())
            }
            Self::Skip => hook(HookState::Failed) || is_active && plan.is_some_and(awaits),
            Self::Restart => true,
        }
    }
}

fn waits_for_promotion(status: &NodeDeploymentStatus) -> bool {
    let waits = |stage| matches!(stage, Stage::AwaitingEntrants | Stage::AwaitingPromotion);
    status.rollout.as_ref().is_some_and(|rollout| !rollout.entrant_set.is_empty() && waits(rollout.stage))
}

/// True if the plan is at a task that may be skipped.
fn awaits(plan: &Plan) -> bool {
    plan.current_task()
        .is_some_and(|task| TaskType::AwaitCaughtUp.is(task) || TaskType::AwaitNodesAtHeight.is(task))
}

/// A click on a button.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Action {
    /// What it is about.
    pub kind: PageKind,
    /// The object's namespace.
    pub namespace: String,
    pub name: String,
    pub button: Button,
    /// The seal of the rehearsal that the user saw: the action fails if it would do something else. Empty before the
    /// first rehearsal.
    pub seal: String,
    /// True to write a field that another program applies.
    pub force: bool,
}

/// The effect of an action, from a dry run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rehearsed {
    /// A short description.
    pub message: String,
    /// True if it would change anything.
    pub changes: bool,
    /// The consequences, a sentence or line each.
    pub then: Vec<String>,
    /// Identifies the effect; the action passes it back.
    pub seal: String,
}

/// Why an action was not carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refused {
    /// The reason.
    pub sentence: String,
    /// The seal with which the action can be forced, if it can.
    pub insist: Option<String>,
}

/// Carries out the buttons' actions.
#[async_trait]
pub trait Actions: Send + Sync {
    /// Describes the effect of an action, with a dry run on the API server.
    async fn rehearse(&self, action: &Action) -> Result<Rehearsed, Refused>;
    /// Carries out an action. Returns a message.
    async fn carry_out(&self, action: &Action, reason: Option<&str>) -> Result<String, Refused>;
}
