//! What is known of the fleet, its nodes and their pods: the objects as they were last seen in the cluster, and
//! the questions that the story and the picture ask of them. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

/// A fleet and what belongs to it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The fleet; null before it was made.
    pub fleet: Value,
    /// Its nodes, by their ordinals.
    pub nodes: BTreeMap<(u64, String), Value>,
    /// All pods, by name.
    pub pods: BTreeMap<String, Value>,
    /// The most nodes without a Ready pod that were seen at once, since counting began.
    pub most_down: usize,
    /// Whether nodes without a Ready pod are counted.
    pub counting: bool,
    /// Every pod that there ever was, by UID.
    pub pods_ever: BTreeSet<String>,
}

/// How a node is doing.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Standing {
    /// It cannot run what it was granted.
    Failed,
    /// On its way.
    Moving,
    /// Serves what is wanted, and not yet for `minReadySeconds`.
    Settling,
    /// Serves what was before.
    Before,
    /// Serves what is wanted.
    Done,
}

/// Which of the three watches an object came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sort {
    /// The fleet.
    Fleet,
    /// A node.
    Node,
    /// A pod.
    Pod,
}

impl Seen {
    /// Takes an object as it now is; none: it is gone.
    pub fn take(&mut self, sort: Sort, name: &str, object: Option<Value>) {
        match sort {
            Sort::Fleet => self.fleet = object.unwrap_or_default(),
            Sort::Node => put(&mut self.nodes, (ordinal(name), name.to_owned()), object),
            Sort::Pod => {
                if let Some(pod) = &object {
                    self.pods_ever.insert(text(&pod["metadata"]["uid"]).to_owned());
                }
                put(&mut self.pods, name.to_owned(), object);
            }
        }
        if self.counting {
            let down = self.nodes.keys().filter(|(_, name)| !self.pod(name).is_some_and(is_ready)).count();
            self.most_down = self.most_down.max(down);
        }
    }

    /// The fleet's phase.
    pub fn phase(&self) -> &str {
        text(&self.fleet["status"]["phase"])
    }

    /// The ID of the fleet's plan.
    pub fn plan_id(&self) -> &str {
        text(&self.fleet["status"]["plan"]["id"])
    }

    /// Whether the fleet says that it runs this image, and nothing is left to do.
    pub fn is_applied(&self, image: &str) -> bool {
        let conditions = self.fleet["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let applied = conditions.iter().any(|c| c["type"] == "UpToDate" && c["status"] == "True");
        let settled = self.fleet["status"]["observedGeneration"] == self.fleet["metadata"]["generation"];
        applied && settled && self.at(image) == self.nodes.len() && self.phase() == "Ready"
    }

    /// How many nodes serve at an image.
    pub fn at(&self, image: &str) -> usize {
        let serves = |((_, name), node): &(&(u64, String), &Value)| {
            node["status"]["currentImage"] == image && self.pod(name).is_some_and(is_ready)
        };
        self.nodes.iter().filter(serves).count()
    }

    /// The nodes that cannot run what they were granted, each with the reason.
    pub fn failed(&self) -> Vec<(&str, String)> {
        let failed = self.nodes.iter().filter(|(_, node)| node["status"]["phase"] == "Failed");
        failed.map(|((_, name), node)| (name.as_str(), problem(node))).collect()
    }

    /// The UID of each node's pod.
    pub fn pod_uids(&self) -> BTreeMap<String, String> {
        let uid = |pod: &Value| text(&pod["metadata"]["uid"]).to_owned();
        self.pods.iter().map(|(name, pod)| (name.clone(), uid(pod))).collect()
    }

    /// A node's pod.
    pub fn pod(&self, node: &str) -> Option<&Value> {
        self.pods.get(&format!("{node}-0"))
    }

    /// How a node is doing at this time.
    pub fn standing(&self, name: &str, node: &Value, now: DateTime<Utc>) -> Standing {
        let wanted = &self.fleet["spec"]["template"]["spec"]["image"];
        match self.pod(name) {
            _ if node["status"]["phase"] == "Failed" => Standing::Failed,
            Some(pod) if is_ready(pod) && pod["spec"]["containers"][0]["image"] == *wanted => {
                if self.free_in(pod, now).is_some() { Standing::Settling } else { Standing::Done }
            }
            Some(pod) if is_ready(pod) => Standing::Before,
            _ => Standing::Moving,
        }
    }

    /// In how many seconds a Ready pod has been so for `minReadySeconds`; none where it has.
    pub fn free_in(&self, pod: &Value, now: DateTime<Utc>) -> Option<i64> {
        let soon = TimeDelta::seconds(self.fleet["spec"]["minReadySeconds"].as_i64().unwrap_or_default());
        let left = ready_since(pod)? + soon - now;
        (left > TimeDelta::zero()).then(|| (left.num_milliseconds() + 999) / 1000)
    }
}

/// Why a node cannot run what it was granted.
pub fn problem(node: &Value) -> String {
    let problem = &node["status"]["problem"];
    format!("{}: {}", text(&problem["reason"]), text(&problem["message"]))
}

/// A text, or none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a pod serves.
pub fn is_ready(pod: &Value) -> bool {
    ready_since(pod).is_some() && pod["metadata"]["deletionTimestamp"].is_null()
}

fn ready_since(pod: &Value) -> Option<DateTime<Utc>> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|c| c["type"] == "Ready" && c["status"] == "True")?;
    text(&ready["lastTransitionTime"]).parse().ok()
}

fn ordinal(name: &str) -> u64 {
    name.rsplit('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}

fn put<K: Ord>(map: &mut BTreeMap<K, Value>, key: K, object: Option<Value>) {
    match object {
        Some(object) => drop(map.insert(key, object)),
        None => drop(map.remove(&key)),
    }
}
