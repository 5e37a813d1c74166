//! The fake's implementation of the port.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::state::{Gate, State, Write, no_deployment, no_version};
use super::{FakeTemporal, Fault, GateEnd};
use windlass_temporal::port::{
    BatchMove, BuildId, ConflictToken, DeploymentName, DescribedBatch, DescribedDeployment, DescribedVersion,
    GateStart, GateState, Guard, Identity, Missing, PinnedWorkflows, Pollers, Routing, RoutingWrite,
    RunningWorkflows, TaskQueue, TaskQueueKind, Temporal, TemporalError, VersionStatus, VersionSummary,
};

impl FakeTemporal {
    /// Answers a query, subject to the current fault.
    async fn ask<T>(
        &self,
        answer: impl FnOnce(&mut State, DateTime<Utc>) -> Result<T, TemporalError>,
    ) -> Result<T, TemporalError> {
        let now = self.clock.now();
        let fault = self.state().called(now);
        match fault {
            Fault::Down => {
                return Err(TemporalError::Unreachable { message: "connection refused".to_owned() });
            }
            Fault::Limiting => {
                let message = "namespace rate limit exceeded".to_owned();
                return Err(TemporalError::RateLimited { message, retry_after: None });
            }
            Fault::Refusing => {
                return Err(TemporalError::CredentialsInvalid { message: "unauthorized".to_owned() });
            }
            Fault::Slow(by) => tokio::time::sleep(by).await,
            Fault::None
            | Fault::Forgetful
            | Fault::Empty
            | Fault::Unsettled
            | Fault::Foreign
            | Fault::Uncounting
            | Fault::LosesAnswers
            | Fault::Secretless => {}
        }
        let now = self.clock.now();
        let mut state = self.state();
        state.pass(now);
        answer(&mut state, now)
    }

    /// Carries out a write and records it.
    async fn write<T>(
        &self,
        act: impl FnOnce(&mut State, DateTime<Utc>) -> Result<(T, Write), TemporalError>,
    ) -> Result<T, TemporalError> {
        self.trapped(|state, now| {
            let (answer, write) = act(state, now)?;
            state.writes.push((now, write));
            Ok(answer)
        })
        .await
    }

    /// Carries out a write; a test may kill the operator before or after it.
    async fn trapped<T>(
        &self,
        act: impl FnOnce(&mut State, DateTime<Utc>) -> Result<T, TemporalError>,
    ) -> Result<T, TemporalError> {
        if self.springs(true) {
            // The test killed the caller.
            std::future::pending::<()>().await;
        }
        let answer = self.ask(act).await;
        if self.springs(false) {
            std::future::pending::<()>().await;
        }
        if self.state().fault == Fault::LosesAnswers && answer.is_ok() {
            return Err(TemporalError::Unreachable { message: "the answer was lost".to_owned() });
        }
        answer
    }

    fn springs(&self, before: bool) -> bool {
        let act = {
            let mut state = self.state();
            let Some((number, at, act)) = state.trap.take() else { return false };
            if before {
                let number = number.saturating_sub(1);
                if number > 0 || !at {
                    state.trap = Some((number, at, act));
                    return false;
                }
                act
            } else if number == 0 && !at {
                act
            } else {
                state.trap = Some((number, at, act));
                return false;
            }
        };
        act();
        true
    }
}

#[async_trait]
impl Temporal for FakeTemporal {
    async fn describe_deployment(&self, of: &DeploymentName) -> Result<DescribedDeployment, TemporalError> {
        self.state().describes += 1;
        self.ask(|state, now| {
            let deployment = state.deployments.get(of).filter(|_| state.fault != Fault::Forgetful);
            let deployment = deployment.ok_or_else(|| no_deployment(of))?;
            if state.fault == Fault::Foreign {
                return Ok(foreign(now));
            }
            let versions =
                deployment.versions.keys().filter_map(|build| state.summary(deployment, build, now));
            Ok(DescribedDeployment {
                conflict_token: deployment.conflict_token(),
                routing: deployment.routing.clone(),
                is_settled: state.fault != Fault::Unsettled,
                manager: deployment.manager.clone(),
                last_modifier: deployment.last_modifier.clone(),
                versions: if state.fault == Fault::Empty { Vec::new() } else { versions.collect() },
            })
        })
        .await
    }

    async fn describe_version(
        &self,
        of: &DeploymentName,
        build: &BuildId,
    ) -> Result<DescribedVersion, TemporalError> {
        self.ask(|state, now| {
            let is_foreign = state.fault == Fault::Foreign;
            let deployment = state.deployments.get(of).filter(|_| !is_foreign);
            let deployment = deployment.ok_or_else(|| no_version(build))?;
            let summary = state.summary(deployment, build, now).ok_or_else(|| no_version(build))?;
            let queues = &deployment.versions[build].queues;
            let queue = |name: &String| TaskQueue { name: name.clone(), kind: TaskQueueKind::Workflow };
            Ok(DescribedVersion { summary, task_queues: queues.iter().map(queue).collect() })
        })
        .await
    }

    async fn pollers(
        &self,
        of: &DeploymentName,
        build: &BuildId,
        queue: &TaskQueue,
    ) -> Result<Pollers, TemporalError> {
        self.ask(|state, now| {
            let version = state.deployments.get(of).and_then(|deployment| deployment.versions.get(build));
            let Some(version) = version.filter(|version| version.queues.contains(&queue.name)) else {
                return Ok(Pollers::default());
            };
            let is_remembered = now - version.last_seen < state.settings.pollers;
            let count = if is_remembered { version.workers.max(1) } else { 0 };
            Ok(Pollers { count, unversioned: 0, last_seen: Some(version.last_seen) })
        })
        .await
    }

    async fn running_workflows(
        &self,
        of: &DeploymentName,
        build: &BuildId,
    ) -> Result<RunningWorkflows, TemporalError> {
        self.ask(|state, now| {
            if state.fault == Fault::Uncounting {
                let message = "the visibility store is disabled".to_owned();
                return Err(TemporalError::Refused { message });
            }
            let is_foreign = state.fault == Fault::Foreign;
            let pinned = if is_foreign { 0 } else { state.counted(of, build, now) };
            Ok(RunningWorkflows { pinned, auto_upgrade: 0 })
        })
        .await
    }

    async fn count_pinned(&self, workflows: &PinnedWorkflows) -> Result<u64, TemporalError> {
        self.ask(|state, now| {
            if state.fault == Fault::Uncounting {
                let message = "the visibility store is disabled".to_owned();
                return Err(TemporalError::Refused { message });
            }
            match (&state.fault, &workflows.query) {
                (Fault::Foreign, _) => Ok(0),
                (_, None) => Ok(state.counted(&workflows.deployment, &workflows.build, now)),
                (_, Some(_)) => Ok(state.selected(workflows)?.len() as u64),
            }
        })
        .await
    }

    async fn start_batch(&self, batch: &BatchMove) -> Result<(), TemporalError> {
        self.trapped(|state, now| state.start_batch(batch, now)).await
    }

    async fn describe_batch(&self, job_id: &str) -> Result<DescribedBatch, TemporalError> {
        self.ask(|state, now| Ok(state.batch(job_id)?.described(now))).await
    }

    async fn stop_batch(&self, job_id: &str, _: &str, _: &Identity) -> Result<(), TemporalError> {
        self.ask(|state, _| {
            if let Some(batch) = state.batches.get_mut(job_id) {
                batch.stop();
            }
            Ok(())
        })
        .await
    }

    async fn set_routing(
        &self,
        of: &DeploymentName,
        write: &RoutingWrite,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError> {
        self.write(|state, now| {
            if let Some((_, act)) = state.hand.take_if(|(at, _)| at == write) {
                act(state);
            }
            let is_so = state.deployments.get(of).is_some_and(|deployment| match write {
                RoutingWrite::Current(build) => deployment.routing.current == *build,
                RoutingWrite::ClearRamp => deployment.routing.ramp.is_none(),
                RoutingWrite::Ramp { .. } => false,
            });
            // Temporal accepts a write that changes nothing with any token.
            if !is_so {
                if let Err(refused) = state.guard(of, guard) {
                    state.conflicts += u64::from(matches!(refused, TemporalError::Conflict { .. }));
                    return Err(refused);
                }
                state.route(of, write, now)?;
            }
            let deployment = state.deployments.get_mut(of).ok_or_else(|| no_deployment(of))?;
            deployment.last_modifier = Some(guard.identity.clone());
            Ok((deployment.conflict_token(), Write::Routing(write.clone())))
        })
        .await
    }

    async fn set_manager(
        &self,
        of: &DeploymentName,
        managed: bool,
        guard: &Guard,
    ) -> Result<ConflictToken, TemporalError> {
        self.write(|state, _| {
            let deployment = state.deployments.get_mut(of).ok_or_else(|| no_deployment(of))?;
            if guard.token != deployment.conflict_token() {
                return Err(TemporalError::Conflict { message: "conflict token mismatch".to_owned() });
            }
            deployment.manager = managed.then(|| guard.identity.clone());
            deployment.token += 1;
            Ok((deployment.conflict_token(), Write::Manager(deployment.manager.clone())))
        })
        .await
    }

    async fn delete_version(
        &self,
        of: &DeploymentName,
        build: &BuildId,
        skip_drainage: bool,
        _: &Identity,
    ) -> Result<(), TemporalError> {
        self.write(|state, now| {
            state.deletes.push((now, build.clone()));
            let settings = state.settings;
            let deployment = state.deployments.get(of).ok_or_else(|| no_deployment(of))?;
            let Some(summary) = state.summary(deployment, build, now) else {
                // It is already gone.
                return Ok(((), Write::DeleteVersion(build.clone())));
            };
            let version = &deployment.versions[build];
            let message = format!("version '{build}' cannot be deleted");
            match summary.status {
                windlass_temporal::port::VersionStatus::Current
                | windlass_temporal::port::VersionStatus::Ramping => {
                    return Err(TemporalError::VersionRouted { message });
                }
                windlass_temporal::port::VersionStatus::Draining if !skip_drainage => {
                    return Err(TemporalError::VersionDraining { message });
                }
                _ => {}
            }
            if version.workers > 0 || now - version.last_seen < settings.pollers {
                return Err(TemporalError::VersionHasPollers { message });
            }
            if let Some(deployment) = state.deployments.get_mut(of) {
                deployment.versions.remove(build);
                deployment.token += 1;
            }
            Ok(((), Write::DeleteVersion(build.clone())))
        })
        .await
    }

    async fn delete_deployment(&self, of: &DeploymentName, _: &Identity) -> Result<(), TemporalError> {
        self.write(|state, _| {
            let has_versions = state.deployments.get(of).is_some_and(|found| !found.versions.is_empty());
            if has_versions {
                let message = "it has versions".to_owned();
                return Err(TemporalError::Refused { message });
            }
            state.deployments.remove(of);
            Ok(((), Write::DeleteDeployment))
        })
        .await
    }

    async fn start_gate(&self, start: &GateStart) -> Result<(), TemporalError> {
        self.write(|state, now| {
            let unready = state.settings.unready;
            let deployment = state.deployments.get_mut(&start.deployment);
            let deployment = deployment.ok_or_else(|| no_deployment(&start.deployment))?;
            let version =
                deployment.versions.get_mut(&start.build).ok_or_else(|| no_version(&start.build))?;
            state.starts += 1;
            if now - version.created < unready || state.unknown_queues.contains(&start.task_queue) {
                let message = format!("version '{}' is not present in the task queue", start.build);
                return Err(TemporalError::VersionNotReady { message });
            }
            if !state.gates.contains_key(&start.workflow_id) {
                version.wake(&deployment.routing, &start.build, now);
                let gate = Gate {
                    deployment: start.deployment.clone(),
                    build: start.build.clone(),
                    queue: start.task_queue.clone(),
                    started: now,
                    timeout: TimeDelta::from_std(start.timeout).unwrap_or(TimeDelta::MAX),
                    ended: None,
                    input: start.input.clone(),
                    end: end_by(start.input.as_ref()),
                };
                state.gates.insert(start.workflow_id.clone(), gate);
            }
            Ok(((), Write::Gate(start.workflow_id.clone())))
        })
        .await
    }

    async fn describe_gate(&self, workflow_id: &str) -> Result<GateState, TemporalError> {
        self.ask(|state, now| {
            let message = format!("workflow not found for ID: {workflow_id}");
            let missing = TemporalError::NotFound { what: Missing::Workflow, message };
            let gate = state.gates.get(workflow_id).ok_or(missing)?;
            if let Some(message) = &gate.ended {
                return Ok(GateState::Ended { message: message.clone() });
            }
            if state.gate_runs(gate, now) {
                return Ok(GateState::Running);
            }
            Ok(match state.end_of(gate) {
                GateEnd::Fails(message) => GateState::Failed { message },
                GateEnd::Never => GateState::TimedOut,
                GateEnd::Succeeds(_) => GateState::Completed,
            })
        })
        .await
    }

    async fn end_gate(&self, workflow_id: &str, reason: &str, _: &Identity) -> Result<(), TemporalError> {
        self.ask(|state, _| {
            if let Some(gate) = state.gates.get_mut(workflow_id) {
                gate.ended.get_or_insert_with(|| reason.to_owned());
            }
            Ok(())
        })
        .await
    }
}

/// The deployment of the same name in another Temporal.
fn foreign(now: DateTime<Utc>) -> DescribedDeployment {
    let build = BuildId::new("foreign");
    DescribedDeployment {
        conflict_token: ConflictToken::new(b"foreign".to_vec()),
        routing: Routing { current: Some(build.clone()), ramp: None },
        is_settled: true,
        manager: None,
        last_modifier: None,
        versions: vec![VersionSummary {
            build,
            status: VersionStatus::Current,
            created: Some(now),
            first_activated: Some(now),
            last_current: Some(now),
            last_deactivated: None,
            drainage: None,
        }],
    }
}

/// How the tests' gate workflow ends for its input.
fn end_by(input: Option<&Value>) -> Option<GateEnd> {
    let input = input?;
    if let Some(words) = input["fail"].as_str() {
        return Some(GateEnd::Fails(words.to_owned()));
    }
    (input["hang"] == true).then_some(GateEnd::Never)
}
