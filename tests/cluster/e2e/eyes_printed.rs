//! The output for programs: equal JSON and YAML, with exactly the documented fields.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use windlass_harness::kit::{World, fleet, with};

/// The rows of the page's table of fields.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../docs/reference/terminal.md");
    let (_, table) = page.split_once("| `namespace`, `name`, `strategy`").expect("the table of fields");
    let (table, _) = table.split_once("\n\n").expect("its end");
    let table = format!("`namespace`, `name`, `strategy`{table}");
    table.split('`').skip(1).step_by(2).flat_map(|word| word.split(['.', '['])).map(str::to_owned).collect()
}

/// The names of all fields, at any depth.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, inner) in object {
                found.insert(name.clone());
                fields(inner, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        _ => {}
    }
}

/// Removes durations that differ between two reads.
fn without_time(mut report: Value) -> Value {
    if let Some(rollout) = report["rollout"].as_object_mut() {
        rollout.retain(|name, _| !name.ends_with("Seconds"));
    }
    report
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn json_and_yaml_match_and_all_flag_shows_each_node() {
    let world = World::new("printed").await;
    let hooks = json!([{"name": "go", "at": "BeforeRollout", "approval": {}}]);
    world.settled_fleet(with(fleet(3, "db:1"), &json!({"spec": {"updateStrategy": {"hooks": hooks}}}))).await;
    world.set_image("db:2-nope").await;
    let asked =
        world.until_db("a person is asked", |db| db["status"]["hooks"][0]["taskID"].is_string()).await;
    let mut found = BTreeSet::new();
    let look = async |found: &mut BTreeSet<String>| {
        let printed = windlass(&world, &["status", "nd/db", "-o", "json"]).await;
        let as_json: Value =
            serde_json::from_str(&printed.out).unwrap_or_else(|e| panic!("{e}: {}", printed.out));
        let printed = windlass(&world, &["status", "nd/db", "-o", "yaml"]).await;
        let as_yaml: Value =
            serde_saphyr::from_str(&printed.out).unwrap_or_else(|e| panic!("{e}: {}", printed.out));
        assert_eq!(without_time(as_json.clone()), without_time(as_yaml));
        fields(&as_json, found);
        as_json
    };
    let said = look(&mut found).await;
    assert_eq!(said["hooks"][0]["state"], "AwaitingApproval", "{said:#}");
    let task = asked["status"]["hooks"][0]["taskID"].as_str().unwrap();
    assert_eq!(windlass(&world, &["approve", "nd/db", "--task", task]).await.code, 0);
    world.until_db("a node cannot run", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    let said = look(&mut found).await;
    assert_eq!(said["nodes"].as_array().unwrap().len(), 3, "{said:#}");
    assert_eq!(said["rollout"]["wave"]["of"], 3, "{said:#}");
    let documented = documented();
    let undocumented: Vec<&String> = found.iter().filter(|name| !documented.contains(*name)).collect();
    assert!(undocumented.is_empty() && found.len() > 30, "not on the page: {undocumented:?} of {found:?}");

    let some = windlass(&world, &["status", "nd/db"]).await.out;
    assert!(some.contains("2 nodes available at 1") && !some.contains("db-0"), "{some}");
    let all = windlass(&world, &["status", "nd/db", "--all"]).await.out;
    for name in ["db-0", "db-1", "db-2"] {
        assert!(all.lines().any(|line| line.contains(name) && line.contains("─ ")), "{name}: {all}");
    }
}
