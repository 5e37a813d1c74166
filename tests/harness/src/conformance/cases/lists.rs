//! GET of objects and lists.

use serde_json::{Value, json};

use super::{cases, widget};
use crate::conformance::suite::{Answer, Ctx, MERGE, version};

cases![
    label_selectors_choose_as_written,
    field_selectors_choose_by_name_and_refuse_other_paths,
    pods_are_chosen_by_node_and_phase,
    a_limited_list_goes_on_where_it_stopped,
    a_page_shows_the_list_as_it_was_when_the_first_was_read,
    a_list_is_ordered_by_name,
    lists_of_version_zero_and_unset_agree_at_rest,
    list_at_a_non_numeric_version_is_rejected,
    a_list_of_an_exact_version_shows_the_past,
    a_broken_selector_is_refused,
    a_list_of_all_namespaces_holds_this_one,
    metadata_alone_can_be_asked_for,
    missing_object_is_not_found,
];

async fn maps(w: &Ctx) {
    for (name, labels) in
        [("a", json!({"x": "1"})), ("b", json!({"x": "2", "y": "1"})), ("c", json!({"z": "1"}))]
    {
        w.made(&w.at("configmaps"), json!({"metadata": {"name": name, "labels": labels}})).await;
    }
}

fn names(answer: &Answer) -> Value {
    let own =
        |item: &&Value| item["metadata"]["name"] != "kube-root-ca.crt" && item["metadata"]["name"] != "steer";
    let items = answer.body["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter(own).map(|item| item["metadata"]["name"].clone()).collect()
}

async fn label_selectors_choose_as_written(w: &Ctx) {
    maps(w).await;
    for selector in [
        "x=1",
        "x==1",
        "x!=1",
        "x",
        "!x,y",
        "!x",
        "x in (1,2)",
        "x notin (1)",
        "x in (1,2),y",
        "x=1,x=2",
        "y=1,!z",
    ] {
        let encoded = selector.replace(' ', "%20").replace('=', "%3D").replace('!', "%21");
        w.note(selector, names(&w.get(&w.at(&format!("configmaps?labelSelector={encoded}"))).await));
    }
}

async fn field_selectors_choose_by_name_and_refuse_other_paths(w: &Ctx) {
    maps(w).await;
    w.note("name", names(&w.get(&w.at("configmaps?fieldSelector=metadata.name%3Da")).await));
    w.note("not name", names(&w.get(&w.at("configmaps?fieldSelector=metadata.name%21%3Da")).await));
    w.coded("data", &w.get(&w.at("configmaps?fieldSelector=data.a%3D1")).await);
    widget::made(w, "one").await;
    w.said("custom", &w.get(&w.at("conf:widgets?fieldSelector=spec.kind%3DSquare")).await);
}

async fn pods_are_chosen_by_node_and_phase(w: &Ctx) {
    let pod = |name: &str, node: Option<&str>| {
        let mut spec = json!({"schedulerName": "nobody", "containers": [{"name": "c", "image": "c:1"}]});
        if let Some(node) = node {
            spec["nodeName"] = node.into();
        }
        json!({"metadata": {"name": name}, "spec": spec})
    };
    w.made(&w.at("pods"), pod("free", None)).await;
    w.made(&w.at("pods"), pod("bound", Some("played-1"))).await;
    w.note("node", names(&w.get(&w.at("pods?fieldSelector=spec.nodeName%3Dplayed-1")).await));
    w.note("none", names(&w.get(&w.at("pods?fieldSelector=spec.nodeName%3D")).await));
    w.until_is(&w.at("pods/bound"), |p| p["status"]["phase"] == "Running").await;
    w.note("pending", names(&w.get(&w.at("pods?fieldSelector=status.phase%3DPending")).await));
}

async fn a_limited_list_goes_on_where_it_stopped(w: &Ctx) {
    for name in ["a", "b", "c", "d", "e"] {
        w.made(&w.at("secrets"), json!({"metadata": {"name": name}})).await;
    }
    let first = w.get(&w.at("secrets?limit=2")).await;
    w.note("first", names(&first));
    w.note("remaining", first.body["metadata"]["remainingItemCount"].clone());
    let token = first.body["metadata"]["continue"].as_str().unwrap().to_owned();
    let second = w.get(&w.at(&format!("secrets?limit=2&continue={token}"))).await;
    w.note("second", names(&second));
    w.note("same version", version(&first.body) == version(&second.body));
    let token = second.body["metadata"]["continue"].as_str().unwrap().to_owned();
    let third = w.get(&w.at(&format!("secrets?limit=2&continue={token}"))).await;
    w.note("third", names(&third));
    w.note("goes on", third.body["metadata"]["continue"].is_string());
}

async fn a_page_shows_the_list_as_it_was_when_the_first_was_read(w: &Ctx) {
    for name in ["a", "b", "c"] {
        w.made(&w.at("secrets"), json!({"metadata": {"name": name}})).await;
    }
    let first = w.get(&w.at("secrets?limit=1")).await;
    w.delete(&w.at("secrets/c"), Value::Null).await;
    w.made(&w.at("secrets"), json!({"metadata": {"name": "d"}})).await;
    let token = first.body["metadata"]["continue"].as_str().unwrap().to_owned();
    w.note("rest", names(&w.get(&w.at(&format!("secrets?continue={token}"))).await));
}

async fn a_list_is_ordered_by_name(w: &Ctx) {
    for name in ["b", "a-1", "a", "a0"] {
        w.made(&w.at("secrets"), json!({"metadata": {"name": name}})).await;
    }
    w.note("names", names(&w.get(&w.at("secrets")).await));
}

async fn lists_of_version_zero_and_unset_agree_at_rest(w: &Ctx) {
    maps(w).await;
    w.settle().await;
    w.note("none", names(&w.get(&w.at("configmaps?labelSelector=x")).await));
    w.note("zero", names(&w.get(&w.at("configmaps?labelSelector=x&resourceVersion=0")).await));
}

async fn list_at_a_non_numeric_version_is_rejected(w: &Ctx) {
    w.coded("list", &w.get(&w.at("configmaps?resourceVersion=abc")).await);
    w.coded("watch", &w.get(&w.at("configmaps?watch=true&resourceVersion=abc")).await);
}

async fn a_list_of_an_exact_version_shows_the_past(w: &Ctx) {
    let old = w.made(&w.at("secrets"), json!({"metadata": {"name": "a"}})).await;
    w.made(&w.at("secrets"), json!({"metadata": {"name": "b"}})).await;
    w.patch(&w.at("secrets/a"), MERGE, json!({"metadata": {"labels": {"l": "1"}}})).await;
    let path = w.at(&format!("secrets?resourceVersionMatch=Exact&resourceVersion={}", version(&old)));
    let answer = w.get(&path).await;
    w.note("names", names(&answer));
    w.note("labels", answer.body["items"][0]["metadata"]["labels"].clone());
    w.note("version", version(&answer.body) == version(&old));
}

async fn a_broken_selector_is_refused(w: &Ctx) {
    w.coded("labels", &w.get(&w.at("configmaps?labelSelector=a%20b")).await);
    w.coded("fields", &w.get(&w.at("configmaps?fieldSelector=a")).await);
}

async fn a_list_of_all_namespaces_holds_this_one(w: &Ctx) {
    maps(w).await;
    let all = w.get("/api/v1/configmaps?labelSelector=x").await;
    let here =
        all.body["items"].as_array().unwrap().iter().filter(|i| i["metadata"]["namespace"] == w.ns.as_str());
    w.note("here", here.count());
    w.note("kind", json!([all.body["kind"], all.body["apiVersion"]]));
}

async fn metadata_alone_can_be_asked_for(w: &Ctx) {
    maps(w).await;
    let request = http::Request::get(w.at("configmaps/b"))
        .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
        .body(Vec::new())
        .unwrap();
    let object: Value = w.client.request(request).await.unwrap();
    w.note(
        "one",
        json!([object["kind"], object["apiVersion"], object["metadata"]["labels"], object["data"]]),
    );
    let request = http::Request::get(w.at("configmaps?labelSelector=x"))
        .header("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
        .body(Vec::new())
        .unwrap();
    let list: Value = w.client.request(request).await.unwrap();
    w.note("list", json!([list["kind"], list["apiVersion"], list["items"].as_array().unwrap().len()]));
}

async fn missing_object_is_not_found(w: &Ctx) {
    let answer = w.get(&w.at("apps:statefulsets/none")).await;
    w.said("set", &answer);
    w.note("details", answer.body["details"].clone());
    w.said("custom", &w.get(&w.at("conf:widgets/none")).await);
}
