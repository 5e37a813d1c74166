//! Plans that another version has written, or a person has edited: each fails on its own and affects nothing else.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use futures::FutureExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tasks::{Put, any_put, at, plan_of, put, recipe, seed, world};
use crate::sentence::{MAX_FAILURE_BYTES, MAX_MESSAGE_BYTES};
use crate::{Env, Plan, PlanState, Registry, TaskState, advance};

/// Executes a plan to its end, persisting and reading it back at every step. The error says that it cannot be read.
fn drive(stored: &Value, env: &Env) -> Result<Plan, String> {
    let registry = Registry::new();
    let mut plan = Plan::from_value(stored)?;
    let mut now = at(0);
    for _ in 0..100 {
        if !plan.is_active() {
            break;
        }
        let _ = advance(&mut plan, &registry, env, now, 600).now_or_never().unwrap();
        plan = Plan::from_value(&plan.to_value()).unwrap();
        now += TimeDelta::minutes(1);
    }
    Ok(plan)
}

/// What can be wrong with a persisted plan, or with one of its tasks.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Nothing,
    UnknownType,
    UnknownParam,
    ParamsAreAList,
    NoTasks,
    TaskOfAnotherPlan,
    TaskTwice,
    TaskFailed,
    UnknownPlanState,
    UnknownTaskState,
    NotAPlan,
}

impl Wrong {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            4 => Just(Self::Nothing),
            1 => Just(Self::UnknownType),
            1 => Just(Self::UnknownParam),
            1 => Just(Self::ParamsAreAList),
            1 => Just(Self::NoTasks),
            1 => Just(Self::TaskOfAnotherPlan),
            1 => Just(Self::TaskTwice),
            1 => Just(Self::TaskFailed),
            1 => Just(Self::UnknownPlanState),
            1 => Just(Self::UnknownTaskState),
            1 => Just(Self::NotAPlan),
        ]
    }

    fn garble(self, plan: &mut Value, index: usize) {
        let task = &mut plan["tasks"][index];
        match self {
            Self::Nothing => {}
            Self::UnknownType => task["type"] = json!("test-of-the-next-version"),
            Self::UnknownParam => task["params"]["ofTheNextVersion"] = json!(1),
            Self::ParamsAreAList => task["params"] = json!(["a", 1]),
            Self::TaskOfAnotherPlan => task["id"] = json!("0123456789-0"),
            Self::TaskFailed => task["state"] = json!("Failed"),
            Self::UnknownTaskState => task["state"] = json!("Dreaming"),
            Self::NoTasks => plan["tasks"] = json!([]),
            Self::TaskTwice => {
                let task = task.clone();
                plan["tasks"].as_array_mut().unwrap().push(task);
            }
            Self::UnknownPlanState => plan["state"] = json!("Dreaming"),
            Self::NotAPlan => *plan = json!("to be done"),
        }
    }

    /// True if the tasks before the invalid one are executed.
    fn acts_before(self) -> bool {
        matches!(self, Self::Nothing | Self::UnknownType | Self::UnknownParam | Self::ParamsAreAList)
    }

    fn unreadable(self) -> bool {
        matches!(self, Self::UnknownPlanState | Self::UnknownTaskState | Self::NotAPlan)
    }
}

proptest! {
    #[test]
    fn inexecutable_plan_fails_with_a_reason_and_affects_no_other(
        cases in prop::collection::vec(
            (prop::collection::vec(any_put(), 1..5), Wrong::any(), 0_usize..4),
            1..12,
        ),
    ) {
        let (world, env) = world();
        let mut expected = BTreeMap::new();
        for (nth, (puts, wrong, index)) in cases.into_iter().enumerate() {
            // Each plan writes its own keys, so that the world's state shows which plans acted.
            let own = |put: &Put| Put { key: format!("{nth}{}", put.key), ..put.clone() };
            let puts: Vec<_> = puts.iter().map(own).collect();
            let uid = nth.to_string();
            let mut stored = recipe(puts.iter().map(put).collect()).plan(seed(&uid)).to_value();
            let index = index % puts.len();
            wrong.garble(&mut stored, index);
            let acting = match wrong {
                Wrong::Nothing => puts.len(),
                _ if wrong.acts_before() => index,
                _ => 0,
            };
            expected.extend(puts[..acting].iter().map(|put| (put.key.clone(), put.value)));

            let ended = drive(&stored, &env);
            prop_assert_eq!(ended.is_err(), wrong.unreadable());
            match ended {
                Err(sentence) => prop_assert!(sentence.starts_with("the persisted plan cannot be read: ")),
                Ok(plan) if matches!(wrong, Wrong::Nothing) => {
                    prop_assert_eq!(plan.state, PlanState::Complete);
                }
                Ok(plan) => {
                    prop_assert_eq!(plan.state, PlanState::Failed);
                    prop_assert!(plan.failure.contains(plan.id.as_str()), "{}", plan.failure);
                    let was = Plan::from_value(&stored).unwrap();
                    if acting == index && wrong.acts_before() {
                        prop_assert_eq!(plan.tasks[index].state, TaskState::Failed);
                        prop_assert_eq!(&plan.tasks[index + 1..], &was.tasks[index + 1..]);
                    } else {
                        prop_assert_eq!(plan.tasks, was.tasks);
                    }
                }
            }
        }
        prop_assert_eq!(world.state(), expected);
    }

    #[test]
    fn plan_with_arbitrary_fields_neither_panics_nor_reruns(
        puts in prop::collection::vec(any_put(), 1..4),
        progress in 0_i64..6,
        edits in prop::collection::vec((prop::collection::vec(0_usize..9, 0..4), any_json()), 1..4),
    ) {
        let (world, env) = world();
        let registry = Registry::new();
        let mut plan = plan_of(puts.iter().map(put).collect());
        for turn in 0..progress {
            let _ = advance(&mut plan, &registry, &env, at(turn * 60), 600).now_or_never().unwrap();
        }
        let runs = world.runs().len();
        let mut stored = plan.to_value();
        for (path, value) in edits {
            edit(&mut stored, &path, value);
        }
        match drive(&stored, &env) {
            Err(sentence) => prop_assert!(sentence.len() <= MAX_FAILURE_BYTES),
            Ok(plan) => {
                let was = Plan::from_value(&stored).unwrap();
                prop_assert!(was.is_active() || (plan == was && world.runs().len() == runs));
                prop_assert!(plan.state != PlanState::Complete || !was.is_active() || !plan.tasks.is_empty());
                if was.is_active() && plan.state == PlanState::Failed {
                    prop_assert!(!plan.failure.is_empty() && plan.failure.len() <= MAX_FAILURE_BYTES);
                }
                for (task, was) in plan.tasks.iter().zip(&was.tasks) {
                    prop_assert!(task.message == was.message || task.message.len() <= MAX_MESSAGE_BYTES);
                    prop_assert!(!was.state.is_over() || task == was);
                }
            }
        }
    }

    #[test]
    fn plan_round_trips_through_storage(
        puts in prop::collection::vec(any_put(), 1..4),
        progress in 0_i64..9,
    ) {
        let mut plan = plan_of(puts.iter().map(put).collect());
        let (_, env) = world();
        for turn in 0..progress {
            let _ = advance(&mut plan, &Registry::new(), &env, at(turn * 60), 600).now_or_never().unwrap();
        }
        prop_assert_eq!(Plan::from_value(&plan.to_value()), Ok(plan));
    }
}

#[test]
fn error_of_an_unreadable_plan_is_bounded() {
    let mut stored = plan_of(vec![put(&Put::default())]).to_value();
    stored["state"] = json!("x".repeat(100_000));
    assert!(Plan::from_value(&stored).unwrap_err().len() <= MAX_FAILURE_BYTES);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        prop::sample::select(vec![
            "Active",
            "Complete",
            "Failed",
            "Superseded",
            "Pending",
            "Running",
            "Skipped",
            "test-put",
            "test-say",
            "2023-11-14T22:13:20Z",
            "9999-12-31T23:59:59Z",
            "-262143-01-01T00:00:00Z",
            "+262142-12-31T23:59:59Z",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Puts a value at the end of the path; each step of the path picks a field or an item.
fn edit(at: &mut Value, path: &[usize], value: Value) {
    if let Some((first, rest)) = path.split_first() {
        let inner = match at {
            Value::Object(fields) if !fields.is_empty() => fields.values_mut().cycle_nth(*first),
            Value::Array(items) if !items.is_empty() => items.iter_mut().cycle_nth(*first),
            _ => None,
        };
        if let Some(inner) = inner {
            return edit(inner, rest, value);
        }
    }
    *at = value;
}

trait CycleNth: ExactSizeIterator + Sized {
    /// The item at an index modulo the length.
    fn cycle_nth(mut self, n: usize) -> Option<Self::Item> {
        let len = self.len();
        self.nth(n.checked_rem(len)?)
    }
}

impl<I: ExactSizeIterator> CycleNth for I {}
