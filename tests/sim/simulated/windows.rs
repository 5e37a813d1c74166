//! Windows, other fleets that come first, and how many fleets roll at the same time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::drains::change_machine;
use super::growth;
use super::rollouts::world as sets;
use super::sets::world::{
    FLEET, POD, World, blue_green, condition, fleet, is_up_to_date, message, play, text, to_text,
};
use super::zones::is_ready;
use windlass::operator::Operator;
use windlass_sim::Cluster;
use windlass_sim::kubelet::Expansion;

/// A window of so many minutes that opens in so many, each day.
fn window(cluster: &Cluster, opens_in: i64, minutes: i64) -> Value {
    let at = cluster.clock().now() + TimeDelta::minutes(opens_in);
    json!({"schedule": at.format("%M %H * * *").to_string(), "duration": format!("{minutes}m")})
}

/// Sets the fleet's windows to one.
async fn open_later(w: &World, opens_in: i64, minutes: i64) {
    w.change(json!({"updateStrategy": {"windows": [window(&w.cluster, opens_in, minutes)]}})).await;
    w.until("the windows are known", is_observed).await;
}

/// Opens the window of a rollout to db:2 early, and waits until one of three nodes is updated.
async fn begin_in_opened_window(w: &World) {
    let mut fleet = fleet(3, json!({"type": "InPlace"}));
    fleet["spec"]["minReadySeconds"] = json!(30);
    w.serve(fleet).await;
    open_later(w, 600, 10).await;
    w.image("db:2").await;
    let status = w.until("it waits", waits).await;
    w.annotate("windlass.dev/open-window", text(&status["plan"], "id")).await;
    w.until("the first node is updated", |status| status["rollout"]["nodes"]["updated"] == 1).await;
}

fn is_observed(status: &Value) -> bool {
    status["observedGeneration"].as_i64() > Some(1) && is_up_to_date(status)
}

fn at(w: &World, image: &str) -> usize {
    w.images().iter().filter(|pod| pod.ends_with(image)).count()
}

fn waits(status: &Value) -> bool {
    status["rollout"]["waitingFor"] != Value::Null
}

fn told(status: &Value) -> &str {
    text(&status["rollout"], "message")
}

async fn complete(w: &World, image: &str) {
    w.until("the rollout is complete", is_up_to_date).await;
    assert_eq!(at(w, image), w.images().len(), "{:?}", w.images());
}

#[test]
fn rollout_waits_for_its_window_and_stops_when_that_closes() {
    play(|w| async move {
        let mut fleet = fleet(4, json!({"type": "InPlace"}));
        fleet["spec"]["minReadySeconds"] = json!(40);
        w.serve(fleet).await;
        open_later(&w, 60, 2).await;
        w.image("db:2").await;
        let status = w.until("it waits", waits).await;
        let opens = text(&status["rollout"], "windowOpensAt").to_owned();
        assert_eq!(
            told(&status),
            format!("waiting for the window that opens {} UTC, {opens}", &opens[11..16])
        );
        assert_eq!(condition(&status, "RolloutInProgress"), "True/Waiting");
        assert_eq!(condition(&status, "UpToDate"), "Unknown/Applying");
        assert_eq!(status["plan"]["state"], "Active", "the plan is stored");
        // The progress deadline is two minutes.
        w.rest(40 * 60).await;
        let status = w.status();
        assert_eq!((condition(&status, "Stalled"), at(&w, "db:2")), ("False/Progressing".to_owned(), 0));
        let version = w.cluster.version();
        w.rest(10 * 60).await;
        assert_eq!(w.cluster.version(), version, "a rollout that waits writes nothing");
        let status = w.until("the window is open", |status| !waits(status)).await;
        assert_eq!(status["rollout"]["windowOpensAt"], Value::Null);
        // Each node takes about 45 s, so that the third one is in flight when the window closes.
        w.rest(10 * 60).await;
        let status = w.status();
        assert_eq!((at(&w, "db:2"), waits(&status)), (3, true), "{}", to_text(&status));
        assert_eq!(condition(&status, "Stalled"), "False/Progressing");
        assert!(text(&status["rollout"], "windowOpensAt") > opens.as_str(), "the next one is tomorrow's");
        w.rest(24 * 3600).await;
        complete(&w, "db:2").await;
        assert!(w.events("RolloutStalled").is_empty(), "{:?}", w.events("RolloutStalled"));
        w.is_at_rest().await;
    });
}

#[test]
fn fix_for_a_failed_node_and_the_way_back_do_not_wait() {
    for back in [false, true] {
        play(|w| async move {
            w.serve(fleet(3, json!({"type": "InPlace"}))).await;
            open_later(&w, 2, 2).await;
            w.image("db:2-nope").await;
            w.until("a node has failed", |status| status["rollout"]["nodes"]["failed"] == 1).await;
            w.until("the window is closed", |status| status["rollout"]["windowOpensAt"] != Value::Null).await;
            w.rest(60).await;
            assert!(
                told(&w.status()).contains("ImagePullBackOff"),
                "the failed node is named: {}",
                told(&w.status())
            );
            w.image(if back { "db:1" } else { "db:3" }).await;
            if back {
                complete(&w, "db:1").await;
                return;
            }
            let status = w
                .until("the failed node is repaired", |s| waits(s) && s["rollout"]["nodes"]["updated"] == 1)
                .await;
            w.rest(30 * 60).await;
            assert_eq!((at(&w, "db:3"), at(&w, "db:1")), (1, 2), "{}", to_text(&status));
            assert!(told(&w.status()).starts_with("waiting for the window"), "{}", told(&w.status()));
            w.rest(24 * 3600).await;
            complete(&w, "db:3").await;
        });
    }
}

#[test]
fn rollback_after_a_stall_does_not_wait() {
    play(|w| async move {
        let strategy = json!({"type": "InPlace", "onStall": "Rollback", "inPlace": {"maxUnavailable": 2}});
        w.serve(fleet(4, strategy)).await;
        open_later(&w, 2, 1).await;
        w.image("db:2-unready").await;
        // The window closes before the deadline of two minutes.
        w.until("it is rolled back", |status| {
            status["rollout"] == Value::Null && status["rejected"]["outcome"] == "RolledBack"
        })
        .await;
        assert_eq!(at(&w, "db:1"), 4, "{:?}", w.images());
    });
}

#[test]
fn pods_come_back_as_they_were_outside_of_a_window() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        open_later(&w, 120, 10).await;
        w.image("db:2").await;
        w.until("it waits", waits).await;
        // A pod that is evicted, a machine that is drained, and a node that is lost.
        w.delete(POD, "db-1-0").await;
        w.rest(60).await;
        let room = json!({"cpu": "10000", "memory": "100Ti", "pods": "1000"});
        w.cluster
            .install(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"},
                "status": {"capacity": room, "allocatable": room}}))
            .unwrap();
        change_machine(&w.cluster, "played-0", json!({"unschedulable": true})).await;
        let moved = || w.get(POD, "db-0-0")["spec"]["nodeName"] == "other";
        w.until("a drain does not wait", |_| moved()).await;
        w.delete(super::sets::world::NODE, "db-2").await;
        w.rest(5 * 60).await;
        let status = w.status();
        assert_eq!((at(&w, "db:1"), status["readyReplicas"].as_i64()), (3, Some(3)), "{}", to_text(&status));
        assert!(waits(&status));
        // So does a node that a scale-up adds: it is replaced in the window.
        w.change(json!({"replicas": 4})).await;
        w.until("it is ready", |status| status["readyReplicas"] == 4).await;
        assert_eq!(at(&w, "db:1"), 4, "{:?}", w.images());
        w.rest(3 * 3600).await;
        complete(&w, "db:2").await;
    });
}

#[test]
fn person_opens_the_window_of_one_rollout() {
    play(|w| async move {
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        open_later(&w, 600, 10).await;
        w.image("db:2").await;
        let status = w.until("it waits", waits).await;
        w.annotate("windlass.dev/open-window", "another-plan").await;
        w.rest(60).await;
        assert!(message(&w.status(), "UpToDate").contains("\"another-plan\" is not a plan of this fleet"));
        w.annotate("windlass.dev/open-window", text(&status["plan"], "id")).await;
        complete(&w, "db:2").await;
        assert!(
            !w.seen_objects().iter().any(|(_, f)| condition(&f["status"], "Stalled").starts_with("True"))
        );
        // The next rollout waits again, although the annotation is still there.
        w.image("db:3").await;
        w.until("it waits", waits).await;
        w.rest(60).await;
        assert_eq!(at(&w, "db:2"), 2);
    });
}

#[test]
fn opened_window_is_not_that_of_the_next_target() {
    play(|w| async move {
        begin_in_opened_window(&w).await;
        w.image("db:3").await;
        w.rest(10 * 60).await;
        let status = w.status();
        assert!(waits(&status) && status["rollout"]["windowOpened"] == Value::Null, "{}", to_text(&status));
        assert_eq!((at(&w, "db:1"), at(&w, "db:3")), (2, 0), "{:?}", w.images());
    });
}

#[test]
fn what_does_not_wait_for_the_window_is_told_as_it_is() {
    play(|w| async move {
        growth::serve(&w, Expansion::Online, growth::in_place(2, "grows")).await;
        open_later(&w, 600, 10).await;
        w.change(growth::grown("2Gi")).await;
        w.until("the volumes have grown", |status| {
            is_up_to_date(status) && status["history"][0]["recipe"] == "GrowClaims"
        })
        .await;
        let seen = w.seen_objects();
        assert!(!seen.iter().any(|(_, f)| told(&f["status"]).contains("window")), "nothing waited for it");
    });
}

#[test]
fn nodes_that_fail_outside_of_a_window_try_the_new_target_one_at_a_time() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace", "inPlace": {"maxUnavailable": 3}}))).await;
        open_later(&w, 600, 10).await;
        w.image("db:2-unready").await;
        w.until("it waits", waits).await;
        for pod in ["db-0-0", "db-1-0", "db-2-0"] {
            w.steer(pod, "crash-loop").await;
        }
        w.rest(10 * 60).await;
        assert_eq!(at(&w, "db:2-unready"), 1, "{:?}", w.images());
    });
}

#[test]
fn opened_window_holds_when_the_plan_of_the_rollout_is_replaced() {
    play(|w| async move {
        begin_in_opened_window(&w).await;
        // The operator forgets everything, and a person edits a node: the plan is replaced.
        w.kill_operator();
        w.merge(super::sets::world::NODE, "db-2", &json!({"spec": {"grantedHash": "sha256:0"}})).await;
        w.start_operator();
        complete(&w, "db:2").await;
    });
}

#[test]
fn blue_green_creates_and_promotes_only_in_a_window() {
    play(|w| async move {
        let mut fleet = blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 1}));
        fleet["spec"]["updateStrategy"]["windows"] = json!([window(&w.cluster, 60, 10)]);
        w.serve(fleet).await;
        let before = w.selected();
        w.image("db:2").await;
        w.until("it waits", waits).await;
        w.rest(30 * 60).await;
        assert_eq!(w.images().len(), 2, "no new node is created");
        let status =
            w.until("it is ready to promote", |s| condition(s, "UpToDate").ends_with("ReadyToPromote")).await;
        w.rest(30 * 60).await;
        assert!(told(&w.status()).starts_with("waiting for the window"), "{}", told(&w.status()));
        assert_eq!(condition(&w.status(), "UpToDate"), "Unknown/Applying", "nothing can be promoted now");
        w.change(json!({"forcePromote": status["requestedRolloutHash"]})).await;
        w.rest(30 * 60).await;
        assert_eq!(w.selected(), before);
        w.rest(24 * 3600).await;
        w.until("it is complete", is_up_to_date).await;
        assert_ne!(w.selected(), before);
    });
}

#[test]
fn nodes_are_not_deleted_before_the_window_under_immediately() {
    play(|w| async move {
        let mut fleet = blue_green(2, json!({"promotion": "Immediately"}));
        fleet["spec"]["updateStrategy"]["windows"] = json!([window(&w.cluster, 60, 10)]);
        w.serve(fleet).await;
        w.image("db:2").await;
        w.until("it waits", waits).await;
        w.rest(30 * 60).await;
        assert_eq!(at(&w, "db:1"), 2);
        w.rest(3600).await;
        complete(&w, "db:2").await;
    });
}

#[test]
fn hooks_before_the_rollout_run_in_the_window() {
    play(|w| async move {
        let hooks = json!([{"name": "settle", "at": "BeforeRollout", "wait": {"seconds": 60}},
            {"name": "after", "at": "AfterRollout", "wait": {"seconds": 900}}]);
        w.serve(fleet(2, json!({"type": "InPlace", "hooks": hooks}))).await;
        open_later(&w, 60, 10).await;
        w.image("db:2").await;
        let status = w.until("it waits", waits).await;
        assert!(told(&status).starts_with("waiting for the window"), "{}", told(&status));
        w.rest(20 * 60).await;
        // A node that is on its way does not make the hook run.
        w.change(json!({"replicas": 3})).await;
        w.until("it is scaled", |status| status["readyReplicas"] == 3).await;
        w.rest(20 * 60).await;
        assert_eq!(w.status()["plan"]["tasks"][0]["startedAt"], Value::Null);
        assert!(told(&w.status()).starts_with("waiting for the window"), "{}", told(&w.status()));
        w.until("the hook runs in the window", |status| status["plan"]["tasks"][0]["state"] == "Complete")
            .await;
        assert_eq!(w.status()["rollout"]["windowOpensAt"], Value::Null);
        // The last hook outlasts the window.
        w.until("it is complete", is_up_to_date).await;
        assert_eq!(at(&w, "db:2"), 3);
    });
}

#[test]
fn pods_of_stateful_sets_wait_for_the_window() {
    sets::play(|w| async move {
        w.run_sets(&[("db", 3)]).await;
        w.adopt(&sets::named(&["db"]), &json!({"windows": [window(&w.cluster, 60, 10)]})).await;
        let before = w.uids();
        w.image("db", "db:2").await;
        let status = w.until("it waits", waits).await;
        assert!(told(&status).starts_with("waiting for the window"), "{}", told(&status));
        w.rest(30 * 60).await;
        assert_eq!(w.uids(), before);
        w.until("it is complete", sets::is_at_rest).await;
        assert!(w.images().iter().all(|pod| pod.ends_with("db:2")), "{:?}", w.images());
    });
}

#[test]
fn release_of_stateful_sets_counts_and_not_that_of_their_rollout() {
    sets::play(|w| async move {
        w.run_sets(&[("a", 2), ("db", 2)]).await;
        let mut first = sets::rollout(&sets::named(&["a"]), &json!({}));
        first["metadata"]["name"] = json!("first");
        w.create(first).await;
        let after = json!([{"kind": "StatefulSetRollout", "name": "first"}]);
        w.adopt(&sets::named(&["db"]), &json!({"after": after})).await;
        let release = |release: &str| json!({"metadata": {"annotations": {"windlass.dev/release": release}}});
        w.merge(sets::ROLLOUT, "first", &release("7")).await;
        w.merge(sets::SET, "db", &release("7")).await;
        w.image("db", "db:2").await;
        let sentence = "waiting for StatefulSetRollout first to have windlass.dev/release=7: it has none";
        w.until("it waits", |status| told(status) == sentence).await;
        w.rest(600).await;
        w.merge(sets::SET, "a", &release("7")).await;
        w.image("a", "db:2").await;
        w.until("it is complete", sets::is_at_rest).await;
        let images = w.images();
        assert!(images.len() == 4 && images.iter().all(|pod| pod.ends_with("db:2")), "{images:?}");
    });
}

#[test]
fn window_that_never_opens_is_refused_and_blocks_no_scaling() {
    play(|w| async move {
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        let windows = json!([{"schedule": "0 0 31 4 *", "duration": "1h"}]);
        w.change(json!({"updateStrategy": {"windows": windows}, "template": {"spec": {"image": "db:2"}}}))
            .await;
        let status = w.until("it is refused", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        assert!(
            message(&status, "UpToDate").contains("updateStrategy.windows[0].schedule"),
            "{}",
            to_text(&status)
        );
        w.change(json!({"replicas": 3})).await;
        w.until("it is scaled", |status| status["readyReplicas"] == 3).await;
        assert_eq!(at(&w, "db:1"), 3);
        w.change(json!({"updateStrategy": {"windows": null}})).await;
        complete(&w, "db:2").await;
    });
}

/// A fleet of this name.
fn named(name: &str, strategy: Value) -> Value {
    let mut fleet = fleet(2, strategy);
    fleet["metadata"]["name"] = json!(name);
    fleet["spec"]["minReadySeconds"] = json!(5);
    fleet
}

fn status_of(w: &World, name: &str) -> Value {
    w.get(FLEET, name)["status"].clone()
}

async fn until_all(w: &World, names: &[&str], what: &str, holds: impl Fn(&Value) -> bool) {
    for name in names {
        w.until(what, |_| holds(&status_of(w, name))).await;
    }
}

/// Watches how many of these fleets of two nodes have pods that are not Ready.
fn watch_fleets(cluster: &Arc<Cluster>, fleets: &'static [&'static str]) -> Arc<Mutex<usize>> {
    let worst = Arc::<Mutex<usize>>::default();
    let (seen, cluster) = (worst.clone(), cluster.clone());
    tokio::spawn(async move {
        let mut version = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if cluster.version() == version {
                continue;
            }
            version = cluster.version();
            let is_out = |fleet: &&&str| (0..2).any(|node| !is_ready(&cluster, &format!("{fleet}-{node}-0")));
            let out = fleets.iter().filter(is_out).count();
            let mut worst = seen.lock().unwrap();
            *worst = (*worst).max(out);
        }
    });
    worst
}

fn start_upgraded(w: &World, version: &str, limits: &[&str]) -> tokio::task::JoinHandle<()> {
    let operator = Operator::new(w.cluster.client("windlass", "test"))
        .clock(w.cluster.clock())
        .pod_annotation("windlass.test/version", version);
    let operator =
        limits.iter().fold(operator, |operator, limit| operator.max_rollouts(limit.parse().unwrap()));
    tokio::spawn(async move { operator.run(std::future::pending::<()>()).await.unwrap() })
}

const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

#[test]
fn new_version_rolls_one_fleet_at_a_time_also_after_a_crash() {
    play(|w| async move {
        for name in FIVE {
            w.create(named(name, json!({"type": "InPlace"}))).await;
        }
        until_all(&w, &FIVE, "it serves", is_up_to_date).await;
        w.rest(30).await;
        let worst = watch_fleets(&w.cluster, &FIVE);
        w.kill_operator();
        let mut operator = start_upgraded(&w, "2", &[]);
        for _ in 0..6 {
            w.rest(7).await;
            let waiting: Vec<Value> = FIVE.iter().map(|name| status_of(&w, name)).filter(waits).collect();
            if let Some(status) = waiting.first() {
                let sentence = told(status);
                assert!(sentence.starts_with("waiting for nd/"), "{sentence}");
                assert!(
                    sentence.ends_with(", which is ahead: --max-rollouts is OperatorDrift=1"),
                    "{sentence}"
                );
            }
            operator.abort();
            operator = start_upgraded(&w, "2", &[]);
        }
        until_all(&w, &FIVE, "it is updated", |status| {
            is_up_to_date(status) && text(&status["history"][0], "recipe") == "InPlace"
        })
        .await;
        assert_eq!(*worst.lock().unwrap(), 1, "two fleets rolled at the same time");
        operator.abort();
    });
}

#[test]
fn limit_for_all_causes_lets_a_paused_fleet_stand_aside() {
    play(|w| async move {
        w.kill_operator();
        let operator = start_upgraded(&w, "1", &["2"]);
        for name in FIVE {
            w.create(named(name, json!({"type": "InPlace"}))).await;
        }
        until_all(&w, &FIVE, "it serves", is_up_to_date).await;
        let worst = watch_fleets(&w.cluster, &FIVE);
        let image = json!({"spec": {"template": {"spec": {"image": "db:2"}}}});
        w.merge(FLEET, "a", &json!({"spec": {"paused": true}})).await;
        for name in FIVE {
            w.merge(FLEET, name, &image).await;
        }
        until_all(&w, &FIVE[1..], "the others do not wait for it", |status| {
            is_up_to_date(status) && status["observedGeneration"] == 2
        })
        .await;
        assert!((1..=2).contains(&*worst.lock().unwrap()), "{}", worst.lock().unwrap());
        assert_eq!(status_of(&w, "a")["rollout"]["nodes"]["updated"], 0);
        w.merge(FLEET, "a", &json!({"spec": {"paused": false}})).await;
        until_all(&w, &["a"], "it rolls", is_up_to_date).await;
        operator.abort();
    });
}

#[test]
fn fleet_whose_window_closes_or_that_is_paused_gives_its_turn_back() {
    for pauses in [false, true] {
        play(|w| async move {
            w.kill_operator();
            let operator = start_upgraded(&w, "1", &["1"]);
            for name in ["a", "b"] {
                w.create(named(name, json!({"type": "InPlace"}))).await;
            }
            until_all(&w, &["a", "b"], "it serves", is_up_to_date).await;
            let slow = json!({"spec": {"minReadySeconds": 90, "updateStrategy": {"windows": [window(&w.cluster, 1, 2)]},
                "template": {"spec": {"image": "db:2"}}}});
            w.merge(FLEET, "a", &slow).await;
            until_all(&w, &["a"], "it rolls", |s| s["rollout"].is_object() && !waits(s)).await;
            w.merge(FLEET, "b", &json!({"spec": {"template": {"spec": {"image": "db:2"}}}})).await;
            until_all(&w, &["b"], "it waits", |s| {
                told(s).starts_with("waiting for nd/a -n test, which is ahead")
            })
            .await;
            if pauses {
                w.merge(FLEET, "a", &json!({"spec": {"paused": true}})).await;
            }
            until_all(&w, &["b"], "the other one rolls", is_up_to_date).await;
            let expected = if pauses { "Person" } else { "Window" };
            let status = status_of(&w, "a");
            assert_eq!(status["rollout"]["waitingFor"], expected, "{}", to_text(&status));
            operator.abort();
        });
    }
}

#[test]
fn new_release_waits_for_the_others_again() {
    play(|w| async move {
        let after = json!([{"kind": "NodeDeployment", "name": "a"}]);
        w.create(named("a", json!({"type": "InPlace"}))).await;
        let mut b = named("b", json!({"type": "InPlace", "after": after}));
        b["spec"]["minReadySeconds"] = json!(120);
        w.create(b).await;
        until_all(&w, &["a", "b"], "it serves", is_up_to_date).await;
        let release = |release: &str, image: &str| {
            json!({"metadata": {"annotations": {"windlass.dev/release": release}},
                "spec": {"template": {"spec": {"image": image}}}})
        };
        w.merge(FLEET, "a", &release("7", "db:2")).await;
        w.merge(FLEET, "b", &release("7", "db:2")).await;
        until_all(&w, &["b"], "it is half updated", |s| s["rollout"]["nodes"]["updated"] == 1).await;
        w.merge(FLEET, "b", &release("8", "db:3")).await;
        w.rest(10 * 60).await;
        let status = status_of(&w, "b");
        assert_eq!(status["rollout"]["waitingFor"], "Predecessors", "{}", to_text(&status));
        assert_eq!(at(&w, "db:3"), 0);
        w.merge(FLEET, "a", &release("8", "db:3")).await;
        until_all(&w, &["a", "b"], "both are updated", is_up_to_date).await;
    });
}

#[test]
fn fleet_waits_for_the_release_of_those_before_it() {
    play(|w| async move {
        let after = json!([{"kind": "NodeDeployment", "name": "a"}]);
        w.create(named("a", json!({"type": "InPlace"}))).await;
        w.create(named("b", json!({"type": "InPlace", "after": after}))).await;
        until_all(&w, &["a", "b"], "it serves", is_up_to_date).await;
        let release = |release: &str, image: &str| {
            json!({"metadata": {"annotations": {"windlass.dev/release": release}},
                "spec": {"template": {"spec": {"image": image}}}})
        };
        // `a` is up to date, but not with this release.
        w.merge(FLEET, "b", &release("7", "db:2")).await;
        until_all(&w, &["b"], "it waits", |s| waits(s) && !told(s).is_empty()).await;
        assert_eq!(
            told(&status_of(&w, "b")),
            "waiting for NodeDeployment a to have windlass.dev/release=7: it has none"
        );
        w.rest(10 * 60).await;
        assert_eq!(condition(&status_of(&w, "b"), "Stalled"), "False/Progressing");
        w.merge(FLEET, "a", &release("7", "db:2-unready")).await;
        until_all(&w, &["b"], "it waits for the rollout", |s| told(s).contains("to be up to date")).await;
        w.rest(60).await;
        assert_eq!(status_of(&w, "b")["rollout"]["nodes"]["updated"], 0);
        w.merge(FLEET, "a", &release("7", "db:2")).await;
        until_all(&w, &["a", "b"], "both are updated", is_up_to_date).await;
        assert!(w.images().iter().all(|pod| pod.ends_with("db:2")), "{:?}", w.images());
        // Without an annotation, that of the other does not matter.
        w.merge(
            FLEET,
            "b",
            &json!({"metadata": {"annotations": {"windlass.dev/release": null}},
            "spec": {"template": {"spec": {"image": "db:3"}}}}),
        )
        .await;
        until_all(&w, &["b"], "it is updated", |s| is_up_to_date(s) && s["observedGeneration"] == 3).await;
    });
}

#[test]
fn missing_predecessor_is_named_and_a_cycle_is_refused() {
    play(|w| async move {
        let after =
            |name: &str| json!({"type": "InPlace", "after": [{"kind": "NodeDeployment", "name": name}]});
        w.create(named("a", after("b"))).await;
        until_all(&w, &["a"], "it is created without waiting", is_up_to_date).await;
        let image = |image: &str| json!({"spec": {"template": {"spec": {"image": image}}}});
        w.merge(FLEET, "a", &image("db:2")).await;
        until_all(&w, &["a"], "it waits", |s| told(s).contains("NodeDeployment b, which does not exist"))
            .await;
        w.create(named("b", after("c"))).await;
        until_all(&w, &["a"], "it rolls", is_up_to_date).await;
        w.create(named("c", after("a"))).await;
        w.merge(FLEET, "c", &image("db:2")).await;
        w.merge(FLEET, "a", &image("db:3")).await;
        until_all(&w, &["a"], "it is refused", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        let sentence = message(&status_of(&w, "a"), "UpToDate");
        assert!(
            sentence.contains("through NodeDeployment b, then NodeDeployment c, then NodeDeployment a"),
            "{sentence}"
        );
        w.merge(FLEET, "c", &json!({"spec": {"updateStrategy": {"after": null}}})).await;
        until_all(&w, &["a", "b", "c"], "all roll", is_up_to_date).await;
    });
}
