//! Commands that only read, with exactly the rights that docs/operations.md lists for each of them.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::e2e::eyes::{account, windlass_as};
use windlass_harness::kit::{World, fleet};

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// The rights of `plan` in the table.
fn planning() -> Vec<Value> {
    vec![
        rule("windlass.dev", &["nodedeployments"], &["get", "patch"]),
        rule("windlass.dev", &["statefulnodes"], &["list"]),
        rule("apps", &["statefulsets"], &["list", "create"]),
        rule("apps", &["controllerrevisions"], &["list"]),
        rule("", &["pods", "services", "persistentvolumeclaims", "resourcequotas"], &["list"]),
    ]
}

/// The exit code, and what was left out.
async fn foreseen(world: &World, account: &Path) -> (i32, Value) {
    let ran = windlass_as(world, account, &["plan", "nd/db", "--image", "db:2", "-o", "json"]).await;
    assert_eq!(ran.err, "", "{}", ran.out);
    let mut seen: Value = serde_json::from_str(&ran.out).unwrap();
    (ran.code, seen["unread"].take())
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_has_all_that_it_looks_at_by_the_documented_rights_and_says_what_it_lacks_by_fewer() {
    let world = World::new("plan-rights").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let all = planning();
    let account_of = async |name: &str, rules: &[Value]| account(&world, name, json!(rules)).await;
    let (code, seen) = foreseen(&world, &account_of("plans", &all).await).await;
    assert_eq!(code, 2);
    assert!(is_empty(&seen), "{seen:#}");

    // Each right is needed: without it something is left out and reported.
    for (index, left) in all.iter().enumerate() {
        for (resource, verb) in pairs(left).filter(|(resource, _)| resource != "nodedeployments") {
            let mut fewer = all.clone();
            fewer.remove(index);
            fewer.extend(pairs(left).filter(|pair| *pair != (resource.clone(), verb.clone())).map(
                |(resource, verb)| rule(left["apiGroups"][0].as_str().unwrap(), &[&resource], &[&verb]),
            ));
            let account = account_of(&format!("no-{verb}-{resource}"), &fewer).await;
            let (_, seen) = foreseen(&world, &account).await;
            assert!(!is_empty(&seen), "nothing is missed without {verb} of {resource}");
        }
    }
}

fn is_empty(unread: &Value) -> bool {
    unread.as_array().is_none_or(Vec::is_empty)
}

/// The resources and verbs of a rule, one by one.
fn pairs(rule: &Value) -> impl Iterator<Item = (String, String)> {
    let words = |key: &str| -> Vec<String> {
        rule[key].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let verbs = words("verbs");
    words("resources")
        .into_iter()
        .flat_map(move |resource| verbs.clone().into_iter().map(move |verb| (resource.clone(), verb)))
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_completed_by_the_right_to_list_and_without_it_there_are_none() {
    let world = World::new("completion-rights").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let lists =
        account(&world, "lists", json!([rule("windlass.dev", &["nodedeployments"], &["list"])])).await;
    let nobody = account(&world, "nobody", json!([])).await;
    let completed = async |account: &Path| {
        let words = ["windlass", "pause", "-n", &world.ns, "nd/"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.arg("--").args(words).env("KUBECONFIG", account);
        command.envs([("COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", "4"), ("_CLAP_IFS", "\n")]);
        command.envs([("_CLAP_COMPLETE_COMP_TYPE", "9"), ("_CLAP_COMPLETE_SPACE", "false")]);
        String::from_utf8(command.output().await.unwrap().stdout).unwrap()
    };
    assert_eq!(completed(&lists).await, "nd/db");
    assert_eq!(completed(&nobody).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_watch_takes_the_right_to_watch_and_the_page_those_of_its_page() {
    let world = World::new("watch-rights").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let on = |verbs: &[&str]| rule("windlass.dev", &["nodedeployments"], verbs);
    let watches = account(&world, "watches", json!([on(&["get", "list", "watch"])])).await;
    let ran = windlass_as(&world, &watches, &["status", "nd/db", "--watch", "--exit-status"]).await;
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);

    // The page shows what may be read of fleets, and does not start without any.
    let nobody = account(&world, "nobody", json!([])).await;
    let ran = windlass_as(&world, &nobody, &["dashboard"]).await;
    assert!(ran.code == 1 && ran.err.contains("cannot"), "{}{}", ran.out, ran.err);
    let mut page = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["dashboard", "-n", &world.ns])
        .env("KUBECONFIG", &watches)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(page.stdout.take().unwrap()).lines();
    let mut url = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains("http://") {
            line.trim().clone_into(&mut url);
            break;
        }
    }
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build();
    let answer = http.unwrap().get(&url).send().await.unwrap();
    assert!(answer.status().is_redirection(), "its token opens it: {}", answer.status());
}
