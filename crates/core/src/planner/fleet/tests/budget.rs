//! The PodDisruptionBudget of a fleet, and the budgets of others that select its pods.

use std::collections::BTreeMap;

use chrono::DateTime;
use serde_json::{Value, json};

use crate::api::{NodeDeploymentSpec, NodeDeploymentStatus, Reason};
use crate::observed::{Observed, ObservedBudget};
use crate::planner::fleet::budget::{BudgetProblem, min_available, report};

fn spec(replicas: i32, strategy: &Value, policy: &str) -> NodeDeploymentSpec {
    let mut spec = json!({"replicas": replicas, "updateStrategy": strategy,
        "template": {"spec": {"image": "db:1", "podTemplate": {"spec": {"containers": [{"name": "db"}]}}}}});
    if !policy.is_empty() {
        spec["disruptionBudget"] = json!(policy);
    }
    serde_json::from_value(spec).unwrap()
}

#[test]
fn budget_leaves_to_evictions_what_the_wave_may_take() {
    let in_waves_of = |max: Value| json!({"type": "InPlace", "inPlace": {"maxUnavailable": max}});
    let (of_one, blue) = (json!({"type": "InPlace"}), json!({"type": "BlueGreen"}));
    let table = [
        (3, of_one.clone(), "", 0, Some(2)),
        (3, of_one.clone(), "Managed", 0, Some(2)),
        (5, in_waves_of(json!(2)), "", 0, Some(3)),
        (10, in_waves_of(json!("35%")), "", 0, Some(7)),
        (3, in_waves_of(json!("10%")), "", 0, Some(2)),
        (2, of_one.clone(), "", 0, Some(1)),
        (2, in_waves_of(json!(5)), "", 0, Some(0)),
        (3, blue, "", 0, Some(2)),
        (1, of_one.clone(), "", 0, None),
        (0, of_one.clone(), "", 0, None),
        // Nodes that leave still count.
        (3, of_one.clone(), "", 5, Some(4)),
        (1, of_one.clone(), "", 3, Some(2)),
        (5, of_one.clone(), "", 3, Some(4)),
        (3, of_one, "None", 3, None),
    ];
    for (replicas, strategy, policy, existing, expected) in table {
        let found = min_available(&spec(replicas, &strategy, policy), existing);
        assert_eq!(found, expected, "{replicas} {strategy} {policy} existing: {existing}");
    }
}

fn budget(spec: &Value) -> ObservedBudget {
    ObservedBudget::read(&json!({"metadata": {"name": "theirs", "namespace": "shop"}, "spec": spec}))
}

#[test]
fn budget_overlaps_if_its_selector_selects_a_pod() {
    let labels = |app: &str, zone: &str| -> BTreeMap<String, String> {
        [("app", app), ("zone", zone)].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    };
    let pods = [labels("db", "a"), labels("db", "b")];
    let expression = |key: &str, operator: &str, values: Value| {
        let mut expression = json!({"key": key, "operator": operator});
        if !values.is_null() {
            expression["values"] = values;
        }
        json!({"selector": {"matchExpressions": [expression]}})
    };
    let table = [
        (json!({"selector": {}}), true),
        (json!({}), false),
        (json!({"selector": null}), false),
        (json!({"selector": {"matchLabels": {"app": "db"}}}), true),
        (json!({"selector": {"matchLabels": {"app": "db", "zone": "b"}}}), true),
        (json!({"selector": {"matchLabels": {"app": "db", "zone": "c"}}}), false),
        (json!({"selector": {"matchLabels": {"team": "x"}}}), false),
        (expression("zone", "In", json!(["b", "c"])), true),
        (expression("zone", "NotIn", json!(["a", "b"])), false),
        (expression("app", "Exists", Value::Null), true),
        (expression("team", "DoesNotExist", Value::Null), true),
        (expression("app", "DoesNotExist", Value::Null), false),
    ];
    for (spec, expected) in table {
        let other = budget(&spec);
        let found = BudgetProblem::overlap([&other], &pods);
        assert_eq!(found.is_some(), expected, "{spec}");
        let says = "PodDisruptionBudget theirs selects pods of this fleet, so Windlass keeps no budget of its own, and \
                    only theirs limits evictions. To keep theirs, set disruptionBudget to None; otherwise delete theirs";
        assert!(found.is_none_or(|found| found.message == says));
        assert_eq!(BudgetProblem::overlap([&other], &[]), None, "{spec}: no pod");
    }
}

#[test]
fn budget_condition_exists_only_while_there_is_a_problem() {
    let (mut status, now) = (NodeDeploymentStatus::default(), DateTime::default());
    report(&mut status, Ok(()), 1, now);
    assert_eq!(status, NodeDeploymentStatus::default());
    let problem = BudgetProblem::name_taken("db", "belongs to Deployment x (uid y)");
    report(&mut status, Err(&problem), 2, now);
    let [condition] = status.conditions.as_slice() else { panic!("{:?}", status.conditions) };
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("DisruptionBudgetReady", "False"));
    assert_eq!(
        (condition.reason.as_str(), &condition.message),
        (Reason::NameTaken.as_ref(), &problem.message)
    );
    report(&mut status, Ok(()), 3, now);
    assert_eq!(status.conditions, []);
}
