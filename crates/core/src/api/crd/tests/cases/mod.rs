//! Bad objects, each with the API server's message and a good twin that differs in nothing else. The unit tests of
//! the definitions and `tests/cluster/bad_input` share the table.
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::unwrap_used,
    reason = "of tests"
)]

mod fleets;
mod hooks;
mod names;
mod nodes;
mod ports_and_claims;
mod rollouts;
mod topology;
mod windows;

use serde_json::{Value, json};

/// What refuses a bad object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum By {
    /// A validation rule (CEL), with a message of ours.
    Rule,
    /// The schema, with the API server's message.
    Schema,
}

/// A bad object and its good twin.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is wrong.
    pub name: &'static str,
    /// The stored object, if the change is what is bad.
    pub old: Option<Value>,
    pub bad: Value,
    pub good: Value,
    /// The field of the error.
    pub field: &'static str,
    pub says: &'static str,
    pub by: By,
}

impl Case {
    fn new(name: &'static str, bad: Value, good: Value, field: &'static str, says: &'static str) -> Self {
        Self { name, old: None, bad, good, field, says, by: By::Rule }
    }

    fn by_schema(self) -> Self {
        Self { by: By::Schema, ..self }
    }

    fn after(self, old: Value) -> Self {
        Self { old: Some(old), ..self }
    }
}

/// A good fleet with fields set; `null` removes one. A path is field names with dots.
pub fn fleet(edits: &[(&str, Value)]) -> Value {
    let spec = json!({"template": {"spec": node_spec()}, "updateStrategy": {"type": "InPlace"}});
    edited("NodeDeployment", &spec, edits)
}

/// A good node with fields set.
pub fn node(edits: &[(&str, Value)]) -> Value {
    edited("StatefulNode", &node_spec(), edits)
}

/// A good rollout of a StatefulSet with fields set.
pub fn rollout(edits: &[(&str, Value)]) -> Value {
    edited("StatefulSetRollout", &json!({"statefulSets": {"names": ["ledger"]}}), edits)
}

fn node_spec() -> Value {
    json!({"podTemplate": {"spec": {"containers": [
        {"name": "main", "image": "app:1"},
        {"name": "helper", "image": "helper:1"},
    ]}}})
}

fn edited(kind: &str, spec: &Value, edits: &[(&str, Value)]) -> Value {
    let mut object = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": "db"}, "spec": spec,
    });
    for (path, value) in edits {
        let (parents, field) = path.rsplit_once('.').unwrap_or(("", path));
        let parents = parents.split('.').filter(|step| !step.is_empty());
        let parent = parents.fold(&mut object, |at, step| &mut at[step]);
        match value {
            Value::Null => drop(parent.as_object_mut().unwrap().remove(field)),
            value => parent[field] = value.clone(),
        }
    }
    object
}

/// A claim template of this name.
pub fn claim(name: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    })
}

/// A good fleet, a good node and a good rollout with every optional part.
pub fn rich() -> [Value; 3] {
    let ports = json!([
        {"name": "rpc", "port": 80, "targetPort": "rpc"},
        {"name": "p2p", "port": 81, "targetPort": 30_303, "protocol": "UDP"},
    ]);
    let mut of_node = node(&[
        ("spec.mainContainer", "main".into()),
        ("spec.image", "app:2".into()),
        ("spec.ports", ports.clone()),
        ("spec.serviceAnnotations", json!({"a": "b"})),
        ("spec.sidecar", sidecar()),
        ("spec.volumeClaimTemplates", json!([claim("data", "1Gi"), claim("wal", "1Gi")])),
    ]);
    let of_fleet = fleet(&[
        ("spec.template.spec", of_node["spec"].clone()),
        ("spec.template.metadata", json!({"labels": {"team": "a"}, "annotations": {"b": "c"}})),
        ("spec.service", json!({"ports": ports})),
        (
            "spec.updateStrategy.inPlace",
            json!({"maxUnavailable": "50%", "steps": [1, "50%", "100%"],
            "topology": {"key": "zone", "maxUnavailableDomains": 2, "maxUnavailable": "50%"},
            "order": {"last": {"podLabels": {"role": "primary"}}}}),
        ),
        ("spec.updateStrategy.hooks", hooks()),
        (
            "spec.updateStrategy.windows",
            json!([{"schedule": "0 2 * * 1-5", "duration": "3h", "timeZone": "Europe/Berlin"}]),
        ),
        ("spec.updateStrategy.after", json!([{"kind": "NodeDeployment", "name": "cache"}])),
    ]);
    of_node["spec"]["grantedHash"] = "v1:00".into();
    of_node["spec"]["grantID"] = "1".into();
    let expressions = json!([
        {"key": "app", "operator": "In", "values": ["ledger"]},
        {"key": "app", "operator": "Exists"},
    ]);
    let of_rollout = rollout(&[
        (
            "spec.statefulSets",
            json!({"selector": {"matchLabels": {"a": "b"}, "matchExpressions": expressions}}),
        ),
        (
            "spec.strategy",
            json!({"maxUnavailable": "50%", "groups": "OneAtATime", "steps": [1, "50%", "100%"]}),
        ),
        ("spec.strategy.hooks", hooks()),
    ]);
    [of_fleet, of_node, of_rollout]
}

fn sidecar() -> Value {
    json!({
        "image": "s:1",
        "resources": {"limits": {"cpu": 0.5}},
        "args": ["--height-url", ""],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}, "newer": {"a": [{}]}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "newer": 1}],
        "url": "http://{podIP}:{port}",
    })
}

fn hooks() -> Value {
    let headers = json!([
        {"name": "a", "value": "b"},
        {"name": "c", "secretKeyRef": {"name": "s", "key": "k"}},
    ]);
    json!([
        {"name": "drain", "at": "BeforeNode", "timeoutSeconds": 60, "onFailure": "Rollback",
         "http": {"url": "http://{{podIP}}/drain", "method": "POST", "headers": headers, "body": "{}",
                  "success": "status == 204", "failure": "status == 409", "intervalSeconds": 1}},
        {"name": "backup", "at": "BeforeRollout", "job": {"template": {"template": {"newer": [1]}}}},
        {"name": "canary", "at": "AfterStep",
         "query": {"promql": "up", "success": "scalar > 0.0", "count": 3, "failureLimit": 1}},
        {"name": "look", "at": "AfterStep", "approval": {}},
        {"name": "rest", "at": "AfterRollout", "onFailure": "Continue", "wait": {"seconds": 1}},
    ])
}

/// All cases.
pub fn all() -> Vec<Case> {
    [
        names::names(),
        fleets::in_place(),
        fleets::strategy(),
        fleets::fleet_fields(),
        hooks::steps(),
        hooks::points(),
        hooks::hooks(),
        nodes::node_fields(),
        nodes::template_fields(),
        nodes::sidecar_ports(),
        ports_and_claims::ports(),
        ports_and_claims::claims(),
        ports_and_claims::rewritten_claims(),
        rollouts::selection(),
        rollouts::selectors(),
        rollouts::strategy(),
        rollouts::hooks(),
        topology::topology(),
        windows::windows(),
    ]
    .concat()
}
