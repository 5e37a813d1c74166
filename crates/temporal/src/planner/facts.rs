//! The observed state that every decision is based on.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::build::Target;
use super::secrets::WorkerSecrets;
use crate::api::{
    Connection, Reason, VersionRecord, VersionResource, VersionState, WorkerDeploymentSpec,
    WorkerDeploymentStatus,
};
use crate::port::{
    BuildId, DeploymentName, DescribedDeployment, DrainageStatus, Identity, RampTarget, Routing,
    RunningWorkflows, TemporalError, VersionStatus, VersionSummary,
};

/// The state of a WorkerDeployment that one reconcile observed.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
    /// Its `deletionTimestamp`, if it is being deleted.
    pub deleted_at: Option<DateTime<Utc>>,
    /// True if its deletion waits for no workflow.
    pub delete_now: bool,
    /// Its spec.
    pub spec: WorkerDeploymentSpec,
    /// The connection; the last known one if that of the spec cannot be found.
    pub connection: Connection,
    /// The target of the spec.
    pub target: Target,
    /// Its status, as stored.
    pub status: WorkerDeploymentStatus,
    /// The deployment's name in Temporal.
    pub deployment: DeploymentName,
    /// The identity under which Windlass writes to Temporal.
    pub identity: Identity,
    /// The deployment in Temporal.
    pub temporal: TemporalState,
    /// The Secrets of the workers.
    pub secrets: WorkerSecrets,
    /// Its versions: those with a Deployment, those that Temporal lists, and those in the status.
    pub versions: BTreeMap<BuildId, Version>,
    /// Why Windlass cannot apply the spec, as a sentence.
    pub invalid: Option<String>,
    /// Why it is not known whether the API server accepts the target, as a sentence: no rollout to it starts yet.
    pub unchecked: Option<String>,
}

/// The known state of the deployment in Temporal.
#[derive(Clone, Debug)]
pub enum TemporalState {
    /// Its description; empty if no worker ever polled.
    Known(DescribedDeployment),
    /// There is no reliable response: Windlass must not scale down or delete anything.
    Lost {
        /// The reason for it.
        reason: Reason,
        /// The cause, in a sentence.
        message: String,
    },
}

/// One version.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its build ID.
    pub build: BuildId,
    /// Its Deployments.
    pub workers: Option<Workers>,
    /// Its summary in Temporal's list.
    pub listed: Option<VersionSummary>,
    /// Its record in the status.
    pub record: Option<VersionRecord>,
    /// True if its ControllerRevision exists, so that its Deployment can be recreated.
    pub has_revision: bool,
    /// Its running workflows, if this reconcile counted them.
    pub running: Option<RunningWorkflows>,
    /// Why this reconcile could not count them although a decision depends on it, in a sentence.
    pub uncounted: Option<String>,
    /// Its pollers, if this reconcile counted them.
    pub pollers: Option<u32>,
    /// The pollers without a version on its task queues, if this reconcile counted them.
    pub unversioned: Option<u32>,
    /// Its objects of `spec.perVersion`, if this reconcile applied them.
    pub resources: Option<Vec<VersionResource>>,
    /// True if a lookup by name reported that this version does not exist.
    pub is_forgotten: bool,
    /// True if it has workers, and the status does not record whether Temporal knew their version.
    pub is_unrecorded: bool,
}

/// The Deployments of a version, one for each pool; at least one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Workers(Vec<PoolWorkers>);

/// The Deployment of a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PoolWorkers {
    /// The name of the pool; empty for that of `spec.template`.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// The hash of the templates that its version was created from; `None` if the annotation is missing.
    pub template_hash: Option<String>,
    /// The ControllerRevision with these templates.
    pub revision: Option<String>,
    /// The replicas that the spec sets; `None`: an autoscaler sets them.
    pub declared: Option<i32>,
    /// `spec.replicas`.
    pub replicas: i32,
    /// `status.readyReplicas`.
    pub ready: i32,
    /// `status.availableReplicas`.
    pub available: i32,
    /// `status.updatedReplicas`.
    pub updated: i32,
    /// `status.replicas`.
    pub total: i32,
    /// True if the Deployment controller has observed its generation.
    pub is_observed: bool,
    /// True if Windlass scaled it to zero because no workflow ran on it.
    pub is_sunset: bool,
    /// True if it is being deleted.
    pub is_terminating: bool,
    /// The message of its failed condition.
    pub complaint: Option<String>,
}

impl PoolWorkers {
    /// True if all its pods, at least one, are updated and available.
    #[must_use]
    pub fn are_available(&self) -> bool {
        self.is_observed
            && !self.is_terminating
            && self.replicas > 0
            && self.updated >= self.replicas
            && self.available >= self.replicas
            && self.total <= self.updated
    }

    /// Its update in place that is not complete, as a sentence.
    #[must_use]
    pub fn updating(&self) -> Option<String> {
        let Self { name, updated, replicas, total, .. } = self;
        if self.is_terminating || !self.is_observed || total <= updated {
            return None;
        }
        let complaint = self.complaint.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        let old = total - updated;
        Some(format!(
            "Deployment {name} has {updated} of {replicas} updated replicas, and {old} old ones{complaint}"
        ))
    }

    /// True if its autoscaler has scaled it to zero.
    #[must_use]
    pub fn are_scaled_to_zero(&self) -> bool {
        self.declared.is_none() && self.replicas == 0 && !self.is_sunset && !self.is_terminating
    }
}

impl Workers {
    /// The Deployments of a version by pool; `None` if there is none.
    pub fn of(pools: impl IntoIterator<Item = PoolWorkers>) -> Option<Self> {
        let pools: Vec<PoolWorkers> = pools.into_iter().collect();
        (!pools.is_empty()).then_some(Self(pools))
    }

    /// The Deployments; that of `spec.template` is the first.
    #[must_use]
    pub fn pools(&self) -> &[PoolWorkers] {
        &self.0
    }

    /// The Deployment of `spec.template`.
    #[must_use]
    pub fn main(&self) -> Option<&PoolWorkers> {
        self.0.first().filter(|pool| pool.pool.is_empty())
    }

    /// The first Deployment.
    #[must_use]
    pub fn first(&self) -> &PoolWorkers {
        &self.0[0]
    }

    /// The hash of the templates that all of them were created from.
    #[must_use]
    pub fn template_hash(&self) -> Option<&String> {
        let hash = self.first().template_hash.as_ref();
        hash.filter(|hash| self.0.iter().all(|pool| pool.template_hash.as_ref() == Some(hash)))
    }

    /// The desired number of workers.
    #[must_use]
    pub fn replicas(&self) -> i32 {
        self.0.iter().map(|pool| pool.replicas).sum()
    }

    /// The number of workers that are ready.
    #[must_use]
    pub fn ready(&self) -> i32 {
        self.0.iter().map(|pool| pool.ready).sum()
    }

    /// The number of pods.
    #[must_use]
    pub fn total(&self) -> i32 {
        self.0.iter().map(|pool| pool.total).sum()
    }

    /// True if Windlass scaled all of them to zero.
    #[must_use]
    pub fn is_sunset(&self) -> bool {
        self.0.iter().all(|pool| pool.is_sunset)
    }

    /// True if one of them is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.0.iter().any(|pool| pool.is_terminating)
    }
}

impl Version {
    /// A version of which only the build ID is known.
    #[must_use]
    pub fn new(build: BuildId) -> Self {
        Self {
            build,
            workers: None,
            listed: None,
            record: None,
            has_revision: false,
            running: None,
            uncounted: None,
            pollers: None,
            unversioned: None,
            resources: None,
            is_forgotten: false,
            is_unrecorded: false,
        }
    }

    /// True if it ever received unpinned tasks. `Draining` does not imply that: a gate also makes a version drain.
    #[must_use]
    pub fn was_active(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.first_activated.is_some())
    }

    /// True if it was ever the current version.
    #[must_use]
    pub fn was_current(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.last_current.is_some())
    }

    /// True if Temporal listed it at the last reconcile.
    #[must_use]
    pub fn was_listed(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state != VersionState::NotRegistered)
    }

    /// Whether Temporal reports it as drained, and since when.
    #[must_use]
    pub fn drained(&self) -> Option<Option<DateTime<Utc>>> {
        let listed = self.listed.as_ref()?;
        let is_drained = listed.status == VersionStatus::Drained
            || (listed.status == VersionStatus::Unspecified
                && listed.drainage.is_some_and(|drainage| drainage.status == DrainageStatus::Drained));
        is_drained.then(|| listed.drainage.and_then(|drainage| drainage.changed))
    }
}

impl Facts {
    /// The routing, if known.
    #[must_use]
    pub fn routing(&self) -> Option<&Routing> {
        self.described().map(|described| &described.routing)
    }

    /// The deployment's description, if known.
    #[must_use]
    pub fn described(&self) -> Option<&DescribedDeployment> {
        match &self.temporal {
            TemporalState::Known(described) => Some(described),
            TemporalState::Lost { .. } => None,
        }
    }

    /// The current version, if known.
    #[must_use]
    pub fn current(&self) -> Option<&BuildId> {
        self.routing()?.current.as_ref()
    }

    /// The version of the ramp, if known.
    #[must_use]
    pub fn ramping(&self) -> Option<&BuildId> {
        match &self.routing()?.ramp.as_ref()?.to {
            RampTarget::Version(build) => Some(build),
            RampTarget::Unversioned => None,
        }
    }

    /// The manager, if it is another identity.
    #[must_use]
    pub fn other_manager(&self) -> Option<&Identity> {
        self.described()?.manager.as_ref().filter(|manager| **manager != self.identity)
    }

    /// True if Windlass manages the deployment.
    #[must_use]
    pub fn is_manager(&self) -> bool {
        self.described().is_some_and(|described| described.manager.as_ref() == Some(&self.identity))
    }

    /// True if the version belongs to this object. While Windlass manages the deployment, every version does. Without a
    /// manager, other clients may also run workers in it, so only versions that this object created count. While
    /// another identity manages it, only versions with workers of this object count.
    #[must_use]
    pub fn is_ours(&self, version: &Version) -> bool {
        let is_nobodys = self.other_manager().is_none();
        self.is_manager() || version.workers.is_some() || (is_nobodys && version.has_revision)
    }

    /// The spec's version.
    #[must_use]
    pub fn target_version(&self) -> Option<&Version> {
        self.versions.get(&self.target.build)
    }

    /// The pools of a version that need workers. A pool that its autoscaler has scaled to zero needs none if Temporal knows
    /// the version: the autoscaler will scale it up when tasks arrive. Neither does a further pool for which the spec sets 0.
    pub fn pools_in_need<'a>(&'a self, version: &'a Version) -> impl Iterator<Item = &'a PoolWorkers> {
        let pools = version.workers.iter().flat_map(Workers::pools);
        let is_registered = version.listed.is_some() || version.was_listed();
        pools.filter(move |pool| {
            let is_off = pool.declared == Some(0) && pool.replicas == 0 && !pool.pool.is_empty();
            let will_scale_up = is_registered && pool.are_scaled_to_zero();
            !is_off && !will_scale_up
        })
    }

    /// True if autoscalers have scaled all pools of a version to zero that Temporal knows.
    #[must_use]
    pub fn is_scaled_to_zero(&self, version: &Version) -> bool {
        version.workers.is_some() && self.pools_in_need(version).next().is_none()
    }

    /// Why a version lacks an object of `spec.perVersion`, as a sentence.
    #[must_use]
    pub fn unapplied(&self, version: &Version) -> Option<String> {
        let recorded = || version.record.as_ref().map(|record| &record.resources);
        let resources = version.resources.as_ref().or_else(recorded);
        let all = || resources.into_iter().flatten();
        if version.workers.is_none()
            || all().filter(|resource| resource.applied).count() >= self.spec.per_version.len()
        {
            return None;
        }
        Some(match all().find(|resource| !resource.applied) {
            Some(of) => format!("{} {} is not applied: {}", of.kind, of.name, of.message),
            None => format!("waiting for the objects of {}", version.build),
        })
    }

    /// A Deployment whose update in place is not complete, if there is one, with a sentence; the first that makes no progress.
    #[must_use]
    pub fn updating(&self) -> Option<(&PoolWorkers, String)> {
        let pools =
            self.versions.values().flat_map(|version| version.workers.iter().flat_map(Workers::pools));
        let updating = pools.filter_map(|pool| Some((pool, pool.updating()?)));
        updating.min_by_key(|(pool, _)| pool.complaint.is_none())
    }

    /// The number of versions that have workers or a record in Temporal.
    #[must_use]
    pub fn version_count(&self) -> usize {
        let counts = |version: &&Version| version.workers.is_some() || version.listed.is_some();
        self.versions.values().filter(counts).count()
    }

    /// The state of a version.
    #[must_use]
    pub fn state(&self, version: &Version) -> VersionState {
        let TemporalState::Known(described) = &self.temporal else {
            return version.record.as_ref().map(|record| record.state).unwrap_or_default();
        };
        if described.routing.current.as_ref() == Some(&version.build) {
            return VersionState::Current;
        }
        if self.ramping() == Some(&version.build) {
            return VersionState::Ramping;
        }
        match version.listed.as_ref().map(|listed| listed.status) {
            None => VersionState::NotRegistered,
            Some(VersionStatus::Drained) => VersionState::Drained,
            // The version's own status lags behind the routing by about a second.
            Some(VersionStatus::Draining | VersionStatus::Current | VersionStatus::Ramping) => {
                VersionState::Draining
            }
            Some(VersionStatus::Created | VersionStatus::Inactive | VersionStatus::Unspecified) => {
                if version.was_active() { VersionState::Draining } else { VersionState::Inactive }
            }
        }
    }

    /// True if the rollout to the target is complete: its version is current, and its workers were created from the
    /// template. A ramp to another version does not matter. If the workers are lost, the status has the last completed
    /// target.
    #[must_use]
    pub fn is_at_target(&self) -> bool {
        let was_completed =
            self.status.last_completed_rollout_hash.as_deref() == Some(self.target.hash.as_str());
        let template_hash = self
            .target_version()
            .and_then(|version| version.workers.as_ref())
            .filter(|workers| !workers.is_terminating())
            .map(Workers::template_hash);
        self.current() == Some(&self.target.build)
            && template_hash.map_or(was_completed, |hash| hash == Some(&self.target.template_hash))
    }

    /// True if `spec.forcePromote` names the target, by its hash or its build ID, and was not used before.
    #[must_use]
    pub fn is_promoted(&self) -> bool {
        let asked = self.spec.force_promote.as_deref();
        let spent = self.status.spent_force_promote.as_deref();
        let is_meant = asked == Some(self.target.hash.as_str()) || asked == Some(self.target.build.as_str());
        is_meant && asked != spent
    }
}

/// The Deployments of an object, for [`believe`].
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The build IDs of all of them.
    pub builds: Vec<BuildId>,
    /// Of these, the versions for which the status does not record whether Temporal knew them: their workers are from
    /// an earlier object of the same name, or the status was lost.
    pub unrecorded: Vec<BuildId>,
}

/// Checks the description of a deployment. It is rejected if it lists none of the versions that the status has or that
/// already have workers, even if it lists others. Temporal may have been restored from a backup, or it may be another
/// server with a namespace and a deployment of the same name. Windlass must not delete anything because of it.
#[must_use]
pub fn believe(
    answer: Result<DescribedDeployment, TemporalError>,
    status: &WorkerDeploymentStatus,
    deployment: &DeploymentName,
    standing: &Standing,
) -> TemporalState {
    // A version without workers has nothing to lose; it is looked up by name later.
    let known = |version: &&VersionRecord| {
        version.state != VersionState::NotRegistered && version.deployment.is_some()
    };
    let known: Vec<&BuildId> =
        status.versions.iter().filter(known).map(|version| &version.build_id).collect();
    let is_ours = |build: &BuildId| known.contains(&build) || standing.builds.contains(build);
    let lists_one =
        |described: &DescribedDeployment| described.versions.iter().any(|listed| is_ours(&listed.build));
    let count = known.len();
    let at_stake = count + standing.unrecorded.len();
    let not_believed = |what: String| {
        let doubt = match standing.unrecorded.as_slice() {
            [first, ..] if count == 0 => format!(
                "; the status has no record of the workers of {first}. If spec.connection is correct and no workflow runs on them, delete \
                 their Deployments"
            ),
            _ => format!("; previously, it listed versions of this object: {count}"),
        };
        TemporalState::Lost { reason: Reason::TemporalUnreachable, message: format!("{what}{doubt}") }
    };
    match answer {
        Ok(described) if at_stake > 0 && !lists_one(&described) => {
            not_believed(match described.versions.len() {
                0 => format!("Temporal lists no version of {deployment}"),
                others => {
                    format!("Temporal lists {others} versions of {deployment}, but none of this object")
                }
            })
        }
        Ok(described) => TemporalState::Known(described),
        Err(TemporalError::NotFound { what: crate::port::Missing::Deployment, .. }) if at_stake == 0 => {
            TemporalState::Known(DescribedDeployment {
                conflict_token: crate::port::ConflictToken::default(),
                routing: Routing::default(),
                is_settled: true,
                manager: None,
                last_modifier: None,
                versions: Vec::new(),
            })
        }
        Err(TemporalError::NotFound { what: crate::port::Missing::Deployment, .. }) => {
            not_believed(format!("Temporal has no deployment {deployment}"))
        }
        Err(error) => TemporalState::Lost { reason: reason_of(&error), message: error.to_string() },
    }
}

/// The reason for an error of Temporal.
#[must_use]
pub fn reason_of(error: &TemporalError) -> Reason {
    match error {
        TemporalError::RateLimited { .. } => Reason::RateLimited,
        TemporalError::CredentialsInvalid { .. } => Reason::CredentialsInvalid,
        TemporalError::SecretNotFound { .. } => Reason::ConnectionSecretNotFound,
        TemporalError::Unresolved { reason, .. } => *reason,
        TemporalError::OwnedByOther { .. } => Reason::OwnedByOther,
        TemporalError::MissingTaskQueues { .. } => Reason::MissingTaskQueues,
        TemporalError::NoPollers { .. } => Reason::WaitingForPollers,
        TemporalError::Unreachable { .. } | TemporalError::NotFound { .. } => Reason::TemporalUnreachable,
        TemporalError::Conflict { .. }
        | TemporalError::VersionNotReady { .. }
        | TemporalError::VersionHasPollers { .. }
        | TemporalError::VersionDraining { .. }
        | TemporalError::VersionRouted { .. }
        | TemporalError::TooManyBatches { .. }
        | TemporalError::Refused { .. } => Reason::Applying,
    }
}
