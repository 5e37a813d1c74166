//! The unmodified operator on the simulated cluster.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass::operator::Operator;
use windlass::operator::lease::Election;
use windlass_sim::{After, Cluster, Failure, FaultPlan, Options, RequestInfo};

use windlass_harness::stage::{furnished, image, paused, pod};

fn install_crds(cluster: &Cluster) {
    for definition in windlass::api::crd::crds() {
        cluster.install(json!(definition)).unwrap();
    }
}

fn fleet() -> Value {
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "updateStrategy": {"type": "InPlace"},
            "template": {"spec": {"podTemplate": {"spec": {
                "terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "db:1"}]}}}},
        },
    })
}

async fn until_completed(api: &Api<DynamicObject>, after: &Value) -> Value {
    for _ in 0..3000 {
        let found = api.get("db").await.unwrap().data;
        let hash = &found["status"]["lastCompletedRolloutHash"];
        if found["status"]["phase"] == "Ready" && hash.is_string() && hash != after {
            return hash.clone();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the rollout never completed: {}", api.get("db").await.unwrap().data["status"]);
}

#[test]
fn a_fleet_is_made_and_rolled_and_an_idle_hour_costs_no_write() {
    paused(async {
        let cluster = furnished(Options::seeded(5));
        install_crds(&cluster);
        let operator = Operator::new(cluster.client("windlass", "test")).clock(cluster.clock());
        tokio::spawn(operator.run(std::future::pending::<()>()));
        let client = cluster.client("test", "test");
        let kind = GroupVersionKind::gvk("windlass.dev", "v1alpha1", "NodeDeployment");
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), "test", &ApiResource::from_gvk(&kind));
        api.create(&PostParams::default(), &serde_json::from_value(fleet()).unwrap()).await.unwrap();
        let first = until_completed(&api, &Value::Null).await;
        let patch = json!([{"op": "replace", "path": "/spec/template/spec/podTemplate/spec/containers/0/image", "value": "db:2"}]);
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        api.patch("db", &PatchParams::default(), &Patch::Json::<()>(patch)).await.unwrap();
        until_completed(&api, &first).await;
        for name in ["db-0-0", "db-1-0", "db-2-0"] {
            assert_eq!(image(&pod(&client, name).await.unwrap()), "db:2");
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        let version = cluster.version();
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(cluster.version(), version, "an idle fleet writes nothing");
    });
}

struct Stage {
    cluster: Cluster,
    client: kube::Client,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Stage {
    async fn with_fleet(seed: u64) -> Self {
        let cluster = furnished(Options::seeded(seed));
        install_crds(&cluster);
        let client = cluster.client("test", "test");
        let mut stage = Self { cluster, client, stop: None };
        stage.start();
        let fleets = stage.api("windlass.dev", "v1alpha1", "NodeDeployment");
        fleets.create(&PostParams::default(), &serde_json::from_value(fleet()).unwrap()).await.unwrap();
        until_completed(&fleets, &Value::Null).await;
        stage
    }

    fn start(&mut self) {
        let operator = Operator::new(self.cluster.client("windlass", "test")).clock(self.cluster.clock());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        tokio::spawn(operator.run(async { drop(stopped.await) }));
        self.stop = Some(stop);
    }

    async fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
    }

    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, kind);
        Api::namespaced_with(self.client.clone(), "test", &ApiResource::from_gvk(&kind))
    }

    async fn until(&self, kind: &str, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let api = self.api("windlass.dev", "v1alpha1", kind);
        for _ in 0..3000 {
            let found = json!(api.get(name).await.unwrap());
            if holds(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("waited in vain until {what}: {:#}", json!(api.get(name).await.unwrap())["status"]);
    }
}

fn condition(object: &Value, type_: &str) -> String {
    let list = object["status"]["conditions"].as_array().unwrap();
    let found = list.iter().find(|c| c["type"] == type_).unwrap();
    format!("{}/{}", found["status"].as_str().unwrap(), found["reason"].as_str().unwrap())
}

#[test]
fn a_service_that_somebody_else_put_in_a_serving_nodes_place_is_said_left_alone_and_seldom_asked_for() {
    paused(async {
        let mut stage = Stage::with_fleet(6).await;
        let services = stage.api("", "v1", "Service");
        stage.stop().await;
        services.delete("db-0", &kube::api::DeleteParams::default()).await.unwrap();
        let theirs = json!({"metadata": {"name": "db-0"}, "spec": {"ports": [{"port": 80}]}});
        services.create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
        stage.start();
        let said = |node: &Value| condition(node, "Stalled") == "True/InvalidSpec";
        let node = stage.until("StatefulNode", "db-0", "the foreign Service is named", said).await;
        assert_eq!(condition(&node, "Ready"), "True/NodeReady", "{node:#}");
        let asked = |cluster: &Cluster| {
            let tries = cluster.audit();
            tries.iter().filter(|e| e.verb == "create" && e.resource == "services").count()
        };
        let before = asked(&stage.cluster);
        for step in 0..20 {
            let change = json!({"metadata": {"annotations": {"step": step.to_string()}}});
            let nodes = stage.api("windlass.dev", "v1alpha1", "StatefulNode");
            nodes.patch("db-0", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(asked(&stage.cluster) <= before + 1, "a look is not a question");
        services.delete("db-0", &kube::api::DeleteParams::default()).await.unwrap();
        let healed = |node: &Value| condition(node, "Stalled") == "False/Progressing";
        stage.until("StatefulNode", "db-0", "the node has its Service again", healed).await;
        let made = services.get("db-0").await.unwrap();
        assert_eq!(json!(made)["metadata"]["ownerReferences"][0]["name"], "db-0");
    });
}

/// The first write to a node is carried out, and its answer is a 504.
struct OneLostAnswer(bool);

impl FaultPlan for OneLostAnswer {
    fn after(&mut self, request: &RequestInfo, _: u16) -> After {
        let is_of_node = request.verb == "patch" && request.resource.starts_with("statefulnodes");
        if self.0 || !is_of_node || !request.subresource.is_empty() {
            return After::Pass;
        }
        self.0 = true;
        After::Fail(Failure::ServerTimeout)
    }
}

#[test]
fn a_leader_that_stops_gives_its_lease_up_unless_a_write_of_it_may_still_be_carried_out() {
    paused(async {
        for (lost, rest_seconds, expected) in [(false, 5, ""), (true, 5, "a"), (true, 90, "")] {
            let mut stage = Stage::with_fleet(9).await;
            stage.stop().await;
            let election =
                Election { namespace: "test".into(), name: "windlass".into(), identity: "a".into() };
            let operator = Operator::new(stage.cluster.client("windlass", "test"))
                .clock(stage.cluster.clock())
                .elect(election);
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let running = tokio::spawn(operator.run(async { drop(stopped.await) }));
            tokio::time::sleep(Duration::from_mins(1)).await;
            if lost {
                stage.cluster.set_faults(Box::new(OneLostAnswer(false)));
            }
            let fleets = stage.api("windlass.dev", "v1alpha1", "NodeDeployment");
            let change = json!({"spec": {"template": {"metadata": {"labels": {"team": "one"}}}}});
            fleets.patch("db", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
            let is_labelled = |node: &Value| node["metadata"]["labels"]["team"] == "one";
            for node in ["db-0", "db-1", "db-2"] {
                stage.until("StatefulNode", node, "it is labelled", is_labelled).await;
            }
            tokio::time::sleep(Duration::from_secs(rest_seconds)).await;
            stop.send(()).unwrap();
            running.await.unwrap().unwrap();
            let lease = stage.api("coordination.k8s.io", "v1", "Lease").get("windlass").await.unwrap();
            let holder = lease.data["spec"]["holderIdentity"].as_str().unwrap_or_default();
            assert_eq!(holder, expected, "{lost} {rest_seconds} {}", lease.data["spec"]);
        }
    });
}

#[test]
fn a_rollout_whose_record_is_lost_begins_again_and_does_not_complete() {
    paused(async {
        let mut stage = Stage::with_fleet(7).await;
        let fleets = stage.api("windlass.dev", "v1alpha1", "NodeDeployment");
        let image = json!({"spec": {"template": {"spec": {"image": "db:2-nope"}}}});
        fleets.patch("db", &PatchParams::default(), &Patch::Merge(image)).await.unwrap();
        let held = |db: &Value| db["status"]["rollout"]["nodes"]["failed"] == 1;
        let before = stage.until("NodeDeployment", "db", "a node is held", held).await;
        stage.stop().await;
        let gone = json!({"status": {"rollout": null}});
        fleets.patch_status("db", &PatchParams::default(), &Patch::Merge(gone)).await.unwrap();
        stage.start();
        let db = stage.until("NodeDeployment", "db", "it is held again", held).await;
        assert_eq!(db["status"]["plan"]["state"], "Active", "{db:#}");
        assert_eq!(db["status"]["rollout"]["targetHash"], before["status"]["rollout"]["targetHash"]);
        let completed = "lastCompletedRolloutHash";
        assert_eq!(db["status"][completed], before["status"][completed]);
    });
}

#[test]
fn two_nodes_never_run_on_one_claim_and_who_comes_second_says_whose_it_is() {
    paused(async {
        let stage = Stage::with_fleet(8).await;
        let fleets = stage.api("windlass.dev", "v1alpha1", "NodeDeployment");
        let with_claim = |name: &str, template: &str, retention: &str| {
            let mut fleet = fleet();
            fleet["metadata"]["name"] = json!(name);
            fleet["spec"]["replicas"] = json!(1);
            let spec = &mut fleet["spec"]["template"]["spec"];
            spec["volumeClaimRetention"] = json!(retention);
            spec["volumeClaimTemplates"] = json!([{"metadata": {"name": template},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
            serde_json::from_value::<DynamicObject>(fleet).unwrap()
        };
        // Both claims would have the name a-e-e-0-0.
        for (name, template, retention) in [("e", "a-e", "Delete"), ("e-e", "a", "Retain")] {
            fleets.create(&PostParams::default(), &with_claim(name, template, retention)).await.unwrap();
            // Timestamps in seconds do not order two objects created within one.
            tokio::time::sleep(Duration::from_millis(1100)).await;
        }
        let ready = |fleet: &Value| fleet["status"]["phase"] == "Ready";
        let refused = |fleet: &Value| {
            let list = fleet["status"]["conditions"].as_array();
            let found = list.and_then(|l| l.iter().find(|c| c["type"] == "UpToDate"));
            found.is_some_and(|c| {
                c["reason"] == "InvalidSpec" && c["message"].as_str().unwrap().contains("a-e-e-0-0")
            })
        };
        stage.until("NodeDeployment", "e", "the first runs", ready).await;
        stage.until("NodeDeployment", "e-e", "the second is refused", refused).await;
        let sets = stage.api("apps", "v1", "StatefulSet");
        assert!(sets.get_opt("e-e-0").await.unwrap().is_none(), "nothing runs on another's claim");
        // Once the name and its claim are free, the second continues by itself.
        fleets.delete("e", &kube::api::DeleteParams::default()).await.unwrap();
        stage.until("NodeDeployment", "e-e", "the second runs", ready).await;
    });
}
