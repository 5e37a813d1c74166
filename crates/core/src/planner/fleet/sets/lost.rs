//! Restores a promotion whose rollout is lost from the status, from the traces that it left: a promotion past the point
//! of no return must never be mistaken for one before it.

use super::super::decision::Strategy;
use super::rollout::SetRollout;
use crate::api::{BuildId, RolloutHash, SetName, Stage, TaskType};
use crate::engine::{Plan, PlanState};

/// The tasks that act only once the stage Promoting is recorded.
const PAST_RETURN: [TaskType; 3] =
    [TaskType::SubmitHalt, TaskType::AwaitNodesAtHeight, TaskType::SwitchTraffic];

/// What is observed of a rollout in addition to its plan.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    /// The set that was active when it began, if that is known.
    pub incumbent: Option<SetName>,
    /// The other sets with a node at the plan's target, each with its build ID; without the sets that are known to be
    /// retiring.
    pub holders: Vec<(SetName, Option<BuildId>)>,
    /// The heights at which the old nodes are asked to halt by this plan, or by the plan that it continues.
    pub asked: Vec<i64>,
    /// The height in the current spec.
    pub wanted_height: i64,
    /// True if the conditions report that it is promoting.
    pub is_said: bool,
    /// The set to which a promotion has switched the fleet's Service.
    pub switched_to: Option<SetName>,
}

/// The promotion that a plan carries out, or that holds because the plan failed. `None` if nothing shows that it is
/// past the point of no return, or which set is the new one.
#[must_use]
pub fn promotion(plan: &Plan, traces: &Traces) -> Option<SetRollout> {
    let strategy = Strategy::of_recipe(&plan.recipe).filter(|strategy| strategy.makes_set())?;
    let [(entrant, build_id)] = traces.holders.as_slice() else { return None };
    if !promotes(plan, strategy, traces, Some(entrant)) {
        return None;
    }
    // The nodes were asked for the recorded height. If somebody has edited them so that they differ, the highest one is
    // used, which undoes nothing.
    let asked = traces.asked.iter().copied().max().unwrap_or(traces.wanted_height);
    Some(SetRollout {
        strategy,
        stage: Stage::Promoting,
        target: RolloutHash::recorded_or_lost(plan.target_hash.as_str()),
        build_id: build_id.clone(),
        incumbent: traces.incumbent.clone(),
        entrant: entrant.clone(),
        halt_height: if strategy == Strategy::HardFork { asked } else { 0 },
        left_service_at: None,
    })
}

/// True if a plan that creates a set carries out a promotion past the point of no return, or failed during one, as far
/// as its traces show. `entrant`: the new set, if it is known.
#[must_use]
pub fn promotes(plan: &Plan, strategy: Strategy, traces: &Traces, entrant: Option<&SetName>) -> bool {
    let is_past_return = TaskType::next_of(plan).is_some_and(|task| PAST_RETURN.contains(&task));
    let is_halted = plan.tasks.iter().any(|t| TaskType::SubmitHalt.is(t) && t.state.is_over());
    let is_asked = strategy == Strategy::HardFork && (is_halted || !traces.asked.is_empty());
    let is_moved = entrant.is_some_and(|entrant| traces.switched_to == *entrant);
    // BlueGreenImmediate is promoting from its first write.
    let is_past = strategy == Strategy::BlueGreenImmediate
        || is_asked
        || is_moved
        || (traces.is_said && is_past_return);
    is_past && matches!(plan.state, PlanState::Active | PlanState::Failed)
}

/// True if anything shows that a plan whose rollout is lost may be past the point of no return. Otherwise it can start
/// again, whichever nodes it had created.
#[must_use]
pub fn may_be_past_return(plan: &Plan, traces: &Traces) -> bool {
    let is_past_return = TaskType::next_of(plan).is_some_and(|task| PAST_RETURN.contains(&task));
    let is_halted = plan.tasks.iter().any(|t| TaskType::SubmitHalt.is(t) && t.state.is_over());
    let is_moved = traces.switched_to.as_ref().is_some_and(|set| traces.incumbent != *set);
    let is_said = traces.is_said && is_past_return;
    match Strategy::of_recipe(&plan.recipe) {
        Some(Strategy::InPlace) => false,
        Some(Strategy::BlueGreen) => is_moved || is_said,
        Some(Strategy::HardFork) => is_moved || is_said || is_halted || !traces.asked.is_empty(),
        Some(Strategy::BlueGreenImmediate) | None => true,
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::engine::{PlanSeed, Recipe, TaskState};

    /// A plan whose first `done` tasks are complete.
    fn plan(recipe: &str, done: usize) -> Plan {
        let tasks = match recipe {
            "HardFork" => "create-entrants submit-halt await-nodes-at-height switch-traffic",
            "BlueGreenImmediate" => "retire-incumbents create-entrants await-nodes-running switch-traffic",
            _ => "create-entrants await-promotion switch-traffic retire-incumbents",
        };
        let tasks: Vec<String> = tasks.split(' ').map(|task| format!("{{type: {task}}}")).collect();
        let text = format!("{{name: {recipe}, tasks: [{}]}}", tasks.join(", "));
        let now = DateTime::from_timestamp(1_000, 0).unwrap();
        let seed = PlanSeed { uid: "uid", target_hash: "v2", now, attempt: 0, disambiguator: "" };
        let mut plan = Recipe::parse(&text).unwrap().plan(seed);
        for task in plan.tasks.iter_mut().take(done) {
            task.state = TaskState::Complete;
        }
        plan
    }

    fn traces() -> Traces {
        Traces {
            incumbent: Some(SetName::FIRST),
            holders: vec![("v2".into(), None)],
            wanted_height: 2000,
            ..Traces::default()
        }
    }

    #[test]
    fn a_promotion_is_found_again_where_something_shows_that_there_is_no_way_back() {
        let said = Traces { is_said: true, ..traces() };
        let moved = |set: &str| Traces { switched_to: Some(set.into()), ..traces() };
        let asked = Traces { asked: vec![900, 1000], ..traces() };
        for (what, plan, traces, height) in [
            ("nodes are asked", plan("HardFork", 1), asked.clone(), Some(1000)),
            ("nobody could be asked", plan("HardFork", 2), traces(), Some(2000)),
            ("it is said, and nobody was asked yet", plan("HardFork", 1), said.clone(), Some(2000)),
            ("nobody is asked, and nothing said", plan("HardFork", 1), traces(), None),
            ("it promotes from the first", plan("BlueGreenImmediate", 0), traces(), Some(0)),
            ("it is said to promote", plan("BlueGreen", 2), said.clone(), Some(0)),
            ("it was said of another", plan("BlueGreen", 1), said, None),
            ("traffic has moved", plan("BlueGreen", 2), moved("v2"), Some(0)),
            ("traffic has moved elsewhere", plan("BlueGreen", 2), moved("v1"), None),
            ("nodes that others have asked", plan("BlueGreen", 2), asked, None),
            ("one in place", plan("InPlace", 0), traces(), None),
            ("one of somebody's own", plan("Own", 0), traces(), None),
        ] {
            let found = promotion(&plan, &traces);
            assert_eq!(found.as_ref().map(|f| f.halt_height), height, "{what}");
            assert!(found.is_none_or(|f| f.stage == Stage::Promoting && f.entrant == "v2"), "{what}");
        }
    }

    #[test]
    fn no_promotion_is_made_up_where_its_set_is_not_known_or_its_plan_is_over() {
        let plan = plan("BlueGreenImmediate", 1);
        let two = vec![("v2".into(), None), ("v2-2".into(), None)];
        for holders in [two, Vec::new()] {
            assert_eq!(promotion(&plan, &Traces { holders, ..traces() }), None);
        }
        for (state, is_found) in [
            (PlanState::Active, true),
            (PlanState::Failed, true),
            (PlanState::Complete, false),
            (PlanState::Superseded, false),
            (PlanState::Aborted, false),
        ] {
            let found = promotion(&Plan { state, ..plan.clone() }, &traces());
            assert_eq!(found.is_some(), is_found, "{state:?}");
        }
    }

    #[test]
    fn what_may_be_past_the_point_of_no_return_is_not_begun_anew() {
        let none = Traces { holders: Vec::new(), ..traces() };
        let said = Traces { is_said: true, ..none.clone() };
        let asked = Traces { asked: vec![900], ..none.clone() };
        let moved = |set: &str| Traces { switched_to: Some(set.into()), ..none.clone() };
        for (what, plan, traces, may_be) in [
            ("in place", plan("InPlace", 0), said.clone(), false),
            ("its nodes are made", plan("BlueGreen", 0), none.clone(), false),
            ("it was said of another", plan("BlueGreen", 1), said.clone(), false),
            ("traffic is where it was", plan("BlueGreen", 2), moved("first"), false),
            ("traffic is elsewhere", plan("BlueGreen", 2), moved("v2"), true),
            ("it is said", plan("BlueGreen", 2), said.clone(), true),
            ("nobody is asked to halt", plan("HardFork", 1), none.clone(), false),
            ("somebody is", plan("HardFork", 1), asked, true),
            ("all were", plan("HardFork", 2), none.clone(), true),
            ("it promotes from the first", plan("BlueGreenImmediate", 0), none.clone(), true),
            ("one of somebody's own", plan("Own", 0), none, true),
        ] {
            assert_eq!(may_be_past_return(&plan, &traces), may_be, "{what}");
        }
    }
}
