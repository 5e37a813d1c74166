//! Changes that are thought of, and whether what was said of one is what then happened.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use windlass_core::planner::fleet::requests::of_strategy;

/// What was seen of nodes, in the order in which it happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Seen {
    Made(String),
    Granted(String),
    Gone(String),
}

impl Seen {
    pub fn name(&self) -> &String {
        let (Self::Made(name) | Self::Granted(name) | Self::Gone(name)) = self;
        name
    }
}

/// What was seen so far, and which grant each node had.
#[derive(Default)]
pub struct Log {
    grants: BTreeMap<String, String>,
    seen: Vec<Seen>,
}

impl Log {
    /// A node is there, with this grant.
    pub fn stands(&mut self, name: String, grant: &str) {
        match self.grants.insert(name.clone(), grant.to_owned()) {
            None => self.seen.push(Seen::Made(name)),
            Some(before) if before != grant => self.seen.push(Seen::Granted(name)),
            Some(_) => {}
        }
    }

    /// A node is gone.
    pub fn went(&mut self, name: String) {
        self.grants.remove(&name);
        self.seen.push(Seen::Gone(name));
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.clone()
    }

    pub fn take(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }
}

/// Numbers that follow from a seed.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A change that somebody may think of.
pub fn change(chance: &mut Chance, step: u64, db: &Value) -> (String, Value) {
    let spec = |patch: Value| json!({"spec": patch});
    let template = |patch: Value| json!({"spec": {"template": {"spec": patch}}});
    let image = |tag: String| template(json!({"image": format!("db:{tag}")}));
    let replicas = db["spec"]["replicas"].as_u64().unwrap();
    match chance.below(18) {
        0..3 => ("another image".to_owned(), image(format!("{}", step + 2))),
        3 => {
            let of_container =
                &db["spec"]["template"]["spec"]["podTemplate"]["spec"]["containers"][0]["image"];
            let set = &db["spec"]["template"]["spec"]["image"];
            (
                "the same again".to_owned(),
                template(json!({"image": if set.is_string() { set } else { of_container }})),
            )
        }
        4 => ("an image that is not there".to_owned(), image(format!("{}-nope", step + 2))),
        5 => ("the first image".to_owned(), image("1".to_owned())),
        6 => ("more nodes".to_owned(), spec(json!({"replicas": (replicas + 1 + chance.below(2)).min(8)}))),
        7 => (
            "fewer nodes".to_owned(),
            spec(json!({"replicas": replicas.saturating_sub(1 + chance.below(2)).max(1)})),
        ),
        8 => (
            "labels".to_owned(),
            json!({"spec": {"template": {"metadata": {"labels": {"step": step.to_string()}}}}}),
        ),
        9 => {
            let both = json!({"replicas": (replicas + 1).min(8), "template": {"spec": {"image": format!("db:{}", step + 2)}}});
            ("another image and more nodes".to_owned(), spec(both))
        }
        10 => ("fewer than none".to_owned(), spec(json!({"replicas": -1}))),
        11 => {
            let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "a lot"}}]);
            (
                "a quantity that is none".to_owned(),
                template(json!({"podTemplate": {"spec": {"volumes": volumes}}})),
            )
        }
        12 => {
            let claim = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}]);
            ("other claims".to_owned(), template(json!({"volumeClaimTemplates": claim})))
        }
        13 => (
            "an annotation of the pods".to_owned(),
            template(json!({"podTemplate": {"metadata": {"annotations": {"step": step.to_string()}}}})),
        ),
        14 => {
            let in_place = json!({"partition": chance.below(3), "maxUnavailable": 1 + chance.below(2)});
            let both = json!({"updateStrategy": {"type": "InPlace", "inPlace": in_place},
                "template": {"spec": {"image": format!("db:{}", step + 2)}}});
            ("another image and another partition".to_owned(), spec(both))
        }
        15 => {
            let partition = json!({"partition": chance.below(3)});
            ("another partition".to_owned(), spec(json!({"updateStrategy": {"inPlace": partition}})))
        }
        16 => {
            let to =
                if db["spec"]["updateStrategy"]["type"] == "BlueGreen" { "InPlace" } else { "BlueGreen" };
            let both = json!({"updateStrategy": {"type": to, "blueGreen": {"retireDelaySeconds": 3}},
                "template": {"spec": {"image": format!("db:{}", step + 2)}}});
            (format!("another image by {to}"), spec(both))
        }
        _ => {
            let paused = db["spec"]["paused"] != true;
            let both = json!({"paused": paused, "template": {"spec": {"image": format!("db:{}", step + 2)}}});
            (format!("another image, paused: {paused}"), spec(both))
        }
    }
}

/// The names of each wave that are of one of these actions, with when they go.
fn turns(said: &Value, actions: &[&str]) -> Vec<(String, Vec<String>)> {
    let names = |wave: &Value| -> Vec<String> {
        let nodes = wave["nodes"].as_array().unwrap().iter();
        let nodes = nodes.filter(|node| actions.contains(&node["action"].as_str().unwrap()));
        nodes.map(|node| node["name"].as_str().unwrap().to_owned()).collect()
    };
    let waves = said["waves"].as_array().unwrap().iter();
    let waves = waves.map(|wave| (wave["when"].as_str().unwrap().to_owned(), names(wave)));
    waves.filter(|(_, wave)| !wave.is_empty()).collect()
}

/// The names of each wave that are of one of these actions.
pub fn of(said: &Value, actions: &[&str]) -> Vec<Vec<String>> {
    turns(said, actions).into_iter().map(|(_, names)| names).collect()
}

/// Whether what was seen is what was said: wave by wave, in any order within one. `whole`: to the end.
pub fn follows(said: &[Vec<String>], seen: &[String], whole: bool) -> bool {
    let mut seen = seen;
    for wave in said {
        let (now, later) = seen.split_at(wave.len().min(seen.len()));
        let of_wave: BTreeSet<&String> = wave.iter().collect();
        if !now.iter().all(|name| of_wave.contains(name)) || (now.len() < wave.len() && whole) {
            return false;
        }
        seen = later;
    }
    seen.is_empty()
}

/// Whether a condition's message is this sentence, alone or followed by what is to be said about the spec's strategy.
pub fn is_said(message: &str, sentence: &str, spec: &Value) -> bool {
    let spec = serde_json::from_value(spec.clone()).expect("a spec");
    let remarks = of_strategy(&spec).into_iter().map(|remark| remark.sentence);
    let all: Vec<String> = std::iter::once(sentence.to_owned()).chain(remarks).collect();
    message == sentence || message == all.join("; ")
}

/// Whether the set serves that was said to: where none is to take over, the one that did.
pub fn serves(said: &Value, before: &Value, after: &Value, whole: bool) -> bool {
    let [was, is] = [before, after].map(|db| &db["status"]["activeSet"]);
    let takes = &said["takesOver"];
    if takes.is_null() {
        return was == is;
    }
    takes["fromSet"] == *was
        && takes["service"] == after["spec"]["service"].is_object()
        && (takes["toSet"] == *is || (!whole && was == is))
}

/// The fields of the changes above that differ between two specs: path, before, after, as JSON.
pub fn differing(before: &Value, after: &Value) -> BTreeSet<(String, Option<String>, Option<String>)> {
    let main = |spec: &Value| {
        let template = &spec["template"]["spec"];
        let container = &template["podTemplate"]["spec"]["containers"][0];
        let image = if template["image"].is_string() { &template["image"] } else { &container["image"] };
        (format!("podTemplate.spec.containers[{}].image", container["name"].as_str().unwrap()), image.clone())
    };
    let at = |pointer: &'static str, path: &str| {
        let of = |spec: &Value| spec.pointer(pointer).cloned().unwrap_or_default();
        (path.to_owned(), of(before), of(after))
    };
    let pairs = [
        (main(before).0, main(before).1, main(after).1),
        at("/replicas", "replicas"),
        at("/paused", "paused"),
        at("/updateStrategy/type", "updateStrategy.type"),
        at("/updateStrategy/inPlace/partition", "updateStrategy.inPlace.partition"),
        at("/updateStrategy/inPlace/maxUnavailable", "updateStrategy.inPlace.maxUnavailable"),
        at("/updateStrategy/blueGreen/retireDelaySeconds", "updateStrategy.blueGreen.retireDelaySeconds"),
        at("/updateStrategy/blueGreen/promotion", "updateStrategy.blueGreen.promotion"),
        at("/template/metadata/labels/step", "template.metadata.labels.step"),
        at("/template/spec/podTemplate/metadata/annotations/step", "podTemplate.metadata.annotations.step"),
    ];
    let text = |value: Value| (!value.is_null()).then(|| value.to_string());
    let differ = pairs.into_iter().filter(|(_, before, after)| before != after);
    differ.map(|(path, before, after)| (path, text(before), text(after))).collect()
}
