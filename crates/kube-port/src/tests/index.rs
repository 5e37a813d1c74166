//! The index finds the objects of a group together, and counts only the group's own changes.

use serde_json::{Value, json};

use crate::Cache;
use windlass_core::observed::{Observed, ObservedClaim, ObservedNode};

fn object(name: &str, version: u32, owners: &[(&str, bool)], annotated: Option<&str>) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(uid, controller)| json!({"kind": "Owner", "name": uid, "uid": uid, "controller": controller}))
        .collect();
    json!({"metadata": {
        "namespace": "shop", "name": name, "uid": format!("uid of {name}"), "resourceVersion": version.to_string(),
        "ownerReferences": owners,
        "annotations": annotated.map(|uid| json!({"windlass.dev/owner-uid": uid})).unwrap_or_default(),
    }})
}

fn names<T: Observed>(cache: &Cache<T>, group: &str) -> Vec<String> {
    let members = cache.group("shop", group);
    assert_eq!(members.len(), cache.group_size("shop", group));
    members.iter().map(|object| object.meta().name.clone()).collect()
}

#[test]
fn nodes_are_found_by_owner_or_else_by_annotation() {
    let cache = Cache::<ObservedNode>::default();
    cache.observe(ObservedNode::read(&object("a", 1, &[("red", true)], None)));
    cache.observe(ObservedNode::read(&object("b", 2, &[], Some("red"))));
    cache.observe(ObservedNode::read(&object("c", 3, &[("blue", true)], Some("red"))));
    cache.observe(ObservedNode::read(&object("d", 4, &[("red", false)], None)));
    assert_eq!(names(&cache, "red"), ["a", "b"]);
    assert_eq!(names(&cache, "blue"), ["c"]);
    assert!(cache.group("stall", "red").is_empty(), "another namespace");
}

#[test]
fn object_leaves_its_group_when_deleted_or_reassigned() {
    let cache = Cache::<ObservedNode>::default();
    for (name, version) in [("a", 1), ("b", 2), ("c", 3)] {
        cache.observe(ObservedNode::read(&object(name, version, &[("red", true)], None)));
    }
    cache.observe(ObservedNode::read(&object("a", 4, &[("blue", true)], None)));
    assert_eq!(
        (names(&cache, "red"), names(&cache, "blue")),
        (vec!["b".into(), "c".into()], vec!["a".into()])
    );
    cache.forget(ObservedNode::read(&object("b", 5, &[("red", true)], None)).meta());
    assert_eq!(names(&cache, "red"), ["c"]);
    cache.begin_relist();
    cache.observe(ObservedNode::read(&object("a", 4, &[("blue", true)], None)));
    cache.end_relist();
    assert_eq!((names(&cache, "red").len(), names(&cache, "blue").len()), (0, 1));
}

#[test]
fn change_affects_its_group_and_a_new_object_affects_all() {
    let cache = Cache::<ObservedNode>::default();
    cache.observe(ObservedNode::read(&object("a", 1, &[("red", true)], None)));
    cache.observe(ObservedNode::read(&object("b", 2, &[("blue", true)], None)));
    let (red, blue) = (cache.group_changes("shop", "red"), cache.group_changes("shop", "blue"));
    cache.observe(ObservedNode::read(&object("a", 3, &[("red", true)], None)));
    assert_ne!(cache.group_changes("shop", "red"), red);
    assert_eq!(cache.group_changes("shop", "blue"), blue);
    cache.observe(ObservedNode::read(&object("c", 4, &[], None)));
    assert_ne!(cache.group_changes("shop", "blue"), blue, "its name may be one that a fleet wants");
}

#[test]
fn claim_is_found_by_each_owner() {
    let cache = Cache::<ObservedClaim>::default();
    cache.observe(ObservedClaim::read(&object("data", 1, &[("set", true), ("node", false)], None)));
    assert_eq!((names(&cache, "set").len(), names(&cache, "node").len()), (1, 1));
}
