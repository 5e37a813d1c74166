//! An index over a cache: the objects of one fleet, or one owner, are found without a walk over all others.

use std::collections::HashMap;
use std::sync::Arc;

use super::Key;
use super::observed::Observed;

/// The objects of a cache by what they belong to.
pub(super) struct Index<T> {
    groups: HashMap<Key, Group<T>>,
    /// How often an object came, went, or moved from one group to another.
    moves: u64,
}

struct Group<T> {
    /// By name. Most groups have one or two: what belongs to one node.
    members: Vec<Arc<T>>,
    /// The count of changes of the whole cache when one of these last changed.
    changed_at: u64,
}

impl<T: Observed> Group<T> {
    /// Where the member with this name is, or would be.
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
    /// Takes in what an object was and what it is; `change` is the cache's count of changes, this one included.
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

    /// How many members a group has.
    pub fn count(&self, group: &Key) -> usize {
        self.groups.get(group).map_or(0, |group| group.members.len())
    }

    /// Two numbers of which one is another after each change of a member, and of who is a member of what.
    pub fn changes(&self, group: &Key) -> (u64, u64) {
        (self.groups.get(group).map_or(0, |group| group.changed_at), self.moves)
    }
}

/// The groups of an object. One that has none is still of one, so that it is noticed when it comes.
fn groups_of<T: Observed>(object: Option<&Arc<T>>) -> Vec<Key> {
    let Some(object) = object else { return Vec::new() };
    let namespace = &object.meta().namespace;
    let mut groups: Vec<Key> = object.groups().into_iter().map(|group| Key::new(namespace, group)).collect();
    if groups.is_empty() {
        groups.push(Key::new(namespace, ""));
    }
    groups
}
