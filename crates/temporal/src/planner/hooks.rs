//! Where hooks stand in a rollout of workers, what one that failed leads to, and what a person is told of them.

use windlass_core::api::at_hook::hook_of;
use windlass_core::api::{AtHook, Hook, HookPoint, HookStatus, OnHookFailure};
use windlass_core::planner::fleet::hooks::{Place, with_ways_out};
use windlass_core::planner::hooks::{begun, is_of_list, is_same, of_list, replace_rest};
use windlass_engine::{Plan, Step, TaskRecord, TaskState, held_by};

use super::facts::Facts;
use super::recipe::{self, Direction, HOOKS};
use crate::api::Reason;

/// How many tasks a plan has at most.
const MAX_TASKS: usize = 100;
/// How many bytes of what a hook was last answered are in the status.
const MAX_SAID: usize = 512;

/// The hooks that a plan has which begins for this reason. What is put right, or goes back to a version that was current
/// before, is not what they are for: that takes over at once.
#[must_use]
pub fn wanted(facts: &Facts, cause: Reason) -> &[Hook] {
    let is_repair = cause == Reason::ChildDrift;
    if is_repair || recipe::way(facts) == Direction::Back { &[] } else { &facts.spec.hooks }
}

/// The steps of a rollout with these hooks among them.
#[must_use]
pub fn among(hooks: &[Hook], steps: &[Step]) -> Vec<Step> {
    let at = |point: HookPoint| hooks.iter().filter(move |hook| hook.at == point).filter_map(of_list);
    let has = |type_: &str| steps.iter().any(|step| step.type_ == type_);
    let promotion = if has("await-promote") { "await-promote" } else { "set-current" };
    // A ramp that leads to what is not wanted any more is taken back before anybody is waited for.
    let first = steps.iter().position(|step| step.type_ != "clear-ramp");
    let mut all = Vec::new();
    let mut ramps = 0_u32;
    for (index, step) in steps.iter().enumerate() {
        if Some(index) == first {
            all.extend(at(HookPoint::BeforeRollout));
        }
        if step.type_ == promotion {
            all.extend(at(HookPoint::BeforePromotion));
        }
        all.push(step.clone());
        if step.type_ == "ramp" {
            if step.params.get(HOOKS).is_some_and(|said| said == true) {
                all.extend(at(HookPoint::AfterStep).map(|mut hook| {
                    hook.params.insert("step".to_owned(), ramps.into());
                    hook
                }));
            }
            ramps += 1;
        }
    }
    all.extend(at(HookPoint::AfterRollout));
    all
}

/// Brings what has not begun of a plan to the list as it is now. Whether anything changed.
pub fn follow(facts: &Facts, plan: &mut Plan) -> bool {
    let has_some = plan.tasks.iter().any(is_of_list);
    if !plan.is_active() || (facts.spec.hooks.is_empty() && !has_some) {
        return false;
    }
    // Only what Temporal says tells a rollout from the way back, and that no more once the version is current.
    if facts.described().is_none() || (facts.is_at_target() && !has_some) {
        return false;
    }
    let cause = if facts.status.cause.as_deref() == Some(Reason::ChildDrift.as_str()) {
        Reason::ChildDrift
    } else {
        Reason::TemplateChanged
    };
    let hooks = if has_some { facts.spec.hooks.as_slice() } else { wanted(facts, cause) };
    let core: Vec<Step> = plan.tasks.iter().filter(|task| !is_of_list(task)).map(step_of).collect();
    let begun = begun(plan);
    let done = &plan.tasks[..begun];
    let passed = done.iter().filter(|task| !is_of_list(task)).count();
    let mut rest = among(hooks, &core);
    if passed > 0 {
        let is_core = |step: &Step| !step.params.get("at").is_some_and(serde_json::Value::is_string);
        let places = rest.iter().enumerate().filter(|(_, step)| is_core(step));
        let Some((last, _)) = places.into_iter().nth(passed - 1) else { return false };
        rest.drain(..=last);
    }
    let since = done.iter().rposition(|task| !is_of_list(task)).map_or(0, |last| last + 1);
    rest.retain(|step| !done[since..].iter().any(|task| is_same(step, task)));
    replace_rest(plan, begun, rest)
}

fn step_of(task: &TaskRecord) -> Step {
    Step { type_: task.type_.clone(), params: task.params.as_object().cloned().unwrap_or_default() }
}

/// Why a plan would be too long with these hooks, in a sentence, if it would.
#[must_use]
pub fn too_many(facts: &Facts) -> Option<String> {
    let count = among(&facts.spec.hooks, &recipe::recipe(facts).tasks).len();
    let names: Vec<&str> = facts.spec.hooks.iter().map(|hook| hook.name.as_str()).collect();
    (count > MAX_TASKS).then(|| {
        format!(
            "hooks {}: a rollout would have {count} tasks, and {MAX_TASKS} are the most: each hook at AfterStep counts once for \
             each step with hooks: true; take some of either away",
            names.join(", ")
        )
    })
}

/// What the failure that a plan holds for leads to by the list; none where it does not hold for a hook. Of a hook that is
/// not listed any more it is Hold.
#[must_use]
pub fn on_failure(facts: &Facts, plan: &Plan) -> Option<OnHookFailure> {
    let name = hook_of(held_by(plan)?)?;
    let hook = facts.spec.hooks.iter().find(|hook| hook.name == name);
    Some(hook.map(Hook::on_failure).unwrap_or_default())
}

/// Why the hook that a plan is at need not be carried out, in a sentence, if it need not.
#[must_use]
pub fn needless(plan: &Plan) -> Option<String> {
    let current = plan.current()?;
    let at = AtHook::of(plan)?;
    let ramp = plan.tasks[..current].iter().rfind(|task| task.type_ == "ramp");
    let was_passed_over = ramp.is_some_and(|ramp| ramp.state == TaskState::Skipped);
    (at.at == Some(HookPoint::AfterStep) && was_passed_over)
        .then(|| "the step before it was passed over".to_owned())
}

/// The hook that somebody has to look at, for the status.
#[must_use]
pub fn to_look_at(plan: Option<&Plan>) -> Vec<HookStatus> {
    let at = plan.and_then(AtHook::of).filter(|at| at.failed || at.asks);
    at.map(|at| Place { at: &at, node: None }.status(MAX_SAID)).into_iter().collect()
}

/// What a failed hook says for a person, and what can be done about it.
#[must_use]
pub fn failure(at: &AtHook, name: &str) -> String {
    with_ways_out(&format!("hook {} failed: {}", at.hook, said(at)), &format!("wwd/{name}"))
}

/// What was said last, without the words that say whose hook it is.
#[must_use]
pub fn said(at: &AtHook) -> &str {
    Place { at, node: None }.said()
}
