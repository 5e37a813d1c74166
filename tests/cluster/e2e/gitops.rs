//! Argo CD's and kstatus' assessment of fleets and nodes: deploy/argocd under a real Lua, and the library of kstatus,
//! on objects as the operator left them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use windlass_harness::controlplane::GoProgram;
use windlass_harness::debian;
use windlass_harness::kit::{World, condition, fleet};

const KSTATUS: GoProgram = GoProgram {
    name: "kstatus",
    told: "kstatus",
    module: "tests/cluster/e2e/go/kstatus",
    modfile: None,
    cgo: false,
    package: ".",
};

/// A JSON value in Lua; null is absent there.
fn lua(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Array(items) => format!("{{{}}}", items.iter().map(lua).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("[{key:?}]={}", lua(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
        }
        Value::String(text) => {
            let byte = |byte: u8| format!("\\{byte:03}");
            format!("\"{}\"", text.bytes().map(byte).collect::<String>())
        }
        other => other.to_string(),
    }
}

/// Lists the actions that are available, in a line.
const AVAILABLE: &str = "local names = {}\nfor name, action in pairs(r) do if not action.disabled then table.insert(names, name) end end\n\
                         table.sort(names)\nprint(table.concat(names, ' '))";

/// The libraries that Argo CD does not open for a script.
const CLOSED: &str = "local print, loadfile = print, loadfile\ngetmetatable('').__index = nil\nstring, math, utf8, io, coroutine, debug = nil";

/// Runs a script of deploy/argocd on an object; `print` formats its result, in which it is `r`.
fn run(program: &PathBuf, script: &str, object: &Value, print: &str) -> Vec<String> {
    let path = format!("{}/../../deploy/argocd/{script}.lua", env!("CARGO_MANIFEST_DIR"));
    let text = format!("{CLOSED}\nobj = {}\nlocal r = assert(loadfile({path:?}))()\n{print}\n", lua(object));
    let mut child = Command::new(program)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Lua runs");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn kstatus(objects: &[&Value]) -> Vec<String> {
    let mut child = Command::new(KSTATUS.path().expect("kstatus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("kstatus runs");
    let text: String = objects.iter().map(ToString::to_string).collect();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The expected assessments of an object, and its available actions.
struct Seen {
    object: Value,
    kstatus: &'static str,
    health: &'static str,
    message: &'static str,
    actions: &'static str,
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_and_kstatus_report_fleet_health() {
    let world = World::new("gitops").await;
    let mut wanted = fleet(2, "db:1");
    wanted["spec"]["updateStrategy"]["progressDeadlineSeconds"] = json!(3);
    let mut seen = Vec::new();
    let mut see = |object: Value, kstatus, health, message, actions| {
        seen.push(Seen { object, kstatus, health, message, actions });
    };
    let settled = world.settled_fleet(wanted).await;
    let mut unseen = settled.clone();
    unseen["metadata"]["generation"] = json!(settled["metadata"]["generation"].as_i64().unwrap() + 1);
    see(settled, "Current", "Healthy", "", "pause restart");
    see(unseen, "InProgress", "Progressing", "was not looked at yet", "pause restart");
    see(world.get(&world.nodes(), "db-0").await, "Current", "Healthy", "", "");

    world.patch_fleet(json!({"spec": {"paused": true}})).await;
    let paused = world.until_db("it is paused", |db| db["status"]["phase"] == "Paused").await;
    see(paused, "Current", "Suspended", "it is paused", "restart resume");
    world.patch_fleet(json!({"spec": {"paused": false}})).await;

    world.set_image("db:2-slow").await;
    let rolling = |db: &Value| {
        let says = db["status"]["rollout"]["message"].as_str().is_some_and(|said| said.contains("db-"));
        says && condition(db, "Stalled").starts_with("False")
    };
    let rolling = world.until_db("it is rolled", rolling).await;
    see(rolling, "InProgress", "Progressing", "db-", "abort pause restart");
    world.set_image("db:3-nope").await;
    let stalled = world.until_db("it stalls", |db| condition(db, "Stalled") == "True/NoProgress").await;
    see(stalled.clone(), "Failed", "Degraded", "NoProgress: ", "abort pause restart");
    let node = world.get(&world.nodes(), "db-1").await;
    assert_ne!(node["status"]["phase"], "Running", "{node:#}");

    world.annotate_fleet("windlass.dev/abort", stalled["status"]["plan"]["id"].clone()).await;
    let aborted = world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    see(aborted.clone(), "Failed", "Degraded", "Aborted: ", "pause restart retry");

    let computed = kstatus(&seen.iter().map(|seen| &seen.object).collect::<Vec<_>>());
    for (seen, computed) in seen.iter().zip(computed) {
        assert_eq!(computed, seen.kstatus, "{:#}", seen.object["status"]);
    }
    let Some(program) = debian::program("lua5.4", "usr/bin/lua5.4") else { return };
    for Seen { object, health, message, actions, .. } in &seen {
        let said = run(&program, "health", object, "print(r.status)\nprint(r.message)");
        assert_eq!(said[0], *health, "{:#}", object["status"]);
        assert!(said[1].contains(message), "{message:?} is not in {:?}", said[1]);
        if object["kind"] == "NodeDeployment" {
            assert_eq!(
                run(&program, "actions/discovery", object, AVAILABLE),
                [*actions],
                "{:#}",
                object["status"]
            );
        }
    }
    let annotated = |key: &str| format!("print(r.metadata.annotations['windlass.dev/{key}'])");
    let plan = stalled["status"]["plan"]["id"].as_str().unwrap();
    assert_eq!(run(&program, "actions/pause", &stalled, "print(r.spec.paused)"), ["true"]);
    assert_eq!(run(&program, "actions/resume", &stalled, "print(r.spec.paused)"), ["false"]);
    assert_eq!(run(&program, "actions/abort", &stalled, &annotated("abort")), [plan]);
    assert_eq!(run(&program, "actions/retry", &aborted, &annotated("retry")), [plan]);
    let hash = stalled["status"]["requestedRolloutHash"].as_str().unwrap();
    assert_eq!(run(&program, "actions/promote", &stalled, "print(r.spec.forcePromote)"), [hash]);
    let at = run(&program, "actions/restart", &stalled, &annotated("restartedAt")).remove(0);
    assert!(chrono::DateTime::parse_from_rfc3339(&at).is_ok(), "{at}");
}

/// A StatefulSetRollout with this in its spec, these conditions (type, status, reason, message), and more in its status.
fn rollout(spec: &Value, conditions: &[[&str; 4]], more: &Value) -> Value {
    let conditions = conditions.iter().map(|[type_, status, reason, message]| {
        json!({"type": type_, "status": status, "reason": reason, "message": message})
    });
    let mut object = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulSetRollout",
        "metadata": {"name": "ledger", "generation": 2}, "spec": spec,
        "status": {"observedGeneration": 2, "conditions": conditions.collect::<Value>()},
    });
    json_patch::merge(&mut object["status"], more);
    object
}

#[test]
fn argo_cd_reports_statefulset_rollouts_and_hold_state() {
    let Some(program) = debian::program("lua5.4", "usr/bin/lua5.4") else { return };
    let held = ["Held", "True", "Held", ""];
    let ready = ["Ready", "True", "NodesReady", ""];
    let rolls = ["Reconciling", "True", "RollingOut", "2 of 3 pods are updated"];
    let overwritten = "argocd-controller writes updateStrategy of StatefulSet ledger";
    let active = json!({"plan": {"id": "p", "state": "Active"}});
    let waits = json!({"rollout": {"message": "waits for ledger-1"}, "plan": {"id": "p", "state": "Active"}});
    let none = json!({});
    for (spec, conditions, more, health, message, actions) in [
        (&none, &[held, ready][..], &none, "Healthy", "", "pause restart"),
        (&none, &[ready], &none, "Healthy", "", "pause restart"),
        (
            &none,
            &[ready],
            &json!({"observedGeneration": 1}),
            "Progressing",
            "was not looked at",
            "pause restart",
        ),
        (&none, &[held, ready, rolls], &active, "Progressing", "2 of 3 pods", "abort pause restart"),
        (&none, &[held, ready, rolls], &waits, "Progressing", "waits for ledger-1", "abort pause restart"),
        (&json!({"paused": true}), &[held, ready], &none, "Suspended", "it is paused", "restart resume"),
        (
            &json!({"paused": true}),
            &[["Held", "False", "StrategyOverwritten", overwritten], ready],
            &none,
            "Degraded",
            "StrategyOverwritten: argocd-controller writes",
            "restart resume",
        ),
        (
            &none,
            &[["Stalled", "True", "NoProgress", "ledger-1 is not ready"], held, rolls],
            &active,
            "Degraded",
            "NoProgress: ledger-1",
            "abort pause restart",
        ),
        (
            &none,
            &[["Stalled", "True", "RolledBack", "to ledger-5"], held],
            &json!({"rejected": {"planID": "p"}, "plan": {"id": "p", "state": "Aborted"}}),
            "Degraded",
            "RolledBack",
            "pause restart retry",
        ),
    ] {
        let object = rollout(spec, conditions, more);
        let said = run(&program, "health", &object, "print(r.status)\nprint(r.message)");
        assert_eq!(said[0], health, "{object:#}");
        assert!(said[1].contains(message), "{message:?} is not in {:?}", said[1]);
        assert_eq!(run(&program, "actions/discovery", &object, AVAILABLE), [actions], "{object:#}");
    }
    let object = rollout(&none, &[held, ready], &active);
    assert_eq!(run(&program, "actions/pause", &object, "print(r.spec.paused)"), ["true"]);
    let abort = "print(r.metadata.annotations['windlass.dev/abort'])";
    assert_eq!(run(&program, "actions/abort", &object, abort), ["p"]);
}

/// The same for a WorkerDeployment.
fn workers(spec: &Value, conditions: &[[&str; 4]], more: &Value) -> Value {
    let mut object = rollout(spec, conditions, more);
    (object["kind"], object["metadata"]["name"]) = (json!("WorkerDeployment"), json!("orders"));
    object
}

#[test]
fn argo_cd_and_kstatus_report_worker_deployments() {
    let ready = ["Ready", "True", "WorkersReady", ""];
    let settled = ["Reconciling", "False", "Settled", ""];
    let moves = ["Reconciling", "True", "Progressing", "5 % of the tasks go to 2"];
    let gate = ["Stalled", "True", "GateFailed", "gate Smoke failed on orders"];
    let short = ["Ready", "False", "WorkersNotReady", "0 of 2 workers of 1 are ready"];
    let promotes = ["UpToDate", "Unknown", "ReadyToPromote", "2 is ready to be promoted"];
    let active = json!({"plan": {"id": "p", "state": "Active"}});
    let mut asks = active.clone();
    asks["hooks"] = json!([{"hook": "release", "taskID": "p-7", "state": "AwaitingApproval"}]);
    let rejected = json!({"rejected": {"planID": "p"}, "plan": {"id": "p", "state": "Superseded"}});
    let none = json!({});
    let cases = [
        (&none, &[ready, settled][..], &none, "Current", "Healthy", "", "pause restart"),
        (
            &none,
            &[ready, moves],
            &active,
            "InProgress",
            "Progressing",
            "5 % of the tasks",
            "abort pause restart",
        ),
        (
            &none,
            &[ready, promotes, moves],
            &active,
            "InProgress",
            "Suspended",
            "2 is ready",
            "abort pause promote restart",
        ),
        (
            &none,
            &[ready, moves],
            &asks,
            "InProgress",
            "Suspended",
            "hook release waits",
            "abort pause restart",
        ),
        (
            &json!({"paused": true}),
            &[ready, moves],
            &active,
            "InProgress",
            "Suspended",
            "it is paused",
            "abort restart resume",
        ),
        (
            &none,
            &[ready, gate],
            &active,
            "Failed",
            "Degraded",
            "GateFailed: gate Smoke",
            "abort pause restart retry",
        ),
        (
            &none,
            &[ready, ["Stalled", "True", "RolledBack", "the rollout of 2 was rolled back"]],
            &rejected,
            "Failed",
            "Degraded",
            "RolledBack: ",
            "pause restart retry",
        ),
        (&none, &[short, settled], &none, "InProgress", "Degraded", "0 of 2 workers", "pause restart"),
        (&json!({"replicas": 0}), &[short, settled], &none, "InProgress", "Healthy", "", "pause restart"),
    ];
    let objects: Vec<Value> =
        cases.iter().map(|(spec, conditions, more, ..)| workers(spec, conditions, more)).collect();
    let computed = kstatus(&objects.iter().collect::<Vec<_>>());
    let program = debian::program("lua5.4", "usr/bin/lua5.4");
    for ((object, computed), (.., kstatus, health, message, actions)) in
        objects.iter().zip(computed).zip(cases)
    {
        assert_eq!(computed, kstatus, "{object:#}");
        let Some(program) = &program else { continue };
        let said = run(program, "health", object, "print(r.status)\nprint(r.message)");
        assert_eq!(said[0], health, "{object:#}");
        assert!(said[1].contains(message), "{message:?} is not in {:?}", said[1]);
        assert_eq!(run(program, "actions/discovery", object, AVAILABLE), [actions], "{object:#}");
    }
}

#[test]
fn argo_cd_retries_workers_again_after_a_spent_request() {
    let Some(program) = debian::program("lua5.4", "usr/bin/lua5.4") else { return };
    let gate = ["Stalled", "True", "GateFailed", "gate Smoke failed on orders"];
    let mut spent = workers(&json!({}), &[gate], &json!({"plan": {"id": "p", "state": "Active"}}));
    spent["metadata"]["annotations"] = json!({"windlass.dev/retry": "p"});
    let retry = "print(r.metadata.annotations['windlass.dev/retry'])";
    assert_eq!(run(&program, "actions/retry", &spent, retry), ["p"], "it is requested already");
    spent["status"]["spentRetry"] = json!("p");
    assert_eq!(run(&program, "actions/retry", &spent, retry), ["p/2"]);
}

/// A fleet of hand: its plan, the hooks of its status, and more of the status.
fn at_hooks(plan: &Value, hooks: &Value, more: &Value) -> Value {
    let mut object = json!({"metadata": {}, "spec": {}, "status": {"plan": plan, "hooks": hooks}});
    json_patch::merge(&mut object["status"], more);
    object
}

#[test]
fn argo_cd_actions_retry_hooks_and_undo_promotion() {
    let Some(program) = debian::program("lua5.4", "usr/bin/lua5.4") else { return };
    let available = |object: &Value| run(&program, "actions/discovery", object, AVAILABLE).remove(0);
    let failed = json!([{"hook": "go", "taskID": "p-1", "state": "Failed"}]);
    let plan = |recipe: &str, switched: &str, hook: &str| {
        json!({"id": "p", "recipe": recipe, "state": "Active", "tasks": [
            {"id": "p-0", "type": "switch-traffic", "state": switched},
            {"id": "p-1", "type": "await-approval", "state": hook, "params": {"hook": "go", "at": "AfterPromotion"}},
            {"id": "p-2", "type": "retire-incumbents", "state": "Pending"}]})
    };
    let promoting = json!({"rollout": {"stage": "Promoting"}});
    for (plan, hooks, more, actions) in [
        (json!({"id": "p", "state": "Active"}), failed.clone(), json!({}), "abort pause restart retry"),
        (
            json!({"id": "p", "state": "Active"}),
            json!([{"hook": "go", "taskID": "p-1", "state": "AwaitingApproval"}]),
            json!({}),
            "abort pause restart",
        ),
        // The plan is a node's alone: only windlass retry finds it.
        (Value::Null, failed.clone(), json!({}), "pause restart"),
        (plan("BlueGreen", "Complete", "Running"), json!([]), promoting.clone(), "abort pause restart"),
        (
            plan("BlueGreen", "Complete", "Failed"),
            failed.clone(),
            promoting.clone(),
            "abort pause restart retry",
        ),
        (plan("BlueGreen", "Running", "Pending"), json!([]), promoting.clone(), "pause restart"),
        (plan("BlueGreen", "Complete", "Skipped"), json!([]), promoting.clone(), "pause restart"),
        (plan("HardFork", "Complete", "Running"), json!([]), promoting.clone(), "pause restart"),
        (plan("BlueGreenImmediate", "Complete", "Running"), json!([]), promoting, "pause restart"),
    ] {
        let object = at_hooks(&plan, &hooks, &more);
        assert_eq!(available(&object), actions, "{:#}", object["status"]);
    }
    let print = "print(r.metadata.annotations['windlass.dev/retry'])";
    let aborted = json!({"id": "q", "state": "Aborted"});
    let rejected = json!({"rejected": {"planID": "q"}});
    for (plan, hooks, more, asked, spent, expected) in [
        (json!({"id": "p", "state": "Active"}), failed.clone(), rejected.clone(), None, None, "p"),
        (aborted.clone(), json!([]), rejected.clone(), None, None, "q"),
        (aborted.clone(), json!([]), rejected.clone(), Some("q"), None, "q"),
        (aborted.clone(), json!([]), rejected.clone(), Some("q"), Some("q"), "q/2"),
        (aborted.clone(), json!([]), rejected.clone(), Some("q/2"), Some("q"), "q/2"),
        (aborted.clone(), json!([]), rejected.clone(), Some("q/9"), Some("q/9"), "q/10"),
        (aborted, json!([]), rejected, Some("p"), Some("p"), "q"),
    ] {
        let mut object = at_hooks(&plan, &hooks, &more);
        if let Some(asked) = asked {
            object["metadata"]["annotations"] = json!({"windlass.dev/retry": asked});
        }
        object["status"]["hookRetry"] = json!({"request": spent});
        assert_eq!(run(&program, "actions/retry", &object, print), [expected], "{asked:?} after {spent:?}");
    }
}
