//! Fields of fleets only: strategy and numbers, and features that this version lacks.

use serde_json::{Value, json};

use super::{Case, fleet};

pub(super) fn in_place() -> Vec<Case> {
    let max = |value: Value| fleet(&[("spec.updateStrategy.inPlace.maxUnavailable", value)]);
    let max_field = "spec.updateStrategy.inPlace.maxUnavailable";
    let max_says = "inPlace.maxUnavailable has to be a number above 0, or a percentage from 1% to 100%";
    let with = |path: &str, value: Value| fleet(&[(path, value)]);
    let partition = "spec.updateStrategy.inPlace.partition";
    let deadline = "spec.updateStrategy.progressDeadlineSeconds";
    vec![
        Case::new("maxUnavailable 0", max(0.into()), max(1.into()), max_field, max_says),
        Case::new("maxUnavailable below 0", max((-1).into()), max(7.into()), max_field, max_says),
        Case::new("maxUnavailable 0%", max("0%".into()), max("1%".into()), max_field, max_says),
        Case::new("maxUnavailable 101%", max("101%".into()), max("100%".into()), max_field, max_says),
        Case::new(
            "maxUnavailable without a percent sign",
            max("50".into()),
            max("50%".into()),
            max_field,
            max_says,
        ),
        Case::new(
            "maxUnavailable beyond what a number of nodes can be",
            max(2_147_483_648_i64.into()),
            max(2_147_483_647.into()),
            max_field,
            max_says,
        ),
        Case::new(
            "a partition below 0",
            with(partition, (-1).into()),
            with(partition, 0.into()),
            partition,
            "should be greater than or equal to 0",
        )
        .by_schema(),
        Case::new(
            "a progress deadline of 0",
            with(deadline, 0.into()),
            with(deadline, 1.into()),
            deadline,
            "should be greater than or equal to 1",
        )
        .by_schema(),
    ]
}

pub(super) fn strategy() -> Vec<Case> {
    let with = |path: &str, value: Value| fleet(&[(path, value)]);
    vec![
        Case::new(
            "no strategy",
            with("spec.updateStrategy", Value::Null),
            fleet(&[]),
            "spec.updateStrategy",
            "Required value",
        )
        .by_schema(),
        Case::new(
            "a strategy without a type",
            with("spec.updateStrategy", json!({})),
            fleet(&[]),
            "spec.updateStrategy.type",
            "Required value",
        )
        .by_schema(),
        Case::new(
            "an empty strategy type",
            with("spec.updateStrategy.type", "".into()),
            fleet(&[]),
            "spec.updateStrategy.type",
            r#"supported values: "InPlace", "BlueGreen", "HardFork""#,
        )
        .by_schema(),
        Case::new(
            "an unknown strategy type",
            with("spec.updateStrategy.type", "Canary".into()),
            fleet(&[]),
            "spec.updateStrategy.type",
            r#"supported values: "InPlace", "BlueGreen", "HardFork""#,
        )
        .by_schema(),
        Case::new(
            "an unknown promotion",
            with("spec.updateStrategy.blueGreen.promotion", "Later".into()),
            with("spec.updateStrategy.blueGreen.promotion", "Manual".into()),
            "spec.updateStrategy.blueGreen.promotion",
            r#"supported values: "WhenReady", "Manual", "Immediately""#,
        )
        .by_schema(),
        Case::new(
            "an unknown answer to a stall",
            with("spec.updateStrategy.onStall", "Panic".into()),
            with("spec.updateStrategy.onStall", "Rollback".into()),
            "spec.updateStrategy.onStall",
            r#"supported values: "Hold", "Rollback""#,
        )
        .by_schema(),
        Case::new(
            "HardFork without a height",
            hard_fork(&json!({}), json!({"image": "s:1"})),
            hard_fork(&json!({"haltHeight": 1}), json!({"image": "s:1"})),
            "spec.updateStrategy.hardFork.haltHeight",
            "updateStrategy.type HardFork needs hardFork.haltHeight: set the height at which the old nodes halt",
        ),
        Case::new(
            "HardFork without a sidecar",
            hard_fork(&json!({"haltHeight": 1}), Value::Null),
            hard_fork(&json!({"haltHeight": 1}), json!({"url": "http://monitor/{name}"})),
            "spec.template.spec.sidecar",
            "updateStrategy.type HardFork needs a sidecar that reports the height of a node",
        ),
        Case::new(
            "a change to HardFork where there is no sidecar",
            hard_fork(&json!({"haltHeight": 1}), Value::Null),
            hard_fork(&json!({"haltHeight": 1}), json!({"image": "s:1"})),
            "spec.template.spec.sidecar",
            "updateStrategy.type HardFork needs a sidecar that reports the height of a node",
        )
        .after(fleet(&[])),
        Case::new(
            "a HardFork whose sidecar is taken away",
            hard_fork(&json!({"haltHeight": 1}), Value::Null),
            hard_fork(&json!({"haltHeight": 2}), json!({"image": "s:1"})),
            "spec.template.spec.sidecar",
            "updateStrategy.type HardFork needs a sidecar that reports the height of a node",
        )
        .after(hard_fork(&json!({"haltHeight": 1}), json!({"image": "s:1"}))),
        Case::new(
            "HardFork at height 0",
            with("spec.updateStrategy.hardFork.haltHeight", 0.into()),
            with("spec.updateStrategy.hardFork.haltHeight", 1.into()),
            "spec.updateStrategy.hardFork.haltHeight",
            "hardFork.haltHeight has to be above 0",
        ),
    ]
}

fn hard_fork(settings: &Value, sidecar: Value) -> Value {
    fleet(&[
        ("spec.updateStrategy", json!({"type": "HardFork", "hardFork": settings})),
        ("spec.template.spec.sidecar", sidecar),
    ])
}

#[allow(clippy::too_many_lines, reason = "one table of cases")]
pub(super) fn fleet_fields() -> Vec<Case> {
    let with = |path: &str, value: Value| fleet(&[(path, value)]);
    let number = |name, path, bad: i64, good: i64, says| {
        Case::new(name, with(path, bad.into()), with(path, good.into()), path, says).by_schema()
    };
    let extra = |name, path, value: Value, says| Case::new(name, with(path, value), fleet(&[]), path, says);
    let build_id = "spec.unsafeCustomBuildID";
    let bad_build_id = "unsafeCustomBuildID has to be at most 63 letters, digits, '.', '_' and '-'";
    vec![
        number("replicas below 0", "spec.replicas", -1, 0, "should be greater than or equal to 0"),
        number(
            "replicas over 10000",
            "spec.replicas",
            10_001,
            10_000,
            "should be less than or equal to 10000",
        ),
        number(
            "minReadySeconds below 0",
            "spec.minReadySeconds",
            -1,
            0,
            "should be greater than or equal to 0",
        ),
        number(
            "revisionHistoryLimit below 0",
            "spec.revisionHistoryLimit",
            -1,
            0,
            "should be greater than or equal to 0",
        ),
        Case::new(
            "revisionHistoryLimit beyond 32 bits",
            with("spec.revisionHistoryLimit", 2_147_483_648_i64.into()),
            with("spec.revisionHistoryLimit", 2_147_483_647.into()),
            "<nil>",
            "must be of type integer with format int32 in spec.revisionHistoryLimit",
        )
        .by_schema(),
        Case::new(
            "an unknown deletion policy",
            with("spec.deletionPolicy", "Keep".into()),
            with("spec.deletionPolicy", "Retain".into()),
            "spec.deletionPolicy",
            r#"supported values: "Delete", "Retain""#,
        )
        .by_schema(),
        Case::new(
            "no template",
            with("spec.template", Value::Null),
            fleet(&[]),
            "spec.template",
            "Required value",
        )
        .by_schema(),
        extra(
            "a grant in a template",
            "spec.template.spec.grantedHash",
            "v1:00".into(),
            "grantedHash is written by Windlass",
        ),
        extra(
            "a grant's ID in a template",
            "spec.template.spec.grantID",
            "1".into(),
            "grantID is written by Windlass",
        ),
        extra(
            "a halt in a template",
            "spec.template.spec.haltHeight",
            7.into(),
            "haltHeight is written by Windlass",
        ),
        extra(
            "a halt's task in a template",
            "spec.template.spec.haltTaskID",
            "1".into(),
            "haltTaskID is written by Windlass",
        ),
        extra(
            "a wish to watch in a template",
            "spec.template.spec.watchSidecar",
            true.into(),
            "watchSidecar is written by Windlass",
        ),
        extra(
            "a move in a template",
            "spec.template.spec.move",
            json!({"podUID": "a", "nodeName": "m"}),
            "move is written by Windlass",
        ),
        extra(
            "suspend in a template",
            "spec.template.spec.suspend",
            true.into(),
            "suspend cannot be set for a whole NodeDeployment",
        ),
        extra("a bad build ID", build_id, "-v1".into(), bad_build_id),
        extra("a build ID of 64 characters", build_id, "b".repeat(64).into(), bad_build_id),
        extra(
            "a build ID with InPlace",
            build_id,
            "v1".into(),
            "unsafeCustomBuildID cannot be used with updateStrategy.type InPlace",
        ),
    ]
}
