//! Pods, services and the scheduler.

use serde_json::{Value, json};

use super::cases;
use crate::conformance::suite::{Ctx, MERGE};

cases![
    a_pod_runs_once_it_is_bound,
    a_pod_that_asks_too_much_says_that_it_is_unschedulable,
    a_pod_that_selects_no_node_says_that_it_is_unschedulable,
    a_pods_spec_hardly_changes_but_for_its_images,
    a_misspelt_field_of_a_pod_is_refused_by_strict_validation,
    a_bad_quantity_is_refused,
    quantities_are_stored_in_canonical_form,
    requests_default_to_limits_in_a_pod,
    a_pods_spec_is_filled_in,
    a_pod_needs_a_container_with_a_name_and_an_image,
    a_blank_image_is_good_in_a_template_and_not_in_a_pod,
    a_mount_needs_its_volume,
    duplicate_containers_are_rejected_duplicate_variables_not,
    a_headless_service_keeps_none_and_gets_defaults,
    a_services_address_does_not_change,
    a_service_in_front_of_pods_has_endpoints,
    a_service_needs_ports_unless_it_is_headless,
];

fn pod(name: &str, spec: Value) -> Value {
    let mut full = json!({"containers": [{"name": "c", "image": "c:1"}], "terminationGracePeriodSeconds": 1});
    for (key, value) in spec.as_object().into_iter().flatten() {
        full[key] = value.clone();
    }
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": full})
}

async fn a_pod_runs_once_it_is_bound(w: &Ctx) {
    w.made(&w.at("pods"), pod("p", json!({}))).await;
    let running = w.until_is(&w.at("pods/p"), |p| p["status"]["phase"] == "Running").await;
    w.note("bound", running["spec"]["nodeName"].is_string());
    let scheduled = running["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .any(|c| c["type"] == "PodScheduled" && c["status"] == "True");
    w.note("scheduled", scheduled);
}

fn unschedulable(p: &Value) -> Option<Value> {
    let conditions = p["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == "PodScheduled" && c["status"] == "False").cloned()
}

async fn a_pod_that_asks_too_much_says_that_it_is_unschedulable(w: &Ctx) {
    let resources = json!({"requests": {"cpu": "1000000"}});
    w.made(
        &w.at("pods"),
        pod("big", json!({"containers": [{"name": "c", "image": "c:1", "resources": resources}]})),
    )
    .await;
    let found = w.until_is(&w.at("pods/big"), |p| unschedulable(p).is_some()).await;
    let condition = unschedulable(&found).unwrap();
    w.note("condition", json!([condition["reason"], condition["message"]]));
    w.note("phase", found["status"]["phase"].clone());
}

async fn a_pod_that_selects_no_node_says_that_it_is_unschedulable(w: &Ctx) {
    w.made(&w.at("pods"), pod("picky", json!({"nodeSelector": {"nowhere": "true"}}))).await;
    let found = w.until_is(&w.at("pods/picky"), |p| unschedulable(p).is_some()).await;
    w.note("message", unschedulable(&found).unwrap()["message"].clone());
}

async fn a_pods_spec_hardly_changes_but_for_its_images(w: &Ctx) {
    w.made(&w.at("pods"), pod("p", json!({"schedulerName": "nobody"}))).await;
    let path = w.at("pods/p");
    let containers = json!([{"name": "c", "image": "c:2"}]);
    let answer = w
        .patch(&path, crate::conformance::suite::STRATEGIC, json!({"spec": {"containers": containers}}))
        .await;
    w.note("image", json!([answer.code, answer.body["metadata"]["generation"]]));
    let answer = w.patch(&path, MERGE, json!({"spec": {"hostNetwork": true}})).await;
    w.coded("network", &answer);
    w.note("field", answer.body["details"]["causes"][0]["field"].clone());
}

async fn a_misspelt_field_of_a_pod_is_refused_by_strict_validation(w: &Ctx) {
    let body =
        pod("p", json!({"containers": [{"name": "c", "image": "c:1", "imgae": "c:2"}], "nodeNam": "x"}));
    w.said("strict", &w.post(&w.at("pods?fieldValidation=Strict"), body.clone()).await);
    let loose = w.post(&w.at("pods?fieldValidation=Ignore&dryRun=All"), body).await;
    w.note("ignored", json!([loose.code, loose.warnings]));
}

async fn a_bad_quantity_is_refused(w: &Ctx) {
    let with = |cpu: &str| {
        pod(
            "p",
            json!({"containers": [{"name": "c", "image": "c:1", "resources": {"limits": {"cpu": cpu}}}]}),
        )
    };
    w.said("text", &w.post(&w.at("pods"), with("lots")).await);
    w.said("negative", &w.post(&w.at("pods"), with("-1")).await);
    let resources = json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}});
    let body = pod("p", json!({"containers": [{"name": "c", "image": "c:1", "resources": resources}]}));
    w.said("request above limit", &w.post(&w.at("pods"), body).await);
}

async fn quantities_are_stored_in_canonical_form(w: &Ctx) {
    let limits = json!({"cpu": 0.5, "memory": "1024Mi", "ephemeral-storage": "1000M", "example.com/a": 3});
    let resources =
        json!({"limits": limits, "requests": {"cpu": "0.1", "memory": "128974848", "example.com/a": "3"}});
    let body = pod(
        "p",
        json!({"schedulerName": "nobody", "containers": [{"name": "c", "image": "c:1", "resources": resources}]}),
    );
    let answer = w.post(&w.at("pods"), body).await;
    w.said("create", &answer);
    w.note("resources", answer.body["spec"]["containers"][0]["resources"].clone());
}

async fn requests_default_to_limits_in_a_pod(w: &Ctx) {
    let resources = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let body = pod(
        "p",
        json!({"schedulerName": "nobody", "containers": [{"name": "c", "image": "c:1", "resources": resources}]}),
    );
    let made = w.made(&w.at("pods"), body).await;
    w.note("requests", made["spec"]["containers"][0]["resources"]["requests"].clone());
    w.note("class", made["status"]["qosClass"].clone());
}

async fn a_pods_spec_is_filled_in(w: &Ctx) {
    let container = json!({
        "name": "c", "image": "c", "ports": [{"containerPort": 80}],
        "readinessProbe": {"httpGet": {"port": 80}}, "livenessProbe": {"tcpSocket": {"port": "x"}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B", "value": ""}],
    });
    let volumes = json!([{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "h", "hostPath": {"path": "/x"}},
        {"name": "d", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}}]);
    let body = pod(
        "p",
        json!({"schedulerName": "nobody", "containers": [container], "volumes": volumes, "automountServiceAccountToken": false}),
    );
    let made = w.made(&w.at("pods"), body).await;
    let mut spec = made["spec"].clone();
    spec.as_object_mut().unwrap().retain(|key, _| key != "volumes");
    w.note("spec", spec);
    w.note("volumes", made["spec"]["volumes"].clone());
    w.note("generation", made["metadata"]["generation"].clone());
    w.note("status", made["status"].clone());
}

async fn a_pod_needs_a_container_with_a_name_and_an_image(w: &Ctx) {
    w.said("none", &w.post(&w.at("pods"), pod("p", json!({"containers": []}))).await);
    w.said("bare", &w.post(&w.at("pods"), pod("p", json!({"containers": [{}]}))).await);
    w.said(
        "bad name",
        &w.post(&w.at("pods"), pod("p", json!({"containers": [{"name": "A", "image": "x"}]}))).await,
    );
}

async fn a_blank_image_is_good_in_a_template_and_not_in_a_pod(w: &Ctx) {
    let containers = json!([{"name": "c", "image": " "}]);
    let blank = pod("p", json!({"containers": containers}));
    let answer = w.post(&w.at("pods?dryRun=All"), blank.clone()).await;
    let cause = &answer.body["details"]["causes"][0];
    w.note("pod", json!([answer.code, cause["field"], cause["message"]]));
    let set = json!({"metadata": {"name": "s"}, "spec": {
        "serviceName": "s", "selector": {"matchLabels": {"app": "p"}},
        "template": {"metadata": blank["metadata"], "spec": {"containers": containers}}}});
    w.note("set", w.post(&w.at("apps:statefulsets?dryRun=All"), set).await.code);
}

async fn a_mount_needs_its_volume(w: &Ctx) {
    let container =
        json!({"name": "c", "image": "c:1", "volumeMounts": [{"name": "gone", "mountPath": "/x"}]});
    w.said("pod", &w.post(&w.at("pods"), pod("p", json!({"containers": [container]}))).await);
}

async fn duplicate_containers_are_rejected_duplicate_variables_not(w: &Ctx) {
    let twice = json!([{"name": "c", "image": "c:1"}, {"name": "c", "image": "c:2"}]);
    w.said("containers", &w.post(&w.at("pods"), pod("p", json!({"containers": twice}))).await);
    let env = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let body = pod(
        "p",
        json!({"schedulerName": "nobody", "containers": [{"name": "c", "image": "c:1", "env": env}]}),
    );
    w.coded("variables", &w.post(&w.at("pods"), body).await);
}

async fn a_headless_service_keeps_none_and_gets_defaults(w: &Ctx) {
    let spec = json!({"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": "x"},
        "ports": [{"name": "http", "port": 80}, {"name": "other", "port": 90, "targetPort": "x"}]});
    let made = w.made(&w.at("services"), json!({"metadata": {"name": "s"}, "spec": spec})).await;
    w.note("spec", made["spec"].clone());
    w.note("status", made["status"].clone());
}

async fn a_services_address_does_not_change(w: &Ctx) {
    let made = w
        .made(&w.at("services"), json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}))
        .await;
    w.note("has one", made["spec"]["clusterIP"].is_string());
    let body = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 81}]}});
    let answer = w.put(&w.at("services/s"), body).await;
    w.note(
        "kept by a put",
        json!([answer.code, answer.body["spec"]["clusterIP"] == made["spec"]["clusterIP"]]),
    );
    w.coded(
        "headless now",
        &w.patch(&w.at("services/s"), MERGE, json!({"spec": {"clusterIP": "None"}})).await,
    );
}

async fn a_service_in_front_of_pods_has_endpoints(w: &Ctx) {
    let spec = json!({"selector": {"app": "p"}, "ports": [{"port": 80, "targetPort": 8080}]});
    w.made(&w.at("services"), json!({"metadata": {"name": "s"}, "spec": spec})).await;
    w.made(&w.at("pods"), pod("p", json!({}))).await;
    let found = w
        .until_is(&w.at("endpoints/s"), |e| {
            e["subsets"][0]["addresses"].as_array().is_some_and(|a| a.len() == 1)
        })
        .await;
    w.note("target", found["subsets"][0]["addresses"][0]["targetRef"]["name"].clone());
    w.note("ports", found["subsets"][0]["ports"].clone());
}

async fn a_service_needs_ports_unless_it_is_headless(w: &Ctx) {
    w.said("plain", &w.post(&w.at("services"), json!({"metadata": {"name": "s"}, "spec": {}})).await);
    let spec = json!({"clusterIP": "None"});
    w.said("headless", &w.post(&w.at("services"), json!({"metadata": {"name": "h"}, "spec": spec})).await);
    let spec = json!({"ports": [{"port": 80}, {"port": 81}]});
    w.said("unnamed", &w.post(&w.at("services"), json!({"metadata": {"name": "t"}, "spec": spec})).await);
}
