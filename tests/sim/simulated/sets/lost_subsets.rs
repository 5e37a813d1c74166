//! Subsets of the fields that statuses have at a moment: how they are drawn, and their removal.

use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};
use windlass_sim::Random;

use super::world::{FLEET, NODE, World};

/// The objects whose statuses lose fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Of {
    Fleet,
    /// One of the nodes.
    Node,
    /// The fleet and one of its nodes.
    Both,
    /// The fleet and all of its nodes.
    Every,
}

/// The share of the fields that each of these objects loses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    One,
    Two,
    /// Each field of a field, or item of a list, with a probability of 1/8.
    Nested,
    /// Each field of the status with a probability of 1/2.
    Half,
    AllButOne,
    All,
}

pub const OF: [Of; 4] = [Of::Fleet, Of::Node, Of::Both, Of::Every];

pub const SHARES: [Share; 6] =
    [Share::One, Share::Half, Share::Nested, Share::All, Share::Two, Share::AllButOne];

/// A loss: how its fields are drawn, or their names.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    Drawn(Of, Share, u64),
    /// Such as `db/plan.tasks` and `db-0/history.0`.
    Named(Vec<String>),
}

impl Loss {
    /// The word that replays it.
    pub fn name(&self) -> String {
        match self {
            Self::Drawn(of, share, seed) => format!("{of:?}:{share:?}:{seed}"),
            Self::Named(names) => names.join(","),
        }
    }

    pub fn of(name: &str) -> Option<Self> {
        let words: Vec<&str> = name.split(':').collect();
        let [of, share, seed] = words[..] else {
            return Some(Self::Named(name.split(',').map(str::to_owned).collect()));
        };
        Some(Self::Drawn(
            OF.into_iter().find(|o| format!("{o:?}") == of)?,
            SHARES.into_iter().find(|s| format!("{s:?}") == share)?,
            seed.parse().ok()?,
        ))
    }

    fn drawn_from(&self, objects: &[Object]) -> Vec<String> {
        let (of, share, seed) = match self {
            Self::Named(names) => return names.clone(),
            Self::Drawn(of, share, seed) => (*of, *share, *seed),
        };
        let mut random = Random::new(seed);
        let (fleets, nodes): (Vec<_>, Vec<_>) = objects.iter().partition(|o| o.kind == FLEET);
        let node = any_of(&nodes, &mut random).copied();
        let chosen: Vec<&Object> = match of {
            // A lone node has no fleet.
            Of::Fleet if !fleets.is_empty() => fleets,
            Of::Fleet | Of::Node => node.into_iter().collect(),
            Of::Both => fleets.into_iter().chain(node).collect(),
            Of::Every => objects.iter().collect(),
        };
        chosen.into_iter().flat_map(|object| object.drawn(share, &mut random)).collect()
    }
}

type Path = Vec<String>;

/// An object with a status.
struct Object {
    kind: (&'static str, &'static str),
    name: String,
    status: Value,
}

impl Object {
    fn all(w: &World) -> Vec<Self> {
        let of = |kind, name: String| Self { kind, status: w.get(kind, &name)["status"].clone(), name };
        let fleets = w.names(FLEET).into_iter().map(|name| of(FLEET, name));
        let all = fleets.chain(w.names(NODE).into_iter().map(|name| of(NODE, name)));
        all.filter(|object| object.status.is_object()).collect()
    }

    fn drawn(&self, share: Share, random: &mut Random) -> Vec<String> {
        let (own, nested): (Vec<_>, Vec<_>) = paths(&self.status).into_iter().partition(|p| p.len() == 1);
        let one = |random: &mut Random| {
            // Most fields are nested: those of the status would hardly ever be drawn.
            let nested = any_of(&nested, random).filter(|_| random.next_u64().is_multiple_of(2)).cloned();
            nested.or_else(|| any_of(&own, random).cloned())
        };
        let each = |of: &[Path], chance: u64, random: &mut Random| {
            of.iter().filter(|_| random.next_u64().is_multiple_of(chance)).cloned().collect()
        };
        let drawn: Vec<Path> = match share {
            Share::One => one(random).into_iter().collect(),
            Share::Two => one(random).into_iter().chain(one(random)).collect(),
            Share::Nested => each(&nested, 8, random),
            Share::Half => each(&own, 2, random),
            Share::AllButOne => {
                let kept = any_of(&own, random).cloned();
                own.into_iter().filter(|path| Some(path) != kept.as_ref()).collect()
            }
            Share::All => own,
        };
        drawn.iter().map(|path| format!("{}/{}", self.name, path.join("."))).collect()
    }

    /// The status without these of the fields.
    fn without(&self, lost: &[&str]) -> Value {
        let mut status = self.status.clone();
        for path in lost {
            remove(&mut status, &path.split('.').collect::<Vec<_>>());
        }
        tidy(&mut status);
        status
    }

    /// Patches the status to this one; true if the API server accepts it.
    async fn write(&self, w: &World, status: &Value, params: &PatchParams) -> bool {
        let patch = json!({"status": merge(&self.status, status)});
        w.api(self.kind).patch_status(&self.name, params, &Patch::Merge(&patch)).await.is_ok()
    }

    /// Removes the fields in one write; returns those that are gone. Fields that the API server requires stay.
    async fn lose(&self, w: &World, lost: &[&str]) -> Vec<String> {
        let mut gone: Vec<&str> = lost.to_vec();
        let params = PatchParams::default();
        if self.without(&gone) == self.status {
            return Vec::new();
        }
        if !self.write(w, &self.without(&gone), &params).await {
            gone.clear();
            for path in lost {
                let alone = self.without(&[path]);
                if self.write(w, &alone, &PatchParams { dry_run: true, ..params.clone() }).await {
                    gone.push(path);
                }
            }
            if !self.write(w, &self.without(&gone), &params).await {
                return Vec::new();
            }
        }
        gone.iter().map(|path| format!("{}/{path}", self.name)).collect()
    }
}

fn any_of<'a, T>(list: &'a [T], random: &mut Random) -> Option<&'a T> {
    let last = list.len().checked_sub(1)?;
    list.get(random.between(0, last as u64) as usize)
}

/// The paths of all fields and items in a value, at any depth.
fn paths(value: &Value) -> Vec<Path> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    let mut found = Vec::new();
    for (key, value) in inner {
        found.push(vec![key.clone()]);
        found.extend(paths(value).into_iter().map(|path| [vec![key.clone()], path].concat()));
    }
    found
}

fn remove(value: &mut Value, path: &[&str]) {
    let Some((last, before)) = path.split_last() else { return };
    let pointer = before.iter().fold(String::new(), |pointer, key| pointer + "/" + key);
    match value.pointer_mut(&pointer) {
        Some(Value::Object(map)) => drop(map.remove(*last)),
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
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(tidy),
        Value::Array(list) => {
            list.retain(|item| !item.is_null());
            list.iter_mut().for_each(tidy);
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

/// Removes the fields, in one write per object; returns those that are gone. If the API server requires all that were
/// drawn, others are drawn.
pub async fn lose(w: &World, loss: &Loss) -> Vec<String> {
    let mut loss = loss.clone();
    for _ in 0..20 {
        let objects = Object::all(w);
        let drawn = loss.drawn_from(&objects);
        let mut gone = Vec::new();
        for object in &objects {
            let own = |name: &&String| name.split_once('/').is_some_and(|(of, _)| of == object.name);
            let lost: Vec<&str> =
                drawn.iter().filter(own).filter_map(|n| Some(n.split_once('/')?.1)).collect();
            gone.extend(object.lose(w, &lost).await);
        }
        match &mut loss {
            Loss::Drawn(_, _, seed) if gone.is_empty() => *seed = seed.wrapping_add(1),
            _ => return gone,
        }
    }
    Vec::new()
}
