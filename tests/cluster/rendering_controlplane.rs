//! A real API server accepts what Windlass renders, in every field, under strict validation, as in the dry run before
//! a rollout.

use std::fs;

use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use windlass::api::StatefulNodeSpec;
use windlass_core::render::{NodeIdentity, RenderOptions, headless_service, pod_template, stateful_set};
use windlass_harness::controlplane::{ControlPlane, Options};

/// The nodes that this API server refuses, and a part of its message: they exist for their hashes.
const REFUSED: [(&str, &str); 4] = [
    ("newer-kubernetes", "unknown field \"spec.template.spec.workloadRef\""),
    ("ceph-osd", "privileged: Forbidden: disallowed by cluster policy"),
    ("elasticsearch", "privileged: Forbidden: disallowed by cluster policy"),
    // This sidecar mounts a volume of the fleet's claim templates.
    ("hard-fork-relay", "volumeMounts[0].name: Not found: \"data\""),
];

fn identity(name: &str) -> NodeIdentity {
    NodeIdentity {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        uid: "5f2c1d00-0000-4000-8000-000000000000".to_owned(),
        deployment: Some("fleet".to_owned()),
        set: Some("first".to_owned()),
        ..NodeIdentity::default()
    }
}

async fn dry_run(client: &Client, path: &str, object: &Value) -> Result<Value, String> {
    let uri = format!("{path}?dryRun=All&fieldValidation=Strict");
    let request = http::Request::post(uri).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(object).unwrap()).unwrap();
    client.request::<Value>(request).await.map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_accepts_every_rendered_field() {
    let options = Options { crds: false, kubelets: false, ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let client = plane.client().await;
    let nodes = windlass_harness::root().join("tests/golden/nodes");
    for file in fs::read_dir(nodes).unwrap() {
        let entry: Value = serde_json::from_str(&fs::read_to_string(file.unwrap().path()).unwrap()).unwrap();
        let name = entry["name"].as_str().unwrap();
        let spec = StatefulNodeSpec::deserialize(&entry["spec"]).unwrap();
        let template = pod_template(&spec, Some("2026-01-01T00:00:00Z"), &RenderOptions::default()).unwrap();

        let set = stateful_set(&identity(name), &spec, &template, &"v1:hash".into());
        let answer = dry_run(&client, "/apis/apps/v1/namespaces/default/statefulsets", &set).await;
        match REFUSED.iter().find(|(refused, _)| *refused == name) {
            Some((_, sentence)) => assert!(answer.is_err_and(|error| error.contains(sentence)), "{name}"),
            None => assert!(answer.is_ok(), "{name}: {answer:?}"),
        }

        let service = headless_service(&identity(name), &spec);
        let answer = dry_run(&client, "/api/v1/namespaces/default/services", &service).await;
        assert!(answer.is_ok(), "{name}: {answer:?}");
    }
}
