//! The expected end of a walk: that of a fresh fleet with its last spec.

use serde_json::{Value, json};
use windlass::api::names::place_of;

use crate::catalogue::oracles::End;
use crate::walks::hand::{FLEET, name};

/// The names of claim templates that walks use.
const CLAIMS: [&str; 2] = ["data", "wal"];

/// An end with its nodes named by ordinal, in any set, and without claims of removed nodes, which are retained on
/// purpose.
pub fn by_role(end: &End, active: &str, spec: &Value) -> End {
    let wanted: Vec<String> =
        spec["template"]["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten().map(name).collect();
    let replicas = spec["replicas"].as_i64().unwrap_or(1);
    let mut all = End::new();
    for (key, value) in end {
        let (kind, name) = key.split_once(' ').unwrap_or(("", key));
        if kind == "PersistentVolumeClaim" && !is_used(name, active, &wanted, replicas) {
            continue;
        }
        // An object without an owner.
        if kind == "Pod" && value["owned"] == false {
            continue;
        }
        let mut value = roles(value, active);
        if kind == "StatefulNode" {
            image_in_its_place(&mut value["spec"]);
            // An empty field of a sidecar means the same as an absent one, and nodes are not rewritten for that.
            if let Some(sidecar) = value["spec"]["sidecar"].as_object_mut() {
                sidecar.retain(|_, value| *value != json!({}) && *value != json!("") && *value != json!([]));
            }
        }
        if let Some(set) = value["spec"].as_object_mut().filter(|_| kind == "StatefulSet") {
            // Windlass keeps what a person sets here, until it writes the set for another reason.
            set.remove("minReadySeconds");
            set.remove("revisionHistoryLimit");
        }
        if let Some(labels) = value["labels"].as_object_mut().filter(|_| kind == "Pod") {
            // A label that a person adds to a pod is lost with the pod.
            labels.remove("by");
        }
        if kind == "PersistentVolumeClaim" {
            // A claim outlives its creator, and its other labels are not restored.
            value["labels"] = json!({"windlass.dev/node": value["labels"]["windlass.dev/node"]});
        }
        all.insert(format!("{kind} {}", role(name, active).unwrap_or_else(|| name.to_owned())), value);
    }
    all
}

/// Moves the shorthand image into the main container: the content is the same.
fn image_in_its_place(spec: &mut Value) {
    let Some(map) = spec.as_object_mut() else { return };
    let image = map.remove("image").filter(|image| image.as_str().is_some_and(|text| !text.is_empty()));
    let main =
        map.remove("mainContainer").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
    let containers = spec["podTemplate"]["spec"]["containers"].as_array_mut();
    let found = containers.and_then(|list| {
        let index = list.iter().position(|container| container["name"] == main.as_str()).unwrap_or(0);
        list.get_mut(index)
    });
    if let (Some(container), Some(image)) = (found, image) {
        container["image"] = image;
    }
}

fn is_used(claim: &str, active: &str, wanted: &[String], replicas: i64) -> bool {
    wanted.iter().any(|template| {
        let node = claim
            .strip_prefix(template.as_str())
            .and_then(|c| c.strip_prefix('-'))
            .and_then(|c| c.strip_suffix("-0"));
        let place = node.and_then(|node| place_of(FLEET, node));
        place.is_some_and(|(set, ordinal)| set == active && i64::from(ordinal) < replicas)
    })
}

/// The name of an object of the active set, by ordinal.
fn role(name: &str, active: &str) -> Option<String> {
    let place = |node: &str| {
        let (set, ordinal) = place_of(FLEET, node)?;
        (set == active).then(|| format!("{FLEET}-<serving>-{ordinal}"))
    };
    let of_pod = |pod: &str| Some(format!("{}-0", place(pod.strip_suffix("-0")?)?));
    let of_claim = |claim: &str| {
        let (template, pod) =
            CLAIMS.iter().find_map(|t| Some((t, claim.strip_prefix(t)?.strip_prefix('-')?)))?;
        Some(format!("{template}-{}", of_pod(pod)?))
    };
    place(name).or_else(|| of_pod(name)).or_else(|| of_claim(name))
}

fn roles(value: &Value, active: &str) -> Value {
    match value {
        Value::String(text) if text == active => "<serving>".into(),
        Value::String(text) => role(text, active).unwrap_or_else(|| text.clone()).into(),
        Value::Array(list) => list.iter().map(|item| roles(item, active)).collect(),
        Value::Object(map) => {
            let map: serde_json::Map<_, _> =
                map.iter().map(|(key, item)| (key.clone(), roles(item, active))).collect();
            map.into()
        }
        other => other.clone(),
    }
}
