//! Objects that a template names, on a real control plane: nothing is taken down before they exist.

use serde_json::{Value, json};

use super::commands::windlass;
use super::eyes::piped;
use windlass_harness::kit::tools::message;
use windlass_harness::kit::{Wave, World, condition, fleet, is_applied, with};

const SECRET: &str = "volume tls: Secret db-tls does not exist";
const CONFIG: &str = "container db: envFrom: ConfigMap db-conf does not exist";

/// The fleet at another image, with these volumes and sources of variables.
fn naming(volumes: &Value, sources: &Value) -> Value {
    let mut changed = with(
        fleet(2, "db:2"),
        &json!({"spec": {"template": {"spec": {"podTemplate": {"spec": {"volumes": volumes}}}}}}),
    );
    let pod = &mut changed["spec"]["template"]["spec"]["podTemplate"]["spec"];
    pod["containers"][0]["envFrom"] = sources.clone();
    changed
}

fn is_invalid(db: &Value, sentence: &str) -> bool {
    condition(db, "UpToDate") == "False/InvalidSpec" && message(db, "UpToDate") == sentence
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_waits_for_the_objects_that_its_template_names() {
    let world = World::new("references").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let before = world.pod_uids().await;

    // `plan` says the same as the operator then does.
    let volumes = json!([
        {"name": "tls", "secret": {"secretName": "db-tls"}},
        {"name": "more", "secret": {"secretName": "more", "optional": true}},
    ]);
    let changed = naming(&volumes, &json!([]));
    let plan = async |others: &[Value], changed: &Value| {
        let head = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment"});
        let items = [others, &[with(changed.clone(), &head)]].concat();
        piped(&world, &["plan", "-f", "-"], &json!({"kind": "List", "items": items}).to_string()).await
    };
    let planned = plan(&[], &changed).await;
    assert_eq!(planned.code, 1, "{}{}", planned.out, planned.err);
    assert!(planned.out.contains(SECRET), "{}", planned.out);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db-tls"}});
    let planned = plan(&[secret], &changed).await;
    assert_eq!(planned.code, 2, "the file creates it, too: {}{}", planned.out, planned.err);

    world.patch_fleet(changed).await;
    let db = world.until_db("it is reported", |db| is_invalid(db, SECRET)).await;
    assert_eq!(condition(&db, "Stalled"), "True/InvalidSpec", "{db:#}");
    assert_eq!(world.until_event("db", "InvalidSpec").await, SECRET);
    let shown = windlass(&world, &["status", "nd/db"]).await.out;
    assert!(shown.contains(SECRET), "{shown}");
    world.until_quiet().await;
    assert_eq!(world.pod_uids().await, before);
    world.create("v1", "Secret", json!({"metadata": {"name": "db-tls"}})).await;
    world.until_applied().await;
    assert!(world.images().await.iter().all(|image| image.ends_with("db:2")));

    // Without the right to read ConfigMaps they are not checked. It says so, and goes on.
    let naming_map = |name: &str| naming(&volumes, &json!([{"configMapRef": {"name": name}}]));
    world.patch_fleet(naming_map("unread")).await;
    let note = world.until_event("db", "ReferencesUnread").await;
    assert!(note.ends_with("no right to get ConfigMap; see deploy/rbac/references-*.yaml"), "{note}");
    world.until_applied().await;

    // With it they are.
    let rights = windlass_harness::root().join("deploy/rbac/references-one-namespace.yaml");
    world.cp.kubectl(&["-n", &world.ns, "apply", "-f", rights.to_str().unwrap()]).await.ok();
    let (ns, user): (&str, String) = (&world.ns, world.operator_user());
    let may = ["--as", &user, "-n", ns, "auth", "can-i", "get", "configmaps"];
    while world.cp.kubectl(&may).await.code != Some(0) {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let before = world.pod_uids().await;
    let planned = plan(&[], &naming_map("db-conf")).await;
    assert!(planned.code == 1 && planned.out.contains(CONFIG), "{}{}", planned.out, planned.err);
    world.patch_fleet(naming_map("db-conf")).await;
    world.until_db("it is reported", |db| is_invalid(db, CONFIG)).await;
    world.until_quiet().await;
    assert_eq!(world.pod_uids().await, before);
    world.create("v1", "ConfigMap", json!({"metadata": {"name": "db-conf"}})).await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_restart_when_the_data_changes_that_their_template_names() {
    let mut world = World::new("restart-on").await;
    let rights = windlass_harness::root().join("deploy/rbac/references-one-namespace.yaml");
    world.cp.kubectl(&["-n", &world.ns, "apply", "-f", rights.to_str().unwrap()]).await.ok();
    world.create("v1", "ConfigMap", json!({"metadata": {"name": "db-conf"}, "data": {"size": "1"}})).await;
    world.create("v1", "Secret", json!({"metadata": {"name": "db-tls"}, "stringData": {"key": "a"}})).await;
    let named = json!({"windlass.dev/restart-on": "configmap/db-conf,secret/db-tls"});
    let followed =
        json!({"spec": {"template": {"spec": {"podTemplate": {"metadata": {"annotations": named}}}}}});
    let db = world.settled_fleet(with(fleet(3, "db:1"), &followed)).await;
    let digest = |db: &Value| db["status"]["configDigest"].as_str().unwrap_or_default().to_owned();
    let first = digest(&db);
    assert!(first.starts_with("configmap/db-conf:") && first.contains(",secret/db-tls:"), "{first}");
    let annotated = async |world: &World| {
        let pods = world.list(&world.pods()).await;
        let of = |pod: &Value| pod["metadata"]["annotations"]["windlass.dev/config-digest"].clone();
        pods.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(annotated(&world).await, vec![json!(first); 3]);

    let wave = Wave::watch(&world, 3).await;
    let secret = json!({"stringData": {"key": "b"}}).to_string();
    world.cp.kubectl(&["-n", &world.ns, "patch", "secret", "db-tls", "-p", &secret]).await.ok();
    let moves = |db: &Value| condition(db, "RolloutInProgress") == "True/ConfigChanged";
    world.until_db("it rolls", moves).await;
    world.kill_operator().await;
    world.start_operator(&[]).await;
    let db = world.until_db("it is complete", |db| is_applied(db) && digest(db) != first).await;
    assert_eq!(annotated(&world).await, vec![json!(digest(&db)); 3]);
    let seen = wave.at_most(1).await;
    assert_eq!(seen.went.len(), 3, "{:#?}", seen.log);
    let differs = windlass(&world, &["history", "nd/db"]).await.out;
    assert!(differs.contains("windlass.dev/config-digest"), "{differs}");
    world.until_quiet().await;
    assert_eq!(world.db().await["status"]["history"].as_array().map(Vec::len), Some(1));
}
