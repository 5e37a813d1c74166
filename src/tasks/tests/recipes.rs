//! What a recipe must contain if it replaces one that comes with Windlass.

use proptest::prelude::*;
use proptest::sample::Index;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Map;
use strum::VariantArray;

use super::now;
use crate::api::TaskType;
use crate::engine::{
    Advance, Env, Outcome, PlanSeed, PlanState, Recipe, RecipeError, Registry, ResolveError, Step, Task,
    TaskContext, TaskError, advance,
};

/// A custom task without params.
#[derive(Debug, Deserialize, Serialize)]
struct Nothing;

#[typetag::serde(name = "test-nothing")]
#[async_trait]
impl Task for Nothing {
    async fn run(&self, _: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        Ok(Outcome::Done)
    }
}

fn nothing() -> Step {
    Step { type_: "test-nothing".to_owned(), params: Map::new() }
}

fn recipe(tasks: Vec<Step>) -> Recipe {
    Recipe { name: "Test".to_owned(), tasks }
}

fn builtin() -> Registry {
    Registry::builtin_recipes()
}

#[test]
fn task_types_used_by_decisions_exist_in_the_registry() {
    for type_ in TaskType::VARIANTS {
        let step = Step { type_: type_.to_string(), params: Map::new() };
        let read = recipe(vec![step]).check(&builtin());
        let is_unknown = |error: &RecipeError| {
            matches!(error, RecipeError::Step { source: ResolveError::UnknownType { .. }, .. })
        };
        assert!(!read.as_ref().is_err_and(is_unknown), "{read:?}");
    }
}

fn check(recipe: Recipe) -> Result<(), RecipeError> {
    builtin().with_recipe(recipe).check_all()
}

fn names(recipe: &Recipe) -> Vec<String> {
    recipe.tasks.iter().map(|step| step.type_.clone()).collect()
}

/// A built-in recipe with a custom task before, between and after its own tasks.
fn padded(original: &Recipe) -> Recipe {
    let tasks = original.tasks.iter().flat_map(|step| [nothing(), step.clone()]).chain([nothing()]);
    Recipe { name: original.name.clone(), tasks: tasks.collect() }
}

fn without(original: &Recipe, at: usize) -> Recipe {
    let mut shorter = padded(original);
    shorter.tasks.remove(2 * at + 1);
    shorter
}

#[test]
fn recipe_without_a_required_task_is_refused_with_its_name() {
    for original in builtin().recipes() {
        let tasks = names(original);
        for (at, task) in tasks.iter().enumerate() {
            let error = check(without(original, at)).unwrap_err();
            assert!(
                matches!(&error, RecipeError::Lacks { name, task: t, .. } if *name == original.name && t == task)
            );
            let sentence = error.to_string();
            let neighbours =
                [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| tasks.get(at));
            for word in neighbours.chain([&original.name, task]) {
                assert!(sentence.contains(word.as_str()), "{word}: {sentence}");
            }
        }
    }
    let in_place = builtin().recipe("InPlace").unwrap().clone();
    assert_eq!(
        check(without(&in_place, 1)).unwrap_err().to_string(),
        "recipe InPlace has no task await-spec-update, which every plan of that name needs: add it between \
         update-node-specs and mark-ready; custom tasks may be anywhere"
    );
    let blue_green = builtin().recipe("BlueGreen").unwrap().clone();
    assert!(
        matches!(check(without(&blue_green, 4)), Err(RecipeError::Lacks { task, .. }) if task == "switch-traffic")
    );
}

#[test]
fn swapped_tasks_are_refused() {
    for original in builtin().recipes() {
        for first in 0..original.tasks.len() {
            for second in first + 1..original.tasks.len() {
                let mut swapped = padded(original);
                swapped.tasks.swap(2 * first + 1, 2 * second + 1);
                let error = check(swapped).unwrap_err();
                let found = &original.tasks[second].type_;
                assert!(
                    matches!(&error, RecipeError::OutOfTurn { task, index, .. } if task == found && *index == 2 * first + 1),
                    "{error}"
                );
                assert!(error.to_string().contains(&names(original).join(", ")), "{error}");
            }
        }
    }
}

#[test]
fn duplicate_task_is_refused_at_any_position() {
    for original in builtin().recipes() {
        for step in &original.tasks {
            for place in 0..=original.tasks.len() {
                let mut twice = original.clone();
                twice.tasks.insert(place, step.clone());
                let error = check(twice).unwrap_err();
                assert!(matches!(&error, RecipeError::OutOfTurn { .. }), "{error}");
            }
        }
    }
}

#[test]
fn task_without_required_params_is_refused() {
    let original = builtin().recipe("HardFork").unwrap().clone();
    let mut bare = original.clone();
    bare.tasks[0].params.clear();
    assert_eq!(
        check(bare).unwrap_err().to_string(),
        "recipe HardFork: task create-entrants needs the params {\"running\":true}, as in the built-in recipe"
    );
    let with_params =
        builtin().recipes().flat_map(|r| r.tasks.clone()).filter(|step| !step.params.is_empty()).count();
    assert_eq!(with_params, 1, "name what becomes of the params of others");
}

#[test]
fn builtin_recipes_and_custom_recipes_are_accepted() {
    assert_eq!(builtin().check_all(), Ok(()));
    assert_eq!(check(recipe(vec![nothing()])), Ok(()));
    assert!(builtin().is_builtin("switch-traffic") && !builtin().is_builtin("test-nothing"));
}

#[tokio::test]
async fn stored_plan_runs_whatever_tasks_it_has() {
    let seed = PlanSeed { uid: "u", target_hash: "v1:0", now: now(), attempt: 0, disambiguator: "" };
    let mut plan = Recipe { name: "InPlace".to_owned(), tasks: vec![nothing()] }.plan(seed);
    assert_eq!(advance(&mut plan, &builtin(), &Env::new(), now(), 60).await, Advance::Ended);
    assert_eq!(plan.state, PlanState::Complete);
}

proptest! {
    #[test]
    fn custom_tasks_are_allowed_anywhere(
        which in any::<Index>(),
        places in prop::collection::vec(any::<Index>(), 0..20),
    ) {
        let registry = builtin();
        let originals: Vec<&Recipe> = registry.recipes().collect();
        let mut tasks: Vec<Step> = which.get(&originals).tasks.clone();
        for place in places {
            tasks.insert(place.index(tasks.len() + 1), nothing());
        }
        prop_assert_eq!(check(Recipe { name: which.get(&originals).name.clone(), tasks }), Ok(()));
    }
}
