//! Saves memory for cached objects: parts that are equal in thousands of objects are stored once, and parts that are
//! rarely read are stored as text. A pod template of 4 KB takes 70 KB once it is parsed, and a fleet of 10,000 nodes
//! has it 10,000 times.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// An interned value: stored once in this process, however many objects have it. It is freed with the last of them.
pub struct Shared<T: Pooled>(Arc<T>);

/// A type that [`Shared`] can hold. Each type has its own pool.
pub trait Pooled: Eq + Hash + Send + Sync + Sized + 'static {
    /// The pool of this type's values.
    fn pool() -> &'static Pool<Self>;
}

/// All values of one type that are in use, by the hash of their content.
pub struct Pool<T> {
    state: RandomState,
    known: Mutex<Known<T>>,
}

struct Known<T> {
    /// One value for each hash. If two values have the same hash, only the first is shared; the other is stored once
    /// for each object.
    by_hash: HashMap<u64, Weak<T>>,
    /// The number of entries at which unused ones are removed.
    sweep_at: usize,
}

/// Below this number of entries, unused ones are not removed.
const SWEEP_MIN: usize = 1_024;

impl<T: Pooled> Pool<T> {
    pub(crate) fn new() -> Self {
        let known = Known { by_hash: HashMap::new(), sweep_at: SWEEP_MIN };
        Self { state: RandomState::new(), known: Mutex::new(known) }
    }

    fn share(&self, value: T) -> Arc<T> {
        let hash = self.state.hash_one(&value);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.by_hash.get(&hash).and_then(Weak::upgrade) {
            return if *found == value { found } else { Arc::new(value) };
        }
        if known.by_hash.len() >= known.sweep_at {
            known.sweep();
        }
        let new = Arc::new(value);
        known.by_hash.insert(hash, Arc::downgrade(&new));
        new
    }
}

impl<T> Known<T> {
    /// Removes unused entries. This visits all entries, and is done each time that their number has doubled.
    fn sweep(&mut self) {
        self.by_hash.retain(|_, value| value.strong_count() > 0);
        self.by_hash.shrink_to(SWEEP_MIN);
        self.sweep_at = SWEEP_MIN.max(self.by_hash.len() * 2);
    }
}

/// Gives each type its pool.
macro_rules! pooled {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::api::interned::Pooled for $type {
            fn pool() -> &'static $crate::api::interned::Pool<Self> {
                static POOL: std::sync::LazyLock<$crate::api::interned::Pool<$type>> =
                    std::sync::LazyLock::new($crate::api::interned::Pool::new);
                &POOL
            }
        }
    )*};
}

pub(crate) use pooled;

pooled!(Value, Vec<Value>, Vec<(String, String)>, super::BuiltFor, super::PackedTexts);

impl<T: Pooled> Shared<T> {
    /// True if both are the same value in memory.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Pooled> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(T::pool().share(value))
    }
}

impl<T: Pooled> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Pooled> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Pooled + Default> Default for Shared<T> {
    fn default() -> Self {
        T::default().into()
    }
}

impl<T: Pooled + std::fmt::Debug> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Pooled> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0 == other.0
    }
}

impl<T: Pooled> Eq for Shared<T> {}

impl<T: Pooled> PartialEq<T> for Shared<T> {
    fn eq(&self, other: &T) -> bool {
        *self.0 == *other
    }
}

impl<T: Pooled + Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Pooled + Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

/// Rarely read JSON, stored as text. That takes a tenth of the memory of the parsed value.
#[derive(Clone, Eq)]
pub struct JsonText(Box<str>);

impl JsonText {
    /// The parsed value.
    #[must_use]
    pub fn value(&self) -> Value {
        // This type wrote the text, so it can be parsed.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// True if its text contains this piece: a cheap check before parsing.
    #[must_use]
    pub fn mentions(&self, piece: &str) -> bool {
        self.0.contains(piece)
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        Self(value.to_string().into_boxed_str())
    }
}

impl Default for JsonText {
    fn default() -> Self {
        Self("null".into())
    }
}

impl std::fmt::Debug for JsonText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq for JsonText {
    /// Compares the parsed values: two texts of the same value differ if the keys of their objects are in another
    /// order.
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.value() == other.value()
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{RawPlan, StatefulNodeSpec};

    #[test]
    fn nodes_with_equal_templates_share_one_copy() {
        let spec = |id: &str| {
            json!({"podTemplate": {"spec": {"containers": [{"name": "db", "image": "held:once"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "held-once"}}], "grantID": id})
        };
        let read = |id: &str| serde_json::from_value::<StatefulNodeSpec>(spec(id)).unwrap();
        let (a, b) = (read("a"), read("b"));
        assert!(a.pod_template.is_same(&b.pod_template), "the template is held twice");
        assert!(a.volume_claim_templates.is_same(&b.volume_claim_templates), "the claims are held twice");
        assert_eq!(json!(a), spec("a"), "and is written as it was read");
    }

    #[test]
    fn unreferenced_values_are_dropped_from_the_pool() {
        let pool: Pool<Value> = Pool::new();
        let kept = pool.share(json!({"kept": true}));
        for n in 0..10 * SWEEP_MIN {
            drop(pool.share(json!(n)));
        }
        let known = pool.known.lock().unwrap();
        let count = known.by_hash.len();
        assert!(count <= SWEEP_MIN + 1, "{count} are known");
        drop(known);
        assert!(Arc::ptr_eq(&pool.share(json!({"kept": true})), &kept));
    }

    #[test]
    fn plan_is_stored_as_text_and_round_trips() {
        let plan = json!({"id": "x", "tasks": [{"type": "later", "params": {"z": 1, "a": 2.5}}]});
        let raw: RawPlan = serde_json::from_value(plan.clone()).unwrap();
        assert_eq!(json!(raw), plan);
        assert_eq!(raw.id(), Some("x".into()));
        let other_order =
            JsonText(r#"{"tasks":[{"params":{"a":2.5,"z":1},"type":"later"}],"id":"x"}"#.into());
        assert_eq!(JsonText::from(plan), other_order);
    }
}
