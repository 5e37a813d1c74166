//! The deletion of a `WorkerDeployment`.

use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use windlass_sim::{Before, Failure, FaultPlan, NoFaults, RequestInfo};
use windlass_temporal::port::{BuildId, RoutingWrite};
use windlass_temporal_fake::{FakeTemporal, Fault, Settings, Write};

use crate::stage::{Stage, deployment, spec};

#[tokio::test(start_paused = true)]
async fn deleted_worker_deployment_unsets_current_and_drains() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s.delete().await;
    s.seconds(120).await;
    assert!(s.temporal.writes().contains(&Write::Routing(RoutingWrite::Current(None))));
    assert_eq!(s.deployments()[0]["spec"]["replicas"], 2);
    assert!(
        s.message("Reconciling").contains(": 1. Windlass deletes its workers"),
        "{}",
        s.message("Reconciling")
    );
    s.temporal.end("long");
    s.until("it is gone", |s| s.object().is_none()).await;
    assert!(s.deployments().is_empty());
    assert!(
        s.temporal.writes().ends_with(&[Write::Manager(None), Write::DeleteDeployment]),
        "{:?}",
        s.temporal.writes()
    );
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn deleted_workers_of_a_workflow_are_restored_during_deletion() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s.delete().await;
    s.until("it waits", |s| s.message("Reconciling").contains("running workflows")).await;
    let name = format!("orders-{v1}");
    let has_workers = |s: &Stage| s.deployment_of(&v1).is_some_and(|live| live["spec"]["replicas"] == 2);
    for (is_scaled, fault) in [
        (false, Fault::None),
        (true, Fault::None),
        (false, Fault::Uncounting),
        (false, Fault::Limiting),
        (false, Fault::Down),
    ] {
        s.temporal.set_fault(fault.clone());
        if is_scaled {
            let to_zero = Patch::Merge(json!({"spec": {"replicas": 0}}));
            s.api("Deployment").patch(&name, &PatchParams::default(), &to_zero).await.unwrap();
        } else {
            s.api("Deployment").delete(&name, &DeleteParams::default()).await.unwrap();
        }
        s.seconds(300).await;
        assert!(s.object().is_some(), "{fault:?}: {:#}", s.status());
        s.temporal.set_fault(Fault::None);
        s.until("its workers are restored", has_workers).await;
        s.seconds(900).await;
        assert!(s.deployment_of(&v1).is_some() && s.object().is_some(), "{:#}", s.status());
    }
    s.temporal.end("long");
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn immediate_deletion_does_not_wait_for_temporal() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s.temporal.set_fault(Fault::Down);
    s.delete().await;
    s.seconds(60).await;
    assert!(s.object().is_some() && !s.deployments().is_empty());
    s.annotate("windlass.dev/delete", "now").await;
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn retained_workers_are_unchanged_and_adopted_by_the_successor() {
    let s = Stage::new();
    let mut spec = spec("v1");
    spec["deletionPolicy"] = json!("Retain");
    s.create(spec.clone()).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    let before = s.deployments();
    s.delete().await;
    s.until("it is gone", |s| s.object().is_none()).await;
    assert_eq!(s.deployments(), before);
    assert_eq!(s.ramps(), [100]);
    s.create(spec).await;
    s.until_current(&v1).await;
    assert_eq!(s.names(), [format!("orders-{v1}")]);
    assert_eq!(s.ramps(), [100], "what is current stays so");
}

#[tokio::test(start_paused = true)]
async fn undeletable_version_records_do_not_block_deletion_forever() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.delete().await;
    let temporal = s.temporal.clone();
    let polling = tokio::spawn(async move {
        loop {
            // A worker of somebody else polls as this version.
            temporal.poll(&deployment(), &v1, &["orders"], 1);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    for _ in 0..3 {
        s.seconds(300).await;
    }
    polling.abort();
    assert!(s.object().is_none(), "{:#}", s.status());
}

/// Counts Temporal's writes before the operator's first delete of a Deployment.
#[derive(Clone)]
struct Moment(FakeTemporal, Arc<Mutex<Option<usize>>>);

impl Moment {
    fn new(s: &Stage) -> Self {
        let moment = Self(s.temporal.clone(), Arc::default());
        s.cluster.set_faults(Box::new(moment.clone()));
        moment
    }

    fn writes_at_first_delete(&self) -> Option<usize> {
        *self.1.lock().unwrap()
    }
}

impl FaultPlan for Moment {
    fn before(&mut self, request: &RequestInfo) -> Before {
        if request.verb == "delete" && request.resource == "deployments.apps" {
            self.1.lock().unwrap().get_or_insert_with(|| self.0.writes().len());
        }
        Before::Pass
    }
}

#[tokio::test(start_paused = true)]
async fn immediate_deletion_releases_the_routing_and_the_manager() {
    for fault in [Fault::None, Fault::LosesAnswers] {
        let (s, v1) = Stage::running(spec("v1")).await;
        s.temporal.start(&deployment(), "long", None, 99.0);
        s.roll_to("v2").await;
        s.until("it ramps", |s| s.ramps() == [100, 5]).await;
        s.temporal.set_fault(fault.clone());
        s.annotate("windlass.dev/delete", "now").await;
        let began = s.temporal.writes().len();
        let watcher = Moment::new(&s);
        s.delete().await;
        s.seconds(30).await;
        assert!(s.object().is_none() && s.deployments().is_empty(), "{fault:?}: {:#}", s.status());
        let writes = s.temporal.writes();
        let back = [RoutingWrite::ClearRamp, RoutingWrite::Current(None)].map(Write::Routing);
        let back_first = watcher
            .writes_at_first_delete()
            .is_some_and(|n| back.iter().all(|write| writes[began..n].contains(write)));
        assert!(back_first, "{fault:?}, {v1}: {writes:?}");
        assert_eq!(writes.last(), Some(&Write::Manager(None)), "{fault:?}");
        // A new object of the same name finds nothing left behind.
        s.temporal.set_fault(Fault::None);
        s.create(spec("v2")).await;
        let v2 = s.target().await;
        s.until_current(&v2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn never_promoted_worker_deployment_leaves_foreign_routing() {
    let s = Stage::new();
    let theirs = BuildId::new("theirs");
    s.temporal.poll(&deployment(), &theirs, &["orders"], 1);
    s.temporal.by_hand(&deployment(), &RoutingWrite::Current(Some(theirs.clone()))).unwrap();
    let before = s.temporal.writes().len();
    let mut manual = spec("v1");
    manual["rollout"] = json!({"strategy": "Manual"});
    s.create(manual).await;
    s.until("it waits for a promotion", |s| s.condition("UpToDate").contains("ReadyToPromote")).await;
    s.delete().await;
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
    let touched: Vec<Write> = s.temporal.writes().split_off(before);
    assert!(!touched.iter().any(|write| matches!(write, Write::Routing(_))), "{touched:?}");
}

/// An API server that refuses to delete one Deployment.
struct Keeps(String);

impl FaultPlan for Keeps {
    fn before(&mut self, request: &RequestInfo) -> Before {
        if request.verb == "delete" && request.name == self.0 {
            return Before::Fail(Failure::Forbidden(format!("{} is protected", self.0)));
        }
        Before::Pass
    }
}

#[tokio::test(start_paused = true)]
async fn undeletable_workers_are_reported_and_do_not_keep_others() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    let kept = s.names()[0].clone();
    let other = if kept.ends_with(v1.as_str()) { &v2 } else { &v1 };
    s.cluster.set_faults(Box::new(Keeps(kept.clone())));
    s.annotate("windlass.dev/delete", "now").await;
    s.delete().await;
    s.until("the other goes", |s| s.deployment_of(other).is_none()).await;
    s.until("it is said", |s| s.message("Reconciling").contains("is protected")).await;
    assert_eq!(s.names(), [kept]);
    s.cluster.set_faults(Box::new(NoFaults));
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn retained_deletion_during_an_outage_clears_the_manager() {
    let mut retained = spec("v1");
    retained["deletionPolicy"] = json!("Retain");
    let (s, _) = Stage::running(retained).await;
    s.temporal.set_fault(Fault::Down);
    s.delete().await;
    s.seconds(20).await;
    s.temporal.set_fault(Fault::None);
    s.until("it is gone", |s| s.object().is_none()).await;
    assert_eq!(s.temporal.writes().last(), Some(&Write::Manager(None)));
}

#[tokio::test(start_paused = true)]
async fn immediate_retained_deletion_does_not_wait_for_temporal() {
    for fault in [Fault::Down, Fault::LosesAnswers, Fault::None] {
        let mut retained = spec("v1");
        retained["deletionPolicy"] = json!("Retain");
        let (s, _) = Stage::running(retained).await;
        let before = s.deployments();
        s.temporal.set_fault(fault.clone());
        s.annotate("windlass.dev/delete", "now").await;
        s.delete().await;
        s.seconds(10).await;
        assert!(s.object().is_none(), "{fault:?}: {:#}", s.status());
        assert_eq!(s.deployments(), before, "{fault:?}");
        let is_freed = s.temporal.writes().last() == Some(&Write::Manager(None));
        assert_eq!(is_freed, fault != Fault::Down, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unrouted_deletion_under_a_foreign_manager_is_immediate() {
    let s = Stage::new();
    s.temporal.poll(&deployment(), &BuildId::new("theirs"), &["orders"], 1);
    s.temporal.manage(&deployment(), Some("windlass/elsewhere/orders/12345678"));
    s.temporal.by_hand(&deployment(), &RoutingWrite::Current(Some(BuildId::new("theirs")))).unwrap();
    let before = s.temporal.writes().len();
    s.create(spec("v1")).await;
    s.until("it is said", |s| s.condition("UpToDate").ends_with("OwnedByOther")).await;
    s.delete().await;
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
    assert_eq!(s.temporal.writes().len(), before, "{:?}", s.temporal.writes());
}

#[tokio::test(start_paused = true)]
async fn worker_deployment_that_never_reached_temporal_is_deleted() {
    for fault in [Fault::Down, Fault::Secretless, Fault::Refusing] {
        let s = Stage::new();
        s.temporal.set_fault(fault.clone());
        s.create(spec("v1")).await;
        s.until("it is said", |s| s.status()["temporalLostAt"].is_string()).await;
        s.delete().await;
        s.seconds(10).await;
        assert!(s.object().is_none(), "{fault:?}: {:#}", s.status());
    }
}

/// Deletes what workers can be created from, and the workers, as the deletion of their namespace does.
async fn delete_all(s: &Stage, build: &BuildId) {
    let revisions = s.api("ControllerRevision");
    for revision in revisions.list(&ListParams::default()).await.unwrap() {
        let name = revision.metadata.name.unwrap();
        revisions.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    s.api("Deployment").delete(&format!("orders-{build}"), &DeleteParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn worker_deployment_is_deleted_after_its_workers_disappear() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.temporal.set_fault(Fault::Secretless);
    s.delete().await;
    s.seconds(1200).await;
    assert!(s.object().is_some(), "workers are there");
    s.api("Deployment").delete(&format!("orders-{v1}"), &DeleteParams::default()).await.unwrap();
    s.until("they are restored", |s| s.deployment_of(&v1).is_some()).await;
    delete_all(&s, &v1).await;
    s.until("it is gone", |s| s.object().is_none()).await;

    // The operator tries for some minutes to release the routing first.
    let (s, v1) = Stage::running(spec("v1")).await;
    s.temporal.set_fault(Fault::Secretless);
    s.delete().await;
    delete_all(&s, &v1).await;
    s.seconds(300).await;
    assert!(s.message("Reconciling").contains("no workers are left"), "{}", s.message("Reconciling"));
    s.temporal.set_fault(Fault::None);
    s.until("it is gone", |s| s.object().is_none()).await;
    let back = Write::Routing(RoutingWrite::Current(None));
    assert!(s.temporal.writes().contains(&back), "{:?}", s.temporal.writes());
}

#[tokio::test(start_paused = true)]
async fn workflow_started_just_before_deletion_keeps_its_workers() {
    let s = Stage::with(Settings { lag: TimeDelta::seconds(20), ..Settings::default() });
    s.create(spec("v1")).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    s.temporal.start(&deployment(), "late", None, 99.0);
    s.delete().await;
    s.seconds(120).await;
    assert!(s.deployment_of(&v1).is_some(), "a workflow runs there");
    s.temporal.end("late");
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn unreadable_spec_is_deleted_only_on_immediate_request() {
    let (s, _) = Stage::running(spec("v1")).await;
    // The schema allows it, but no Deployment does.
    s.patch(json!({"spec": {"maxSurge": 3_000_000_000_u64}})).await;
    s.until("it is said", |s| s.condition("Stalled") == "True/InvalidSpec").await;
    s.delete().await;
    s.seconds(120).await;
    assert!(s.object().is_some() && !s.deployments().is_empty());
    assert!(s.message("Stalled").contains("windlass delete wwd/"), "{}", s.message("Stalled"));
    s.annotate("windlass.dev/delete", "now").await;
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn retained_workers_survive_a_temporal_that_lost_their_records() {
    for fault in [Fault::Forgetful, Fault::Empty, Fault::Foreign] {
        let mut retained = spec("v1");
        retained["deletionPolicy"] = json!("Retain");
        let (s, v1) = Stage::running(retained.clone()).await;
        s.temporal.start(&deployment(), "long", None, 99.0);
        let v2 = s.roll_to("v2").await;
        s.until_current(&v2).await;
        s.delete().await;
        s.until("it is gone", |s| s.object().is_none()).await;
        let before = s.deployments();
        s.temporal.set_fault(fault.clone());
        // Its successor has an address, say, that leads elsewhere, and then another image.
        retained["template"] = crate::stage::template("v2");
        s.create(retained).await;
        s.until("it is said", |s| s.condition("UpToDate") == "Unknown/TemporalUnreachable").await;
        assert!(
            s.message("UpToDate").contains("the status has no record of the workers"),
            "{}",
            s.message("UpToDate")
        );
        s.seconds(150).await;
        s.set_image("v3").await;
        s.seconds(150).await;
        assert_eq!(s.deployments(), before, "{fault:?}");
        s.temporal.set_fault(Fault::None);
        let v3 = s.target().await;
        s.until_current(&v3).await;
        assert!(s.deployment_of(&v1).is_some(), "a workflow runs there");
        s.temporal.end("long");
        s.until("v1 goes", |s| s.deployment_of(&v1).is_none()).await;
        s.assert_no_orphans();
    }
}

#[tokio::test(start_paused = true)]
async fn unregistered_first_version_is_replaced_by_the_next() {
    let s = Stage::new();
    s.create(spec("broken")).await;
    let v1 = s.target().await;
    s.until("its workers are there", |s| s.deployment_of(&v1).is_some()).await;
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.until("the first goes", |s| s.deployment_of(&v1).is_none() && s.record(&v1).is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn uncountable_workflows_block_deletion_and_message_has_remedy() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.set_fault(Fault::Uncounting);
    s.delete().await;
    s.until("it is said", |s| s.message("Reconciling").contains("the visibility store is disabled")).await;
    assert!(s.message("Reconciling").contains("windlass delete wwd/"), "{}", s.message("Reconciling"));
    s.seconds(300).await;
    assert!(s.object().is_some() && !s.deployments().is_empty());
    s.temporal.set_fault(Fault::None);
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
}
