//! Meaningful values that the schema does not know: names of containers and claims, and images that the simulated
//! kubelets understand.

use serde_json::{Value, json};
use windlass_sim::Random;

use crate::walks::schema::one;

/// The most nodes of a walk: what holds for four holds for ten thousand, and walks are many.
pub const MOST_NODES: u64 = 4;
/// The height of halts; fake applications are at 500 before.
const HEIGHT: i64 = 1000;

/// Images of which some run and some do not.
pub const RUN: [&str; 4] = ["db:1", "db:2", "db:3", "registry.test/shop/db:4"];
pub const FAIL: [&str; 6] =
    ["db:5-nope", "db:6-crash", "db:7-unready", "db:8-slow", "db:9-crash-loop", "db:9-pull-loop"];

/// A pod template of one container.
pub fn pod_template(random: &mut Random) -> Value {
    let mut container = json!({"name": "db", "image": *one(&RUN, random)});
    if random.between(0, 2) == 0 {
        container["env"] = json!([{"name": "SPEED", "value": random.between(1, 3).to_string()}]);
    }
    let mut containers = vec![container];
    if random.between(0, 4) == 0 {
        containers.push(json!({"name": "log", "image": "log:1"}));
    }
    json!({"metadata": metadata(random), "spec": {"terminationGracePeriodSeconds": 1, "containers": containers}})
}

/// A pod's own metadata, with the annotation for the sidecar's probe.
fn metadata(random: &mut Random) -> Value {
    let mut annotations = json!({"windlass.test/sidecar-url": "http://{podIP}:7777"});
    if random.between(0, 3) == 0 {
        annotations["checksum/config"] = random.between(1, 3).to_string().into();
    }
    json!({"annotations": annotations})
}

/// A claim of this name.
pub fn claim(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// A valid value of a field that the schema does not describe well enough.
pub fn good(path: &str, random: &mut Random) -> Option<Value> {
    let last = path.rsplit('.').next().unwrap_or(path);
    Some(match path {
        "replicas" => random.between(0, MOST_NODES).into(),
        "minReadySeconds" => json!(*one(&[0, 1, 5, 30], random)),
        "revisionHistoryLimit" => random.between(0, 3).into(),
        "forcePromote" => json!(*one(&["", "v1:0000"], random)),
        "unsafeCustomBuildID" => json!(*one(&["", "one", "two", "a.B_c-9"], random)),
        "service" => json!({"ports": ports(random)}),
        "service.ports" | "template.spec.ports" => ports(random),
        "template" => json!({"spec": {"podTemplate": pod_template(random)}}),
        "template.metadata" => json!({"labels": {"team": one(&["one", "two"], random)}}),
        "template.metadata.labels" => json!({"team": one(&["one", "two"], random), "tier": "db"}),
        "template.metadata.annotations" | "template.spec.serviceAnnotations" => {
            json!({"walk.test/note": one(&["one", "two"], random)})
        }
        "template.spec" => json!({"podTemplate": pod_template(random)}),
        "template.spec.image" => json!(*one(&["", RUN[0], RUN[1], RUN[2], RUN[3]], random)),
        "template.spec.mainContainer" => json!(*one(&["", "db"], random)),
        "template.spec.podTemplate" => pod_template(random),
        "template.spec.podTemplate.metadata" => metadata(random),
        "template.spec.podTemplate.metadata.labels" => {
            json!({"app": "db", "tier": one(&["one", "two"], random)})
        }
        "template.spec.podTemplate.metadata.annotations" => metadata(random)["annotations"].clone(),
        "template.spec.podTemplate.spec" => pod_template(random)["spec"].clone(),
        "template.spec.podTemplate.spec.containers" => pod_template(random)["spec"]["containers"].clone(),
        "template.spec.podTemplate.spec.initContainers" => {
            json!([{"name": "helper", "image": "helper:1", "restartPolicy": "Always"}])
        }
        "template.spec.volumeClaimTemplates" => {
            one(&[json!([]), json!([claim("data")]), json!([claim("data"), claim("wal")])], random).clone()
        }
        "template.spec.sidecar" => json!({"image": "windlass:1"}),
        "template.spec.sidecar.image" => json!(*one(&["windlass:1", "windlass:2"], random)),
        "template.spec.sidecar.args" => json!(["--height-url", "http://127.0.0.1:8545/height"]),
        "template.spec.sidecar.env" => json!([{"name": "LEVEL", "value": "debug"}]),
        "template.spec.sidecar.resources" => json!({"limits": {"cpu": "100m"}}),
        "template.spec.sidecar.securityContext" => {
            one(&[json!({}), json!({"readOnlyRootFilesystem": false})], random).clone()
        }
        "template.spec.sidecar.url" => json!(*one(&["", "http://{podIP}:{port}"], random)),
        "template.spec.sidecar.volumeMounts" => json!([]),
        "template.spec.sidecar.tokenSecret" => json!(""),
        "updateStrategy" => {
            let type_ = *one(&["InPlace", "BlueGreen", "HardFork"], random);
            strategy(type_, random)
        }
        "updateStrategy.hooks" if with_hooks() => hooks(random),
        "updateStrategy.inPlace.steps" if with_hooks() => {
            one(&[json!([]), json!([1]), json!([1, "50%", "100%"])], random).clone()
        }
        "updateStrategy.inPlace" => json!({"maxUnavailable": max_unavailable(random)}),
        "updateStrategy.inPlace.maxUnavailable" => max_unavailable(random),
        "updateStrategy.blueGreen" => {
            json!({"promotion": *one(&["WhenReady", "Manual"], random), "retireDelaySeconds": random.between(0, 60)})
        }
        "updateStrategy.blueGreen.retireDelaySeconds" => random.between(0, 60).into(),
        "updateStrategy.hardFork" => json!({"haltHeight": HEIGHT}),
        "updateStrategy.hardFork.haltHeight" => json!(*one(&[HEIGHT, HEIGHT + 500], random)),
        _ if last == "progressDeadlineSeconds" => json!(*one(&[30, 60, 120, 600], random)),
        _ => return None,
    })
}

/// A value at a limit that the schema does not have.
pub fn edge(path: &str, random: &mut Random) -> Option<Value> {
    Some(match path {
        // Walks never create 10,000 nodes.
        "replicas" => random.between(0, MOST_NODES + 2).into(),
        "template.spec.image" => {
            let mut images: Vec<String> = FAIL.iter().map(|image| (*image).to_owned()).collect();
            images.push("db:1@sha256:".to_owned() + &"0".repeat(64));
            one(&images, random).clone().into()
        }
        "template.metadata.labels" => {
            json!({"windlass.dev/node": "mine", "app.kubernetes.io/managed-by": "me", "long": "a".repeat(63)})
        }
        "template.metadata.annotations" => json!({"windlass.dev/pod-template-hash": "v1:0", "walk.test/empty": ""}),
        "template.spec.podTemplate.metadata" => {
            json!({"labels": {"windlass.dev/node": "mine", "app": "db"}, "annotations": null})
        }
        "template.spec.podTemplate.spec" => one(
            &[
                json!({"containers": [{"name": "db", "image": "db:1"}], "nodeSelector": {"no.such/machine": "yes"}}),
                json!({"containers": [{"name": "db", "image": "db:1", "imagePullPolicy": "Sometimes"}]}),
                json!({"containers": [{"name": "db", "image": "db:1", "misspelt": true}]}),
                json!({"containers": [{"name": "db", "image": "db:1", "resources": {"limits": {"cpu": "much"}}}]}),
                json!({"serviceAccountName": "nobody"}),
            ],
            random,
        )
        .clone(),
        "template.spec.podTemplate.spec.containers" => one(
            &[
                json!([{"name": "db", "image": one(&FAIL, random)}]),
                json!([{"name": "db"}]),
                json!([{"name": "db", "image": "db:1"}, {"name": "db", "image": "db:1"}]),
                json!([{"name": "other", "image": "db:1"}]),
                json!([{"name": "db", "image": "db:1", "volumeMounts": [{"name": "none", "mountPath": "/x"}]}]),
            ],
            random,
        )
        .clone(),
        "template.spec.volumeClaimTemplates" => {
            one(&[json!([claim("data"), claim("data")]), json!([{"metadata": {"name": "Data_"}}])], random).clone()
        }
        "template.spec.sidecar.volumeMounts" => json!([{"name": "none", "mountPath": "/x"}]),
        "template.spec.sidecar.tokenSecret" => json!("nowhere"),
        "template.spec.sidecar.url" => json!("http://monitor.{namespace}.svc/{name}"),
        "updateStrategy.inPlace.maxUnavailable" => one(&[json!("1%"), json!("100%"), json!(1000)], random).clone(),
        _ => return None,
    })
}

fn ports(random: &mut Random) -> Value {
    one(
        &[
            json!([{"port": 80}]),
            json!([{"port": 80, "targetPort": "http", "protocol": "TCP"}]),
            json!([{"name": "a", "port": 80, "targetPort": 8080}, {"name": "b", "port": 80, "protocol": "UDP"}]),
        ],
        random,
    )
    .clone()
}

fn max_unavailable(random: &mut Random) -> Value {
    one(&[json!(1), json!(1), json!(2), json!("50%"), json!("100%")], random).clone()
}

/// True if walks draw hooks too. Not the default: 5,000 such walks have not passed yet.
fn with_hooks() -> bool {
    std::env::var("WINDLASS_WALK_HOOKS").is_ok_and(|value| !value.is_empty())
}

/// Hooks at points of every strategy, each of which ends by itself: a wait, a request to a working peer, or an
/// approval that is skipped after its time-out.
fn hooks(random: &mut Random) -> Value {
    let mut hooks = Vec::new();
    for at in ["BeforeRollout", "BeforeNode", "AfterNode", "AfterRollout", "BeforeRemove"] {
        let has_pod = !at.ends_with("Rollout");
        let mut hook = match random.between(0, 5) {
            0 => json!({"wait": {"seconds": random.between(1, 5)}}),
            1 => json!({"approval": {}, "timeoutSeconds": 2, "onFailure": "Continue"}),
            2 if has_pod => {
                json!({"http": {"url": "http://{{podIP}}:7/drain?node={{node}}", "method": "POST",
                    "success": "body.state == 'drained'", "intervalSeconds": 1, "requestTimeoutSeconds": 1},
                    "timeoutSeconds": 30, "onFailure": "Continue"})
            }
            _ => continue,
        };
        hook["name"] = at.to_lowercase().into();
        hook["at"] = at.into();
        hooks.push(hook);
    }
    hooks.into()
}

/// An update strategy of this type, with its required fields.
pub fn strategy(type_: &str, random: &mut Random) -> Value {
    let deadline = *one(&[30, 60, 120], random);
    let mut strategy = json!({
        "type": type_,
        "inPlace": {"maxUnavailable": max_unavailable(random), "partition": 0},
        "blueGreen": {"retireDelaySeconds": random.between(0, 20), "promotion": *one(&["WhenReady", "WhenReady", "Manual"], random)},
        "progressDeadlineSeconds": deadline,
        "onStall": *one(&["Hold", "Hold", "Rollback"], random),
    });
    if type_ == "HardFork" {
        strategy["hardFork"] = json!({"haltHeight": HEIGHT});
    }
    if with_hooks() && random.between(0, 2) == 0 {
        strategy["hooks"] = hooks(random);
    }
    strategy
}

/// A complete spec that can be carried out, with this type of strategy.
pub fn good_spec(type_: &str, random: &mut Random) -> Value {
    let yes = |random: &mut Random, of: u64| random.between(1, of) == 1;
    let mut node =
        json!({"podTemplate": pod_template(random), "progressDeadlineSeconds": *one(&[60, 120], random)});
    if type_ == "HardFork" || yes(random, 3) {
        node["sidecar"] = json!({"image": "windlass:1"});
    }
    let mut fields = vec!["volumeClaimRetention", "ports", "serviceAnnotations", "mainContainer", "image"];
    fields.retain(|_| yes(random, 4));
    for field in fields {
        let path = format!("template.spec.{field}");
        let found =
            crate::walks::schema::FIELDS.iter().find(|f| f.path == path).expect("a field of the spec");
        node[field] = crate::walks::schema::value(found, crate::walks::schema::Taste::Good, random);
    }
    if yes(random, 2) {
        node["volumeClaimTemplates"] = json!([claim("data")]);
    }
    let mut spec = json!({
        "replicas": random.between(1, MOST_NODES),
        "template": {"spec": node},
        "updateStrategy": strategy(type_, random),
    });
    for field in ["minReadySeconds", "revisionHistoryLimit", "deletionPolicy", "service"] {
        if yes(random, 4) {
            let found =
                crate::walks::schema::FIELDS.iter().find(|f| f.path == field).expect("a field of the spec");
            spec[field] = crate::walks::schema::value(found, crate::walks::schema::Taste::Good, random);
        }
    }
    if yes(random, 4) {
        spec["template"]["metadata"] = json!({"labels": {"team": one(&["one", "two"], random)}});
    }
    if type_ != "InPlace" && yes(random, 5) {
        spec["unsafeCustomBuildID"] = json!(*one(&["one", "two"], random));
    }
    spec
}

/// Restricts a fleet to what a real cluster does in seconds, without sidecars and hard forks: simulated pods have no
/// address for them.
pub fn quicken(fleet: &mut Value) {
    let most = [
        ("/spec/minReadySeconds", 2),
        ("/spec/updateStrategy/progressDeadlineSeconds", 15),
        ("/spec/updateStrategy/blueGreen/retireDelaySeconds", 2),
        ("/spec/template/spec/progressDeadlineSeconds", 15),
    ];
    for (path, most) in most {
        if let Some(value) = fleet.pointer_mut(path).filter(|value| value.as_i64().is_some_and(|v| v > most))
        {
            *value = most.into();
        }
    }
    if let Some(type_) = fleet.pointer_mut("/spec/updateStrategy/type").filter(|type_| **type_ == "HardFork")
    {
        *type_ = "BlueGreen".into();
    }
    if let Some(node) = fleet.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
        node.remove("sidecar");
    }
    // There is no peer of hooks, either.
    if let Some(hooks) = fleet.pointer_mut("/spec/updateStrategy/hooks").and_then(Value::as_array_mut) {
        hooks.retain(|hook| hook["http"].is_null());
    }
}
