//! The hooks of a rollout of workers: their order, the reaction to a failed one, and its messages.

use windlass_core::api::{AtHook, Hook, HookPoint, HookStatus};
use windlass_core::planner::fleet::hooks::{CurrentHook, with_ways_out};
pub use windlass_core::planner::hooks::on_failure;
use windlass_core::planner::hooks::{begun, is_of_list, is_same, of_list, replace_rest};
use windlass_engine::{Plan, Step, TaskRecord, TaskState};

use super::facts::Facts;
use super::recipe::{self, Direction, HOOKS};
use crate::api::Reason;

/// The most tasks that a plan may have.
const MAX_TASKS: usize = 100;
/// The longest message of a hook in the status, in bytes.
const MAX_HOOK_MESSAGE_BYTES: usize = 512;

/// The hooks of a plan with this cause. A repair and a return to a version that was current before have none: both must
/// take effect at once.
#[must_use]
pub fn wanted(facts: &Facts, cause: Reason) -> &[Hook] {
    let is_repair = cause == Reason::ChildDrift;
    if is_repair || recipe::direction(facts) == Direction::Back { &[] } else { &facts.spec.hooks }
}

/// Inserts the hooks into the steps of a rollout.
#[must_use]
pub fn interleave(hooks: &[Hook], steps: &[Step]) -> Vec<Step> {
    let at = |point: HookPoint| hooks.iter().filter(move |hook| hook.at == point).filter_map(of_list);
    let has = |type_: &str| steps.iter().any(|step| step.type_ == type_);
    let promotion = if has("await-promote") { "await-promote" } else { "set-current" };
    // A ramp to an obsolete version is cleared before any hook runs.
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
            if step.params.get(HOOKS).is_some_and(|after| after == true) {
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

/// Updates the tasks of a plan that have not started to match the hooks of the spec. True if the plan changed.
pub fn follow(facts: &Facts, plan: &mut Plan) -> bool {
    let has_some = plan.tasks.iter().any(is_of_list);
    if !plan.is_active() || (facts.spec.hooks.is_empty() && !has_some) {
        return false;
    }
    // Only Temporal's answer distinguishes a rollout from a rollback, until the version is current.
    if facts.described().is_none() || (facts.is_at_target() && !has_some) {
        return false;
    }
    let cause = if facts.status.cause.as_deref() == Some(Reason::ChildDrift.as_ref()) {
        Reason::ChildDrift
    } else {
        Reason::TemplateChanged
    };
    let hooks = if has_some { facts.spec.hooks.as_slice() } else { wanted(facts, cause) };
    let core: Vec<Step> = plan.tasks.iter().filter(|task| !is_of_list(task)).map(step_of).collect();
    let begun = begun(plan);
    let done = &plan.tasks[..begun];
    let passed = done.iter().filter(|task| !is_of_list(task)).count();
    let mut rest = interleave(hooks, &core);
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

/// Why these hooks make a plan too long, as a sentence; `None` if they do not.
#[must_use]
pub fn too_many_tasks(facts: &Facts) -> Option<String> {
    let count = interleave(&facts.spec.hooks, &recipe::recipe(facts).tasks).len();
    let names: Vec<&str> = facts.spec.hooks.iter().map(|hook| hook.name.as_str()).collect();
    (count > MAX_TASKS).then(|| {
        format!(
            "hooks {}: a rollout would have {count} tasks, but the limit is {MAX_TASKS}. Each hook at AfterStep counts once for \
             each step with hooks: true. Remove hooks or steps",
            names.join(", ")
        )
    })
}

/// Why Windlass skips the current hook of a plan, as a sentence; `None` if the hook must run.
#[must_use]
pub fn skip_reason(plan: &Plan) -> Option<String> {
    let current = plan.current()?;
    let at = AtHook::of(plan)?;
    let ramp = plan.tasks[..current].iter().rfind(|task| task.type_ == "ramp");
    let was_passed_over = ramp.is_some_and(|ramp| ramp.state == TaskState::Skipped);
    (at.point == Some(HookPoint::AfterStep) && was_passed_over)
        .then(|| "the previous step was skipped".to_owned())
}

/// The hook that needs a person's attention, for the status.
#[must_use]
pub fn needing_attention(plan: Option<&Plan>) -> Vec<HookStatus> {
    let at = plan.and_then(AtHook::of).filter(|at| at.failed || at.asks);
    at.map(|at| CurrentHook { at: &at, node: None }.status(MAX_HOOK_MESSAGE_BYTES)).into_iter().collect()
}

/// The message of a failed hook, with the commands that a person can run.
#[must_use]
pub fn failure(at: &AtHook, object: &str) -> String {
    with_ways_out(&format!("hook {} failed: {}", at.hook, at.message), object, true)
}
