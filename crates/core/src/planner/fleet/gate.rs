//! What keeps a rollout from taking down nodes that serve: a target that is refused, objects that its template names and that do
//! not exist, its windows, the fleets that come first, and how many may roll at the same time. Pure.

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use strum::{AsRefStr, EnumString};

use super::child::ChildFacts;
use super::create::finds_no_machine;
use super::decision::{Cause, RolloutTarget};
use super::facts::FleetFacts;
use super::hooks::is_step_done;
use super::progress;
use super::sets::SetRollout;
use super::status::rollout_target_of;
use super::wave::{Clause, next_grants};
use crate::api::{NodeDeploymentStatus, RawPlan, RolloutHash, Stage};
use crate::planner::window::Opening;

/// What keeps a rollout from updating nodes, as its status records it.
#[derive(AsRefStr, Clone, Copy, Debug, EnumString, Eq, PartialEq)]
pub enum WaitingFor {
    /// Objects that its template names and that do not exist.
    Objects,
    /// A window of its spec.
    Window,
    /// The fleets in `after`.
    Predecessors,
    /// Other fleets, by `--max-rollouts`.
    Turn,
    /// A person, so that others may go ahead: it is paused, or waits for an approval, a promotion, the partition, or the
    /// correction of a refused spec.
    Person,
}

/// Whether a rollout may take down nodes that serve.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Gate {
    /// It may.
    #[default]
    Open,
    /// Objects that the new template names do not exist; which ones, in a sentence.
    Missing(String),
    /// The API server has not answered whether they exist; a sentence.
    Unanswered(String),
    /// Another target is desired, and refused; a sentence.
    Refused(String),
    /// No window is open.
    Window(Opening),
    /// Fleets in `after` are not up to date; which ones, in a sentence.
    Predecessors(String),
    /// So many others roll that it has to wait; which one is ahead, in a sentence.
    Turn(String),
    /// It waits for a person, and lets others go ahead. What that is, the rollout says itself.
    Person,
    /// It may once its status says so: another fleet could count on a status that says that it waits.
    Beginning,
}

impl Gate {
    /// What is waited for, in a sentence.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        match self {
            Self::Open | Self::Person => None,
            Self::Missing(sentence) => Some(format!("waiting for missing objects: {sentence}")),
            Self::Window(opening) => Some(opening.sentence()),
            Self::Unanswered(sentence)
            | Self::Refused(sentence)
            | Self::Predecessors(sentence)
            | Self::Turn(sentence) => Some(sentence.clone()),
            Self::Beginning => Some("waiting for the rollout to begin".to_owned()),
        }
    }

    /// True if a rollout has to wait.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self != Self::Open
    }

    /// True if it waits for objects that do not exist, as far as is known.
    #[must_use]
    pub fn lacks_objects(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::Unanswered(_))
    }

    /// When its window opens, if it waits for that.
    #[must_use]
    pub fn opens_at(&self) -> Option<DateTime<Utc>> {
        if let Self::Window(opening) = self { opening.at } else { None }
    }
}

/// How many fleets may roll at the same time.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Limits(BTreeMap<Option<Cause>, usize>);

impl Limits {
    /// The default of the operator: one at a time for a new version of Windlass, which could restart every fleet.
    #[must_use]
    pub fn of_operator() -> Self {
        Self(BTreeMap::from([(Some(Cause::OperatorDrift), 1)]))
    }

    /// The same with another limit.
    #[must_use]
    pub fn with(mut self, limit: Limit) -> Self {
        self.0.insert(limit.cause, limit.most);
        self
    }

    /// True if a limit applies to a rollout with this cause.
    #[must_use]
    pub fn apply_to(&self, cause: Cause) -> bool {
        self.of(cause).next().is_some()
    }

    /// The limits for rollouts with this cause.
    fn of(&self, cause: Cause) -> impl Iterator<Item = (Option<Cause>, usize)> {
        [None, Some(cause)].into_iter().filter_map(|of| Some((of, *self.0.get(&of)?)))
    }

    /// What a rollout waits for, in a sentence; `None` if it may begin. Each of the others with its name and cause: `rolling`,
    /// and `queued`, which wait for their turn before it. A queued one only counts if there is room for it.
    #[must_use]
    pub fn why_not(
        &self,
        cause: Cause,
        rolling: Vec<(String, Cause)>,
        queued: Vec<(String, Cause)>,
    ) -> Option<String> {
        let mut ahead = rolling;
        for next in queued {
            if self.why_no_room(next.1, &ahead).is_none() {
                ahead.push(next);
            }
        }
        self.why_no_room(cause, &ahead)
    }

    fn why_no_room(&self, cause: Cause, ahead: &[(String, Cause)]) -> Option<String> {
        self.of(cause).find_map(|(of, most)| {
            let counted = ahead.iter().filter(|other| of.is_none_or(|of| other.1 == of));
            let (name, _) = counted.clone().next_back().filter(|_| counted.count() >= most)?;
            let flag = Limit { cause: of, most };
            Some(format!("waiting for {name}, which is ahead: --max-rollouts is {flag}"))
        })
    }
}

/// How many fleets may roll at the same time, for a cause or for all: `1`, or `OperatorDrift=1`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit {
    cause: Option<Cause>,
    most: usize,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.cause {
            Some(cause) => write!(f, "{cause}={}", self.most),
            None => write!(f, "{}", self.most),
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (cause, most) = match text.split_once('=') {
            None => (None, text),
            Some((cause, most)) => {
                let known = cause.parse().map_err(|_| {
                    format!(
                        "{cause} is no cause of a rollout: use one such as OperatorDrift or TemplateChanged"
                    )
                })?;
                (Some(known), most)
            }
        };
        let most = most.parse().map_err(|_| format!("{most:?} is no number of rollouts: use 1 or more"))?;
        if most == 0 {
            return Err("0 rollouts would stop every fleet: use 1 or more, or pause fleets".to_owned());
        }
        Ok(Self { cause, most })
    }
}

impl FleetFacts {
    /// True if a node that could be granted a revision under this clause waits for the gate. Not one that has failed, or
    /// whose target is a way back: to wait would repair nothing.
    pub(super) fn waits_at_gate(&self, child: &ChildFacts, revision: &RolloutHash, clause: Clause) -> bool {
        self.rollout.gate.is_closed()
            && match clause {
                Clause::RunsTarget | Clause::NeverReady => false,
                // What it is granted is new to it, and it may be down for a moment only, or about to come back.
                Clause::Failed | Clause::Down | Clause::InFlightUnspent => {
                    // A template whose objects are missing repairs nothing.
                    let waits =
                        !child.pod.failed || finds_no_machine(child) || self.rollout.gate.lacks_objects();
                    self.holds_completed(child) && waits
                }
                Clause::Serving => {
                    self.holds_completed(child) || self.record.last_completed.as_ref() != Some(revision)
                }
            }
    }

    /// True if a grant is a trial: it passes a closed gate because the node has failed, and what it is granted is new to it.
    /// What made one node fail may make all of them fail, so there is one trial at a time.
    pub(super) fn is_trial(&self, child: &ChildFacts) -> bool {
        self.rollout.gate.is_closed() && self.holds_completed(child)
    }

    /// True if a node was granted the target already, and is not available.
    pub(super) fn has_trial(&self, rollout_target: &RolloutTarget) -> bool {
        // One that was down before the rollout, and keeps its revision, is no trial.
        let is_new = |child: &ChildFacts| !self.holds_completed(child) || child.state().is_in_flight();
        self.wanted().any(|child| is_new(child) && self.is_moved_and_out(child, rollout_target))
    }

    fn holds_completed(&self, child: &ChildFacts) -> bool {
        self.record.last_completed.as_ref().is_some_and(|completed| child.spec_hash == *completed)
    }

    fn is_moved_and_out(&self, child: &ChildFacts, rollout_target: &RolloutTarget) -> bool {
        self.is_granted(child, rollout_target) && child.is_disrupted()
    }

    /// What is not done yet because of the gate, in a sentence.
    #[must_use]
    pub fn waits_for_gate(&self, rollout_target: &RolloutTarget) -> Option<String> {
        let sentence = self.rollout.gate.sentence()?;
        let waits = |child: &ChildFacts| {
            if self.grows_claims() {
                return child.pod.drain.is_due() && child.main_container_runs();
            }
            !self.is_granted(child, rollout_target)
                && self.waits_at_gate(child, self.revision_for(child, rollout_target), Clause::Serving)
        };
        let is_set = self.rollout.now.set().is_some_and(SetRollout::is_revocable);
        let is_step_full = || self.rollout.step.is_some_and(|step| is_step_done(self, rollout_target, step));
        (is_set || (!is_step_full() && self.wanted().any(waits))).then_some(sentence)
    }

    /// True if the gate keeps the whole rollout: something waits for it, nothing is on its way, and no node has to move now.
    #[must_use]
    pub fn stands_at_gate(&self, rollout_target: &RolloutTarget) -> bool {
        self.waits_for_gate(rollout_target).is_some()
            && !self.is_under_way(rollout_target)
            && !self.has_urgent(rollout_target)
    }

    /// True if nodes are on their way to the target, or have reached it and are not available.
    fn is_under_way(&self, rollout_target: &RolloutTarget) -> bool {
        self.nodes_of_rollout().any(|child| child.state().is_in_flight())
            || self.wanted().any(|child| self.is_moved_and_out(child, rollout_target))
    }

    /// True if nodes have to move now that do not wait for the gate.
    #[must_use]
    pub fn has_urgent(&self, rollout_target: &RolloutTarget) -> bool {
        self.rollout.now.set().is_none()
            && next_grants(self, rollout_target).iter().any(|grant| grant.clause != Clause::RunsTarget)
    }

    /// True if only a person can continue the rollout, so that others may go ahead. `status`: the stored one.
    #[must_use]
    pub fn is_left_to_a_person(&self, status: &NodeDeploymentStatus) -> bool {
        let asks = self.rollout.at_hook.as_ref().is_some_and(|hook| hook.asks && !hook.failed);
        self.spec.paused
            || asks
            || self.is_ready_to_promote(status)
            || progress::is_held_by_partition(self, &rollout_target_of(status))
    }
}

/// Records in the status what the rollout waits for. One that waits does not count for the limits.
pub(super) fn refresh(status: &mut NodeDeploymentStatus, facts: &FleetFacts) {
    let plan = status.plan.as_ref().and_then(RawPlan::id);
    let target = rollout_target_of(status);
    let Some(rollout) = &mut status.rollout else { return };
    let gate = &facts.rollout.gate;
    rollout.window_opens_at = gate.opens_at();
    let waits = match gate {
        _ if matches!(rollout.stage, Stage::Promoting | Stage::Retiring) => None,
        Gate::Window(_) | Gate::Missing(_) | Gate::Refused(_)
            if rollout.waiting_for.is_empty() && !facts.stands_at_gate(&target) =>
        {
            None
        }
        Gate::Window(_) => Some(WaitingFor::Window),
        Gate::Missing(_) => Some(WaitingFor::Objects),
        Gate::Predecessors(_) => Some(WaitingFor::Predecessors),
        Gate::Turn(_) => Some(WaitingFor::Turn),
        Gate::Person | Gate::Refused(_) => Some(WaitingFor::Person),
        Gate::Beginning => None,
        // One that has just begun waits until its gate was looked at, and one that rolls keeps its turn.
        Gate::Open | Gate::Unanswered(_) => rollout.waiting_for.parse().ok(),
    };
    rollout.waiting_for = waits.map_or_else(String::new, |waits| waits.as_ref().to_owned());
    rollout.window_opened |= plan.is_some() && facts.requests.open_window == plan;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_cause_and_of_all_both_apply() {
        let limits = Limits::of_operator().with("3".parse().unwrap());
        let others = |causes: &[Cause]| -> Vec<(String, Cause)> {
            causes.iter().enumerate().map(|(at, cause)| (format!("nd/f{at}"), *cause)).collect()
        };
        let (drift, template) = (Cause::OperatorDrift, Cause::TemplateChanged);
        let waits_for = |name: &str, limit: &str| {
            Some(format!("waiting for nd/{name}, which is ahead: --max-rollouts is {limit}"))
        };
        for (cause, rolling, queued, expected) in [
            (drift, vec![], vec![], None),
            (drift, vec![template], vec![], None),
            (drift, vec![template, drift], vec![], waits_for("f1", "OperatorDrift=1")),
            (template, vec![drift, template], vec![], None),
            (template, vec![template; 3], vec![], waits_for("f2", "3")),
            // Those that wait for each other leave room for another cause.
            (template, vec![drift], vec![drift; 9], None),
            (template, vec![drift, template], vec![drift, template], waits_for("f1", "3")),
            (drift, vec![], vec![drift], waits_for("f0", "OperatorDrift=1")),
        ] {
            let why = limits.why_not(cause, others(&rolling), others(&queued));
            assert_eq!(why, expected, "{cause} beside {rolling:?}, then {queued:?}");
        }
        assert!(!Limits::of_operator().apply_to(template) && Limits::of_operator().apply_to(drift));
        assert_eq!(Limits::default().why_not(drift, others(&[drift; 9]), vec![]), None);
    }

    #[test]
    fn limits_are_numbers_with_or_without_a_cause() {
        for (text, expected) in [
            ("3", Ok("3")),
            ("OperatorDrift=2", Ok("OperatorDrift=2")),
            ("0", Err("0 rollouts")),
            ("OperatorDrift=0", Err("0 rollouts")),
            ("-1", Err("no number")),
            ("Upgrade=1", Err("Upgrade is no cause")),
            ("OperatorDrift", Err("no number")),
        ] {
            match (text.parse::<Limit>(), expected) {
                (Ok(limit), Ok(expected)) => assert_eq!(limit.to_string(), expected),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{text}: {why}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
