//! The operator's user agent, and what it never writes.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use windlass_harness::controlplane::{Entry, Mark};
use windlass_harness::kit::{World, fleet, is_applied};

async fn requests(world: &World, since: Mark) -> Vec<Entry> {
    let audit = world.cp.audit_since(since).await.namespace(&world.ns).user(&world.operator_user());
    audit.entries().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn operator_requests_carry_program_name_and_version() {
    let mut world = World::without_operator("agent").await;
    let mark = world.cp.audit_mark().await;
    world.start_operator(&[]).await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let requests = requests(&world, mark).await;
    let verbs = |verb: &str| requests.iter().filter(|e| e.verb == verb).count();
    for verb in ["watch", "create", "patch"] {
        assert!(verbs(verb) > 0, "no {verb} among {} requests", requests.len());
    }
    let agent = concat!("windlass/", env!("CARGO_PKG_VERSION"));
    let others: Vec<&Entry> = requests.iter().filter(|e| e.user_agent != agent).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn autoscaled_replicas_are_never_written() {
    let world = World::new("scaled").await;
    let mark = world.cp.audit_mark().await;
    // As a pipeline does: its manifest has no replicas.
    let apply = async |image: &str| {
        let mut object = fleet(1, image);
        object["spec"].as_object_mut().unwrap().remove("replicas");
        object["apiVersion"] = json!("windlass.dev/v1alpha1");
        object["kind"] = json!("NodeDeployment");
        let params = PatchParams::apply("pipeline");
        world.fleets().patch("db", &params, &Patch::Apply(object)).await.expect("it is applied");
    };
    apply("db:1").await;
    world.until_applied().await;
    // As a HorizontalPodAutoscaler does.
    let scale = json!({"spec": {"replicas": 3}});
    let params = PatchParams { field_manager: Some("autoscaler".to_owned()), ..PatchParams::default() };
    let scaled = world.fleets().patch_scale("db", &params, &Patch::Merge(scale)).await.expect("it is scaled");
    assert_eq!(scaled.spec.and_then(|s| s.replicas), Some(3));
    world.until_db("it has three nodes", |db| is_applied(db) && db["status"]["readyReplicas"] == 3).await;
    let scale = world.fleets().get_scale("db").await.expect("a scale").status.expect("a status");
    assert_eq!(scale.replicas, 3);
    let selected = scale.selector.expect("an autoscaler finds the pods by it");
    let pods = world.pods().list(&kube::api::ListParams::default().labels(&selected)).await.expect("a list");
    assert_eq!(pods.items.len(), 3, "{selected}");

    apply("db:2").await;
    let done = world
        .until_db("the template is rolled out", |db| is_applied(db) && db["status"]["updatedReplicas"] == 3);
    assert_eq!(done.await["spec"]["replicas"], 3, "what the pipeline does not name stays the autoscaler's");
    assert_eq!(world.images().await, ["db:2"; 3]);
    world.until_quiet().await;
    let writes = world.operator_writes(mark).await;
    let of_fleet: Vec<&String> = writes.iter().filter(|w| w.contains("nodedeployments/db ")).collect();
    assert!(of_fleet.len() > 1, "{writes:#?}");
    assert!(
        of_fleet.iter().all(|w| w.ends_with(" status")),
        "the operator writes a fleet's status only: {of_fleet:#?}"
    );
}
