//! Templates and specs that a person puts back, and pods that outlive their nodes.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use windlass_sim::Pace;

use super::world::{NODE, fleet, is_up_to_date, play, text};

fn in_place(replicas: i32) -> Value {
    fleet(replicas, json!({"type": "InPlace"}))
}

#[test]
fn pod_of_a_removed_node_counts_in_the_wave_until_deleted() {
    play(|w| async move {
        let mut fleet = in_place(5);
        fleet["spec"]["minReadySeconds"] = json!(8);
        w.serve(fleet).await;
        // Long enough to see what is done between the deletion of the StatefulSet and that of its pod.
        w.cluster.set_pace(Pace { collector: (5_000, 5_000), ..Pace::default() });
        w.image("db:2").await;
        w.until("one is updated", |s| s["rollout"]["nodes"]["updated"] == 1).await;
        w.change(json!({"replicas": 4})).await;
        let (mut seen, mut before) = (false, BTreeMap::new());
        let uids = || -> BTreeMap<String, String> {
            let all = w.cluster.snapshot();
            let pods = all.iter().filter(|object| object["kind"] == "Pod").map(|pod| &pod["metadata"]);
            pods.map(|meta| (text(meta, "name").to_owned(), text(meta, "uid").to_owned())).collect()
        };
        w.until("it is complete", |s| {
            let pods = uids();
            let doomed = w.get(NODE, "db-4").is_null()
                && w.get(("apps/v1", "StatefulSet"), "db-4").is_null()
                && pods.contains_key("db-4-0");
            if doomed {
                seen = true;
                assert_eq!(pods, before, "another was replaced while db-4-0 was about to go");
            } else {
                before.clone_from(&pods);
            }
            is_up_to_date(s) && !pods.contains_key("db-4-0")
        })
        .await;
        assert!(seen, "the pod never outlived its StatefulSet");
    });
}

/// A backup of the nodes is restored over the fleet: their specs, with grants that were spent long ago.
#[test]
fn earlier_spent_grant_deletes_no_pod() {
    play(|w| async move {
        w.serve(in_place(4)).await;
        w.image("db:2").await;
        let all_at = |tag: &str| w.images().iter().all(|image| image.ends_with(tag));
        w.until("the second", |s| is_up_to_date(s) && all_at("db:2")).await;
        let names = w.names(NODE);
        let saved: Vec<(String, Value)> =
            names.iter().map(|name| (name.clone(), w.get(NODE, name)["spec"].clone())).collect();
        w.image("db:3").await;
        w.until("the third", |s| is_up_to_date(s) && all_at("db:3")).await;
        let uids = || -> Vec<Value> {
            names
                .iter()
                .map(|name| w.get(("v1", "Pod"), &format!("{name}-0"))["metadata"]["uid"].clone())
                .collect()
        };
        let before = uids();
        // So that the fleet, which would put the specs right, does not come first.
        w.change(json!({"paused": true})).await;
        for (name, spec) in saved {
            w.merge(NODE, &name, &json!({"spec": spec})).await;
        }
        w.rest(30).await;
        assert_eq!(uids(), before, "no grant is spent twice");
        w.change(json!({"paused": false})).await;
        w.until("it is as before", |s| {
            let specs = w.names(NODE).iter().all(|name| text(&w.get(NODE, name)["spec"], "image") == "db:3");
            specs && all_at("db:3") && is_up_to_date(s)
        })
        .await;
    });
}

/// A person edits the template of a node that is being created, which makes a pod of the edit, and the operator writes
/// the template back: that pod is not what was granted.
#[test]
fn pod_of_a_reverted_edit_does_not_count_as_the_granted_pod() {
    play(|w| async move {
        w.steer("db-0-0", "unready").await;
        w.create(in_place(1)).await;
        let set = ("apps/v1", "StatefulSet");
        while w.get(set, "db-0").is_null() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        w.kill_operator();
        let recorded = w.get(NODE, "db-0")["status"]["statefulSet"].clone();
        assert!(recorded.is_null(), "the status knows the StatefulSet already: {recorded}");
        w.rest(2).await;
        let edited =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "db:9"}]}}}});
        w.merge(set, "db-0", &edited).await;
        w.rest(2).await;
        let pods = w.api(("v1", "Pod"));
        pods.delete("db-0-0", &DeleteParams::default().grace_period(0)).await.unwrap();
        w.rest(2).await;
        assert_eq!(w.images(), ["db-0-0 db:9"]);
        w.start_operator();
        w.until("its template is written back", |_| {
            text(&w.get(set, "db-0")["spec"]["template"]["spec"]["containers"][0], "image") == "db:1"
        })
        .await;
        w.rest(60).await;
        let ready = json!({"data": {"db-0-0": "ready"}});
        w.api(("v1", "ConfigMap"))
            .patch("steer-db-0-0", &PatchParams::default(), &Patch::Merge(&ready))
            .await
            .unwrap();
        w.until("it is complete", is_up_to_date).await;
        assert_eq!(w.images(), ["db-0-0 db:1"]);
    });
}
