//! Observes the API server and Temporal. Writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::Value;
use windlass_core::observed::{Meta, ObservedObject, parse_time};
use windlass_engine::Plan;
use windlass_kube_port::{ClusterError, Kind, Target as WriteTarget};

use crate::api::names::{
    ANNOTATION_DELETE, ANNOTATION_REVISION, ANNOTATION_SUNSET, ANNOTATION_TEMPLATE_HASH,
};
use crate::api::{Connection, VersionState, WorkerDeploymentSpec, WorkerDeploymentStatus};
use crate::children::{Children, target};
use crate::per_version::replicas;
use crate::planner::facts::{PoolWorkers, Standing, believe};
use crate::planner::{Facts, Target, TemporalState, Version, WorkerSecrets, Workers};
use crate::port::{BuildId, DescribedDeployment, Identity, Missing, Temporal, TemporalError};

/// The most unlisted versions that one reconcile looks up in Temporal by name.
const MAX_UNLISTED_LOOKUPS: usize = 5;
/// How far the clocks of two API servers may differ: a Deployment is older than its object only by more.
const SKEW: TimeDelta = TimeDelta::seconds(10);
/// The most task queues of a version whose pollers are counted.
const QUEUES: usize = 20;

/// A WorkerDeployment as read; metadata and status are available even if the spec is invalid.
pub struct Read {
    /// The object.
    pub stored: Arc<ObservedObject>,
    /// Its spec, or why it cannot be read, as a sentence.
    pub spec: Result<WorkerDeploymentSpec, String>,
    /// Its status.
    pub status: WorkerDeploymentStatus,
}

impl Read {
    /// Parses an object. A status that cannot be read counts as empty.
    #[must_use]
    pub fn of(stored: Arc<ObservedObject>) -> Self {
        let object = &stored.object;
        let spec = WorkerDeploymentSpec::deserialize(&object["spec"]);
        let status = WorkerDeploymentStatus::deserialize(&object["status"]).unwrap_or_default();
        Self { spec: spec.map_err(|e| format!("spec is invalid: {e}")), status, stored }
    }

    /// Its metadata.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.stored.meta
    }

    /// The target of a write to it.
    #[must_use]
    pub fn write_target(&self) -> WriteTarget {
        WriteTarget::of(Kind::WorkerDeployment, self.meta())
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.meta().annotation(key).filter(|text| !text.is_empty())
    }

    /// Its finalizers.
    #[must_use]
    pub fn finalizers(&self) -> Vec<Value> {
        self.stored.object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default()
    }

    /// Its `deletionTimestamp`.
    #[must_use]
    pub fn deleted_at(&self) -> Option<DateTime<Utc>> {
        self.stored.object["metadata"]["deletionTimestamp"].as_str().and_then(parse_time)
    }
}

/// The identity under which Windlass writes to Temporal for this object. It contains the UID: an object of the same
/// name, in another cluster or created later, is another client.
#[must_use]
pub fn identity(read: &Read) -> Identity {
    let Meta { namespace, name, uid, .. } = read.meta();
    let uid = uid.get(..8).unwrap_or(uid);
    Identity::new(format!("windlass/{namespace}/{name}/{uid}"))
}

/// Observes the children and the deployment in Temporal; also returns Temporal's retry delay for clients.
pub async fn facts(
    read: &Read,
    spec: WorkerDeploymentSpec,
    connection: Connection,
    secrets: WorkerSecrets,
    children: &Children,
    temporal: &Result<Arc<dyn Temporal>, TemporalError>,
) -> (Facts, Option<Duration>) {
    let meta = read.meta();
    let answer = match temporal {
        Ok(temporal) => temporal.describe_deployment(&spec.deployment(&meta.namespace, &meta.name)).await,
        Err(error) => Err(error.clone()),
    };
    let retry_after = match &answer {
        Err(TemporalError::RateLimited { retry_after, .. }) => *retry_after,
        _ => None,
    };
    (facts_of(read, spec, connection, secrets, children, answer), retry_after)
}

/// The facts with this description of the deployment.
#[must_use]
pub fn facts_of(
    read: &Read,
    spec: WorkerDeploymentSpec,
    connection: Connection,
    secrets: WorkerSecrets,
    children: &Children,
    answer: Result<DescribedDeployment, TemporalError>,
) -> Facts {
    let meta = read.meta();
    let deployment = spec.deployment(&meta.namespace, &meta.name);
    let target = Target::of(&spec);
    let standing = standing(read, &target, children);
    let mut facts = Facts {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        generation: meta.generation,
        deleted_at: read.deleted_at(),
        delete_now: read.annotation(ANNOTATION_DELETE) == Some("now"),
        temporal: believe(answer, &read.status, &deployment, &standing),
        target,
        identity: identity(read),
        status: read.status.clone(),
        connection,
        secrets,
        versions: BTreeMap::new(),
        invalid: None,
        unchecked: None,
        deployment,
        spec,
    };
    facts.versions = versions(&facts, children);
    for build in standing.unrecorded {
        if let Some(version) = facts.versions.get_mut(&build) {
            version.is_unrecorded = true;
        }
    }
    facts
}

/// Checks with a dry run that the API server accepts the target, until its Deployment exists: the facts have the result.
pub async fn check_target(facts: &mut Facts, children: &Children, plan: Option<&Plan>) {
    let is_begun = plan.is_some_and(|plan| plan.target_hash == facts.target.hash);
    let target = &facts.target;
    let exists = facts.target_version().and_then(|version| version.workers.as_ref()).is_some_and(|w| {
        is_begun || (!w.is_terminating() && w.template_hash() == Some(&target.template_hash))
    });
    if exists || facts.is_at_target() {
        return;
    }
    match children.try_target(facts).await {
        Ok(()) => {}
        Err((field, ClusterError::Refused { message, .. })) => {
            facts.invalid = Some(format!("{field}: the API server rejects it: {message}"));
        }
        // The template is valid; the rollout reports the quota if it has to wait for it.
        Err((_, error)) if error.exceeds_quota() => {}
        Err((field, ClusterError::Forbidden { message, .. })) => {
            facts.invalid = Some(format!("{field}: the API server currently forbids it: {message}"));
        }
        Err((field, error)) => {
            facts.unchecked =
                Some(format!("could not check whether the API server accepts {field}: {error}"));
        }
    }
}

/// The Deployments, and those without a record in the status. Temporal does not know a new version before its first
/// worker polls, so the target and the previous target do not count.
fn standing(read: &Read, target: &Target, children: &Children) -> Standing {
    let (status, made) = (&read.status, read.meta().created_at);
    let is_unrecorded = |build: &BuildId, live: &Meta| {
        let was_before = live.created_at.zip(made).is_some_and(|(live, made)| live + SKEW < made);
        match status.versions.iter().find(|record| record.build_id == *build) {
            None => was_before || (*build != target.build && status.target_build_id.as_ref() != Some(build)),
            Some(record) => was_before && record.state == VersionState::NotRegistered,
        }
    };
    let of_version = |pools: &BTreeMap<String, Arc<ObservedObject>>, build: &BuildId| {
        pools.values().next().is_some_and(|live| is_unrecorded(build, &live.meta))
    };
    let unrecorded = children.deployments.iter().filter(|(build, pools)| of_version(pools, build));
    Standing {
        builds: children.deployments.keys().cloned().collect(),
        unrecorded: unrecorded.map(|(build, _)| build.clone()).collect(),
    }
}

fn versions(facts: &Facts, children: &Children) -> BTreeMap<BuildId, Version> {
    let mut versions: BTreeMap<BuildId, Version> = BTreeMap::new();
    for record in &facts.status.versions {
        let build = &record.build_id;
        versions.entry(build.clone()).or_insert_with(|| Version::new(build.clone())).record =
            Some(record.clone());
    }
    for listed in facts.described().iter().flat_map(|described| &described.versions) {
        let build = &listed.build;
        versions.entry(build.clone()).or_insert_with(|| Version::new(build.clone())).listed =
            Some(listed.clone());
    }
    for (build, pools) in &children.deployments {
        let version = versions.entry(build.clone()).or_insert_with(|| Version::new(build.clone()));
        let pools = pools.iter().map(|(pool, live)| workers(facts, build, pool, &live.meta, &live.object));
        version.workers = Workers::of(pools);
    }
    for version in versions.values_mut() {
        version.has_revision = children.revision_of(facts, &version.build).is_some();
    }
    versions
}

fn workers(facts: &Facts, build: &BuildId, pool: &str, meta: &Meta, live: &Value) -> PoolWorkers {
    let text = |key: &str| meta.annotation(key).map(str::to_owned);
    let count = |value: &Value| value.as_i64().unwrap_or_default() as i32;
    let status = &live["status"];
    let complaint = status["conditions"].as_array().into_iter().flatten().find(|condition| {
        (condition["type"] == "Progressing" && condition["status"] == "False")
            || (condition["type"] == "ReplicaFailure" && condition["status"] == "True")
    });
    // Without the annotations, derive them from the running template.
    let from_rendering = || {
        let revision = Children::target_revision(facts);
        let of_target = target(facts, &revision).into_iter();
        let mut of_target = of_target.filter(|version| version.pool.unwrap_or_default() == pool);
        let runs_target = *build == facts.target.build
            && of_target.next().is_some_and(|version| version.rendered().matches_live(live));
        runs_target.then(|| facts.target.template_hash.clone())
    };
    PoolWorkers {
        pool: pool.to_owned(),
        // The workers of a pool that the spec no longer has keep their replicas.
        declared: replicas(&facts.spec, pool),
        name: meta.name.clone(),
        template_hash: text(ANNOTATION_TEMPLATE_HASH).or_else(from_rendering),
        revision: text(ANNOTATION_REVISION),
        replicas: live["spec"]["replicas"].as_i64().map_or(1, |replicas| replicas as i32),
        ready: count(&status["readyReplicas"]),
        available: count(&status["availableReplicas"]),
        updated: count(&status["updatedReplicas"]),
        total: count(&status["replicas"]),
        is_observed: status["observedGeneration"].as_i64() >= Some(meta.generation),
        is_sunset: text(ANNOTATION_SUNSET).is_some(),
        is_terminating: meta.terminating,
        complaint: complaint.map(|condition| condition["message"].as_str().unwrap_or_default().to_owned()),
    }
}

/// Looks up, by name, versions that Temporal listed before and no longer lists.
pub async fn look_up_unlisted(facts: &mut Facts, temporal: &dyn Temporal) {
    let TemporalState::Known(_) = facts.temporal else { return };
    let missing = |version: &&Version| version.listed.is_none() && version.was_listed();
    let missing: Vec<BuildId> = facts
        .versions
        .values()
        .filter(missing)
        .take(MAX_UNLISTED_LOOKUPS)
        .map(|version| version.build.clone())
        .collect();
    for build in missing {
        let answer = temporal.describe_version(&facts.deployment, &build).await;
        if let Some(version) = facts.versions.get_mut(&build) {
            match answer {
                Ok(described) => version.listed = Some(described.summary),
                Err(TemporalError::NotFound { what: Missing::Version, .. }) => version.is_forgotten = true,
                Err(_) => {}
            }
        }
    }
}

/// Counts the pollers of a version. Unknown if Temporal does not respond.
pub async fn count_pollers(facts: &mut Facts, build: &BuildId, temporal: &dyn Temporal) {
    if facts.versions.get(build).is_none_or(|version| version.listed.is_none()) {
        return;
    }
    let Ok(described) = temporal.describe_version(&facts.deployment, build).await else { return };
    let (mut count, mut unversioned) = (0, 0);
    for queue in described.task_queues.iter().take(QUEUES) {
        let Ok(pollers) = temporal.pollers(&facts.deployment, build, queue).await else { return };
        count += pollers.count;
        unversioned += pollers.unversioned;
    }
    if let Some(version) = facts.versions.get_mut(build) {
        (version.pollers, version.unversioned) = (Some(count), Some(unversioned));
    }
}

/// Counts the workflows of a version before its workers are scaled down or deleted. If Temporal does not respond,
/// Windlass keeps them, and the facts have the error.
pub async fn count(facts: &mut Facts, build: &BuildId, temporal: &dyn Temporal) {
    let counted = temporal.running_workflows(&facts.deployment, build).await;
    let Some(version) = facts.versions.get_mut(build) else { return };
    match counted {
        Ok(running) => (version.running, version.uncounted) = (Some(running), None),
        Err(error) => version.uncounted = Some(error.to_string()),
    }
}

/// Counts the workflows of a version for display. Unknown if Temporal does not respond.
pub async fn count_for_display(facts: &mut Facts, build: &BuildId, temporal: &dyn Temporal) {
    if let Ok(running) = temporal.running_workflows(&facts.deployment, build).await
        && let Some(version) = facts.versions.get_mut(build)
    {
        version.running = Some(running);
    }
}
