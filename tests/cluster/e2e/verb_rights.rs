//! Each verb of the command line with an account that has exactly the rights of its row
//! in docs/reference/verbs.md; and without each of these rights.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::e2e::commands::{self, Ran};
use windlass_harness::kit::{PATIENCE, World, condition, fleet, is_applied, with};

/// A right, as in `kubectl auth can-i`: a verb, and a resource with its group.
type Right = (String, String);

const EVENTS: &str = "events.events.k8s.io";
const FLEETS: &str = "nodedeployments.windlass.dev";
const NODES: &str = "statefulnodes.windlass.dev";

/// What is between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The rights in the first row of the table with this first cell, for an object of this kind.
fn documented(row: &str, object: &str) -> BTreeSet<Right> {
    let page = include_str!("../../../docs/reference/verbs.md");
    let rows = page.lines().filter(|line| line.starts_with("| ")).map(|line| line.split('|').map(str::trim));
    let cells: Vec<&str> = rows
        .map(Iterator::collect::<Vec<_>>)
        .find(|cells| cells[1] == row || !row.contains(' ') && quoted(cells[1]).contains(&row))
        .unwrap_or_else(|| panic!("the table has no row for {row}"));
    let on_object = quoted(cells[2]).into_iter().map(|verb| (verb.to_owned(), object.to_owned()));
    let on_others = quoted(cells[3]).into_iter().filter_map(|right| right.split_once(' '));
    on_object.chain(on_others.map(|(verb, of)| (verb.to_owned(), of.to_owned()))).collect()
}

/// A kubeconfig of a new account with these rights in the world's namespace, once the API server has observed them.
async fn account(world: &World, name: &str, rights: &BTreeSet<Right>) -> PathBuf {
    let parts = |of: &str| {
        let (resource, group) = of.split_once('.').unwrap_or((of, ""));
        (resource.to_owned(), group.to_owned())
    };
    let rules = rights.iter().map(|(verb, of)| {
        let (resource, group) = parts(of);
        json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]})
    });
    let kubeconfig = commands::account(world, name, rules.collect()).await;
    let reviews: Api<SubjectAccessReview> = Api::all(world.client.clone());
    for (verb, of) in rights {
        let (resource, group) = parts(of);
        let asked = ResourceAttributes {
            namespace: Some(world.ns.to_string()),
            verb: Some(verb.clone()),
            resource: Some(resource),
            group: Some(group),
            ..ResourceAttributes::default()
        };
        let user = Some(format!("system:serviceaccount:{}:{name}", &*world.ns));
        let spec = SubjectAccessReviewSpec { user, resource_attributes: Some(asked), ..Default::default() };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let until = tokio::time::Instant::now() + PATIENCE;
        while !reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed {
            assert!(tokio::time::Instant::now() < until, "{name} is never allowed to {verb} {of}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    kubeconfig
}

async fn windlass(world: &World, account: &PathBuf, words: &[String]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let place = if words[0] == "version" { "--operator-namespace" } else { "-n" };
    command.args(words).args([place, &world.ns]).env("KUBECONFIG", account).env("COLUMNS", "1000");
    // A command that hangs is a failure.
    let ran = tokio::time::timeout(PATIENCE, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
    let output = ran.unwrap_or_else(|_| panic!("{words:?} does not end")).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// The API server's name of a missing right.
fn named((verb, of): &Right) -> String {
    let (resource, group) = of.split_once('.').unwrap_or((of, ""));
    format!("cannot {verb} resource \"{resource}\" in API group \"{group}\"")
}

/// A world in which each verb has an effect, and nothing else acts: the operator has been killed.
async fn still(world: &mut World) {
    crate::e2e::leader::may_elect(world).await;
    world.start_electing_operator().await;
    let fleets = world.fleets();
    let named = |name: &str, object: Value| with(object, &json!({"metadata": {"name": name}}));
    let image = |tag: &str| json!({"spec": {"template": {"spec": {"image": tag}}}});
    let hooks = |hooks: Value| json!({"spec": {"updateStrategy": {"hooks": hooks}}});
    let blue_green =
        json!({"spec": {"updateStrategy": {"type": "BlueGreen", "blueGreen": {"promotion": "Manual"}}}});
    for name in ["db", "held", "steady", "stopped", "ill"] {
        world.fleet(named(name, fleet(1, "db:1"))).await;
    }
    world.fleet(named("bg", with(fleet(1, "db:1"), &blue_green))).await;
    for name in ["db", "held", "steady", "stopped", "ill", "bg"] {
        world.until(&fleets, name, "it runs", is_applied).await;
    }
    world.patch(&fleets, "db", image("db:2")).await;
    world
        .until(&fleets, "db", "it has two revisions", |db| {
            is_applied(db) && db["status"]["rollout"].is_null()
        })
        .await;

    let asks = json!([{"name": "ask", "at": "BeforeRollout", "approval": {}}]);
    world.patch(&fleets, "db", with(hooks(asks), &image("db:3"))).await;
    let late = json!([{"name": "ask", "at": "BeforeRollout", "timeoutSeconds": 1, "approval": {}}]);
    world.patch(&fleets, "held", with(hooks(late), &image("db:2"))).await;
    world.patch(&fleets, "bg", image("db:2")).await;
    world.patch(&fleets, "stopped", json!({"spec": {"paused": true}})).await;
    world.patch(&fleets, "ill", image("db:2-nope")).await;
    let waits = |db: &Value| db["status"]["hooks"][0]["state"] == "AwaitingApproval";
    world.until(&fleets, "db", "its hook waits", waits).await;
    let failed = |db: &Value| condition(db, "UpToDate") == "False/HookFailed";
    world.until(&fleets, "held", "its hook failed", failed).await;
    let ready = |db: &Value| condition(db, "UpToDate") == "Unknown/ReadyToPromote";
    world.until(&fleets, "bg", "it is ready to promote", ready).await;
    let stopped = |db: &Value| db["status"]["observedGeneration"] == db["metadata"]["generation"];
    world.until(&fleets, "stopped", "it is seen to be paused", stopped).await;
    world
        .until(&fleets, "ill", "its node is ill", |db| db["status"]["rollout"]["nodes"]["failed"] == 1)
        .await;
    world.kill_operator().await;
}

/// Resets a fleet's spec and annotations.
async fn put_back(world: &World, fleet: &Value) {
    let name = fleet["metadata"]["name"].as_str().unwrap();
    let mut object = fleet.clone();
    object["metadata"]["resourceVersion"] =
        world.get(&world.fleets(), name).await["metadata"]["resourceVersion"].clone();
    let object = serde_json::from_value(object).unwrap();
    world.fleets().replace(name, &PostParams::default(), &object).await.expect("it is put back");
    looked_at(world, name).await;
}

/// Simulates that the operator observed a fleet's spec.
async fn looked_at(world: &World, name: &str) {
    let now = world.get(&world.fleets(), name).await;
    let seen = json!({"status": {"observedGeneration": now["metadata"]["generation"]}});
    world.patch_status(&world.fleets(), name, seen).await;
}

/// True if a fleet's spec or annotations changed.
async fn is_touched(world: &World, before: &Value) -> bool {
    let now = world.get(&world.fleets(), before["metadata"]["name"].as_str().unwrap()).await;
    let wishes = |of: &Value| (of["spec"].clone(), of["metadata"]["annotations"].clone());
    wishes(&now) != wishes(before)
}

/// Rows, commands, and the fleets that they change.
const VERBS: [(&str, &str, &str); 9] = [
    ("pause", "pause nd/db", "db"),
    ("resume", "resume nd/stopped", "stopped"),
    ("restart", "restart nd/steady", "steady"),
    ("abort", "abort nd/db", "db"),
    ("retry", "retry nd/held", "held"),
    ("skip", "skip nd/held", "held"),
    ("approve", "approve nd/db", "db"),
    ("promote", "promote nd/bg", "bg"),
    ("rollback", "rollback nd/db", "db"),
];

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// The name of an account: its row, and its missing right.
fn called(of: &str, lacks: Option<&Right>) -> String {
    let lacks =
        lacks.map_or(String::new(), |(verb, of)| format!("-no-{verb}-{}", of.split('.').next().unwrap()));
    let of: String = of.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{of}{lacks}").to_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn each_verb_needs_its_documented_permissions() {
    let mut world = World::without_operator("verb-rights").await;
    still(&mut world).await;
    for (verb, line, on) in VERBS {
        let before = world.get(&world.fleets(), on).await;
        let rights = documented(verb, FLEETS);
        assert!(rights.len() >= 3, "{verb}: {rights:?}");
        for missing in &rights {
            let mut fewer = rights.clone();
            fewer.remove(missing);
            let who = account(&world, &called(verb, Some(missing)), &fewer).await;
            let ran = windlass(&world, &who, &words(line)).await;
            assert!(ran.err.contains(&named(missing)), "{line} without {missing:?}: {}{}", ran.out, ran.err);
            let done = missing.1 == EVENTS;
            assert_eq!(
                (ran.code == 0, is_touched(&world, &before).await),
                (done, done),
                "{line}: {}",
                ran.err
            );
            put_back(&world, &before).await;
        }
        let who = account(&world, &called(verb, None), &rights).await;
        let ran = windlass(&world, &who, &words(line)).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}: {}", ran.out);
        assert!(is_touched(&world, &before).await, "{line}: {}", ran.out);
        put_back(&world, &before).await;
    }

    // --all needs one more right.
    let paused = async |who: &PathBuf| windlass(&world, who, &words("pause nd --all")).await;
    let few = account(&world, "all-no-list", &documented("pause", FLEETS)).await;
    let ran = paused(&few).await;
    let list = (String::from("list"), FLEETS.to_owned());
    assert!(ran.code == 1 && ran.err.contains(&named(&list)), "{}{}", ran.out, ran.err);
    let mut rights = documented("pause", FLEETS);
    rights.extend(documented("any of them with `--all`", FLEETS));
    let ran = paused(&account(&world, "all", &rights).await).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    world.patch(&world.fleets(), "db", json!({"spec": {"paused": false}})).await;
}

/// The rows of commands that only read, their arguments, and the kind of their object.
const LOOKS: [(&str, &str, &str); 9] = [
    ("version", "version", FLEETS),
    ("history", "history nd/db", FLEETS),
    ("diff", "diff nd/db", FLEETS),
    ("plan", "plan nd/db --image db:4", FLEETS),
    ("status", "status nd/db", FLEETS),
    ("`status` of fleets that are not named", "status", FLEETS),
    ("`explain` of a fleet", "explain nd/ill", FLEETS),
    ("`explain` of a node", "explain sn/ill-0", NODES),
    ("logs", "logs nd/db", FLEETS),
];

/// Fails unless a missing right is named, and the documented ones are enough.
async fn judged(world: &World, (row, line): (&str, &str), rights: &BTreeSet<Right>, object: &str) {
    let who = account(world, &called(line, None), rights).await;
    let all = windlass(world, &who, &words(line)).await;
    let said = |ran: &Ran| format!("{} {}", ran.out, ran.err);
    assert!(matches!(all.code, 0 | 2) && all.err.is_empty(), "{line}: {}", said(&all));
    assert!(!said(&all).contains("cannot be"), "{line}: {}", said(&all));
    for missing in rights {
        let mut fewer = rights.clone();
        fewer.remove(missing);
        let who = account(world, &called(line, Some(missing)), &fewer).await;
        let ran = windlass(world, &who, &words(line)).await;
        assert!(said(&ran).contains(&named(missing)), "{line} without {missing:?}: {}", said(&ran));
        let a_dry_run = row == "plan" && missing.0 == "patch";
        let refused = missing.1 == object && !a_dry_run || ["version", "history", "diff"].contains(&row);
        let code = if refused { 1 } else { all.code };
        assert_eq!(ran.code, code, "{line} without {missing:?}: {}", said(&ran));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn each_read_command_needs_its_documented_permissions() {
    let mut world = World::without_operator("look-rights").await;
    still(&mut world).await;
    for (row, line, object) in LOOKS {
        judged(&world, (row, line), &documented(row, object), object).await;
    }
    // Live updates need the rights of `status`, and to watch what these list.
    let read = documented("status", FLEETS);
    let mut rights = documented("wait", FLEETS);
    judged(&world, ("wait", "wait nd/steady --timeout 20s"), &rights, FLEETS).await;
    for (_, of) in read.iter().filter(|(verb, _)| verb == "list") {
        rights.extend([("list".to_owned(), of.clone()), ("watch".to_owned(), of.clone())]);
    }
    judged(&world, ("wait", "status nd/steady --watch --exit-status"), &rights, FLEETS).await;
    // The page does not start without its required rights.
    for missing in documented("dashboard", FLEETS).iter().filter(|(_, of)| of == FLEETS) {
        let mut fewer = documented("dashboard", FLEETS);
        fewer.remove(missing);
        let who = account(&world, &called("dashboard", Some(missing)), &fewer).await;
        let ran = windlass(&world, &who, &words("dashboard")).await;
        assert!(ran.code == 1 && ran.err.contains(&named(missing)), "{}{}", ran.out, ran.err);
    }
}
