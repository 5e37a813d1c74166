//! The policy that holds labelled StatefulSets, as `deploy/policies` has it.

use serde_json::{Value, json};

use windlass_harness::controlplane::KubectlOutput;
use windlass_harness::kit::{PATIENCE, World, with};

const POLICY: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/policies/hold.yaml"));
const OPERATOR: &str = "--as=system:serviceaccount:windlass-system:windlass";
const HELD: &str = "RollingUpdate 1000000";
const OPEN: &str = "RollingUpdate 0";

/// A namespace in which the shipped policy applies, and nowhere else: other tests run concurrently.
async fn guarded() -> World {
    let world = World::without_operator("hold").await;
    let name = format!("windlass-hold-{}", &*world.ns);
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(POLICY).expect("two documents");
    for object in &mut objects {
        object["metadata"]["name"] = json!(name);
    }
    objects[1]["spec"]["policyName"] = json!(name);
    objects[1]["spec"]["matchResources"] =
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": &*world.ns}}});
    for object in objects {
        world.cp.kubectl_with(&["create", "--validate=strict", "-f", "-"], &object.to_string()).await.ok();
    }
    let words = ["create", "rolebinding", "operator", "--clusterrole=admin"];
    let account = "--serviceaccount=windlass-system:windlass";
    kubectl(&world, &[&words[..], &[account]].concat(), "").await.ok();
    // It takes a moment until the API server applies it.
    let until = tokio::time::Instant::now() + PATIENCE;
    let probe = labelled("probe").to_string();
    let dry = ["create", "--dry-run=server", "-o", "jsonpath={.spec.updateStrategy}", "-f", "-"];
    loop {
        let said = kubectl(&world, &dry, &probe).await.ok();
        if said.contains("1000000") {
            return world;
        }
        assert!(tokio::time::Instant::now() < until, "the policy is never in force: {said}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

async fn kubectl(world: &World, words: &[&str], input: &str) -> KubectlOutput {
    world.cp.kubectl_with(&[&["-n", &*world.ns][..], words].concat(), input).await
}

/// A StatefulSet without an update strategy.
fn set(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {
            "replicas": 2, "serviceName": name, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "terminationGracePeriodSeconds": 0, "containers": [{"name": "db", "image": "db:1"}],
            }},
        },
    })
}

fn labelled(name: &str) -> Value {
    with(set(name), &json!({"metadata": {"labels": {"windlass.dev/hold": "true"}}}))
}

/// The same with an image, and an update strategy that moves all pods.
fn open(set: &Value, image: &str) -> Value {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
    let template = json!({"spec": {"containers": [{"name": "db", "image": image}]}});
    with(set.clone(), &json!({"spec": {"updateStrategy": strategy, "template": template}}))
}

/// Its update strategy and its partition, as stored.
async fn strategy(world: &World, name: &str) -> String {
    let stored = world.get(&world.sets(), name).await;
    let strategy = &stored["spec"]["updateStrategy"];
    let partition = strategy["rollingUpdate"]["partition"].to_string().replace("null", "");
    format!("{} {partition}", strategy["type"].as_str().unwrap_or_default()).trim().to_owned()
}

async fn patch(world: &World, name: &str, patch: Value, more: &[&str]) {
    let patch = patch.to_string();
    let words = ["patch", "statefulset", name, "--type=merge", "-p", &patch];
    kubectl(world, &[&words[..], more].concat(), "").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn labelled_statefulset_is_held_unless_opened_by_the_operator() {
    let world = guarded().await;
    let apply = ["apply", "-f", "-"];
    let image = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "db", "image": image}]}}}});
    let on_delete = json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}});

    // Without the label it is as written.
    let plain = with(set("plain"), &json!({"spec": {"replicas": 0}}));
    kubectl(&world, &apply, &plain.to_string()).await.ok();
    assert_eq!(strategy(&world, "plain").await, OPEN);
    patch(&world, "plain", image("db:2"), &[]).await;
    assert_eq!(strategy(&world, "plain").await, OPEN);
    patch(&world, "plain", on_delete.clone(), &[]).await;
    assert_eq!(strategy(&world, "plain").await, "OnDelete");

    // With it, it is held from the start, and no pod moves when its source has another strategy beside a new template.
    kubectl(&world, &apply, &labelled("ledger").to_string()).await.ok();
    assert_eq!(strategy(&world, "ledger").await, HELD);
    let is_ready = |set: &Value| set["status"]["readyReplicas"] == 2;
    world.until(&world.sets(), "ledger", "its pods are ready", is_ready).await;
    let pods = world.uids(&world.pods()).await;
    kubectl(&world, &apply, &open(&labelled("ledger"), "db:2").to_string()).await.ok();
    assert_eq!(strategy(&world, "ledger").await, HELD);
    let server_side =
        ["apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller", "-f", "-"];
    kubectl(&world, &server_side, &open(&labelled("ledger"), "db:3").to_string()).await.ok();
    assert_eq!(strategy(&world, "ledger").await, HELD);
    patch(&world, "ledger", on_delete.clone(), &[]).await;
    assert_eq!(strategy(&world, "ledger").await, HELD);
    let replaced = open(&labelled("ledger"), "db:4").to_string();
    kubectl(&world, &["replace", "-f", "-"], &replaced).await.ok();
    assert_eq!(strategy(&world, "ledger").await, HELD);
    let seen = |set: &Value| {
        set["status"]["observedGeneration"] == set["metadata"]["generation"]
            && set["status"]["updateRevision"] != set["status"]["currentRevision"]
    };
    world.until(&world.sets(), "ledger", "its template is seen", seen).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(world.uids(&world.pods()).await, pods);

    // The operator opens it, and a change of something else leaves that open. A new template holds it again.
    patch(&world, "ledger", on_delete.clone(), &[OPERATOR]).await;
    assert_eq!(strategy(&world, "ledger").await, "OnDelete");
    kubectl(&world, &["scale", "statefulset", "ledger", "--replicas=3"], "").await.ok();
    patch(&world, "ledger", json!({"spec": {"replicas": 2}, "metadata": {"labels": {"a": "b"}}}), &[]).await;
    assert_eq!(strategy(&world, "ledger").await, "OnDelete");
    patch(&world, "ledger", image("db:5"), &[OPERATOR]).await;
    assert_eq!(strategy(&world, "ledger").await, "OnDelete");
    patch(&world, "ledger", image("db:6"), &[]).await;
    assert_eq!(strategy(&world, "ledger").await, HELD);
    let all =
        json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}}});
    patch(&world, "ledger", all.clone(), &[OPERATOR]).await;
    assert_eq!(strategy(&world, "ledger").await, OPEN);

    // Whoever takes the label away takes the hold away.
    patch(&world, "ledger", image("db:7"), &[]).await;
    assert_eq!(strategy(&world, "ledger").await, HELD);
    let mut released = all;
    released["metadata"]["labels"] = json!({"windlass.dev/hold": null});
    patch(&world, "ledger", released, &[]).await;
    assert_eq!(strategy(&world, "ledger").await, OPEN);
}
