//! Watches.

use serde_json::{Value, json};

use super::{cases, widget};
use crate::conformance::suite::{Ctx, MERGE, generation, version};

cases![
    a_watch_from_a_version_shows_only_what_came_after,
    watch_without_a_version_starts_with_existing_objects,
    watch_from_zero_starts_with_existing_objects,
    a_streaming_list_ends_with_a_marked_bookmark,
    watch_shows_a_deleted_object_at_its_deletion_version,
    an_object_that_leaves_the_selection_is_deleted_for_the_watch,
    a_watch_of_one_name_sees_no_other,
    a_write_that_changes_nothing_is_no_event,
    a_dry_run_is_no_event,
    a_held_objects_deletion_is_a_change_first,
    a_watch_of_metadata_shows_metadata,
    versions_of_different_kinds_are_of_one_sequence,
];

fn brief(events: &[Value]) -> Value {
    events
        .iter()
        .map(|e| json!([e["type"], e["object"]["metadata"]["name"], e["object"]["data"]["a"]]))
        .collect()
}

async fn map(w: &Ctx, name: &str, a: &str) -> Value {
    w.made(&w.at("configmaps"), json!({"metadata": {"name": name, "labels": {"l": "x"}}, "data": {"a": a}}))
        .await
}

async fn a_watch_from_a_version_shows_only_what_came_after(w: &Ctx) {
    let first = map(w, "a", "1").await;
    map(w, "b", "1").await;
    w.patch(&w.at("configmaps/a"), MERGE, json!({"data": {"a": "2"}})).await;
    w.delete(&w.at("configmaps/b"), Value::Null).await;
    let path = w.at(&format!("configmaps?watch=true&labelSelector=l&resourceVersion={}", version(&first)));
    w.note("events", brief(&w.events(&path, 3).await));
}

async fn watch_without_a_version_starts_with_existing_objects(w: &Ctx) {
    map(w, "a", "1").await;
    map(w, "b", "1").await;
    w.note("events", brief(&w.events(&w.at("configmaps?watch=true&labelSelector=l"), 2).await));
}

async fn watch_from_zero_starts_with_existing_objects(w: &Ctx) {
    map(w, "a", "1").await;
    w.settle().await;
    w.note(
        "events",
        brief(&w.events(&w.at("configmaps?watch=true&labelSelector=l&resourceVersion=0"), 1).await),
    );
}

async fn a_streaming_list_ends_with_a_marked_bookmark(w: &Ctx) {
    map(w, "a", "1").await;
    let query = "watch=true&labelSelector=l&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let request = http::Request::get(w.at(&format!("configmaps?{query}"))).body(Vec::new()).unwrap();
    let stream = w.client.request_stream(request).await.unwrap();
    let mut lines = std::pin::pin!(futures::AsyncBufReadExt::lines(stream));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let line = futures::StreamExt::next(&mut lines).await.unwrap().unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        seen.push(json!([
            event["type"],
            event["object"]["kind"],
            event["object"]["metadata"]["name"],
            event["object"]["metadata"]["annotations"]
        ]));
    }
    w.note("events", json!(seen));
}

async fn watch_shows_a_deleted_object_at_its_deletion_version(w: &Ctx) {
    let made = map(w, "a", "1").await;
    w.delete(&w.at("configmaps/a"), Value::Null).await;
    // By label, since a namespace that is new gets a map of certificates at any time.
    let path = w.at(&format!("configmaps?watch=true&labelSelector=l&resourceVersion={}", version(&made)));
    let events = w.events(&path, 1).await;
    w.note("events", brief(&events));
    w.note("later version", version(&events[0]["object"]) > version(&made));
    w.note("deletion time", events[0]["object"]["metadata"]["deletionTimestamp"].clone());
}

async fn an_object_that_leaves_the_selection_is_deleted_for_the_watch(w: &Ctx) {
    let made = map(w, "a", "1").await;
    w.patch(&w.at("configmaps/a"), MERGE, json!({"metadata": {"labels": {"l": "y"}}})).await;
    let last = w
        .patch(&w.at("configmaps/a"), MERGE, json!({"metadata": {"labels": {"l": "x"}}, "data": {"a": "2"}}))
        .await;
    let path = w.at(&format!("configmaps?watch=true&labelSelector=l%3Dx&resourceVersion={}", version(&made)));
    let events = w.events(&path, 2).await;
    w.note("events", brief(&events));
    w.note("labels of the first", events[0]["object"]["metadata"]["labels"].clone());
    w.note("version of the second", version(&events[1]["object"]) == version(&last.body));
}

async fn a_watch_of_one_name_sees_no_other(w: &Ctx) {
    let made = map(w, "a", "1").await;
    map(w, "b", "1").await;
    w.patch(&w.at("configmaps/a"), MERGE, json!({"data": {"a": "2"}})).await;
    let path = w.at(&format!(
        "configmaps?watch=true&fieldSelector=metadata.name%3Da&resourceVersion={}",
        version(&made)
    ));
    w.note("events", brief(&w.events(&path, 2).await));
}

async fn a_write_that_changes_nothing_is_no_event(w: &Ctx) {
    let made = map(w, "a", "1").await;
    w.patch(&w.at("configmaps/a"), MERGE, json!({"data": {"a": "1"}})).await;
    w.patch(&w.at("configmaps/a"), MERGE, json!({"data": {"a": "2"}})).await;
    let path = w.at(&format!("configmaps?watch=true&labelSelector=l&resourceVersion={}", version(&made)));
    w.note("events", brief(&w.events(&path, 2).await));
}

async fn a_dry_run_is_no_event(w: &Ctx) {
    let made = map(w, "a", "1").await;
    w.patch(&w.at("configmaps/a?dryRun=All"), MERGE, json!({"data": {"a": "7"}})).await;
    w.delete(&w.at("configmaps/a?dryRun=All"), Value::Null).await;
    let path = w.at(&format!("configmaps?watch=true&labelSelector=l&resourceVersion={}", version(&made)));
    w.note("events", brief(&w.events(&path, 1).await));
}

async fn a_held_objects_deletion_is_a_change_first(w: &Ctx) {
    let mut body = widget::widget("one", json!({"kind": "Square"}));
    body["metadata"]["finalizers"] = json!(["windlass.dev/hold"]);
    let made = w.made(&w.at("conf:widgets"), body).await;
    w.delete(&w.at("conf:widgets/one"), Value::Null).await;
    w.patch(&w.at("conf:widgets/one"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    let path = w.at(&format!("conf:widgets?watch=true&resourceVersion={}", version(&made)));
    let events = w.events(&path, 3).await;
    let seen: Vec<Value> = events
        .iter()
        .map(|e| {
            json!([
                e["type"],
                generation(&e["object"]),
                e["object"]["metadata"]["deletionTimestamp"].is_string(),
                e["object"]["metadata"]["finalizers"]
            ])
        })
        .collect();
    w.note("events", json!(seen));
}

async fn a_watch_of_metadata_shows_metadata(w: &Ctx) {
    map(w, "a", "1").await;
    let request = http::Request::get(w.at("configmaps?watch=true&labelSelector=l"))
        .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
        .body(Vec::new())
        .unwrap();
    let stream = w.client.request_stream(request).await.unwrap();
    let mut lines = std::pin::pin!(futures::AsyncBufReadExt::lines(stream));
    let line = futures::StreamExt::next(&mut lines).await.unwrap().unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    w.note(
        "event",
        json!([
            event["type"],
            event["object"]["kind"],
            event["object"]["metadata"]["name"],
            event["object"]["data"]
        ]),
    );
}

async fn versions_of_different_kinds_are_of_one_sequence(w: &Ctx) {
    let a = map(w, "a", "1").await;
    let b = widget::made(w, "b").await;
    let c = map(w, "c", "1").await;
    w.note("ordered", version(&a) < version(&b) && version(&b) < version(&c));
}
