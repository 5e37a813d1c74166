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
async fn a_job_that_does_not_get_on_says_why_in_the_words_of_its_pod() {
    let scene = Scene::new("job-words").await;
    scene.fleet(1, json!({"type": "InPlace"})).await;
    let volume = json!({"name": "to", "persistentVolumeClaim": {"claimName": "nobodys"}});
    let (words, never) = ("container backup of pod db-backup-", " no success within 8 s");
    let cases: [(Value, &[&str], &[&str]); 5] = [
        (of_image("backup:nope"), &[words, " waits: ImagePullBackOff: Back-off pulling image"], &[never]),
        (of_image("backup:pull-loop"), &[words, " waits: ErrImagePull: "], &[never, "Pull"]),
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

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_node_is_owned_by_it_and_gets_what_is_known_of_it() {
    let scene = Scene::new("job-node").await;
    let spec = json!({"restartPolicy": "Never", "initContainers": [{"name": "first", "image": "backup:1"}],
        "containers": [{"name": "move", "image": "backup:1", "env": [{"name": "WHO", "value": "$(WINDLASS_NODE)"}]}]});
    let job = json!({"template": {"ttlSecondsAfterFinished": 7200, "template": {"spec": spec}}});
    scene
        .fleet(1, json!({"type": "InPlace", "hooks": [{"name": "move", "at": "BeforeNode", "job": job}]}))
        .await;
    scene.world.set_image("db:2").await;
    let db = scene.world.until_applied().await;
    let jobs = scene.jobs().await;
    assert_eq!(jobs.len(), 1, "{jobs:#?}");
    let (meta, spec) = (&jobs[0]["metadata"], &jobs[0]["spec"]);
    let name = meta["name"].as_str().unwrap();
    let digits = name.strip_prefix("db-0-move-").unwrap();
    assert!(digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
    let owners = meta["ownerReferences"].as_array().unwrap();
    assert_eq!(
        (owners.len(), &owners[0]["kind"], &owners[0]["name"]),
        (1, &json!("StatefulNode"), &json!("db-0"))
    );
    assert_eq!(spec["ttlSecondsAfterFinished"], 7200);
    for list in ["initContainers", "containers"] {
        let env = spec["template"]["spec"][list][0]["env"].as_array().unwrap();
        let value = |name: &str| {
            let found = env.iter().find(|v| v["name"] == name);
            found.unwrap_or_else(|| panic!("{name}: {env:?}"))["value"].clone()
        };
        assert_eq!(value("WINDLASS_FLEET"), "db");
        assert_eq!(value("WINDLASS_NAMESPACE"), *scene.world.ns);
        assert_eq!(value("WINDLASS_NODE"), "db-0");
        assert_eq!(value("WINDLASS_ORDINAL"), "0");
        assert_eq!(value("WINDLASS_POD"), "db-0-0");
        assert_eq!(value("WINDLASS_SET"), "first");
        assert_eq!(value("WINDLASS_TARGET_HASH"), db["status"]["lastCompletedRolloutHash"]);
        assert_eq!(value("WINDLASS_TASK_ID"), meta["annotations"]["windlass.dev/task"]);
        assert!(value("WINDLASS_POD_IP").as_str().unwrap().starts_with("127."), "{env:?}");
        for name in ["WINDLASS_IMAGE", "WINDLASS_FROM_HASH", "WINDLASS_PLAN_ID", "WINDLASS_ATTEMPT"] {
            assert_ne!(value(name), "", "{name}");
        }
    }
}

/// The longest names of a fleet and of a hook. Kubernetes derives a label and the names of pods from a Job's name.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_the_longest_names_runs_under_a_name_of_63_characters() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_completes_is_a_success_ten_times_of_ten() {
    let mut scene = Scene::new("job-ttl").await;
    scene.fleet(1, json!({"type": "InPlace"})).await;
    let hook = |number: i32| {
        let mut hook = backup(&json!({}), 60)[0].clone();
        hook["name"] = json!(format!("backup-{number}"));
        hook["job"]["template"]["ttlSecondsAfterFinished"] = json!(0);
        hook
    };
    scene.hooks((0..10).map(hook).collect()).await;
    scene.world.set_image("db:2").await;
    let is_complete = |job: &Value| {
        let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|c| c["type"] == "Complete" && c["status"] == "True")
    };
    // The first ends while the operator is away; the second is deleted by a cleaner.
    scene.until_jobs("the first is made", |jobs| !jobs.is_empty()).await;
    scene.world.kill_operator().await;
    scene.until_jobs("the first is complete", |jobs| is_complete(&jobs[0])).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    scene.start().await;
    let of_second =
        |job: &Value| job["metadata"]["name"].as_str().is_some_and(|name| name.contains("backup-1"));
    let jobs = scene
        .until_jobs("the second is complete", |jobs| {
            jobs.iter().any(|job| of_second(job) && is_complete(job))
        })
        .await;
    let second =
        jobs.iter().find(|job| of_second(job)).unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    scene.world.delete(&scene.world.api("batch/v1", "Job"), &second).await;
    let done = scene
        .world
        .until_db("it is applied", |db| is_applied(db) && db["status"]["history"][0].is_object())
        .await;
    assert_eq!(done["status"]["history"][0]["outcome"], "Complete", "{done:#}");
    assert!(scene.world.notes("HookFailed").await.is_empty());
}
