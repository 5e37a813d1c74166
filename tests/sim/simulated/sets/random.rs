//! Random changes of the spec at random times: one set serves, no claim is lost, serving nodes are not removed, and a
//! blocked rollout reports why.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{
    CLAIM, NODE, World, blue_green, condition, is_up_to_date, play, text, to_text, with_sidecar,
};

/// An action of a person.
#[derive(Clone, Debug)]
enum Deed {
    Image(&'static str),
    Promotion(&'static str),
    Strategy(&'static str),
    BuildId(&'static str),
    Replicas(i32),
    Pause(bool),
    Promote,
    Abort,
    Retry,
    Restart(u32),
    Kill,
    LoseNode(usize),
    Wait(u64),
}

fn deed() -> impl Strategy<Value = Deed> {
    let image = prop::sample::select(vec!["db:1", "db:2", "db:3", "db:4-unready", "db:5-nope"]);
    prop_oneof![
        6 => image.prop_map(Deed::Image),
        2 => prop::sample::select(vec!["WhenReady", "Manual", "Immediately"]).prop_map(Deed::Promotion),
        1 => prop::sample::select(vec!["BlueGreen", "HardFork", "InPlace"]).prop_map(Deed::Strategy),
        2 => prop::sample::select(vec!["", "one", "two"]).prop_map(Deed::BuildId),
        2 => (0..4).prop_map(Deed::Replicas),
        1 => any::<bool>().prop_map(Deed::Pause),
        2 => Just(Deed::Promote),
        1 => Just(Deed::Abort),
        1 => Just(Deed::Retry),
        1 => (0_u32..3).prop_map(Deed::Restart),
        1 => Just(Deed::Kill),
        1 => (0_usize..4).prop_map(Deed::LoseNode),
        4 => prop::sample::select(vec![0, 1, 5, 40, 300]).prop_map(Deed::Wait),
    ]
}

async fn try_change(w: &World, spec: Value) {
    // A refused patch changes nothing.
    let patch = kube::api::Patch::Merge(json!({"spec": spec}));
    let _ = w.fleets().patch("db", &kube::api::PatchParams::default(), &patch).await;
}

async fn act(w: &World, deed: &Deed) {
    let plan = |status: &Value| text(&status["plan"], "id").to_owned();
    match deed {
        Deed::Image(image) => w.image(image).await,
        Deed::Promotion(word) => {
            try_change(w, json!({"updateStrategy": {"blueGreen": {"promotion": word}}})).await;
        }
        Deed::Strategy(word) => try_change(w, json!({"updateStrategy": {"type": word}})).await,
        Deed::BuildId(id) => try_change(w, json!({"unsafeCustomBuildID": id})).await,
        Deed::Replicas(replicas) => w.change(json!({"replicas": replicas})).await,
        Deed::Pause(paused) => w.change(json!({"paused": paused})).await,
        Deed::Promote => {
            let wanted = w.status()["requestedRolloutHash"].clone();
            if wanted.is_string() {
                w.change(json!({"forcePromote": wanted})).await;
            }
        }
        Deed::Abort => w.annotate("windlass.dev/abort", &plan(&w.status())).await,
        Deed::Retry => w.annotate("windlass.dev/retry", &plan(&w.status())).await,
        Deed::Restart(year) => {
            w.annotate("windlass.dev/restartedAt", &format!("20{}-01-01T00:00:00Z", 30 + year)).await;
        }
        Deed::Kill => {
            w.kill_operator();
            w.start_operator();
        }
        Deed::LoseNode(index) => {
            if let Some(name) = w.names(NODE).get(*index) {
                let _ = w.api(NODE).delete(name, &kube::api::DeleteParams::background()).await;
            }
        }
        Deed::Wait(seconds) => w.rest(*seconds).await,
    }
}

/// A rollout that is blocked for longer than its deadline reports why.
async fn says_why(w: &World) {
    w.rest(400).await;
    let status = w.status();
    let at_rest = status["rollout"].is_null();
    // The condition Ready reports nodes that were promoted before they were ready.
    let unready =
        condition(&status, "UpToDate") == "True/Applied" && condition(&status, "Ready").starts_with("False/");
    let fine = is_up_to_date(&status)
        || at_rest && unready
        || at_rest && condition(&status, "UpToDate").starts_with("False/");
    let idle = status["replicas"] == 0 && at_rest;
    let told = !text(&status["rollout"], "message").is_empty()
        && (condition(&status, "Stalled").starts_with("True/")
            || condition(&status, "RolloutInProgress") == "True/Paused"
            || condition(&status, "UpToDate") == "Unknown/ReadyToPromote"
            || text(&status["rollout"], "message").contains("replicas"));
    // The first creation is no rollout.
    let creating = at_rest && condition(&status, "Stalled") == "True/NoProgress";
    // A paused fleet at rest, or one with a rejected target, reports it in its conditions.
    let paused = status["phase"] == "Paused";
    assert!(fine || idle || told || creating || paused, "it stands still in silence:\n{}", to_text(&status));
}

/// Deleted objects of the active set that should have stayed.
fn wrongly_removed(w: &World) -> Vec<String> {
    let seen = w.seen_objects();
    let deletes: Vec<_> = w
        .cluster
        .audit()
        .into_iter()
        .filter(|e| {
            e.verb == "delete" && e.resource.starts_with("statefulnodes") && e.user_agent == "windlass"
        })
        .filter(|e| e.code < 300)
        .collect();
    let of = |entry: &windlass_sim::AuditEntry| {
        let before = seen.iter().rfind(|(version, _)| *version <= entry.version);
        let (_, fleet) = before?;
        let set = text(&fleet["status"], "activeSet");
        let rest = entry.name.strip_prefix("db-")?;
        let (of_set, ordinal) = rest.rsplit_once('-').unwrap_or(("first", rest));
        let surplus = ordinal.parse::<i64>().unwrap() >= fleet["spec"]["replicas"].as_i64().unwrap();
        let goes_first = fleet["status"]["plan"]["recipe"] == "BlueGreenImmediate"
            && fleet["status"]["rollout"]["stage"] == "Promoting";
        (of_set == set && !surplus && !goes_first).then(|| format!("{} while {set} serves", entry.name))
    };
    deletes.iter().filter_map(of).collect()
}

fn obeys(deeds: &[Deed], sidecar: bool) -> Result<(), String> {
    let trouble: Arc<Mutex<Result<(), String>>> = Arc::new(Mutex::new(Ok(())));
    let (shared, deeds) = (trouble.clone(), deeds.to_vec());
    play(|w| async move {
        let mut fleet = blue_green(2, json!({"retireDelaySeconds": 20}));
        fleet["spec"]["updateStrategy"]["hardFork"] = json!({"haltHeight": 100});
        w.applications.reach(100);
        w.serve(if sidecar { with_sidecar(fleet) } else { fleet }).await;
        let mut claims = w.names(CLAIM);
        for deed in &deeds {
            act(&w, deed).await;
            w.rest(1).await;
            claims.extend(w.names(CLAIM));
        }
        says_why(&w).await;
        // The end: a target that runs, without obstacles.
        try_change(&w, json!({"unsafeCustomBuildID": ""})).await;
        w.change(json!({"paused": false, "replicas": 2, "forcePromote": "", "updateStrategy":
            {"type": "BlueGreen", "blueGreen": {"promotion": "WhenReady"}}}))
            .await;
        w.image("db:9").await;
        // A BlueGreenImmediate promotion that cannot run waits for a person to fix it.
        for _ in 0..3 {
            w.rest(200).await;
            let status = w.status();
            if status["rollout"]["stage"] == "Promoting" {
                let set = text(&status["rollout"], "entrantSet").to_owned();
                for name in w.names(NODE).iter().filter(|n| n.starts_with(&format!("db-{set}-"))) {
                    w.steer(&format!("{name}-0"), "ready").await;
                }
                w.applications.reach(1000);
                w.annotate("windlass.dev/skip", &format!("{}-2", text(&status["plan"], "id"))).await;
            }
        }
        w.until("it is over", |s| is_up_to_date(s) && w.images().iter().all(|i| i.ends_with("db:9"))).await;
        w.rest(60).await;
        claims.extend(w.names(CLAIM));
        claims.sort();
        claims.dedup();
        let set = text(&w.status(), "activeSet").to_owned();
        let name = |n: i32| if set == "first" { format!("db-{n}") } else { format!("db-{set}-{n}") };
        let mut found = Vec::new();
        if w.names(NODE) != [name(0), name(1)] {
            found.push(format!("{set} serves, and there are {:?}", w.names(NODE)));
        }
        if w.selected() != set {
            found.push(format!("{set} serves, and the Service selects {}", w.selected()));
        }
        if w.names(CLAIM) != claims {
            found.push(format!("of the claims {claims:?} there are {:?}", w.names(CLAIM)));
        }
        found.extend(wrongly_removed(&w));
        if !found.is_empty() {
            *shared.lock().unwrap() = Err(found.join("\n"));
        }
        w.is_at_rest().await;
    });
    let found = trouble.lock().unwrap();
    found.clone()
}

/// The number of sequences per run; `PROPTEST_CASES` sets more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_changes_leads_to_two_serving_sets_a_lost_claim_or_silence(
        deeds in prop::collection::vec(deed(), 1..10),
        sidecar in any::<bool>(),
    ) {
        if let Err(trouble) = obeys(&deeds, sidecar) {
            prop_assert!(false, "{trouble}");
        }
    }
}
