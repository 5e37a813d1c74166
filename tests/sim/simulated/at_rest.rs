//! A fleet at rest: lost records are restored without a restart, and without requests.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::sets::world::{SET, World, fleet, is_up_to_date, play, with_sidecar};

const STAMP: &str = "windlass.dev/pod-template-hash";

fn in_place(replicas: i32) -> Value {
    fleet(replicas, json!({"type": "InPlace"}))
}

fn uids(w: &World) -> Vec<Value> {
    (0..3).map(|index| w.get(("v1", "Pod"), &format!("db-{index}-0"))["metadata"]["uid"].clone()).collect()
}

#[test]
fn lost_hash_annotation_is_restored_without_restart() {
    // By a person while the operator runs, and while it does not.
    for away in [false, true] {
        play(|w| async move {
            w.serve(in_place(3)).await;
            w.rest(60).await;
            let (before, pods) = (w.get(SET, "db-1"), uids(&w));
            let stamp = before["metadata"]["annotations"][STAMP].clone();
            assert!(stamp.is_string(), "{before:#}");
            if away {
                w.kill_operator();
            }
            let gone = Patch::Merge(json!({"metadata": {"annotations": {STAMP: null}}}));
            let patched = w.api(SET).patch("db-1", &PatchParams::default(), &gone).await.unwrap();
            assert!(!patched.metadata.annotations.unwrap_or_default().contains_key(STAMP));
            if away {
                w.start_operator();
            }
            w.rest(120).await;
            let after = w.get(SET, "db-1");
            assert_eq!(after["metadata"]["annotations"][STAMP], stamp, "it is recorded again: {after:#}");
            assert_eq!(after["spec"], before["spec"]);
            assert_eq!(uids(&w), pods, "and nothing restarts");
            assert!(is_up_to_date(&w.status()));
            assert_eq!(w.events("RolloutStarted"), [""; 0], "nor is that a rollout");
            w.is_at_rest().await;
        });
    }
}

#[test]
fn idle_sidecar_is_not_polled() {
    play(|w| async move {
        w.serve(with_sidecar(in_place(3))).await;
        w.rest(120).await;
        let asked = w.applications.requests();
        assert!(asked >= 3, "each was asked when its node was made: {asked}");
        w.rest(7200).await;
        assert_eq!(
            w.applications.requests(),
            asked,
            "a sidecar is asked in a plan, and when it turned unready"
        );
        w.image("db:2").await;
        w.rest(5).await;
        w.until("it is rolled", is_up_to_date).await;
        assert!(w.applications.requests() > asked, "in a plan it is asked");
    });
}
