//! A bounded map that does not store its keys.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of entries at which the map is emptied. It bounds the memory, and is not reached in practice.
const MAX_ENTRIES: usize = 200_000;

/// A bounded map behind a lock. It stores 128 bits of each key, from two hash functions that this process chose at
/// random, and not the key itself: most keys are UIDs of nodes, and there may be dozens of entries for each node.
pub struct Remembered<K: ?Sized, V> {
    hashers: [RandomState; 2],
    map: Mutex<BTreeMap<Digest, V>>,
    key: PhantomData<fn(&K)>,
}

/// The hash of a key's subject, and that of the whole key. The entries of a subject are next to each other.
type Digest = (u64, u64);

/// A key, whose entries can be removed together with all others of the same subject.
pub trait Subject: Hash {
    /// What the entry is about: the UID of an object, if the key has one.
    fn subject(&self) -> &str;
}

/// A UID, or a UID and a part of the object with a slash between them. UIDs have no slash.
impl Subject for str {
    fn subject(&self) -> &str {
        self.split_once('/').map_or(self, |(uid, _)| uid)
    }
}

/// A UID and a part of the object.
impl<T: Hash> Subject for (String, T) {
    fn subject(&self) -> &str {
        self.0.subject()
    }
}

impl<K: ?Sized, V> Default for Remembered<K, V> {
    fn default() -> Self {
        let hashers = [RandomState::new(), RandomState::new()];
        Self { hashers, map: Mutex::default(), key: PhantomData }
    }
}

impl<K: Subject + ?Sized, V: Clone> Remembered<K, V> {
    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.lock().get(&self.digest(key)).cloned()
    }

    /// Sets the value of a key.
    pub fn put(&self, key: &K, value: V) {
        let digest = self.digest(key);
        let mut map = self.lock();
        if map.len() >= MAX_ENTRIES {
            map.clear();
        }
        map.insert(digest, value);
    }

    /// Removes a key. Returns its value.
    pub fn take(&self, key: &K) -> Option<V> {
        self.lock().remove(&self.digest(key))
    }

    /// Removes all entries about this subject.
    pub fn forget(&self, subject: &str) {
        let about = self.hashers[0].hash_one(subject);
        let mut map = self.lock();
        let range = map.range((about, u64::MIN)..=(about, u64::MAX));
        let digests: Vec<Digest> = range.map(|(digest, _)| *digest).collect();
        for digest in digests {
            map.remove(&digest);
        }
    }

    /// The number of entries.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.lock().len()
    }

    fn digest(&self, key: &K) -> Digest {
        let [first, second] = &self.hashers;
        (first.hash_one(key.subject()), second.hash_one(key))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Digest, V>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_per_key_until_taken() {
        let known: Remembered<str, u32> = Remembered::default();
        for (key, value) in [("a", 1), ("b", 2), ("a", 3)] {
            known.put(key, value);
        }
        assert_eq!((known.get("a"), known.get("b"), known.get("")), (Some(3), Some(2), None));
        assert_eq!((known.take("a"), known.take("a"), known.get("b")), (Some(3), None, Some(2)));
    }

    #[test]
    fn forget_drops_all_entries_of_one_object_only() {
        let known: Remembered<(String, u32), u32> = Remembered::default();
        let key = |uid: &str, part| (uid.to_owned(), part);
        for (value, key) in [key("a", 1), key("a", 2), key("a/revision", 1), key("b", 1)].iter().enumerate() {
            known.put(key, value as u32);
        }
        known.forget("a");
        assert_eq!((known.get(&key("a", 1)), known.get(&key("b", 1)), known.size()), (None, Some(3), 1));
        let known: Remembered<str, u32> = Remembered::default();
        for key in ["a", "a/revision", "ab"] {
            known.put(key, 0);
        }
        known.forget("a");
        assert_eq!((known.get("ab"), known.size()), (Some(0), 1));
    }

    #[test]
    fn full_map_is_cleared_before_the_next_insert() {
        let known: Remembered<(String, usize), usize> = Remembered::default();
        let key = |part| ("uid".to_owned(), part);
        for part in 0..=MAX_ENTRIES {
            known.put(&key(part), part);
        }
        assert_eq!((known.get(&key(0)), known.get(&key(MAX_ENTRIES))), (None, Some(MAX_ENTRIES)));
    }
}
