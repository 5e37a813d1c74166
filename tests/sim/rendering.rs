//! The complete objects of a node and a fleet. A field that appears or disappears here is written to every existing
//! object at the next upgrade of Windlass.

use serde::Deserialize;
use serde_json::{Value, json};
use windlass::api::{DeletionPolicy, Port, StatefulNodeSpec, TemplateMeta};
use windlass_core::render::{
    FleetIdentity, NodeIdentity, RenderOptions, earlier_template, fleet_service, headless_service, made_for,
    pod_template, stateful_set, stateful_set_template,
};
use windlass_core::revision::{pod_template_hash, revision_label};

fn owned_node() -> NodeIdentity {
    NodeIdentity {
        name: "db-0".to_owned(),
        namespace: "prod".to_owned(),
        uid: "u-1".to_owned(),
        deployment: Some("db".to_owned()),
        set: Some("first".to_owned()),
        metadata: TemplateMeta {
            labels: [("team".to_owned(), "storage".to_owned())].into(),
            annotations: [("note".to_owned(), "node".to_owned())].into(),
        },
    }
}

fn lone_node() -> NodeIdentity {
    NodeIdentity {
        name: "solo".to_owned(),
        namespace: "prod".to_owned(),
        uid: "u-2".to_owned(),
        ..NodeIdentity::default()
    }
}

fn spec(value: Value) -> StatefulNodeSpec {
    StatefulNodeSpec::deserialize(value).unwrap()
}

fn full_spec() -> StatefulNodeSpec {
    spec(json!({
        "image": "db:2",
        "podTemplate": {
            "metadata": {"labels": {"app": "db", "app.kubernetes.io/managed-by": "Helm", "windlass.dev/node": "forged"}},
            "spec": {"containers": [{"name": "db", "futureField": null}]},
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "futureField": {}}],
        "volumeClaimRetention": "Delete",
        "ports": [{"name": "sql", "port": 5432}, {"name": "web", "port": 80, "targetPort": "http", "protocol": "TCP"}],
        "serviceAnnotations": {"dns": "db.example", "note": "service", "windlass.dev/abort": "x"},
    }))
}

#[test]
fn fleet_node_stateful_set_is_rendered_completely() {
    let (identity, spec) = (owned_node(), full_spec());
    let template = pod_template(&spec, None, &RenderOptions::default()).unwrap();
    let own = json!({
        "app.kubernetes.io/managed-by": "windlass",
        "windlass.dev/deployment": "db",
        "windlass.dev/node": "db-0",
        "windlass.dev/set": "first",
    });
    let with = |key: &str, value: &str| {
        let mut labels = own.clone();
        labels[key] = json!(value);
        labels
    };
    let of_pod = |revision: &str| {
        json!({
            "app": "db",
            "app.kubernetes.io/managed-by": "Helm",
            "windlass.dev/deployment": "db",
            "windlass.dev/node": "db-0",
            "windlass.dev/ordinal": "0",
            "windlass.dev/revision": revision,
            "windlass.dev/set": "first",
        })
    };
    let expected = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "db-0",
            "namespace": "prod",
            "labels": with("team", "storage"),
            "annotations": {
                "note": "node",
                "windlass.dev/applied-metadata": "{\"annotations\":[\"note\"],\"labels\":[\"team\"]}",
                "windlass.dev/pod-template-hash": "v1:hash",
            },
            "ownerReferences": [{
                "apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulNode", "name": "db-0", "uid": "u-1",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "replicas": 1,
            "serviceName": "db-0",
            "selector": {"matchLabels": {"windlass.dev/node": "db-0"}},
            "updateStrategy": {"type": "OnDelete"},
            "podManagementPolicy": "OrderedReady",
            "revisionHistoryLimit": 3,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "template": {
                "metadata": {"labels": of_pod(&revision_label(&spec)), "annotations": {
                    "windlass.dev/image": "db:2",
                    "windlass.dev/main-container": "db",
                    "windlass.dev/pod-template-hash": "v1:hash",
                }},
                "spec": {"containers": [{"name": "db", "image": "db:2", "futureField": null}]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "futureField": {}}],
        },
    });
    let rendered = stateful_set(&identity, &spec, &template, &"v1:hash".into());
    assert_eq!(rendered, expected);
    let made_for = made_for(&spec, &"v1:hash".into());
    let stored = stateful_set_template(&identity, &spec, &template, &made_for);
    assert_eq!(stored, expected["spec"]["template"]);
    let as_before = &earlier_template(&identity, &template, None)["metadata"];
    assert_eq!(*as_before, json!({"labels": with("app", "db")}));
    let forged = json!({"metadata": {"labels": {"app": "db", "windlass.dev/set": "forged"}}});
    assert_eq!(earlier_template(&identity, &forged, None)["metadata"]["labels"], with("app", "db"));
}

#[test]
fn pods_of_a_revision_share_its_label_and_keep_their_ordinals() {
    let of = |node: &str, spec: &StatefulNodeSpec, restart: Option<&str>| {
        let identity = NodeIdentity { name: node.to_owned(), ..owned_node() };
        let template = pod_template(spec, restart, &RenderOptions::default()).unwrap();
        let made_for = made_for(spec, &pod_template_hash(&template));
        let labels =
            stateful_set_template(&identity, spec, &template, &made_for)["metadata"]["labels"].clone();
        let text = |key: &str| labels[key].as_str().map(str::to_owned);
        (text("windlass.dev/ordinal"), text("windlass.dev/revision").unwrap())
    };
    let (one, other) = (full_spec(), StatefulNodeSpec { image: "db:3".to_owned(), ..full_spec() });
    let first = of("db-0", &one, None);
    assert_eq!(first.0.as_deref(), Some("0"));
    assert!(first.1.len() == 10 && first.1.bytes().all(|b| b.is_ascii_hexdigit()), "{first:?}");
    assert_eq!(of("db-12", &one, None), (Some("12".to_owned()), first.1.clone()));
    assert_eq!(of("db-a1b2c-3", &one, None), (Some("3".to_owned()), first.1.clone()), "of another set");
    assert_eq!(of("db-0", &one, Some("now")), first, "a restart is no revision");
    assert_eq!(of("solo", &one, None), (None, first.1.clone()), "no node of the fleet's names");
    assert_ne!(of("db-0", &other, None).1, first.1);
    let claims = StatefulNodeSpec { volume_claim_templates: vec![json!({})].into(), ..full_spec() };
    assert_ne!(of("db-0", &claims, None).1, first.1);
}

/// The security context of the sidecar in a pod whose own is `pod`, with `own` in `sidecar.securityContext`.
fn sidecars_context(pod: &Value, own: &Value) -> Value {
    let spec = spec(json!({
        "podTemplate": {"spec": {"securityContext": pod, "containers": [{"name": "db"}]}},
        "sidecar": {"image": "windlass:1", "securityContext": own},
    }));
    let template = pod_template(&spec, None, &RenderOptions::default()).unwrap();
    let hashed = &template["spec"]["initContainers"][0]["securityContext"];
    let was = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    assert_eq!(*hashed == was, own.is_null(), "the defaults are outside of the hash: {hashed}");
    let made_for = made_for(&spec, &pod_template_hash(&template));
    let stored = stateful_set_template(&owned_node(), &spec, &template, &made_for);
    stored["spec"]["initContainers"][0]["securityContext"].clone()
}

#[test]
fn sidecar_runs_restricted_unless_the_user_overrides_it() {
    let all = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let with = |changes: Value| {
        let mut context = all.clone();
        for (key, value) in changes.as_object().unwrap() {
            context[key] = value.clone();
        }
        context.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        context
    };
    let none = json!(null);
    let table = [
        (none.clone(), none.clone(), all.clone()),
        (json!({"runAsUser": 999, "fsGroup": 999}), none.clone(), all.clone()),
        (json!({"runAsNonRoot": false}), none.clone(), all.clone()),
        // It could not start as root.
        (json!({"runAsUser": 0}), none.clone(), with(json!({"runAsNonRoot": null}))),
        (json!({"runAsUser": 0}), json!({"runAsUser": 7}), with(json!({"runAsUser": 7}))),
        (none.clone(), json!({"runAsUser": 0}), with(json!({"runAsUser": 0, "runAsNonRoot": null}))),
        (
            none,
            json!({"readOnlyRootFilesystem": false, "capabilities": {"add": ["SYS_TIME"]}}),
            with(json!({"readOnlyRootFilesystem": false, "capabilities": {"add": ["SYS_TIME"]}})),
        ),
    ];
    for (pod, own, expected) in table {
        assert_eq!(sidecars_context(&pod, &own), expected, "{pod} {own}");
    }
}

#[test]
fn standalone_node_stateful_set_is_rendered_completely() {
    let spec = spec(json!({"podTemplate": {"spec": {"containers": [{"name": "main"}]}}}));
    let template = pod_template(&spec, None, &RenderOptions::default()).unwrap();
    let set = stateful_set(&lone_node(), &spec, &template, &"v1:hash".into());
    let own = json!({"app.kubernetes.io/managed-by": "windlass", "windlass.dev/node": "solo"});
    assert_eq!(set["metadata"]["labels"], own);
    assert_eq!(set["metadata"]["annotations"], json!({"windlass.dev/pod-template-hash": "v1:hash"}));
    let of_pod = json!({"windlass.dev/node": "solo", "windlass.dev/revision": revision_label(&spec)});
    assert_eq!(set["spec"]["template"]["metadata"]["labels"], of_pod);
    assert_eq!(set["spec"].get("volumeClaimTemplates"), None);
}

#[test]
fn suspended_node_has_zero_replicas() {
    let spec = StatefulNodeSpec { suspend: true, ..full_spec() };
    assert_eq!(
        stateful_set(&owned_node(), &spec, &json!({}), &"v1:hash".into())["spec"]["replicas"],
        json!(0)
    );
}

#[test]
fn node_identity_does_not_change_the_hash() {
    for metadata in [json!({"labels": {"app": "db"}}), json!({"labels": null}), json!(null)] {
        let spec =
            spec(json!({"podTemplate": {"metadata": metadata, "spec": {"containers": [{"name": "db"}]}}}));
        let template = pod_template(&spec, Some("2026-01-01T00:00:00Z"), &RenderOptions::default()).unwrap();
        let hash = pod_template_hash(&template);
        for identity in [owned_node(), lone_node()] {
            let made_for = made_for(&spec, &hash);
            let stored =
                [None, Some(&made_for)].map(|made_for| earlier_template(&identity, &template, made_for));
            let now = stateful_set_template(&identity, &spec, &template, &made_for);
            for stored in stored.into_iter().chain([now]) {
                assert_ne!(stored, template);
                assert_eq!(pod_template_hash(&stored), hash);
            }
        }
    }
}

#[test]
fn headless_node_service_is_rendered_completely() {
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "db-0",
            "namespace": "prod",
            "labels": {
                "app.kubernetes.io/managed-by": "windlass",
                "team": "storage",
                "windlass.dev/deployment": "db",
                "windlass.dev/node": "db-0",
                "windlass.dev/set": "first",
            },
            "annotations": {
                "dns": "db.example",
                "note": "service",
                "windlass.dev/applied-metadata": "{\"annotations\":[\"dns\",\"note\"],\"labels\":[\"team\"]}",
            },
            "ownerReferences": [{
                "apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulNode", "name": "db-0", "uid": "u-1",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": {"windlass.dev/node": "db-0"},
            "ports": [
                {"name": "sql", "port": 5432},
                {"name": "web", "port": 80, "targetPort": "http", "protocol": "TCP"},
            ],
        },
    });
    assert_eq!(headless_service(&owned_node(), &full_spec()), expected);
    let portless = StatefulNodeSpec { ports: Vec::new(), ..full_spec() };
    assert_eq!(headless_service(&owned_node(), &portless)["spec"].get("ports"), None);
}

#[test]
fn fleet_service_selects_the_active_set() {
    let mut fleet = FleetIdentity {
        name: "db".to_owned(),
        namespace: "prod".to_owned(),
        uid: "u-3".to_owned(),
        deletion_policy: DeletionPolicy::Delete,
    };
    let metadata = TemplateMeta {
        labels: [("team".to_owned(), "storage".to_owned())].into(),
        ..TemplateMeta::default()
    };
    let ports = [Port { name: "sql".to_owned(), port: 5432, ..Port::default() }];
    let service = fleet_service(&fleet, &metadata, &ports, &"a1b2c".into());
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "db",
            "namespace": "prod",
            "labels": {
                "app.kubernetes.io/managed-by": "windlass", "team": "storage", "windlass.dev/deployment": "db",
            },
            "annotations": {"windlass.dev/applied-metadata": "{\"annotations\":[],\"labels\":[\"team\"]}"},
            "ownerReferences": [{
                "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "name": "db", "uid": "u-3",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "type": "ClusterIP",
            "selector": {"windlass.dev/deployment": "db", "windlass.dev/set": "a1b2c"},
            "ports": [{"name": "sql", "port": 5432}],
        },
    });
    assert_eq!(service, expected);

    fleet.deletion_policy = DeletionPolicy::Retain;
    let retained = fleet_service(&fleet, &TemplateMeta::default(), &ports, &"a1b2c".into());
    assert_eq!(retained["metadata"]["ownerReferences"], json!([]));
    assert_eq!(retained["metadata"]["annotations"], json!({"windlass.dev/owner-uid": "u-3"}));
}
