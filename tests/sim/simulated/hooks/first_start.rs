//! Hooks at the first start of nodes: before their first pod, and after the creation of one, of all, and of more.

use super::owed::becomes_ready;
use super::*;
use crate::simulated::sets::world::{CLAIM, POD, SET, blue_green};

fn everywhere() -> Value {
    json!([
        person("seed", "BeforeCreate"),
        person("join", "AfterCreate"),
        person("init", "AfterFirstCreation"),
        person("balance", "AfterScaleUp"),
        rest("before", "BeforeRollout", 1),
        rest("after", "AfterRollout", 1),
    ])
}

/// The hooks of the fleet's plan.
fn hooks_of(status: &Value) -> Vec<String> {
    let tasks = tasks(&status["plan"]);
    tasks.into_iter().filter(|task| !task.contains("mark-ready") && !task.contains("spec")).collect()
}

impl World {
    /// Lets a node pass the hooks of its first start.
    async fn first_start(&self, node: &str) {
        for hook in ["seed", "join"] {
            let plan = self.until_node_at(node, hook, "Running").await;
            self.approve(text(task(&plan, hook), "id")).await;
        }
    }

    async fn until_fleet_at(&self, hook: &str) -> Value {
        self.until(&format!("the fleet is at {hook}"), |status| {
            hooks_of(status).iter().any(|task| *task == format!("{hook}=Running"))
        })
        .await
    }

    async fn pass(&self, hook: &str) {
        let status = self.until_fleet_at(hook).await;
        self.approve(text(task(&status["plan"], hook), "id")).await;
    }
}

#[test]
fn new_fleet_and_more_nodes_run_the_hooks_of_their_creation() {
    play(|w| async move {
        w.create(in_place(2, json!({}), everywhere())).await;
        for node in ["db-0", "db-1"] {
            let plan = w.until_node_at(node, "seed", "Running").await;
            assert_eq!(
                tasks(&plan)[..2],
                ["seed=Running", "apply-stateful-set"],
                "it comes before the StatefulSet, which creates the pod at once"
            );
            assert!(
                tasks(&plan).ends_with(&["mark-ready".to_owned(), "join".to_owned()]),
                "{:?}",
                tasks(&plan)
            );
        }
        w.rest(700).await;
        let status = w.status();
        assert_eq!(condition(&status, "Stalled"), "False/Progressing");
        assert_eq!(status["rollout"]["cause"], "FirstCreation");
        assert_eq!(status["phase"], "Initializing");
        assert_eq!(w.names(CLAIM), ["data-db-0-0", "data-db-1-0"]);
        assert_eq!([w.names(SET), w.names(POD)], [vec![""; 0], vec![]]);
        let owners = &w.get(CLAIM, "data-db-0-0")["metadata"]["ownerReferences"];
        assert!(owners.is_null(), "as the StatefulSet controller makes them: {owners}");
        w.first_start("db-0").await;
        w.first_start("db-1").await;
        let status = w.until_fleet_at("init").await;
        assert_eq!(hooks_of(&status), ["init=Running"], "the creation is no rollout");
        assert_eq!(text(&status, "lastCompletedRolloutHash"), "");
        w.pass("init").await;
        w.until("it is complete", is_up_to_date).await;
        w.is_at_rest().await;
        // A rollout and a lost pod run none of these hooks.
        w.image("db:2").await;
        let is_new = |image: &String| image.ends_with("db:2");
        let status =
            w.until("the rollout is complete", |s| is_up_to_date(s) && w.images().iter().all(is_new)).await;
        assert_eq!(hooks_of(&status), ["before=Complete", "after=Complete"]);
        let pods: Vec<Value> =
            w.names(POD).iter().map(|pod| w.get(POD, pod)["metadata"]["uid"].clone()).collect();
        // More nodes.
        w.change(json!({"replicas": 3})).await;
        w.first_start("db-2").await;
        let status = w.until_fleet_at("balance").await;
        assert_eq!([&status["rollout"]["cause"], &status["phase"]], ["ScaledUp", "Ready"]);
        assert_eq!(hooks_of(&status), ["balance=Running"]);
        assert_eq!(condition(&status, "RolloutInProgress"), "True/ScaledUp");
        // Still more: the hook runs again once they are Ready.
        w.change(json!({"replicas": 4})).await;
        w.until_node_at("db-3", "seed", "Running").await;
        assert_eq!(hooks_of(&w.status()), ["balance=Running", "balance"]);
        w.rest(60).await;
        let message = w.status()["plan"]["tasks"][3]["message"].clone();
        assert_eq!(message, "waiting for db-3 to be ready");
        w.first_start("db-3").await;
        w.pass("balance").await;
        w.until("the first is done", |s| hooks_of(s) == ["balance=Complete", "balance=Running"]).await;
        let status = w.status();
        let tasks = status["plan"]["tasks"].as_array().unwrap();
        w.approve(text(tasks.last().unwrap(), "id")).await;
        w.until("it is complete", is_up_to_date).await;
        let now = |pod: &str| w.get(POD, pod)["metadata"]["uid"].clone();
        assert_eq!([now("db-0-0"), now("db-1-0")].as_slice(), pods, "those that served were not touched");
        w.is_at_rest().await;
    });
}

#[test]
fn lost_node_runs_the_hooks_of_its_creation_only_without_its_claims() {
    play(|w| async move {
        let hooks = json!([rest("seed", "BeforeCreate", 1), rest("join", "AfterCreate", 1)]);
        w.serve(in_place(2, json!({}), hooks)).await;
        let starts = |node: &str| {
            let tasks = tasks(&w.node_plan(node));
            tasks
                .into_iter()
                .filter(|task| task.contains("seed") || task.contains("join"))
                .collect::<Vec<_>>()
        };
        assert_eq!(starts("db-1"), ["seed=Complete", "join=Complete"]);
        let uid = |kind, name: &str| w.get(kind, name)["metadata"]["uid"].clone();
        for (keeps_data, expected) in [(true, [].as_slice()), (false, &["seed=Complete", "join=Complete"])] {
            let before = uid(NODE, "db-1");
            if keeps_data {
                w.delete(NODE, "db-1").await;
            } else {
                w.kill_operator();
                w.delete(CLAIM, "data-db-1-0").await;
                w.delete(NODE, "db-1").await;
                w.rest(5).await;
                w.start_operator();
            }
            let is_new = || !uid(NODE, "db-1").is_null() && uid(NODE, "db-1") != before;
            w.until("it is back", |s| is_new() && s["readyReplicas"] == 2 && is_up_to_date(s)).await;
            assert_eq!(starts("db-1"), expected, "keeps its data: {keeps_data}");
        }
        w.is_at_rest().await;
    });
}

#[test]
fn new_set_takes_over_after_the_hooks_of_its_creation() {
    play(|w| async move {
        let mut fleet = blue_green(2, json!({"retireDelaySeconds": 1}));
        fleet["spec"]["updateStrategy"]["hooks"] = json!([
            person("seed", "BeforeCreate"),
            person("join", "AfterCreate"),
            person("init", "AfterFirstCreation"),
            person("balance", "AfterScaleUp")
        ]);
        w.create(fleet).await;
        w.first_start("db-0").await;
        w.first_start("db-1").await;
        w.pass("init").await;
        w.until("it serves", is_up_to_date).await;
        let before = w.selected();
        w.image("db:2").await;
        w.until("its nodes exist", |_| w.names(NODE).len() == 4).await;
        let new: Vec<String> =
            w.names(NODE).into_iter().filter(|node| node.matches('-').count() > 1).collect();
        w.first_start(&new[0]).await;
        let plan = w.until_node_at(&new[1], "seed", "Running").await;
        w.approve(text(task(&plan, "seed"), "id")).await;
        let plan = w.until_node_at(&new[1], "join", "Running").await;
        w.rest(120).await;
        assert_eq!(w.selected(), before, "it waits for the hook: {}", w.status()["rollout"]);
        let why = text(&w.status()["rollout"], "message").to_owned();
        assert!(why.contains(&new[1]) && why.contains("join"), "{why}");
        w.approve(text(task(&plan, "join"), "id")).await;
        w.until("it took over", |s| is_up_to_date(s) && w.selected() != before).await;
        w.is_at_rest().await;
    });
}

#[test]
fn next_node_starts_after_the_hooks_of_the_one_before() {
    play(|w| async move {
        let hooks = json!([rest("seed", "BeforeCreate", 5), person("join", "AfterCreate")]);
        let mut fleet = in_place(2, json!({}), hooks);
        fleet["spec"]["creation"] = json!({"maxInitializing": 1});
        w.create(fleet).await;
        let plan = w.until_node_at("db-0", "join", "Running").await;
        w.rest(60).await;
        assert_eq!(w.names(NODE), ["db-0"]);
        w.approve(text(task(&plan, "join"), "id")).await;
        let plan = w.until_node_at("db-1", "join", "Running").await;
        w.approve(text(task(&plan, "join"), "id")).await;
        w.until("it serves", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

#[test]
fn hook_that_fails_before_the_first_pod_holds_the_node() {
    play(|w| async move {
        w.create(in_place(1, json!({}), json!([fails("seed", "BeforeCreate", "Hold")]))).await;
        let status = w.until("it fails", |s| condition(s, "Stalled") == "True/HookFailed").await;
        let why = message(&status, "Stalled");
        assert!(why.contains("hook seed of node db-0"), "{why}");
        w.rest(60).await;
        assert_eq!(w.names(SET), [""; 0]);
        // Without the hook, the node starts. It is new, and not at the hook's point.
        w.change(json!({"updateStrategy": {"hooks": null}})).await;
        w.until("it serves", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

#[test]
fn node_that_was_announced_takes_its_leave_although_it_never_ran() {
    play(|w| async move {
        let hooks = json!([rest("seed", "BeforeCreate", 1), person("leave", "BeforeRemove")]);
        w.serve(in_place(1, json!({}), hooks)).await;
        w.steer("db-1-0", "pull-loop").await;
        w.change(json!({"replicas": 2})).await;
        w.until("its pod exists", |_| w.names(POD).len() == 2).await;
        w.change(json!({"replicas": 1})).await;
        let plan = w.until_node_at("db-1", "leave", "Running").await;
        w.approve(text(task(&plan, "leave"), "id")).await;
        w.until("it is gone", |s| w.names(NODE) == ["db-0"] && is_up_to_date(s)).await;
        w.is_at_rest().await;
    });
}

#[test]
fn volume_that_was_never_seeded_is_seeded_when_its_node_returns() {
    play(|w| async move {
        let hooks = |on_time: bool| {
            let seed =
                if on_time { rest("seed", "BeforeCreate", 1) } else { fails("seed", "BeforeCreate", "Hold") };
            json!([seed, rest("join", "AfterCreate", 1)])
        };
        w.serve(in_place(1, json!({}), hooks(true))).await;
        w.change(json!({"replicas": 2, "updateStrategy": {"hooks": hooks(false)}})).await;
        w.until_node_at("db-1", "seed", "Failed").await;
        let claim = || w.get(CLAIM, "data-db-1-0")["metadata"].clone();
        assert_eq!(claim()["annotations"]["windlass.dev/first-start"], "pending");
        let uid = claim()["uid"].clone();
        w.change(json!({"replicas": 1})).await;
        w.until("it is gone", |s| w.names(NODE) == ["db-0"] && is_up_to_date(s)).await;
        w.change(json!({"replicas": 2, "updateStrategy": {"hooks": hooks(true)}})).await;
        w.until("it is scaled", |s| s["readyReplicas"] == 2 && is_up_to_date(s)).await;
        let done = tasks(&w.node_plan("db-1"));
        assert_eq!((done[0].as_str(), done.last().unwrap().as_str()), ("seed=Complete", "join=Complete"));
        assert_eq!(claim()["uid"], uid, "its claim stayed");
        assert!(claim()["annotations"]["windlass.dev/first-start"].is_null());
        w.is_at_rest().await;
    });
}

#[test]
fn volume_that_was_seeded_is_not_seeded_again() {
    play(|w| async move {
        let hooks = json!([rest("seed", "BeforeCreate", 1), rest("join", "AfterCreate", 1)]);
        w.steer("db-0-0", "unready").await;
        w.create(in_place(1, json!({}), hooks)).await;
        w.until("its pod exists", |_| w.names(POD) == ["db-0-0"]).await;
        let first = w.node_plan("db-0")["id"].clone();
        // Another target, while the StatefulSet is missing.
        w.kill_operator();
        w.delete(SET, "db-0").await;
        w.image("db:2").await;
        w.rest(5).await;
        w.start_operator();
        w.until("another plan follows", |_| w.node_plan("db-0")["id"] != first).await;
        w.until("its pod exists", |_| w.images() == ["db-0-0 db:2"]).await;
        let plan = tasks(&w.node_plan("db-0"));
        assert!(plan.iter().all(|task| !task.contains("seed")), "{plan:?}");
        becomes_ready(&w, "db-0-0").await;
        w.until("it serves", is_up_to_date).await;
        assert_eq!(tasks(&w.node_plan("db-0")).last().unwrap(), "join=Complete");
    });
}

/// A Job that never ends by itself.
fn stuck_job() -> Value {
    let pod = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "seed", "image": "seed:unready"}]});
    json!({"name": "seed", "at": "BeforeCreate", "job": {"template": {"template": {"spec": pod}}}})
}

#[test]
fn pod_starts_after_the_pods_of_the_job_are_gone() {
    play(|w| async move {
        w.create(in_place(1, json!({}), json!([stuck_job()]))).await;
        let plan = w.until_node_at("db-0", "seed", "Running").await;
        w.until("its pod exists", |_| w.names(POD).len() == 1).await;
        // Its machine is slow to stop it.
        let pod = w.names(POD).remove(0);
        w.merge(POD, &pod, &json!({"metadata": {"finalizers": ["example.com/slow"]}})).await;
        w.annotate("windlass.dev/skip", text(task(&plan, "seed"), "id")).await;
        w.rest(120).await;
        assert_eq!(w.names(SET), [""; 0]);
        let message = w.node_plan("db-0")["tasks"][1]["message"].to_string();
        assert!(message.contains("waiting for the deletion of an earlier Job and its pods"), "{message}");
        w.merge(POD, &pod, &json!({"metadata": {"finalizers": null}})).await;
        w.until("it serves", is_up_to_date).await;
        assert_eq!(w.names(POD), ["db-0-0"]);
    });
}

#[test]
fn creation_that_was_refused_at_first_still_has_its_hooks() {
    play(|w| async move {
        let http = |url: &str| json!([{"name": "init", "at": "AfterFirstCreation", "http": {"url": url}}]);
        w.create(in_place(1, json!({}), http("http://elsewhere/init"))).await;
        w.until("it is refused", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        w.rest(60).await;
        assert_eq!(w.names(NODE), [""; 0], "nothing is created with hooks that cannot run");
        w.change(json!({"updateStrategy": {"hooks": [person("begin", "AfterFirstCreation")]}})).await;
        w.pass("begin").await;
        w.until("it serves", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

#[test]
fn nodes_that_are_added_during_the_first_creation_have_the_hooks_of_a_scale_up() {
    play(|w| async move {
        let hooks = json!([person("init", "AfterFirstCreation"), person("balance", "AfterScaleUp")]);
        w.create(in_place(1, json!({}), hooks)).await;
        w.until_fleet_at("init").await;
        w.change(json!({"replicas": 2})).await;
        w.until("the other node serves", |s| s["readyReplicas"] == 2).await;
        w.pass("init").await;
        w.pass("balance").await;
        w.until("it serves", is_up_to_date).await;
        w.is_at_rest().await;
        // Aborted, it rejects nothing.
        w.change(json!({"replicas": 3})).await;
        let status = w.until_fleet_at("balance").await;
        w.annotate("windlass.dev/abort", text(&status["plan"], "id")).await;
        w.until("it is aborted", |s| s["rollout"].is_null()).await;
        let status = w.until("it serves", is_up_to_date).await;
        assert!(status["rejected"].is_null(), "{status:#}");
        w.is_at_rest().await;
    });
}

#[test]
fn one_retry_repeats_the_failed_hooks_of_all_nodes() {
    play(|w| async move {
        w.create(in_place(3, json!({}), json!([fails("seed", "BeforeCreate", "Hold")]))).await;
        for node in ["db-0", "db-1", "db-2"] {
            w.until_node_at(node, "seed", "Failed").await;
        }
        w.change(json!({"updateStrategy": {"hooks": [rest("seed", "BeforeCreate", 1)]}})).await;
        let hooks = w.status()["hooks"].clone();
        let task = text(&hooks[0], "taskID");
        w.annotate("windlass.dev/retry", task.rsplit_once('-').unwrap().0).await;
        w.until("all serve", is_up_to_date).await;
    });
}

#[test]
fn hooks_of_a_creation_run_once_although_the_operator_is_killed() {
    for seconds in [1, 2, 3] {
        play(|w| async move {
            w.create(in_place(
                2,
                json!({}),
                json!([
                    rest("seed", "BeforeCreate", 3),
                    rest("join", "AfterCreate", 3),
                    rest("init", "AfterFirstCreation", 3),
                    rest("balance", "AfterScaleUp", 3),
                ]),
            ))
            .await;
            let kill = async || {
                for _ in 0..12 {
                    w.rest(seconds).await;
                    w.kill_operator();
                    w.rest(1).await;
                    w.start_operator();
                }
            };
            kill().await;
            let status = w.until("it serves", is_up_to_date).await;
            assert_eq!(hooks_of(&status), ["init=Complete"]);
            w.change(json!({"replicas": 4})).await;
            kill().await;
            let status = w.until("it has grown", |s| is_up_to_date(s) && s["readyReplicas"] == 4).await;
            assert_eq!(hooks_of(&status), ["balance=Complete"]);
            for node in w.names(NODE) {
                let tasks = tasks(&w.node_plan(&node));
                let hooks: Vec<&String> =
                    tasks.iter().filter(|t| t.contains("seed") || t.contains("join")).collect();
                assert_eq!(hooks, ["seed=Complete", "join=Complete"], "{node}");
            }
            let plans = w
                .seen_objects()
                .iter()
                .filter_map(|(_, f)| f["status"]["plan"]["id"].as_str().map(str::to_owned))
                .collect::<std::collections::BTreeSet<_>>();
            assert_eq!(plans.len(), 2, "one for each creation: {plans:?}");
            w.is_at_rest().await;
        });
    }
}

#[test]
fn fleet_whose_status_is_lost_is_not_created_again() {
    play(|w| async move {
        let status = w.serve(in_place(2, json!({}), json!([rest("init", "AfterFirstCreation", 1)]))).await;
        assert_ne!(status, "");
        w.kill_operator();
        w.patch(&json!({"metadata": {"annotations": {"a": "b"}}})).await;
        let lost = json!({"status": {"lastCompletedRolloutHash": null, "plan": null, "rollout": null, "replicas": null,
            "currentRevision": null, "history": null}});
        w.patch_status(&lost).await;
        w.start_operator();
        w.rest(60).await;
        let status = w.until("it serves", is_up_to_date).await;
        assert_eq!(hooks_of(&status), [""; 0]);
        let first = |(_, fleet): &(u64, Value)| {
            let status = &fleet["status"];
            (status["rollout"]["cause"] == "FirstCreation").then(|| status["plan"]["id"].to_string())
        };
        let first: std::collections::BTreeSet<_> = w.seen_objects().iter().filter_map(first).collect();
        assert_eq!(first.len(), 1, "{first:?}");
    });
}
