//! A watch cache of one kind that is never older than our own last write: watch events and the responses to our own
//! writes go into the same map, and the higher resourceVersion wins.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

use crate::index::Index;
use crate::raw::Sent;
use windlass_core::observed::{Key, Meta, Observed};

struct Inner<T> {
    objects: BTreeMap<Key, Arc<T>>,
    /// The same objects, by what they belong to.
    index: Index<T>,
    /// UIDs of objects that our own requests found deleted, until a watch or a relist confirms that.
    gone: HashSet<String>,
    /// Deletions that the watch reported.
    past: Past,
    /// What a running relist has listed so far.
    relist: Option<Relist>,
    ready: bool,
    /// The number of changes.
    changes: u64,
}

impl<T: Observed> Inner<T> {
    fn put(&mut self, key: Key, object: T) {
        let object = Arc::new(object);
        self.changes += 1;
        let old = self.objects.insert(key, object.clone());
        self.index.replace(old.as_ref(), Some(&object), self.changes);
    }

    /// True if an object with this metadata is newer than the cached one. A running relist counts it as listed.
    fn admits(&mut self, meta: &Meta) -> bool {
        let key = meta.key();
        if self.past.is_past(meta) {
            return false;
        }
        let leaving = self.gone.contains(&meta.uid);
        if let Some(relist) = self.relist.as_mut() {
            relist.keys.insert(key.clone());
            if leaving {
                relist.still_leaving.insert(meta.uid.clone());
            }
        }
        if leaving {
            return false;
        }
        let Some(known) = self.objects.get(&key).map(|known| known.meta()) else { return true };
        // An older object of the same name cannot come back: the newer one has the higher version.
        if known.uid == meta.uid {
            known.version() < meta.version()
        } else {
            known.version() <= meta.version()
        }
    }

    fn forget(&mut self, last: &Meta) {
        let (key, uid) = (&last.key(), last.uid.as_str());
        self.gone.remove(uid);
        self.changes += 1;
        self.past.remember(uid, last.version());
        if self.objects.get(key).is_some_and(|known| known.meta().uid == uid) {
            self.take(key);
        }
    }

    fn take(&mut self, key: &Key) {
        self.changes += 1;
        let old = self.objects.remove(key);
        self.index.replace(old.as_ref(), None, self.changes);
    }
}

/// How many reported deletions are remembered.
const PAST_LIMIT: usize = 20_000;

/// The last deletions that a watch reported, with their resourceVersions: the response to a write of ours may arrive
/// after the deletion event, and would bring the object back for good.
#[derive(Default)]
struct Past {
    versions: HashMap<Arc<str>, u64>,
    order: VecDeque<Arc<str>>,
}

impl Past {
    fn remember(&mut self, uid: &str, version: u64) {
        if let Some(known) = self.versions.get_mut(uid) {
            *known = version;
            return;
        }
        let uid: Arc<str> = uid.into();
        self.versions.insert(uid.clone(), version);
        self.order.push_back(uid);
        if self.order.len() > PAST_LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.versions.remove(&oldest);
        }
    }

    /// True if this version is from before the object's deletion. An object that only left the watch's selector may
    /// come back.
    fn is_past(&self, meta: &Meta) -> bool {
        self.versions.get(meta.uid.as_str()).is_some_and(|gone_at| meta.version() < *gone_at)
    }
}

#[derive(Default)]
struct Relist {
    keys: HashSet<Key>,
    /// The UIDs of `Inner::gone` that the list still contained: their deletion is yet to be reported.
    still_leaving: HashSet<String>,
}

/// The objects of one kind, as last seen by a watch or as last written by us.
pub struct Cache<T> {
    inner: RwLock<Inner<T>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        let inner = Inner {
            objects: BTreeMap::new(),
            index: Index::default(),
            gone: HashSet::new(),
            past: Past::default(),
            relist: None,
            ready: false,
            changes: 0,
        };
        Self { inner: RwLock::new(inner) }
    }
}

impl<T: Observed> Cache<T> {
    /// The object with this key.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.read().objects.get(key).cloned()
    }

    /// The objects of a namespace for which `wanted` is true, sorted by name.
    #[must_use]
    pub fn list(&self, namespace: &str, wanted: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let from = Key::new(namespace, "");
        let inner = self.read();
        let range = inner.objects.range(from..).take_while(|(key, _)| key.namespace == namespace);
        range.filter(|(_, object)| wanted(object)).map(|(_, object)| object.clone()).collect()
    }

    /// The objects of a namespace that belong to this group ([`Observed::groups`]), sorted by name.
    #[must_use]
    pub fn group(&self, namespace: &str, group: &str) -> Vec<Arc<T>> {
        self.read().index.members(&Key::new(namespace, group))
    }

    /// The number of objects of a namespace that belong to this group.
    #[must_use]
    pub fn group_size(&self, namespace: &str, group: &str) -> usize {
        self.read().index.count(&Key::new(namespace, group))
    }

    /// Two numbers. At least one of them differs after a change of an object of this group, and after any object was
    /// added, removed, or moved to another group.
    #[must_use]
    pub fn group_changes(&self, namespace: &str, group: &str) -> (u64, u64) {
        self.read().index.changes(&Key::new(namespace, group))
    }

    /// The objects of all namespaces for which `wanted` is true.
    #[must_use]
    pub fn list_all(&self, wanted: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        self.read().objects.values().filter(|object| wanted(object)).cloned().collect()
    }

    /// A number that changes with each change of any object.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.read().changes
    }

    /// True if the first list is complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.read().ready
    }

    /// Parses an object as the API server sent it, of which the metadata is already parsed. If the cached object has
    /// the same generation, the parts that cannot have changed since are taken from it.
    #[must_use]
    pub fn read_object(&self, object: &impl Sent, meta: Meta) -> T {
        let known = self.get(&meta.key()).filter(|known| known.meta().uid == meta.uid);
        match known.filter(|known| known.meta().generation == meta.generation) {
            Some(known) => T::after(object, meta, &known),
            None => T::of(object, meta),
        }
    }

    /// Stores an object from a watch or a response, unless the cached one is newer. Returns true if anything changed
    /// that a decision may depend on.
    pub fn observe(&self, mut object: T) -> bool {
        let mut inner = self.write();
        if !inner.admits(object.meta()) {
            return false;
        }
        let key = object.meta().key();
        let is_news = inner.objects.get(&key).is_none_or(|known| !object.content_equals(known));
        inner.put(key, object);
        is_news
    }

    /// Like [`Self::observe`], for an object as it was sent, which is parsed only if it is newer than the cached one.
    pub fn take_in(&self, object: &impl Sent, meta: &Meta) -> bool {
        if !self.write().admits(meta) {
            return false;
        }
        // Parsed without the lock.
        self.observe(self.read_object(object, meta.clone()))
    }

    /// Removes an object whose deletion a watch reported. `last` is the metadata of its last version.
    pub fn forget(&self, last: &Meta) {
        self.write().forget(last);
    }

    /// Removes an object that a response shows without the labels that the watch selects by, unless the cached one is
    /// newer. Returns true if the object was cached.
    pub fn left(&self, now: &Meta) -> bool {
        let mut inner = self.write();
        let known = inner.objects.get(&now.key()).map(|known| known.meta()).filter(|m| m.uid == now.uid);
        let is_left = known.is_some_and(|known| known.version() <= now.version());
        if is_left {
            inner.forget(now);
        }
        is_left
    }

    /// Removes an object that our own request has deleted, or has found to be gone, before the watch reports it.
    pub fn deleted(&self, key: &Key, uid: &str) {
        let mut inner = self.write();
        if inner.objects.get(key).is_some_and(|known| known.meta().uid == uid) {
            inner.take(key);
            inner.gone.insert(uid.to_owned());
        }
    }

    /// Starts a relist.
    pub fn begin_relist(&self) {
        self.write().relist = Some(Relist::default());
    }

    /// Completes a relist: objects that it did not list are gone, except those that we wrote while it ran. Returns the
    /// keys of the objects that are gone.
    pub fn end_relist(&self) -> Vec<Key> {
        let mut inner = self.write();
        let relist = inner.relist.take().unwrap_or_default();
        let lost: Vec<Key> =
            inner.objects.keys().filter(|key| !relist.keys.contains(*key)).cloned().collect();
        for key in &lost {
            inner.take(key);
        }
        inner.changes += 1;
        inner.gone = relist.still_leaving;
        inner.ready = true;
        lost
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner<T>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Inner<T>> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}
