//! What keeps a rollout from taking down nodes that serve: objects that its template names and that do not exist, its
//! windows, the fleets that come first, and how many may roll at the same time. Pure.

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::child::ChildFacts;
use super::create::finds_no_machine;
use super::decision::{Cause, RolloutTarget};
use super::facts::FleetFacts;
use super::wave::{Clause, next_grants};
use crate::api::{NodeDeploymentStatus, RolloutHash};
use crate::planner::window::Opening;

/// Whether a rollout may take down nodes that serve.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Gate {
    /// It may.
    #[default]
    Open,
    /// Objects that the new template names do not exist; which ones, in a sentence.
    Missing(String),
    /// No window is open.
    Window(Opening),
    /// Other fleets come first; which ones, in a sentence.
    Others(String),
    /// It may once its status says so: another fleet could count on a status that says that it waits.
    Beginning,
}

impl Gate {
    /// What is waited for, in a sentence.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        match self {
            Self::Open => None,
            Self::Missing(sentence) => Some(format!("waiting for missing objects: {sentence}")),
            Self::Window(opening) => Some(opening.sentence()),
            Self::Others(sentence) => Some(sentence.clone()),
            Self::Beginning => Some("waiting for the rollout to begin".to_owned()),
        }
    }

    /// True if a rollout has to wait.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self != Self::Open
    }

    /// True if it waits for objects that do not exist.
    #[must_use]
    pub fn lacks_objects(&self) -> bool {
        matches!(self, Self::Missing(_))
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

    /// What a rollout waits for while these others roll, in a sentence; `None` if it may begin. `others`: each with its
    /// name and cause.
    #[must_use]
    pub fn why_not<'a>(&self, cause: Cause, others: &'a [(String, Cause)]) -> Option<String> {
        self.of(cause).find_map(|(of, most)| {
            let counted = |other: &&'a (String, Cause)| of.is_none_or(|of| other.1 == of);
            let mut ahead = others.iter().filter(counted);
            let first = ahead.next();
            if ahead.count() + usize::from(first.is_some()) < most {
                return None;
            }
            let flag = Limit { cause: of, most }.to_string();
            Some(match first {
                Some((name, _)) => format!("waiting for {name}, which is ahead: --max-rollouts is {flag}"),
                None => format!("waiting, because --max-rollouts is {flag}"),
            })
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
        let completed = self.record.last_completed.as_ref();
        let holds_completed = completed.is_some_and(|completed| child.spec_hash == *completed);
        let is_completed = completed == Some(revision);
        self.rollout.gate.is_closed()
            && match clause {
                Clause::RunsTarget | Clause::NeverReady => false,
                // The target is new to it, and it may be down for a moment only, or about to come back.
                Clause::Failed | Clause::Down | Clause::InFlightUnspent => {
                    let may_pass = !child.pod.failed || finds_no_machine(child);
                    holds_completed && !is_completed && may_pass
                }
                Clause::Serving => holds_completed || !is_completed,
            }
    }

    /// What nodes wait for that are not updated because of the gate, in a sentence.
    #[must_use]
    pub fn waits_for_gate(&self, rollout_target: &RolloutTarget) -> Option<String> {
        let waits = |child: &ChildFacts| {
            !self.is_granted(child, rollout_target)
                && self.waits_at_gate(child, self.revision_for(child, rollout_target), Clause::Serving)
        };
        self.rollout.gate.sentence().filter(|_| self.wanted().any(waits))
    }

    /// True if the gate keeps the whole rollout: no node is on its way, and none has to move now.
    #[must_use]
    pub fn stands_at_gate(&self, rollout_target: &RolloutTarget) -> bool {
        self.rollout.gate.is_closed() && !self.is_any_in_flight() && !self.has_urgent(rollout_target)
    }

    fn is_any_in_flight(&self) -> bool {
        self.nodes_of_rollout().any(|child| child.state().is_in_flight())
    }

    /// True if nodes have to move now that do not wait for the gate.
    fn has_urgent(&self, rollout_target: &RolloutTarget) -> bool {
        let is_move = |clause: Clause| clause != Clause::RunsTarget;
        self.rollout.now.set().is_none()
            && next_grants(self, rollout_target).iter().any(|grant| is_move(grant.clause))
    }
}

/// Records in the status whether the rollout waits. One that waits does not count for the limits.
pub(super) fn refresh(status: &mut NodeDeploymentStatus, facts: &FleetFacts) {
    let is_limited = facts.rollout.now.cause().is_some_and(|cause| facts.rollout.limits.apply_to(cause));
    let is_idle = !facts.is_any_in_flight();
    let Some(rollout) = &mut status.rollout else { return };
    rollout.window_opens_at = facts.rollout.gate.opens_at();
    rollout.waiting = match facts.rollout.gate {
        Gate::Missing(_) | Gate::Window(_) => rollout.waiting || is_idle,
        Gate::Others(_) => true,
        Gate::Beginning => false,
        // One that has just begun waits until its gate was looked at. A paused one lets others go ahead.
        Gate::Open => rollout.waiting || (facts.spec.paused && is_limited && is_idle),
    };
    rollout.window_opened |= facts.requests.opens_window;
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
        for (cause, ahead, expected) in [
            (drift, vec![], None),
            (drift, vec![template], None),
            (
                drift,
                vec![template, drift],
                Some("waiting for nd/f1, which is ahead: --max-rollouts is OperatorDrift=1"),
            ),
            (template, vec![drift, template], None),
            (template, vec![drift; 3], Some("waiting for nd/f0, which is ahead: --max-rollouts is 3")),
        ] {
            let why = limits.why_not(cause, &others(&ahead));
            assert_eq!(why.as_deref(), expected, "{cause} beside {ahead:?}");
        }
        assert!(!Limits::of_operator().apply_to(template) && Limits::of_operator().apply_to(drift));
        assert_eq!(Limits::default().why_not(drift, &others(&[drift; 9])), None);
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
