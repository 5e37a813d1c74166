//! Exit codes of commands: `status --exit-status`, `wait`, `plan`, and usage errors.

use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::process::Command;

use crate::e2e::commands::{Ran, windlass, windlass_plain};
use windlass_harness::kit::{World, condition, fleet};

/// A command without a cluster.
async fn without_a_cluster(words: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(words).env("KUBECONFIG", "/nonexistent/kubeconfig").env("HOME", "/nonexistent");
    command.env_remove("KUBERNETES_SERVICE_HOST");
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_usage_is_told_with_its_code_where_no_cluster_is_known() {
    // A missing name, one of another kind, an invalid value, conflicting flags.
    let table: [(&[&str], &str); 19] = [
        (&["wait"], "say for which fleet: nd/NAME, or nd for all of them"),
        (&["wait", "sn/db-0"], "wait is for a NodeDeployment"),
        (&["wait", "nd/db", "--timeout", "soon"], "\"soon\" is no time: write 30s, 5m or 1h30m"),
        (&["status", "db"], "\"db\" names no kind; write nd/db or sn/db"),
        (&["status", "sn/db-0"], "status is for a NodeDeployment"),
        (&["status", "-o", "xml"], "invalid value 'xml'"),
        (&["status", "-w", "-o", "json"], "cannot be used with"),
        (&["status", "nd/db", "-A"], "an object is in one namespace"),
        (&["plan", "--nonsense"], "unexpected argument '--nonsense' found"),
        (&["plan"], "say which fleet, nd/NAME, or which file, -f FILE"),
        (&["plan", "sn/db-0", "--image", "db:2"], "plan is for a NodeDeployment"),
        (&["plan", "nd/db", "--replicas", "many"], "invalid value 'many'"),
        (&["plan", "nd/db", "-f", "db.yaml"], "leave the name out"),
        (&["plan", "-f", "db.yaml", "--image", "db:2"], "cannot be used with"),
        (&["explain"], "say what to explain: nd/NAME or sn/NAME"),
        (&["diff"], "say which fleet: nd/NAME"),
        (&["logs", "sn/db-0"], "logs is for a NodeDeployment"),
        (&["history", "sn/db-0"], "history is for a NodeDeployment"),
        (&["approve", "nd"], "nd alone names no object"),
    ];
    for (words, sentence) in table {
        let ran = without_a_cluster(words).await;
        // For a script, 2 of `plan` means that something would change.
        let code = if words[0] == "plan" { 1 } else { 2 };
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{words:?}: {}", ran.err);
        assert!(ran.err.starts_with("windlass: ") && ran.err.contains(sentence), "{words:?}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{words:?}: {}", ran.err);
    }
    // Valid arguments without a cluster: another code, and another message.
    for words in
        [&["status"][..], &["wait", "nd/db"], &["plan", "nd/db", "--image", "db:2"], &["explain", "nd/db"]]
    {
        let ran = without_a_cluster(words).await;
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{words:?}: {}", ran.err);
        assert!(ran.err.contains("kubeconfig"), "{words:?}: {}", ran.err);
    }
    for (text, said) in [
        ("a: [", "is no YAML: line 1"),
        ("kind: ConfigMap\nmetadata: {name: cm}", "has no NodeDeployment, but ConfigMap cm"),
        ("words", "has no NodeDeployment, but a document without a kind"),
        ("", "has no NodeDeployment"),
        ("apiVersion: windlass.dev/v1alpha1\nkind: NodeDeployment", "a NodeDeployment has no name"),
    ] {
        let file = std::env::temp_dir().join(format!("windlass-codes-{}.yaml", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let ran = without_a_cluster(&["plan", "-f", file.to_str().unwrap()]).await;
        std::fs::remove_file(&file).unwrap();
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{text:?}: {}", ran.err);
        assert!(ran.err.contains(said) && ran.err.lines().count() == 1, "{text:?}: {}", ran.err);
    }
    let ran = without_a_cluster(&["plan", "-f", "/nonexistent/db.yaml"]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("/nonexistent/db.yaml cannot be read"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn each_verdict_has_its_code() {
    let world = World::new("codes").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let code = async |words: &[&str]| windlass(&world, words).await.code;
    assert_eq!(code(&["status", "--exit-status"]).await, 0);
    assert_eq!(code(&["wait", "nd/db", "--timeout", "0"]).await, 0);
    assert_eq!(code(&["plan", "nd/db", "--image", "db:1"]).await, 0);
    assert_eq!(code(&["plan", "nd/db", "--image", "db:2"]).await, 2);
    assert_eq!(code(&["plan", "nd/db", "--replicas", "3"]).await, 2);
    assert_eq!(code(&["plan", "nd/db", "--replicas", "-1"]).await, 1);
    assert_eq!(code(&["plan", "nd/none", "--image", "db:2"]).await, 1);

    // In progress, and it stays so: paused in its first wave.
    world.steer("db-1-0", "unready").await;
    world.set_image("db:2").await;
    world.until_db("it is on its way", |db| condition(db, "UpToDate") == "Unknown/Applying").await;
    assert_eq!(code(&["status", "--exit-status"]).await, 3);
    assert_eq!(code(&["status", "nd/db"]).await, 0, "nobody asked for the code");
    let began = Instant::now();
    let waited = windlass(&world, &["wait", "nd/db", "--timeout", "2s"]).await;
    assert_eq!(waited.code, 3, "{}{}", waited.out, waited.err);
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(waited.out.contains("is on its way: waiting for"), "{}", waited.out);
    assert_eq!(waited.err, "windlass: the time is over\n");

    // Stalled. Further observations of that node would count as progress.
    world.until_db("its pod runs", |db| db["status"]["rollout"]["nodes"]["updated"] == 1).await;
    let strategy = json!({"spec": {"updateStrategy": {"progressDeadlineSeconds": 1}}});
    world.patch_fleet(strategy).await;
    let waited = windlass(&world, &["wait", "nd/db", "--timeout", "60s"]).await;
    assert_eq!(waited.code, 1, "{}{}", waited.out, waited.err);
    assert!(waited.out.contains("is stalled: waiting for "), "{}", waited.out);
    assert_eq!(code(&["status", "--exit-status"]).await, 1);

    // Refused by the operator.
    world.steer("db-1-0", "default").await;
    world.patch_fleet(json!({"spec": {"updateStrategy": {"progressDeadlineSeconds": 600}}})).await;
    let waited = windlass(&world, &["wait", "nd/db", "--timeout", "60s"]).await;
    assert_eq!(waited.code, 0, "{}{}", waited.out, waited.err);
    let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "a lot"}}]);
    world.patch_template(json!({"spec": {"volumes": volumes}})).await;
    world.until_db("it is refused", |db| condition(db, "UpToDate").ends_with("InvalidSpec")).await;
    let waited = windlass(&world, &["wait", "nd/db", "--timeout", "60s"]).await;
    assert_eq!(waited.code, 1, "{}{}", waited.out, waited.err);
    assert!(waited.out.contains("is refused: "), "{}", waited.out);
    assert_eq!(code(&["status", "--exit-status"]).await, 1);

    // A missing one.
    let gone = windlass(&world, &["wait", "nd/none", "--timeout", "1s"]).await;
    assert_eq!((gone.code, gone.out.as_str()), (1, ""), "{}", gone.err);

    // A namespace without fleets.
    for words in [&["wait", "nd", "--timeout", "60s"][..], &["pause", "nd", "--all"]] {
        let ran = windlass_plain(world.cp.kubeconfig(), &[words, &["-n", "nosuch"]].concat()).await;
        let said = (ran.code, ran.out.as_str(), ran.err.as_str());
        assert_eq!(said, (1, "", "windlass: No fleets found in namespace nosuch.\n"), "{words:?}");
    }
}
