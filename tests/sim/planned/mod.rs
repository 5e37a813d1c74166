//! Compares `windlass plan` with what happens: generated changes of fleets in every stage, on the simulated cluster
//! with the unmodified operator.

mod stalled;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use windlass::operator::Operator;
use windlass_cli::forecast::{Change, Forecast, Outcome, forecast};
use windlass_sim::{Cluster, Options};

use windlass_harness::judge::{self, Chance, Log, Seen, change, follows};
use windlass_harness::stage::{furnished, paused};

struct World {
    cluster: Cluster,
    client: kube::Client,
    fleets: Api<DynamicObject>,
    log: Arc<Mutex<Log>>,
    operator: tokio::task::AbortHandle,
}

fn api(client: &kube::Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::namespaced_with(client.clone(), "test", &ApiResource::from_gvk(&kind))
}

impl World {
    async fn new(seed: u64, fleet: Value) -> Self {
        let cluster = furnished(Options::seeded(seed));
        for definition in windlass::api::crd::crds() {
            cluster.install(json!(definition)).unwrap();
        }
        let client = cluster.client("test", "test");
        let fleets = api(&client, "windlass.dev", "v1alpha1", "NodeDeployment");
        let operator = Operator::new(cluster.client("windlass", "test")).clock(cluster.clock());
        let operator = tokio::spawn(operator.run(std::future::pending::<()>())).abort_handle();
        let log: Arc<Mutex<Log>> = Arc::default();
        let told = log.clone();
        let nodes = api(&client, "windlass.dev", "v1alpha1", "StatefulNode");
        tokio::spawn(async move {
            let mut events = watcher::watcher(nodes, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                let mut log = told.lock().unwrap();
                match event.unwrap() {
                    Event::Apply(node) | Event::InitApply(node) => {
                        let grant = node.data["spec"]["grantID"].as_str().unwrap_or_default();
                        log.stands(node.metadata.name.clone().unwrap(), grant);
                    }
                    Event::Delete(node) => log.went(node.metadata.name.unwrap()),
                    Event::Init | Event::InitDone => {}
                }
            }
        });
        let world = Self { cluster, client, fleets, log, operator };
        let forecast = world.forecast(&Change::Apply(fleet.clone())).await;
        assert!(forecast.is_new && forecast.outcome == Outcome::Changes, "{forecast:#?}");
        world.fleets.create(&PostParams::default(), &serde_json::from_value(fleet).unwrap()).await.unwrap();
        world.settle().await;
        let made: BTreeSet<String> = forecast.order().map(str::to_owned).collect();
        assert_eq!(
            made,
            world.take().iter().map(|seen| seen.name().clone()).collect(),
            "the nodes of a new fleet"
        );
        world
    }

    async fn forecast(&self, change: &Change) -> Forecast {
        forecast(&self.client, "test", "db", change, self.cluster.clock().now()).await.unwrap()
    }

    async fn db(&self) -> Value {
        serde_json::to_value(self.fleets.get("db").await.unwrap()).unwrap()
    }

    /// Waits until nothing is written any more.
    async fn settle(&self) {
        let mut quiet = 0;
        let mut version = self.cluster.version();
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            quiet = if self.cluster.version() == version { quiet + 1 } else { 0 };
            version = self.cluster.version();
            if quiet > 9 {
                return;
            }
        }
        panic!("it does not come to rest: {:#}", self.db().await["status"]);
    }

    fn take(&self) -> Vec<Seen> {
        self.log.lock().unwrap().take()
    }
}

fn fleet(chance: &mut Chance, strategy: &str) -> Value {
    let replicas = 2 + chance.below(5);
    let mut strategy = match strategy {
        "InPlace" => json!({"type": "InPlace", "inPlace": {"maxUnavailable": 1 + chance.below(3)}}),
        "Immediately" => {
            json!({"type": "BlueGreen", "blueGreen": {"promotion": "Immediately", "retireDelaySeconds": 3}})
        }
        promotion => {
            json!({"type": "BlueGreen", "blueGreen": {"promotion": promotion, "retireDelaySeconds": 3}})
        }
    };
    // A rollout without progress must not become stalled here.
    strategy["progressDeadlineSeconds"] = json!(100_000);
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "db"},
        "spec": {"replicas": replicas, "updateStrategy": strategy,
            "template": {"spec": {"image": "db:1", "podTemplate": {"spec": {
                "terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "db:0"}]}}}}},
    })
}

/// The names of each wave with these actions.
fn of(forecast: &Forecast, actions: &[&str]) -> Vec<Vec<String>> {
    judge::of(&json!(forecast), actions)
}

/// The number of comparisons by kind.
type Tally = BTreeMap<String, u32>;

async fn walk(seed: u64, strategy: &str, steps: u64, tally: &mut Tally) {
    let mut chance = Chance(seed * 7_919 + 13);
    let world = World::new(seed, fleet(&mut chance, strategy)).await;
    for step in 0..steps {
        let before = world.db().await;
        let (what, patch) = change(&mut chance, step, &before);
        let mark = world.cluster.audit_len();
        let forecast = world.forecast(&Change::Merge(patch.clone())).await;
        let writes = world.cluster.audit_after(mark);
        let writes: Vec<_> = writes.iter().filter(|e| e.user_agent == "test" && e.is_write()).collect();
        assert!(writes.is_empty(), "to look ahead writes nothing: {writes:?}");
        let context = format!(
            "seed {seed}, {strategy}, step {step}: {what} over {}\n{forecast:#?}",
            before["status"]["phase"]
        );
        *tally.entry(format!("{strategy}: {:?}", forecast.outcome)).or_default() += 1;
        world.take();
        let applied = world.fleets.patch("db", &PatchParams::default(), &Patch::Merge(&patch)).await;
        let Ok(applied) = applied else {
            let sentence = applied.unwrap_err().to_string();
            assert_eq!(forecast.outcome, Outcome::Refused, "{context}\n{sentence}");
            assert!(sentence.contains(forecast.refused.as_deref().unwrap()), "{context}\n{sentence}");
            continue;
        };
        let applied = serde_json::to_value(applied).unwrap();
        world.settle().await;
        let (after, seen) = (world.db().await, world.take());
        let context = format!("{context}\n{seen:?}\n{:#}", after["status"]);
        let status = &after["status"];
        if forecast.outcome == Outcome::Refused {
            let conditions = status["conditions"].as_array().unwrap();
            let invalid = conditions.iter().find(|c| c["type"] == "UpToDate").unwrap();
            assert_eq!(invalid["reason"], "InvalidSpec", "{context}");
            let said = forecast.refused.as_deref().unwrap();
            assert!(judge::is_said(invalid["message"].as_str().unwrap(), said, &after["spec"]), "{context}");
            let grants = seen.iter().any(|seen| matches!(seen, Seen::Granted(_)));
            assert!(!grants, "nothing is touched: {context}");
            // A person reverts the change before the next one.
            let back = json!([{"op": "replace", "path": "/spec", "value": before["spec"]}]);
            let back: json_patch::Patch = serde_json::from_value(back).unwrap();
            world.fleets.patch("db", &PatchParams::default(), &Patch::<()>::Json(back)).await.unwrap();
            world.settle().await;
            continue;
        }
        if forecast.outcome == Outcome::Nothing {
            assert_eq!(applied["metadata"]["generation"], before["metadata"]["generation"], "{context}");
            assert!(seen.is_empty(), "{context}");
            continue;
        }
        assert_eq!(status["requestedRolloutHash"], json!(forecast.target_hash), "{context}");
        // A granted node that is reverted, as by a higher partition, makes the same rollout start its tasks again.
        let is_anew = status["history"].as_array().and_then(|history| history.last()).is_some_and(|last| {
            last["reason"] == "ChildChanged" && last["targetHash"] == status["plan"]["targetHash"]
        }) && status["history"] != before["status"]["history"];
        let begun = status["plan"]["id"] != before["status"]["plan"]["id"] && !is_anew;
        assert_eq!(begun, !forecast.recipe.is_empty(), "whether a rollout begins: {context}");
        if begun {
            assert_eq!(status["plan"]["recipe"], json!(forecast.recipe), "{context}");
        }
        let paused = after["spec"]["paused"] == true;
        // A rollout that cannot run or start does not finish.
        let whole = status["rollout"].is_null();
        let names = |pick: fn(&Seen) -> bool| {
            seen.iter().filter(|seen| pick(seen)).map(|seen| seen.name().clone()).collect::<Vec<_>>()
        };
        let granted = names(|seen| matches!(seen, Seen::Granted(_)));
        let made = names(|seen| matches!(seen, Seen::Made(_)));
        let gone = names(|seen| matches!(seen, Seen::Gone(_)));
        if paused && forecast.set.is_none() {
            assert!(granted.is_empty() && gone.is_empty(), "{context}");
            continue;
        }
        if paused {
            assert!(granted.is_empty() && made.is_empty() && gone.is_empty(), "{context}");
            continue;
        }
        let sets = forecast.set.is_some();
        assert!(judge::serves(&json!(forecast), &before, &after, whole), "who serves: {context}");
        // The nodes within a wave have no order.
        assert!(follows(&of(&forecast, &["Update", "Adopt"]), &granted, whole), "who is granted: {context}");
        assert!(follows(&of(&forecast, &["Create"]), &made, whole), "who is made: {context}");
        if whole || !sets {
            assert!(follows(&of(&forecast, &["Remove"]), &gone, whole), "who leaves: {context}");
        }
    }
}

#[test]
fn forecasts_of_two_hundred_changes_match_the_outcome() {
    let mut tally = Tally::new();
    for seed in 0..12 {
        paused(walk(seed, "InPlace", 12, &mut tally));
    }
    for seed in 12..18 {
        paused(walk(seed, "WhenReady", 7, &mut tally));
    }
    for seed in 18..20 {
        paused(walk(seed, "Immediately", 7, &mut tally));
    }
    println!("{tally:#?}");
    assert!(tally.values().sum::<u32>() >= 200, "{tally:?}");
    for kind in ["InPlace: Changes", "InPlace: Refused", "InPlace: Nothing", "WhenReady: Changes"] {
        assert!(tally.get(kind).is_some_and(|count| *count > 2), "{kind}: {tally:?}");
    }
}
