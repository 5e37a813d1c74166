//! The `ControllerRevisions` of the StatefulSets of a StatefulSetRollout: their differences, and the history.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::explain::diff::{Compared, NamedRevision, sides};
use crate::forecast::{Field, fields};
use crate::reader::sentence;
use crate::report::SeenStatefulSets;
use crate::verbs::revisions::{SHOWN, age, aligned, ended};
use windlass_core::api::StatefulSetStatus;
use windlass_core::revision::drift;
use windlass_kube_port::Kind;

/// A StatefulSet with its revisions, oldest first.
pub struct Stored {
    pub set: StatefulSetStatus,
    pub revisions: Vec<Value>,
}

/// The StatefulSets of an object that exist, with their revisions.
pub async fn stored(client: &Client, namespace: &str, object: &Value) -> Result<Vec<Stored>, String> {
    of_sets(client, namespace, SeenStatefulSets::of(object, None, &[]).sets).await
}

/// The differences between the current and the update revision of each of these StatefulSets, by its name. One without
/// these revisions is left out.
pub async fn pending_changes(
    client: &Client,
    namespace: &str,
    sets: Vec<StatefulSetStatus>,
) -> Result<BTreeMap<String, Vec<Field>>, String> {
    let stored = of_sets(client, namespace, sets).await?;
    let changes = stored.iter().filter_map(|of| {
        let compared = compare(std::slice::from_ref(of), &[]).ok()?;
        Some((of.set.name.clone(), compared.into_iter().flat_map(|both| both.fields).collect()))
    });
    Ok(changes.collect())
}

async fn of_sets(
    client: &Client,
    namespace: &str,
    sets: Vec<StatefulSetStatus>,
) -> Result<Vec<Stored>, String> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &Kind::ControllerRevision.resource());
    // The labels of a StatefulSet's revisions are its owner's choice; those of fleets are known.
    let params = ListParams::default().labels("!windlass.dev/deployment");
    let listed = api.list(&params).await;
    let listed = listed.map_err(|error| format!("its revisions cannot be listed: {}", sentence(&error)))?;
    let all: Vec<Value> = listed.items.iter().map(|revision| json!(revision)).collect();
    Ok(grouped(sets, &all))
}

/// The revisions by StatefulSet, by the UID of their owner.
fn grouped(sets: Vec<StatefulSetStatus>, all: &[Value]) -> Vec<Stored> {
    let stored = sets.into_iter().filter(|set| !set.uid.is_empty()).map(|set| {
        let is_own = |revision: &&Value| {
            let owners = revision["metadata"]["ownerReferences"].as_array();
            owners.into_iter().flatten().any(|owner| owner["uid"] == *set.uid)
        };
        let mut revisions: Vec<Value> = all.iter().filter(is_own).cloned().collect();
        revisions.sort_by_key(|revision| revision["revision"].as_i64());
        Stored { set, revisions }
    });
    stored.collect()
}

fn name(revision: &Value) -> &str {
    revision["metadata"]["name"].as_str().unwrap_or_default()
}

/// The template of a revision. `$patch` is how Kubernetes applies it.
fn template(revision: &Value) -> Value {
    let mut template = revision["data"]["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    json!({"template": template})
}

fn image(revision: &Value) -> &str {
    let containers = &revision["data"]["spec"]["template"]["spec"]["containers"];
    containers[0]["image"].as_str().unwrap_or_default()
}

/// The differences in each StatefulSet: from its current to its update revision, or between those that are named. A
/// StatefulSet without a named revision is left out, unless all are.
pub fn compare(stored: &[Stored], named: &[String]) -> Result<Vec<Compared>, String> {
    let mut found = Vec::new();
    let mut unknown = Err("none of its StatefulSets exists yet".to_owned());
    for Stored { set, revisions } in stored {
        let known = revisions.iter().map(|revision| NamedRevision {
            name: name(revision).to_owned(),
            number: revision["revision"].as_i64().unwrap_or_default(),
            data: template(revision),
        });
        let known: Vec<_> = known.collect();
        let both = match named {
            [] => vec![set.current_revision.clone(), set.update_revision.clone()],
            [from] => vec![from.clone(), set.update_revision.clone()],
            named => named.to_vec(),
        };
        let no_spec = || Err("a StatefulSetRollout has no template".to_owned());
        match sides(&Value::Null, &known, no_spec, &both) {
            Ok((from, to)) => {
                let fields = fields(drift::between(&from.data, &to.data));
                found.push(Compared { fields, from: from.name, to: to.name });
            }
            Err(sentence) => unknown = Err(format!("StatefulSet {}: {sentence}", set.name)),
        }
    }
    if found.is_empty() { unknown } else { Ok(found) }
}

/// What a revision is to its StatefulSet.
fn word(set: &StatefulSetStatus, revision: &Value) -> &'static str {
    match (set.current_revision == name(revision), set.update_revision == name(revision)) {
        (true, true) => "current",
        (true, false) => "last completed",
        (false, true) => "target",
        (false, false) => "",
    }
}

/// The revisions of each StatefulSet, newest first, with the differences from the one before; then the ended plans.
pub fn table(object: &Value, stored: &[Stored], now: DateTime<Utc>) -> String {
    let heads = ["STATEFULSET", "REVISION", "NAME", "STATUS", "AGE", "IMAGE", "CHANGE"];
    let mut rows = vec![heads.map(str::to_owned)];
    for Stored { set, revisions } in stored {
        for (index, revision) in revisions.iter().enumerate().rev() {
            let change = match index.checked_sub(1).map(|before| &revisions[before]) {
                Some(before) => {
                    drift::summary(&drift::between(&template(before), &template(revision)), SHOWN)
                }
                None => "the oldest stored revision".to_owned(),
            };
            let made = revision["metadata"]["creationTimestamp"].as_str();
            let made = made.and_then(|at| at.parse::<DateTime<Utc>>().ok());
            rows.push([
                set.name.clone(),
                revision["revision"].to_string(),
                name(revision).to_owned(),
                word(set, revision).to_owned(),
                made.map(|at| age(now - at)).unwrap_or_default(),
                image(revision).to_owned(),
                change,
            ]);
        }
    }
    format!("{}{}", aligned(&rows), ended(&object["status"], now))
}

/// The revisions' names, a line each, newest first.
pub fn names(stored: &[Stored]) -> String {
    let all = stored.iter().flat_map(|stored| stored.revisions.iter().rev());
    all.flat_map(|revision| ["controllerrevision.apps/", name(revision), "\n"]).collect()
}

/// The revisions of each StatefulSet, oldest first, and the ended plans, as data.
pub fn document(object: &Value, stored: &[Stored]) -> Value {
    let of_set = |Stored { set, revisions }: &Stored| {
        let revision = |revision: &Value| {
            json!({
                "statefulSet": set.name,
                "revision": revision["revision"],
                "name": name(revision),
                "createdAt": revision["metadata"]["creationTimestamp"],
                "image": image(revision),
                "isCurrent": set.current_revision == name(revision),
                "isTarget": set.update_revision == name(revision),
            })
        };
        revisions.iter().map(revision).collect::<Vec<_>>()
    };
    json!({
        "namespace": object["metadata"]["namespace"],
        "name": object["metadata"]["name"],
        "revisions": stored.iter().flat_map(of_set).collect::<Vec<_>>(),
        "history": object["status"]["history"].as_array().cloned().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(set: &str, number: i64, image: &str) -> Value {
        json!({
            "metadata": {"name": format!("{set}-r{number}"), "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"uid": format!("uid of {set}"), "controller": true}]},
            "revision": number,
            "data": {"spec": {"template": {"$patch": "replace",
                "spec": {"containers": [{"name": "db", "image": image}]}}}},
        })
    }

    fn object() -> Value {
        let set = |name: &str, current: &str, update: &str| {
            json!({"name": name, "uid": format!("uid of {name}"), "currentRevision": current,
                "updateRevision": update, "replicas": 3})
        };
        json!({"metadata": {"namespace": "shop", "name": "ledger"}, "status": {
            "statefulSets": [set("a", "a-r1", "a-r2"), set("b", "b-r1", "b-r1"), {"name": "c"}],
            "history": [{"planID": "p", "recipe": "InPlace", "targetHash": "v1:0123456", "outcome": "Complete",
                "finishedAt": "2026-01-01T00:00:00Z"}]}})
    }

    fn revisions() -> Vec<Stored> {
        let all = [
            revision("a", 2, "db:2"),
            revision("b", 1, "db:1"),
            revision("a", 1, "db:1"),
            revision("x", 1, "x"),
        ];
        grouped(SeenStatefulSets::of(&object(), None, &[]).sets, &all)
    }

    #[test]
    fn diff_compares_current_to_update_revision_per_statefulset() {
        let printed = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
            let text = |compared: Compared| {
                let fields = compared.fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                format!("{} → {}: {fields}", compared.from, compared.to)
            };
            compare(&revisions(), &named).map(|all| all.into_iter().map(text).collect::<Vec<_>>())
        };
        let image = "template.spec.containers[db].image \"db:1\" → \"db:2\"";
        let of_a = format!("revision 1 (a-r1) → revision 2 (a-r2): {image}");
        let of_b = "revision 1 (b-r1) → revision 1 (b-r1): ".to_owned();
        assert_eq!(printed(&[]), Ok(vec![of_a.clone(), of_b]));
        assert_eq!(printed(&["a-r1"]), Ok(vec![of_a.clone()]));
        assert_eq!(printed(&["1", "2"]), Ok(vec![of_a]));
        assert!(
            printed(&["7"])
                .is_err_and(|error| error.contains("revision 7 is not stored; stored revisions: 1; "))
        );
        assert!(compare(&[], &[]).is_err_and(|error| error.contains("exists yet")));
    }

    #[test]
    fn history_lists_revisions_per_statefulset_and_ended_plans() {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        assert_eq!(
            table(&object(), &revisions(), now),
            "\
STATEFULSET   REVISION   NAME   STATUS           AGE   IMAGE   CHANGE
a             2          a-r2   target           60m   db:2    template.spec.containers[name=db].image changes from \"db:1\" to \"db:2\"
a             1          a-r1   last completed   60m   db:1    the oldest stored revision
b             1          b-r1   current          60m   db:1    the oldest stored revision

PLAN   RECIPE    TARGET   OUTCOME    ENDED     WHY
p      InPlace   01234    Complete   60m ago
"
        );
        assert_eq!(
            names(&revisions()),
            "controllerrevision.apps/a-r2\ncontrollerrevision.apps/a-r1\ncontrollerrevision.apps/b-r1\n"
        );
        let document = document(&object(), &revisions());
        assert_eq!(document["revisions"][1]["isTarget"], true);
        assert_eq!(document["revisions"][1]["statefulSet"], "a");
        assert_eq!(document["history"][0]["planID"], "p");
    }
}
