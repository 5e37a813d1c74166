//! A bounded map that does not store its keys.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of entries at which the map is emptied. It bounds the memory, and is not reached in practice.
const MAX_ENTRIES: usize = 200_000;

/// A bounded map behind a lock. It stores 128 bits of each key, from two hash functions that this process chose at
/// random, and not the key itself: most keys are UIDs of nodes, and there may be dozens of entries for each node.
pub struct Remembered<K: ?Sized, V> {
    hashers: [RandomState; 2],
    map: Mutex<HashMap<Digest, V>>,
    key: PhantomData<fn(&K)>,
}

/// The two hashes of a key.
type Digest = (u64, u64);

impl<K: ?Sized, V> Default for Remembered<K, V> {
    fn default() -> Self {
        let hashers = [RandomState::new(), RandomState::new()];
        Self { hashers, map: Mutex::default(), key: PhantomData }
    }
}

impl<K: Hash + ?Sized, V: Clone> Remembered<K, V> {
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

    fn digest(&self, key: &K) -> Digest {
        let [first, second] = &self.hashers;
        (first.hash_one(key), second.hash_one(key))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, V>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_there_until_it_is_taken_and_under_its_own_key_alone() {
        let known: Remembered<str, u32> = Remembered::default();
        for (key, value) in [("a", 1), ("b", 2), ("a", 3)] {
            known.put(key, value);
        }
        assert_eq!((known.get("a"), known.get("b"), known.get("")), (Some(3), Some(2), None));
        assert_eq!((known.take("a"), known.take("a"), known.get("b")), (Some(3), None, Some(2)));
    }

    #[test]
    fn a_full_map_is_emptied_before_one_more_is_taken_in() {
        let known: Remembered<u64, u64> = Remembered::default();
        let most = u64::try_from(MAX_ENTRIES).unwrap_or(u64::MAX);
        for key in 0..=most {
            known.put(&key, key);
        }
        assert_eq!((known.get(&0), known.get(&most)), (None, Some(most)));
    }
}
