//! What is granted, as the files say, and what was used, as the audit log says.

use std::collections::BTreeSet;

use serde_json::Value;

use windlass_harness::controlplane::Audit;
use windlass_harness::operated::Reach;

/// One verb of one resource.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Rule {
    pub group: String,
    /// The plural, with a subresource after a slash.
    pub resource: String,
    pub verb: String,
}

/// A file of deploy/rbac.
pub fn read(name: &str) -> String {
    let path = windlass_harness::root().join("deploy/rbac").join(name);
    std::fs::read_to_string(path).expect("a file of deploy/rbac")
}

/// The file that grants the operator its rights.
pub fn text(reach: Reach) -> String {
    std::fs::read_to_string(reach.file()).expect("a file of deploy/rbac")
}

/// Everything that the operator's file grants.
pub fn granted(reach: Reach) -> BTreeSet<Rule> {
    granted_by(&text(reach))
}

/// Everything that these manifests grant.
pub fn granted_by(text: &str) -> BTreeSet<Rule> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).expect("YAML");
    let mut all = BTreeSet::new();
    for role in objects.iter().filter(|o| o["kind"] == "Role" || o["kind"] == "ClusterRole") {
        for rule in words_of(&role["rules"], Value::clone) {
            assert!(rule["resourceNames"].is_null(), "not read here: {rule}");
            let words = |field: &str| words_of(&rule[field], |w| w.as_str().expect("a word").to_owned());
            for group in words("apiGroups") {
                for resource in words("resources") {
                    for verb in words("verbs") {
                        all.insert(Rule { group: group.clone(), resource: resource.clone(), verb });
                    }
                }
            }
        }
    }
    assert!(!all.is_empty(), "nothing is granted: {text}");
    assert!(all.iter().all(|r| [&r.group, &r.resource, &r.verb].iter().all(|w| *w != "*")), "{all:#?}");
    all
}

/// Everything that was asked for and done.
pub fn used(audit: &Audit) -> BTreeSet<Rule> {
    let answered = audit.entries().iter().filter(|e| e.response_status.code != 403);
    answered
        .map(|entry| {
            let object = &entry.object_ref;
            let part = if object.subresource.is_empty() { "" } else { "/" };
            Rule {
                group: object.group.clone(),
                resource: format!("{}{part}{}", object.resource, object.subresource),
                verb: entry.verb.clone(),
            }
        })
        .collect()
}

fn words_of<T>(list: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
    list.as_array().map(|list| list.iter().map(read).collect()).unwrap_or_default()
}
