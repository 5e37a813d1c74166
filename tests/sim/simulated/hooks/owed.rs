//! What comes after a node's pod was replaced is done, whatever became of the plan that replaced it. What comes before a
//! pod goes is done for every pod whose main container runs, and only for those.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};

use super::*;

/// A fleet of two that runs `db:1`, and whose node `db-1` has a new pod that does not become Ready.
async fn replaced(w: &World, hooks: Value) {
    w.serve(in_place(2, json!({}), hooks)).await;
    w.steer("db-1-0", "unready").await;
    w.image("db:2").await;
    w.until("its pod is replaced", |_| {
        let plan = w.node_plan("db-1");
        w.images().contains(&"db-1-0 db:2".to_owned())
            && tasks(&plan).iter().any(|task| task == "mark-ready=Running")
    })
    .await;
}

pub(super) async fn becomes_ready(w: &World, pod: &str) {
    w.merge(("v1", "ConfigMap"), &format!("steer-{pod}"), &json!({"data": {pod: "ready"}})).await;
}

#[test]
fn plan_after_a_drift_repair_runs_the_owed_hooks() {
    play(|w| async move {
        replaced(&w, json!([person("look", "AfterNode")])).await;
        let before = w.node_plan("db-1");
        let edited =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "db:9"}]}}}});
        w.merge(("apps/v1", "StatefulSet"), "db-1", &edited).await;
        w.until("another plan follows", |_| w.node_plan("db-1")["id"] != before["id"]).await;
        becomes_ready(&w, "db-1-0").await;
        let plan = w.until_node_at("db-1", "look", "Running").await;
        w.approve(text(task(&plan, "look"), "id")).await;
        w.until("the other has its turn", |_| w.images().contains(&"db-0-0 db:2".to_owned())).await;
    });
}

#[test]
fn node_kept_after_cancelled_scale_in_runs_owed_hooks() {
    play(|w| async move {
        replaced(&w, json!([person("look", "AfterNode"), person("decommission", "BeforeRemove")])).await;
        w.change(json!({"replicas": 1})).await;
        w.until_node_at("db-1", "decommission", "Running").await;
        becomes_ready(&w, "db-1-0").await;
        w.rest(5).await;
        w.change(json!({"replicas": 2})).await;
        let plan = w.until_node_at("db-1", "look", "Running").await;
        w.rest(60).await;
        assert!(w.images().contains(&"db-0-0 db:1".to_owned()), "the wave waits for it: {:?}", w.images());
        w.approve(text(task(&plan, "look"), "id")).await;
        w.until("the other has its turn", |_| w.images().contains(&"db-0-0 db:2".to_owned())).await;
    });
}

#[test]
fn after_node_hook_runs_despite_a_status_from_the_future() {
    play(|w| async move {
        w.serve(in_place(1, json!({}), json!([person("look", "AfterNode")]))).await;
        let ahead = (w.cluster.clock().now() + chrono::TimeDelta::hours(1)).to_rfc3339();
        let patch = json!({"status": {"firstReadyAt": ahead}});
        w.api(NODE).patch_status("db-0", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        w.image("db:2").await;
        let plan = w.until_node_at("db-0", "look", "Running").await;
        w.approve(text(task(&plan, "look"), "id")).await;
        w.until("it is complete", is_up_to_date).await;
    });
}

#[test]
fn node_with_a_crashing_extra_container_still_runs_before_hooks() {
    play(|w| async move {
        let mut fleet = in_place(2, json!({}), json!([person("drain", "BeforeNode")]));
        let containers =
            |shipper: &str| json!([{"name": "main", "image": "db:0"}, {"name": "shipper", "image": shipper}]);
        fleet["spec"]["template"]["spec"]["podTemplate"]["spec"]["containers"] = containers("shipper:1");
        w.serve(fleet).await;
        let ship = |image: &str| json!({"template": {"spec": {"podTemplate": {"spec": {"containers": containers(image)}}}}});
        w.change(ship("shipper:crash")).await;
        let plan = w.until_node_at("db-1", "drain", "Running").await;
        w.approve(text(task(&plan, "drain"), "id")).await;
        w.until("its shipper crashes", |s| s["rollout"]["nodes"]["failed"] == 1).await;
        w.change(ship("shipper:2")).await;
        w.until_node_at("db-1", "drain", "Running").await;
    });
}

#[test]
fn failed_hook_during_rollback_does_not_reject_a_later_target() {
    play(|w| async move {
        w.serve(in_place(3, json!({}), json!([]))).await;
        let look = |hook: Value| json!({"updateStrategy": {"hooks": [hook]}});
        w.change(look(fails("look", "AfterNode", "Rollback"))).await;
        w.image("db:2").await;
        w.until("it goes back", |s| s["rejected"]["outcome"] == "RolledBack").await;
        w.until("the way back is stuck", |_| {
            let plan = w.node_plan("db-2");
            w.images().contains(&"db-2-0 db:1".to_owned())
                && tasks(&plan).iter().any(|task| task == "look=Failed")
        })
        .await;
        let mut passes = rest("look", "AfterNode", 1);
        passes["onFailure"] = json!("Rollback");
        let mut both = look(passes);
        both["template"] = json!({"spec": {"image": "db:3"}});
        w.change(both).await;
        w.until("the next target is there", is_up_to_date).await;
        assert_eq!(w.images(), ["db-0-0 db:3", "db-1-0 db:3", "db-2-0 db:3"]);
        assert_eq!(w.events("RolledBack").len(), 1);
    });
}

/// Reads of Jobs fail.
struct NoJobs;

impl windlass_sim::FaultPlan for NoJobs {
    fn before(&mut self, request: &windlass_sim::RequestInfo) -> windlass_sim::Before {
        if request.verb == "get" && request.resource == "jobs.batch" {
            return windlass_sim::Before::Fail(windlass_sim::Failure::Internal);
        }
        windlass_sim::Before::Pass
    }
}

#[test]
fn unavailable_node_is_not_deleted_before_its_removal_hooks() {
    play(|w| async move {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "prepare:slow"}]});
        let job = json!({"template": {"backoffLimit": 0, "template": {"spec": pod}}});
        let prepare = json!({"name": "prepare", "at": "BeforeNode", "job": job});
        w.serve(in_place(2, json!({}), json!([prepare, person("decommission", "BeforeRemove")]))).await;
        w.image("db:2").await;
        w.until_node_at("db-1", "prepare", "Running").await;
        w.steer("db-1-0", "unready").await;
        w.until("it is down", |s| s["readyReplicas"] == 1).await;
        w.cluster.set_faults(Box::new(NoJobs));
        w.change(json!({"replicas": 1})).await;
        w.rest(20).await;
        assert_eq!(w.names(NODE), ["db-0", "db-1"]);
        w.cluster.set_faults(Box::new(windlass_sim::NoFaults));
        let plan = w.until_node_at("db-1", "decommission", "Running").await;
        w.approve(text(task(&plan, "decommission"), "id")).await;
        w.until("it is gone", |_| w.names(NODE) == ["db-0"]).await;
    });
}

/// A Job that never ends, by a hook.
fn job(name: &str, at: &str) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "prepare:nope"}]});
    json!({"name": name, "at": at, "job": {"template": {"backoffLimit": 0, "template": {"spec": pod}}}})
}

const JOB: (&str, &str) = ("batch/v1", "Job");

#[test]
fn started_hook_job_is_awaited_while_the_main_container_crashes() {
    play(|w| async move {
        w.serve(in_place(2, json!({}), json!([job("drain", "BeforeNode")]))).await;
        w.image("db:2").await;
        w.until("the Job is made", |_| w.names(JOB).len() == 1).await;
        w.until_node_at("db-1", "drain", "Running").await;
        w.steer("db-1-0", "crash").await;
        w.until("it is down", |s| s["readyReplicas"] == 1).await;
        w.rest(60).await;
        assert!(w.images().contains(&"db-1-0 db:1".to_owned()), "{:?}", w.images());
        assert_eq!(w.names(JOB).len(), 1);
        // Nobody wants it any more: then it does not go on beside what follows.
        w.change(json!({"updateStrategy": {"hooks": []}})).await;
        w.until("the next is made", |_| w.images().contains(&"db-1-0 db:2".to_owned())).await;
        assert_eq!(w.names(JOB), [""; 0]);
    });
}

/// The fleet's status cannot be written once a Job was made.
#[derive(Default)]
struct Contended {
    is_made: bool,
}

impl windlass_sim::FaultPlan for Contended {
    fn before(&mut self, request: &windlass_sim::RequestInfo) -> windlass_sim::Before {
        self.is_made |= request.verb == "create" && request.resource == "jobs.batch" && !request.dry_run;
        let of_fleet = request.resource.starts_with("nodedeployments") && request.subresource == "status";
        if self.is_made && of_fleet && request.verb == "patch" {
            return windlass_sim::Before::Fail(windlass_sim::Failure::Conflict);
        }
        windlass_sim::Before::Pass
    }
}

#[test]
fn unrecorded_hook_job_ends_with_its_plan() {
    play(|w| async move {
        w.serve(in_place(2, json!({}), json!([job("backup", "BeforeRollout")]))).await;
        w.cluster.set_faults(Box::new(Contended::default()));
        w.image("db:2").await;
        w.until("the Job is made", |_| w.names(JOB).len() == 1).await;
        let first = w.names(JOB);
        assert_eq!(w.status()["plan"]["tasks"][0]["state"], "Pending");
        w.image("db:3").await;
        w.cluster.set_faults(Box::new(windlass_sim::NoFaults));
        w.until("the next has its own", |_| w.names(JOB).iter().any(|name| !first.contains(name))).await;
        w.rest(5).await;
        assert!(!w.names(JOB).contains(&first[0]), "{:?}", w.names(JOB));
    });
}

/// As after a downgrade: the definition takes what this version does not know.
#[test]
fn nodes_of_an_unreadable_fleet_are_not_replaced_without_hooks() {
    play(|w| async move {
        w.serve(in_place(2, json!({}), json!([person("drain", "BeforeNode"), person("look", "AfterNode")])))
            .await;
        w.image("db:2").await;
        w.until_node_at("db-1", "drain", "Running").await;
        w.kill_operator();
        let (definitions, fleets) =
            (("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "nodedeployments.windlass.dev");
        let all = w.cluster.snapshot();
        let mut definition = all
            .iter()
            .find(|o| o["kind"] == definitions.1 && o["metadata"]["name"] == fleets)
            .unwrap()
            .clone();
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let strategy = &mut schema["properties"]["spec"]["properties"]["updateStrategy"]["properties"];
        strategy["hooks"]["items"]["properties"]["onFailure"] = json!({"type": "string"});
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("apiextensions.k8s.io", "v1", definitions.1));
        let api: Api<DynamicObject> = Api::all_with(w.cluster.client("admin", "default"), &resource);
        let patch = json!({"spec": {"versions": definition["spec"]["versions"]}});
        api.patch(fleets, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        let newer = json!([
            {"name": "drain", "at": "BeforeNode", "approval": {}, "onFailure": "Ponder"},
            person("look", "AfterNode"),
        ]);
        w.change(json!({"updateStrategy": {"hooks": newer}})).await;
        w.start_operator();
        w.rest(60).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        assert_eq!(
            tasks(&w.node_plan("db-1"))
                .iter()
                .filter(|task| task.starts_with("drain") || *task == "look")
                .count(),
            2
        );
        let older = json!([person("drain", "BeforeNode"), person("look", "AfterNode")]);
        w.change(json!({"updateStrategy": {"hooks": older}})).await;
        let plan = w.until_node_at("db-1", "drain", "Running").await;
        w.approve(text(task(&plan, "drain"), "id")).await;
        w.until_node_at("db-1", "look", "Running").await;
        assert!(w.images().contains(&"db-1-0 db:2".to_owned()));
    });
}
