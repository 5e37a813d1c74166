//! Compares volume claim templates by what they mean, as the rollout hash does. A node's claims cannot be changed, so
//! the same claims, written otherwise, have to count as the same.

use serde_json::{Value, json};

use super::canonical::{Root, canonical};
use crate::api::Shared;

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
