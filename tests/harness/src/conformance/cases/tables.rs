//! kubectl's other requests: tables, discovery, and schemas.

use http::Request;
use kube::client::Body;
use serde_json::{Value, json};

use super::{cases, widget};
use crate::conformance::suite::{Answer, Ctx};

cases![
    table_of_pods_shows_their_status,
    a_table_of_sets_counts_their_pods,
    a_table_of_services_shows_their_ports,
    a_table_of_claims_shows_their_volumes,
    tables_of_small_things_count_what_is_in_them,
    tables_of_cluster_scoped_kinds_have_own_columns,
    a_table_of_events_names_what_they_are_about,
    a_table_of_revisions_names_their_controller,
    a_table_of_a_custom_kind_has_the_columns_of_its_definition,
    a_table_of_a_kind_without_columns_shows_names_and_ages,
    a_row_carries_as_much_of_its_object_as_was_asked_for,
    a_table_of_one_is_a_table,
    a_watch_of_tables_describes_its_columns_once,
    rejection_is_not_a_table,
    discovery_lists_kinds_with_short_names,
    custom_kind_fields_are_published,
    built_in_list_fields_are_published_with_keys,
    a_client_may_ask_what_it_may_do,
];

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

async fn table(w: &Ctx, path: &str) -> Answer {
    let request = Request::get(path).header("accept", TABLE).body(Body::empty()).unwrap();
    let response = w.client.send(request).await.expect("an answer");
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.expect("a body");
    Answer { code, body: serde_json::from_slice(&bytes).unwrap(), warnings: Vec::new() }
}

/// Columns without their descriptions.
fn columns(table: &Value) -> Value {
    let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
    columns.iter().map(|c| json!([c["name"], c["type"], c["format"], c["priority"]])).collect()
}

/// The cells of rows with this name prefix, without ages and addresses.
fn cells(table: &Value, of: &str) -> Value {
    let rows = table["rows"].as_array().cloned().unwrap_or_default();
    let wanted =
        |row: &&Value| row["object"]["metadata"]["name"].as_str().unwrap_or_default().starts_with(of);
    rows.iter().filter(wanted).map(|row| steady(row["cells"].clone())).collect()
}

fn steady(mut cells: Value) -> Value {
    for cell in cells.as_array_mut().into_iter().flatten() {
        let Some(text) = cell.as_str() else { continue };
        let digits = text.trim_end_matches(['s', 'm', 'h']);
        if digits.len() < text.len() && !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()) {
            *cell = "AGE".into();
        } else if text.split('.').count() == 4 && text.starts_with("10.") {
            *cell = "IP".into();
        } else if text.len() == 20 && text.ends_with('Z') {
            *cell = "TIME".into();
        }
    }
    cells
}

async fn noted(w: &Ctx, what: &str, path: &str, of: &str) {
    let answer = table(w, path).await;
    w.note(what, json!([answer.body["kind"], answer.body["apiVersion"], columns(&answer.body)]));
    w.note("cells", cells(&answer.body, of));
}

fn pod(name: &str, image: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": "played-1", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": image}]}})
}

async fn table_of_pods_shows_their_status(w: &Ctx) {
    w.made(&w.at("pods"), pod("runs", "c:1")).await;
    w.made(&w.at("pods"), pod("starves", "c:nope")).await;
    let mut idle = pod("waits", "c:1");
    idle["spec"]["nodeName"] = Value::Null;
    idle["spec"]["schedulerName"] = "nobody".into();
    idle["spec"]["readinessGates"] = json!([{"conditionType": "a/b"}]);
    w.made(&w.at("pods"), idle).await;
    w.until_is(&w.at("pods/runs"), |p| p["status"]["containerStatuses"][0]["ready"] == true).await;
    w.until_is(&w.at("pods/starves"), |p| {
        p["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    })
    .await;
    noted(w, "pods", &w.at("pods"), "").await;
}

async fn a_table_of_sets_counts_their_pods(w: &Ctx) {
    let labels = json!({"app": "s"});
    w.made(
        &w.at("apps:statefulsets"),
        json!({"metadata": {"name": "s"}, "spec": {
            "replicas": 2, "serviceName": "s", "selector": {"matchLabels": labels}, "podManagementPolicy": "Parallel",
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}}}}),
    )
    .await;
    w.until_is(&w.at("apps:statefulsets/s"), |s| s["status"]["readyReplicas"] == 2).await;
    noted(w, "sets", &w.at("apps:statefulsets"), "").await;
}

async fn a_table_of_services_shows_their_ports(w: &Ctx) {
    for (name, spec) in [
        ("headless", json!({"clusterIP": "None", "selector": {"a": "b", "c": "d"}})),
        (
            "plain",
            json!({"ports": [{"name": "x", "port": 80}, {"name": "y", "port": 81, "protocol": "UDP"}]}),
        ),
    ] {
        w.made(&w.at("services"), json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    noted(w, "services", &w.at("services"), "").await;
}

async fn a_table_of_claims_shows_their_volumes(w: &Ctx) {
    w.made(
        &w.at("persistentvolumeclaims"),
        json!({"metadata": {"name": "c"}, "spec": {"storageClassName": "none-such", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}),
    )
    .await;
    noted(w, "claims", &w.at("persistentvolumeclaims"), "").await;
    w.note("volumes", columns(&table(w, "/api/v1/persistentvolumes").await.body));
}

async fn tables_of_small_things_count_what_is_in_them(w: &Ctx) {
    w.made(
        &w.at("configmaps"),
        json!({"metadata": {"name": "x"}, "data": {"a": "1"}, "binaryData": {"b": "AA=="}}),
    )
    .await;
    noted(w, "configmaps", &w.at("configmaps"), "x").await;
    w.made(&w.at("secrets"), json!({"metadata": {"name": "x"}, "data": {"a": "AA=="}})).await;
    noted(w, "secrets", &w.at("secrets"), "x").await;
    w.made(&w.at("serviceaccounts"), json!({"metadata": {"name": "x"}})).await;
    noted(w, "serviceaccounts", &w.at("serviceaccounts"), "x").await;
    w.made(&w.at("lease:leases"), json!({"metadata": {"name": "x"}, "spec": {"holderIdentity": "me"}})).await;
    noted(w, "leases", &w.at("lease:leases"), "x").await;
    w.made(
        &w.at("endpoints"),
        json!({"metadata": {"name": "x"}, "subsets": [{"addresses": [{"ip": "10.1.1.1"}, {"ip": "10.1.1.2"}],
            "ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}]}),
    )
    .await;
    noted(w, "endpoints", &w.at("endpoints"), "x").await;
}

async fn tables_of_cluster_scoped_kinds_have_own_columns(w: &Ctx) {
    noted(w, "namespaces", "/api/v1/namespaces", "default").await;
    w.note("nodes", columns(&table(w, "/api/v1/nodes").await.body));
    w.note("classes", columns(&table(w, "/apis/storage.k8s.io/v1/storageclasses").await.body));
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    noted(w, "definitions", path, "widgets").await;
}

async fn a_table_of_events_names_what_they_are_about(w: &Ctx) {
    let about = json!({"kind": "Pod", "name": "p", "namespace": w.ns, "fieldPath": "spec.containers{c}"});
    w.made(
        &w.at("events"),
        json!({"metadata": {"name": "old"}, "involvedObject": about, "reason": "R", "message": " m ", "type": "Warning",
            "count": 3, "source": {"component": "kubelet", "host": "h"},
            "firstTimestamp": "2020-01-01T00:00:00Z", "lastTimestamp": "2020-01-01T00:00:00Z"}),
    )
    .await;
    w.made(
        &w.at("events:events"),
        json!({"metadata": {"name": "new"}, "regarding": about, "reason": "R", "note": "n", "type": "Normal",
            "action": "A", "reportingController": "c", "reportingInstance": "i", "eventTime": "2020-01-01T00:00:00.000000Z"}),
    )
    .await;
    let answer = table(w, &w.at("events")).await;
    w.note("columns", columns(&answer.body));
    let mut rows = cells(&answer.body, "");
    for row in rows.as_array_mut().unwrap() {
        // Six years, and growing.
        row[0] = Value::Null;
        row[7] = Value::Null;
    }
    w.note("cells", rows);
}

async fn a_table_of_revisions_names_their_controller(w: &Ctx) {
    let set = w
        .made(
            &w.at("apps:statefulsets"),
            json!({"metadata": {"name": "s"}, "spec": {
                "replicas": 0, "serviceName": "s", "selector": {"matchLabels": {"a": "s"}},
                "template": {"metadata": {"labels": {"a": "s"}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}}}),
        )
        .await;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": true,
        "uid": set["metadata"]["uid"]}]);
    for (name, owners) in [("free", Value::Null), ("owned", owner)] {
        let body = json!({"metadata": {"name": name, "ownerReferences": owners, "labels": {"other": "1"}},
            "revision": 7, "data": {"a": 1}});
        w.made(&w.at("apps:controllerrevisions"), body).await;
    }
    noted(w, "revisions", &w.at("apps:controllerrevisions?labelSelector=other"), "").await;
}

async fn a_table_of_a_custom_kind_has_the_columns_of_its_definition(w: &Ctx) {
    w.made(
        &w.at("wl:statefulnodes"),
        json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulNode", "metadata": {"name": "n"},
            "spec": {"podTemplate": {"spec": {"containers": [{"name": "c", "image": "c:1"}]}}}}),
    )
    .await;
    noted(w, "bare", &w.at("wl:statefulnodes"), "").await;
    let described = table(w, &w.at("wl:statefulnodes")).await.body["columnDefinitions"].clone();
    w.note("described", described);
    let status = json!({"status": {"phase": "Running", "currentImage": "c:1",
        "conditions": [
            {"type": "Other", "status": "False", "reason": "R", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    let patched = w.patch(&w.at("wl:statefulnodes/n/status"), crate::conformance::suite::MERGE, status).await;
    w.said("status", &patched);
    w.note("full", cells(&table(w, &w.at("wl:statefulnodes")).await.body, ""));
    w.note("fleets", columns(&table(w, &w.at("wl:nodedeployments")).await.body));
}

async fn a_table_of_a_kind_without_columns_shows_names_and_ages(w: &Ctx) {
    widget::made(w, "one").await;
    noted(w, "widgets", &w.at("conf:widgets"), "").await;
    w.note("described", table(w, &w.at("conf:widgets")).await.body["columnDefinitions"].clone());
}

async fn a_row_carries_as_much_of_its_object_as_was_asked_for(w: &Ctx) {
    w.made(&w.at("configmaps"), json!({"metadata": {"name": "x", "labels": {"l": "1"}}, "data": {"a": "1"}}))
        .await;
    for include in ["", "&includeObject=None", "&includeObject=Metadata", "&includeObject=Object"] {
        let answer = table(w, &w.at(&format!("configmaps?labelSelector=l{include}"))).await;
        let object = &answer.body["rows"][0]["object"];
        w.note(
            include,
            json!([object["kind"], object["apiVersion"], object["metadata"]["labels"], object["data"]]),
        );
        w.note("version", answer.body["metadata"]["resourceVersion"].is_string());
    }
}

async fn a_table_of_one_is_a_table(w: &Ctx) {
    let made = w.made(&w.at("configmaps"), json!({"metadata": {"name": "x"}})).await;
    let answer = table(w, &w.at("configmaps/x")).await;
    w.note("kind", json!([answer.code, answer.body["kind"], answer.body["rows"].as_array().map(Vec::len)]));
    let version = &answer.body["metadata"]["resourceVersion"];
    w.note("version", *version == made["metadata"]["resourceVersion"]);
}

async fn a_watch_of_tables_describes_its_columns_once(w: &Ctx) {
    let first = w.made(&w.at("configmaps"), json!({"metadata": {"name": "x"}})).await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    w.made(&w.at("configmaps"), json!({"metadata": {"name": "y"}, "data": {"a": "1"}})).await;
    w.patch(&w.at("configmaps/y"), crate::conformance::suite::MERGE, json!({"data": {"b": "1"}})).await;
    w.delete(&w.at("configmaps/y"), Value::Null).await;
    let path = w.at(&format!(
        "configmaps?watch=true&timeoutSeconds=2&fieldSelector=metadata.name%3Dy&resourceVersion={version}"
    ));
    let answer = table_lines(w, &path).await;
    for event in answer {
        let object = &event["object"];
        let versioned = object["metadata"]["resourceVersion"].is_string();
        w.note(
            event["type"].as_str().unwrap_or_default(),
            json!([
                object["kind"],
                columns(object),
                cells(object, ""),
                versioned,
                object["columnDefinitions"].is_null()
            ]),
        );
    }
}

async fn table_lines(w: &Ctx, path: &str) -> Vec<Value> {
    let request = Request::get(path).header("accept", TABLE).body(Body::empty()).unwrap();
    let response = w.client.send(request).await.expect("an answer");
    let bytes = response.into_body().collect_bytes().await.expect("a body");
    bytes
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect()
}

async fn rejection_is_not_a_table(w: &Ctx) {
    w.said("none", &table(w, &w.at("configmaps/none")).await);
    w.note("kind", table(w, &w.at("configmaps/none")).await.body["kind"].clone());
}

async fn discovery_lists_kinds_with_short_names(w: &Ctx) {
    for (path, names) in [
        (
            "/api/v1",
            &["pods", "services", "namespaces", "nodes", "events", "configmaps", "persistentvolumeclaims"][..],
        ),
        (
            "/apis/apps/v1",
            &["statefulsets", "statefulsets/scale", "statefulsets/status", "controllerrevisions"],
        ),
        ("/apis/windlass.dev/v1alpha1", &["nodedeployments", "nodedeployments/scale", "statefulnodes"]),
        ("/apis/conformance.windlass.dev/v1", &["widgets", "widgets/status"]),
    ] {
        let list = w.get(path).await.body["resources"].clone();
        for name in names {
            let found = list.as_array().unwrap().iter().find(|r| r["name"] == *name);
            let mut entry = found.cloned().unwrap_or_default();
            if let Some(map) = entry.as_object_mut() {
                map.remove("storageVersionHash");
            }
            w.note(path, entry);
        }
    }
}

async fn custom_kind_fields_are_published(w: &Ctx) {
    let index = w.get("/openapi/v3").await.body;
    let url =
        index["paths"]["apis/conformance.windlass.dev/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    w.note("begins", url.starts_with("/openapi/v3/apis/conformance.windlass.dev/v1"));
    let document = w.get(&url).await.body;
    w.note("version", document["openapi"].clone());
    let name = "dev.windlass.conformance.v1.Widget";
    let schema = &document["components"]["schemas"][name];
    w.note("kind", schema["x-kubernetes-group-version-kind"].clone());
    w.note("required", schema["required"].clone());
    let names = |of: &Value| -> Value {
        of["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| Value::from(name.clone()))
            .collect()
    };
    w.note("fields", names(schema));
    w.note("spec", names(&schema["properties"]["spec"]));
    for field in ["kind", "share", "raw", "limit"] {
        w.note(field, schema["properties"]["spec"]["properties"][field].clone());
    }
    w.note("metadata", schema["properties"]["metadata"]["allOf"].clone());
    let path = "/apis/conformance.windlass.dev/v1/namespaces/{namespace}/widgets/{name}";
    let patch = &document["paths"][path]["patch"];
    w.note("patch", patch["x-kubernetes-group-version-kind"].clone());
    let parameters = patch["parameters"].as_array().cloned().unwrap_or_default();
    w.note("validation", parameters.iter().any(|p| p["name"] == "fieldValidation" && p["in"] == "query"));
}

async fn built_in_list_fields_are_published_with_keys(w: &Ctx) {
    let index = w.get("/openapi/v3").await.body;
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = w.get(&url).await.body;
    let schemas = &document["components"]["schemas"];
    w.note("kind", schemas["io.k8s.api.core.v1.Service"]["x-kubernetes-group-version-kind"].clone());
    for (name, field) in [("ServiceSpec", "ports"), ("PodSpec", "containers"), ("Container", "command")] {
        let field = &schemas[format!("io.k8s.api.core.v1.{name}")]["properties"][field];
        let said: Value = ["type", "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"]
            .map(|key| field[key].clone())
            .into_iter()
            .collect();
        w.note(name, said);
    }
}

async fn a_client_may_ask_what_it_may_do(w: &Ctx) {
    let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let answer = w.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body).await;
    w.note("answer", json!([answer.code, answer.body["kind"], answer.body["status"]["allowed"]]));
}
