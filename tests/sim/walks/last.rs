//! The end of a walk: a last spec that can be carried out from the current state, and a person who acts as the docs
//! ask.

use serde_json::{Value, json};
use windlass_sim::Random;

use crate::catalogue::oracles::condition;
use crate::walks::hand::{FLEET, Hand, name};
use crate::walks::schema::one;
use crate::walks::values;

/// The most retries of a person.
const RETRIES: u32 = 4;

/// Sets the last spec; returns it, or the API server's refusal.
pub async fn ask(hand: &Hand, random: &mut Random) -> Result<Value, String> {
    let fleet = hand.fleet().await.ok_or("the fleet is gone")?;
    let nodes = hand.list("StatefulNode").await;
    let mut why = Vec::new();
    for type_ in preferred(&fleet, &nodes, random) {
        let mut spec = values::good_spec(type_, random);
        fit(&mut spec, &fleet, &nodes, type_);
        match hand.replace_spec(&spec).await {
            Ok(()) => {
                // An old restart request is not part of the last spec. If single nodes were restarted, all are, so
                // that they are equal again.
                let restarted =
                    |node: &Value| node["metadata"]["annotations"]["windlass.dev/restartedAt"].is_string();
                let at = if nodes.iter().any(restarted) { json!(later(hand, &fleet)) } else { Value::Null };
                drop(hand.annotate_fleet("windlass.dev/restartedAt", &at).await);
                return hand
                    .fleet()
                    .await
                    .map(|fleet| fleet["spec"].clone())
                    .ok_or("the fleet is gone".to_owned());
            }
            Err(refused) => why.push(refused),
        }
    }
    Err(format!("no last spec is taken: {why:?}"))
}

/// Now or, if a future restart was obeyed, just after that one.
fn later(hand: &Hand, fleet: &Value) -> String {
    let obeyed =
        fleet["status"]["restartedAt"].as_str().and_then(|at| chrono::DateTime::parse_from_rfc3339(at).ok());
    let after = obeyed.map_or(0, |at| (at.to_utc() - hand.clock.now()).num_seconds() + 2);
    crate::walks::steps::time(hand, after.max(0))
}

/// The strategies to try, in order.
fn preferred(fleet: &Value, nodes: &[Value], random: &mut Random) -> Vec<&'static str> {
    let serving: Vec<&Value> = of_set(nodes, fleet["status"]["activeSet"].as_str().unwrap_or("first"));
    // A halt needs a sidecar: the docs say to roll one out first.
    let can_halt =
        !serving.is_empty() && serving.iter().all(|node| node["spec"]["sidecar"]["image"].is_string());
    let mut all = vec!["InPlace", "BlueGreen"];
    if can_halt {
        all.push("HardFork");
    }
    let status = &fleet["status"];
    let settled = status["lastCompletedRolloutHash"] == status["requestedRolloutHash"]
        && status["plan"]["state"] != "Active"
        && nodes.iter().all(|node| condition(node, "Ready").0 == "True");
    let first = match *one(&all, random) {
        // Nodes that are being updated may have no sidecar, or no answer.
        "HardFork" if !settled => "BlueGreen",
        first => first,
    };
    vec![first, "BlueGreen", "InPlace"]
}

fn of_set<'a>(nodes: &'a [Value], set: &str) -> Vec<&'a Value> {
    let is_of =
        |node: &&Value| windlass::api::names::place_of(FLEET, &name(node)).is_some_and(|(of, _)| of == set);
    nodes.iter().filter(is_of).collect()
}

/// Keeps immutable fields: claims, if nodes are updated in place.
fn fit(spec: &mut Value, fleet: &Value, nodes: &[Value], type_: &str) {
    let status = &fleet["status"];
    let active = status["activeSet"].as_str().unwrap_or("first");
    let rollout = &status["rollout"];
    // The promoted set serves before anything else starts.
    let promoting = rollout["stage"] == "Promoting";
    let set = if promoting { rollout["entrantSet"].as_str().unwrap_or(active) } else { active };
    let serving = of_set(nodes, set);
    let claims = serving.first().map(|node| node["spec"]["volumeClaimTemplates"].clone());
    let claims = claims.unwrap_or_else(|| fleet["spec"]["template"]["spec"]["volumeClaimTemplates"].clone());
    let in_place = type_ == "InPlace" || status["lastCompletedRolloutHash"].is_null();
    let build_id = &fleet["spec"]["unsafeCustomBuildID"];
    let same_id = spec["unsafeCustomBuildID"].is_string()
        && (spec["unsafeCustomBuildID"] == *build_id
            || spec["unsafeCustomBuildID"] == status["activeBuildID"]);
    if in_place || same_id {
        let node = spec["template"]["spec"].as_object_mut().expect("a node's spec");
        node.remove("volumeClaimTemplates");
        if claims.as_array().is_some_and(|list| !list.is_empty()) {
            node.insert("volumeClaimTemplates".to_owned(), claims);
        }
    }
}

/// A person who follows the last spec.
#[derive(Default)]
pub struct Person {
    retries: u32,
    promoted: Option<Value>,
    /// True if a status was damaged, or two operators wrote: then the fleet may ask what a set is for.
    decides: bool,
    /// True if a person deleted a node, which may have been recreated without its sidecar.
    skips: bool,
}

impl Person {
    /// A person who may be asked what a set is for.
    pub fn who_decides(decides: bool) -> Self {
        Self { decides, ..Self::default() }
    }

    /// The same person, who, if nodes were deleted, makes sure that one without a sidecar has halted.
    pub fn who_skips(self, skips: bool) -> Self {
        Self { skips, ..self }
    }

    /// Does what the fleet waits for. Returns what was done.
    pub async fn look(&mut self, hand: &Hand) -> Option<String> {
        let fleet = hand.fleet().await?;
        let status = &fleet["status"];
        let (up_to_date, reason, _) = condition(&fleet, "UpToDate");
        if reason == "ReadyToPromote" {
            let wanted = status["requestedRolloutHash"].clone();
            if self.promoted.as_ref() == Some(&wanted) && fleet["spec"]["forcePromote"] == wanted {
                // A used value is spent until the field had another one.
                self.promoted = None;
                drop(hand.patch_fleet(&json!({"spec": {"forcePromote": ""}})).await);
            } else {
                drop(hand.patch_fleet(&json!({"spec": {"forcePromote": wanted}})).await);
                self.promoted = Some(wanted);
            }
            return Some("promotes".to_owned());
        }
        if self.decides
            && let Some(done) = remove_set(hand, &fleet).await
        {
            return Some(done);
        }
        if let Some(done) = remove_loose(hand, &fleet).await {
            return Some(done);
        }
        if let Some(done) = mend_promoted(hand, &fleet).await {
            return Some(done);
        }
        if let Some(task) = halt_to_skip(&fleet).filter(|_| self.skips) {
            drop(hand.annotate_fleet("windlass.dev/skip", &json!(task)).await);
            return Some(format!("skips {task}"));
        }
        let held = status["plan"]["state"] == "Failed" && status["rollout"].is_object();
        let ended = if held { &status["plan"]["id"] } else { &status["rejected"]["planID"] };
        let goes_back = status["plan"]["state"] == "Active" && status["rollout"].is_object();
        if up_to_date != "False" || self.retries >= RETRIES || ended.is_null() || goes_back {
            return None;
        }
        self.retries += 1;
        drop(hand.annotate_fleet("windlass.dev/retry", ended).await);
        Some(format!("retries {ended}"))
    }
}

/// The task that waits for nodes without a sidecar to halt: a person skips it once they have.
fn halt_to_skip(fleet: &Value) -> Option<&str> {
    let rollout = &fleet["status"]["rollout"];
    let message = rollout["message"].as_str().filter(|_| rollout["stage"] == "Promoting")?;
    let (_, task) = message
        .split_once("no sidecar reports the halt; after the node has halted, annotate windlass.dev/skip=")?;
    Some(task)
}

/// If nothing says which set of nodes serves, the fleet names them: the person keeps the one with the most Ready nodes.
async fn remove_set(hand: &Hand, fleet: &Value) -> Option<String> {
    let (_, reason, message) = condition(fleet, "UpToDate");
    let sets = sets_asked_about(&message);
    let kept = sets.iter().max_by_key(|(ready, _)| *ready).filter(|_| reason == "InvalidSpec")?.1;
    for node in hand.list("StatefulNode").await {
        let set = &node["metadata"]["labels"]["windlass.dev/set"];
        if sets.iter().any(|(_, asked)| *set == **asked && *asked != kept) {
            drop(hand.delete("StatefulNode", &name(&node)).await);
        }
    }
    Some(format!("deletes the nodes of each set but {kept}"))
}

/// The sets that a message lists as `SET (2 of 4 nodes Ready)`, and how many nodes of each are.
fn sets_asked_about(message: &str) -> Vec<(u32, &str)> {
    let asked = message.split_once("it is not known which of these sets of nodes ");
    let list = asked.and_then(|(_, rest)| rest.split_once(": ")?.1.split_once(';'));
    let sets = list.into_iter().flat_map(|(list, _)| list.split(", "));
    sets.filter_map(|set| {
        let (name, rest) = set.split_once(" (")?;
        Some((rest.split(' ').next()?.parse().ok()?, name))
    })
    .collect()
}

#[test]
fn undecided_sets_are_parsed_from_the_condition_message() {
    let message = "status.activeSet: it is not known which of these sets of nodes is active: 45390 (0 of 2 nodes Ready), \
                   first (2 of 2 nodes Ready); Windlass removes and updates nothing until only one is left. …";
    assert_eq!(sets_asked_about(message), [(0, "45390"), (2, "first")]);
    assert_eq!(sets_asked_about("spec.replicas is negative"), []);
}

/// A person removed the owner of the rest of a set: the fleet names the objects to delete.
async fn remove_loose(hand: &Hand, fleet: &Value) -> Option<String> {
    let message = fleet["status"]["rollout"]["message"].as_str()?;
    let (before, _) = message.split_once(" (it no longer has an owner: delete it)")?;
    let mut words = before.rsplit(' ');
    let (name, kind) = (words.next()?, words.next()?);
    drop(hand.delete(kind, name).await);
    Some(format!("deletes {kind} {name}"))
}

/// A promotion cannot be rolled back: if it does not run, it is repaired. A hard fork only needs a height, so its
/// nodes may serve without ever being Ready; a later rollout waits for them.
async fn mend_promoted(hand: &Hand, fleet: &Value) -> Option<String> {
    let rollout = &fleet["status"]["rollout"];
    let nodes = hand.list("StatefulNode").await;
    let active = fleet["status"]["activeSet"].as_str().unwrap_or_default();
    let waits = rollout["message"].as_str().is_some_and(|text| text.starts_with("waiting for the wave: "));
    let never_ready = || of_set(&nodes, active).iter().all(|node| node["status"]["firstReadyAt"].is_null());
    let set = if rollout["stage"] == "Promoting" {
        rollout["entrantSet"].as_str()?
    } else if rollout["stage"] == "Updating" && active != "first" && waits && never_ready() {
        active
    } else {
        return None;
    };
    let steered = hand.get("ConfigMap", "mended").await.map(|map| map["data"].clone()).unwrap_or(json!({}));
    let mut data = steered.clone();
    for node in of_set(&nodes, set) {
        data[format!("{}-0", name(node))] = "ready".into();
    }
    if data == steered {
        return None;
    }
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "mended", "labels": {windlass_sim::kubelet::STEER_LABEL: "true"}}, "data": data,
    });
    if hand.create(&map).await.is_err() {
        drop(hand.patch("ConfigMap", "mended", &json!({"data": data})).await);
    }
    Some("makes what is promoted run".to_owned())
}

#[test]
fn only_a_promotion_that_names_the_task_is_skipped() {
    let message = "waiting for db-2 to halt at height 1000: no sidecar reports the halt; after the node has halted, \
        annotate windlass.dev/skip=e0379751fe-2";
    let fleet =
        |stage: &str, message: &str| json!({"status": {"rollout": {"stage": stage, "message": message}}});
    assert_eq!(halt_to_skip(&fleet("Promoting", message)), Some("e0379751fe-2"));
    assert_eq!(halt_to_skip(&fleet("Updating", message)), None);
    assert_eq!(halt_to_skip(&fleet("Promoting", "waiting for db-2 to halt at height 1000")), None);
}
