//! Walks on the real control plane: the same steps and last specs, by the real clock, without faults that need a
//! simulation. Many at once, each in a namespace of its own, with one operator.

#![allow(clippy::disallowed_methods, reason = "what happens in other processes goes by the real clock")]

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::Value;
use tokio::time::sleep;
use windlass::clock::SystemClock;

use crate::catalogue::oracles::{self, End};
use crate::walks::hand::{Hand, KINDS, name};
use crate::walks::last::{self, Person};
use crate::walks::schema::one;
use crate::walks::steps::{self, Done};
use crate::walks::walk::{FIRST, LAST, Walk, fleet};
use crate::walks::{ends, values};
use windlass_harness::controlplane::ControlPlane;

/// The number of concurrent walks.
const AT_ONCE: usize = 8;
/// The time limit of the last spec, and of a fresh fleet with it.
const PATIENCE: Duration = Duration::from_mins(4);
/// How long nothing changes before the end is compared.
const STILL: u32 = 4;

/// Walks these seeds. Returns the failures, each with its walk.
pub async fn walks(seeds: std::ops::Range<u64>, watched: Duration) -> Vec<String> {
    let cp = ControlPlane::shared().await;
    let mut operator = tokio::process::Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["operator", "--no-leader-elect", "--bind", "127.0.0.1:0"])
        .env("KUBECONFIG", cp.kubeconfig())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the operator starts");
    let all = futures::stream::iter(seeds).map(|seed| walk(cp, seed, watched));
    let failed: Vec<Option<String>> = all.buffer_unordered(AT_ONCE).collect().await;
    assert!(operator.try_wait().expect("it can be asked").is_none(), "the operator ended");
    failed.into_iter().flatten().collect()
}

async fn hand(cp: &ControlPlane, namespace: &str) -> Hand {
    Hand {
        client: cp.client().await,
        namespace: namespace.to_owned(),
        clock: std::sync::Arc::new(SystemClock),
        quick: true,
    }
}

async fn walk(cp: &ControlPlane, seed: u64, watched: Duration) -> Option<String> {
    let (namespace, other) = (cp.namespace("walk").await, cp.namespace("fresh").await);
    let mut way = Way { walk: Walk::whole(seed), hand: hand(cp, &namespace).await, told: Vec::new() };
    let mut failures = Vec::new();
    match way.arrive().await {
        Err(why) => failures.push(why),
        Ok(spec) => {
            let found = end_of(&way.hand).await;
            let mark = cp.audit_mark().await;
            let fresh = hand(cp, &other).await;
            let (wanted, ()) = tokio::join!(fresh_end(&fresh, &spec), sleep(watched));
            let ours = cp.audit_since(mark).await.agent("windlass/").namespace(&namespace).write_attempts();
            for write in ours.entries().iter().take(5) {
                failures.push(format!("a write at rest: {} {:?}", write.verb, write.object_ref));
            }
            let status = way.hand.fleet().await.map(|fleet| fleet["status"].clone()).unwrap_or_default();
            let active = status["activeSet"].as_str().unwrap_or("first").to_owned();
            match wanted {
                Err(why) => failures.push(why),
                Ok(wanted) => {
                    let wanted = comparable(ends::by_role(&wanted, "first", &spec));
                    let found = comparable(ends::by_role(&found, &active, &spec));
                    let lines = oracles::end::difference(&wanted, &found);
                    failures.extend(lines.into_iter().map(|line| format!("not as a fresh fleet: {line}")));
                }
            }
        }
    }
    println!("seed {seed}: {} steps, {} failures", way.walk.length(), failures.len());
    (!failures.is_empty()).then(|| {
        let command = format!(
            "WINDLASS_REAL_WALKS=1 WINDLASS_WALK_SEED={seed} cargo test --release --test sim real -- --nocapture"
        );
        format!("{command}\n{}\n{}", way.told.join("\n"), failures.join("\n"))
    })
}

struct Way {
    walk: Walk,
    hand: Hand,
    told: Vec<String>,
}

impl Way {
    /// Takes the steps and sets the last spec, until that is carried out.
    async fn arrive(&mut self) -> Result<Value, String> {
        let mut random = self.walk.random(FIRST);
        let type_ = *one(&["InPlace", "InPlace", "BlueGreen"], &mut random);
        let first = values::good_spec(type_, &mut random);
        self.hand.create(&fleet(&first)).await.map_err(|why| format!("a good spec is refused: {why}"))?;
        self.told.push(format!("creates {first}"));
        let mut debts = Vec::new();
        let mut lost = false;
        for step in self.walk.steps() {
            let mut random = self.walk.random(step);
            let done = steps::take(&self.hand, &mut random, &mut debts).await;
            let done = done.unwrap_or_else(|| Done::nothing("trouble that only a simulation can make"));
            lost |= done.leaves_doubt();
            let refused = done.refused.map(|_| " (refused)").unwrap_or_default();
            self.told.push(format!("{step}: {}{refused}", done.words));
            let pause = *one(&[0, 0, 20, 100, 500, 2_000], &mut random);
            sleep(Duration::from_millis(pause)).await;
        }
        for debt in debts {
            debt.settle(&self.hand).await;
        }
        let spec = last::ask(&self.hand, &mut self.walk.random(LAST)).await?;
        self.told.push(format!("last: {spec}"));
        until_well(&self.hand, &mut Person::who_decides(lost)).await?;
        Ok(spec)
    }
}

/// The end of a fresh fleet with a spec.
async fn fresh_end(hand: &Hand, spec: &Value) -> Result<End, String> {
    hand.create(&fleet(spec)).await.map_err(|why| format!("the last spec is refused anew: {why}"))?;
    until_well(hand, &mut Person::default()).await.map_err(|why| format!("no fresh fleet: {why}"))?;
    Ok(end_of(hand).await)
}

async fn until_well(hand: &Hand, person: &mut Person) -> Result<(), String> {
    let began = Instant::now();
    let (mut seen, mut still) = (Vec::new(), 0);
    while began.elapsed() < PATIENCE {
        sleep(Duration::from_secs(1)).await;
        let objects = objects(hand).await;
        let versions: Vec<Value> = objects.iter().map(|o| o["metadata"]["resourceVersion"].clone()).collect();
        still = if versions == seen { still + 1 } else { 0 };
        seen = versions;
        if still < STILL || !still.is_multiple_of(STILL) {
            continue;
        }
        let fleet = hand.fleet().await.unwrap_or_default();
        let nodes: Vec<Value> = objects.into_iter().filter(|o| o["kind"] == "StatefulNode").collect();
        if oracles::end::is_fleet_well(&fleet, &nodes)
            && fleet["status"]["availableReplicas"] == fleet["spec"]["replicas"]
        {
            return Ok(());
        }
        if person.look(hand).await.is_some() {
            still = 0;
        }
    }
    let fleet = hand.fleet().await.unwrap_or_default();
    Err(format!("not well in time: {:#}", fleet["status"]))
}

async fn objects(hand: &Hand) -> Vec<Value> {
    let mut all = Vec::new();
    for (_, kind) in KINDS {
        all.extend(hand.list(kind).await);
    }
    all.sort_by_key(|object| (object["kind"].to_string(), name(object)));
    all
}

async fn end_of(hand: &Hand) -> End {
    oracles::end::end_of_these(objects(hand).await)
}

/// Removes what differs between two fleets of a real cluster: volume names from admission, and the time of a restart.
fn comparable(end: End) -> End {
    end.into_iter().map(|(key, value)| (key, without_what_is_drawn(value))).collect()
}

fn without_what_is_drawn(value: Value) -> Value {
    const OWN: [&str; 7] = [
        "windlass.dev/restartedAt",
        "windlass.dev/pod-template-hash",
        "grantedHash",
        "runs",
        "clusterIP",
        "clusterIPs",
        "healthCheckNodePort",
    ];
    match value {
        Value::Object(map) => {
            let kept =
                map.into_iter().filter(|(key, _)| !OWN.contains(&key.as_str()) && !key.ends_with("-hash"));
            kept.map(|(key, value)| (key, without_what_is_drawn(value))).collect()
        }
        Value::Array(list) => {
            let is_token =
                |item: &Value| item["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
            list.into_iter().filter(|item| !is_token(item)).map(without_what_is_drawn).collect()
        }
        other => other,
    }
}
