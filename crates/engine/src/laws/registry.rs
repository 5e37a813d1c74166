//! Which task records and recipes are accepted, and the errors for those that are not.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tasks::{Put, Say, at, nothing, plan_of, put_key, recipe, seed, step};
use crate::recipe::MAX_TASKS;
use crate::{Builtin, PlanId, PlanSeed, Recipe, RecipeError, Registry, ResolveError, Step, TaskRecord};

fn record(type_: &str, params: Value) -> TaskRecord {
    let mut record = plan_of(vec![step(type_, json!({}))]).tasks.remove(0);
    record.params = params;
    record
}

#[test]
fn unknown_type_error_differs_from_bad_params_and_lists_types() {
    let registry = Registry::new();
    let unknown = record("test-unheard-of", json!({}));
    let error = registry.resolve(&unknown).unwrap_err();
    assert!(matches!(&error, ResolveError::UnknownType { task_id, .. } if *task_id == unknown.id));
    let sentence = error.to_string();
    for part in [unknown.id.as_str(), "test-unheard-of", "test-nothing", "test-put", "test-say"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    assert!(registry.task_types().is_sorted());
}

#[test]
fn invalid_params_are_refused_with_the_reason() {
    let registry = Registry::new();
    for (params, reason) in [
        (json!({"key": "a", "valeu": 1}), "unknown field `valeu`"),
        (json!({"key": "a", "value": "one"}), "expected u32"),
        (json!(["a", 1, true, false, 0, 0]), "not an object"),
        (json!("a"), "not an object"),
    ] {
        let bad = record("test-put", params);
        let error = registry.resolve(&bad).unwrap_err();
        assert!(matches!(&error, ResolveError::BadParams { task_id, .. } if *task_id == bad.id));
        let sentence = error.to_string();
        assert!(sentence.contains("test-put") && sentence.contains(reason), "{sentence}");
    }
    let error = registry.resolve(&record("test-say", json!({}))).unwrap_err().to_string();
    assert!(error.contains("missing field `answer`"), "{error}");
    assert!(registry.resolve(&record("test-nothing", json!({"a": 1}))).is_err());
}

#[test]
fn record_without_params_resolves_like_an_empty_object() {
    let registry = Registry::new();
    for type_ in ["test-nothing", "test-put"] {
        for params in [json!({}), Value::Null] {
            assert!(registry.resolve(&record(type_, params)).is_ok());
        }
        let stored = json!({"id": "p-0", "type": type_, "state": "Pending"});
        let read: TaskRecord = serde_json::from_value(stored.clone()).unwrap();
        assert!(registry.resolve(&read).is_ok());
        assert_eq!(serde_json::to_value(&read).unwrap(), stored);
    }
}

#[test]
fn recipe_is_read_from_yaml_with_params_unchanged() {
    let yaml = "
name: Mine
tasks:
  - type: test-nothing
  - type: test-put
    params: {key: 'yes', value: 3, replayable: true}
";
    let expected = Recipe {
        name: "Mine".to_owned(),
        tasks: vec![nothing(), step("test-put", json!({"key": "yes", "value": 3, "replayable": true}))],
    };
    assert_eq!(Recipe::parse(yaml), Ok(expected.clone()));
    let registry = Registry::new().with_recipe(expected);
    assert_eq!(registry.check_all(), Ok(()));
    assert_eq!(registry.recipe("Mine").unwrap().tasks.len(), 2);
    let replaced = registry.with_recipe(Recipe { name: "Mine".to_owned(), tasks: vec![nothing()] });
    assert_eq!(replaced.recipe("Mine").unwrap().tasks.len(), 1);
}

#[test]
fn unusable_recipe_is_refused_with_a_reason() {
    for (yaml, sentence) in [
        ("name: X\ntasks: []\n", "recipe X has no tasks: give it at least one"),
        ("name: ''\ntasks: [{type: a}]\n", "a recipe has no name: give it one"),
        ("name: X\n", "missing field `tasks`"),
        ("name: X\ntask: []\n", "unknown field `task`"),
        ("name: X\ntasks: [{type: a, parms: {}}]\n", "unknown field `parms`"),
        ("name: X\ntasks: [{type: a, params: [1]}]\n", "the recipe cannot be read"),
    ] {
        let error = Recipe::parse(yaml).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
    let long = Recipe { name: "X".to_owned(), tasks: vec![nothing(); MAX_TASKS + 1] };
    assert!(
        matches!(long.check(&Registry::new()), Err(RecipeError::TooLong { count, .. }) if count > MAX_TASKS)
    );
    let misspelt = recipe(vec![nothing(), step("test-nothign", json!({}))]);
    let error = Registry::new().with_recipe(misspelt).check_all().unwrap_err().to_string();
    assert!(
        error.starts_with("recipe Test: task at index 1 is of the unknown type \"test-nothign\""),
        "{error}"
    );
    let error = Registry::new().with_recipe(recipe(vec![put_key("a")])).recipe("Tset").unwrap_err();
    assert_eq!(error.to_string(), "there is no recipe Tset; there are: Test");
}

#[test]
fn builtin_recipes_are_readable() {
    let registry = Registry::builtin_recipes();
    let shapes: Vec<_> = registry
        .recipes()
        .map(|recipe| {
            let types: Vec<_> = recipe.tasks.iter().map(|step| step.type_.as_str()).collect();
            format!("{}: {}", recipe.name, types.join(" "))
        })
        .collect();
    assert_eq!(
        shapes,
        [
            "BlueGreen: create-entrants await-nodes-running await-caught-up await-promotion switch-traffic \
             retire-incumbents",
            "BlueGreenImmediate: retire-incumbents create-entrants await-nodes-running switch-traffic",
            "GrowClaims: expand-claims await-expansion replace-stateful-set",
            "HardFork: create-entrants submit-halt await-nodes-at-height switch-traffic retire-incumbents",
            "InPlace: update-node-specs await-spec-update mark-ready",
            "MarkReady: mark-ready",
            "MoveNode: replace-pod mark-ready",
            "NodeUpdate: apply-stateful-set apply-service replace-pod observe-image mark-ready",
            "PodUpdate: replace-pod mark-ready",
            "RemoveNode: await-removal",
            "RestartNode: apply-stateful-set replace-pod mark-ready",
        ]
    );
}

#[test]
fn new_plan_is_pending_and_has_stable_ids() {
    let plan = recipe(vec![nothing(), put_key("a")]).plan(seed("uid"));
    assert_eq!(plan.id, "309a36f882");
    let ids: Vec<_> = plan.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["309a36f882-0", "309a36f882-1"]);
    assert!(plan.is_active() && plan.tasks.iter().all(|task| task.started_at.is_none()));
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Seed {
    uid: String,
    target: String,
    micros: i64,
    attempt: u32,
    before: String,
}

prop_compose! {
    /// Seeds from few values, so that many differ in one field only, or in where one field ends.
    fn any_seed()(
        uid in "[ab]{0,3}",
        target in "[ab]{0,3}",
        micros in 0_i64..3,
        attempt in 0_u32..20,
        before in "[01]{0,2}",
    ) -> Seed {
        Seed { uid, target, micros, attempt, before }
    }
}

impl Seed {
    fn plan_id(&self) -> PlanId {
        let seed = PlanSeed {
            uid: &self.uid,
            target_hash: &self.target,
            now: at(0) + TimeDelta::microseconds(self.micros),
            attempt: self.attempt,
            disambiguator: &self.before,
        };
        recipe(vec![nothing()]).plan(seed).id
    }
}

proptest! {
    #[test]
    fn different_plans_have_different_ids(
        seeds in prop::collection::btree_set(any_seed(), 0..60),
    ) {
        let ids: BTreeSet<_> = seeds.iter().map(Seed::plan_id).collect();
        prop_assert_eq!(ids.len(), seeds.len());
        for id in ids {
            let id = id.as_str();
            prop_assert!(id.len() == 10 && id.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')));
        }
    }
}

#[test]
fn step_is_inserted_before_or_after_a_builtin_step() {
    let types = |recipe: Recipe| -> Vec<String> { recipe.tasks.into_iter().map(|step| step.type_).collect() };
    let put = Put { key: "k".to_owned(), value: 1, ..Put::default() };
    let step = Step::of(&put).unwrap();
    assert_eq!((step.type_.as_str(), &step.params["key"]), ("test-put", &json!("k")));
    let recipe = Recipe::builtin(Builtin::NodeUpdate);
    let before = types(recipe.clone().insert_before("replace-pod", step.clone()).unwrap());
    let after = types(recipe.clone().insert_after("replace-pod", step.clone()).unwrap());
    assert_eq!(before[2..4], ["test-put", "replace-pod"]);
    assert_eq!(after[2..4], ["replace-pod", "test-put"]);
    let error = recipe.insert_before("replace-pods", step).unwrap_err();
    assert!(error.to_string().starts_with("recipe NodeUpdate has no task replace-pods"), "{error}");
}

#[test]
fn registered_type_is_resolved_and_its_name_is_unique() {
    let registry =
        Registry::builtin_recipes().with_task::<Put>("test-put").with_task::<Say>("test-other-say");
    for (type_, params) in [("test-put", json!({"key": "k"})), ("test-other-say", json!({"answer": "Wait"}))]
    {
        assert!(registry.resolve(&record(type_, params)).is_ok(), "{type_}");
    }
    for name in ["test-put", "replace-pod"] {
        let error = registry.clone().with_task::<Put>(name).check_all().unwrap_err();
        assert_eq!(error, RecipeError::SameName(name.to_owned()));
    }
}
