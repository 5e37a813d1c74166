//! Nodes in failure domains: one domain after another, and nodes that are updated last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::drains::change_machine;
use super::rollouts::world as sets;
use super::sets::world::{
    CLAIM, FLEET, LEAVING, NODE, POD, World, condition, fleet, is_up_to_date, message, play, text,
    with_sidecar,
};
use windlass_sim::Cluster;
use windlass_sim::kubelet::Expansion;

const ZONE: &str = "topology.kubernetes.io/zone";

/// Adds a machine in a zone with room for so many pods that ask for 1Gi.
fn add_machine(cluster: &Cluster, name: &str, labels: &Value, pods: u32) {
    let room = json!({"cpu": "10000", "memory": format!("{pods}Gi"), "pods": "1000"});
    let machine = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"capacity": room, "allocatable": room}});
    cluster.install(machine).unwrap();
}

/// A fleet whose pods find two places in each of three zones.
fn in_zones(w: &World, replicas: i32, key: &str, strategy: &Value) -> Value {
    for zone in ["a", "b", "c"] {
        add_machine(&w.cluster, &format!("m0-{zone}"), &json!({key: zone}), 2);
    }
    let mut fleet = fleet(replicas, json!({"type": "InPlace", "inPlace": strategy}));
    let pod = &mut fleet["spec"]["template"]["spec"]["podTemplate"]["spec"];
    pod["containers"][0]["resources"] = json!({"requests": {"memory": "1Gi"}});
    pod["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}}});
    fleet
}

/// What was seen of the pods that were not Ready at the same time.
#[derive(Default)]
struct Worst {
    zones: usize,
    nodes: usize,
    order: Vec<String>,
}

/// Watches pods, each in the zone that this says or, if it says nothing, on the machine where it was last seen.
fn watch(cluster: &Arc<Cluster>, names: &[&str], zone_of_pod: fn(&str) -> String) -> Arc<Mutex<Worst>> {
    let worst = Arc::<Mutex<Worst>>::default();
    let (seen, cluster) = (worst.clone(), cluster.clone());
    let mut zones: BTreeMap<String, String> =
        names.iter().map(|name| ((*name).to_owned(), zone_of_pod(name))).collect();
    tokio::spawn(async move {
        let mut version = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if cluster.version() == version {
                continue;
            }
            version = cluster.version();
            let mut out = BTreeSet::new();
            let mut down = Vec::new();
            for (name, zone) in &mut zones {
                let machine = machine_of(&cluster, name);
                if !machine.is_empty() && zone_of_pod(name).is_empty() {
                    *zone = zone_of(&machine);
                }
                if !is_ready(&cluster, name) {
                    out.insert(zone.clone());
                    down.push(name.clone());
                }
            }
            let mut worst = seen.lock().unwrap();
            (worst.zones, worst.nodes) = (worst.zones.max(out.len()), worst.nodes.max(down.len()));
            for name in down {
                if !worst.order.contains(&name) {
                    worst.order.push(name);
                }
            }
        }
    });
    worst
}

fn machine_of(cluster: &Cluster, pod: &str) -> String {
    let pod = cluster.get("v1", "Pod", "test", pod).unwrap_or(Value::Null);
    text(&pod["spec"], "nodeName").to_owned()
}

pub fn is_ready(cluster: &Cluster, pod: &str) -> bool {
    let pod = cluster.get("v1", "Pod", "test", pod).unwrap_or(Value::Null);
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn runs(w: &World, pod: &str, image: &str) -> bool {
    w.get(POD, pod)["spec"]["containers"][0]["image"] == image
}

/// Updates the image, and waits until the rollout is complete.
async fn update(w: &World) {
    w.image("db:2").await;
    complete(w).await;
}

async fn complete(w: &World) {
    w.until("it is complete", |status| {
        is_up_to_date(status) && w.images().iter().all(|pod| pod.ends_with("db:2"))
    })
    .await;
    w.rest(1).await;
}

const SIX: [&str; 6] = ["db-0-0", "db-1-0", "db-2-0", "db-3-0", "db-4-0", "db-5-0"];

#[test]
fn zones_are_updated_one_after_another() {
    play(|w| async move {
        let strategy = json!({"topology": {"key": ZONE, "maxUnavailable": "100%"}});
        w.serve(in_zones(&w, 6, ZONE, &strategy)).await;
        assert_eq!(w.get(POD, "db-0-0")["metadata"]["labels"][ZONE], "a");
        assert_eq!(condition(&w.status(), "TopologyKnown"), "/");
        let worst = watch(&w.cluster, &SIX, |_| String::new());
        update(&w).await;
        let worst = worst.lock().unwrap();
        assert_eq!((worst.zones, worst.nodes), (1, 2), "{:?}", worst.order);
        assert_eq!(worst.order.len(), 6);
    });
}

#[test]
fn node_that_is_down_keeps_other_zones_from_starting() {
    play(|w| async move {
        let strategy = json!({"topology": {"key": ZONE, "maxUnavailable": "100%"}});
        w.serve(in_zones(&w, 6, ZONE, &strategy)).await;
        let zone = |pod: &str| zone_of(&machine_of(&w.cluster, pod));
        w.steer("db-2-0", "unready").await;
        w.until("db-2 is not ready", |s| s["readyReplicas"] == 5).await;
        let worst = watch(&w.cluster, &SIX, |_| String::new());
        w.image("db:2").await;
        w.rest(300).await;
        let status = w.status();
        let waits = text(&status["rollout"], "message");
        let says = "disrupted (b: ";
        assert!(waits.contains(says), "{waits}");
        for pod in SIX {
            assert_eq!(runs(&w, pod, "db:2"), zone(pod) == zone("db-2-0"), "{pod}");
        }
        assert_eq!(worst.lock().unwrap().zones, 1);
        // Where the operator is killed, the next one decides the same.
        w.kill_operator();
        w.start_operator();
        w.rest(60).await;
        assert_eq!(worst.lock().unwrap().zones, 1);
        w.delete(("v1", "ConfigMap"), "steer-db-2-0").await;
        complete(&w).await;
        assert_eq!(worst.lock().unwrap().zones, 1);
    });
}

#[test]
fn domain_of_a_pod_without_the_label_is_that_of_its_machine() {
    play(|w| async move {
        let strategy = json!({"topology": {"key": "rack", "maxUnavailable": "100%"}});
        w.serve(in_zones(&w, 6, "rack", &strategy)).await;
        assert!(w.get(POD, "db-0-0")["metadata"]["labels"]["rack"].is_null());
        assert_eq!(condition(&w.status(), "TopologyKnown"), "/");
        let worst = watch(&w.cluster, &SIX, |_| String::new());
        update(&w).await;
        let worst = worst.lock().unwrap();
        assert_eq!((worst.zones, worst.nodes), (1, 2));
    });
}

#[test]
fn pods_without_a_domain_move_one_at_a_time_and_are_reported() {
    play(|w| async move {
        let strategy = json!({"topology": {"key": "row", "maxUnavailable": "100%"}});
        w.serve(in_zones(&w, 3, "rack", &strategy)).await;
        let status = w.until("it is said", |s| condition(s, "TopologyKnown") == "False/LabelMissing").await;
        let says = "the pods of db-0, db-1, db-2 have no label row, neither have their machines";
        assert!(message(&status, "TopologyKnown").starts_with(says), "{status:#}");
        w.is_at_rest().await;
        let worst = watch(&w.cluster, &SIX[..3], |_| String::new());
        update(&w).await;
        assert_eq!(worst.lock().unwrap().nodes, 1);
        w.change(json!({"updateStrategy": {"inPlace": {"topology": null}}})).await;
        w.until("there is no topology", |s| condition(s, "TopologyKnown") == "/").await;
    });
}

#[test]
fn primary_is_updated_last_wherever_it_is_by_then() {
    play(|w| async move {
        let strategy = json!({"order": {"last": {"podLabels": {"role": "primary"}}}});
        w.serve(fleet(4, json!({"type": "InPlace", "inPlace": strategy}))).await;
        let label = async |pod: &str, role: Value| {
            w.merge(POD, pod, &json!({"metadata": {"labels": {"role": role}}})).await;
        };
        label("db-3-0", "primary".into()).await;
        let names = ["db-0-0", "db-1-0", "db-2-0", "db-3-0"];
        let worst = watch(&w.cluster, &names, |_| String::new());
        w.steer("db-2-0", "unready").await;
        w.image("db:2").await;
        w.rest(30).await;
        assert!(runs(&w, "db-2-0", "db:2"));
        // It fails over to a node that has not moved yet.
        let next = "db-0-0";
        assert!(!runs(&w, next, "db:2"));
        label("db-3-0", Value::Null).await;
        label(next, "primary".into()).await;
        w.delete(("v1", "ConfigMap"), "steer-db-2-0").await;
        complete(&w).await;
        let worst = worst.lock().unwrap();
        assert_eq!(worst.order.last().map(String::as_str), Some(next), "{:?}", worst.order);
        assert_eq!(worst.order.len(), 4);
    });
}

#[test]
fn node_whose_sidecar_reports_the_role_is_updated_last() {
    play(|w| async move {
        let strategy = json!({"order": {"last": {"sidecar": "primary"}}});
        w.serve(with_sidecar(fleet(3, json!({"type": "InPlace", "inPlace": strategy})))).await;
        let host = |pod: &str| text(&w.get(POD, pod)["status"], "podIP").to_owned();
        w.applications.elect(&host("db-2-0"));
        assert_eq!(w.get(NODE, "db-2")["status"]["sidecar"], Value::Null, "nobody asks without a rollout");
        let names = ["db-0-0", "db-1-0", "db-2-0"];
        let worst = watch(&w.cluster, &names, |_| String::new());
        w.steer("db-1-0", "unready").await;
        w.image("db:2").await;
        w.rest(30).await;
        assert!(runs(&w, "db-1-0", "db:2") && !runs(&w, "db-2-0", "db:2"));
        // Another one is elected meanwhile.
        w.applications.elect(&host("db-0-0"));
        w.rest(10).await;
        assert_eq!(w.get(NODE, "db-0")["status"]["sidecar"]["role"], "primary");
        w.delete(("v1", "ConfigMap"), "steer-db-1-0").await;
        complete(&w).await;
        assert_eq!(worst.lock().unwrap().order, ["db-1-0", "db-2-0", "db-0-0"]);
        w.rest(30).await;
        assert_eq!(w.get(NODE, "db-0")["spec"]["watchSidecar"], false);
        w.is_at_rest().await;
    });
}

#[test]
fn primary_waits_for_a_replica_that_does_not_come_back() {
    play(|w| async move {
        let strategy = json!({"maxUnavailable": 3, "order": {"last": {"podLabels": {"role": "primary"}}}});
        w.serve(fleet(3, json!({"type": "InPlace", "inPlace": strategy}))).await;
        w.merge(POD, "db-1-0", &json!({"metadata": {"labels": {"role": "primary"}}})).await;
        w.steer("db-0-0", "unready").await;
        let before = text(&w.get(POD, "db-1-0")["metadata"], "uid").to_owned();
        w.image("db:2").await;
        w.rest(120).await;
        assert_eq!(text(&w.get(POD, "db-1-0")["metadata"], "uid"), before);
        let status = w.status();
        let waits = text(&status["rollout"], "message");
        assert!(
            waits.contains("waiting for db-0 to be available before the nodes that order.last selects"),
            "{waits}"
        );
        w.delete(("v1", "ConfigMap"), "steer-db-0-0").await;
        complete(&w).await;
        assert_eq!(w.get(FLEET, "db")["status"]["updatedReplicas"], 3);
    });
}

#[test]
fn pods_of_stateful_sets_in_zones_move_one_zone_after_another() {
    sets::play(|w| async move {
        for (set, zone) in [("ledger-a", "a"), ("ledger-b", "b"), ("ledger-c", "c")] {
            let mut object = sets::stateful_set(set, 3);
            // As Mimir and Loki do: a StatefulSet for each zone, whose pods say so.
            object["spec"]["template"]["metadata"]["labels"]["zone"] = zone.into();
            w.create(object).await;
        }
        for set in ["ledger-a", "ledger-b", "ledger-c"] {
            w.until_set(set, "its pods are Ready", |set| set["status"]["readyReplicas"] == 3).await;
        }
        w.merge(POD, "ledger-b-0", &json!({"metadata": {"labels": {"role": "leader"}}})).await;
        let strategy = json!({"topology": {"key": "zone", "maxUnavailable": "100%"},
            "order": {"last": {"podLabels": {"role": "leader"}}}});
        w.adopt(&sets::named(&["ledger-a", "ledger-b", "ledger-c"]), &strategy).await;
        let pods = ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2", "c-0", "c-1", "c-2"]
            .map(|pod| format!("ledger-{pod}"));
        let pods = pods.each_ref().map(String::as_str);
        let worst = watch(&w.cluster, &pods, |pod| pod[..8].to_owned());
        for set in ["ledger-a", "ledger-b", "ledger-c"] {
            w.image(set, "db:2").await;
        }
        w.until("it is complete", |status| {
            let is_done = status["rollout"].is_null() && condition(status, "UpToDate").starts_with("True");
            is_done && w.images().iter().all(|pod| pod.ends_with("db:2"))
        })
        .await;
        w.rest(5).await;
        let worst = worst.lock().unwrap();
        assert_eq!(worst.order.len(), 9, "{:?}", worst.order);
        assert_eq!(worst.order.last().map(String::as_str), Some("ledger-b-0"), "{:?}", worst.order);
        assert_eq!(worst.zones, 1, "{:?}", worst.order);
        // The last pod of each StatefulSet is updated at the end.
        let mut visited: Vec<&str> = worst.order.iter().map(|pod| &pod[..8]).collect();
        visited.dedup();
        assert_eq!(visited.len(), 6, "{:?}", worst.order);
    });
}

/// The zone of a machine with a name such as `m0-a`.
fn zone_of(machine: &str) -> String {
    machine.chars().last().map(String::from).unwrap_or_default()
}

/// Six rounds, each with a release, a machine that is drained and replaced, claims that grow only with a new pod, a failover and
/// an operator that is killed.
#[test]
fn machine_drains_while_zones_are_updated_and_claims_grow() {
    play(|w| async move {
        w.cluster.install(Expansion::Offline.class("grows")).unwrap();
        let strategy = json!({"maxUnavailable": 2, "topology": {"key": ZONE, "maxUnavailable": "100%"},
            "order": {"last": {"podLabels": {"role": "primary"}}}});
        let mut fleet = in_zones(&w, 6, ZONE, &strategy);
        let claims = |storage: String| {
            json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "storageClassName": "grows", "resources": {"requests": {"storage": storage}}}}])
        };
        fleet["spec"]["template"]["spec"]["volumeClaimTemplates"] = claims("1Gi".to_owned());
        w.serve(fleet).await;
        let volumes = |w: &World| {
            let claims = w.names(CLAIM);
            claims
                .iter()
                .map(|name| text(&w.get(CLAIM, name)["metadata"], "uid").to_owned())
                .collect::<Vec<_>>()
        };
        let before = volumes(&w);
        let worst = watch(&w.cluster, &SIX, |_| String::new());
        let mut machines = ["m0-a", "m0-b", "m0-c"].map(str::to_owned);
        for round in 0..6_usize {
            let (at, zone) = (round % 3, ["a", "b", "c"][round % 3]);
            let label = async |pod: &str, role: Value| {
                w.merge(POD, pod, &json!({"metadata": {"labels": {"role": role}}})).await;
            };
            label(SIX[round], "primary".into()).await;
            // A pod finds the first machine with room: the one that it came from, unless that is being drained.
            let next = format!("m{}-{zone}", round + 1);
            let old = std::mem::replace(&mut machines[at], next.clone());
            add_machine(&w.cluster, &next, &json!({ZONE: zone}), 2);
            change_machine(&w.cluster, &old, json!({"taints": [{"key": LEAVING, "effect": "NoSchedule"}]}))
                .await;
            let image = format!("db:{}", round + 2);
            let template =
                json!({"image": image, "volumeClaimTemplates": claims(format!("{}Gi", round + 2))});
            w.change(json!({"template": {"spec": template}})).await;
            w.rest(u64::try_from(round).unwrap()).await;
            w.kill_operator();
            w.rest(1).await;
            w.start_operator();
            let size = format!("{}Gi", round + 2);
            w.until("the round is over", |status| {
                let grown =
                    |name: &String| text(&w.get(CLAIM, name)["status"]["capacity"], "storage") == size;
                is_up_to_date(status)
                    && condition(status, "RolloutInProgress") == "False/RolloutComplete"
                    && condition(status, "Reconciling") == "False/Settled"
                    && w.images().iter().all(|pod| pod.ends_with(&format!(" {image}")))
                    && w.names(CLAIM).iter().all(grown)
                    && SIX.iter().all(|pod| machine_of(&w.cluster, pod) != old)
            })
            .await;
            w.rest(5).await;
        }
        let worst = worst.lock().unwrap();
        assert_eq!(worst.zones, 1, "{:?}", worst.order);
        assert!(worst.nodes <= 2, "{}", worst.nodes);
        assert_eq!(volumes(&w), before, "every volume is the one that was there");
    });
}
