//! Objects that a template names: no node is taken down before they exist.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass_sim::{AuditEntry, Before, Failure, FaultPlan, NoFaults, RequestInfo};

use super::sets::world::{
    NODE, POD, World, blue_green, condition, fleet, is_up_to_date, message, play, stage_is, text, to_text,
};

const SECRET: (&str, &str) = ("v1", "Secret");
const SAYS: &str = "volume tls: Secret db-tls does not exist";

/// A spec with this image, whose pods mount the Secret.
fn with_secret(image: &str) -> Value {
    let volumes = json!([{"name": "tls", "secret": {"secretName": "db-tls"}}]);
    json!({"template": {"spec": {"image": image, "podTemplate": {"spec": {"volumes": volumes}}}}})
}

fn mounting(mut fleet: Value) -> Value {
    json_patch::merge(&mut fleet["spec"], &with_secret("db:1"));
    fleet
}

async fn create(w: &World, kind: &str, name: &str) {
    w.create(json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})).await;
}

async fn create_secret(w: &World) {
    create(w, "Secret", "db-tls").await;
}

fn is_invalid(status: &Value) -> bool {
    condition(status, "UpToDate") == "False/InvalidSpec" && message(status, "UpToDate") == SAYS
}

fn pods(w: &World) -> BTreeMap<String, Value> {
    w.names(POD)
        .into_iter()
        .map(|name| (name.clone(), w.get(POD, &name)["metadata"]["uid"].clone()))
        .collect()
}

fn at(w: &World, image: &str) -> usize {
    w.images().iter().filter(|pod| pod.ends_with(&format!(" {image}"))).count()
}

async fn complete(w: &World, image: &str) {
    w.until("the rollout is complete", |s| is_up_to_date(s) && at(w, image) == w.images().len()).await;
}

/// The operator's requests for Secrets.
fn reads(w: &World) -> usize {
    let is_it = |e: &&AuditEntry| e.user_agent == "windlass" && e.resource == "secrets";
    w.cluster.audit().iter().filter(is_it).count()
}

/// Restarts the fleet.
async fn restart(w: &World) {
    w.annotate("windlass.dev/restartedAt", &w.cluster.clock().now().to_rfc3339()).await;
}

#[test]
fn rollout_to_a_missing_secret_touches_no_pod_and_proceeds_by_itself() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        assert_eq!(reads(&w), 0, "the template names no object");
        let before = pods(&w);
        w.change(with_secret("db:2")).await;
        w.until("it is reported", is_invalid).await;
        w.rest(30 * 60).await;
        let status = w.status();
        assert_eq!((pods(&w), &status["rollout"]), (before, &Value::Null), "{}", to_text(&status));
        assert_eq!(condition(&status, "Stalled"), "True/InvalidSpec");
        assert_eq!(w.events("InvalidSpec"), [SAYS]);
        let writes = w.cluster.version();
        w.rest(60 * 60).await;
        assert_eq!(w.cluster.version(), writes, "a fleet that waits writes nothing");
        create_secret(&w).await;
        complete(&w, "db:2").await;
        w.is_at_rest().await;
        assert_eq!(reads(&w), 0, "an idle fleet sends no request");
    });
}

#[test]
fn objects_that_exist_are_read_once_a_minute_during_a_rollout() {
    play(|w| async move {
        create_secret(&w).await;
        let mut fleet = fleet(6, json!({"type": "InPlace"}));
        fleet["spec"]["minReadySeconds"] = json!(50);
        w.serve(fleet).await;
        w.cluster.clear_audit();
        w.change(with_secret("db:2")).await;
        complete(&w, "db:2").await;
        let read = reads(&w);
        assert!((2..=8).contains(&read), "{read} requests in about six minutes");
    });
}

#[test]
fn first_creation_waits_for_a_missing_secret() {
    play(|w| async move {
        w.create(mounting(fleet(3, json!({"type": "InPlace"})))).await;
        w.until("it is reported", is_invalid).await;
        // The progress deadline is two minutes.
        w.rest(30 * 60).await;
        assert_eq!((w.names(NODE), w.names(POD)), (vec![], vec![]));
        create_secret(&w).await;
        complete(&w, "db:1").await;
        let stalled = |f: &Value| condition(&f["status"], "Stalled") == "True/NoProgress";
        assert!(!w.seen_objects().iter().any(|(_, f)| stalled(f)), "its clock was stopped");
        assert!(w.events("RolloutStalled").is_empty(), "{:?}", w.events("RolloutStalled"));
        w.is_at_rest().await;
    });
}

#[test]
fn secret_deleted_in_a_rollout_keeps_the_nodes_that_serve() {
    for back in [false, true] {
        play(|w| async move {
            create_secret(&w).await;
            let mut fleet = fleet(4, json!({"type": "InPlace"}));
            fleet["spec"]["minReadySeconds"] = json!(90);
            w.serve(fleet).await;
            w.change(with_secret("db:2")).await;
            w.until("the first node is updated", |s| s["rollout"]["nodes"]["updated"] == 1).await;
            w.delete(SECRET, "db-tls").await;
            let status = w.until("the rollout waits", |s| s["rollout"]["waitingFor"] == "Objects").await;
            assert!(is_invalid(&status), "{}", to_text(&status));
            assert_eq!(text(&status["rollout"], "message"), format!("waiting for missing objects: {SAYS}"));
            let (before, updated) = (pods(&w), at(&w, "db:2"));
            assert!((1..4).contains(&updated), "{:?}", w.images());
            // The progress deadline is two minutes.
            w.rest(30 * 60).await;
            let status = w.status();
            assert_eq!((pods(&w), &status["readyReplicas"]), (before, &json!(4)), "{}", to_text(&status));
            assert!(w.events("RolloutStalled").is_empty(), "{:?}", w.events("RolloutStalled"));
            // A node that is lost comes back as it was.
            w.delete(NODE, "db-0").await;
            w.until("it is ready again", |s| s["readyReplicas"] == 3).await;
            w.until("it is ready again", |s| s["readyReplicas"] == 4).await;
            assert_eq!(at(&w, "db:2"), updated, "{:?}", w.images());
            if back {
                let before = json!({"image": "db:1", "podTemplate": {"spec": {"volumes": null}}});
                w.change(json!({"template": {"spec": before}})).await;
                complete(&w, "db:1").await;
            } else {
                create_secret(&w).await;
                complete(&w, "db:2").await;
            }
            w.is_at_rest().await;
        });
    }
}

#[test]
fn rollback_by_a_user_does_not_wait() {
    play(|w| async move {
        create_secret(&w).await;
        let mut fleet = mounting(fleet(3, json!({"type": "InPlace"})));
        fleet["spec"]["minReadySeconds"] = json!(60);
        w.serve(fleet).await;
        w.image("db:2").await;
        let status = w.until("a node is updated", |s| s["rollout"]["nodes"]["updated"] == 1).await;
        w.delete(SECRET, "db-tls").await;
        let plan = text(&status["plan"], "id");
        w.patch(&json!({"metadata": {"annotations": {
            "windlass.dev/abort": plan, "windlass.dev/abort-rollback": plan}}}))
            .await;
        w.until("it is rolled back", |s| s["rollout"].is_null() && s["rejected"]["outcome"] == "RolledBack")
            .await;
        assert_eq!(at(&w, "db:1"), 3, "{:?}", w.images());
        w.is_at_rest().await;
        assert_eq!(reads(&w), 0, "a rejected target is not checked");
    });
}

#[test]
fn restart_waits_for_a_secret_that_was_deleted() {
    play(|w| async move {
        create_secret(&w).await;
        w.serve(mounting(fleet(2, json!({"type": "InPlace"})))).await;
        w.delete(SECRET, "db-tls").await;
        w.is_at_rest().await;
        assert!(is_up_to_date(&w.status()));
        let before = pods(&w);
        restart(&w).await;
        w.until("it is reported", is_invalid).await;
        w.rest(5 * 60).await;
        assert_eq!(pods(&w), before);
        create_secret(&w).await;
        w.until("it is restarted", |s| {
            is_up_to_date(s) && pods(&w).iter().all(|(name, uid)| before[name] != *uid)
        })
        .await;
        w.is_at_rest().await;
    });
}

#[test]
fn optional_references_are_ignored() {
    play(|w| async move {
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        let volumes = json!([
            {"name": "tls", "secret": {"secretName": "db-tls", "optional": true}},
            {"name": "more", "projected": {"sources": [{"secret": {"name": "more", "optional": true}}]}},
        ]);
        let pod = json!({"volumes": volumes, "imagePullSecrets": [{"name": "pull"}], "serviceAccountName": "default"});
        w.change(json!({"template": {"spec": {"image": "db:2", "podTemplate": {"spec": pod}}}})).await;
        complete(&w, "db:2").await;
        assert_eq!(reads(&w), 0);
    });
}

#[test]
fn every_kind_of_object_is_waited_for() {
    play(|w| async move {
        let mut fleet = fleet(1, json!({"type": "InPlace"}));
        let pod = &mut fleet["spec"]["template"]["spec"]["podTemplate"]["spec"];
        pod["serviceAccountName"] = json!("db");
        pod["priorityClassName"] = json!("high");
        pod["volumes"] = json!([{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]);
        pod["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "conf"}}]);
        w.create(fleet).await;
        let says = async |what: &str| {
            w.until(what, |status| message(status, "UpToDate") == what).await;
        };
        says("serviceAccountName: ServiceAccount db does not exist (3 more missing)").await;
        create(&w, "ServiceAccount", "db").await;
        says("priorityClassName: PriorityClass high does not exist (2 more missing)").await;
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "high"}, "value": 1});
        w.cluster.install(class).unwrap();
        says("volume shared: PersistentVolumeClaim shared does not exist (1 more missing)").await;
        w.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))
            .await;
        says("container main: envFrom: ConfigMap conf does not exist").await;
        create(&w, "ConfigMap", "conf").await;
        w.until("it serves", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

/// Fails the operator's requests for Secrets.
struct NoSecrets(Failure);

impl FaultPlan for NoSecrets {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let is_it = request.user_agent == "windlass" && request.resource == "secrets";
        if is_it { Before::Fail(self.0.clone()) } else { Before::Pass }
    }
}

#[test]
fn rollout_waits_while_the_api_server_does_not_answer() {
    play(|w| async move {
        create_secret(&w).await;
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        let before = pods(&w);
        w.cluster.set_faults(Box::new(NoSecrets(Failure::Internal)));
        w.change(with_secret("db:2")).await;
        w.until("it is reported", |s| message(s, "UpToDate").contains("could not check whether")).await;
        w.rest(10 * 60).await;
        assert_eq!(pods(&w), before);
        w.cluster.set_faults(Box::new(NoFaults));
        complete(&w, "db:2").await;
        w.is_at_rest().await;
    });
}

#[test]
fn rollout_under_way_goes_by_the_last_answer_of_the_api_server() {
    play(|w| async move {
        create_secret(&w).await;
        let mut fleet = fleet(4, json!({"type": "InPlace"}));
        fleet["spec"]["minReadySeconds"] = json!(50);
        w.serve(fleet).await;
        w.change(with_secret("db:2")).await;
        w.until("one node is updated", |s| s["rollout"]["nodes"]["updated"] == 1).await;
        w.cluster.set_faults(Box::new(NoSecrets(Failure::Internal)));
        complete(&w, "db:2").await;
        let waits = |(_, fleet): &(u64, Value)| fleet["status"]["rollout"]["waitingFor"] == "Objects";
        assert!(!w.seen_objects().iter().any(waits));
    });
}

#[test]
fn refused_template_stops_the_rollout_before_it() {
    play(|w| async move {
        let mut fleet = fleet(4, json!({"type": "InPlace"}));
        fleet["spec"]["minReadySeconds"] = json!(50);
        w.serve(fleet).await;
        w.image("db:2").await;
        w.until("one node is updated", |s| s["rollout"]["nodes"]["updated"] == 1).await;
        w.change(with_secret("db:3")).await;
        w.until("it is refused", is_invalid).await;
        w.rest(60).await;
        let before = pods(&w);
        w.rest(600).await;
        assert_eq!(pods(&w), before, "no other pod is taken down");
        let sentence = format!("waiting for the spec to be corrected: {SAYS}");
        let rollout = w.status()["rollout"].clone();
        assert_eq!((&rollout["message"], &rollout["waitingFor"]), (&json!(sentence), &json!("Person")));
        create_secret(&w).await;
        complete(&w, "db:3").await;
        w.is_at_rest().await;
    });
}

#[test]
fn check_is_skipped_without_rights_and_that_is_said_once() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        w.cluster.set_faults(Box::new(NoSecrets(Failure::Forbidden("no right".to_owned()))));
        w.change(with_secret("db:2")).await;
        complete(&w, "db:2").await;
        let says = "not checked whether the objects that the template names exist: the operator has no right to \
            get Secret; see deploy/rbac/references-*.yaml";
        assert_eq!(w.events("ReferencesUnread"), [says]);
        let seen = w.seen_objects();
        assert!(seen.iter().any(|(_, f)| message(&f["status"], "UpToDate").contains(says)));
        w.change(with_secret("db:3")).await;
        complete(&w, "db:3").await;
        assert_eq!(w.events("ReferencesUnread"), [says]);
        w.is_at_rest().await;
        assert_eq!(message(&w.status(), "UpToDate"), "");
        // With the rights the next rollout is checked.
        w.cluster.set_faults(Box::new(NoFaults));
        w.change(with_secret("db:4")).await;
        w.until("it is reported", is_invalid).await;
        assert_eq!(at(&w, "db:3"), 3);
    });
}

#[test]
fn blue_green_creates_no_set_before_the_secret_exists() {
    play(|w| async move {
        w.serve(blue_green(2, json!({"retireDelaySeconds": 1}))).await;
        let before = pods(&w);
        w.change(with_secret("db:2")).await;
        w.until("it is reported", is_invalid).await;
        w.rest(10 * 60).await;
        assert_eq!((w.names(NODE).len(), pods(&w)), (2, before));
        create_secret(&w).await;
        complete(&w, "db:2").await;
        // The Secret is deleted while a new set is created: nothing is promoted, and the way back works.
        let before = pods(&w);
        w.change(with_secret("db:3-unready")).await;
        w.until("the new nodes are awaited", stage_is("AwaitingEntrants")).await;
        w.delete(SECRET, "db-tls").await;
        w.until("it is reported", is_invalid).await;
        w.rest(10 * 60).await;
        assert_eq!(w.names(NODE).len(), 4);
        w.change(with_secret("db:2")).await;
        w.until("the new set is gone", |s| is_up_to_date(s) && w.names(NODE).len() == 2).await;
        assert_eq!(pods(&w), before);
        w.is_at_rest().await;
    });
}
