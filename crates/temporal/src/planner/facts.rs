//! What is so: the facts that everything here is decided on.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::build::Target;
use crate::api::{Reason, VersionRecord, VersionState, WorkerDeploymentSpec, WorkerDeploymentStatus};
use crate::port::{
    BuildId, DeploymentName, DescribedDeployment, DrainageStatus, Identity, RampTarget, Routing,
    RunningWorkflows, TemporalError, VersionStatus, VersionSummary,
};

/// All that is known of a WorkerDeployment when it is looked at.
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
    /// Since when it is being deleted, if it is.
    pub deleted_at: Option<DateTime<Utc>>,
    /// Whether its deletion waits for no workflow.
    pub delete_now: bool,
    /// Its spec.
    pub spec: WorkerDeploymentSpec,
    /// What that wants.
    pub target: Target,
    /// Its status, as stored.
    pub status: WorkerDeploymentStatus,
    /// Its name in Temporal.
    pub deployment: DeploymentName,
    /// Who Windlass is there.
    pub identity: Identity,
    /// What Temporal says.
    pub temporal: Temporal,
    /// Its versions: those with a Deployment, those that Temporal lists, and those of the status.
    pub versions: BTreeMap<BuildId, Version>,
    /// What of the spec cannot be carried out, in a sentence.
    pub invalid: Option<String>,
}

/// What Temporal says.
#[derive(Clone, Debug)]
pub enum Temporal {
    /// How the deployment stands; one that no worker ever polled is an empty one.
    Known(DescribedDeployment),
    /// It does not say what can be relied on: nothing may be scaled down or deleted.
    Lost {
        /// Why.
        reason: Reason,
        /// Why, in a sentence.
        message: String,
    },
}

/// One version.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its build ID.
    pub build: BuildId,
    /// Its Deployment.
    pub workers: Option<Workers>,
    /// What Temporal says of it.
    pub listed: Option<VersionSummary>,
    /// What the status says of it.
    pub record: Option<VersionRecord>,
    /// Whether its template is kept, so that its Deployment can be made again.
    pub has_revision: bool,
    /// How many workflows run on it, if that was counted just now.
    pub running: Option<RunningWorkflows>,
    /// How many pollers of it were seen, if that was asked just now.
    pub pollers: Option<u32>,
    /// How many pollers without a version were seen on its task queues, if that was asked just now.
    pub unversioned: Option<u32>,
    /// Whether Temporal, asked for just this version, said that it does not know it.
    pub is_forgotten: bool,
}

/// The Deployment of a version.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Workers {
    /// Its name.
    pub name: String,
    /// The hash of the template that it was made from; none: nobody wrote it down.
    pub template_hash: Option<String>,
    /// The ControllerRevision with that template.
    pub revision: Option<String>,
    /// How many pods it should have.
    pub replicas: i32,
    /// How many of them are ready.
    pub ready: i32,
    /// How many have been for long enough.
    pub available: i32,
    /// How many are of its template.
    pub updated: i32,
    /// How many there are at all.
    pub total: i32,
    /// Whether its controller has seen its spec.
    pub is_observed: bool,
    /// Whether Windlass took its pods because no workflow ran on it.
    pub is_sunset: bool,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    /// What its controller complains of.
    pub complaint: Option<String>,
}

impl Workers {
    /// Whether all its pods are of its template and available; and at least one is there.
    #[must_use]
    pub fn are_available(&self) -> bool {
        self.is_observed
            && !self.is_terminating
            && self.replicas > 0
            && self.updated >= self.replicas
            && self.available >= self.replicas
            && self.total <= self.updated
    }
}

impl Version {
    /// One of which nothing is known.
    #[must_use]
    pub fn new(build: BuildId) -> Self {
        Self {
            build,
            workers: None,
            listed: None,
            record: None,
            has_revision: false,
            running: None,
            pollers: None,
            unversioned: None,
            is_forgotten: false,
        }
    }

    /// Whether it ever took tasks that are not pinned. That a gate ran on one that never did makes it drain, too.
    #[must_use]
    pub fn was_active(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.first_activated.is_some())
    }

    /// Whether it was the current one once.
    #[must_use]
    pub fn was_current(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.last_current.is_some())
    }

    /// Whether Temporal listed it when last seen.
    #[must_use]
    pub fn was_listed(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state != VersionState::NotRegistered)
    }

    /// Whether no pinned workflow runs on it as far as Temporal says, and since when.
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
    /// Where tasks go, if that is known.
    #[must_use]
    pub fn routing(&self) -> Option<&Routing> {
        self.described().map(|described| &described.routing)
    }

    /// How the deployment stands in Temporal, if that is known.
    #[must_use]
    pub fn described(&self) -> Option<&DescribedDeployment> {
        match &self.temporal {
            Temporal::Known(described) => Some(described),
            Temporal::Lost { .. } => None,
        }
    }

    /// The current version.
    #[must_use]
    pub fn current(&self) -> Option<&BuildId> {
        self.routing()?.current.as_ref()
    }

    /// The version that a ramp leads to.
    #[must_use]
    pub fn ramping(&self) -> Option<&BuildId> {
        match &self.routing()?.ramp.as_ref()?.to {
            RampTarget::Version(build) => Some(build),
            RampTarget::Unversioned => None,
        }
    }

    /// Who manages the deployment, if that is somebody else.
    #[must_use]
    pub fn other_manager(&self) -> Option<&Identity> {
        self.described()?.manager.as_ref().filter(|manager| **manager != self.identity)
    }

    /// Whether Windlass manages the deployment.
    #[must_use]
    pub fn is_manager(&self) -> bool {
        self.described().is_some_and(|described| described.manager.as_ref() == Some(&self.identity))
    }

    /// Whether a version belongs to this object: all do of a deployment that it manages. While nobody manages that, somebody may
    /// have workers of their own there, and ours are those that were made from here. Under another's management only those are
    /// whose workers still run.
    #[must_use]
    pub fn is_ours(&self, version: &Version) -> bool {
        let is_nobodys = self.other_manager().is_none();
        self.is_manager() || version.workers.is_some() || (is_nobodys && version.has_revision)
    }

    /// The version that is wanted.
    #[must_use]
    pub fn target_version(&self) -> Option<&Version> {
        self.versions.get(&self.target.build)
    }

    /// How many versions there are: with workers, or in Temporal.
    #[must_use]
    pub fn version_count(&self) -> usize {
        let counts = |version: &&Version| version.workers.is_some() || version.listed.is_some();
        self.versions.values().filter(counts).count()
    }

    /// How a version stands.
    #[must_use]
    pub fn state(&self, version: &Version) -> VersionState {
        let Temporal::Known(described) = &self.temporal else {
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
            // What the routing does not say any more, or not yet, lags by a second.
            Some(VersionStatus::Draining | VersionStatus::Current | VersionStatus::Ramping) => {
                VersionState::Draining
            }
            Some(VersionStatus::Created | VersionStatus::Inactive | VersionStatus::Unspecified) => {
                if version.was_active() { VersionState::Draining } else { VersionState::Inactive }
            }
        }
    }

    /// Whether a rollout to what is wanted has been carried out: the version is the current one, and its workers are made
    /// from the template. A ramp beside it is none of the rollout's, and where workers are lost it says what completed.
    #[must_use]
    pub fn is_at_target(&self) -> bool {
        let was_completed =
            self.status.last_completed_rollout_hash.as_deref() == Some(self.target.hash.as_str());
        let template_hash = self
            .target_version()
            .and_then(|version| version.workers.as_ref())
            .filter(|workers| !workers.is_terminating)
            .map(|workers| workers.template_hash.as_ref());
        self.current() == Some(&self.target.build)
            && template_hash.map_or(was_completed, |hash| hash == Some(&self.target.template_hash))
    }

    /// Whether a person has promoted what is wanted: by its hash, or by its build ID.
    #[must_use]
    pub fn is_promoted(&self) -> bool {
        let asked = self.spec.force_promote.as_deref();
        let spent = self.status.spent_force_promote.as_deref();
        let is_meant = asked == Some(self.target.hash.as_str()) || asked == Some(self.target.build.as_str());
        is_meant && asked != spent
    }
}

/// What an answer to the first question, how the deployment stands, amounts to. One that knows nothing of what was there
/// before is not believed: a restored backup, another namespace of the same name, a bug. Nothing may be deleted over it.
#[must_use]
pub fn believe(
    answer: Result<DescribedDeployment, TemporalError>,
    status: &WorkerDeploymentStatus,
    deployment: &DeploymentName,
) -> Temporal {
    // Of one whose workers are gone nothing is left that could be lost: it is asked for by name.
    let known = |version: &&VersionRecord| {
        version.state != VersionState::NotRegistered && version.deployment.is_some()
    };
    let known = status.versions.iter().filter(known).count();
    match answer {
        Ok(described) if described.versions.is_empty() && known > 0 => Temporal::Lost {
            reason: Reason::TemporalUnreachable,
            message: format!("Temporal lists no version of {deployment}, of which it knew {known}"),
        },
        Ok(described) => Temporal::Known(described),
        Err(TemporalError::NotFound { what: crate::port::Missing::Deployment, .. }) if known == 0 => {
            Temporal::Known(DescribedDeployment {
                conflict_token: crate::port::ConflictToken::default(),
                routing: Routing::default(),
                is_settled: true,
                manager: None,
                last_modifier: None,
                versions: Vec::new(),
            })
        }
        Err(TemporalError::NotFound { what: crate::port::Missing::Deployment, .. }) => Temporal::Lost {
            reason: Reason::TemporalUnreachable,
            message: format!("Temporal does not know {deployment}, of which it knew {known} versions"),
        },
        Err(error) => Temporal::Lost { reason: reason_of(&error), message: error.to_string() },
    }
}

/// The word for an error.
#[must_use]
pub fn reason_of(error: &TemporalError) -> Reason {
    match error {
        TemporalError::RateLimited { .. } => Reason::RateLimited,
        TemporalError::CredentialsInvalid { .. } => Reason::CredentialsInvalid,
        TemporalError::SecretNotFound { .. } => Reason::ConnectionSecretNotFound,
        TemporalError::OwnedByOther { .. } => Reason::OwnedByOther,
        TemporalError::MissingTaskQueues { .. } => Reason::MissingTaskQueues,
        TemporalError::NoPollers { .. } => Reason::WaitingForPollers,
        TemporalError::Unreachable { .. } | TemporalError::NotFound { .. } => Reason::TemporalUnreachable,
        TemporalError::Conflict { .. }
        | TemporalError::VersionNotReady { .. }
        | TemporalError::VersionHasPollers { .. }
        | TemporalError::VersionDraining { .. }
        | TemporalError::VersionRouted { .. }
        | TemporalError::Refused { .. } => Reason::Applying,
    }
}
