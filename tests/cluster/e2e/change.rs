//! What counts as a new target, and what the API server would refuse.

use serde_json::{Value, json};

use windlass_harness::kit::{Wave, World, condition, fleet, with};

const NODE: (&str, &str) = ("windlass.dev/v1alpha1", "StatefulNode");

fn misspelt() -> Value {
    json!([{"name": "db", "image": "db:2", "imagePullPolicie": "Always"}])
}

fn bad_quantity() -> Value {
    json!([{"name": "db", "image": "db:2", "resources": {"limits": {"memory": "lots"}}}])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_the_server_refuses_is_named_and_nothing_is_touched() {
    for (containers, complaint) in [(misspelt(), "imagePullPolicie"), (bad_quantity(), "quantit")] {
        let world = World::new("refused").await;
        world.settled_fleet(fleet(2, "db:1")).await;
        let (uids, images) = (world.pod_uids().await, world.images().await);
        let children = async || {
            let mut all = world.list(&world.nodes()).await;
            all.extend(world.list(&world.sets()).await);
            all.extend(world.list(&world.api("apps/v1", "ControllerRevision")).await);
            all
        };
        let before = children().await;

        world.patch_template(json!({"spec": {"containers": containers}})).await;
        let what = "the spec is refused";
        let db = world.until_db(what, |db| condition(db, "UpToDate") == "False/InvalidSpec").await;
        assert_eq!(condition(&db, "Stalled"), "True/InvalidSpec", "{db:#}");
        assert_eq!(condition(&db, "Reconciling"), "False/Settled", "{db:#}");
        assert_eq!(condition(&db, "Ready"), "True/AllNodesReady", "what runs goes on running: {db:#}");
        let conditions = db["status"]["conditions"].as_array().unwrap();
        let sentence = conditions.iter().find(|c| c["type"] == "UpToDate").unwrap()["message"].clone();
        assert!(sentence.as_str().unwrap().contains(complaint), "the server's sentence: {sentence}");
        assert!(world.until_event("db", "InvalidSpec").await.contains(complaint));
        let quiet = world.until_quiet().await;
        assert!(quiet["status"]["plan"].is_null(), "no plan is started: {quiet:#}");
        assert_eq!(children().await, before, "nothing is touched");

        let mark = world.cp.audit_mark().await;
        world.patch_template(json!({"spec": {"containers": [{"name": "db", "image": "db:1"}]}})).await;
        let back = world.until_applied().await;
        assert_eq!(condition(&back, "Stalled"), "False/Progressing", "{back:#}");
        world.until_quiet().await;
        let writes = world.operator_writes(mark).await;
        let of_status = |w: &String| w.contains("nodedeployments/db status");
        assert!(!writes.is_empty() && writes.iter().all(of_status), "{writes:#?}");
        assert_eq!((world.pod_uids().await, world.images().await), (uids, images));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_lost_while_the_template_is_refused_comes_back_as_it_was() {
    let world = World::new("refused").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let before = world.pod_uids().await;
    world.patch_template(json!({"spec": {"containers": misspelt()}})).await;
    world.until_db("it is refused", |db| condition(db, "UpToDate") == "False/InvalidSpec").await;
    world.delete(&world.nodes(), "db-0").await;
    let pod = world.until_serves("db-0-0", &before[0]).await;
    assert_eq!(pod["spec"]["containers"][0]["image"], "db:1", "{pod:#}");
    let db = world.until_db("all nodes are ready", |db| db["status"]["phase"] == "Ready").await;
    assert_eq!(condition(&db, "UpToDate"), "False/InvalidSpec", "{db:#}");
    assert_eq!(world.uid_of("db-1-0").await, before[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_is_under_way_goes_on_while_a_later_template_is_refused() {
    let world = World::new("refused").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.steer("db-1-0", "hold-terminating").await;
    world.set_image("db:2").await;
    let leaves = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    world.until(&world.pods(), "db-1-0", "it terminates", leaves).await;
    let target = world.db().await["status"]["requestedRolloutHash"].clone();
    world.patch_template(json!({"spec": {"containers": misspelt()}})).await;
    world.until_db("it is refused", |db| condition(db, "UpToDate") == "False/InvalidSpec").await;
    world.steer("db-1-0", "default").await;
    let done =
        |db: &Value| db["status"]["lastCompletedRolloutHash"] == target && db["status"]["phase"] == "Ready";
    let db = world.until_db("what was begun is finished", done).await;
    assert_eq!(world.images().await, ["db:2", "db:2"]);
    assert_eq!(condition(&db, "UpToDate"), "False/InvalidSpec", "{db:#}");
    assert_eq!(condition(&db, "Stalled"), "True/InvalidSpec", "{db:#}");
    world.patch_template(json!({"spec": {"containers": [{"name": "db", "image": "db:1"}]}})).await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_fleet_that_the_server_refuses_creates_nothing_until_it_is_right() {
    let world = World::new("refused").await;
    let template = json!({"template": {"spec": {"podTemplate": {"spec": {"containers": misspelt()}}}}});
    world.fleet(with(fleet(2, "db:1"), &json!({"spec": template}))).await;
    let what = "the spec is refused";
    let db = world.until_db(what, |db| condition(db, "UpToDate") == "False/InvalidSpec").await;
    assert_eq!(condition(&db, "Stalled"), "True/InvalidSpec", "{db:#}");
    world.until_quiet().await;
    assert_eq!(world.list(&world.nodes()).await, Vec::<Value>::new());
    assert_eq!(world.list(&world.sets()).await, Vec::<Value>::new());
    assert_eq!(world.list(&world.api("apps/v1", "ControllerRevision")).await, Vec::<Value>::new());

    world.patch_template(json!({"spec": {"containers": [{"name": "db", "image": "db:1"}]}})).await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:1", "db:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_its_own_with_a_template_that_the_server_refuses_says_so_and_keeps_what_runs() {
    let world = World::new("refused").await;
    let node = |containers: Value| json!({"podTemplate": {"spec": {"containers": containers}}});
    let (good, name) = (json!([{"name": "db", "image": "db:1"}]), "solo");
    world.create(NODE.0, NODE.1, json!({"metadata": {"name": name}, "spec": node(misspelt())})).await;
    let refused = |n: &Value| condition(n, "Stalled") == "True/InvalidSpec";
    let first = world.until(&world.nodes(), name, "the template is refused", refused).await;
    assert!(first["status"]["plan"].is_null(), "{first:#}");
    assert_eq!(world.list(&world.sets()).await, Vec::<Value>::new(), "nothing is created");
    assert!(world.until_event(name, "InvalidSpec").await.contains("imagePullPolicie"));

    world.patch(&world.nodes(), name, json!({"spec": node(good)})).await;
    let pod = world.until_serves("solo-0", "").await;
    let runs =
        |n: &Value| n["status"]["phase"] == "Running" && condition(n, "Stalled") == "False/Progressing";
    world.until(&world.nodes(), name, "the node runs", runs).await;
    let set = world.get(&world.sets(), name).await;

    world.patch(&world.nodes(), name, json!({"spec": node(bad_quantity())})).await;
    let second = world.until(&world.nodes(), name, "the template is refused", refused).await;
    assert_eq!(condition(&second, "Ready"), "True/NodeReady", "{second:#}");
    world.until_quiet().await;
    let now = world.get(&world.sets(), name).await;
    assert_eq!(now["spec"], set["spec"], "the StatefulSet is not touched");
    assert_eq!(world.uid_of("solo-0").await, pod["metadata"]["uid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_fleet_is_not_refused_for_the_labels_of_another_with_the_same_template() {
    let world = World::new("strangers").await;
    let mut bad = fleet(1, "db:1");
    bad["metadata"]["name"] = json!("stranger");
    bad["spec"]["template"]["metadata"] = json!({"labels": {"bad key!": "x"}});
    world.fleet(bad).await;
    let refused = |f: &Value| condition(f, "UpToDate") == "False/InvalidSpec";
    world.until(&world.fleets(), "stranger", "the bad label is refused", refused).await;
    world.fleet(fleet(1, "db:1")).await;
    world.until_applied().await;
    world.patch(&world.fleets(), "stranger", json!({"spec": {"template": {"metadata": null}}})).await;
    let applied = |f: &Value| condition(f, "UpToDate") == "True/Applied";
    world.until(&world.fleets(), "stranger", "it is right once the label is gone", applied).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_content_written_in_another_way_changes_nothing() {
    let world = World::new("same").await;
    let container = json!({
        "name": "db", "image": "db:1", "args": ["--ratio", "0.5"],
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1}},
    });
    let template = json!({"spec": {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]}});
    let object = with(fleet(2, "db:1"), &json!({"spec": {"template": {"spec": {"podTemplate": template}}}}));
    let first = world.settled_fleet(object).await;
    let hash = first["status"]["requestedRolloutHash"].clone();

    let other_quantities = json!({
        "resources": {"limits": {"cpu": "1000m"}, "requests": {"memory": "1024Mi", "cpu": 0.5}},
        "args": ["--ratio", "0.5"], "image": "db:1", "name": "db",
    });
    let empties = json!({
        "name": "db", "image": "db:1", "args": ["--ratio", "0.5"], "env": [], "ports": [], "command": null,
        "resources": {"requests": {"cpu": "0.5", "memory": "1Gi"}, "limits": {"cpu": "1"}, "claims": []},
        "securityContext": {}, "workingDir": "",
    });
    let of = |container: &Value| json!({"podTemplate": {"spec": {"containers": [container]}}});
    let ways = [
        of(&other_quantities),
        of(&empties),
        json!({"podTemplate": {"metadata": {"labels": {}, "annotations": {}}, "spec": {"initContainers": []}}}),
        json!({"image": "db:1"}),
        json!({"image": "db:1", "podTemplate": {"spec": {"containers": [
            with(container.clone(), &json!({"image": "db:something-else"}))
        ]}}}),
        json!({"mainContainer": "db"}),
    ];
    let mark = world.cp.audit_mark().await;
    for way in ways {
        world.patch_fleet(json!({"spec": {"template": {"spec": way}}})).await;
        let db = world.until_applied().await;
        assert_eq!(db["status"]["requestedRolloutHash"], hash, "{way:#}");
    }
    let last = world.until_quiet().await;
    assert!(last["status"]["plan"].is_null(), "{last:#}");
    let writes = world.operator_writes(mark).await;
    assert!(
        writes.iter().all(|w| w.contains("nodedeployments/db status")),
        "no child is written, nor a revision: {writes:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_differs_only_by_what_looks_empty_is_a_change() {
    let world = World::new("differs").await;
    let container = |args: &str| json!([{"name": "db", "image": "db:1", "args": [args]}]);
    let spread = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
    let spread_all = with(spread.clone(), &json!({"labelSelector": {}}));
    let template = json!({"spec": {
        "containers": container("0.5"), "volumes": [{"name": "v"}], "topologySpreadConstraints": [spread],
    }});
    let object = with(fleet(1, "db:1"), &json!({"spec": {"template": {"spec": {"podTemplate": template}}}}));
    world.settled_fleet(object).await;
    let changes = [
        ("an argument is a text, and no quantity", json!({"spec": {"containers": container("0.50")}})),
        ("an empty label is a label", json!({"metadata": {"labels": {"empty": ""}}})),
        ("an empty annotation is an annotation", json!({"metadata": {"annotations": {"empty": ""}}})),
        (
            "a selector of everything is not one of nothing",
            json!({"spec": {"topologySpreadConstraints": [spread_all]}}),
        ),
        ("an empty argument is an argument", json!({"spec": {"containers": container("")}})),
        ("zero is a value", json!({"spec": {"terminationGracePeriodSeconds": 0}})),
        ("false is a value", json!({"spec": {"enableServiceLinks": false}})),
    ];
    for (what, change) in changes {
        let before = world.uid_of("db-0-0").await;
        world.patch_template(change).await;
        world.until_applied().await;
        assert_ne!(world.uid_of("db-0-0").await, before, "{what}: the pod is replaced");
    }
    // The API server stores a volume without a source as an emptyDir: written out, it is no change.
    let (pod, hash) =
        (world.uid_of("db-0-0").await, world.db().await["status"]["requestedRolloutHash"].clone());
    world.patch_template(json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}})).await;
    let done = world.until_applied().await;
    assert_eq!(done["status"]["requestedRolloutHash"], hash, "{done:#}");
    assert_eq!(world.uid_of("db-0-0").await, pod, "no pod is replaced");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_the_template_that_the_override_hides_is_no_change_until_the_override_goes() {
    let world = World::new("differs").await;
    let object = with(fleet(2, "db:1"), &json!({"spec": {"template": {"spec": {"image": "db:2"}}}}));
    world.settled_fleet(object).await;
    assert_eq!(world.images().await, ["db:2", "db:2"], "the override wins");
    let wave = Wave::watch(&world, 2).await;
    world.patch_template(json!({"spec": {"containers": [{"name": "db", "image": "db:3"}]}})).await;
    world.until_applied().await;
    world.until_quiet().await;
    assert_eq!(world.images().await, ["db:2", "db:2"]);
    let seen = wave.at_most(&world, 0).await;
    assert_eq!(seen.replaced("db-0-0") + seen.replaced("db-1-0"), 0);

    world.patch_fleet(json!({"spec": {"template": {"spec": {"image": null}}}})).await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:3", "db:3"]);
}
