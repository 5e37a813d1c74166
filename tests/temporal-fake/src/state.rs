//! The state of the fake Temporal, and its transitions.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};

use super::batches::Batch;
use super::faults::{Fault, GateEnd};
use windlass_temporal::port::{
    BuildId, ConflictToken, DeploymentName, Drainage, DrainageStatus, Guard, Identity, Missing, Ramp,
    RampTarget, Routing, RoutingWrite, TemporalError, VersionStatus, VersionSummary,
};

/// Its timings and limits.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long after the last pinned workflow a version without tasks becomes drained.
    pub drainage: TimeDelta,
    /// How long a poller that is gone is remembered.
    pub pollers: TimeDelta,
    /// How long a listed version refuses pinned workflows.
    pub unready: TimeDelta,
    /// How long after its start a workflow is first counted.
    pub lag: TimeDelta,
    /// The most versions of a deployment that it lists.
    pub versions: usize,
    /// The most batches that run at the same time.
    pub batches: usize,
    /// How many workflows a batch moves in a second.
    pub moves_per_second: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            drainage: TimeDelta::seconds(2),
            pollers: TimeDelta::seconds(5),
            unready: TimeDelta::seconds(1),
            lag: TimeDelta::zero(),
            versions: 100,
            batches: 1,
            moves_per_second: 50,
        }
    }
}

/// A write that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The routing was changed.
    Routing(RoutingWrite),
    /// The manager was changed.
    Manager(Option<Identity>),
    /// A version was deleted.
    DeleteVersion(BuildId),
    /// A deployment was deleted.
    DeleteDeployment,
    /// A gate was started.
    Gate(String),
    /// A batch was started.
    Batch(String),
}

type Trap = (u64, bool, Box<dyn FnOnce() + Send>);

/// An action that runs right before the given routing change.
type Hand = (RoutingWrite, Box<dyn FnOnce(&mut State) + Send>);

pub(super) struct State {
    pub settings: Settings,
    pub fault: Fault,
    pub deployments: BTreeMap<DeploymentName, Deployment>,
    pub workflows: BTreeMap<String, Workflow>,
    pub gates: BTreeMap<String, Gate>,
    pub ends: BTreeMap<BuildId, GateEnd>,
    pub writes: Vec<(DateTime<Utc>, Write)>,
    pub calls: u64,
    pub describes: u64,
    /// The requests to start a gate, whatever the answer.
    pub starts: u64,
    /// The address of the last connection.
    pub address: String,
    /// The task queues on which no version is present.
    pub unknown_queues: BTreeSet<String>,
    pub scheduled: Option<ScheduledFault>,
    pub trap: Option<Trap>,
    pub hand: Option<Hand>,
    pub conflicts: u64,
    /// The versions whose workers are cut off.
    pub unheard: BTreeSet<(DeploymentName, BuildId)>,
    /// The requests to delete a version, whatever the answer.
    pub deletes: Vec<(DateTime<Utc>, BuildId)>,
    pub batches: BTreeMap<String, Batch>,
    /// The workflows that no batch can move.
    pub immovable: BTreeSet<String>,
}

/// A fault that is scheduled.
#[derive(Clone, Debug)]
pub(super) struct ScheduledFault {
    /// The number of the call at which it starts.
    pub at_call: u64,
    pub fault: Fault,
    pub lasts: TimeDelta,
    /// When it ends, once started.
    pub until: Option<DateTime<Utc>>,
}

/// A running workflow, pinned to a version.
#[derive(Clone, Debug)]
pub(super) struct Workflow {
    pub deployment: DeploymentName,
    pub build: BuildId,
    pub started: DateTime<Utc>,
}

impl Workflow {
    pub fn is_on(&self, deployment: &DeploymentName, build: &BuildId) -> bool {
        self.deployment == *deployment && self.build == *build
    }
}

#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub deployment: DeploymentName,
    pub build: BuildId,
    pub queue: String,
    pub started: DateTime<Utc>,
    pub timeout: TimeDelta,
    pub ended: Option<String>,
    pub input: Option<serde_json::Value>,
    /// How it ends, if its input says so; else as set for its build.
    pub end: Option<GateEnd>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Deployment {
    pub token: u64,
    pub routing: Routing,
    pub manager: Option<Identity>,
    pub last_modifier: Option<Identity>,
    pub versions: BTreeMap<BuildId, Version>,
}

#[derive(Clone, Debug)]
pub(super) struct Version {
    pub created: DateTime<Utc>,
    pub first_activated: Option<DateTime<Utc>>,
    pub last_current: Option<DateTime<Utc>>,
    pub last_deactivated: Option<DateTime<Utc>>,
    /// Since when it drains without a running workflow.
    pub idle_since: Option<DateTime<Utc>>,
    pub drains: bool,
    pub queues: Vec<String>,
    pub workers: u32,
    pub last_seen: DateTime<Utc>,
}

impl State {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            fault: Fault::None,
            deployments: BTreeMap::new(),
            workflows: BTreeMap::new(),
            gates: BTreeMap::new(),
            ends: BTreeMap::new(),
            writes: Vec::new(),
            calls: 0,
            describes: 0,
            starts: 0,
            address: String::new(),
            unknown_queues: BTreeSet::new(),
            scheduled: None,
            trap: None,
            hand: None,
            conflicts: 0,
            deletes: Vec::new(),
            unheard: BTreeSet::new(),
            batches: BTreeMap::new(),
            immovable: BTreeSet::new(),
        }
    }

    /// Counts a call, and returns the current fault.
    pub fn called(&mut self, now: DateTime<Utc>) -> Fault {
        self.calls += 1;
        self.fault_at(now)
    }

    /// The current fault at this time.
    pub fn fault_at(&mut self, now: DateTime<Utc>) -> Fault {
        if let Some(scheduled) = &mut self.scheduled {
            match scheduled.until {
                None if self.calls >= scheduled.at_call => {
                    scheduled.until = Some(now + scheduled.lasts);
                    self.fault = scheduled.fault.clone();
                }
                Some(until) if now >= until => {
                    self.fault = Fault::None;
                    self.scheduled = None;
                }
                _ => {}
            }
        }
        self.fault.clone()
    }

    pub fn poll(
        &mut self,
        of: &DeploymentName,
        build: &BuildId,
        queues: &[&str],
        workers: u32,
        now: DateTime<Utc>,
    ) {
        if self.unheard.contains(&(of.clone(), build.clone())) {
            return;
        }
        let most = self.settings.versions;
        if workers == 0 && !self.deployments.get(of).is_some_and(|d| d.versions.contains_key(build)) {
            return;
        }
        let deployment = self.deployments.entry(of.clone()).or_default();
        if !deployment.versions.contains_key(build) && deployment.versions.len() >= most {
            return;
        }
        let version = deployment.versions.entry(build.clone()).or_insert_with(|| {
            deployment.token += 1;
            Version {
                created: now,
                first_activated: None,
                last_current: None,
                last_deactivated: None,
                idle_since: None,
                drains: false,
                queues: Vec::new(),
                workers: 0,
                last_seen: now,
            }
        });
        if version.workers > 0 || workers > 0 {
            version.last_seen = now;
        }
        version.workers = workers;
        for queue in queues {
            if !version.queues.iter().any(|known| known == queue) {
                version.queues.push((*queue).to_owned());
            }
        }
    }

    pub fn start(
        &mut self,
        of: &DeploymentName,
        id: &str,
        pinned: Option<&BuildId>,
        share: f32,
        now: DateTime<Utc>,
    ) -> Option<BuildId> {
        let deployment = self.deployments.get_mut(of)?;
        let ramped = deployment.routing.ramp.as_ref().filter(|ramp| share < ramp.percent.0);
        let build = match (pinned, ramped.map(|ramp| &ramp.to)) {
            (Some(build), _) | (None, Some(RampTarget::Version(build))) => build.clone(),
            (None, Some(RampTarget::Unversioned)) => return None,
            (None, None) => deployment.routing.current.clone()?,
        };
        let version = deployment.versions.get_mut(&build)?;
        version.wake(&deployment.routing, &build, now);
        let workflow = Workflow { deployment: of.clone(), build: build.clone(), started: now };
        self.workflows.insert(id.to_owned(), workflow);
        Some(build)
    }

    pub fn end(&mut self, id: &str) -> Option<BuildId> {
        self.workflows.remove(id).map(|workflow| workflow.build)
    }

    pub fn orphans(&self) -> Vec<String> {
        let is_orphan = |Workflow { deployment, build, .. }: &Workflow| {
            let version =
                self.deployments.get(deployment).and_then(|deployment| deployment.versions.get(build));
            version.is_none_or(|version| version.workers == 0)
        };
        self.workflows.iter().filter(|(_, on)| is_orphan(on)).map(|(id, _)| id.clone()).collect()
    }

    /// The number of workflows pinned to a version, gates included.
    pub fn pinned(&self, of: &DeploymentName, build: &BuildId, now: DateTime<Utc>) -> u64 {
        let workflows = self.workflows.values().filter(|workflow| workflow.is_on(of, build)).count();
        let gates = self.gates.values().filter(|gate| gate.deployment == *of && gate.build == *build);
        (workflows + gates.filter(|gate| self.gate_runs(gate, now)).count()) as u64
    }

    /// The same as the visibility store has it, which lags.
    pub fn counted(&self, of: &DeploymentName, build: &BuildId, now: DateTime<Utc>) -> u64 {
        let is_new = |workflow: &&Workflow| now - workflow.started < self.settings.lag;
        let new = self.workflows.values().filter(|workflow| workflow.is_on(of, build)).filter(is_new).count();
        self.pinned(of, build, now).saturating_sub(new as u64)
    }

    pub fn end_of(&self, gate: &Gate) -> GateEnd {
        let end = gate.end.as_ref().or_else(|| self.ends.get(&gate.build));
        end.cloned().unwrap_or(GateEnd::Succeeds(TimeDelta::seconds(1)))
    }

    pub fn gate_runs(&self, gate: &Gate, now: DateTime<Utc>) -> bool {
        let end = self.end_of(gate);
        let over = match end {
            GateEnd::Succeeds(after) => now >= gate.started + after,
            GateEnd::Fails(_) => now >= gate.started + TimeDelta::seconds(1),
            GateEnd::Never => false,
        };
        gate.ended.is_none() && !over && now < gate.started + gate.timeout
    }

    /// Advances time: batches move workflows, and versions that have been idle long enough become drained.
    pub fn pass(&mut self, now: DateTime<Utc>) {
        self.move_workflows(now);
        let names: Vec<(DeploymentName, BuildId)> = self
            .deployments
            .iter()
            .flat_map(|(name, d)| d.versions.keys().map(move |build| (name.clone(), build.clone())))
            .collect();
        for (name, build) in names {
            let pinned = self.pinned(&name, &build, now);
            let Some(version) = self.deployments.get_mut(&name).and_then(|d| d.versions.get_mut(&build))
            else {
                continue;
            };
            if pinned > 0 {
                version.idle_since = None;
            } else if version.drains {
                version.idle_since.get_or_insert(now);
            }
            if version.workers > 0 {
                version.last_seen = now;
            }
        }
    }

    pub fn summary(
        &self,
        deployment: &Deployment,
        build: &BuildId,
        now: DateTime<Utc>,
    ) -> Option<VersionSummary> {
        let version = deployment.versions.get(build)?;
        let drained_at = version.idle_since.map(|since| since + self.settings.drainage);
        let is_drained = drained_at.is_some_and(|at| now >= at);
        let status = if deployment.routing.current.as_ref() == Some(build) {
            VersionStatus::Current
        } else if deployment.ramps_to(build) {
            VersionStatus::Ramping
        } else if version.drains && is_drained {
            VersionStatus::Drained
        } else if version.drains {
            VersionStatus::Draining
        } else {
            VersionStatus::Inactive
        };
        let drains = version.drains && !matches!(status, VersionStatus::Current | VersionStatus::Ramping);
        Some(VersionSummary {
            build: build.clone(),
            status,
            created: Some(version.created),
            first_activated: version.first_activated,
            last_current: version.last_current,
            last_deactivated: version.last_deactivated,
            drainage: drains.then_some(Drainage {
                status: if is_drained { DrainageStatus::Drained } else { DrainageStatus::Draining },
                changed: if is_drained { drained_at } else { version.last_deactivated },
                checked: Some(now),
            }),
        })
    }

    pub fn manage(&mut self, of: &DeploymentName, who: Option<&str>) {
        if let Some(deployment) = self.deployments.get_mut(of) {
            deployment.manager = who.map(Identity::new);
            deployment.token += 1;
        }
    }

    /// Checks the guard of a write.
    pub fn guard(&self, of: &DeploymentName, guard: &Guard) -> Result<(), TemporalError> {
        let deployment = self.deployments.get(of).ok_or_else(|| no_deployment(of))?;
        if let Some(manager) = deployment.manager.as_ref().filter(|manager| **manager != guard.identity) {
            let message =
                format!("ManagerIdentity '{manager}' is set and does not match '{}'", guard.identity);
            return Err(TemporalError::OwnedByOther { manager: Some(manager.clone()), message });
        }
        // A write without a token is not checked.
        if guard.token != ConflictToken::default() && guard.token != deployment.conflict_token() {
            return Err(TemporalError::Conflict { message: "conflict token mismatch".to_owned() });
        }
        Ok(())
    }

    pub fn route(
        &mut self,
        of: &DeploymentName,
        write: &RoutingWrite,
        now: DateTime<Utc>,
    ) -> Result<(), TemporalError> {
        let deployment = self.deployments.get_mut(of).ok_or_else(|| no_deployment(of))?;
        let before = deployment.routing.clone();
        let to = match write {
            RoutingWrite::Ramp { to, .. } | RoutingWrite::Current(Some(to)) => Some(to),
            RoutingWrite::ClearRamp | RoutingWrite::Current(None) => None,
        };
        if let Some(to) = to {
            let new = deployment.versions.get(to).ok_or_else(|| no_version(to))?;
            if let Some(current) = before.current.as_ref().and_then(|build| deployment.versions.get(build))
                && let Some(queue) = current.queues.iter().find(|queue| !new.queues.contains(queue))
            {
                let message = format!("proposed version '{to}' is missing active task queues: {queue}");
                return Err(TemporalError::MissingTaskQueues { message });
            }
        }
        match write {
            RoutingWrite::Ramp { to, percent } => {
                deployment.routing.ramp =
                    Some(Ramp { to: RampTarget::Version(to.clone()), percent: *percent });
            }
            RoutingWrite::ClearRamp => deployment.routing.ramp = None,
            RoutingWrite::Current(build) => {
                if build.as_ref().is_some_and(|build| deployment.ramps_to(build)) {
                    deployment.routing.ramp = None;
                }
                deployment.routing.current.clone_from(build);
            }
        }
        self.rerouted(of, &before, now);
        Ok(())
    }

    /// Updates the versions after a change of the routing.
    pub fn rerouted(&mut self, of: &DeploymentName, before: &Routing, now: DateTime<Utc>) {
        let Some(deployment) = self.deployments.get_mut(of).filter(|d| d.routing != *before) else { return };
        deployment.token += 1;
        let routing = deployment.routing.clone();
        for (build, version) in &mut deployment.versions {
            let was = takes(before, build);
            let takes_tasks = takes(&routing, build);
            if takes_tasks {
                version.first_activated.get_or_insert(now);
                (version.drains, version.idle_since) = (false, None);
                version.last_deactivated = None;
            } else if was {
                (version.drains, version.idle_since) = (true, None);
                version.last_deactivated = Some(now);
            }
            if routing.current.as_ref() == Some(build) {
                version.last_current = Some(now);
            }
        }
    }
}

impl Version {
    /// A workflow was pinned to the version: it drains again, or for the first time.
    pub fn wake(&mut self, routing: &Routing, build: &BuildId, now: DateTime<Utc>) {
        self.idle_since = None;
        if !takes(routing, build) {
            self.drains = true;
            self.last_deactivated.get_or_insert(now);
        }
    }
}

impl Deployment {
    pub fn conflict_token(&self) -> ConflictToken {
        ConflictToken::new(self.token.to_be_bytes().to_vec())
    }

    pub fn ramps_to(&self, build: &BuildId) -> bool {
        self.routing.ramp.as_ref().is_some_and(|ramp| ramp.to == RampTarget::Version(build.clone()))
    }
}

fn takes(routing: &Routing, build: &BuildId) -> bool {
    let ramps = routing.ramp.as_ref().is_some_and(|ramp| ramp.to == RampTarget::Version(build.clone()));
    routing.current.as_ref() == Some(build) || ramps
}

pub(super) fn no_deployment(of: &DeploymentName) -> TemporalError {
    let message =
        format!("no Worker Deployment found with name '{of}'; does your Worker Deployment have pollers?");
    TemporalError::NotFound { what: Missing::Deployment, message }
}

pub(super) fn no_version(build: &BuildId) -> TemporalError {
    let message = format!("build ID '{build}' not found in Worker Deployment");
    TemporalError::NotFound { what: Missing::Version, message }
}
