//! The output of the command line, on the real control plane.

use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::e2e::commands::{Ran, account, windlass, windlass_as};
use windlass_harness::kit::{World, condition, fleet};

/// The same with standard input.
pub(super) async fn piped(world: &World, words: &[&str], text: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(words).args(["-n", &world.ns]).env("KUBECONFIG", world.cp.kubeconfig());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).await.unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_wait_report_fleet_state_and_exit_code() {
    let world = World::new("status").await;
    let mut wanted = fleet(3, "db:1");
    wanted["spec"]["updateStrategy"]["progressDeadlineSeconds"] = json!(4);
    world.settled_fleet(wanted).await;
    let mark = world.cp.audit_mark().await;

    let steady = windlass(&world, &["status", "--exit-status"]).await;
    assert_eq!((steady.code, steady.err.as_str()), (0, ""), "{}", steady.out);
    assert!(steady.out.contains("db") && steady.out.contains("3 nodes available at 1"), "{}", steady.out);
    let waited = windlass(&world, &["wait", "nd/db", "--timeout", "20s"]).await;
    assert_eq!((waited.code, waited.out.as_str()), (0, "nodedeployment.windlass.dev/db is up to date\n"));

    // A missing one does not hide the other.
    let some = windlass(&world, &["status", "nd/none", "nd/db"]).await;
    assert!(some.code == 1 && some.out.contains("3 nodes available at 1"), "{}{}", some.code, some.out);
    assert_eq!(some.err.lines().count(), 1, "{}", some.err);
    assert!(
        some.err.contains("nodedeployment.windlass.dev/none does not exist in namespace"),
        "{}",
        some.err
    );
    let unsaid = windlass(&world, &["wait"]).await;
    assert_eq!((unsaid.code, unsaid.out.as_str()), (2, ""));
    assert_eq!(unsaid.err, "windlass: name a fleet, nd/NAME, or nd for all fleets\n");
    // For a script, 2 of `plan` means that something would change.
    let typo = windlass(&world, &["plan", "--nonsense"]).await;
    assert!(typo.code == 1 && typo.err.contains("unexpected argument '--nonsense' found"), "{}", typo.err);
    let gone = windlass(&world, &["wait", "nd/none", "--timeout", "1s"]).await;
    assert_eq!((gone.code, gone.out.as_str()), (1, ""), "{}", gone.err);

    world.set_image("db:2-nope").await;
    world.until_db("a node cannot run", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    let early = windlass(&world, &["wait", "nd/db", "--timeout", "0"]).await;
    assert!(early.code == 3 && early.err == "windlass: timed out\n", "{}{}", early.code, early.err);
    let ill = windlass(&world, &["status", "nd/db"]).await;
    for words in
        ["Updating 0/3", "wave 1 of 3", "1 → 2-nope", "✗ db-2", "ImagePullBackOff", "2 nodes available at 1"]
    {
        assert!(ill.out.contains(words), "{words}: {}", ill.out);
    }
    let why = windlass(&world, &["explain", "nd/db"]).await;
    for words in
        ["UpToDate=Unknown Applying", "plan ", "StatefulNode db-2", "pod db-2-0", "windlass rollback nd/db"]
    {
        assert!(why.out.contains(words), "{words}: {}{}", why.out, why.err);
    }
    let why = windlass(&world, &["explain", "sn/db-2", "-o", "json"]).await;
    let why: Value = serde_json::from_str(&why.out).unwrap();
    assert_eq!(why["links"][0]["of"], "StatefulNode db-2", "{why:#}");
    let differs = windlass(&world, &["diff", "nd/db"]).await;
    assert!(
        differs.out.contains("podTemplate.spec.containers[db].image \"db:1\" → \"db:2-nope\""),
        "{}",
        differs.out
    );
    let same = windlass(&world, &["diff", "nd/db", "--revision", "1", "--revision", "1"]).await;
    assert!(same.out.contains("no differences"), "{}{}", same.out, same.err);
    let story = windlass(&world, &["logs", "nd/db"]).await;
    for words in ["RolloutStarted", "NodeCreated", "TaskBegan", "update-node-specs", "PlanStarted"] {
        assert!(story.out.contains(words), "{words}: {}{}", story.out, story.err);
    }
    let data = windlass(&world, &["status", "nd/db", "-o", "json"]).await;
    let data: Value = serde_json::from_str(&data.out).unwrap();
    assert_eq!(data["nodes"][2]["health"], "Failed", "{data:#}");
    assert_eq!(data["rollout"]["toImage"], "db:2-nope");
    let waited = windlass(&world, &["wait", "nd/db", "--timeout", "30s"]).await;
    assert_eq!(waited.code, 1, "{}{}", waited.out, waited.err);
    assert!(waited.out.contains("is stalled: waiting for db-2: ImagePullBackOff"), "{}", waited.out);
    assert_eq!(windlass(&world, &["status", "--exit-status"]).await.code, 1);

    // A watching user sees it recover, a line per change.
    let mut watching = Command::new(env!("CARGO_BIN_EXE_windlass"));
    watching
        .args(["status", "-w", "--exit-status", "nd/db", "-n", &world.ns])
        .env("KUBECONFIG", world.cp.kubeconfig());
    world.patch_fleet(json!({"spec": {"updateStrategy": {"progressDeadlineSeconds": 60}}})).await;
    world.set_image("db:3").await;
    world.until_db("it is on its way", |db| condition(db, "Stalled") == "False/Progressing").await;
    let watched =
        tokio::time::timeout(windlass_harness::kit::PATIENCE, watching.output()).await.unwrap().unwrap();
    let lines = String::from_utf8(watched.stdout).unwrap();
    assert_eq!(watched.status.code(), Some(0), "{lines}");
    assert!(lines.lines().count() > 1 && lines.contains("● ● ●"), "{lines}");
    world.until_applied().await;

    let viewer = account(
        &world,
        "viewer",
        json!([{"apiGroups": ["windlass.dev"], "resources": ["nodedeployments"], "verbs": ["get", "list", "watch"]}]),
    )
    .await;
    let seen = windlass_as(&world, &viewer, &["status", "nd/db"]).await;
    assert_eq!(seen.code, 0, "{}", seen.err);
    assert!(seen.out.contains("left out, because StatefulNodes cannot be listed"), "{}", seen.out);
    let nobody = account(&world, "nobody", json!([])).await;
    let refused = windlass_as(&world, &nobody, &["status"]).await;
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    assert!(refused.err.contains("cannot be listed"), "{}", refused.err);

    let audit = world.cp.audit_since(mark).await;
    let agents = audit.namespace(&world.ns).write_attempts();
    let ours = agents.entries().iter().filter(|e| e.user_agent.starts_with("windlass/"));
    let ours: Vec<_> = ours.filter(|e| e.user.username != world.operator_user()).collect();
    assert!(ours.is_empty(), "looking writes nothing: {ours:?}");
}

/// The output of `windlass plan` as data.
async fn planned(world: &World, words: &[&str]) -> (i32, Value) {
    let ran = windlass(world, &[&["plan", "nd/db", "-o", "json"], words].concat()).await;
    assert_eq!(ran.err, "", "{words:?}");
    (ran.code, serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.out)))
}

/// The nodes to be updated, in order.
fn order(planned: &Value) -> Vec<String> {
    let waves = planned["waves"].as_array().unwrap().iter();
    let nodes = waves.flat_map(|wave| wave["nodes"].as_array().unwrap());
    nodes.map(|node| node["name"].as_str().unwrap().to_owned()).collect()
}

/// The inputs of `plan` other than a file, on a settled fleet of this manifest.
async fn what_plan_reads(world: &World, manifest: &Value) {
    // A list on standard input, with other objects; and a manifest of another namespace than the flag's.
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        manifest, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}}]});
    let read = piped(world, &["plan", "-f", "-"], &list.to_string()).await;
    assert_eq!(read.code, 0, "{}{}", read.out, read.err);
    assert!(read.out.contains("no change"), "{}", read.out);
    assert_eq!(
        read.err,
        "windlass: ignored (plan only handles NodeDeployments and StatefulSetRollouts): ConfigMap cm\n"
    );
    let mut elsewhere = manifest.clone();
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    let read = piped(world, &["plan", "-f", "-"], &elsewhere.to_string()).await;
    assert_eq!((read.code, read.out.as_str()), (1, ""), "{}", read.err);
    assert!(read.err.contains("has namespace elsewhere, not "), "{}", read.err);
    // Every fleet at once.
    let all = windlass(world, &["plan", "nd", "--image", "db:1"]).await;
    assert!(all.code == 0 && all.out.contains("db   no change"), "{}{}", all.out, all.err);
    let why = windlass(world, &["explain", "nd"]).await;
    assert!(why.code == 0 && why.out.contains("NodeDeployment db"), "{}{}", why.out, why.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_forecasts_the_rollout_without_writes() {
    let world = World::new("plan").await;
    let folder = std::env::temp_dir().join(format!("windlass-plan-{}", &*world.ns));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("db.yaml");
    let mut manifest = fleet(3, "db:1");
    manifest["apiVersion"] = json!("windlass.dev/v1alpha1");
    manifest["kind"] = json!("NodeDeployment");
    let written = |manifest: &Value| std::fs::write(&file, manifest.to_string()).unwrap();
    written(&manifest);
    let path = file.to_str().unwrap();
    let new = windlass(&world, &["plan", "-f", path]).await;
    assert_eq!((new.code, new.err.as_str()), (2, ""), "{}", new.out);
    assert!(new.out.contains("is created") && new.out.contains("+db-0 +db-1 +db-2"), "{}", new.out);
    assert!(world.db().await.is_null());
    world.cp.kubectl(&["-n", &world.ns, "apply", "-f", path]).await.ok();
    world.until_applied().await;
    world.until_quiet().await;
    let mark = world.cp.audit_mark().await;

    what_plan_reads(&world, &manifest).await;
    let same = windlass(&world, &["plan", "-f", path]).await;
    assert_eq!(same.code, 0, "{}{}", same.out, same.err);
    assert!(same.out.contains("no change"), "{}", same.out);
    let told = windlass(&world, &["plan", "nd/db", "--image", "db:2"]).await;
    assert_eq!(told.code, 2, "{}{}", told.out, told.err);
    for words in [
        "podTemplate.spec.containers[db].image \"db:1\" → \"db:2\"",
        "a rollout InPlace to",
        "wave 1: db-2",
        "wave 3: db-0",
        "at most 1 unavailable at once",
    ] {
        assert!(told.out.contains(words), "{words}: {}", told.out);
    }
    let (code, refused) = planned(&world, &["--replicas", "-1"]).await;
    assert_eq!(code, 1, "{refused:#}");
    assert!(refused["refused"].as_str().unwrap().contains("spec.replicas"), "{refused:#}");
    let mut odd = manifest.clone();
    odd["spec"]["template"]["spec"]["podTemplate"]["spec"]["containers"][0]["imagee"] = json!("x");
    written(&odd);
    let odd = windlass(&world, &["plan", "-f", path]).await;
    assert_eq!(odd.code, 1, "{}{}", odd.out, odd.err);
    assert!(odd.out.contains("is rejected") && odd.out.contains("imagee"), "{}", odd.out);

    // A user who may only read is told what was not checked.
    let viewer = account(
        &world,
        "viewer",
        json!([{"apiGroups": ["windlass.dev", "apps", ""], "resources": ["*"], "verbs": ["get", "list", "watch"]}]),
    )
    .await;
    let seen = windlass_as(&world, &viewer, &["plan", "nd/db", "--image", "db:2"]).await;
    assert_eq!(seen.code, 2, "{}{}", seen.out, seen.err);
    assert!(seen.out.contains("not checked whether the API server accepts the fleet"), "{}", seen.out);
    assert!(seen.out.contains("wave 1: db-2"), "{}", seen.out);
    // A user who may not read nodes is told nothing about them, in particular not that they would be created.
    let fleets =
        json!([{"apiGroups": ["windlass.dev"], "resources": ["nodedeployments"], "verbs": ["get", "patch"]}]);
    let blind = account(&world, "blind", fleets).await;
    let seen = windlass_as(&world, &blind, &["plan", "nd/db", "--image", "db:2"]).await;
    assert_eq!(seen.code, 2, "{}{}", seen.out, seen.err);
    assert!(seen.out.contains("you have no right to list StatefulNodes"), "{}", seen.out);
    assert!(!seen.out.contains("db-2"), "{}", seen.out);
    let audit = world.cp.audit_since(mark).await;
    let writes = audit.namespace(&world.ns).write_attempts();
    let ours: Vec<_> = writes.entries().iter().filter(|e| e.user_agent.starts_with("windlass/")).collect();
    assert!(ours.iter().all(|e| e.user.username == world.operator_user()), "{ours:?}");

    // The forecast matches what happens, for a steady, a blocked and a growing fleet.
    for (image, replicas) in [("db:2", 3), ("db:3-nope", 3), ("db:4", 5), ("db:4", 4)] {
        let replicas_word = replicas.to_string();
        let (code, said) = planned(&world, &["--image", image, "--replicas", &replicas_word]).await;
        assert_eq!(code, 2, "{said:#}");
        let before = world.uids(&world.pods()).await;
        world
            .patch_fleet(json!({"spec": {"replicas": replicas, "template": {"spec": {"image": image}}}}))
            .await;
        if image.ends_with("nope") {
            world.until_db("a node is held", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
            let held = world.db().await;
            assert_eq!(
                held["status"]["rollout"]["unconverged"][0]["name"],
                json!(order(&said)[0]),
                "{said:#}"
            );
        } else {
            world.until_applied().await;
            world.until_quiet().await;
            let after = world.uids(&world.pods()).await;
            let moved = |name: &str| after.get(name) != before.get(name);
            for node in (0..5).map(|ordinal| format!("db-{ordinal}")) {
                assert_eq!(moved(&format!("{node}-0")), order(&said).contains(&node), "{node}: {said:#}");
            }
        }
        let db = world.db().await;
        assert_eq!(db["status"]["requestedRolloutHash"], said["targetHash"], "{said:#}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn plan_reports_full_quota_and_name_conflict() {
    let world = World::new("plan-refused").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    for (name, what) in [("few-nodes", "count/statefulnodes.windlass.dev"), ("few-pods", "pods")] {
        let quota = json!({"metadata": {"name": name}, "spec": {"hard": {what: "3"}}});
        world.create("v1", "ResourceQuota", quota).await;
        let quotas = world.api("v1", "ResourceQuota");
        let counted = |quota: &Value| quota["status"]["used"][what] == "2";
        world.until(&quotas, name, "it is counted", counted).await;
        let (code, said) = planned(&world, &["--replicas", "3"]).await;
        assert_eq!((code, &said["refused"]), (2, &Value::Null), "{said:#}");
        let (code, said) = planned(&world, &["--replicas", "4"]).await;
        let sentence =
            format!("exceeded quota: {name}, requested: {what}=2, used: {what}=2, limited: {what}=3");
        assert_eq!((code, said["refused"].as_str()), (1, Some(sentence.as_str())), "{said:#}");
        let (code, said) = planned(&world, &["--image", "db:2"]).await;
        assert_eq!(code, 2, "no node more is made: {said:#}");
        let text = windlass(&world, &["plan", "nd/db", "--replicas", "4"]).await;
        assert!(text.code == 1 && text.out.contains(&sentence), "{}", text.out);
        world.delete(&quotas, name).await;
        world.until(&quotas, name, "it is gone", Value::is_null).await;
    }
    // Without the right to check, the output says so where it matters.
    let viewer = account(
        &world,
        "viewer",
        json!([{"apiGroups": ["windlass.dev", "apps"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]),
    )
    .await;
    let seen = windlass_as(&world, &viewer, &["plan", "nd/db", "--replicas", "3"]).await;
    assert!(seen.out.contains("quotas not checked"), "{}{}", seen.out, seen.err);

    // A name that is taken.
    world
        .create(
            "windlass.dev/v1alpha1",
            "StatefulNode",
            json!({"metadata": {"name": "db-2"},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "x", "image": "x:1"}]}}}}),
        )
        .await;
    let (code, said) = planned(&world, &["--replicas", "3"]).await;
    assert!(code == 1 && said["refused"].as_str().unwrap().contains("db-2"), "{said:#}");
    world.delete(&world.nodes(), "db-2").await;
    world.until(&world.nodes(), "db-2", "it is gone", Value::is_null).await;
}
