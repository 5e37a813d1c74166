//! The fleet, its nodes and their pods as last observed, and queries on them for the scenario and the picture. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::report::{self, FleetReport};
use windlass_kube_port::observed::Observed;

/// A fleet and its objects.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The fleet; null before it exists.
    pub fleet: Value,
    /// Its nodes, by ordinal.
    pub nodes: BTreeMap<(u64, String), Value>,
    /// All pods, by name.
    pub pods: BTreeMap<String, Value>,
    /// The most nodes without a Ready pod at once, since counting began.
    pub most_down: usize,
    /// True while nodes without a Ready pod are counted.
    pub counting: bool,
    /// Every pod ever observed, by UID.
    pub pods_ever: BTreeSet<String>,
}

/// The watch that an object came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sort {
    Fleet,
    Node,
    Pod,
}

impl Seen {
    /// Stores an object; `None` removes it.
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

    /// True if the fleet runs this image and is up to date.
    pub fn is_applied(&self, image: &str) -> bool {
        let conditions = self.fleet["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let applied = conditions.iter().any(|c| c["type"] == "UpToDate" && c["status"] == "True");
        let settled = self.fleet["status"]["observedGeneration"] == self.fleet["metadata"]["generation"];
        applied && settled && self.at(image) == self.nodes.len() && self.phase() == "Ready"
    }

    /// The number of ready nodes with this image.
    pub fn at(&self, image: &str) -> usize {
        let serves = |((_, name), node): &(&(u64, String), &Value)| {
            node["status"]["currentImage"] == image && self.pod(name).is_some_and(is_ready)
        };
        self.nodes.iter().filter(serves).count()
    }

    /// The nodes that cannot run the granted template, each with the reason.
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

    /// The fleet's report; `None` before it exists.
    pub fn report(&self, now: DateTime<Utc>) -> Option<FleetReport> {
        if self.fleet.is_null() {
            return None;
        }
        let pods = self.pods.iter().map(|(name, pod)| (name.clone(), Arc::new(Observed::read(pod))));
        let seen = report::Seen {
            fleet: Arc::new(Observed::read(&self.fleet)),
            nodes: self.nodes.values().map(|node| Arc::new(Observed::read(node))).collect(),
            pods: pods.collect(),
            has_pods: true,
            unread: Vec::new(),
        };
        Some(FleetReport::of(&seen, now))
    }
}

/// Why a node cannot run the granted template.
pub fn problem(node: &Value) -> String {
    let problem = &node["status"]["problem"];
    format!("{}: {}", text(&problem["reason"]), text(&problem["message"]))
}

/// A string, or the empty one.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    ready && pod["metadata"]["deletionTimestamp"].is_null()
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
