//! Hooks, and the steps of an in-place rollout.

use serde_json::{Value, json};

use super::{Case, fleet};

const HOOKS: &str = "spec.updateStrategy.hooks";
const STEPS: &str = "spec.updateStrategy.inPlace.steps";

fn with(strategy: &Value, hooks: Value) -> Value {
    let mut whole = strategy.clone();
    whole["hooks"] = hooks;
    fleet(&[("spec.updateStrategy", whole), ("spec.template.spec.sidecar", json!({"image": "s:1"}))])
}

fn in_place(hooks: Value) -> Value {
    with(&json!({"type": "InPlace"}), hooks)
}

fn blue_green(promotion: &str, hooks: Value) -> Value {
    with(&json!({"type": "BlueGreen", "blueGreen": {"promotion": promotion}}), hooks)
}

fn hard_fork(hooks: Value) -> Value {
    with(&json!({"type": "HardFork", "hardFork": {"haltHeight": 7}}), hooks)
}

/// A hook that waits a second, with fields set; `null` removes one.
fn hook(at: &str, fields: &Value) -> Value {
    let mut hook = json!({"name": "h", "at": at, "wait": {"seconds": 1}});
    for (key, value) in fields.as_object().unwrap() {
        match value {
            Value::Null => drop(hook.as_object_mut().unwrap().remove(key)),
            value => hook[key] = value.clone(),
        }
    }
    hook
}

/// A list of one such hook.
pub(super) fn one(at: &str, fields: &Value) -> Value {
    json!([hook(at, fields)])
}

pub(super) fn steps() -> Vec<Case> {
    let steps = |steps: Value| fleet(&[(STEPS, steps)]);
    let of_step = |name, step: Value, good: Value| {
        let says = "a step of inPlace.steps has to be a number above 0, or a percentage from 1% to 100%";
        Case::new(
            name,
            steps(json!([step])),
            steps(json!([good])),
            "spec.updateStrategy.inPlace.steps[0]",
            says,
        )
    };
    let falls = |name, bad: Value, good: Value, says| Case::new(name, steps(bad), steps(good), STEPS, says);
    vec![
        of_step("a step of no node", 0.into(), 1.into()),
        of_step("a step of 0%", "0%".into(), "1%".into()),
        of_step("a step that is no number", "half".into(), "50%".into()),
        falls("numbers that fall", json!([10, "1%", 9]), json!([9, "1%", 10]), "sort the numbers"),
        falls(
            "percentages that fall",
            json!(["5%", "50%", "10%"]),
            json!(["5%", "10%", "50%"]),
            "sort the percentages",
        ),
        Case::new(
            "eleven steps",
            steps(json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])),
            steps(json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])),
            STEPS,
            "must have at most 10 items",
        )
        .by_schema(),
    ]
}

pub(super) fn points() -> Vec<Case> {
    let none = json!({});
    let with_steps = json!({"type": "InPlace", "inPlace": {"steps": [1]}});
    let promotes = "a hook at BeforePromotion or AfterPromotion needs old nodes";
    let no_way_back = "onFailure Rollback is not possible at BeforeRemove";
    let rollback = json!({"onFailure": "Rollback"});
    vec![
        Case::new(
            "AfterStep without steps",
            in_place(one("AfterStep", &none)),
            with(&with_steps, one("AfterStep", &none)),
            HOOKS,
            "a hook at AfterStep needs updateStrategy.inPlace.steps",
        ),
        Case::new(
            "AfterStep where nothing goes in steps",
            with(&json!({"type": "BlueGreen", "inPlace": {"steps": [1]}}), one("AfterStep", &none)),
            with(&with_steps, one("AfterStep", &none)),
            HOOKS,
            "a hook at AfterStep needs updateStrategy.type InPlace",
        ),
        Case::new(
            "BeforePromotion where nothing is promoted",
            in_place(one("BeforePromotion", &none)),
            blue_green("WhenReady", one("BeforePromotion", &none)),
            HOOKS,
            promotes,
        ),
        Case::new(
            "AfterPromotion where nothing is promoted",
            in_place(one("AfterPromotion", &none)),
            blue_green("WhenReady", one("AfterPromotion", &none)),
            HOOKS,
            promotes,
        ),
        Case::new(
            "AfterPromotion of a fork",
            hard_fork(one("AfterPromotion", &none)),
            hard_fork(one("BeforePromotion", &none)),
            HOOKS,
            "a hook at AfterPromotion needs updateStrategy.type BlueGreen",
        ),
        Case::new(
            "AfterPromotion where the old nodes go first",
            blue_green("Immediately", one("AfterPromotion", &none)),
            blue_green("Manual", one("AfterPromotion", &none)),
            HOOKS,
            promotes,
        ),
        Case::new(
            "Rollback of what leaves",
            in_place(one("BeforeRemove", &rollback)),
            in_place(one("BeforeNode", &rollback)),
            HOOKS,
            no_way_back,
        ),
        Case::new(
            "Rollback where the old set is gone",
            blue_green("WhenReady", one("AfterRollout", &rollback)),
            in_place(one("AfterRollout", &rollback)),
            HOOKS,
            no_way_back,
        ),
        Case::new(
            "an unknown place",
            in_place(one("BeforeLunch", &none)),
            in_place(one("BeforeRollout", &none)),
            "spec.updateStrategy.hooks[0].at",
            r#"supported values: "BeforeRollout", "BeforeNode""#,
        )
        .by_schema(),
    ]
}

pub(super) fn hooks() -> Vec<Case> {
    let exactly_one = "a hook needs exactly one of http, job, query, approval and wait";
    let good = || in_place(one("BeforeNode", &json!({})));
    let bad = |fields: Value| in_place(one("BeforeNode", &fields));
    let name = "a hook's name has to be lowercase letters, digits and dashes";
    let named = |text: &str| in_place(json!([hook("BeforeNode", &json!({"name": text}))]));
    let header = |fields: Value| {
        let http = json!({"url": "http://x/", "headers": [fields]});
        in_place(one("BeforeNode", &json!({"wait": null, "http": http})))
    };
    let secret = json!({"name": "s", "key": "k"});
    let two_ways = "a header needs either value or secretKeyRef";
    let of_headers = "spec.updateStrategy.hooks[0].http.headers[0]";
    let timeout = |seconds: i64| in_place(one("BeforeNode", &json!({"timeoutSeconds": seconds})));
    let timeout_field = "spec.updateStrategy.hooks[0].timeoutSeconds";
    let many = |count: usize| {
        let each = (0..count).map(|n| hook("BeforeNode", &json!({"name": format!("h-{n}")})));
        in_place(each.collect())
    };
    let field = "spec.updateStrategy.hooks[0]";
    vec![
        Case::new("a hook that does nothing", bad(json!({"wait": null})), good(), field, exactly_one),
        Case::new("a hook that does two things", bad(json!({"approval": {}})), good(), field, exactly_one),
        Case::new(
            "two hooks of one name",
            in_place(json!([hook("BeforeNode", &json!({})), hook("AfterNode", &json!({}))])),
            in_place(json!([hook("BeforeNode", &json!({})), hook("AfterNode", &json!({"name": "i"}))])),
            HOOKS,
            "hooks has two hooks with the same name",
        ),
        Case::new(
            "a name with capitals",
            named("Drain"),
            named("drain"),
            "spec.updateStrategy.hooks[0].name",
            name,
        ),
        Case::new(
            "a name that ends in a dash",
            named("a-"),
            named("a"),
            "spec.updateStrategy.hooks[0].name",
            name,
        ),
        Case::new(
            "a name of 64 characters",
            named(&"a".repeat(64)),
            named(&"a".repeat(63)),
            "spec.updateStrategy.hooks[0].name",
            "may not be more than 63",
        )
        .by_schema(),
        Case::new("seventeen hooks", many(17), many(16), HOOKS, "must have at most 16 items").by_schema(),
        Case::new(
            "no time at all",
            timeout(0),
            timeout(1),
            timeout_field,
            "should be greater than or equal to 1",
        )
        .by_schema(),
        Case::new(
            "more than a day",
            timeout(86_401),
            timeout(86_400),
            timeout_field,
            "should be less than or equal to 86400",
        )
        .by_schema(),
        Case::new(
            "an unknown answer to a hook's failure",
            bad(json!({"onFailure": "Panic"})),
            bad(json!({"onFailure": "Continue"})),
            "spec.updateStrategy.hooks[0].onFailure",
            r#"supported values: "Hold", "Rollback", "Continue""#,
        )
        .by_schema(),
        Case::new(
            "a header without a value",
            header(json!({"name": "a"})),
            header(json!({"name": "a", "value": ""})),
            of_headers,
            two_ways,
        ),
        Case::new(
            "a header with two values",
            header(json!({"name": "a", "value": "b", "secretKeyRef": secret})),
            header(json!({"name": "a", "secretKeyRef": secret})),
            of_headers,
            two_ways,
        ),
        Case::new(
            "a Job without a template",
            bad(json!({"wait": null, "job": {}})),
            bad(json!({"wait": null, "job": {"template": {"template": {"newer": [1]}}}})),
            "spec.updateStrategy.hooks[0].job.template",
            "Required value",
        )
        .by_schema(),
    ]
}
