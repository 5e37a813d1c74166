//! The claims of a set's pods: their creation, and their owners, which follow the set's claim retention.

use serde_json::{Value, json};

use super::super::super::server::WriteOptions;
use super::super::super::store::Object;
use super::super::super::world::World;
use super::Set;

/// The claims of a pod, by the name of their template.
pub(super) fn of(set: &Set<'_>, ordinal: i64) -> Vec<(String, Value)> {
    let mut list = Vec::new();
    for template in set.spec()["volumeClaimTemplates"].as_array().into_iter().flatten() {
        let name = template["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut claim = template.clone();
        claim["metadata"]["name"] = format!("{name}-{}", set.pod_name(ordinal)).into();
        claim["metadata"]["namespace"] = set.namespace.into();
        for (key, value) in set.spec()["selector"]["matchLabels"].as_object().into_iter().flatten() {
            claim["metadata"]["labels"][key] = value.clone();
        }
        if let Some(map) = claim.as_object_mut() {
            map.remove("status");
        }
        list.push((name, claim));
    }
    list
}

fn names(set: &Set<'_>, ordinal: i64) -> Vec<String> {
    let pod = set.pod_name(ordinal);
    let templates = set.spec()["volumeClaimTemplates"].as_array().into_iter().flatten();
    templates.map(|t| format!("{}-{pod}", t["metadata"]["name"].as_str().unwrap_or_default())).collect()
}

/// True if a missing pod has to wait for one of its claims to go: an earlier pod that was scaled away owns it, and it is
/// about to be deleted with that pod. Under `whenScaled: Retain` no claim is stale, not even one that is being deleted.
pub(super) fn is_stale(world: &World, set: &Set<'_>, ordinal: i64) -> bool {
    if !set.deletes_claims("whenScaled") {
        return false;
    }
    let missing = json!({"apiVersion": "v1", "kind": "Pod", "name": set.pod_name(ordinal), "uid": ""});
    names(set, ordinal).iter().any(|name| {
        let found = world.find("PersistentVolumeClaim", set.namespace, name);
        found.is_some_and(|found| has_stale(&owners(&found), &missing))
    })
}

/// Creates missing claims. An existing claim is used as it is, unless it is being deleted.
pub(super) fn create(world: &mut World, set: &Set<'_>, ordinal: i64) -> Result<(), String> {
    let Some(kind) = world.kind("PersistentVolumeClaim") else { return Ok(()) };
    let mut failures = Vec::new();
    for (_, claim) in of(set, ordinal) {
        let name = claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match world.store.get(kind.shelf, &(set.namespace.to_owned(), name.clone())) {
            None => {
                let created = world.create(&kind, set.namespace, claim, &WriteOptions::default());
                failures.extend(created.err().map(|refusal| refusal.message));
            }
            Some(found) if found.is_terminating() => failures.push(format!("pvc {name} is being deleted")),
            Some(_) => {}
        }
    }
    match failures.len() {
        0 => Ok(()),
        1 => Err(failures.swap_remove(0)),
        _ => Err(format!("[{}]", failures.join(", "))),
    }
}

/// Makes the set or a pod the owner of the pod's claims, or neither, as the claim retention says.
pub(super) fn retain(world: &mut World, set: &Set<'_>, ordinal: i64, pod: &Object) {
    let Some(kind) = world.kind("PersistentVolumeClaim") else { return };
    for name in names(set, ordinal) {
        let key = (set.namespace.to_owned(), name);
        let Some(claim) = world.store.get(kind.shelf, &key).cloned() else { continue };
        let Some(owners) = changed_owners(set, ordinal, pod, &claim) else { continue };
        let mut value = claim.value.clone();
        if !owners.is_empty() {
            value["metadata"]["ownerReferences"] = owners.into();
        } else if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("ownerReferences");
        }
        world.put(&kind, key, value);
    }
}

/// The owner references that a claim should have, if it has others.
fn changed_owners(set: &Set<'_>, ordinal: i64, pod: &Object, claim: &Object) -> Option<Vec<Value>> {
    let (of_set, of_pod) = (set.reference(), reference(pod));
    let there = owners(claim);
    // An earlier set or pod of the same name: garbage collection decides about the claim.
    if has_stale(&there, &of_set) || has_stale(&there, &of_pod) {
        return None;
    }
    let is_own = |owner: &&Value| is_named(owner, &of_set) || is_named(owner, &of_pod);
    let is_of_another = there.iter().any(|owner| !is_own(&owner) && owner["controller"] == true);
    let wanted =
        if is_of_another { None } else { wanted_owner(set, ordinal, of_set.clone(), of_pod.clone()) };
    let held: Vec<&Value> = there.iter().filter(is_own).collect();
    let is_right = match &wanted {
        Some(wanted) => {
            !held.is_empty() && held.iter().all(|o| o["uid"] == wanted["uid"] && o["controller"] == true)
        }
        None => held.is_empty(),
    };
    let others = there.iter().filter(|owner| !is_own(owner)).cloned();
    (!is_right).then(|| others.chain(wanted).collect())
}

/// The owner of a claim under the set's claim retention. A pod that is scaled away takes its claims along.
fn wanted_owner(set: &Set<'_>, ordinal: i64, of_set: Value, of_pod: Value) -> Option<Value> {
    let is_condemned = !set.ordinals().contains(&ordinal);
    if is_condemned && set.deletes_claims("whenScaled") {
        Some(of_pod)
    } else {
        set.deletes_claims("whenDeleted").then_some(of_set)
    }
}

fn owners(claim: &Object) -> Vec<Value> {
    claim.value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default()
}

fn reference(pod: &Object) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "name": pod.meta("name"), "uid": pod.uid(),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// True if both references have the same kind and name.
fn is_named(reference: &Value, as_this: &Value) -> bool {
    ["apiVersion", "kind", "name"].iter().all(|field| reference[field] == as_this[field])
}

/// True if an earlier object of the same kind and name is an owner.
fn has_stale(owners: &[Value], of_this: &Value) -> bool {
    let named = owners.iter().find(|owner| is_named(owner, of_this));
    named.is_some_and(|owner| owner["uid"] != of_this["uid"])
}
