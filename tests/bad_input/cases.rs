//! Bad objects, each with what the API server says of it and a good twin that differs in nothing else.
//! The unit tests of `src/api/crd.rs` and `tests/bad_input.rs` walk the same table.

use serde_json::{Value, json};

/// What refuses a bad object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum By {
    /// A validation rule (CEL), with a sentence of ours.
    Rule,
    /// The schema, in the API server's words.
    Schema,
}

/// A bad object and its good twin.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is wrong.
    pub name: &'static str,
    /// What is stored before, where a change is what is bad.
    pub old: Option<Value>,
    pub bad: Value,
    pub good: Value,
    /// The field that the error is reported on.
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

fn node_spec() -> Value {
    json!({"podTemplate": {"spec": {"containers": [
        {"name": "main", "image": "app:1"},
        {"name": "helper", "image": "helper:1"},
    ]}}})
}

fn edited(kind: &str, spec: &Value, edits: &[(&str, Value)]) -> Value {
    let mut object = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": "db"}, "spec": spec});
    for (path, value) in edits {
        let pointer = format!("/{}", path.replace('.', "/"));
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = parent[1..].split('/').fold(&mut object, |at, step| &mut at[step]);
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

/// A good fleet and a good node with every optional part that this version takes.
pub fn rich() -> [Value; 2] {
    let ports = json!([
        {"name": "rpc", "port": 80, "targetPort": "rpc"},
        {"name": "p2p", "port": 81, "targetPort": 30_303, "protocol": "UDP"},
    ]);
    let mut of_node = node(&[
        ("spec.mainContainer", "main".into()),
        ("spec.image", "app:2".into()),
        ("spec.ports", ports.clone()),
        ("spec.serviceAnnotations", json!({"a": "b"})),
        ("spec.sidecar", json!({"image": "s:1", "resources": {"limits": {"cpu": 0.5}}})),
        ("spec.volumeClaimTemplates", json!([claim("data", "1Gi"), claim("wal", "1Gi")])),
    ]);
    let of_fleet = fleet(&[
        ("spec.template.spec", of_node["spec"].clone()),
        ("spec.template.metadata", json!({"labels": {"team": "a"}, "annotations": {"b": "c"}})),
        ("spec.service", json!({"ports": ports})),
        ("spec.updateStrategy.inPlace", json!({"maxUnavailable": "50%"})),
    ]);
    of_node["spec"]["grantedHash"] = "v1:00".into();
    of_node["spec"]["grantID"] = "1".into();
    [of_fleet, of_node]
}

/// All cases.
pub fn all() -> Vec<Case> {
    [
        names(),
        strategy(),
        in_place(),
        fleet_fields(),
        node_fields(),
        template_fields(),
        ports(),
        claims(),
        not_yet(),
    ]
    .concat()
}

fn names() -> Vec<Case> {
    let pattern = "metadata.name has to match [a-z]([-a-z0-9]*[a-z0-9])?";
    let fleet_named = |name: &str| fleet(&[("metadata.name", name.into())]);
    let node_named = |name: &str| node(&[("metadata.name", name.into())]);
    let field = "metadata.name";
    vec![
        Case::new(
            "a fleet's name of 40 characters",
            fleet_named(&"n".repeat(40)),
            fleet_named(&"n".repeat(39)),
            field,
            "metadata.name of a NodeDeployment is over 39 characters",
        ),
        Case::new("a fleet's name with a dot", fleet_named("my.db"), fleet_named("my-db"), field, pattern),
        Case::new(
            "a fleet's name that begins with a digit",
            fleet_named("9db"),
            fleet_named("d9"),
            field,
            pattern,
        ),
        Case::new(
            "a node's name of 53 characters",
            node_named(&"n".repeat(53)),
            node_named(&"n".repeat(52)),
            field,
            "metadata.name of a StatefulNode is over 52 characters",
        ),
        Case::new("a node's name with a dot", node_named("db.0"), node_named("db-0"), field, pattern),
        Case::new("a node's name that begins with a digit", node_named("0"), node_named("d"), field, pattern),
    ]
}

fn in_place() -> Vec<Case> {
    let max = |value: Value| fleet(&[("spec.updateStrategy.inPlace.maxUnavailable", value)]);
    let max_field = "spec.updateStrategy.inPlace.maxUnavailable";
    let max_says = "inPlace.maxUnavailable has to be a number above 0, or a percentage from 1% to 100%";
    let with = |path: &str, value: Value| fleet(&[(path, value)]);
    let partition = "spec.updateStrategy.inPlace.partition";
    let deadline = "spec.updateStrategy.progressDeadlineSeconds";
    vec![
        Case::new("maxUnavailable 0", max(0.into()), max(1.into()), max_field, max_says),
        Case::new("maxUnavailable below 0", max((-1).into()), max(7.into()), max_field, max_says),
        Case::new("maxUnavailable 0%", max("0%".into()), max("1%".into()), max_field, max_says),
        Case::new("maxUnavailable 101%", max("101%".into()), max("100%".into()), max_field, max_says),
        Case::new(
            "maxUnavailable without a percent sign",
            max("50".into()),
            max("50%".into()),
            max_field,
            max_says,
        ),
        Case::new(
            "maxUnavailable beyond what a number of nodes can be",
            max(2_147_483_648_i64.into()),
            max(2_147_483_647.into()),
            max_field,
            max_says,
        ),
        Case::new(
            "a partition below 0",
            with(partition, (-1).into()),
            with(partition, 0.into()),
            partition,
            "should be greater than or equal to 0",
        )
        .by_schema(),
        Case::new(
            "a progress deadline of 0",
            with(deadline, 0.into()),
            with(deadline, 1.into()),
            deadline,
            "should be greater than or equal to 1",
        )
        .by_schema(),
    ]
}

fn strategy() -> Vec<Case> {
    let with = |path: &str, value: Value| fleet(&[(path, value)]);
    vec![
        Case::new(
            "no strategy",
            with("spec.updateStrategy", Value::Null),
            fleet(&[]),
            "spec.updateStrategy",
            "Required value",
        )
        .by_schema(),
        Case::new(
            "a strategy without a type",
            with("spec.updateStrategy", json!({})),
            fleet(&[]),
            "spec.updateStrategy.type",
            "Required value",
        )
        .by_schema(),
        Case::new(
            "an empty strategy type",
            with("spec.updateStrategy.type", "".into()),
            fleet(&[]),
            "spec.updateStrategy.type",
            r#"supported values: "InPlace", "BlueGreen", "HardFork""#,
        )
        .by_schema(),
        Case::new(
            "an unknown strategy type",
            with("spec.updateStrategy.type", "Canary".into()),
            fleet(&[]),
            "spec.updateStrategy.type",
            r#"supported values: "InPlace", "BlueGreen", "HardFork""#,
        )
        .by_schema(),
        Case::new(
            "an unknown promotion",
            with("spec.updateStrategy.blueGreen.promotion", "Later".into()),
            with("spec.updateStrategy.blueGreen.promotion", "Manual".into()),
            "spec.updateStrategy.blueGreen.promotion",
            r#"supported values: "WhenReady", "Manual", "Immediately""#,
        )
        .by_schema(),
        Case::new(
            "an unknown answer to a stall",
            with("spec.updateStrategy.onStall", "Panic".into()),
            with("spec.updateStrategy.onStall", "Rollback".into()),
            "spec.updateStrategy.onStall",
            r#"supported values: "Hold", "Rollback""#,
        )
        .by_schema(),
        Case::new(
            "HardFork without a height",
            with("spec.updateStrategy.type", "HardFork".into()),
            fleet(&[]),
            "spec.updateStrategy.hardFork.haltHeight",
            "updateStrategy.type HardFork needs hardFork.haltHeight: set the height at which the old nodes halt",
        ),
        Case::new(
            "HardFork at height 0",
            with("spec.updateStrategy.hardFork.haltHeight", 0.into()),
            with("spec.updateStrategy.hardFork.haltHeight", 1.into()),
            "spec.updateStrategy.hardFork.haltHeight",
            "hardFork.haltHeight has to be above 0",
        ),
    ]
}

fn fleet_fields() -> Vec<Case> {
    let with = |path: &str, value: Value| fleet(&[(path, value)]);
    let number = |name, path, bad: i64, good: i64, says| {
        Case::new(name, with(path, bad.into()), with(path, good.into()), path, says).by_schema()
    };
    let extra = |name, path, value: Value, says| Case::new(name, with(path, value), fleet(&[]), path, says);
    let build_id = "spec.unsafeCustomBuildID";
    let bad_build_id = "unsafeCustomBuildID has to be at most 63 of letters, digits, '.', '_' and '-'";
    vec![
        number("replicas below 0", "spec.replicas", -1, 0, "should be greater than or equal to 0"),
        number(
            "replicas over 10000",
            "spec.replicas",
            10_001,
            10_000,
            "should be less than or equal to 10000",
        ),
        number(
            "minReadySeconds below 0",
            "spec.minReadySeconds",
            -1,
            0,
            "should be greater than or equal to 0",
        ),
        number(
            "revisionHistoryLimit below 0",
            "spec.revisionHistoryLimit",
            -1,
            0,
            "should be greater than or equal to 0",
        ),
        Case::new(
            "revisionHistoryLimit beyond 32 bits",
            with("spec.revisionHistoryLimit", 2_147_483_648_i64.into()),
            with("spec.revisionHistoryLimit", 2_147_483_647.into()),
            "<nil>",
            "must be of type integer with format int32 in spec.revisionHistoryLimit",
        )
        .by_schema(),
        Case::new(
            "an unknown deletion policy",
            with("spec.deletionPolicy", "Keep".into()),
            with("spec.deletionPolicy", "Retain".into()),
            "spec.deletionPolicy",
            r#"supported values: "Delete", "Retain""#,
        )
        .by_schema(),
        Case::new(
            "no template",
            with("spec.template", Value::Null),
            fleet(&[]),
            "spec.template",
            "Required value",
        )
        .by_schema(),
        extra(
            "a grant in a template",
            "spec.template.spec.grantedHash",
            "v1:00".into(),
            "grantedHash is written by Windlass",
        ),
        extra(
            "a grant's ID in a template",
            "spec.template.spec.grantID",
            "1".into(),
            "grantID is written by Windlass",
        ),
        extra(
            "suspend in a template",
            "spec.template.spec.suspend",
            true.into(),
            "suspend cannot be set for a whole NodeDeployment",
        ),
        extra("a bad build ID", build_id, "-v1".into(), bad_build_id),
        extra("a build ID of 64 characters", build_id, "b".repeat(64).into(), bad_build_id),
        extra(
            "a build ID with InPlace",
            build_id,
            "v1".into(),
            "unsafeCustomBuildID cannot be used with updateStrategy.type InPlace",
        ),
    ]
}

fn node_fields() -> Vec<Case> {
    let with = |path: &str, value: Value| node(&[(path, value)]);
    let sidecar = |value: Value| with("spec.sidecar", value);
    vec![
        Case::new(
            "a main container that is not in a node's pod template",
            with("spec.mainContainer", "other".into()),
            with("spec.mainContainer", "helper".into()),
            "spec.mainContainer",
            "mainContainer is not one of podTemplate.spec.containers",
        ),
        Case::new(
            "a main container that is not in a fleet's pod template",
            fleet(&[("spec.template.spec.mainContainer", "other".into())]),
            fleet(&[("spec.template.spec.mainContainer", "helper".into())]),
            "spec.template.spec.mainContainer",
            "mainContainer is not one of podTemplate.spec.containers",
        ),
        Case::new(
            "no progress deadline at all",
            with("spec.progressDeadlineSeconds", 0.into()),
            with("spec.progressDeadlineSeconds", 1.into()),
            "spec.progressDeadlineSeconds",
            "should be greater than or equal to 1",
        )
        .by_schema(),
        Case::new(
            "an unknown claim retention",
            with("spec.volumeClaimRetention", "Keep".into()),
            with("spec.volumeClaimRetention", "Delete".into()),
            "spec.volumeClaimRetention",
            r#"supported values: "Retain", "Delete""#,
        )
        .by_schema(),
        Case::new(
            "a sidecar without an image",
            sidecar(json!({"port": 7777})),
            sidecar(json!({"image": "s:1"})),
            "spec.sidecar.image",
            "Required value",
        )
        .by_schema(),
        Case::new(
            "a sidecar's port out of range",
            sidecar(json!({"image": "s:1", "port": 65_536})),
            sidecar(json!({"image": "s:1", "port": 65_535})),
            "spec.sidecar.port",
            "should be less than or equal to 65535",
        )
        .by_schema(),
    ]
}

fn template_fields() -> Vec<Case> {
    let of_fleet =
        |path: &str, value: Value| fleet(&[(&format!("spec.template.spec.podTemplate.{path}"), value)]);
    let of_node = |path: &str, value: Value| node(&[(&format!("spec.podTemplate.{path}"), value)]);
    let empty = "podTemplate.spec.containers is empty: give at least one container";
    let named = |name: &str| json!([{"name": name, "image": "x:1"}]);
    let reserved = "podTemplate has a container named windlass-sidecar";
    vec![
        Case::new(
            "a node without containers",
            of_node("spec.containers", json!([])),
            node(&[]),
            "spec.podTemplate.spec.containers",
            empty,
        ),
        Case::new(
            "a fleet without containers",
            of_fleet("spec.containers", json!([])),
            fleet(&[]),
            "spec.template.spec.podTemplate.spec.containers",
            empty,
        ),
        Case::new(
            "a pod template without a spec",
            of_node("spec", Value::Null),
            node(&[]),
            "spec.podTemplate.spec",
            "Required value",
        )
        .by_schema(),
        Case::new(
            "a pod's spec without a list of containers",
            of_node("spec.containers", Value::Null),
            node(&[]),
            "spec.podTemplate.spec.containers",
            "Required value",
        )
        .by_schema(),
        Case::new(
            "a node without a pod template",
            node(&[("spec.podTemplate", Value::Null)]),
            node(&[]),
            "spec.podTemplate",
            "Required value",
        )
        .by_schema(),
        Case::new(
            "a container without a name",
            of_node("spec.containers", json!([{"image": "x:1"}])),
            of_node("spec.containers", named("x")),
            "spec.podTemplate.spec.containers[0].name",
            "Required value",
        )
        .by_schema(),
        Case::new(
            "a container that has the sidecar's name",
            of_node("spec.containers", named("windlass-sidecar")),
            of_node("spec.containers", named("sidecar")),
            "spec.podTemplate.spec.containers[0].name",
            reserved,
        ),
        Case::new(
            "an init container that has the sidecar's name",
            of_fleet("spec.initContainers", named("windlass-sidecar")),
            of_fleet("spec.initContainers", named("sidecar")),
            "spec.template.spec.podTemplate.spec.initContainers[0].name",
            reserved,
        ),
    ]
}

fn ports() -> Vec<Case> {
    let service = |ports: Value| fleet(&[("spec.service", json!({"ports": ports}))]);
    let headless = |ports: Value| node(&[("spec.ports", ports)]);
    let two = |first: &str, second: &str| json!([{"name": first, "port": 80}, {"name": second, "port": 81}]);
    let unnamed = json!([{"port": 80}, {"name": "b", "port": 81}]);
    let target = |target: Value| json!([{"port": 80, "targetPort": target}]);
    let target_says = "targetPort has to be a number from 1 to 65535, or the name of a container's port";
    vec![
        Case::new(
            "a Service without ports",
            service(json!([])),
            service(json!([{"port": 80}])),
            "spec.service.ports",
            "service.ports is empty",
        ),
        Case::new(
            "several ports of a Service, one without a name",
            service(unnamed.clone()),
            service(two("a", "b")),
            "spec.service.ports",
            "service.ports has several ports: give each a name",
        ),
        Case::new(
            "two ports of a Service of one name",
            service(two("a", "a")),
            service(two("a", "b")),
            "spec.service.ports",
            "service.ports has two ports of one name",
        ),
        Case::new(
            "a Service's target port out of range",
            service(target(0.into())),
            service(target(65_535.into())),
            "spec.service.ports[0].targetPort",
            target_says,
        ),
        Case::new(
            "several ports of a node, one without a name",
            headless(unnamed),
            headless(two("a", "b")),
            "spec.ports",
            "ports has several ports: give each a name",
        ),
        Case::new(
            "two ports of a node of one name",
            headless(two("a", "a")),
            headless(two("a", "b")),
            "spec.ports",
            "ports has two ports of one name",
        ),
        Case::new(
            "a node's target port that is no name",
            headless(target("web--rpc".into())),
            headless(target("web-rpc".into())),
            "spec.ports[0].targetPort",
            target_says,
        ),
        Case::new(
            "one port and protocol twice in a Service",
            service(json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "TCP"}])),
            service(json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}])),
            "spec.service.ports",
            "service.ports has one port and protocol twice",
        ),
        Case::new(
            "one port and protocol twice in a node",
            headless(json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "TCP"}])),
            headless(json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}])),
            "spec.ports",
            "ports has one port and protocol twice",
        ),
        Case::new(
            "a port's name with an underscore",
            headless(two("a_1", "b")),
            headless(two("a-1", "b")),
            "spec.ports[0].name",
            "the port's name has to be lowercase letters, digits and dashes",
        ),
        Case::new(
            "port 0",
            headless(json!([{"port": 0}])),
            headless(json!([{"port": 1}])),
            "spec.ports[0].port",
            "should be greater than or equal to 1",
        )
        .by_schema(),
        Case::new(
            "an unknown protocol",
            headless(json!([{"port": 1, "protocol": "QUIC"}])),
            headless(json!([{"port": 1, "protocol": "UDP"}])),
            "spec.ports[0].protocol",
            r#"supported values: "TCP", "UDP", "SCTP""#,
        )
        .by_schema(),
    ]
}

fn claims() -> Vec<Case> {
    let of_fleet = |claims: Value| fleet(&[("spec.template.spec.volumeClaimTemplates", claims)]);
    let of_node = |claims: Value| node(&[("spec.volumeClaimTemplates", claims)]);
    let one = || json!([claim("data", "1Gi")]);
    let labelled = || {
        let mut claim = claim("data", "1Gi");
        claim["metadata"]["labels"] = json!({"tier": "gold"});
        json!([claim])
    };
    let many = |count: usize| (0..count).map(|n| claim(&format!("c{n}"), "1Gi")).collect::<Value>();
    let fleet_field = "spec.template.spec.volumeClaimTemplates";
    let fleet_says = "volumeClaimTemplates cannot change where nodes are updated in place";
    let node_field = "spec.volumeClaimTemplates";
    let node_says = "volumeClaimTemplates cannot change: a node keeps the volumes it was made with";
    let twice = "volumeClaimTemplates has two claims of one name";
    let changes = [
        ("a larger claim", one(), json!([claim("data", "2Gi")])),
        ("another claim's name", one(), json!([claim("wal", "1Gi")])),
        ("one more claim", one(), json!([claim("data", "1Gi"), claim("wal", "1Gi")])),
        ("a first claim", Value::Null, one()),
        ("no claim any more", one(), Value::Null),
        ("a claim with a label that it did not have", one(), labelled()),
        ("a claim without a label that it had", labelled(), one()),
    ];
    let mut cases = vec![
        Case::new(
            "two claims of one name in a fleet",
            of_fleet(json!([claim("a", "1Gi"), claim("a", "2Gi")])),
            of_fleet(json!([claim("a", "1Gi"), claim("b", "1Gi")])),
            fleet_field,
            twice,
        ),
        Case::new(
            "two claims of one name in a node",
            of_node(json!([claim("a", "1Gi"), claim("a", "2Gi")])),
            of_node(json!([claim("a", "1Gi"), claim("b", "1Gi")])),
            node_field,
            twice,
        ),
        Case::new(
            "17 claims",
            of_node(many(17)),
            of_node(many(16)),
            node_field,
            "must have at most 16 items",
        )
        .by_schema(),
        Case::new(
            "a claim without a name",
            of_node(json!([{"metadata": {}, "spec": {}}])),
            of_node(one()),
            "spec.volumeClaimTemplates[0].metadata.name",
            "Required value",
        )
        .by_schema(),
    ];
    let emptied = of_node(json!([]));
    cases.push(
        Case::new(
            "a first claim after an empty list",
            of_node(one()),
            of_node(Value::Null),
            node_field,
            node_says,
        )
        .after(emptied),
    );
    let emptied = of_fleet(json!([]));
    cases.push(
        Case::new(
            "a first claim after an empty list",
            of_fleet(one()),
            of_fleet(Value::Null),
            fleet_field,
            fleet_says,
        )
        .after(emptied),
    );
    for (name, before, after) in changes {
        let unchanged = |mut object: Value| {
            object["metadata"]["labels"] = json!({"touched": "yes"});
            object
        };
        let (old, bad) = (of_fleet(before.clone()), of_fleet(after.clone()));
        cases.push(Case::new(name, bad, unchanged(old.clone()), fleet_field, fleet_says).after(old));
        let (old, bad) = (of_node(before), of_node(after));
        cases.push(Case::new(name, bad, unchanged(old.clone()), node_field, node_says).after(old));
    }
    cases
}

fn not_yet() -> Vec<Case> {
    let with = |path: &str, value: Value| fleet(&[(path, value)]);
    let type_ = "spec.updateStrategy.type";
    vec![
        Case::new(
            "BlueGreen",
            with(type_, "BlueGreen".into()),
            fleet(&[]),
            type_,
            "updateStrategy.type BlueGreen is not available in this version",
        ),
        Case::new(
            "HardFork",
            fleet(&[(type_, "HardFork".into()), ("spec.updateStrategy.hardFork.haltHeight", 7.into())]),
            fleet(&[]),
            type_,
            "updateStrategy.type HardFork is not available in this version",
        ),
        Case::new(
            "a forced promotion",
            with("spec.forcePromote", "v1:00".into()),
            with("spec.forcePromote", "".into()),
            "spec.forcePromote",
            "forcePromote is not available in this version",
        ),
        Case::new(
            "a build ID",
            with("spec.unsafeCustomBuildID", "v1".into()),
            with("spec.unsafeCustomBuildID", "".into()),
            "spec.unsafeCustomBuildID",
            "unsafeCustomBuildID is not available in this version",
        ),
        Case::new(
            "a sidecar's token",
            node(&[("spec.sidecar", json!({"image": "s:1", "tokenSecret": "t"}))]),
            node(&[("spec.sidecar", json!({"image": "s:1"}))]),
            "spec.sidecar.tokenSecret",
            "sidecar authentication is not available in this version",
        ),
    ]
}
