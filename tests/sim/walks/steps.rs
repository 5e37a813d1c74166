//! A step of a walk. It is drawn from the seed, the step's number and the state of the cluster, so that a walk stays
//! the same when other steps are left out.

use serde_json::{Value, json};
use windlass_sim::Random;

use crate::walks::damage::{Debt, damage};
use crate::walks::hand::{Answer, Hand};
use crate::walks::schema::{self, FIELDS, Taste, one};
use crate::walks::values;

/// The class of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Changes a field of the spec.
    Field,
    /// Changes the image or the template.
    Image,
    /// Changes the strategy.
    Strategy,
    /// A verb, with a right or a wrong ID.
    Verb,
    /// Damage by a person.
    Damage,
    /// A fault, or an action of the platform.
    Faults,
}

/// Draws the class of a step.
pub fn kind(random: &mut Random) -> Kind {
    match random.between(0, 99) {
        0..20 => Kind::Field,
        20..38 => Kind::Image,
        38..48 => Kind::Strategy,
        48..64 => Kind::Verb,
        64..82 => Kind::Damage,
        _ => Kind::Faults,
    }
}

/// Takes the drawn step; `None` for a fault, which the world injects.
pub async fn take(hand: &Hand, random: &mut Random, debts: &mut Vec<Debt>) -> Option<Done> {
    Some(match kind(random) {
        Kind::Field => field(hand, random).await,
        Kind::Image => image(hand, random).await,
        Kind::Strategy => strategy(hand, random).await,
        Kind::Verb => verb(hand, random).await,
        Kind::Damage => damage(hand, random, debts).await,
        Kind::Faults => return None,
    })
}

/// A description of a step, and whether the API server refused it.
pub struct Done {
    pub words: String,
    pub refused: Option<String>,
}

impl Done {
    /// True if the fleet may ask afterwards what a set is for: its status lost a field, or a node was disowned
    /// meanwhile.
    pub fn leaves_doubt(&self) -> bool {
        self.words.starts_with("loses ")
            || (self.words.contains(" of StatefulNode ") && self.words.contains("\"ownerReferences\":null"))
    }

    /// True if a node was deleted in any way.
    pub fn deletes_node(&self) -> bool {
        self.words.contains("deletes ") && self.words.contains("StatefulNode ")
    }

    pub fn new(words: impl Into<String>, answer: Answer) -> Self {
        Self { words: words.into(), refused: answer.err() }
    }

    pub fn nothing(words: impl Into<String>) -> Self {
        Self { words: words.into(), refused: None }
    }
}

/// Changes any field of the spec.
pub async fn field(hand: &Hand, random: &mut Random) -> Done {
    let field = one(&FIELDS, random);
    let taste = match random.between(0, 9) {
        0..6 => Taste::Good,
        6..8 => Taste::Edge,
        8 => Taste::Bad,
        _ => Taste::Nothing,
    };
    let value = schema::value(field, taste, random);
    let shown: String = value.to_string().chars().take(120).collect();
    change(hand, schema::patch(&field.path, value), format!("{} := {shown}", field.path)).await
}

/// Changes the image or the template.
pub async fn image(hand: &Hand, random: &mut Random) -> Done {
    let image = match random.between(0, 9) {
        0..6 => *one(&values::RUN, random),
        6..8 => *one(&values::FAIL, random),
        _ => "",
    };
    if image.is_empty() {
        let template = values::pod_template(random);
        let words = format!("podTemplate := {template}");
        return change(hand, schema::patch("template.spec.podTemplate", template), words).await;
    }
    change(hand, schema::patch("template.spec.image", image.into()), format!("image := {image}")).await
}

/// Changes the strategy.
pub async fn strategy(hand: &Hand, random: &mut Random) -> Done {
    let type_ = *one(&["InPlace", "BlueGreen", "BlueGreen", "HardFork"], random);
    let mut strategy = values::strategy(type_, random);
    if type_ == "BlueGreen" && random.between(0, 3) == 0 {
        strategy["blueGreen"]["promotion"] = "Immediately".into();
    }
    let mut spec = json!({"updateStrategy": strategy});
    if type_ == "InPlace" {
        spec["unsafeCustomBuildID"] = "".into();
    }
    if type_ == "HardFork" && random.between(0, 1) == 0 {
        spec["template"] = json!({"spec": {"sidecar": {"image": "windlass:1"}}});
    }
    change(hand, json!({"spec": spec}), format!("updateStrategy := {strategy}")).await
}

/// Merge-patches the spec.
///
/// Irreversible harm is avoided: under `promotion: Immediately` the old nodes go before the new ones were seen to
/// run, which the docs warn of.
async fn change(hand: &Hand, patch: Value, words: String) -> Done {
    let Some(fleet) = hand.fleet().await else { return Done::nothing(format!("no fleet for {words}")) };
    let mut wanted = fleet.clone();
    json_patch::merge(&mut wanted, &patch);
    if is_rash(&wanted["spec"]) {
        return Done::nothing(format!("too rash: {words}"));
    }
    Done::new(words, hand.patch_fleet(&patch).await)
}

/// True if a spec promotes at once what may never run.
fn is_rash(spec: &Value) -> bool {
    let at_once = spec["updateStrategy"]["type"] == "BlueGreen"
        && spec["updateStrategy"]["blueGreen"]["promotion"] == "Immediately";
    at_once && !runs(spec)
}

/// True if the pods of a spec run on the simulated machines, as far as images and machines matter.
fn runs(spec: &Value) -> bool {
    let node = &spec["template"]["spec"];
    let pod = &node["podTemplate"]["spec"];
    let known = |image: &Value| values::RUN.iter().any(|run| image == run) || image == "log:1";
    let containers = pod["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let overridden = node["image"].as_str().is_some_and(|image| !image.is_empty());
    let main = node["mainContainer"].as_str().filter(|name| !name.is_empty());
    let fine = containers.iter().enumerate().all(|(index, container)| {
        let is_main = main.map_or(index == 0, |main| container["name"] == main);
        if is_main && overridden { known(&node["image"]) } else { known(&container["image"]) }
    });
    let sidecar = node["sidecar"]["image"].as_str().unwrap_or_default();
    fine && (sidecar.is_empty() || sidecar.starts_with("windlass:"))
        && pod["nodeSelector"].is_null()
        && pod["serviceAccountName"].is_null()
        && node["sidecar"]["tokenSecret"].as_str().unwrap_or_default().is_empty()
}

/// A time in the format of annotations.
pub fn time(hand: &Hand, seconds: i64) -> String {
    let at = hand.clock.now() + chrono::Duration::seconds(seconds);
    at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// Runs a verb.
pub async fn verb(hand: &Hand, random: &mut Random) -> Done {
    let Some(fleet) = hand.fleet().await else { return Done::nothing("no fleet for a verb") };
    let status = &fleet["status"];
    let history = status["history"].as_array().and_then(|list| list.first()).cloned().unwrap_or_default();
    let ids = [&status["plan"]["id"], &status["rejected"]["planID"], &history["planID"]];
    // The right one, that of another plan, or one that never existed.
    let id = |first: usize, random: &mut Random| match random.between(0, 5) {
        0 => json!("0123456789"),
        1 => ids[(first + 1) % ids.len()].clone(),
        2 => ids[(first + 2) % ids.len()].clone(),
        _ => ids[first].clone(),
    };
    match random.between(0, 13) {
        0 | 1 => {
            let id = id(0, random);
            Done::new(format!("abort {id}"), hand.annotate_fleet("windlass.dev/abort", &id).await)
        }
        2 | 3 => {
            let id = id(1, random);
            Done::new(format!("retry {id}"), hand.annotate_fleet("windlass.dev/retry", &id).await)
        }
        4 => skip(hand, &fleet, random).await,
        5 | 6 => {
            let seconds = *one(&[0, 0, 0, -7200, 3600], random);
            let at = json!(time(hand, seconds));
            Done::new(format!("restart {at}"), hand.annotate_fleet("windlass.dev/restartedAt", &at).await)
        }
        7 => {
            let at = one(&[json!("soon"), Value::Null, json!("")], random).clone();
            Done::new(format!("restart {at}"), hand.annotate_fleet("windlass.dev/restartedAt", &at).await)
        }
        8 => restart_node(hand, random).await,
        9 | 10 => {
            let hashes = [&status["requestedRolloutHash"], &status["lastCompletedRolloutHash"]];
            let hash = *one(&hashes, random);
            let hash = if hash.is_null() { json!("v1:0") } else { hash.clone() };
            let patch = schema::patch("forcePromote", hash.clone());
            Done::new(format!("promote {hash}"), hand.patch_fleet(&patch).await)
        }
        11 | 12 => {
            let paused = fleet["spec"]["paused"] != true;
            let patch = schema::patch("paused", paused.into());
            Done::new(format!("paused := {paused}"), hand.patch_fleet(&patch).await)
        }
        _ => roll_back(hand, random).await,
    }
}

async fn skip(hand: &Hand, fleet: &Value, random: &mut Random) -> Done {
    let mut objects = hand.list("StatefulNode").await;
    objects.push(fleet.clone());
    let object = one(&objects, random);
    let (kind, name) = (object["kind"].as_str().unwrap_or_default(), crate::walks::hand::name(object));
    let tasks = object["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
    let task = if tasks.is_empty() { json!("0123456789-0") } else { one(&tasks, random)["id"].clone() };
    let patch = json!({"metadata": {"annotations": {"windlass.dev/skip": task}}});
    Done::new(format!("skip {task} of {kind} {name}"), hand.patch(kind, &name, &patch).await)
}

async fn restart_node(hand: &Hand, random: &mut Random) -> Done {
    let nodes = hand.list("StatefulNode").await;
    if nodes.is_empty() {
        return Done::nothing("no node to restart");
    }
    let name = crate::walks::hand::name(one(&nodes, random));
    let patch = json!({"metadata": {"annotations": {"windlass.dev/restartedAt": time(hand, 0)}}});
    Done::new(format!("restart of node {name}"), hand.patch("StatefulNode", &name, &patch).await)
}

/// Sets the template of a stored revision.
async fn roll_back(hand: &Hand, random: &mut Random) -> Done {
    let revisions = hand.list("ControllerRevision").await;
    let of_fleet = |r: &&Value| {
        let labels = &r["metadata"]["labels"];
        labels["windlass.dev/deployment"] == crate::walks::hand::FLEET
            && labels.get("windlass.dev/node").is_none()
    };
    let kept: Vec<&Value> = revisions.iter().filter(of_fleet).collect();
    if kept.is_empty() {
        return Done::nothing("no revision to go back to");
    }
    let revision = *one(&kept, random);
    let template = &revision["data"];
    let Some(pod_template) =
        template.pointer("/podTemplate").or_else(|| template.pointer("/template/podTemplate"))
    else {
        return Done::nothing(format!(
            "a revision without a template: {}",
            crate::walks::hand::name(revision)
        ));
    };
    let mut spec = json!({"podTemplate": pod_template});
    spec["image"] = template.get("image").cloned().unwrap_or_default();
    let patch = json!({"spec": {"template": {"spec": spec}}});
    change(hand, patch, format!("back to {}", crate::walks::hand::name(revision))).await
}
