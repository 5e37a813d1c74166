//! A platform policy that has every StatefulSet delete its claims: whatever is asked of a fleet whose claims are to
//! stay, none is deleted, and what waits for the policy to go says so.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_sim::{Mutation, Pace, Policy, Target};

use super::sets::world::{CLAIM, NODE, SET, World, fleet, play, text};

/// How soon all is well once the policy is gone: Windlass tries again once a minute.
const SOON_SECONDS: u64 = 180;

fn claims_go() -> Policy {
    let deletes = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    Policy::new("claims-go", Target::StatefulSets, Mutation::ClaimRetention(deletes))
}

fn three() -> Value {
    fleet(3, json!({"type": "InPlace"}))
}

/// Makes a fleet of three whose claims stay.
async fn serve_safely(w: &World) {
    w.serve(three()).await;
    w.until("it says Retain", says("Retain")).await;
}

/// Installs the policy, and writes every StatefulSet.
async fn let_it_in(w: &World) {
    w.cluster.admit(claims_go());
    for set in w.names(SET) {
        w.merge(SET, &set, &json!({"metadata": {"labels": {"team": "one"}}})).await;
    }
}

fn says(retention: &str) -> impl Fn(&Value) -> bool {
    move |status| status["volumeClaimRetention"] == retention
}

/// The UIDs of the claims, by name. A claim that was deleted and made again has another one.
fn claims(w: &World) -> BTreeMap<String, Value> {
    let names = w.names(CLAIM).into_iter();
    names.map(|name| (name.clone(), w.get(CLAIM, &name)["metadata"]["uid"].clone())).collect()
}

/// The kinds of the claims' owners.
fn owners(w: &World) -> Vec<String> {
    let claims = w.names(CLAIM).into_iter().map(|name| w.get(CLAIM, &name));
    let references =
        claims.flat_map(|c| c["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default());
    references.map(|owner| text(&owner, "kind").to_owned()).collect()
}

/// Withdraws the policy, and waits until `holds` is true.
async fn withdrawn(w: &World, what: &str, holds: impl Fn() -> bool) {
    w.cluster.withdraw("claims-go");
    for _ in 0..SOON_SECONDS {
        if holds() {
            return;
        }
        w.rest(1).await;
    }
    panic!("{what} did not happen within {SOON_SECONDS} s; owners: {:?}", owners(w));
}

/// True if no StatefulSet says that its claims are deleted.
fn is_put_back(w: &World) -> bool {
    let retention = |set: &String| w.get(SET, set)["spec"]["persistentVolumeClaimRetentionPolicy"].clone();
    w.names(SET).iter().all(|set| retention(set)["whenDeleted"] == "Retain")
}

#[test]
fn claims_are_released_in_time_with_a_slow_set_controller() {
    play(|w| async move {
        serve_safely(&w).await;
        let before = claims(&w);
        w.cluster.set_pace(Pace { stateful_set_lag: 30_000, ..Pace::default() });
        let_it_in(&w).await;
        w.rest(2).await;
        assert!(owners(&w).is_empty() && says("Delete")(&w.status()), "the StatefulSets will own them");
        w.rest(60).await;
        assert_eq!(owners(&w), ["StatefulSet"; 3]);
        withdrawn(&w, "what is written again", || is_put_back(&w)).await;
        w.change(json!({"replicas": 2})).await;
        w.rest(2).await;
        assert!(owners(&w).len() == 3 && says("Delete")(&w.status()), "they own them still");
        w.until("it is released", says("Retain")).await;
        assert_eq!(owners(&w), [""; 0]);
        w.until("db-2 leaves", |_| w.names(NODE).len() == 2).await;
        w.rest(1800).await;
        assert_eq!(claims(&w), before);
    });
}

/// Asks for two nodes, with another change and so many milliseconds after a person's write of a StatefulSet, if any.
async fn scaled_in_meanwhile(w: &World, mut change: Value, after_write_ms: Option<u64>) {
    serve_safely(w).await;
    let before = claims(w);
    w.cluster.admit(claims_go());
    if let Some(ms) = after_write_ms {
        w.merge(SET, "db-2", &json!({"metadata": {"labels": {"team": "one"}}})).await;
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
    change["replicas"] = json!(2);
    w.change(change).await;
    w.rest(60).await;
    assert_eq!(claims(w), before, "{after_write_ms:?}");
}

#[test]
fn policy_applied_during_scale_in_deletes_no_claim() {
    let labels = || json!({"template": {"metadata": {"labels": {"team": "one"}}}});
    play(|w| async move { scaled_in_meanwhile(&w, labels(), None).await });
    for ms in [0, 1, 2, 5, 10] {
        play(|w| async move {
            scaled_in_meanwhile(&w, json!({}), Some(ms)).await;
            assert_eq!(w.names(NODE).len(), 3);
        });
    }
}
