//! Pitfalls for clients of Temporal, as seen on a real server; these tests fail when a new version differs.

use windlass_temporal::port::{BuildId, TaskQueue, TaskQueueKind};

use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn workflow_is_pinned_by_its_first_task_and_not_by_its_start() {
    let stage = Stage::new("begun").await;
    let one = stage.worker("v1").await;
    stage.make_current("v1").await;
    drop(one);
    stage.person.start("Hold", "begun-1", stage.name.as_str(), None).await.expect("a workflow");
    assert_eq!(
        stage.person.build_of("begun-1").await.expect("it is there"),
        None,
        "no worker has taken it up"
    );
    let _two = stage.worker("v2").await;
    stage.make_current("v2").await;
    stage
        .until("it is pinned", async || {
            stage.person.build_of("begun-1").await.ok()?.filter(|build| build == "v2").map(drop)
        })
        .await;
    // From here on it stays, whatever becomes current.
    let _three = stage.worker("v3").await;
    stage.make_current("v3").await;
    stage.person.let_go("begun-1").await.expect("a signal");
    assert_eq!(stage.person.result("begun-1").await, "v2");
}

#[tokio::test(flavor = "multi_thread")]
async fn version_without_workers_becomes_current_without_an_error() {
    let stage = Stage::new("deserted").await;
    let _one = stage.worker("v1").await;
    stage.make_current("v1").await;
    let two = stage.worker("v2").await;
    let queue = TaskQueue { name: stage.name.to_string(), kind: TaskQueueKind::Workflow };
    drop(two);
    stage
        .until("nobody polls as v2", async || {
            let pollers = stage.port.pollers(&stage.name, &BuildId::new("v2"), &queue).await.ok()?;
            (pollers.count == 0).then_some(())
        })
        .await;
    stage.make_current("v2").await;
    assert_eq!(stage.describe().await.routing.current, Some(BuildId::new("v2")));
}
