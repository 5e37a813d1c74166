//! A cache is never older than our own last write, and never keeps what is gone.

use crate::raw::Sent;
use crate::{Cache, Key};
use windlass_core::observed::{Meta, Observed};

/// An object with some content, which shows which version is cached.
#[derive(Clone, Debug, PartialEq)]
struct Thing {
    meta: Meta,
    content: &'static str,
}

impl Observed for Thing {
    fn of(_: &impl Sent, meta: Meta) -> Self {
        Self { meta, content: "read" }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

fn thing(name: &str, uid: &str, version: u64, content: &'static str) -> Thing {
    let meta = Meta {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        resource_version: version.to_string(),
        ..Meta::default()
    };
    Thing { meta, content }
}

fn db(version: u64, content: &'static str) -> Thing {
    thing("db", "uid-1", version, content)
}

fn key(name: &str) -> Key {
    Key::new("shop", name)
}

impl Cache<Thing> {
    fn content(&self, name: &str) -> Option<&'static str> {
        self.get(&key(name)).map(|t| t.content)
    }
}

#[test]
fn newer_version_wins_regardless_of_arrival_order() {
    let cache = Cache::default();
    assert!(cache.observe(db(5, "five")));
    assert!(!cache.observe(db(4, "four")), "an older one");
    assert!(!cache.observe(db(5, "five again")), "the same one");
    assert!(cache.observe(db(10, "ten")), "versions are numbers, not texts");
    assert_eq!(cache.content("db"), Some("ten"));
}

#[test]
fn only_newer_or_different_objects_are_read() {
    let sent = serde_json::Value::Null;
    let read = |thing: Thing| {
        let cache = Cache::default();
        cache.observe(db(5, "five"));
        let name = thing.meta.name.clone();
        assert_eq!(cache.take_in(&sent, &thing.meta), cache.content(&name) == Some("read"));
        cache.content(&name) == Some("read")
    };
    assert!(!read(db(5, "five")) && !read(db(4, "four")));
    assert!(read(db(6, "six")) && read(thing("db", "uid-2", 5, "new")) && read(thing("x", "uid-1", 5, "x")));
}

#[test]
fn own_write_is_not_undone_by_an_earlier_watch_event() {
    let cache = Cache::default();
    cache.observe(db(5, "as the watch showed it"));
    cache.observe(db(9, "as our write was answered"));
    cache.observe(db(7, "a late watch event"));
    assert_eq!(cache.content("db"), Some("as our write was answered"));
}

#[test]
fn own_delete_is_not_undone_by_an_earlier_watch_event() {
    let cache = Cache::default();
    cache.observe(db(5, "there"));
    cache.deleted(&key("db"), "uid-1");
    assert_eq!(cache.content("db"), None);
    assert!(!cache.observe(db(6, "a late watch event")));
    assert_eq!(cache.content("db"), None);
    cache.forget(db(7, "gone").meta());
    assert!(cache.observe(thing("db", "uid-2", 8, "made again")), "another object of its name");
    assert_eq!(cache.content("db"), Some("made again"));
}

#[test]
fn late_write_response_does_not_restore_a_deleted_object() {
    let cache = Cache::default();
    cache.observe(db(5, "there"));
    cache.forget(db(8, "deleted").meta());
    assert!(!cache.observe(db(7, "as our write was answered")), "no watch event would ever remove it again");
    assert_eq!(cache.content("db"), None);
    assert!(cache.observe(db(8, "as it was read")), "it had only lost the label that the watch selects by");
    cache.forget(db(9, "lost its label").meta());
    assert!(cache.observe(db(10, "has its label again")));
}

#[test]
fn new_object_replaces_the_old_one_of_the_same_name() {
    let cache = Cache::default();
    cache.observe(db(5, "old"));
    assert!(cache.observe(thing("db", "uid-2", 8, "new")), "its deletion was not seen");
    assert!(!cache.observe(db(6, "a late event of the old one")));
    cache.forget(db(7, "gone").meta());
    assert_eq!(cache.content("db"), Some("new"), "the late deletion is the old one's");
    cache.deleted(&key("db"), "uid-1");
    assert_eq!(cache.content("db"), Some("new"), "so is our own");
    cache.forget(thing("db", "uid-2", 9, "gone").meta());
    assert_eq!(cache.content("db"), None);
}

#[test]
fn relist_drops_deleted_objects_and_keeps_concurrent_writes() {
    let cache = Cache::default();
    cache.observe(db(5, "stays"));
    cache.observe(thing("lost", "uid-3", 5, "went while no watch was open"));
    assert!(!cache.is_ready());
    cache.begin_relist();
    cache.observe(db(5, "stays"));
    cache.observe(thing("mine", "uid-4", 9, "written after the list was taken"));
    assert_eq!(cache.content("lost"), Some("went while no watch was open"), "until the list is complete");
    assert_eq!(cache.end_relist(), [key("lost")]);
    assert!(cache.is_ready());
    let left: Vec<&str> = cache.list_all(|_| true).iter().map(|t| t.content).collect();
    assert_eq!(left, ["stays", "written after the list was taken"]);
}

#[test]
fn relist_does_not_restore_an_object_deleted_before_it() {
    let cache = Cache::default();
    cache.observe(db(5, "there"));
    cache.deleted(&key("db"), "uid-1");
    cache.begin_relist();
    cache.observe(db(6, "the list was taken before the delete"));
    cache.end_relist();
    assert_eq!(cache.content("db"), None);
    assert!(!cache.observe(db(7, "still leaving")));
    // The next list does not have it any more, so its deletion need not be remembered.
    cache.begin_relist();
    cache.end_relist();
    assert!(cache.observe(db(8, "nothing is known against it")));
}

#[test]
fn list_returns_the_objects_of_one_namespace_sorted_by_name() {
    let cache = Cache::default();
    let other = Meta { namespace: "shop-2".to_owned(), ..thing("a", "uid-5", 1, "").meta };
    cache.observe(Thing { meta: other, content: "elsewhere" });
    cache.observe(thing("b", "uid-6", 1, "b"));
    cache.observe(thing("a", "uid-7", 1, "a"));
    cache.observe(thing("c", "uid-8", 1, "c"));
    let names: Vec<&str> = cache.list("shop", |t| t.content != "c").iter().map(|t| t.content).collect();
    assert_eq!(names, ["a", "b"]);
}

/// The label that a watch selects by goes, which the watch reports as a deletion, and comes back.
#[test]
fn object_without_its_label_in_a_response_is_dropped() {
    let cache = Cache::default();
    cache.observe(db(5, "labelled"));
    assert!(!cache.left(&thing("db", "uid-0", 9, "").meta), "another object");
    assert!(!cache.left(&db(4, "").meta), "an older response");
    assert_eq!(cache.content("db"), Some("labelled"));
    assert!(cache.left(&db(6, "").meta));
    assert_eq!(cache.content("db"), None);
    assert!(!cache.left(&db(7, "").meta), "it is gone already");
    assert!(!cache.observe(db(5, "labelled")), "from before");
    assert!(cache.observe(db(8, "labelled again")));
}
