//! Checks a recipe that overrides a built-in one: it has to keep all built-in steps, in order, each once, with their
//! params. Each step prepares the next, and the last one observes the result: without one of them, a plan could
//! complete although work was not done or not observed. Persisted plans are not checked, since another version may have
//! written them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::recipe::{Recipe, RecipeError};
use super::seed::Step;

/// Checks that `recipe` has all steps of `original`, which it overrides. Other tasks may be anywhere.
pub(super) fn check(recipe: &Recipe, original: &Recipe) -> Result<(), RecipeError> {
    let present: BTreeSet<&str> = recipe.tasks.iter().map(|step| step.type_.as_str()).collect();
    let absent = |step: &Step| !present.contains(step.type_.as_str());
    if let Some(at) = original.tasks.iter().position(absent) {
        return Err(RecipeError::Lacks {
            name: recipe.name.clone(),
            task: original.tasks[at].type_.clone(),
            place: place(original, at),
        });
    }
    let required: Vec<String> = original.tasks.iter().map(|step| step.type_.clone()).collect();
    let mut next = original.tasks.iter();
    for (index, step) in recipe.tasks.iter().enumerate().filter(|(_, step)| required.contains(&step.type_)) {
        match next.next().filter(|wanted| wanted.type_ == step.type_) {
            Some(wanted) if has(&step.params, &wanted.params) => {}
            Some(wanted) => {
                return Err(RecipeError::OtherParams {
                    name: recipe.name.clone(),
                    task: step.type_.clone(),
                    params: Value::Object(wanted.params.clone()).to_string(),
                });
            }
            None => {
                return Err(RecipeError::OutOfTurn {
                    name: recipe.name.clone(),
                    task: step.type_.clone(),
                    index,
                    required,
                });
            }
        }
    }
    Ok(())
}

fn has(params: &Map<String, Value>, wanted: &Map<String, Value>) -> bool {
    wanted.iter().all(|(key, value)| params.get(key) == Some(value))
}

/// Where a step belongs, as text that follows "add it".
fn place(original: &Recipe, at: usize) -> String {
    let type_ = |at: usize| original.tasks.get(at).map(|step| step.type_.as_str());
    match (at.checked_sub(1).and_then(type_), type_(at + 1)) {
        (Some(before), Some(after)) => format!(" between {before} and {after}"),
        (Some(before), None) => format!(" after {before}"),
        (None, Some(after)) => format!(" before {after}"),
        (None, None) => String::new(),
    }
}
