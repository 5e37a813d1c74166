//! What the fake Temporal and a real one must do alike: cases that run against both. A case that fails only on the
//! real one shows that Temporal changed; one that fails only on the fake shows that other tests rest on a wrong
//! model.

#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a case fails by panicking")]

mod batches;
mod gates;
mod routing;
mod versions;

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::LocalBoxFuture;

use windlass_temporal::port::{
    BuildId, DeploymentName, DescribedDeployment, Guard, Identity, Missing, RoutingWrite, Temporal,
    TemporalError, VersionStatus,
};

/// The environment of a case: a Temporal, workers, and a person. Each case has its own deployment.
#[async_trait(?Send)]
pub trait Ground {
    /// The Temporal.
    fn temporal(&self) -> Arc<dyn Temporal>;
    /// The case's deployment.
    fn deployment(&self) -> DeploymentName;
    /// Starts workers of a version on these task queues, and waits until Temporal knows them.
    async fn work(&self, build: &str, queues: &[String]);
    /// Stops the workers of a version.
    async fn stop(&self, build: &str);
    /// Starts a workflow that runs until `end`: pinned to a version, or routed.
    async fn start(&self, id: &str, queue: &str, pinned: Option<&str>) -> Result<(), String>;
    /// The ID of such a workflow in Temporal.
    fn workflow_id(&self, id: &str) -> String;
    /// Ends a workflow. Returns the build that it ended on.
    async fn end(&self, id: &str) -> String;
    /// Makes another identity the manager.
    async fn take_over(&self, who: &str);
    /// Sets the ramp as a person would; an empty build stands for workers without a version.
    async fn ramp_by_hand(&self, build: &str, percent: f32, who: &str);
    /// Waits a moment between two observations.
    async fn moment(&self);
}

/// A case.
pub type Case = fn(&dyn Ground) -> LocalBoxFuture<'_, ()>;

/// How often a case looks for an answer, and for settled routing.
const PATIENCE: u32 = 2_400;
const SETTLES_IN: u32 = 100;

/// All cases, with unique names.
pub const CASES: &[(&str, Case)] = &[
    ("what-was-never-there", |ground| Box::pin(versions::what_was_never_there(ground))),
    ("first-poll", |ground| Box::pin(versions::first_poll(ground))),
    ("pollers-and-counts", |ground| Box::pin(versions::pollers_and_counts(ground))),
    ("drained-and-revived", |ground| Box::pin(versions::drained_and_revived(ground))),
    ("deleted", |ground| Box::pin(versions::deleted(ground))),
    ("ramped-and-current", |ground| Box::pin(routing::ramped_and_current(ground))),
    ("stale-token", |ground| Box::pin(routing::stale_token(ground))),
    ("other-manager", |ground| Box::pin(routing::other_manager(ground))),
    ("missing-task-queues", |ground| Box::pin(routing::missing_task_queues(ground))),
    ("unseen-build", |ground| Box::pin(routing::unseen_build(ground))),
    ("ramp-by-hand", |ground| Box::pin(routing::ramp_by_hand(ground))),
    ("gate-ends", |ground| Box::pin(gates::ends(ground))),
    ("gate-hangs", |ground| Box::pin(gates::hangs(ground))),
    ("gate-drains", |ground| Box::pin(gates::drains(ground))),
    ("batch-moves", |ground| Box::pin(batches::moves(ground))),
    ("batch-fails", |ground| Box::pin(batches::fails(ground))),
    ("batch-stops", |ground| Box::pin(batches::stops(ground))),
];

/// The identity of the cases.
#[must_use]
pub fn identity() -> Identity {
    Identity::new("windlass/tests")
}

/// The task queue of most workers.
fn queue(ground: &dyn Ground) -> String {
    ground.deployment().to_string()
}

fn current(build: &str) -> RoutingWrite {
    RoutingWrite::Current(Some(BuildId::new(build)))
}

fn missing<T: std::fmt::Debug>(answer: Result<T, TemporalError>) -> Missing {
    match answer {
        Err(TemporalError::NotFound { what, .. }) => what,
        other => panic!("not «not found», but {other:?}"),
    }
}

async fn describe(ground: &dyn Ground) -> DescribedDeployment {
    match ground.temporal().describe_deployment(&ground.deployment()).await {
        Ok(described) => described,
        Err(error) => panic!("{} is described: {error}", ground.deployment()),
    }
}

/// The guard for a write that is decided on this description.
fn guard(described: &DescribedDeployment) -> Guard {
    Guard { token: described.conflict_token.clone(), identity: identity() }
}

/// Changes the routing with a fresh token, and waits until it is settled. Temporal 1.32.1 reports one change in a hundred as
/// unsettled for good, so the wait has an end.
async fn route(ground: &dyn Ground, write: &RoutingWrite) {
    let guard = guard(&describe(ground).await);
    let written = ground.temporal().set_routing(&ground.deployment(), write, &guard).await;
    assert!(written.is_ok(), "{write:?}: {written:?}");
    for _ in 0..SETTLES_IN {
        if describe(ground).await.is_settled {
            return;
        }
        ground.moment().await;
    }
}

async fn status(ground: &dyn Ground, build: &str) -> Option<VersionStatus> {
    let described = ground.temporal().describe_version(&ground.deployment(), &BuildId::new(build)).await;
    match described {
        Ok(described) => Some(described.summary.status),
        Err(TemporalError::NotFound { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

async fn until_status(ground: &dyn Ground, build: &str, wanted: VersionStatus) {
    let is_so = async || (status(ground, build).await == Some(wanted)).then_some(());
    until(ground, &format!("{build} is {wanted:?}"), is_so).await;
}

/// Polls until there is an answer.
async fn until<T>(ground: &dyn Ground, what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..PATIENCE {
        if let Some(answer) = ask().await {
            return answer;
        }
        ground.moment().await;
    }
    panic!("waited in vain until {what}");
}
