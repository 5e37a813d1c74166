//! Nodes that are deleted and made again: what is to go with the earlier node goes, what is to stay stays, and what is
//! waited for meanwhile is said.

use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};
use windlass_sim::{EventInfo, FaultPlan, NoFaults, Pace, RequestInfo, WatchFate};

use super::sets::world::{CLAIM, NODE, POD, SET, World, fleet, play, text};

const OF_DB_1: &str = "data-db-1-0";

/// A fleet of three whose claims are deleted with their nodes.
fn claims_to_go() -> Value {
    let mut fleet = fleet(3, json!({"type": "InPlace"}));
    fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
    fleet
}

fn uid(object: &Value) -> &str {
    text(&object["metadata"], "uid")
}

/// The UIDs of a claim's owners.
fn owners(claim: &Value) -> Vec<String> {
    let owners = claim["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    owners.iter().map(|owner| text(owner, "uid").to_owned()).collect()
}

/// Serves with such a fleet, and returns the UIDs of db-1 and of its claim.
async fn served(w: &World) -> (String, String) {
    w.serve(claims_to_go()).await;
    w.until("the claims go with the nodes", |s| s["volumeClaimRetention"] == "Delete").await;
    let (node, claim) = (w.get(NODE, "db-1"), w.get(CLAIM, OF_DB_1));
    assert_eq!(owners(&claim), [uid(&node)]);
    (uid(&node).to_owned(), uid(&claim).to_owned())
}

#[test]
fn claim_of_a_deleted_node_is_deleted_though_node_is_recreated() {
    // Which of the objects the collector comes to first is drawn for each pace anew.
    for slowest in [5_000, 8_000, 11_000, 14_000, 17_000, 20_000] {
        play(|w| async move {
            let (node, claim) = served(&w).await;
            w.cluster.set_pace(Pace { collector: (1_000, slowest), ..Pace::default() });
            w.delete(NODE, "db-1").await;
            w.rest(180).await;
            w.until("three are ready", |s| s["readyReplicas"] == 3).await;
            assert_ne!(uid(&w.get(NODE, "db-1")), node);
            let again = w.get(CLAIM, OF_DB_1);
            assert!(uid(&again) != claim && !uid(&again).is_empty(), "{slowest}: {again}");
            assert!(again["metadata"]["deletionTimestamp"].is_null(), "{slowest}: its pod runs on it");
            assert_eq!(owners(&again), [uid(&w.get(NODE, "db-1"))], "{slowest}");
        });
    }
}

#[test]
fn claim_retention_is_reported_only_once_it_is_effective() {
    for ms in [0, 20, 200, 2_000] {
        play(|w| async move {
            let (node, claim) = served(&w).await;
            w.cluster.set_pace(Pace { collector: (5_000, 5_000), ..Pace::default() });
            w.delete(NODE, "db-1").await;
            tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
            w.change(json!({"template": {"spec": {"volumeClaimRetention": "Retain"}}})).await;
            for _ in 0..6_000 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                let is_of_earlier = owners(&w.get(CLAIM, OF_DB_1)).contains(&node);
                let says_retain = w.status()["volumeClaimRetention"] == "Retain";
                assert!(!(is_of_earlier && says_retain), "{ms} ms: {}", w.status());
            }
            w.until("the claims stay", |s| s["volumeClaimRetention"] == "Retain").await;
            w.until("three are ready", |s| s["readyReplicas"] == 3).await;
            let kept = w.get(CLAIM, OF_DB_1);
            assert_eq!((uid(&kept), owners(&kept)), (claim.as_str(), Vec::new()), "{ms} ms");
        });
    }
}

/// The messages of a node's tasks.
fn tasks(node: &Value) -> Vec<String> {
    let tasks = node["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
    tasks.iter().map(|task| text(task, "message").to_owned()).collect()
}

#[test]
fn recreated_node_reports_waiting_for_the_earlier_pod() {
    play(|w| async move {
        let (_, claim) = served(&w).await;
        w.steer("db-1-0", "hold-terminating").await;
        w.delete(NODE, "db-1").await;
        w.rest(30).await;
        let node = w.get(NODE, "db-1");
        let says = "waiting for pod db-1-0 of an earlier StatefulSet with this name to terminate";
        assert_ne!(text(&node["status"], "phase"), "Failed", "{node:#}");
        assert!(tasks(&node).iter().any(|message| message == says), "{node:#}");
        assert_eq!(text(&node["status"]["problem"], "message"), format!("it has no pod: {says}"));
        assert!(w.get(SET, "db-1").is_null(), "its controller would try in vain, and ever more rarely");
        w.merge(("v1", "ConfigMap"), "steer-db-1-0", &json!({"data": {"db-1-0": "ready"}})).await;
        w.rest(10).await;
        w.until("three are ready", |s| s["readyReplicas"] == 3).await;
        assert_ne!(uid(&w.get(CLAIM, OF_DB_1)), claim);
    });
}

#[test]
fn pod_waiting_for_claim_deletion_is_not_rejected() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        let held = json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection", "example.com/held"]}});
        w.merge(CLAIM, OF_DB_1, &held).await;
        w.delete(CLAIM, OF_DB_1).await;
        w.delete(POD, "db-1-0").await;
        w.rest(60).await;
        let status = w.get(NODE, "db-1")["status"].clone();
        assert_ne!(text(&status, "phase"), "Failed", "{status:#}");
        assert_eq!(
            text(&status["problem"], "message"),
            "it has no pod: waiting for the deletion of PersistentVolumeClaim data-db-1-0 to complete"
        );
        w.merge(CLAIM, OF_DB_1, &json!({"metadata": {"finalizers": null}})).await;
        w.until("three are ready", |s| s["readyReplicas"] == 3).await;
    });
}

/// The operator hears nothing new but of claims.
struct OnlyOfClaims;

impl FaultPlan for OnlyOfClaims {
    fn event(&mut self, watch: &RequestInfo, _: &EventInfo<'_>) -> WatchFate {
        let is_heard = watch.user_agent != "windlass" || watch.resource.starts_with("persistentvolumeclaims");
        if is_heard { WatchFate::Show } else { WatchFate::Silent }
    }
}

#[test]
fn orphaned_node_deletion_keeps_claim_despite_missed_event() {
    play(|w| async move {
        let (_, claim) = served(&w).await;
        w.cluster.set_faults(Box::new(OnlyOfClaims));
        let orphans =
            DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
        w.api(NODE).delete("db-1", &orphans).await.unwrap();
        w.rest(20).await;
        // The pod was left behind, too, so a claim that is deleted is still there.
        let kept = w.get(CLAIM, OF_DB_1);
        assert_eq!(uid(&kept), claim);
        assert!(kept["metadata"]["deletionTimestamp"].is_null() && owners(&kept).is_empty(), "{kept:#}");
        w.cluster.set_faults(Box::new(NoFaults));
        w.rest(120).await;
        // They were left behind as well, and belong to nobody.
        w.delete(SET, "db-1").await;
        w.delete(("v1", "Service"), "db-1").await;
        w.until("three are ready", |s| s["readyReplicas"] == 3).await;
        assert_eq!(uid(&w.get(CLAIM, OF_DB_1)), claim);
    });
}
