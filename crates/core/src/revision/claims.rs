//! Compares volume claim templates by what they mean, as the rollout hash does. A node's claims cannot be changed, so
//! the same claims, written otherwise, have to count as the same.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::canonical::{Root, canonical};
use super::quantity::nanos;
use crate::api::Shared;

/// Where a claim template has its size.
const SIZE: &str = "/spec/resources/requests/storage";

/// The name and the size of a claim template, if it has both.
fn name_and_size(claim: &Value) -> Option<(&str, String)> {
    let size = match claim.pointer(SIZE)? {
        Value::String(size) => size.clone(),
        Value::Number(size) => size.to_string(),
        _ => return None,
    };
    Some((claim["metadata"]["name"].as_str()?, size))
}

/// The sizes of claim templates, by their names.
#[must_use]
pub fn sizes_of(claims: &[Value]) -> BTreeMap<String, String> {
    claims.iter().filter_map(name_and_size).map(|(name, size)| (name.to_owned(), size)).collect()
}

/// True if a volume of the first size is smaller than one of the second. A text that is not a size is smaller than
/// none: the API server rejects it.
#[must_use]
pub fn is_smaller(size: &str, than: &str) -> bool {
    match (nanos(size), nanos(than)) {
        (Some(size), Some(than)) => size < than,
        (_, None) => size != than,
        (None, Some(_)) => false,
    }
}

/// These claim templates with these sizes, where that is larger.
#[must_use]
pub fn with_sizes(claims: &[Value], sizes: &BTreeMap<String, String>) -> Vec<Value> {
    let grown = |claim: &Value| {
        let mut claim = claim.clone();
        let larger = name_and_size(&claim)
            .and_then(|(name, size)| sizes.get(name).filter(|larger| is_smaller(&size, larger)).cloned());
        if let (Some(larger), Some(place)) = (larger, claim.pointer_mut(SIZE)) {
            *place = larger.into();
        }
        claim
    };
    claims.iter().map(grown).collect()
}

/// These claim templates with the sizes of a revision's claims, where these are not larger: a volume may grow, and its
/// size belongs to no revision.
#[must_use]
pub(super) fn at_revision(claims: &[Value], of_revision: &[Value]) -> Vec<Value> {
    let kept = |claim: &Value| {
        let mut claim = claim.clone();
        let known = name_and_size(&claim).and_then(|(name, size)| {
            let known = of_revision.iter().find(|known| known["metadata"]["name"] == *name)?;
            let (_, before) = name_and_size(known)?;
            (nanos(&size)? > nanos(&before)?).then(|| known.pointer(SIZE).cloned()).flatten()
        });
        if let (Some(known), Some(place)) = (known, claim.pointer_mut(SIZE)) {
            *place = known;
        }
        claim
    };
    claims.iter().map(kept).collect()
}

/// The sizes to which a node's claims grow: of each of its claim templates that has a larger one among the desired
/// claims.
#[must_use]
pub fn growth(of_node: &[Value], desired: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let larger = |(name, size): (String, String)| {
        let desired = desired.get(&name).filter(|desired| is_smaller(&size, desired))?;
        Some((name, desired.clone()))
    };
    sizes_of(of_node).into_iter().filter_map(larger).collect()
}

/// True if these claims mean the same: a rollout hash is the same with either of them.
#[must_use]
pub fn are_same_claims(a: &Shared<Vec<Value>>, b: &Shared<Vec<Value>>) -> bool {
    a == b || form(a) == form(b)
}

/// The form in which claims are part of a rollout hash.
fn form(claims: &Shared<Vec<Value>>) -> Value {
    canonical(&json!({"volumeClaimTemplates": claims}), Root::RolloutInputs)
}

/// Compares the claims of many nodes with the desired ones. Equal claims are one value in memory, so those that
/// thousands of nodes have are compared once.
pub struct ClaimsComparison<'a> {
    wanted: &'a Shared<Vec<Value>>,
    /// The claims that were compared, and whether they are other ones.
    compared: Vec<(Shared<Vec<Value>>, bool)>,
}

impl<'a> ClaimsComparison<'a> {
    /// Compares with these claims.
    #[must_use]
    pub fn with(wanted: &'a Shared<Vec<Value>>) -> Self {
        Self { wanted, compared: Vec::new() }
    }

    /// True if these claims mean something else than the desired ones.
    pub fn is_other(&mut self, claims: &Shared<Vec<Value>>) -> bool {
        if claims.is_same(self.wanted) {
            return false;
        }
        if let Some((_, is_other)) = self.compared.iter().find(|(known, _)| known.is_same(claims)) {
            return *is_other;
        }
        let is_other = !are_same_claims(claims, self.wanted);
        self.compared.push((claims.clone(), is_other));
        is_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{RolloutHash, StatefulNodeSpec};
    use crate::revision::rollout_hash;

    fn of_size(storage: &str) -> Value {
        json!([{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": storage}}}}])
    }

    fn read(claims: &Value) -> Shared<Vec<Value>> {
        serde_json::from_value(claims.clone()).unwrap()
    }

    fn hash(claims: &Value) -> RolloutHash {
        let spec = json!({
            "podTemplate": {"spec": {"containers": [{"name": "db", "image": "db:1"}]}},
            "volumeClaimTemplates": claims,
        });
        let spec: StatefulNodeSpec = serde_json::from_value(spec).unwrap();
        rollout_hash(&spec, "")
    }

    #[test]
    fn claims_are_same_if_and_only_if_their_rollout_hash_is() {
        let made_with = of_size("1Gi");
        let with = |pointer: &str, field: &str, value: Value| {
            let mut claims = made_with.clone();
            claims.pointer_mut(pointer).unwrap()[field] = value;
            claims
        };
        let table = [
            (made_with.clone(), true),
            (of_size("1024Mi"), true),
            (with("/0", "status", json!({})), true),
            (with("/0/metadata", "creationTimestamp", Value::Null), true),
            (of_size("2Gi"), false),
            (with("/0/metadata", "name", json!("log")), false),
            (with("/0/spec", "storageClassName", json!("")), false),
            (json!([]), false),
        ];
        for (claims, same) in table {
            assert_eq!(are_same_claims(&read(&claims), &read(&made_with)), same, "{claims}");
            assert_eq!(hash(&claims) == hash(&made_with), same, "{claims}");
        }
    }

    #[test]
    fn size_that_grows_belongs_to_no_revision() {
        // written, of the revision; expected
        let table = [
            ("2Gi", "1Gi", "1Gi"),
            ("1024Mi", "1Gi", "1024Mi"),
            ("1Gi", "2Gi", "1Gi"),
            ("much", "1Gi", "much"),
        ];
        for (written, of_revision, expected) in table {
            let [written, of_revision, expected] = [written, of_revision, expected].map(of_size);
            let list = |claims: &Value| claims.as_array().unwrap().clone();
            assert_eq!(json!(at_revision(&list(&written), &list(&of_revision))), expected, "{written}");
        }
        let other =
            json!([{"metadata": {"name": "log"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]);
        let written = of_size("2Gi");
        let kept = at_revision(written.as_array().unwrap(), other.as_array().unwrap());
        assert_eq!(json!(kept), written, "a claim of another name");
    }

    #[test]
    fn claims_only_grow() {
        let sizes = |size: &str| BTreeMap::from([("data".to_owned(), size.to_owned())]);
        // of the node, desired; the size that it grows to
        let table = [
            ("1Gi", "2Gi", Some("2Gi")),
            ("1Gi", "1024Mi", None),
            ("2Gi", "1Gi", None),
            ("1Gi", "much", Some("much")),
        ];
        for (of_node, desired, grown) in table {
            let claims = of_size(of_node);
            let claims = claims.as_array().unwrap();
            assert_eq!(growth(claims, &sizes(desired)), grown.map(sizes).unwrap_or_default(), "{desired}");
            let expected = of_size(grown.unwrap_or(of_node));
            assert_eq!(json!(with_sizes(claims, &sizes(desired))), expected, "{of_node} {desired}");
        }
        assert!(growth(&[], &sizes("1Gi")).is_empty());
    }

    #[test]
    fn claims_of_many_nodes_are_compared_once() {
        let [wanted, alike, other] = ["1Gi", "1024Mi", "2Gi"].map(|storage| read(&of_size(storage)));
        let mut comparison = ClaimsComparison::with(&wanted);
        for _ in 0..3 {
            assert!(!comparison.is_other(&wanted));
            assert!(!comparison.is_other(&read(&of_size("1024Mi"))));
            assert!(comparison.is_other(&other));
        }
        assert!(comparison.compared.iter().any(|(known, _)| known.is_same(&alike)));
        assert_eq!(comparison.compared.len(), 2);
    }
}
