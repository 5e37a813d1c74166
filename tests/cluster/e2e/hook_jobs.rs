//! Jobs of hooks with the shipped binary: their messages while they are blocked, and their deletion.

use serde_json::{Value, json};

use crate::e2e::hooks::Scene;
use windlass_harness::kit::{condition, fleet, is_applied, with};

/// A hook before the rollout with a Job of this pod.
fn backup(pod: &Value, seconds: i64) -> Value {
    let mut spec = json!({"restartPolicy": "Never", "containers": [{"name": "backup", "image": "backup:1"}]});
    json_patch::merge(&mut spec, pod);
    json!([{"name": "backup", "at": "BeforeRollout", "timeoutSeconds": seconds,
        "job": {"template": {"backoffLimit": 0, "template": {"spec": spec}}}}])
}

fn of_image(image: &str) -> Value {
    json!({"containers": [{"name": "backup", "image": image}]})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn stuck_job_hook_reports_the_pod_error() {
    let scene = Scene::new("job-words").await;
    scene.fleet(1, json!({"type": "InPlace"})).await;
    let volume = json!({"name": "to", "persistentVolumeClaim": {"claimName": "nobodys"}});
    let (words, never) = ("container backup of pod db-backup-", " no success within 8 s");
    let cases: [(Value, &[&str], &[&str]); 5] = [
        (
            of_image("backup:nope"),
            &[words, " is waiting: ImagePullBackOff: Back-off pulling image"],
            &[never],
        ),
        (of_image("backup:pull-loop"), &[words, " is waiting: ErrImagePull: "], &[never, "Pull"]),
        (
            json!({"volumes": [volume]}),
            &["is not scheduled: Unschedulable: ", "persistentvolumeclaim \"nobodys\" not found"],
            &[never],
        ),
        (
            json!({"serviceAccountName": "ghost"}),
            &["FailedCreate: Error creating: ", "serviceaccount \"ghost\" not found"],
            &[never],
        ),
        (of_image("backup:crash"), &[], &["BackoffLimitExceeded: ", words, " ended with exit code 1: Error"]),
    ];
    for (at, (pod, waiting, failed)) in cases.iter().enumerate() {
        scene.hooks(backup(pod, 8)).await;
        scene.world.set_image(&format!("db:{}", at + 2)).await;
        if let Some(first) = waiting.first() {
            let task = scene.until_task("run-job", "Running", first).await;
            let message = task["message"].as_str().unwrap();
            assert!(waiting.iter().all(|words| message.contains(words)), "{waiting:?}: {message}");
        }
        let task = scene.until_task("run-job", "Failed", failed[0]).await;
        let message = task["message"].as_str().unwrap();
        let still = if at == 1 { &waiting[..1] } else { waiting };
        assert!(failed.iter().chain(still).all(|words| message.contains(words)), "{failed:?}: {message}");
        let said = |db: &Value| {
            let conditions = db["status"]["conditions"].as_array().into_iter().flatten();
            let mut conditions = conditions.filter(|c| c["type"] == "UpToDate" || c["type"] == "Stalled");
            condition(db, "UpToDate") == "False/HookFailed"
                && condition(db, "Stalled") == "True/HookFailed"
                && conditions.all(|c| c["message"].as_str().is_some_and(|m| m.contains(failed[0].trim())))
        };
        scene.world.until_db("the conditions say so", said).await;
        if !waiting.is_empty() {
            scene.until_jobs("what is late does not go on", <[Value]>::is_empty).await;
        }
    }
    let node = scene.world.get(&scene.world.nodes(), "db-0").await;
    assert_eq!(node["status"]["currentImage"], "db:1", "nothing moves");
    // Another target supersedes the failed one.
    scene.hooks(json!([])).await;
    scene.world.set_image("db:9").await;
    scene.world.until_applied().await;
}

/// The longest names of a fleet and of a hook. Kubernetes derives a label and the names of pods from a Job's name.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn job_with_longest_names_is_limited_to_63_characters() {
    let scene = Scene::new("job-long").await;
    let name = format!("d{}", "b".repeat(38));
    let hook = |end: &str, at: &str| {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "backup:1"}]});
        let named = format!("{}{end}", "h".repeat(63 - end.len()));
        json!({"name": named, "at": at, "job": {"template": {"template": {"spec": pod}}}})
    };
    let hooks = json!([hook("-1", "BeforeRollout"), hook("-2", "BeforeRollout"), hook("-3", "BeforeNode")]);
    let named = json!({"metadata": {"name": name}, "spec": {"updateStrategy": {"hooks": hooks}}});
    scene.world.fleet(with(fleet(1, "db:1"), &named)).await;
    let fleets = scene.world.fleets();
    scene.world.until(&fleets, &name, "it is there", is_applied).await;
    let image = json!({"spec": {"template": {"spec": {"image": "db:2"}}}});
    scene.world.patch(&fleets, &name, image).await;
    let done = |db: &serde_json::Value| is_applied(db) && db["status"]["plan"]["state"] == "Complete";
    scene.world.until(&fleets, &name, "it is rolled", done).await;
    let jobs = scene.jobs().await;
    let names: Vec<&str> = jobs.iter().map(|job| job["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 3, "two hooks whose names are cut alike have a Job each: {names:?}");
    for (job, name) in jobs.iter().zip(&names) {
        assert_eq!(name.len(), 63, "{name}");
        assert_eq!(job["status"]["succeeded"], 1, "{name}");
        assert!(job["metadata"]["labels"]["windlass.dev/hook"].as_str().unwrap().len() == 63, "{job}");
    }
}
