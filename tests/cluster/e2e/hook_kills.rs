//! `kill -9` at each persisted step of a rollout with hooks: one Job, and one drain of each node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::hooks::Scene;
use crate::e2e::sets::text;
use windlass_harness::kit::is_applied;
use windlass_harness::kit::peers::Manner;

/// Enough time for some twenty starts of the operator.
const PATIENCE: Duration = Duration::from_mins(4);

/// Hooks with a Job before and after the rollout, and with a request before and after each node.
fn hooks() -> Value {
    let job = |name: &str, at: &str| {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": name, "image": "backup:1"}]});
        json!({"name": name, "at": at, "job": {"template": {"backoffLimit": 0, "template": {"spec": pod}}}})
    };
    let http = |name: &str, at: &str| {
        let url = format!("http://{{{{podIP}}}}:PORT/{name}?node={{{{node}}}}");
        let done = "body.state == 'drained'";
        json!({"name": name, "at": at, "http": {"url": url, "method": "POST", "success": done, "intervalSeconds": 1}})
    };
    json!([
        job("backup", "BeforeRollout"),
        http("drain", "BeforeNode"),
        http("look", "AfterNode"),
        job("report", "AfterRollout")
    ])
}

/// The persisted step of an object's plan: its ID, and the state of each task.
fn step(object: &Value) -> String {
    let plan = &object["status"]["plan"];
    let task = |task: &Value| {
        let kept = if task["progress"].is_null() { "" } else { "+" };
        format!("{}={}{kept}", text(task, "type"), text(task, "state"))
    };
    let tasks = plan["tasks"].as_array().into_iter().flatten().map(task);
    let tasks = tasks.collect::<Vec<_>>().join(" ");
    format!("{} {} {} {tasks}", text(&object["metadata"], "name"), text(plan, "id"), text(plan, "state"))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_job_and_one_drain_of_each_node_though_the_operator_is_killed_at_each_persisted_step() {
    let mut scene = Scene::new("hook-kills").await;
    scene.peer.answers(Manner::Says(200, r#"{"state":"drained"}"#.to_owned()));
    scene.fleet(2, json!({"type": "InPlace", "hooks": hooks()})).await;
    let (uids, mark) = (scene.world.pod_uids().await, scene.world.cp.audit_mark().await);
    scene.world.set_image("db:2").await;
    let mut killed_at = BTreeSet::new();
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut pods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    loop {
        let db = scene.world.db().await;
        for (pod, seen) in scene.world.uids(&scene.world.pods()).await {
            pods.entry(pod).or_default().insert(seen);
        }
        let mut steps = vec![step(&db)];
        steps.extend(scene.world.list(&scene.world.nodes()).await.iter().map(step));
        // Several may be new by now: each is persisted, and none after it was observed.
        let is_new = steps.iter().filter(|step| killed_at.insert((*step).clone())).count() > 0;
        if is_new {
            scene.kill().await;
        } else if is_applied(&db) && db["status"]["plan"]["state"] == "Complete" {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "it does not come to its end: {killed_at:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(killed_at.len() >= 10, "so few steps were seen: {killed_at:#?}");
    let db = scene.world.db().await;
    let ended = db["status"]["history"].as_array().unwrap().last().unwrap();
    assert_eq!((&ended["outcome"], &ended["planID"]), (&json!("Complete"), &db["status"]["plan"]["id"]));

    let audit = scene.world.operator_audit(mark).await.resource("jobs");
    let made: Vec<String> =
        audit.clone().verb("create").writes().entries().iter().map(|e| e.object_ref.name.clone()).collect();
    let names: Vec<&str> = made.iter().map(|name| name.rsplit_once('-').unwrap().0).collect();
    assert_eq!(names, ["db-backup", "db-report"], "{made:?}");
    assert_eq!(audit.verb("delete").count(), 0);
    let asked: BTreeMap<String, BTreeSet<String>> =
        scene.peer.asked().into_iter().fold(BTreeMap::new(), |mut all, asked| {
            all.entry(asked.path).or_default().insert(asked.headers["windlass-task"].clone());
            all
        });
    let paths: Vec<&str> = asked.keys().map(String::as_str).collect();
    assert_eq!(paths, ["/drain?node=db-0", "/drain?node=db-1", "/look?node=db-0", "/look?node=db-1"]);
    assert!(asked.values().all(|tasks| tasks.len() == 1), "each by one task: {asked:#?}");
    for (pod, seen) in pods.iter().filter(|(pod, _)| ["db-0-0", "db-1-0"].contains(&pod.as_str())) {
        assert_eq!(seen.len(), 2, "{pod} is replaced once");
    }
    assert!(scene.world.pod_uids().await.iter().all(|uid| !uids.contains(uid)));
    assert_eq!(scene.world.images().await.iter().filter(|image| *image == "db:2").count(), 2);
}
