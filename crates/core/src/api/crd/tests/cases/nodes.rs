//! Fields of a node, alone or as a fleet's template: its pod template and sidecar.

use serde_json::{Value, json};

use super::{Case, fleet, node};

#[allow(clippy::too_many_lines, reason = "one table of cases")]
pub(super) fn node_fields() -> Vec<Case> {
    let with = |path: &str, value: Value| node(&[(path, value)]);
    let sidecar = |value: Value| with("spec.sidecar", value);
    let mounts = |count: usize| json!(vec![json!({"name": "data", "mountPath": "/data"}); count]);
    vec![
        Case::new(
            "a main container that is not in a node's pod template",
            with("spec.mainContainer", "other".into()),
            with("spec.mainContainer", "helper".into()),
            "spec.mainContainer",
            "mainContainer is not the name of a container in podTemplate.spec.containers",
        ),
        Case::new(
            "a main container that is not in a fleet's pod template",
            fleet(&[("spec.template.spec.mainContainer", "other".into())]),
            fleet(&[("spec.template.spec.mainContainer", "helper".into())]),
            "spec.template.spec.mainContainer",
            "mainContainer is not the name of a container in podTemplate.spec.containers",
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
            "a sidecar without an image and a URL",
            sidecar(json!({"port": 7777})),
            sidecar(json!({"url": "http://monitor/{name}"})),
            "spec.sidecar.image",
            "sidecar needs an image, which Windlass injects into the pod, or the url",
        ),
        Case::new(
            "a fleet's sidecar with an empty image and no URL",
            fleet(&[("spec.template.spec.sidecar", json!({"image": ""}))]),
            fleet(&[("spec.template.spec.sidecar", json!({"image": "s:1"}))]),
            "spec.template.spec.sidecar.image",
            "sidecar needs an image, which Windlass injects into the pod, or the url",
        ),
        Case::new(
            "more arguments than a sidecar may have",
            sidecar(json!({"image": "s:1", "args": vec!["7"; 65]})),
            sidecar(json!({"image": "s:1", "args": vec!["7"; 64]})),
            "spec.sidecar.args",
            "must have at most 64 items",
        )
        .by_schema(),
        Case::new(
            "a sidecar's variable without a name",
            sidecar(json!({"image": "s:1", "env": [{"value": "a"}]})),
            sidecar(json!({"image": "s:1", "env": [{"name": "A", "value": "a"}]})),
            "spec.sidecar.env[0].name",
            "Required value",
        )
        .by_schema(),
        Case::new(
            "more mounts than a sidecar may have",
            sidecar(json!({"image": "s:1", "volumeMounts": mounts(65)})),
            sidecar(json!({"image": "s:1", "volumeMounts": mounts(64)})),
            "spec.sidecar.volumeMounts",
            "must have at most 64 items",
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
        Case::new(
            "a placeholder that nothing fills in",
            sidecar(json!({"image": "s:1", "url": "http://{host}:{port}"})),
            sidecar(json!({"image": "s:1", "url": "http://{podIP}:{port}/{namespace}/{name}"})),
            "spec.sidecar.url",
            "the only placeholders are {name}, {namespace}, {port} and {podIP}",
        ),
        Case::new(
            "a scheme that a sidecar does not speak",
            sidecar(json!({"image": "s:1", "url": "grpc://{podIP}"})),
            sidecar(json!({"image": "s:1", "url": "https://{podIP}"})),
            "spec.sidecar.url",
            "sidecar.url is not a valid URL: it has to begin with http:// or https://",
        ),
        Case::new(
            "TLS settings for a URL without TLS",
            sidecar(json!({"image": "s:1", "url": "http://{podIP}", "tls": {"caSecret": "ca"}})),
            sidecar(json!({"image": "s:1", "url": "https://{podIP}", "tls": {"caSecret": "ca"}})),
            "spec.sidecar.tls",
            "sidecar.tls needs a sidecar.url with https://",
        ),
        Case::new(
            "a Secret without a name for a sidecar",
            sidecar(json!({"image": "s:1", "auth": {"bearerSecret": ""}})),
            sidecar(json!({"image": "s:1", "auth": {"bearerSecret": "b"}})),
            "spec.sidecar.auth.bearerSecret",
            "should be at least 1 chars long",
        )
        .by_schema(),
        Case::new(
            "two tokens for a sidecar",
            sidecar(json!({"image": "s:1", "tokenSecret": "a", "auth": {"bearerSecret": "b"}})),
            sidecar(json!({"image": "s:1", "tokenSecret": "", "auth": {"bearerSecret": "b"}})),
            "spec.sidecar.auth",
            "sidecar.auth replaces sidecar.tokenSecret: remove one of them",
        ),
        Case::new(
            "two kinds of credentials for a sidecar",
            sidecar(json!({"image": "s:1", "auth": {"bearerSecret": "a", "basicSecret": "b"}})),
            sidecar(json!({"image": "s:1", "auth": {"basicSecret": "b"}})),
            "spec.sidecar.auth",
            "sidecar.auth needs either bearerSecret or basicSecret",
        ),
        Case::new(
            "a name that no Secret can have",
            sidecar(json!({"image": "s:1", "tokenSecret": "my/token"})),
            sidecar(json!({"image": "s:1", "tokenSecret": "my.token"})),
            "spec.sidecar.tokenSecret",
            "sidecar.tokenSecret is not a valid name of a Secret",
        ),
    ]
}

pub(super) fn template_fields() -> Vec<Case> {
    let of_fleet =
        |path: &str, value: Value| fleet(&[(&format!("spec.template.spec.podTemplate.{path}"), value)]);
    let of_node = |path: &str, value: Value| node(&[(&format!("spec.podTemplate.{path}"), value)]);
    let empty = "podTemplate.spec.containers is empty: add at least one container";
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
        Case::new(
            "a label that Windlass sets on pods",
            of_fleet("metadata", json!({"labels": {"windlass.dev/ordinal": "7"}})),
            of_fleet("metadata", json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}})),
            "spec.template.spec.podTemplate.metadata.labels",
            "podTemplate.metadata.labels has a reserved label",
        ),
        Case::new(
            "a label that the StatefulSet controller sets on pods",
            of_node("metadata", json!({"labels": {"apps.kubernetes.io/pod-index": "7"}})),
            // A fleet makes this node of a template from before the rule.
            node(&[
                ("spec.grantedHash", format!("v1:{}", "0".repeat(64)).into()),
                ("spec.podTemplate.metadata", json!({"labels": {"apps.kubernetes.io/pod-index": "7"}})),
            ]),
            "spec.podTemplate.metadata.labels",
            "podTemplate.metadata.labels has a reserved label",
        ),
        Case::new(
            "an annotation that Windlass sets on pods",
            of_fleet("metadata", json!({"annotations": {"windlass.dev/image": "db:1"}})),
            of_fleet(
                "metadata",
                json!({"annotations": {"windlass.dev/restartedAt": "2030-01-01T00:00:00Z"}}),
            ),
            "spec.template.spec.podTemplate.metadata.annotations",
            "podTemplate.metadata.annotations has a reserved annotation",
        ),
    ]
}

/// A port that a container and the injected sidecar would both listen on.
pub(super) fn sidecar_ports() -> Vec<Case> {
    let says =
        "sidecar.port is already a port of a container in podTemplate: set sidecar.port to a free port";
    let containers =
        |port: Value| json!([{"name": "main", "image": "app:1"}, {"name": "helper", "ports": [port]}]);
    let of_node = |port: Value, sidecar: Value| {
        node(&[("spec.podTemplate.spec.containers", containers(port)), ("spec.sidecar", sidecar)])
    };
    let of_fleet = |field: &str, port: Value, sidecar: Value| {
        let list = json!([{"name": "seed", "image": "app:1", "ports": [port]}]);
        let field = format!("spec.template.spec.podTemplate.spec.{field}");
        fleet(&[(&field, list), ("spec.template.spec.sidecar", sidecar)])
    };
    vec![
        Case::new(
            "a container at the sidecar's default port",
            of_node(json!({"containerPort": 7777}), json!({"image": "windlass:1"})),
            of_node(json!({"containerPort": 7777}), json!({"image": "windlass:1", "port": 7778})),
            "spec.sidecar",
            says,
        ),
        Case::new(
            "a container at the sidecar's own port",
            of_fleet(
                "containers",
                json!({"containerPort": 80, "protocol": "TCP"}),
                json!({"image": "w:1", "port": 80}),
            ),
            of_fleet(
                "containers",
                json!({"containerPort": 80, "protocol": "UDP"}),
                json!({"image": "w:1", "port": 80}),
            ),
            "spec.template.spec.sidecar",
            says,
        ),
        Case::new(
            "a container that gets the sidecar's port",
            of_fleet("containers", json!({"containerPort": 7777}), json!({"image": "w:2"})),
            of_fleet("containers", json!({"containerPort": 7778}), json!({"image": "w:2"})),
            "spec.template.spec.sidecar",
            says,
        )
        .after(of_fleet("containers", json!({"containerPort": 80}), json!({"image": "w:1"}))),
        Case::new(
            "an init container at the sidecar's port, which starts before it",
            of_fleet("initContainers", json!({"containerPort": 7777}), json!({"image": "w:1"})),
            of_fleet("initContainers", json!({"containerPort": 7777}), json!({"url": "http://{podIP}:7777"})),
            "spec.template.spec.sidecar",
            says,
        ),
    ]
}
