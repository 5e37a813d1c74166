//! How a `WorkerDeployment` goes.

use serde_json::json;
use windlass_temporal::played::{Mood, Write};
use windlass_temporal::port::{BuildId, RoutingWrite};

use crate::stage::{Stage, deployment, spec};

#[tokio::test(start_paused = true)]
async fn a_deleted_one_gives_its_tasks_back_and_waits_for_its_workflows() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s.delete().await;
    s.seconds(120).await;
    assert!(s.temporal.writes().contains(&Write::Routing(RoutingWrite::Current(None))));
    assert_eq!(s.deployments()[0]["spec"]["replicas"], 2);
    assert!(s.message("Reconciling").contains("1 workflows still run"), "{}", s.message("Reconciling"));
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
async fn one_that_is_deleted_now_waits_for_nothing_not_even_for_temporal() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s.temporal.is(Mood::Down);
    s.delete().await;
    s.seconds(60).await;
    assert!(s.object().is_some() && !s.deployments().is_empty());
    s.annotate("windlass.dev/delete", "now").await;
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_retained_leaves_all_as_it_is_and_its_successor_takes_it_up() {
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
async fn records_that_temporal_does_not_give_up_are_not_waited_for_for_ever() {
    let (s, v1) = Stage::running(spec("v1")).await;
    s.delete().await;
    let temporal = s.temporal.clone();
    let polling = tokio::spawn(async move {
        loop {
            // Somebody's own worker polls as this version.
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

#[tokio::test(start_paused = true)]
async fn one_that_is_deleted_now_gives_back_what_temporal_takes_at_once() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s.annotate("windlass.dev/delete", "now").await;
    s.delete().await;
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
    let writes = s.temporal.writes();
    assert!(writes.contains(&Write::Routing(RoutingWrite::Current(None))), "{writes:?}");
    assert!(writes.contains(&Write::Manager(None)), "{writes:?}");
    // The next of its name finds nobody in its way.
    s.create(spec("v2")).await;
    let v2 = s.target().await;
    s.until_current(&v2).await;
}

#[tokio::test(start_paused = true)]
async fn one_whose_last_workflow_ends_long_after_its_deletion_is_left_without_a_manager_all_the_same() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s.delete().await;
    s.seconds(3600).await;
    s.temporal.end("long");
    s.until("it is gone", |s| s.object().is_none()).await;
    let writes = s.temporal.writes();
    assert!(writes.contains(&Write::Manager(None)), "{writes:?}");
    assert_eq!(writes.last(), Some(&Write::DeleteDeployment), "a namespace has room for a hundred");
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn one_that_is_retained_while_temporal_is_gone_for_a_moment_is_left_without_a_manager() {
    let mut retained = spec("v1");
    retained["deletionPolicy"] = json!("Retain");
    let (s, _) = Stage::running(retained).await;
    s.temporal.is(Mood::Down);
    s.delete().await;
    s.seconds(20).await;
    s.temporal.is(Mood::Well);
    s.until("it is gone", |s| s.object().is_none()).await;
    assert_eq!(s.temporal.writes().last(), Some(&Write::Manager(None)));
}

#[tokio::test(start_paused = true)]
async fn one_that_another_manages_and_that_serves_nothing_there_goes_at_once() {
    let s = Stage::new();
    s.temporal.poll(&deployment(), &BuildId::new("theirs"), &["orders"], 1);
    s.temporal.manage(&deployment(), Some("windlass/elsewhere/orders/12345678"));
    s.temporal.by_hand(&deployment(), &RoutingWrite::Current(Some(BuildId::new("theirs")))).unwrap();
    let before = s.temporal.writes().len();
    s.create(spec("v1")).await;
    s.until("it is said", |s| s.says("UpToDate").ends_with("OwnedByOther")).await;
    s.delete().await;
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
    assert_eq!(s.temporal.writes().len(), before, "{:?}", s.temporal.writes());
}
