//! Objects that a newer definition makes invalid after they were stored can still be deleted.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{api_of, control_plane, dynamic, named};
use windlass_core::api::crd::cases::{self, Case};

/// The group of this test's copy of the kinds, first without rules and then with them.
const GROUP: &str = "stored.windlass.dev";

/// The definitions in another group.
fn definitions() -> Vec<Value> {
    windlass::api::crds()
        .iter()
        .map(|crd| {
            let mut crd = serde_json::to_value(crd).unwrap();
            crd["spec"]["group"] = GROUP.into();
            crd["metadata"]["name"] =
                format!("{}.{GROUP}", crd["spec"]["names"]["plural"].as_str().unwrap()).into();
            for names in ["shortNames", "categories"] {
                crd["spec"]["names"].as_object_mut().unwrap().remove(names);
            }
            crd
        })
        .collect()
}

/// Removes all validation except types.
fn loosen(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for refusing in [
                "x-kubernetes-validations",
                "format",
                "enum",
                "minimum",
                "maximum",
                "maxLength",
                "minLength",
                "pattern",
                "maxItems",
                "x-kubernetes-list-type",
            ] {
                fields.remove(refusing);
            }
            // Elsewhere `required` is a keyword; no field of ours has that name.
            fields.remove("required");
            fields.values_mut().for_each(loosen);
        }
        Value::Array(items) => items.iter_mut().for_each(loosen),
        _ => {}
    }
}

fn in_group(object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = format!("{GROUP}/v1alpha1").into();
    object
}

/// The name of a case's bad object: its own if the name is what is bad.
fn name_of(case: &Case, number: usize) -> String {
    let own = case.bad["metadata"]["name"].as_str().unwrap();
    if own == "db" { format!("bad-{number}") } else { own.to_owned() }
}

async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    for _ in 0..400 {
        if holds().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("waited 20 s in vain for {what}");
}

async fn install(client: &Client, definition: Value) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
    api.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    eventually("the loose definition to be established", async || {
        let conditions = api.get(&name).await.unwrap().status.and_then(|status| status.conditions);
        conditions.into_iter().flatten().any(|c| c.type_ == "Established" && c.status == "True")
    })
    .await;
}

async fn tighten(client: &Client, namespace: &str, definition: &Value) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition["metadata"]["name"].as_str().unwrap();
    let mut stored = api.get(name).await.unwrap();
    stored.spec = serde_json::from_value(definition["spec"].clone()).unwrap();
    api.replace(name, &PostParams::default(), &stored).await.unwrap();
    let refused = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": definition["spec"]["names"]["kind"],
        "metadata": {"name": "too.dotted"}, "spec": {},
    });
    let dry_run = PostParams { dry_run: true, field_manager: None };
    eventually("the strict definition to be served", async || {
        api_of(client, namespace, &refused).create(&dry_run, &dynamic(&refused)).await.is_err()
    })
    .await;
}

/// The refusals of writes that have to succeed, by name.
async fn refusals(api: &Api<DynamicObject>, name: &str, scales: bool) -> Vec<String> {
    let parameters = PatchParams::default();
    let merge = |body: &Value| Patch::Merge(body.clone());
    let mut refused = Vec::new();
    let mut note = |write: &str, answer: Result<(), kube::Error>| {
        if let Err(error) = answer {
            refused.push(format!("{write}: {error}"));
        }
    };
    let status = json!({"status": {"phase": "Ready", "observedGeneration": 1}});
    note("status", api.patch_status(name, &parameters, &merge(&status)).await.map(drop));
    let finalizer = json!({"metadata": {"finalizers": ["windlass.dev/test"], "labels": {"a": "b"}}});
    note("finalizer and label", api.patch(name, &parameters, &merge(&finalizer)).await.map(drop));
    if scales {
        let scale = json!({"spec": {"replicas": 2}});
        note("scale", api.patch_scale(name, &parameters, &merge(&scale)).await.map(drop));
    }
    let released = json!({"metadata": {"finalizers": null}});
    note("finalizer's removal", api.patch(name, &parameters, &merge(&released)).await.map(drop));
    refused
}

#[tokio::test]
async fn stored_invalid_object_can_be_scaled_and_finalized() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("stored").await);
    for mut definition in definitions() {
        loosen(&mut definition["spec"]["versions"][0]["schema"]);
        install(&client, definition).await;
    }
    let cases = cases::all();
    let lasting = |case: &Case| case.old.is_none() && case.name != "replicas below 0";
    let cases = || cases.iter().enumerate().filter(|(_, case)| lasting(case));
    for (number, case) in cases() {
        let bad = in_group(&named(&case.bad, &name_of(case, number)));
        let api = api_of(&client, &ns, &bad);
        api.create(&PostParams::default(), &dynamic(&bad))
            .await
            .unwrap_or_else(|e| panic!("{}: {e}", case.name));
    }
    for definition in definitions() {
        tighten(&client, &ns, &definition).await;
    }
    let mut wrong = Vec::new();
    for (number, case) in cases() {
        let bad = in_group(&case.bad);
        let name = name_of(case, number);
        // A missing required field makes the whole spec invalid, and a new count changes the whole spec.
        let scales = bad["kind"] == "NodeDeployment" && !case.says.starts_with("Required");
        let refused = refusals(&api_of(&client, &ns, &bad), &name, scales).await;
        wrong.extend(refused.into_iter().map(|refusal| format!("{}: {refusal}", case.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
