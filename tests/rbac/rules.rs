//! What is granted, as the files say, and what was used, as the audit log says.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::controlplane::Audit;
use crate::operated::Reach;

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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/rbac").join(name);
    std::fs::read_to_string(path).expect("a file of deploy/rbac")
}

/// The file that grants the operator its rights.
pub fn text(reach: Reach) -> String {
    std::fs::read_to_string(reach.file()).expect("a file of deploy/rbac")
}

/// Everything that a file grants.
pub fn granted(reach: Reach) -> BTreeSet<Rule> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text(reach)).expect("YAML");
    let roles = objects.iter().filter(|o| o["kind"] == "Role" || o["kind"] == "ClusterRole");
    let rules = roles.flat_map(|role| list(&role["rules"])).flat_map(|rule| {
        let rule = rule.clone();
        assert!(rule["resourceNames"].is_null(), "not read here: {rule}");
        let (groups, resources, verbs) =
            (list(&rule["apiGroups"]), list(&rule["resources"]), list(&rule["verbs"]));
        let mut found = Vec::new();
        for group in &groups {
            for resource in &resources {
                for verb in &verbs {
                    let text = |v: &Value| v.as_str().expect("a word").to_owned();
                    found.push(Rule { group: text(group), resource: text(resource), verb: text(verb) });
                }
            }
        }
        found
    });
    let rules: BTreeSet<Rule> = rules.collect();
    assert!(!rules.is_empty(), "{reach:?} grants nothing");
    assert!(rules.iter().all(|r| [&r.group, &r.resource, &r.verb].iter().all(|w| *w != "*")), "{rules:#?}");
    rules
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

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}
