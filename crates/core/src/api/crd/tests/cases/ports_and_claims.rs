//! Ports of Services, and volume claims.

use serde_json::{Value, json};

use super::{Case, claim, fleet, node};

pub(super) fn ports() -> Vec<Case> {
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
            "service.ports has two ports with the same name",
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
            "ports has two ports with the same name",
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
            "service.ports has two entries with the same port and protocol",
        ),
        Case::new(
            "one port and protocol twice in a node",
            headless(json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "TCP"}])),
            headless(json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}])),
            "spec.ports",
            "ports has two entries with the same port and protocol",
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

pub(super) fn claims() -> Vec<Case> {
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
    let fleet_says = "volumeClaimTemplates cannot change if nodes are updated in place";
    let node_field = "spec.volumeClaimTemplates";
    let node_says = "volumeClaimTemplates cannot change: a node keeps the volumes that it was created with";
    let twice = "volumeClaimTemplates has two claims with the same metadata.name";
    let changes = [
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

/// Claims that are written otherwise. Which defaults the API server has, no rule knows: fields may be added and removed, and
/// the order may change.
pub(super) fn rewritten_claims() -> Vec<Case> {
    let of_fleet = |claims: Value| fleet(&[("spec.template.spec.volumeClaimTemplates", claims)]);
    let of_class = |class: &str| {
        let mut claim = claim("data", "1Gi");
        claim["spec"]["storageClassName"] = json!(class);
        claim
    };
    let mut written_out = of_class("slow");
    written_out["kind"] = json!("PersistentVolumeClaim");
    written_out["apiVersion"] = json!("v1");
    written_out["spec"]["volumeMode"] = json!("Filesystem");
    written_out["status"] = json!({"phase": "Pending"});
    let (field, says) = (
        "spec.template.spec.volumeClaimTemplates",
        "volumeClaimTemplates cannot change if nodes are updated in place",
    );
    let case = Case::new(
        "a claim of another class",
        of_fleet(json!([claim("wal", "1Gi"), of_class("fast")])),
        of_fleet(json!([claim("wal", "1Gi"), written_out])),
        field,
        says,
    );
    let grown = |class: &str| {
        let mut claim = of_class(class);
        claim["spec"]["resources"]["requests"]["storage"] = json!("1.5Ti");
        claim
    };
    vec![
        case.after(of_fleet(json!([of_class("slow"), claim("wal", "1Gi")]))),
        // The operator compares sizes.
        Case::new(
            "a larger size and another class",
            of_fleet(json!([grown("fast")])),
            of_fleet(json!([grown("slow")])),
            field,
            says,
        )
        .after(of_fleet(json!([of_class("slow")]))),
    ]
}
