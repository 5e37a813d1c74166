//! An index of a cache: finds the objects of one fleet or one owner without a scan of all others.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Key;
use windlass_core::observed::Observed;

/// The objects of a cache, grouped by what they belong to.
pub(crate) struct Index<T> {
    groups: HashMap<Key, Group<T>>,
    /// How often an object was added, removed, or moved to another group.
    moves: u64,
}

struct Group<T> {
    /// Sorted by name. Most groups have one or two members: the objects of one node.
    members: Vec<Arc<T>>,
    /// The change count of the whole cache when a member last changed.
    changed_at: u64,
}

impl<T: Observed> Group<T> {
    /// The position of the member with this name, or the position to insert it at.
    fn find(&self, name: &str) -> Result<usize, usize> {
        self.members.binary_search_by(|member| member.meta().name.as_str().cmp(name))
    }
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { groups: HashMap::new(), moves: 0 }
    }
}

impl<T: Observed> Index<T> {
    /// Replaces an object in its groups. `change` is the change count of the cache, this change included.
    pub fn replace(&mut self, old: Option<&Arc<T>>, new: Option<&Arc<T>>, change: u64) {
        let (before, after) = (groups_of(old), groups_of(new));
        if before != after {
            self.moves += 1;
        }
        if let Some(old) = old {
            for group in before.iter().filter(|group| !after.contains(group)) {
                self.remove(group, &old.meta().name, change);
            }
        }
        let Some(new) = new else { return };
        for group in after {
            let empty = || Group { members: Vec::with_capacity(1), changed_at: 0 };
            let group = self.groups.entry(group).or_insert_with(empty);
            group.changed_at = change;
            match group.find(&new.meta().name) {
                Ok(at) => group.members[at] = new.clone(),
                Err(at) => group.members.insert(at, new.clone()),
            }
        }
    }

    fn remove(&mut self, key: &Key, name: &str, change: u64) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.changed_at = change;
        if let Ok(at) = group.find(name) {
            group.members.remove(at);
        }
        if group.members.is_empty() {
            self.groups.remove(key);
        }
    }

    /// The members of a group, by name.
    pub fn members(&self, group: &Key) -> Vec<Arc<T>> {
        self.groups.get(group).map(|group| group.members.clone()).unwrap_or_default()
    }

    /// The number of members of a group.
    pub fn count(&self, group: &Key) -> usize {
        self.groups.get(group).map_or(0, |group| group.members.len())
    }

    /// Two numbers. At least one of them differs after a change of a member, and after any object of the cache was
    /// added, removed, or moved to another group.
    pub fn changes(&self, group: &Key) -> (u64, u64) {
        (self.groups.get(group).map_or(0, |group| group.changed_at), self.moves)
    }
}

/// The groups of an object. An object without a group is put into the group with the empty name, so that its addition
/// counts as a move.
fn groups_of<T: Observed>(object: Option<&Arc<T>>) -> Vec<Key> {
    let Some(object) = object else { return Vec::new() };
    let namespace = &object.meta().namespace;
    let mut groups: Vec<Key> = object.groups().into_iter().map(|group| Key::new(namespace, group)).collect();
    if groups.is_empty() {
        groups.push(Key::new(namespace, ""));
    }
    groups
}
