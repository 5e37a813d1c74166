//! The end of a walk: a last spec that can be carried out from where things stand, and the person who does what the docs
//! ask of a person until it is.

use serde_json::{Value, json};
use windlass_sim::Random;

use crate::hand::{FLEET, Hand, name};
use crate::oracles::condition;
use crate::schema::one;
use crate::values;

/// How often a person asks for another try.
const RETRIES: u32 = 4;

/// Replaces the spec by a last one; answers with it, or with why the API server took none.
pub async fn ask(hand: &Hand, random: &mut Random) -> Result<Value, String> {
    let fleet = hand.fleet().await.ok_or("the fleet is gone")?;
    let nodes = hand.list("StatefulNode").await;
    let mut why = Vec::new();
    for type_ in preferred(&fleet, &nodes, random) {
        let mut spec = values::good_spec(type_, random);
        fit(&mut spec, &fleet, &nodes, type_);
        match hand.replace_spec(&spec).await {
            Ok(()) => {
                // An older wish of a restart is none of the last spec. Where single nodes were restarted, all of them are, and
                // are alike again.
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

/// Now or, where a restart from the future was obeyed, just after that one.
fn later(hand: &Hand, fleet: &Value) -> String {
    let obeyed =
        fleet["status"]["restartedAt"].as_str().and_then(|at| chrono::DateTime::parse_from_rfc3339(at).ok());
    let after = obeyed.map_or(0, |at| (at.to_utc() - hand.clock.now()).num_seconds() + 2);
    crate::steps::time(hand, after.max(0))
}

/// Strategies in the order in which they are tried.
fn preferred(fleet: &Value, nodes: &[Value], random: &mut Random) -> Vec<&'static str> {
    let serving: Vec<&Value> = of_set(nodes, fleet["status"]["activeSet"].as_str().unwrap_or("first"));
    // Whoever is to halt has to have somebody who is asked: the docs say to roll a sidecar out first.
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
        // Nodes that are still on their way may have no sidecar, or say nothing.
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

/// Immutable things stay: claims where nodes are updated in place.
fn fit(spec: &mut Value, fleet: &Value, nodes: &[Value], type_: &str) {
    let status = &fleet["status"];
    let active = status["activeSet"].as_str().unwrap_or("first");
    let rollout = &status["rollout"];
    // What is promoted serves before anything else begins.
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

/// Who follows the last spec.
#[derive(Default)]
pub struct Person {
    retries: u32,
    promoted: Option<Value>,
    /// Whether a status was changed or lost by others, or two operators wrote: then the fleet may ask what a set is for.
    decides: bool,
    /// Whether a hand deleted a node, which may have been made again without the sidecar that it had.
    skips: bool,
}

impl Person {
    /// Who may be asked what a set of nodes is for.
    pub fn who_decides(decides: bool) -> Self {
        Self { decides, ..Self::default() }
    }

    /// The same who, if a hand deleted a node, sees to it that one without a sidecar has halted.
    pub fn who_skips(self, skips: bool) -> Self {
        Self { skips, ..self }
    }

    /// Does what the fleet says that it waits for. Answers with what was done.
    pub async fn look(&mut self, hand: &Hand) -> Option<String> {
        let fleet = hand.fleet().await?;
        let status = &fleet["status"];
        let (up_to_date, reason, _) = condition(&fleet, "UpToDate");
        if reason == "ReadyToPromote" {
            let wanted = status["requestedRolloutHash"].clone();
            if self.promoted.as_ref() == Some(&wanted) && fleet["spec"]["forcePromote"] == wanted {
                // What was used once is spent until the field was another.
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

/// The task that waits for nodes without a sidecar to halt: the fleet asks a person to skip it once they have.
fn halt_to_skip(fleet: &Value) -> Option<&str> {
    let rollout = &fleet["status"]["rollout"];
    let message = rollout["message"].as_str().filter(|_| rollout["stage"] == "Promoting")?;
    let (_, task) = message.split_once("no sidecar says when; once it has, annotate windlass.dev/skip=")?;
    Some(task)
}

/// Where nothing says any more what a set is for, the fleet names the nodes that are to be deleted if nobody wants them.
async fn remove_set(hand: &Hand, fleet: &Value) -> Option<String> {
    let (_, reason, message) = condition(fleet, "UpToDate");
    let (_, rest) = message.split_once("delete the StatefulNodes with the label windlass.dev/set=")?;
    let set = rest.split(' ').next().filter(|_| reason == "InvalidSpec")?;
    for node in hand.list("StatefulNode").await {
        if node["metadata"]["labels"]["windlass.dev/set"] == set {
            drop(hand.delete("StatefulNode", &name(&node)).await);
        }
    }
    Some(format!("deletes the nodes of set {set}"))
}

/// A hand took the owner off what is left of a set: the fleet names it, and says to delete it.
async fn remove_loose(hand: &Hand, fleet: &Value) -> Option<String> {
    let message = fleet["status"]["rollout"]["message"].as_str()?;
    let (before, _) = message.split_once(" (it has no owner any more: delete it)")?;
    let mut words = before.rsplit(' ');
    let (name, kind) = (words.next()?, words.next()?);
    drop(hand.delete(kind, name).await);
    Some(format!("deletes {kind} {name}"))
}

/// What is promoted cannot be taken back: where it does not run, it is made to run. A hard fork asks only for a height, so
/// its nodes may serve and never have been Ready; what is rolled over them then waits for them.
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
    let message = "waiting for db-2 to halt at height 1000: no sidecar says when; once it has, annotate \
                   windlass.dev/skip=e0379751fe-2";
    let fleet =
        |stage: &str, message: &str| json!({"status": {"rollout": {"stage": stage, "message": message}}});
    assert_eq!(halt_to_skip(&fleet("Promoting", message)), Some("e0379751fe-2"));
    assert_eq!(halt_to_skip(&fleet("Updating", message)), None);
    assert_eq!(halt_to_skip(&fleet("Promoting", "waiting for db-2 to halt at height 1000")), None);
}
