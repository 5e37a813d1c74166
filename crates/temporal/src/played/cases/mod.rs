//! What a played Temporal and a real one have to do alike: one list of cases, which runs against both. A case that only the real
//! one fails is a trap that moved; one that only the played one fails is a lie that other tests rest on.

#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a case fails by panicking")]

mod gates;
mod routing;
mod versions;

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::LocalBoxFuture;

use crate::port::{
    BuildId, DeploymentName, DescribedDeployment, Guard, Identity, Missing, RoutingWrite, Temporal,
    TemporalError, VersionStatus,
};

/// What a case is played on: a Temporal, workers, and a person. The deployment is the case's own.
#[async_trait(?Send)]
pub trait Ground {
    /// The Temporal.
    fn temporal(&self) -> Arc<dyn Temporal>;
    /// The case's deployment.
    fn deployment(&self) -> DeploymentName;
    /// A worker of a version asks for tasks on these task queues from now on, and Temporal knows of it.
    async fn work(&self, build: &str, queues: &[String]);
    /// The workers of a version are gone.
    async fn stop(&self, build: &str);
    /// A person starts a workflow that runs until it is let go: pinned to a version, or where the routing leads.
    async fn start(&self, id: &str, queue: &str, pinned: Option<&str>) -> Result<(), String>;
    /// A person lets a workflow end. Answers with the build that it ended on.
    async fn end(&self, id: &str) -> String;
    /// A person makes somebody the manager.
    async fn take_over(&self, who: &str);
    /// A person sets the ramp; an empty build is workers without a version.
    async fn ramp_by_hand(&self, build: &str, percent: f32, who: &str);
    /// A moment passes between two looks.
    async fn moment(&self);
}

/// A case.
pub type Case = fn(&dyn Ground) -> LocalBoxFuture<'_, ()>;

/// All of them, each with a name of its own.
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
];

/// Who these cases are to Temporal.
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

/// The guard that an answer asks for.
fn guard(described: &DescribedDeployment) -> Guard {
    Guard { token: described.conflict_token.clone(), identity: identity() }
}

/// Changes the routing by what is described now, and waits until that holds everywhere.
async fn route(ground: &dyn Ground, write: &RoutingWrite) {
    let guard = guard(&describe(ground).await);
    let written = ground.temporal().set_routing(&ground.deployment(), write, &guard).await;
    assert!(written.is_ok(), "{write:?}: {written:?}");
    until(ground, "the routing is settled", async || describe(ground).await.is_settled.then_some(())).await;
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

/// Asks until there is an answer.
async fn until<T>(ground: &dyn Ground, what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..2_400 {
        if let Some(answer) = ask().await {
            return answer;
        }
        ground.moment().await;
    }
    panic!("waited in vain until {what}");
}
