//! The output of `windlass history` for a `WorkerDeployment`: its revisions, their versions, and the ended plans.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::verbs::revisions::{SHOWN, age, aligned, ended};
use windlass_core::revision::drift;

fn name(revision: &Value) -> &str {
    revision["metadata"]["name"].as_str().unwrap_or_default()
}

fn build(revision: &Value) -> &str {
    revision["data"]["buildID"].as_str().unwrap_or_default()
}

fn image(revision: &Value) -> &str {
    revision["data"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

/// The state of a revision's version; empty if the version no longer exists. Under a fixed build ID several revisions are one
/// version, which runs the latest of them.
fn state<'a>(object: &'a Value, revision: &Value) -> &'a str {
    let versions = object["status"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_of_revision = |version: &&Value| {
        version["buildID"] == revision["data"]["buildID"]
            && version["revision"].as_str().is_none_or(|of| of == name(revision))
    };
    versions.iter().find(is_of_revision).and_then(|version| version["state"].as_str()).unwrap_or_default()
}

/// The revisions, newest first, with the differences from the one before; then the ended plans.
pub fn table(object: &Value, stored: &[Value], now: DateTime<Utc>) -> String {
    let status = &object["status"];
    let heads = ["REVISION", "NAME", "STATUS", "AGE", "BUILD", "VERSION", "IMAGE", "CHANGE"];
    let mut rows = vec![heads.map(str::to_owned)];
    for (index, revision) in stored.iter().enumerate().rev() {
        let is = |field: &str| status[field].as_str() == Some(name(revision));
        let word = match (is("currentRevision"), is("updateRevision")) {
            (true, true) => "current",
            (true, false) => "last completed",
            (false, true) => "target",
            (false, false) => "",
        };
        let change = match index.checked_sub(1).map(|before| &stored[before]) {
            Some(before) => drift::summary(&drift::between(&content(before), &content(revision)), SHOWN),
            None => "the oldest stored revision".to_owned(),
        };
        let made = revision["metadata"]["creationTimestamp"].as_str();
        let made = made.and_then(|at| at.parse::<DateTime<Utc>>().ok());
        rows.push([
            revision["revision"].to_string(),
            name(revision).to_owned(),
            word.to_owned(),
            made.map(|at| age(now - at)).unwrap_or_default(),
            build(revision).to_owned(),
            state(object, revision).to_owned(),
            image(revision).to_owned(),
            change,
        ]);
    }
    format!("{}{}", aligned(&rows), ended(status, now))
}

fn content(revision: &Value) -> Value {
    let data = &revision["data"];
    json!({"template": data["template"], "pools": data["pools"], "buildID": data["unsafeCustomBuildID"]})
}

/// The revisions' names, a line each, newest first.
pub fn names(stored: &[Value]) -> String {
    stored.iter().rev().flat_map(|revision| ["controllerrevision.apps/", name(revision), "\n"]).collect()
}

/// The revisions, oldest first, and the ended plans, as data.
pub fn document(object: &Value, stored: &[Value]) -> Value {
    let status = &object["status"];
    let revision = |revision: &Value| {
        json!({
            "revision": revision["revision"],
            "name": name(revision),
            "createdAt": revision["metadata"]["creationTimestamp"],
            "buildID": build(revision),
            "state": state(object, revision),
            "image": image(revision),
            "isCurrent": status["currentRevision"].as_str() == Some(name(revision)),
            "isTarget": status["updateRevision"].as_str() == Some(name(revision)),
        })
    };
    json!({
        "namespace": object["metadata"]["namespace"],
        "name": object["metadata"]["name"],
        "revisions": stored.iter().map(revision).collect::<Vec<_>>(),
        "history": status["history"].as_array().cloned().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(number: i64, build: &str, tag: &str) -> Value {
        json!({
            "metadata": {"name": format!("orders-{number}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
            "revision": number,
            "data": {
                "buildID": build, "unsafeCustomBuildID": "",
                "template": {"spec": {"containers": [{"name": "worker", "image": format!("orders:{tag}")}]}},
            },
        })
    }

    #[test]
    fn worker_history_lists_revisions_with_versions_then_plans() {
        let stored = [revision(1, "v1-aa", "v1"), revision(2, "v2-bb", "v2"), revision(3, "v3-cc", "v3")];
        let object = json!({
            "metadata": {"namespace": "shop", "name": "orders"},
            "status": {
                "currentRevision": "orders-2", "updateRevision": "orders-3",
                "versions": [
                    {"buildID": "v2-bb", "revision": "orders-2", "state": "Current"},
                    {"buildID": "v3-cc", "state": "Ramping"},
                ],
                "history": [{
                    "planID": "abc", "recipe": "WorkerRollout", "targetHash": "v2-bb", "outcome": "Complete",
                    "finishedAt": "2026-01-01T00:01:00Z",
                }],
            },
        });
        let now = "2026-01-01T00:03:00Z".parse().unwrap();
        assert_eq!(
            table(&object, &stored, now),
            "\
REVISION   NAME       STATUS           AGE   BUILD   VERSION   IMAGE       CHANGE
3          orders-3   target           3m    v3-cc   Ramping   orders:v3   template.spec.containers[name=worker].image changes from \"orders:v2\" to \"orders:v3\"
2          orders-2   last completed   3m    v2-bb   Current   orders:v2   template.spec.containers[name=worker].image changes from \"orders:v1\" to \"orders:v2\"
1          orders-1                    3m    v1-aa             orders:v1   the oldest stored revision

PLAN   RECIPE          TARGET   OUTCOME    ENDED    WHY
abc    WorkerRollout   v2-bb    Complete   2m ago
"
        );
        let names = names(&stored);
        assert!(names.starts_with("controllerrevision.apps/orders-3\n"), "{names}");
        let printed = document(&object, &stored);
        let of = |index: usize| {
            let one = &printed["revisions"][index];
            (
                one["state"].as_str().unwrap(),
                one["isCurrent"].as_bool().unwrap(),
                one["isTarget"].as_bool().unwrap(),
            )
        };
        assert_eq!(
            [of(0), of(1), of(2)],
            [("", false, false), ("Current", true, false), ("Ramping", false, true)]
        );
        assert_eq!(printed["history"][0]["outcome"], "Complete");
    }
}
