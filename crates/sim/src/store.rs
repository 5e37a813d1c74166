//! The objects, the version counter, and the history for watches. No API rules.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use bytes::Bytes;
use serde_json::Value;

use super::kinds::Shelf;

/// A namespace (empty for a cluster's own objects) and a name.
pub(crate) type Key = (String, String);

/// A version of an object, as stored and sent.
#[derive(Debug)]
pub(crate) struct Object {
    pub version: u64,
    pub value: Value,
    json: OnceLock<Bytes>,
}

impl Object {
    pub(crate) fn new(version: u64, mut value: Value) -> Arc<Self> {
        value["metadata"]["resourceVersion"] = version.to_string().into();
        Arc::new(Self { version, value, json: OnceLock::new() })
    }

    /// An object that is sent but not stored, such as the answer to a dry run.
    pub(crate) fn unstored(value: Value) -> Arc<Self> {
        Arc::new(Self { version: 0, value, json: OnceLock::new() })
    }

    /// The object as JSON, serialized once.
    pub(crate) fn json(&self) -> Bytes {
        self.json.get_or_init(|| Bytes::from(self.value.to_string())).clone()
    }

    pub(crate) fn meta(&self, field: &str) -> &str {
        meta(&self.value, field)
    }

    pub(crate) fn uid(&self) -> &str {
        self.meta("uid")
    }

    pub(crate) fn is_terminating(&self) -> bool {
        is_terminating(&self.value)
    }
}

/// A string field of an object's metadata; empty if absent.
pub(crate) fn meta<'a>(value: &'a Value, field: &str) -> &'a str {
    value["metadata"][field].as_str().unwrap_or_default()
}

/// True if the object has a deletionTimestamp.
pub(crate) fn is_terminating(value: &Value) -> bool {
    value["metadata"]["deletionTimestamp"].is_string()
}

/// A change of an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub version: u64,
    pub shelf: Shelf,
    pub key: Key,
    pub before: Option<Arc<Object>>,
    pub after: Option<Arc<Object>>,
    /// The object as watches show it: for a deletion, the last object with the version of the deletion.
    pub shown: Arc<Object>,
}

/// The position of an object in the store.
pub(crate) type Place = (Shelf, Key);

/// The objects and their history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    version: u64,
    shelves: BTreeMap<Shelf, BTreeMap<Key, Arc<Object>>>,
    by_uid: BTreeMap<String, Place>,
    dependents: BTreeMap<String, BTreeSet<Place>>,
    history: VecDeque<Arc<Change>>,
    /// The history up to this version has been compacted.
    compacted: u64,
    history_limit: usize,
    watchers: BTreeMap<u64, (Shelf, Option<Waker>)>,
    next_watcher: u64,
}

impl Store {
    /// An empty store with this limit of its history.
    pub(crate) fn new(history_limit: usize) -> Self {
        // Real clusters do not start at 1 either; this exposes code that treats 0 or 1 as "nothing".
        Self { version: 100, compacted: 100, history_limit, ..Self::default() }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, shelf: Shelf, key: &Key) -> Option<&Arc<Object>> {
        self.shelves.get(&shelf)?.get(key)
    }

    /// The objects of a shelf by namespace and name, in one namespace unless it is empty.
    pub(crate) fn list<'a>(
        &'a self,
        shelf: Shelf,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> {
        let start = (namespace.to_owned(), String::new());
        self.shelves
            .get(&shelf)
            .into_iter()
            .flat_map(move |objects| objects.range(start.clone()..))
            .take_while(move |((ns, _), _)| namespace.is_empty() || ns == namespace)
    }

    /// The objects of a namespace with this name prefix.
    pub(crate) fn list_named<'a>(
        &'a self,
        shelf: Shelf,
        namespace: &'a str,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> {
        let start = (namespace.to_owned(), prefix.to_owned());
        self.shelves
            .get(&shelf)
            .into_iter()
            .flat_map(move |objects| objects.range(start.clone()..))
            .take_while(move |((ns, name), _)| ns == namespace && name.starts_with(prefix))
    }

    /// The object with this UID.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<&Place> {
        self.by_uid.get(uid)
    }

    /// The objects with an owner reference to this UID, in a fixed order.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).map(|places| places.iter().cloned().collect()).unwrap_or_default()
    }

    /// Stores an object and returns the change.
    pub(crate) fn put(&mut self, shelf: Shelf, key: Key, value: Value) -> Arc<Change> {
        self.version += 1;
        let object = Object::new(self.version, value);
        let before = self.shelves.entry(shelf).or_default().insert(key.clone(), object.clone());
        if let Some(old) = &before {
            self.unindex(shelf, &key, old);
        }
        self.index(shelf, &key, &object);
        self.record(Change {
            version: self.version,
            shelf,
            key,
            before,
            after: Some(object.clone()),
            shown: object,
        })
    }

    /// Removes an object and returns the change, if it was there.
    pub(crate) fn remove(&mut self, shelf: Shelf, key: &Key) -> Option<Arc<Change>> {
        let before = self.shelves.get_mut(&shelf)?.remove(key)?;
        self.version += 1;
        self.unindex(shelf, key, &before);
        let shown = Object::new(self.version, before.value.clone());
        Some(self.record(Change {
            version: self.version,
            shelf,
            key: key.clone(),
            before: Some(before),
            after: None,
            shown,
        }))
    }

    /// The changes after a version, oldest first.
    pub(crate) fn since(&self, version: u64) -> impl Iterator<Item = &Arc<Change>> {
        let start = self.history.partition_point(|change| change.version <= version);
        self.history.iter().skip(start)
    }

    /// The shelf at an earlier version within the history.
    pub(crate) fn list_at(&self, shelf: Shelf, namespace: &str, version: u64) -> Vec<Arc<Object>> {
        let mut objects: BTreeMap<&Key, Arc<Object>> =
            self.list(shelf, namespace).map(|(key, object)| (key, object.clone())).collect();
        let newer: Vec<&Arc<Change>> = self.since(version).filter(|c| c.shelf == shelf).collect();
        for change in newer.into_iter().rev() {
            if !namespace.is_empty() && change.key.0 != namespace {
                continue;
            }
            match &change.before {
                Some(before) => objects.insert(&change.key, before.clone()),
                None => objects.remove(&change.key),
            };
        }
        objects.into_values().collect()
    }

    /// Compacts the history up to a version: older watches and pages get 410.
    pub(crate) fn compact(&mut self, version: u64) {
        self.compacted = self.compacted.max(version.min(self.version));
        while self.history.front().is_some_and(|change| change.version <= self.compacted) {
            self.history.pop_front();
        }
    }

    /// Registers a watch of a shelf.
    pub(crate) fn add_watcher(&mut self, shelf: Shelf) -> u64 {
        self.next_watcher += 1;
        self.watchers.insert(self.next_watcher, (shelf, None));
        self.next_watcher
    }

    pub(crate) fn remove_watcher(&mut self, id: u64) {
        self.watchers.remove(&id);
    }

    /// Wakes this watch at the next change on its shelf.
    pub(crate) fn wake_watcher(&mut self, id: u64, waker: &Waker) {
        if let Some((_, slot)) = self.watchers.get_mut(&id) {
            *slot = Some(waker.clone());
        }
    }

    /// A copy without the watches, for another cluster.
    pub(crate) fn unwatched(mut self) -> Self {
        self.watchers.clear();
        self
    }

    /// Wakes every watch.
    pub(crate) fn wake_all(&mut self) {
        for (_, waker) in self.watchers.values_mut() {
            if let Some(waker) = waker.take() {
                waker.wake();
            }
        }
    }

    /// How many watches are open.
    pub(crate) fn watcher_count(&self) -> usize {
        self.watchers.len()
    }

    fn record(&mut self, change: Change) -> Arc<Change> {
        let change = Arc::new(change);
        self.history.push_back(change.clone());
        if self.history.len() > self.history_limit
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.version;
        }
        for (shelf, waker) in self.watchers.values_mut() {
            if *shelf == change.shelf
                && let Some(waker) = waker.take()
            {
                waker.wake();
            }
        }
        change
    }

    fn index(&mut self, shelf: Shelf, key: &Key, object: &Object) {
        self.by_uid.insert(object.uid().to_owned(), (shelf, key.clone()));
        for owner in owners(&object.value) {
            self.dependents.entry(owner.to_owned()).or_default().insert((shelf, key.clone()));
        }
    }

    fn unindex(&mut self, shelf: Shelf, key: &Key, object: &Object) {
        self.by_uid.remove(object.uid());
        for owner in owners(&object.value) {
            if let Some(places) = self.dependents.get_mut(owner) {
                places.remove(&(shelf, key.clone()));
                if places.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }
}

/// The UIDs of an object's owners.
pub(crate) fn owners(value: &Value) -> impl Iterator<Item = &str> {
    value["metadata"]["ownerReferences"].as_array().into_iter().flatten().filter_map(|r| r["uid"].as_str())
}

/// The reference to the owner that is an object's controller.
pub(crate) fn controller_of(value: &Value) -> Option<&Value> {
    value["metadata"]["ownerReferences"].as_array()?.iter().find(|r| r["controller"] == true)
}
