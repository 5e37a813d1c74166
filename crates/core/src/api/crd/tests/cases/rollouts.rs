//! Rollouts of existing StatefulSets: which they are, and how they are updated.

use serde_json::{Value, json};

use super::hooks::one;
use super::{Case, rollout};

const SETS: &str = "spec.statefulSets";
const STRATEGY: &str = "spec.strategy";
const HOOKS: &str = "spec.strategy.hooks";

/// A rollout of the StatefulSets that this selects.
fn of(sets: Value) -> Value {
    rollout(&[(SETS, sets)])
}

fn with(strategy: Value) -> Value {
    rollout(&[(STRATEGY, strategy)])
}

pub(super) fn selection() -> Vec<Case> {
    let says = "statefulSets needs either names or a selector, but not both";
    let selector = json!({"matchLabels": {"app": "ledger"}});
    let many = |count: usize| of(json!({"names": (0..count).map(|n| format!("s-{n}")).collect::<Value>()}));
    let names = "spec.statefulSets.names";
    vec![
        Case::new("neither names nor a selector", of(json!({})), rollout(&[]), SETS, says),
        Case::new("no names", of(json!({"names": []})), of(json!({"names": ["ledger"]})), SETS, says),
        Case::new(
            "both names and a selector",
            of(json!({"names": ["ledger"], "selector": selector})),
            of(json!({"selector": selector})),
            SETS,
            says,
        ),
        Case::new("51 StatefulSets", many(51), many(50), names, "must have at most 50 items").by_schema(),
        Case::new(
            "a StatefulSet twice",
            of(json!({"names": ["a", "a"]})),
            of(json!({"names": ["a", "b"]})),
            "spec.statefulSets.names[1]",
            "Duplicate value",
        )
        .by_schema(),
        Case::new(
            "a StatefulSet without a name",
            of(json!({"names": [""]})),
            of(json!({"names": ["a"]})),
            "spec.statefulSets.names[0]",
            "should be at least 1 chars long",
        )
        .by_schema(),
        Case::new("no StatefulSets", rollout(&[(SETS, Value::Null)]), rollout(&[]), SETS, "Required value")
            .by_schema(),
    ]
}

pub(super) fn selectors() -> Vec<Case> {
    let selector = |selector: Value| of(json!({"selector": selector}));
    let good = || selector(json!({"matchLabels": {"app": "ledger"}}));
    let field = "spec.statefulSets.selector";
    let says = "statefulSets.selector is empty and would select every StatefulSet of the namespace";
    let where_ = |expression: Value| selector(json!({"matchExpressions": [expression]}));
    let expression = "spec.statefulSets.selector.matchExpressions[0]";
    let values = "an expression of statefulSets.selector needs values with In and NotIn";
    vec![
        Case::new("a selector of everything", selector(json!({})), good(), field, says),
        Case::new(
            "a selector with nothing in it",
            selector(json!({"matchLabels": {}, "matchExpressions": []})),
            where_(json!({"key": "app", "operator": "Exists"})),
            field,
            says,
        ),
        Case::new(
            "In without values",
            where_(json!({"key": "app", "operator": "In", "values": []})),
            where_(json!({"key": "app", "operator": "In", "values": ["ledger"]})),
            expression,
            values,
        ),
        Case::new(
            "Exists with values",
            where_(json!({"key": "app", "operator": "Exists", "values": ["ledger"]})),
            where_(json!({"key": "app", "operator": "Exists", "values": []})),
            expression,
            values,
        ),
        Case::new(
            "an unknown operator",
            where_(json!({"key": "app", "operator": "Like", "values": ["ledger"]})),
            where_(json!({"key": "app", "operator": "NotIn", "values": ["ledger"]})),
            "spec.statefulSets.selector.matchExpressions[0].operator",
            r#"supported values: "In", "NotIn", "Exists", "DoesNotExist""#,
        )
        .by_schema(),
    ]
}

pub(super) fn strategy() -> Vec<Case> {
    let max = |value: Value| with(json!({"maxUnavailable": value}));
    let max_says = "strategy.maxUnavailable has to be a number above 0, or a percentage from 1% to 100%";
    let of_max = |name, bad: Value, good: Value| {
        Case::new(name, max(bad), max(good), "spec.strategy.maxUnavailable", max_says)
    };
    let steps = |steps: Value| with(json!({"steps": steps}));
    let step_says = "a step of strategy.steps has to be a number above 0, or a percentage from 1% to 100%";
    let of_step = |name, bad: Value, good: Value| {
        Case::new(name, steps(json!([bad])), steps(json!([good])), "spec.strategy.steps[0]", step_says)
    };
    let falls = |name, bad: Value, good: Value, says| {
        Case::new(name, steps(bad), steps(good), "spec.strategy.steps", says)
    };
    let deadline = |seconds: i64| with(json!({"progressDeadlineSeconds": seconds}));
    vec![
        of_max("no pod may be unavailable", 0.into(), 1.into()),
        of_max("0% of the pods may be unavailable", "0%".into(), "1%".into()),
        of_max("more pods than all may be unavailable", "101%".into(), "100%".into()),
        of_step("a step of no pod", 0.into(), 1.into()),
        of_step("a step of 0% of the pods", "0%".into(), "1%".into()),
        falls("numbers of pods that fall", json!([2, "50%", 1]), json!([1, "50%", 2]), "sort the numbers"),
        falls(
            "percentages of the pods that fall",
            json!(["5%", 1, "100%", "50%"]),
            json!(["5%", 1, "50%", "100%"]),
            "sort the percentages",
        ),
        Case::new(
            "eleven steps of pods",
            steps((1..=11).collect()),
            steps((1..=10).collect()),
            "spec.strategy.steps",
            "must have at most 10 items",
        )
        .by_schema(),
        Case::new(
            "an unknown order of StatefulSets",
            with(json!({"groups": "AllAtOnce"})),
            with(json!({"groups": "OneAtATime"})),
            "spec.strategy.groups",
            r#"supported values: "Together", "OneAtATime""#,
        )
        .by_schema(),
        Case::new(
            "an unknown answer to a stall",
            with(json!({"onStall": "Panic"})),
            with(json!({"onStall": "Rollback"})),
            "spec.strategy.onStall",
            r#"supported values: "Hold", "Rollback""#,
        )
        .by_schema(),
        Case::new(
            "a progress deadline of 0 for pods",
            deadline(0),
            deadline(1),
            "spec.strategy.progressDeadlineSeconds",
            "should be greater than or equal to 1",
        )
        .by_schema(),
    ]
}

pub(super) fn hooks() -> Vec<Case> {
    let none = json!({});
    let hooks = |hooks: Value| with(json!({"hooks": hooks}));
    let good = || hooks(one("BeforeNode", &json!({})));
    let at = |point: &'static str| {
        let says = "a hook of a StatefulSetRollout runs at BeforeRollout, BeforeNode, AfterNode, AfterStep or AfterRollout";
        Case::new(point, hooks(one(point, &json!({}))), good(), HOOKS, says)
    };
    let named = |name: &str| hooks(one("BeforeNode", &json!({"name": name})));
    let two = |other: &str| {
        hooks(json!([one("BeforeNode", &json!({}))[0], one("AfterNode", &json!({"name": other}))[0]]))
    };
    let header = |fields: Value| {
        let http = json!({"url": "http://x/", "headers": [fields]});
        hooks(one("BeforeNode", &json!({"wait": null, "http": http})))
    };
    vec![
        at("BeforePromotion"),
        at("AfterPromotion"),
        at("BeforeRemove"),
        Case::new(
            "AfterStep of pods without steps",
            hooks(one("AfterStep", &none)),
            with(json!({"steps": [1], "hooks": one("AfterStep", &none)})),
            HOOKS,
            "a hook at AfterStep needs strategy.steps",
        ),
        Case::new(
            "Rollback after the rollout of pods",
            hooks(one("AfterRollout", &json!({"onFailure": "Rollback"}))),
            hooks(one("AfterRollout", &json!({"onFailure": "Hold"}))),
            HOOKS,
            "onFailure Rollback is not possible at AfterRollout",
        ),
        Case::new(
            "two hooks of one name for pods",
            two("h"),
            two("i"),
            HOOKS,
            "hooks has two hooks with the same name",
        ),
        Case::new(
            "a hook for pods with capitals in its name",
            named("Drain"),
            named("drain"),
            "spec.strategy.hooks[0].name",
            "a hook's name has to be lowercase letters, digits and dashes",
        ),
        Case::new(
            "a hook for pods that does nothing",
            hooks(one("BeforeNode", &json!({"wait": null}))),
            good(),
            "spec.strategy.hooks[0]",
            "a hook needs exactly one of http, job, query, approval and wait",
        ),
        Case::new(
            "a header without a value in a hook for pods",
            header(json!({"name": "a"})),
            header(json!({"name": "a", "value": ""})),
            "spec.strategy.hooks[0].http.headers[0]",
            "a header needs either value or secretKeyRef",
        ),
    ]
}
