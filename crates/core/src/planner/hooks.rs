//! Places hooks in plans. A plan's steps are those of its recipe, with the hooks of `updateStrategy.hooks` among them.
//! As long as they have not started, they follow changes of that list. Pure.

use serde_json::{Map, Value, json};

use crate::api::{Hook, HookPoint, OnHookFailure, TaskType};
use crate::engine::id::task_id;
use crate::engine::recipe::MAX_TASKS;
use crate::engine::{Plan, Recipe, Step, TaskRecord, TaskState, held_by};

pub use crate::api::at_hook::{hook_of, message_of, point_of};

/// The param that limits a task to a step of the rollout: an index into `inPlace.steps`.
pub const STEP: &str = "step";

/// The param of a hook's task at `AfterScaleUp`: how many nodes it follows.
pub const NODES: &str = "nodes";

/// The most nodes that a plan has hooks at `AfterScaleUp` for.
#[must_use]
pub fn scaled_up_to(plan: &Plan) -> Option<i32> {
    let nodes = plan.tasks.iter().filter_map(|task| task.params[NODES].as_i64());
    nodes.max().and_then(|nodes| i32::try_from(nodes).ok())
}

/// The `onFailure` policy of the failed hook that a plan is held by; `None` if none holds it, or a task of an
/// embedder's own does. It is Continue if the hook is no longer in the list: its removal means that the plan continues
/// without it.
#[must_use]
pub fn on_failure(plan: &Plan, hooks: &[Hook]) -> Option<OnHookFailure> {
    let name = hook_of(held_by(plan)?)?;
    let hook = hooks.iter().find(|hook| hook.name == name);
    Some(hook.map_or(OnHookFailure::Continue, Hook::on_failure))
}

/// The hooks of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookPlacement<'a> {
    /// The hooks in the spec.
    pub hooks: &'a [Hook],
    /// The points at which they run.
    pub points: Vec<HookPoint>,
    /// After which of `inPlace.steps` the rollout stops: indices into them.
    pub stops: Vec<usize>,
    /// The number of nodes that hooks at `AfterScaleUp` follow. For a higher one, they run again.
    pub nodes: Option<i32>,
}

impl HookPlacement<'_> {
    fn at(&self, point: HookPoint) -> impl Iterator<Item = &Hook> {
        let runs = self.points.contains(&point);
        self.hooks.iter().filter(move |hook| runs && hook.at == point)
    }

    /// The steps of a recipe with these hooks among them. Hooks for which the recipe has no place are left out.
    #[must_use]
    pub fn among(&self, steps: &[Step]) -> Vec<Step> {
        let mut all: Vec<Step> = self.at(HookPoint::BeforeRollout).filter_map(of_list).collect();
        let awaits = steps.iter().any(|step| step.type_ == TaskType::AwaitPromotion.as_ref());
        let before_promotion = if awaits { TaskType::AwaitPromotion } else { TaskType::SubmitHalt };
        for step in steps {
            let type_ = step.type_.parse().ok();
            let before = match type_ {
                Some(TaskType::ApplyStatefulSet) => Some(HookPoint::BeforeCreate),
                Some(TaskType::ReplacePod) => Some(HookPoint::BeforeNode),
                Some(TaskType::AwaitRemoval) => Some(HookPoint::BeforeRemove),
                Some(type_) if type_ == before_promotion => Some(HookPoint::BeforePromotion),
                _ => None,
            };
            all.extend(before.into_iter().flat_map(|point| self.at(point)).filter_map(of_list));
            if type_ == Some(TaskType::UpdateNodeSpecs) {
                self.stop(step, &mut all);
            }
            all.push(step.clone());
            let after: &[HookPoint] = match type_ {
                Some(TaskType::MarkReady) => &[HookPoint::AfterCreate, HookPoint::AfterNode],
                Some(TaskType::SwitchTraffic) => &[HookPoint::AfterPromotion],
                _ => &[],
            };
            all.extend(after.iter().flat_map(|point| self.at(*point)).filter_map(of_list));
        }
        all.extend(self.at(HookPoint::AfterFirstCreation).filter_map(of_list));
        all.extend(self.at(HookPoint::AfterScaleUp).filter_map(of_list).map(|mut step| {
            step.params.extend(self.nodes.map(|nodes| (NODES.to_owned(), json!(nodes))));
            step
        }));
        all.extend(self.at(HookPoint::AfterRollout).filter_map(of_list));
        all
    }

    /// Adds the update of each step's nodes, and the hooks after it.
    fn stop(&self, update: &Step, all: &mut Vec<Step>) {
        if self.at(HookPoint::AfterStep).next().is_none() {
            return;
        }
        for stop in &self.stops {
            let mut part = update.clone();
            part.params.insert(STEP.to_owned(), json!(stop));
            all.push(part);
            all.extend(self.at(HookPoint::AfterStep).filter_map(of_list).map(|mut step| {
                step.params.insert(STEP.to_owned(), json!(stop));
                step
            }));
        }
    }

    /// The recipe with these hooks among its steps.
    #[must_use]
    pub fn in_recipe(&self, recipe: &Recipe) -> Recipe {
        Recipe { name: recipe.name.clone(), tasks: self.among(&recipe.tasks) }
    }

    /// Why a plan of this recipe would be too long with these hooks, in a sentence; `None` if it would not.
    #[must_use]
    pub fn too_long_for(&self, recipe: &Recipe) -> Option<String> {
        let count = self.among(&recipe.tasks).len();
        (count > MAX_TASKS).then(|| {
            let stepwise = self.hooks.iter().filter(|hook| hook.at == HookPoint::AfterStep);
            let mut names: Vec<&str> = stepwise.map(|hook| hook.name.as_str()).collect();
            if names.is_empty() {
                names = self.hooks.iter().map(|hook| hook.name.as_str()).collect();
            }
            format!(
                "hooks {}: a plan {} would have {count} tasks with all hooks, and the maximum is {MAX_TASKS}: each \
                 hook at AfterStep counts once for each of inPlace.steps that the rollout stops after; remove hooks \
                 or steps",
                names.join(", "),
                recipe.name
            )
        })
    }

    /// Updates the tasks of an active plan that have not started to the current hooks: new hooks are added, and hooks
    /// that no longer exist are removed. Returns true if anything changed. `steps`: those of the plan's recipe.
    pub fn bring_to(&self, plan: &mut Plan, steps: &[Step]) -> bool {
        // A plan that somebody truncated fails; it is not completed here.
        if plan.tasks.iter().enumerate().any(|(index, task)| task.id != task_id(&plan.id, index)) {
            return false;
        }
        let is_part = |task: &TaskRecord| TaskType::UpdateNodeSpecs.is(task) && task.params[STEP].is_u64();
        let is_core = |task: &&TaskRecord| !is_of_list(task) && !is_part(task);
        // A recipe that has changed since does not describe this plan.
        let core = plan.tasks.iter().filter(is_core).map(|task| task.type_.as_str());
        if !plan.is_active() || !core.eq(steps.iter().map(|step| step.type_.as_str())) {
            return false;
        }
        let begun = begun(plan);
        let mut rest = self.among(steps);
        let done = &plan.tasks[..begun];
        // Everything up to the last started task of the recipe itself is over, whatever hooks came in between.
        let last = done.iter().rposition(|task| !is_of_list(task));
        if let Some(last) = last {
            let place = rest.iter().position(|step| is_same(step, &done[last])).map(|place| place + 1);
            // If the rollout no longer stops after a step, it continues with the next task that updates nodes.
            let next = || {
                rest.iter()
                    .position(|step| step.type_ == TaskType::UpdateNodeSpecs.as_ref() && is_part(&done[last]))
            };
            let Some(place) = place.or_else(next) else { return false };
            rest.drain(..place);
        }
        let since = &done[last.map_or(0, |last| last + 1)..];
        rest.retain(|step| !since.iter().any(|task| is_same(step, task)));
        replace_rest(plan, begun, rest)
    }
}

/// The number of a plan's tasks that have started. A task that was skipped ahead of its turn has not; one that was
/// skipped in its turn has.
#[must_use]
pub fn begun(plan: &Plan) -> usize {
    let begun =
        plan.tasks.iter().rposition(|task| !matches!(task.state, TaskState::Pending | TaskState::Skipped));
    begun.map_or(0, |index| index + 1).max(plan.current().unwrap_or(plan.tasks.len()))
}

/// Replaces the tasks that have not started with these steps. A step that was there already keeps its record. Returns
/// true if anything changed.
pub fn replace_rest(plan: &mut Plan, begun: usize, rest: Vec<Step>) -> bool {
    let left = &plan.tasks[begun..];
    if left.len() == rest.len() && left.iter().zip(&rest).all(|(task, step)| is_same(step, task)) {
        return false;
    }
    let left = left.to_vec();
    plan.tasks.truncate(begun);
    for step in rest {
        let id = task_id(&plan.id, plan.tasks.len());
        let known = left.iter().find(|task| is_same(&step, task)).cloned();
        let blank = TaskRecord::pending(id.clone(), &step);
        plan.tasks.push(known.map_or(blank, |task| TaskRecord { id, ..task }));
    }
    true
}

/// The points of a node's hooks that a plan may owe to the plan that follows, with the param of a plan RemoveNode that records
/// it.
pub(crate) const OWED: [(HookPoint, &str); 3] = [
    (HookPoint::BeforeCreate, "beforeCreate"),
    (HookPoint::AfterCreate, "afterCreate"),
    (HookPoint::AfterNode, "afterNode"),
];

/// True if a task is that of this step.
#[must_use]
pub fn is_same(step: &Step, task: &TaskRecord) -> bool {
    let params = |params: &Value| params.as_object().cloned().unwrap_or_default();
    // These are added when the plan is created.
    let bare = |mut params: Map<String, Value>| {
        params.remove("removalID");
        for (_, owed) in OWED {
            params.remove(owed);
        }
        params
    };
    step.type_ == task.type_ && bare(step.params.clone()) == bare(params(&task.params))
}

/// The step of a hook; `None` if it has no action or several, which the API server rejects.
#[must_use]
pub fn of_list(hook: &Hook) -> Option<Step> {
    let params = json!({"hook": hook.name, "at": hook.at});
    let Value::Object(params) = params else { return None };
    Some(Step { type_: hook.action()?.task_type().to_owned(), params })
}

/// True if a task comes from the hooks in the spec. A custom recipe may have tasks of hooks as well; they stay where
/// they are.
#[must_use]
pub fn is_of_list(task: &TaskRecord) -> bool {
    task.params["hook"].is_string() && task.params["at"].is_string()
}

/// True if a plan has a hook at this point that has not ended.
#[must_use]
pub fn is_left_at(plan: &Plan, point: HookPoint) -> bool {
    plan.tasks.iter().any(|task| !task.state.is_over() && is_of_list(task) && point_of(task) == Some(point))
}

/// True if a plan has begun a hook at this point, or has it behind it.
#[must_use]
pub fn has_begun_at(plan: &Plan, point: HookPoint) -> bool {
    let has_begun = |task: &&TaskRecord| task.state != TaskState::Pending || task.attempts > 0;
    plan.tasks.iter().filter(has_begun).any(|task| is_of_list(task) && point_of(task) == Some(point))
}

/// The step that a fleet's plan carries out, or stops after: an index into `inPlace.steps`. `None` if its current task
/// is not limited to a step.
#[must_use]
pub fn step_of(plan: &Plan) -> Option<usize> {
    let task = plan.current_task().filter(|_| plan.is_active())?;
    usize::try_from(task.params[STEP].as_u64()?).ok()
}

#[cfg(test)]
mod tests;
