//! The losable fields of a status: the paths of all fields at that moment, and their removal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};
use windlass_sim::{After, Before, FaultPlan, RequestInfo};

use super::world::{NODE, World};

const FLEET: (&str, &str) = ("windlass.dev/v1alpha1", "NodeDeployment");

/// The lost fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lost {
    One(usize),
    Two(usize, usize),
    /// A random subset, with this seed.
    Some(u64),
    /// This field of the fleet.
    Named(&'static str),
}

impl Lost {
    pub fn name(&self) -> String {
        match self {
            Self::One(one) => format!("one:{one}"),
            Self::Two(one, two) => format!("two:{one}:{two}"),
            Self::Some(seed) => format!("some:{seed}"),
            Self::Named(path) => format!("named:{path}"),
        }
    }

    pub fn of(name: &str) -> Option<Self> {
        let mut words = name.split(':');
        let kind = words.next()?;
        if kind == "named" {
            return Some(Self::Named(words.next()?.to_owned().leak()));
        }
        let mut number = || words.next()?.parse::<usize>().ok();
        Some(match kind {
            "one" => Self::One(number()?),
            "two" => Self::Two(number()?, number()?),
            _ => Self::Some(number()? as u64),
        })
    }

    fn takes(self, index: usize, all: &[(usize, Vec<String>)]) -> bool {
        let (of, path) = &all[index];
        let all = all.len();
        match self {
            Self::Named(named) => *of == 0 && path.join(".") == named,
            Self::One(one) => index == one % all,
            Self::Two(one, two) => index == one % all || index == two % all,
            Self::Some(seed) => {
                // One in eight, half, or all.
                let share = [12, 50, 100][(seed % 3) as usize];
                let drawn = seed.wrapping_add(1).wrapping_mul(6_364_136_223_846_793_005);
                let drawn = drawn.wrapping_add(index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                (drawn >> 33) % 100 < share
            }
        }
    }
}

/// Blocks the operator's writes after a number of them.
#[derive(Clone)]
pub struct Halt {
    after: usize,
    seen: Arc<AtomicUsize>,
    reached: Arc<AtomicBool>,
}

impl Halt {
    pub fn after(after: usize) -> Self {
        Self { after, seen: Arc::default(), reached: Arc::default() }
    }

    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst)
    }
}

fn is_of_operator(request: &RequestInfo) -> bool {
    let beside = request.resource.starts_with("events") || request.resource.starts_with("leases");
    request.user_agent == "windlass" && request.write_number > 0 && !beside
}

impl FaultPlan for Halt {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let late = self.is_reached() && is_of_operator(request);
        if late { Before::Delay(Duration::from_millis(100)) } else { Before::Pass }
    }

    fn after(&mut self, request: &RequestInfo, code: u16) -> After {
        if is_of_operator(request) && code < 300 && self.seen.fetch_add(1, Ordering::SeqCst) + 1 >= self.after
        {
            self.reached.store(true, Ordering::SeqCst);
        }
        After::Pass
    }
}

fn paths(value: &Value, at: &[String], depth: usize, found: &mut Vec<Vec<String>>) {
    let mut each = |key: String, value: &Value| {
        let mut path = at.to_vec();
        path.push(key);
        if depth > 0 {
            paths(value, &path, depth - 1, found);
        }
        found.push(path);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| each(key.clone(), value)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| each(index.to_string(), value));
        }
        _ => {}
    }
}

fn remove(value: &mut Value, path: &[String]) {
    let Some((last, before)) = path.split_last() else { return };
    let pointer = before.iter().fold(String::new(), |pointer, key| pointer + "/" + key);
    match value.pointer_mut(&pointer) {
        Some(Value::Object(map)) => drop(map.remove(last)),
        // Removing it would shift the following items.
        Some(Value::Array(list)) => {
            if let Some(item) = last.parse::<usize>().ok().and_then(|index| list.get_mut(index)) {
                *item = Value::Null;
            }
        }
        _ => {}
    }
}

/// Removes the placeholders of removed list items.
fn tidied(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(tidied),
        Value::Array(list) => {
            list.retain(|item| !item.is_null());
            list.iter_mut().for_each(tidied);
        }
        _ => {}
    }
}

/// The merge patch between two values.
fn merge(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch: Map<String, Value> =
        from.keys().filter(|k| !to.contains_key(*k)).map(|k| (k.clone(), Value::Null)).collect();
    for (key, value) in to.iter().filter(|(key, value)| from.get(*key) != Some(*value)) {
        patch.insert(key.clone(), merge(&from[key], value));
    }
    Value::Object(patch)
}

/// Removes the fields, in one write per object; returns them. Fields that the API server requires stay.
pub async fn lose(w: &World, lost: &Lost) -> Vec<String> {
    let nodes = w.names(NODE);
    let of_nodes = nodes.iter().map(|name| (NODE, name.clone()));
    let objects: Vec<_> = [(FLEET, "db".to_owned())].into_iter().chain(of_nodes).collect();
    let mut all = Vec::new();
    for (index, (kind, name)) in objects.iter().enumerate() {
        let mut found = Vec::new();
        // For most nodes, nested fields are left out: there are many, and similar.
        let depth = if index == 0 { 3 } else { usize::from(index == 1) };
        paths(&w.get(*kind, name)["status"], &[], depth, &mut found);
        found.sort();
        all.extend(found.into_iter().map(|path| (index, path)));
    }
    let taken: Vec<_> = (0..all.len()).filter(|i| lost.takes(*i, &all)).map(|i| all[i].clone()).collect();
    let mut said = Vec::new();
    for (index, (kind, name)) in objects.iter().enumerate() {
        let before = w.get(*kind, name)["status"].clone();
        let mut after = before.clone();
        for (_, path) in taken.iter().filter(|(of, _)| of == &index) {
            remove(&mut after, path);
            said.push(format!("{name}/{}", path.join(".")));
        }
        tidied(&mut after);
        if before.is_null() || before == after {
            continue;
        }
        let patch = json!({"status": merge(&before, &after)});
        let done = w.api(*kind).patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        if let Err(error) = done {
            said.push(format!("({name}: {error})"));
        }
    }
    said
}
