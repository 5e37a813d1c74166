//! Everything that the operator ever does.

use serde_json::{Value, json};
use windlass::sidecar::{SidecarArgs, SidecarServer, serve};

use windlass_harness::operated::{World, condition, fleet, image};

/// A fleet of three nodes with volume claims that go with their nodes, and a Service.
pub fn with_claims(name: &str) -> Value {
    let mut fleet = fleet(name, 3, "db:1", &json!(1));
    fleet["spec"]["revisionHistoryLimit"] = json!(0);
    fleet["spec"]["service"] = json!({"ports": [{"name": "db", "port": 5432}]});
    fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
    fleet["spec"]["template"]["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    fleet
}

/// Does everything once.
pub async fn run(world: &World) {
    let fleets = world.fleets();
    let mut db = with_claims("db");
    db["spec"]["updateStrategy"]["hooks"] =
        json!([{"name": "seed", "at": "BeforeCreate", "wait": {"seconds": 1}}]);
    world.fleet(db).await;
    world.until_applied("db").await;

    // Two rollouts: the revision before the last is not kept any more.
    for next in ["db:2", "db:3"] {
        world.patch(&fleets, "db", image(next)).await;
        world.until_applied("db").await;
    }

    // Its volumes grow.
    let grown = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
    }]);
    world
        .patch(&fleets, "db", json!({"spec": {"template": {"spec": {"volumeClaimTemplates": grown}}}}))
        .await;
    let is_grown = |set: &Value| {
        set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "2Gi"
    };
    for name in ["db-0", "db-1", "db-2"] {
        world.until(world.api("apps/v1", "StatefulSet"), name, "it has the new size", is_grown).await;
    }
    world.until_applied("db").await;

    // What applies at once.
    world.patch(&fleets, "db", json!({"spec": {"service": {"ports": [{"name": "db", "port": 5433}]}}})).await;
    let changed = |service: &Value| service["spec"]["ports"][0]["port"] == 5433;
    world.until(world.api("v1", "Service"), "db", "the Service has the new port", changed).await;
    world.patch(&fleets, "db", json!({"spec": {"deletionPolicy": "Retain"}})).await;
    let alone = |node: &Value| node["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty);
    let nodes = || world.api("windlass.dev/v1alpha1", "StatefulNode");
    world.until(nodes(), "db-0", "the node has no owner", alone).await;
    world.patch(&fleets, "db", json!({"spec": {"deletionPolicy": "Delete", "service": null}})).await;
    world.until(nodes(), "db-0", "the node has its owner again", |node| !alone(node)).await;

    world.patch(&fleets, "db", json!({"spec": {"replicas": 2}})).await;
    world.until_applied("db").await;

    // The budget follows once the node is gone, and is deleted.
    let budgets = world.api("policy/v1", "PodDisruptionBudget");
    world.until(budgets, "db", "the budget follows", |pdb| pdb["spec"]["minAvailable"] == 1).await;
    world.patch(&fleets, "db", json!({"spec": {"disruptionBudget": "None"}})).await;

    // A revision that no watch shows any more is found by asking for it.
    let revisions = world.api("apps/v1", "ControllerRevision");
    let current = world.get(&fleets, "db").await["status"]["updateRevision"].clone();
    let current = current.as_str().expect("a revision's name");
    world
        .patch(&revisions, current, json!({"metadata": {"labels": {"windlass.dev/deployment": null}}}))
        .await;

    // A pod that the API server refuses: events say why.
    let mut ghost = fleet("ghost", 1, "db:1", &json!(1));
    ghost["spec"]["template"]["spec"]["podTemplate"]["spec"]["serviceAccountName"] = json!("ghost");
    world.fleet(ghost).await;
    let failed = |node: &Value| node["status"]["phase"] == "Failed";
    world.until(nodes(), "ghost-0", "the refusal of the pod is known", failed).await;

    token(world).await;

    // Names that belong to somebody else.
    let labels = json!({"app": "other"});
    let mine = json!({
        "metadata": {"name": "other-0"},
        "spec": {
            "serviceName": "other", "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}},
        },
    });
    world.create("apps/v1", "StatefulSet", mine).await;
    world.fleet(fleet("other", 1, "db:1", &json!(1))).await;
    let refused = |node: &Value| condition(node, "Stalled") == "True/InvalidSpec";
    world.until(nodes(), "other-0", "the node says that its name is taken", refused).await;
}

/// A sidecar is told something with a token.
async fn token(world: &World) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let arguments = SidecarArgs {
        bind: listener.local_addr().expect("an address"),
        caught_up_url: None,
        height_url: None,
        role_url: None,
        token_file: None,
    };
    let sidecar = SidecarServer::new(&arguments);
    let serving = tokio::spawn(serve(listener, sidecar, std::future::pending()));
    let tok = json!({"metadata": {"name": "tok"}, "stringData": {"token": "s3cret"}});
    world.create("v1", "Secret", tok).await;
    let mut fleet = fleet("told", 1, "db:1", &json!(1));
    let spec = &mut fleet["spec"]["template"]["spec"];
    spec["sidecar"] = json!({"image": "sidecar:1", "url": url, "tokenSecret": "tok"});
    spec["podTemplate"]["metadata"] = json!({"annotations": {"windlass.test/sidecar-url": url}});
    world.fleet(fleet).await;
    world.until_applied("told").await;
    serving.abort();
}
