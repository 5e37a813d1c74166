//! Batch operations that move pinned workflows.

use super::{Ground, current, identity, missing, queue, route, until, until_status};
use windlass_temporal::port::{
    BatchMove, BatchState, BuildId, DescribedBatch, Missing, PinnedWorkflows, TemporalError, VersionStatus,
};

fn pinned(ground: &dyn Ground, build: &str, query: Option<String>) -> PinnedWorkflows {
    PinnedWorkflows { deployment: ground.deployment(), build: BuildId::new(build), query }
}

fn batch(ground: &dyn Ground, id: &str, to: &str, query: Option<String>) -> BatchMove {
    BatchMove {
        job_id: format!("{}-{id}", ground.deployment()),
        workflows: pinned(ground, "v1", query),
        to: BuildId::new(to),
        reason: "a case".to_owned(),
        identity: identity(),
    }
}

/// Starts workflows that are pinned to v1, and waits until they are counted.
async fn begin(ground: &dyn Ground, ids: &[&str]) {
    for id in ids {
        let started = async || ground.start(id, &queue(ground), Some("v1")).await.ok();
        until(ground, "the workflow is accepted", started).await;
    }
    until_count(ground, "v1", ids.len() as u64).await;
}

async fn until_count(ground: &dyn Ground, build: &str, count: u64) {
    let workflows = pinned(ground, build, None);
    until(ground, &format!("{count} workflows are on {build}"), async || {
        (ground.temporal().count_pinned(&workflows).await == Ok(count)).then_some(())
    })
    .await;
}

/// Starts a batch, once no other one runs in the namespace.
async fn send(ground: &dyn Ground, batch: &BatchMove) {
    until(ground, "the batch is accepted", async || match ground.temporal().start_batch(batch).await {
        Ok(()) => Some(()),
        Err(TemporalError::TooManyBatches { .. } | TemporalError::RateLimited { .. }) => None,
        Err(error) => panic!("{error}"),
    })
    .await;
}

async fn ended(ground: &dyn Ground, batch: &BatchMove) -> DescribedBatch {
    until(ground, "the batch has ended", async || {
        let described = ground.temporal().describe_batch(&batch.job_id).await;
        described.ok().filter(|described| described.state != BatchState::Running)
    })
    .await
}

pub async fn moves(ground: &dyn Ground) {
    for build in ["v1", "v2", "v3"] {
        ground.work(build, &[queue(ground)]).await;
    }
    route(ground, &current("v1")).await;
    begin(ground, &["one", "two", "three"]).await;
    route(ground, &current("v2")).await;
    let port = ground.temporal();

    // One of them, to a version that never received tasks.
    let only = Some(format!("WorkflowId = '{}'", ground.workflow_id("one")));
    assert_eq!(port.count_pinned(&pinned(ground, "v1", only.clone())).await, Ok(1));
    let some = batch(ground, "some", "v3", only);
    assert_eq!(missing(port.describe_batch(&some.job_id).await), Missing::Batch);
    send(ground, &some).await;
    let done = ended(ground, &some).await;
    assert_eq!((done.state, done.complete, done.failed), (BatchState::Completed, 1, 0));
    until_count(ground, "v1", 2).await;

    // All others; the same job again starts nothing.
    let rest = batch(ground, "rest", "v2", None);
    send(ground, &rest).await;
    let done = ended(ground, &rest).await;
    assert_eq!((done.state, done.complete, done.failed), (BatchState::Completed, 2, 0));
    until_count(ground, "v1", 0).await;
    until_count(ground, "v2", 2).await;
    send(ground, &rest).await;
    assert_eq!(port.describe_batch(&rest.job_id).await, Ok(done), "it did not run again");
    until_status(ground, "v1", VersionStatus::Drained).await;
    for (id, build) in [("one", "v3"), ("two", "v2"), ("three", "v2")] {
        assert_eq!(ground.end(id).await, build, "{id} goes on where it was moved");
    }
}

pub async fn fails(ground: &dyn Ground) {
    ground.work("v1", &[queue(ground)]).await;
    begin(ground, &["stays"]).await;
    let port = ground.temporal();
    let unreadable = pinned(ground, "v1", Some("NoSuchAttribute ! 'x'".to_owned()));
    let refused = port.count_pinned(&unreadable).await;
    assert!(matches!(refused, Err(TemporalError::Refused { .. })), "{refused:?}");
    // Temporal accepts a batch to a version that it does not know, and counts each workflow as failed.
    let nowhere = batch(ground, "nowhere", "v9", None);
    send(ground, &nowhere).await;
    let done = ended(ground, &nowhere).await;
    assert_eq!((done.state, done.complete, done.failed), (BatchState::Completed, 0, 1));
    assert_eq!(ground.end("stays").await, "v1");
}

pub async fn stops(ground: &dyn Ground) {
    ground.work("v1", &[queue(ground)]).await;
    let port = ground.temporal();
    let nothing = batch(ground, "nothing", "v1", None);
    assert_eq!(port.stop_batch(&nothing.job_id, "over", &identity()).await, Ok(()), "it never existed");
    send(ground, &nothing).await;
    assert_eq!(port.stop_batch(&nothing.job_id, "over", &identity()).await, Ok(()));
    ended(ground, &nothing).await;
    assert_eq!(port.stop_batch(&nothing.job_id, "again", &identity()).await, Ok(()), "it has ended");
}
