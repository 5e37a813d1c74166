//! How a `WorkerDeployment` goes.

use serde_json::json;
use windlass_temporal::played::{Mood, Write};
use windlass_temporal::port::RoutingWrite;

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
    assert!(matches!(s.temporal.writes().last(), Some(Write::Manager(None))), "{:?}", s.temporal.writes());
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
