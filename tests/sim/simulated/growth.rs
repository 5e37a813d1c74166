//! Volume claims that grow in place.

use std::time::Duration;

use serde_json::{Value, json};

use super::sets::world::{
    CLAIM, NODE, POD, SET, World, blue_green, condition, fleet, is_up_to_date, message, play, text,
};
use windlass_sim::kubelet::Expansion;

/// A fleet whose claims are of this class.
fn of_class(mut fleet: Value, class: &str) -> Value {
    fleet["spec"]["template"]["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = json!(class);
    fleet
}

pub fn in_place(replicas: i32, class: &str) -> Value {
    of_class(fleet(replicas, json!({"type": "InPlace"})), class)
}

/// A fleet of two nodes that is rolled back if it stalls.
fn rolls_back() -> Value {
    let mut fleet = in_place(2, "grows");
    fleet["spec"]["updateStrategy"]["onStall"] = json!("Rollback");
    fleet
}

/// The change to this size.
fn size(storage: &str) -> Value {
    json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "grows", "resources": {"requests": {"storage": storage}}}}])
}

pub fn grown(storage: &str) -> Value {
    json!({"template": {"spec": {"volumeClaimTemplates": size(storage)}}})
}

/// Serves a fleet whose claims grow like this.
pub async fn serve(w: &World, way: Expansion, fleet: Value) {
    w.cluster.install(way.class("grows")).unwrap();
    w.serve(fleet).await;
}

fn capacities(w: &World) -> Vec<String> {
    let of = |name: &String| text(&w.get(CLAIM, name)["status"]["capacity"], "storage").to_owned();
    w.names(CLAIM).iter().map(of).collect()
}

fn templates(w: &World) -> Vec<String> {
    let of = |name: &String| {
        let claim = &w.get(SET, name)["spec"]["volumeClaimTemplates"][0];
        text(&claim["spec"]["resources"]["requests"], "storage").to_owned()
    };
    w.names(SET).iter().map(of).collect()
}

fn uids(w: &World, kind: (&str, &str)) -> Vec<String> {
    w.names(kind).iter().map(|name| text(&w.get(kind, name)["metadata"], "uid").to_owned()).collect()
}

fn images_end(w: &World, image: &str) -> bool {
    w.images().iter().all(|of| of.ends_with(&format!(" {image}")))
}

fn causes(w: &World) -> Vec<String> {
    let seen = w.seen_objects();
    let causes = seen.iter().map(|(_, fleet)| text(&fleet["status"]["rollout"], "cause").to_owned());
    let mut causes: Vec<String> = causes.filter(|cause| !cause.is_empty()).collect();
    causes.dedup();
    causes
}

async fn until_grown(w: &World, nodes: usize, storage: &str) {
    w.until("all claims have grown", |status| {
        is_up_to_date(status)
            && condition(status, "RolloutInProgress") == "False/RolloutComplete"
            && capacities(w) == vec![storage; nodes]
            && templates(w) == vec![storage; nodes]
    })
    .await;
}

#[test]
fn claims_grow_online_and_no_pod_is_replaced() {
    let slow = Expansion::Slow(Duration::from_mins(4));
    for (strategy, way) in
        [("InPlace", Expansion::Online), ("BlueGreen", Expansion::Online), ("InPlace", slow)]
    {
        let strategy = json!({"type": strategy});
        play(|w| async move {
            serve(&w, way, of_class(fleet(3, strategy), "grows")).await;
            let (pods, sets, hash) =
                (uids(&w, POD), uids(&w, SET), w.status()["lastCompletedRolloutHash"].clone());
            w.change(grown("2Gi")).await;
            until_grown(&w, 3, "2Gi").await;
            assert_eq!(uids(&w, POD), pods, "the pods stay");
            assert!(uids(&w, SET).iter().all(|uid| !sets.contains(uid)), "the StatefulSets are others");
            assert_eq!(causes(&w), ["ClaimsGrown"]);
            for node in w.names(NODE) {
                assert_eq!(w.completed(&node, "GrowClaims"), 1, "{node}");
            }
            assert_eq!(w.status()["lastCompletedRolloutHash"], hash, "the revision is the same");
            // A new node gets the new size.
            w.change(json!({"replicas": 4})).await;
            until_grown(&w, 4, "2Gi").await;
            w.is_at_rest().await;
            // The next release replaces each pod once.
            w.image("db:2").await;
            w.until("the release is out", |status| is_up_to_date(status) && images_end(&w, "db:2")).await;
        });
    }
}

#[test]
fn pods_are_restarted_in_waves_only_if_the_driver_needs_it() {
    play(|w| async move {
        serve(&w, Expansion::Offline, in_place(3, "grows")).await;
        let pods = uids(&w, POD);
        w.change(grown("2Gi")).await;
        until_grown(&w, 3, "2Gi").await;
        let restarted = uids(&w, POD);
        assert!(restarted.iter().all(|uid| !pods.contains(uid)), "each pod was restarted");
        let seen = w.seen_objects();
        let ready = seen.iter().filter_map(|(_, fleet)| fleet["status"]["readyReplicas"].as_i64());
        assert!(ready.skip_while(|ready| *ready < 3).min() >= Some(2), "at most one at a time");
        for node in w.names(NODE) {
            assert_eq!(w.get(NODE, &node)["spec"]["move"], Value::Null, "{node}");
        }
        w.is_at_rest().await;
    });
}

#[test]
fn growth_that_fails_stalls_and_holds_nothing_else_back() {
    play(|w| async move {
        serve(&w, Expansion::Never, rolls_back()).await;
        w.change(grown("2Gi")).await;
        let status = w.until("it stalls", |status| condition(status, "Stalled") == "True/NoProgress").await;
        let why = message(&status, "UpToDate");
        assert!(why.contains("data-db-0-0 grows from 1Gi to 2Gi") && why.contains("rpc error"), "{why}");
        w.rest(600).await;
        assert_eq!(condition(&w.status(), "Stalled"), "True/NoProgress", "nothing is rolled back");
        // A release goes first.
        w.image("db:2").await;
        w.until("the release is out", |_| images_end(&w, "db:2")).await;
        // And so does a repair of the volumes.
        w.rest(60).await;
        assert_eq!(causes(&w), ["ClaimsGrown", "TemplateChanged", "ClaimsGrown"]);
    });
}

#[test]
fn growth_continues_after_the_operator_was_killed() {
    for seconds in [1, 2, 3, 5] {
        play(|w| async move {
            serve(&w, Expansion::Slow(Duration::from_secs(4)), in_place(2, "grows")).await;
            let pods = uids(&w, POD);
            w.change(grown("2Gi")).await;
            for _ in 0..8 {
                w.rest(seconds).await;
                w.kill_operator();
                w.rest(1).await;
                w.start_operator();
            }
            until_grown(&w, 2, "2Gi").await;
            assert_eq!(uids(&w, POD), pods, "the pods stay");
            w.is_at_rest().await;
        });
    }
}

#[test]
fn class_that_does_not_grow_is_refused_before_anything_is_written() {
    play(|w| async move {
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "grows"},
            "provisioner": "p"});
        w.cluster.install(class).unwrap();
        w.serve(in_place(2, "grows")).await;
        w.change(grown("2Gi")).await;
        let status =
            w.until("it is refused", |status| condition(status, "UpToDate") == "False/InvalidSpec").await;
        let why = message(&status, "UpToDate");
        assert!(why.contains("data-db-0-0") && why.contains("allowVolumeExpansion"), "{why}");
        assert!(w.names(NODE).iter().all(|name| w.get(NODE, name)["spec"]["claimSizes"].is_null()));
        // The previous size helps, and so does the class.
        w.change(grown("1Gi")).await;
        w.until("it is accepted", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

#[test]
fn release_and_growth_in_one_apply_replace_each_pod_once() {
    play(|w| async move {
        serve(&w, Expansion::Online, in_place(3, "grows")).await;
        let mut change = grown("2Gi");
        change["template"]["spec"]["image"] = json!("db:2");
        w.change(change).await;
        until_grown(&w, 3, "2Gi").await;
        assert!(images_end(&w, "db:2"));
        for node in w.names(NODE) {
            let updates = ["NodeUpdate", "RestartNode"].map(|recipe| w.completed(&node, recipe));
            assert_eq!(updates, [2, 0], "{node}: its creation and its update");
        }
        w.is_at_rest().await;
    });
}

#[test]
fn bad_release_is_rolled_back_and_volumes_stay_large() {
    play(|w| async move {
        serve(&w, Expansion::Online, rolls_back()).await;
        let mut change = grown("2Gi");
        change["template"]["spec"]["image"] = json!("db:nope");
        w.change(change).await;
        w.until("it is rolled back", |status| condition(status, "UpToDate") == "False/RolledBack").await;
        w.until("all serve again", |status| condition(status, "Ready") == "True/AllNodesReady").await;
        w.until("all claims have grown", |_| {
            capacities(&w) == ["2Gi", "2Gi"] && templates(&w) == ["2Gi", "2Gi"]
        })
        .await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
    });
}

#[test]
fn new_set_has_the_new_size_and_a_volume_cannot_shrink() {
    play(|w| async move {
        serve(&w, Expansion::Online, of_class(blue_green(2, json!({})), "grows")).await;
        w.change(grown("2Gi")).await;
        until_grown(&w, 2, "2Gi").await;
        w.change(grown("1Gi")).await;
        let status =
            w.until("it is refused", |status| condition(status, "UpToDate") == "False/InvalidSpec").await;
        let why = message(&status, "UpToDate");
        assert!(why.contains("cannot shrink to 1Gi"), "{why}");
        w.change(grown("3Gi")).await;
        until_grown(&w, 2, "3Gi").await;
        w.image("db:2").await;
        w.until("another set serves", |status| is_up_to_date(status) && w.names(SET).len() == 2).await;
        assert_eq!(templates(&w), ["3Gi", "3Gi"]);
    });
}

#[test]
fn nodes_that_are_updated_in_place_keep_the_size_that_they_have() {
    play(|w| async move {
        serve(&w, Expansion::Online, in_place(2, "grows")).await;
        let refused = async |size: &str, since: &str| {
            w.change(grown(size)).await;
            let expected = format!("cannot shrink to {size}, since {since}");
            w.until("it is refused", |status| {
                condition(status, "UpToDate") == "False/InvalidSpec"
                    && message(status, "UpToDate").contains(&expected)
            })
            .await;
        };
        refused("512Mi", "node db-0 was created with 1Gi: set").await;
        w.change(grown("2Gi")).await;
        until_grown(&w, 2, "2Gi").await;
        for size in ["1Gi", "512Mi"] {
            refused(size, "PersistentVolumeClaim data-db-0-0 has 2Gi already: set").await;
        }
    });
}

#[test]
fn full_volume_can_grow_in_the_middle_of_a_release() {
    play(|w| async move {
        serve(&w, Expansion::Online, in_place(2, "grows")).await;
        w.steer("db-1-0", "crash").await;
        w.image("db:2").await;
        w.rest(60).await;
        w.change(grown("2Gi")).await;
        w.until("the claims have grown although a pod is down", |_| capacities(&w) == ["2Gi", "2Gi"]).await;
    });
}

#[test]
fn size_that_no_volume_has_reached_can_be_taken_back() {
    play(|w| async move {
        serve(&w, Expansion::Never, in_place(2, "grows")).await;
        w.change(grown("2000Gi")).await;
        w.until("it stalls", |status| condition(status, "Stalled") == "True/NoProgress").await;
        w.change(grown("1Gi")).await;
        w.until("nothing is left to do", |status| {
            is_up_to_date(status) && condition(status, "RolloutInProgress") == "False/RolloutComplete"
        })
        .await;
        w.change(json!({"replicas": 3})).await;
        w.until("a new node has the size", |_| templates(&w) == ["1Gi", "1Gi", "1Gi"]).await;
    });
}

#[test]
fn lost_status_changes_nothing_of_volumes_that_have_grown() {
    for strategy in ["InPlace", "BlueGreen"] {
        play(|w| async move {
            let fleet = of_class(fleet(2, json!({"type": strategy})), "grows");
            serve(&w, Expansion::Online, fleet).await;
            w.change(grown("1.5Gi")).await;
            until_grown(&w, 2, "1536Mi").await;
            let (pods, sets) = (uids(&w, POD), uids(&w, SET));
            w.kill_operator();
            let status = w.status();
            let lost = status.as_object().unwrap().keys().map(|key| (key.clone(), Value::Null)).collect();
            w.patch_status(&json!({"status": Value::Object(lost)})).await;
            w.start_operator();
            w.until("it is complete", |status| {
                is_up_to_date(status) && status["lastCompletedRolloutHash"].is_string()
            })
            .await;
            w.rest(60).await;
            assert_eq!((uids(&w, POD), uids(&w, SET)), (pods, sets), "{strategy}");
            w.change(grown("2Gi")).await;
            until_grown(&w, 2, "2Gi").await;
            w.is_at_rest().await;
        });
    }
}

#[test]
fn node_that_leaves_while_its_set_is_replaced_leaves_no_pod() {
    for rest in 0..12 {
        play(|w| async move {
            serve(&w, Expansion::Online, in_place(2, "grows")).await;
            w.change(grown("2Gi")).await;
            tokio::time::sleep(Duration::from_millis(500 + 250 * rest)).await;
            w.change(json!({"replicas": 1})).await;
            w.until("one node is left", |status| {
                is_up_to_date(status) && w.names(NODE) == ["db-0"] && templates(&w) == ["2Gi"]
            })
            .await;
            w.rest(30).await;
            assert_eq!(w.names(POD), ["db-0-0"], "after {rest}");
        });
    }
}

#[test]
fn paused_fleet_restarts_no_pod() {
    play(|w| async move {
        serve(&w, Expansion::Offline, in_place(2, "grows")).await;
        let pods = uids(&w, POD);
        w.change(grown("2Gi")).await;
        w.rest(1).await;
        w.change(json!({"paused": true})).await;
        w.rest(600).await;
        assert_eq!(uids(&w, POD), pods);
        w.change(json!({"paused": false})).await;
        until_grown(&w, 2, "2Gi").await;
    });
}

#[test]
fn suspended_node_holds_no_growth_back() {
    play(|w| async move {
        serve(&w, Expansion::Online, in_place(2, "grows")).await;
        w.merge(NODE, "db-1", &json!({"spec": {"suspend": true}})).await;
        w.rest(20).await;
        w.change(grown("2Gi")).await;
        w.until("the other one has grown", |status| {
            templates(&w) == ["2Gi", "1Gi"]
                && condition(status, "RolloutInProgress") == "False/RolloutComplete"
        })
        .await;
        w.merge(NODE, "db-1", &json!({"spec": {"suspend": false}})).await;
        until_grown(&w, 2, "2Gi").await;
    });
}

#[test]
fn set_that_is_replaced_does_not_grow() {
    play(|w| async move {
        let strategy = json!({"promotion": "Manual", "retireDelaySeconds": 600});
        serve(&w, Expansion::Online, of_class(blue_green(2, strategy), "grows")).await;
        let mut change = grown("2Gi");
        change["template"]["spec"]["image"] = json!("db:2");
        w.change(change).await;
        w.until("the new set waits", |status| condition(status, "UpToDate") == "Unknown/ReadyToPromote")
            .await;
        let mut sizes = capacities(&w);
        sizes.sort();
        assert_eq!(sizes, ["1Gi", "1Gi", "2Gi", "2Gi"]);
        let set = text(&w.status()["rollout"], "entrantSet").to_owned();
        for ordinal in 0..2 {
            let node = w.get(NODE, &format!("db-{set}-{ordinal}"));
            assert_eq!(node["metadata"]["labels"]["windlass.dev/set"], set, "{node}");
        }
        // Not after the promotion, either, while the old set waits for its deletion.
        w.change(json!({"forcePromote": w.status()["requestedRolloutHash"]})).await;
        w.until("it is promoted", is_up_to_date).await;
        w.change(grown("3Gi")).await;
        w.rest(120).await;
        let mut sizes = capacities(&w);
        sizes.sort();
        assert_eq!(sizes, ["1Gi", "1Gi", "3Gi", "3Gi"]);
    });
}
