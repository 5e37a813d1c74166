//! What is so, put together from the API server and Temporal. Writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use crate::api::names::{
    ANNOTATION_DELETE, ANNOTATION_REVISION, ANNOTATION_SUNSET, ANNOTATION_TEMPLATE_HASH,
};
use crate::api::{WorkerDeploymentSpec, WorkerDeploymentStatus};
use crate::children::{Children, target};
use crate::planner::facts::believe;
use crate::planner::{Facts, Target, Temporal as Said, Version, Workers};
use crate::port::{BuildId, Identity, Missing, Temporal, TemporalError};

/// How many versions that Temporal does not list any more are asked for at each look.
const ASKED_FOR: usize = 5;
/// How many task queues of a version are asked for their pollers.
const QUEUES: usize = 20;

/// A WorkerDeployment as it was read, and the parts of it that are always readable.
pub struct Read {
    /// The object.
    pub object: Value,
    /// Its spec, or a sentence that says why it cannot be read.
    pub spec: Result<WorkerDeploymentSpec, String>,
    /// Its status.
    pub status: WorkerDeploymentStatus,
}

impl Read {
    /// Takes an object apart. A status that cannot be read is filled anew.
    #[must_use]
    pub fn of(object: Value) -> Self {
        let spec = WorkerDeploymentSpec::deserialize(&object["spec"]);
        let status = WorkerDeploymentStatus::deserialize(&object["status"]).unwrap_or_default();
        Self { spec: spec.map_err(|e| format!("spec cannot be read: {e}")), status, object }
    }

    /// A text of its metadata.
    #[must_use]
    pub fn meta(&self, field: &str) -> &str {
        self.object["metadata"][field].as_str().unwrap_or_default()
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["annotations"][key].as_str().filter(|text| !text.is_empty())
    }

    /// Since when it is being deleted.
    #[must_use]
    pub fn deleted_at(&self) -> Option<DateTime<Utc>> {
        self.meta("deletionTimestamp").parse().ok()
    }
}

/// Who Windlass is to Temporal, for one object: another object of the same name, in another cluster or later, is somebody else.
#[must_use]
pub fn identity(read: &Read) -> Identity {
    let uid = read.meta("uid");
    let uid = uid.get(..8).unwrap_or(uid);
    Identity::new(format!("windlass/{}/{}/{uid}", read.meta("namespace"), read.meta("name")))
}

/// The facts, as far as Kubernetes and the first answer of Temporal go; and for how long Temporal asks to be left alone.
pub async fn facts(
    read: &Read,
    spec: WorkerDeploymentSpec,
    children: &Children,
    temporal: &Result<Arc<dyn Temporal>, TemporalError>,
) -> (Facts, Option<Duration>) {
    let deployment = spec.deployment(read.meta("namespace"), read.meta("name"));
    let said = match temporal {
        Ok(temporal) => temporal.describe_deployment(&deployment).await,
        Err(error) => Err(error.clone()),
    };
    let retry_after = match &said {
        Err(TemporalError::RateLimited { retry_after, .. }) => *retry_after,
        _ => None,
    };
    let mut facts = Facts {
        name: read.meta("name").to_owned(),
        namespace: read.meta("namespace").to_owned(),
        uid: read.meta("uid").to_owned(),
        generation: read.object["metadata"]["generation"].as_i64().unwrap_or_default(),
        deleted_at: read.deleted_at(),
        delete_now: read.annotation(ANNOTATION_DELETE) == Some("now"),
        target: Target::of(&spec),
        temporal: believe(said, &read.status, &deployment),
        identity: identity(read),
        status: read.status.clone(),
        versions: BTreeMap::new(),
        invalid: None,
        deployment,
        spec,
    };
    facts.versions = versions(&facts, children);
    (facts, retry_after)
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
    for (build, live) in &children.deployments {
        let version = versions.entry(build.clone()).or_insert_with(|| Version::new(build.clone()));
        version.workers = Some(workers(facts, build, live));
    }
    for version in versions.values_mut() {
        version.has_revision = children.revision_of(facts, &version.build).is_some();
    }
    versions
}

fn workers(facts: &Facts, build: &BuildId, live: &Value) -> Workers {
    let text = |key: &str| live["metadata"]["annotations"][key].as_str().map(str::to_owned);
    let count = |value: &Value| value.as_i64().unwrap_or_default() as i32;
    let status = &live["status"];
    let complaint = status["conditions"].as_array().into_iter().flatten().find(|condition| {
        (condition["type"] == "Progressing" && condition["status"] == "False")
            || (condition["type"] == "ReplicaFailure" && condition["status"] == "True")
    });
    // What nobody wrote down is read from what runs.
    let unsaid = || {
        let revision = Children::target_revision(facts);
        let runs_target =
            *build == facts.target.build && target(facts, &revision).rendered().is_what_runs(live);
        runs_target.then(|| facts.target.template_hash.clone())
    };
    Workers {
        name: live["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        template_hash: text(ANNOTATION_TEMPLATE_HASH).or_else(unsaid),
        revision: text(ANNOTATION_REVISION),
        replicas: live["spec"]["replicas"].as_i64().map_or(1, |replicas| replicas as i32),
        ready: count(&status["readyReplicas"]),
        available: count(&status["availableReplicas"]),
        updated: count(&status["updatedReplicas"]),
        total: count(&status["replicas"]),
        is_observed: status["observedGeneration"].as_i64() >= live["metadata"]["generation"].as_i64(),
        is_sunset: text(ANNOTATION_SUNSET).is_some(),
        is_terminating: live["metadata"]["deletionTimestamp"].is_string(),
        complaint: complaint.map(|condition| condition["message"].as_str().unwrap_or_default().to_owned()),
    }
}

/// Asks for versions that were listed and are not: whether Temporal says of just these that they are gone.
pub async fn ask_for_missing(facts: &mut Facts, temporal: &dyn Temporal) {
    let Said::Known(_) = facts.temporal else { return };
    let missing = |version: &&Version| version.listed.is_none() && version.was_listed();
    let missing: Vec<BuildId> = facts
        .versions
        .values()
        .filter(missing)
        .take(ASKED_FOR)
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

/// Asks how many pollers a version has. What is not answered stays unknown.
pub async fn ask_for_pollers(facts: &mut Facts, build: &BuildId, temporal: &dyn Temporal) {
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

/// Counts the workflows that run on a version. What is not answered stays unknown, and nothing is taken from it.
pub async fn count(facts: &mut Facts, build: &BuildId, temporal: &dyn Temporal) {
    let Ok(running) = temporal.running_workflows(&facts.deployment, build).await else { return };
    if let Some(version) = facts.versions.get_mut(build) {
        version.running = Some(running);
    }
}
