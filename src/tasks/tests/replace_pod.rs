//! `replace-pod` deletes the one pod that it may, once, and by its UID.

use std::collections::BTreeMap;

use super::super::ReplacePod;
use super::*;
use crate::api::BuiltFor;

const OLD_POD_GOES: &str = "waiting for the old pod to terminate";

/// The template is v2 and observed; the pod still runs v1.
fn to_v2() -> Node {
    Node::serving("v1").granted("v2").with_set("v2")
}

async fn without_a_write(node: Node) -> String {
    said(&bench(&node).once(&ReplacePod {}).await)
}

#[tokio::test]
async fn owned_pod_at_another_revision_is_deleted_once_by_uid() {
    for node in [to_v2(), to_v2().not_ready()] {
        let mut bench = bench(&node);
        let view = bench.view.clone();
        bench
            .cluster
            .expect_delete()
            .times(1)
            .withf(|t| (t.kind, t.name.as_str(), t.uid.as_str()) == (Kind::Pod, "db-0-0", "pod-1"))
            .returning(move |_| {
                let leaving = node_that_leaves();
                view.observe(Kind::Pod, &leaving);
                Ok(())
            });
        let outcomes = bench.twice(&ReplacePod {}).await;
        assert_eq!(outcomes.each_ref().map(said), [OLD_POD_GOES, OLD_POD_GOES]);
    }
}

fn node_that_leaves() -> Value {
    to_v2().terminating().pod("/metadata/resourceVersion", json!("21")).pod.unwrap()
}

#[tokio::test]
async fn terminating_current_or_foreign_pod_is_not_deleted() {
    let other_owner = |n: Node| n.pod("/metadata/ownerReferences/0/uid", json!("other"));
    let table = [
        ("at the update revision", to_v2().with_new_pod("v2"), "done"),
        ("at the update revision and not ready", to_v2().with_new_pod("v2").not_ready(), "done"),
        ("terminating", to_v2().terminating(), OLD_POD_GOES),
        (
            "owned by another",
            other_owner(to_v2()),
            "waiting for the StatefulSet controller to create the pod",
        ),
        (
            "owned by nobody",
            to_v2().pod("/metadata/ownerReferences", json!([])),
            "waiting for the pod with this name, which does not belong to the StatefulSet, to be deleted",
        ),
        ("no pod", to_v2().without_pod(), "waiting for the StatefulSet controller to create the pod"),
        ("template unseen", to_v2().unseen(), UNSEEN),
        (
            "Ready under a spent grant",
            to_v2().spent(),
            "waiting for a new grant: the pod keeps its template until then",
        ),
        ("no StatefulSet", to_v2().without_set(), "ChildChanged: the node's StatefulSet no longer exists"),
        (
            "the template is not the granted one",
            to_v2().with_set("v1"),
            "ChildChanged: the StatefulSet's template is not the granted one",
        ),
        (
            "the template was edited since",
            to_v2().set("/metadata/generation", json!(4)).set("/status/observedGeneration", json!(4)),
            "ChildChanged: the StatefulSet's template is not the granted one",
        ),
    ];
    for (what, node, expected) in table {
        assert_eq!(without_a_write(node).await, expected, "{what}");
    }
}

#[tokio::test]
async fn failed_pod_is_replaced_even_under_a_spent_grant() {
    let used = "waiting for a new grant: the pod keeps its template until then";
    assert_eq!(without_a_write(to_v2().spent().not_ready()).await, used, "it may do its work");
    let mut bench = bench(&to_v2().spent().not_running());
    bench.cluster.expect_delete().times(1).returning(|_| Ok(()));
    assert_eq!(said(&bench.once(&ReplacePod {}).await), OLD_POD_GOES);
}

#[tokio::test]
async fn delete_errors_are_distinguished() {
    let table = [
        (conflict(), "waiting for the cache to show a concurrent change"),
        (refused(), "failed: the API server rejects x: spec.x: no"),
        (overloaded(), "again Some(7s): x: slow down"),
    ];
    for (error, expected) in table {
        let mut bench = bench(&to_v2());
        bench.cluster.expect_delete().times(1).return_once(move |_| Err(error));
        assert_eq!(said(&bench.once(&ReplacePod {}).await), expected);
    }
}

#[tokio::test]
async fn recreated_pod_is_kept_when_the_revision_changes() {
    let words = BuiltFor { hash: hash("v2"), image: "db:v2".to_owned(), main_container: "db".to_owned() };
    let mut came = to_v2().with_new_pod("v2").set("/status/updateRevision", json!("db-0-moved"));
    for object in [&mut came.set, &mut came.pod] {
        object.as_mut().unwrap()["metadata"]["resourceVersion"] = json!("31");
    }
    came.pod.as_mut().unwrap()["metadata"]["annotations"] = json!(BTreeMap::from(words.to_annotations()));
    let mut bench = bench(&to_v2());
    let view = bench.view.clone();
    bench.cluster.expect_delete().times(1).returning(move |_| {
        came.shown_to(&view);
        Ok(())
    });
    let outcomes = bench.twice(&ReplacePod {}).await;
    assert_eq!(outcomes.each_ref().map(said), [OLD_POD_GOES, "done"]);
}

#[tokio::test]
async fn pod_of_an_earlier_observed_revision_is_kept() {
    let ready = bench(&to_v2().terminating()).scope();
    for (version, revision) in ["db-0-moved", "db-0-v2", "db-0-moved-again"].into_iter().enumerate() {
        let told = to_v2().set("/status/updateRevision", json!(revision));
        let version = json!((31 + version).to_string());
        ready
            .scope
            .view
            .observe(Kind::StatefulSet, &told.set("/metadata/resourceVersion", version).set.unwrap());
        assert_eq!(said(&run(&ReplacePod {}, &ready).await), OLD_POD_GOES);
    }
    let came = of_an_unknown_revision().pod("/metadata/resourceVersion", json!("41"));
    ready.scope.view.observe(Kind::Pod, &came.pod.unwrap());
    assert_eq!(said(&run(&ReplacePod {}, &ready).await), "done");
}

/// A node whose pod says that it was made for v2, and has a revision that no status has reported.
fn of_an_unknown_revision() -> Node {
    let words = BuiltFor { hash: hash("v2"), image: "db:v2".to_owned(), main_container: "db".to_owned() };
    to_v2()
        .with_new_pod("v2")
        .pod("/metadata/annotations", json!(BTreeMap::from(words.to_annotations())))
        .pod("/metadata/labels/controller-revision-hash", json!("db-0-moved"))
}

/// The StatefulSet once its status reports the pod's revision.
fn that_tells_of_it() -> Value {
    let told = of_an_unknown_revision().set("/status/updateRevision", json!("db-0-moved"));
    told.set("/metadata/resourceVersion", json!("31")).set.unwrap()
}

const REVISION_IS_TOLD: &str = "waiting for the revision that the StatefulSet controller gave to the pod";

#[tokio::test(start_paused = true)]
async fn pod_is_kept_when_its_revision_is_observed_later() {
    let ready = bench(&of_an_unknown_revision()).scope();
    assert_eq!(said(&run(&ReplacePod {}, &ready).await), REVISION_IS_TOLD);
    ready.scope.view.observe(Kind::StatefulSet, &that_tells_of_it());
    assert_eq!(said(&run(&ReplacePod {}, &ready).await), "done");
}

#[tokio::test(start_paused = true)]
async fn pod_of_unknown_revision_is_deleted_only_after_a_live_read() {
    for (is_told, expected) in [(true, "done"), (false, OLD_POD_GOES)] {
        let mut bench = bench(&of_an_unknown_revision());
        let asked = bench.cluster.expect_get().times(1);
        asked.withf(|kind, _, name| (*kind, name) == (Kind::StatefulSet, "db-0"));
        let (seen, told) = (of_an_unknown_revision().set, that_tells_of_it());
        asked.return_once(move |_, _, _| Ok(if is_told { Some(told) } else { seen }));
        bench.cluster.expect_delete().times(usize::from(!is_told)).returning(|_| Ok(()));
        let ready = bench.scope();
        for _ in 0..2 {
            assert_eq!(said(&run(&ReplacePod {}, &ready).await), REVISION_IS_TOLD);
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(said(&run(&ReplacePod {}, &ready).await), expected);
    }
}
