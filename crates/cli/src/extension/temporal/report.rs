//! The report of a `WorkerDeployment`: its rollout, its plan, what it waits for, and its versions.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use windlass_temporal::api::{
    ConnectionSource, EvacuationStatus, Reason, RolloutSpec, VersionRecord, VersionState,
    WorkerDeploymentSpec, WorkerDeploymentStatus,
};
use windlass_temporal::planner::evacuate::PlanKind;

use crate::report::chain::{Subject, TimelineEntry};
use crate::report::timeline::of_status;
use crate::report::{PlanReport, Verdict};
use windlass_core::api::HookStatus;
use windlass_core::api::conditions::{self, Condition, READY, RECONCILING, STALLED, Truth, UP_TO_DATE};
use windlass_engine::{PlanState, TaskState};

/// The ramp of an active rollout.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Ramp {
    /// The current or next step, from 1.
    pub step: usize,
    /// The number of steps.
    pub of: usize,
}

/// The report of a `WorkerDeployment`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkersReport {
    /// `WorkerDeployment`, to distinguish it from a fleet in a mixed list.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// Manual, `AllAtOnce` or Progressive.
    pub strategy: String,
    /// Whether its spec is carried out.
    pub verdict: Verdict,
    /// A short summary: `Ramping 25%`, or why it is not up to date.
    pub summary: String,
    /// What it waits for, or what blocks it, in a sentence; may be empty.
    pub waiting_for: String,
    /// The target's build ID.
    #[serde(rename = "targetBuildID")]
    pub target_build_id: String,
    /// The current version in Temporal.
    #[serde(rename = "currentBuildID")]
    pub current_build_id: String,
    /// The ramping version in Temporal.
    #[serde(rename = "rampingBuildID")]
    pub ramping_build_id: String,
    /// The share of the ramping version, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp_percent: Option<i32>,
    /// The ramp; absent unless a rollout with steps is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Ramp>,
    /// The age of the rollout, in seconds; absent if none is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_seconds: Option<i64>,
    /// The active plan, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    /// The evacuation that is active, or failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evacuation: Option<EvacuationStatus>,
    /// The hooks that failed, and those that wait for a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookStatus>,
    /// Its versions, as in the status: those that take tasks, then those that will, then those that drain.
    pub versions: Vec<VersionRecord>,
    /// True if it is being deleted.
    #[serde(skip)]
    pub is_terminating: bool,
    /// The connection object that the spec names, as kubectl names it; absent with an inline connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Since when Temporal is unavailable; absent while it is available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temporal_lost_at: Option<DateTime<Utc>>,
}

/// As much of an object as can be read: a later version of Windlass may have written it.
pub(super) struct Read {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) spec: Option<WorkerDeploymentSpec>,
    pub(super) status: WorkerDeploymentStatus,
    is_seen: bool,
    is_terminating: bool,
}

impl Read {
    pub(super) fn of(object: &Value) -> Self {
        let meta = &object["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        let status: WorkerDeploymentStatus =
            serde_json::from_value(object["status"].clone()).unwrap_or_default();
        Self {
            namespace: text("namespace"),
            name: text("name"),
            spec: serde_json::from_value(object["spec"].clone()).ok(),
            is_seen: meta["generation"] == status.observed_generation,
            is_terminating: meta["deletionTimestamp"].is_string(),
            status,
        }
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(&self.status.conditions, type_)
    }

    fn verdict(&self) -> Verdict {
        if !self.is_seen || self.is_terminating {
            return Verdict::Progressing;
        }
        let refused =
            |c: &Condition| c.reason == Reason::InvalidSpec.as_ref() && c.status != Truth::Unknown.as_ref();
        if [STALLED, UP_TO_DATE].into_iter().filter_map(|type_| self.condition(type_)).any(refused) {
            return Verdict::Refused;
        }
        let is = |type_: &str| conditions::is_true(&self.status.conditions, type_);
        if is(STALLED) {
            return Verdict::Stalled;
        }
        // With 0 replicas, no worker is Ready.
        let wants_none = self.spec.as_ref().is_some_and(|spec| spec.replicas == Some(0));
        if is(UP_TO_DATE) && (is(READY) || wants_none) && !is(RECONCILING) {
            return Verdict::UpToDate;
        }
        Verdict::Progressing
    }

    fn summary(&self, verdict: Verdict) -> String {
        if self.is_terminating {
            return Reason::Terminating.to_string();
        }
        if verdict == Verdict::UpToDate {
            return UP_TO_DATE.to_owned();
        }
        if !self.is_seen {
            return "not reconciled yet".to_owned();
        }
        let is_short = |c: &&Condition| c.status == Truth::True.as_ref();
        let why = match self.condition(UP_TO_DATE) {
            // The target is current, and an evacuation is stalled.
            Some(c) if is_short(&c) && verdict == Verdict::Stalled => self.condition(STALLED),
            // The target is current, but its workers are not ready, or something else is in progress.
            Some(c) if is_short(&c) => {
                self.condition(READY).filter(|c| !is_short(c)).or_else(|| self.condition(RECONCILING))
            }
            other => other,
        };
        let reason = why.map_or(Reason::NotStarted.as_ref(), |c| c.reason.as_str());
        match self.status.ramp_percent {
            Some(percent) if reason == Reason::Ramping.as_ref() => format!("{reason} {percent}%"),
            _ => reason.to_owned(),
        }
    }

    fn waiting_for(&self, verdict: Verdict) -> String {
        if verdict == Verdict::UpToDate {
            return String::new();
        }
        let with_message = |type_: &str| self.condition(type_).filter(|c| !c.message.is_empty());
        if self.is_terminating {
            return with_message(RECONCILING).map(|c| c.message.clone()).unwrap_or_default();
        }
        let not = |type_: &str| with_message(type_).filter(|c| c.status != Truth::True.as_ref());
        let stalled = || with_message(STALLED).filter(|_| verdict == Verdict::Stalled);
        let reconciling = || with_message(RECONCILING).filter(|c| c.status == Truth::True.as_ref());
        let why = not(UP_TO_DATE).or_else(stalled).or_else(|| not(READY)).or_else(reconciling);
        let Some(why) = why else {
            return String::new();
        };
        let paused = self.spec.as_ref().is_some_and(|spec| spec.paused);
        let paused = if paused { " (paused)" } else { "" };
        // A blocked rollout is named by its reason; one in progress is described by its message.
        let stands = match why.type_.as_str() {
            UP_TO_DATE => why.status == Truth::False.as_ref(),
            type_ => type_ == STALLED,
        };
        if stands {
            format!("{}: {}{paused}", why.reason, why.message)
        } else {
            format!("{}{paused}", why.message)
        }
    }
}

impl WorkersReport {
    /// Reports on a raw `WorkerDeployment`.
    #[must_use]
    pub fn of(object: &Value, now: DateTime<Utc>) -> Self {
        let read = Read::of(object);
        let verdict = read.verdict();
        let plan = read.status.plan.as_ref().and_then(PlanReport::of);
        let active = plan.as_ref().filter(|plan| plan.state == PlanState::Active);
        let ramp = active.and_then(ramp);
        let is_shown = |plan: &&PlanReport| {
            PlanKind::of_recipe(&plan.recipe) == PlanKind::Evacuation
                && matches!(plan.state, PlanState::Active | PlanState::Failed)
        };
        let evacuation = plan.as_ref().filter(is_shown).and(read.status.evacuation.clone());
        let elapsed_seconds = active.map(|plan| (now - plan.started_at).num_seconds().max(0));
        let (summary, waiting_for) = (read.summary(verdict), read.waiting_for(verdict));
        let Read { namespace, name, spec, status, is_terminating, .. } = read;
        let text = |build: Option<windlass_temporal::port::BuildId>| {
            build.map(|build| build.to_string()).unwrap_or_default()
        };
        let mut versions = status.versions;
        versions.sort_by_key(|version| place(version.state));
        let connection = match spec.as_ref().map(|spec| &spec.connection) {
            Some(ConnectionSource::Named(named)) => Some(named.resource()),
            Some(ConnectionSource::Inline(_)) | None => None,
        };
        let rollout = spec.map(|spec| spec.rollout);
        Self {
            kind: "WorkerDeployment".to_owned(),
            namespace,
            name,
            strategy: rollout.as_ref().map(RolloutSpec::strategy).map_or(String::new(), |s| format!("{s:?}")),
            verdict,
            summary,
            waiting_for,
            target_build_id: text(status.target_build_id),
            current_build_id: text(status.current_build_id),
            ramping_build_id: text(status.ramping_build_id),
            ramp_percent: status.ramp_percent,
            ramp,
            elapsed_seconds,
            plan,
            evacuation,
            hooks: status.hooks,
            versions,
            is_terminating,
            connection,
            temporal_lost_at: status.temporal_lost_at,
        }
    }

    /// The progress of an evacuation, such as `workflows move from a to b (400 of 1000)`, or why it ended.
    #[must_use]
    pub fn evacuated(&self) -> Option<String> {
        let EvacuationStatus { from, to, moved, workflows, message, .. } = self.evacuation.as_ref()?;
        let text = |build: &Option<windlass_temporal::port::BuildId>| {
            build.as_ref().map(ToString::to_string).unwrap_or_default()
        };
        if self.plan.as_ref().is_some_and(|plan| plan.state == PlanState::Failed) {
            return Some(format!("the evacuation of {} failed: {message}", text(from)));
        }
        let count = workflows.map(|count| format!(" ({} of {count})", moved.unwrap_or_default()));
        Some(format!("workflows move from {} to {}{}", text(from), text(to), count.unwrap_or_default()))
    }

    /// `a → b` of an active rollout; only `b` once that is the current version. Of an evacuation, what has moved.
    #[must_use]
    pub fn builds(&self) -> String {
        if let Some(evacuation) = self.evacuated() {
            return evacuation;
        }
        if self.current_build_id == self.target_build_id {
            return self.target_build_id.clone();
        }
        let from = if self.current_build_id.is_empty() { "no version" } else { &self.current_build_id };
        format!("{from} → {}", self.target_build_id)
    }
}

fn place(state: VersionState) -> u8 {
    match state {
        VersionState::Ramping => 0,
        VersionState::Current => 1,
        VersionState::Inactive | VersionState::NotRegistered => 2,
        VersionState::Draining => 3,
        VersionState::Drained => 4,
    }
}

/// The history of a raw `WorkerDeployment`, oldest first, with the events about it.
#[must_use]
pub fn story(object: &Value, events: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
    let of = Subject::of("WorkerDeployment", object["metadata"]["name"].as_str().unwrap_or_default());
    let events = events.into_iter().filter(|event| event.about == of).collect();
    let status: WorkerDeploymentStatus = serde_json::from_value(object["status"].clone()).unwrap_or_default();
    of_status(&of, events, &status.history, status.plan.as_ref(), &status.conditions)
}

fn ramp(plan: &PlanReport) -> Option<Ramp> {
    let steps = || plan.tasks.iter().filter(|task| task.type_ == "ramp");
    let of = steps().count();
    let is_over = |state: TaskState| matches!(state, TaskState::Complete | TaskState::Skipped);
    let done = steps().filter(|task| is_over(task.state)).count();
    (of > 0).then(|| Ramp { step: (done + 1).min(of), of })
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A `WorkerDeployment` in the second step of its ramp.
    pub fn ramping() -> Value {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T04:00:00Z"})
        };
        json!({
            "metadata": {"namespace": "shop", "name": "orders", "generation": 2},
            "spec": {"replicas": 2, "connection": {"address": "t:7233"}, "template": {"spec": {"containers": []}},
                "rollout": {"steps": [{"percent": 5}, {"percent": 50}]}},
            "status": {
                "observedGeneration": 2, "targetBuildID": "1.2-b", "currentBuildID": "1.1-a",
                "rampingBuildID": "1.2-b", "rampPercent": 5,
                "versions": [
                    {"buildID": "1.0-z", "state": "Draining", "replicas": 2, "ready": 2, "runningWorkflows": 3},
                    {"buildID": "1.1-a", "state": "Current", "replicas": 2, "ready": 2},
                    {"buildID": "1.2-b", "state": "Ramping", "replicas": 2, "ready": 1, "pollers": 4,
                        "deployment": "orders-1.2-b"},
                ],
                "plan": {"id": "0123456789", "recipe": "WorkerRollout", "targetHash": "v1:b", "state": "Active",
                    "startedAt": "2026-01-01T04:00:00Z", "tasks": [
                    {"id": "0123456789-0", "type": "create-version", "state": "Complete"},
                    {"id": "0123456789-1", "type": "ramp", "state": "Complete", "params": {"percent": 5}},
                    {"id": "0123456789-2", "type": "ramp", "state": "Running", "params": {"percent": 50},
                        "message": "at 5% for 3s of 60s"},
                ]},
                "conditions": [
                    condition("Ready", "True", "WorkersReady", ""),
                    condition("UpToDate", "Unknown", "Ramping", "at 5% for 3s of 60s"),
                    condition("Stalled", "False", "Progressing", ""),
                    condition("Reconciling", "True", "Progressing", "at 5% for 3s of 60s"),
                ],
            },
        })
    }

    fn of(change: &Value) -> WorkersReport {
        let mut object = ramping();
        json_patch::merge(&mut object, change);
        WorkersReport::of(&object, "2026-01-01T04:04:10Z".parse().unwrap())
    }

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T04:00:00Z"})
    }

    #[test]
    fn worker_report_shows_ramp_step_and_share() {
        let report = of(&json!({}));
        assert_eq!(report.verdict, Verdict::Progressing);
        assert_eq!(
            (report.summary.as_str(), report.waiting_for.as_str()),
            ("Ramping 5%", "at 5% for 3s of 60s")
        );
        assert_eq!(report.ramp, Some(Ramp { step: 2, of: 2 }));
        assert_eq!((report.builds().as_str(), report.elapsed_seconds), ("1.1-a → 1.2-b", Some(250)));
        let promoted = WorkersReport { current_build_id: report.target_build_id.clone(), ..report.clone() };
        assert_eq!(promoted.builds(), "1.2-b");
        let order: Vec<&str> = report.versions.iter().map(|version| version.build_id.as_str()).collect();
        assert_eq!(order, ["1.2-b", "1.1-a", "1.0-z"]);
    }

    #[test]
    fn objects_that_are_not_applied_are_not_up_to_date() {
        let conditions = json!([
            condition("Ready", "True", "WorkersReady", ""),
            condition("UpToDate", "True", "Applied", ""),
            condition("Stalled", "False", "Progressing", ""),
            condition(
                "Reconciling",
                "True",
                "Progressing",
                "PodDisruptionBudget x is not applied: forbidden"
            ),
        ]);
        let report = of(&json!({"status": {"conditions": conditions, "plan": null}}));
        assert_eq!((report.verdict, report.summary.as_str()), (Verdict::Progressing, "Progressing"));
        assert_eq!(report.waiting_for, "PodDisruptionBudget x is not applied: forbidden");
    }

    #[test]
    fn evacuation_is_reported_beside_an_up_to_date_target() {
        let conditions = json!([
            condition("Ready", "True", "WorkersReady", ""),
            condition("UpToDate", "True", "Applied", ""),
            condition("Stalled", "False", "Progressing", ""),
        ]);
        let plan = json!({"recipe": "Evacuate"});
        let evacuation = json!({"request": "x", "phase": "Moving", "from": "1.0-z", "to": "1.1-a", "workflows": 9, "moved": 4});
        let change = json!({"status": {"conditions": conditions, "plan": plan, "evacuation": evacuation}});
        let report = of(&change);
        assert_eq!((report.verdict, report.waiting_for.as_str()), (Verdict::UpToDate, ""));
        assert_eq!(report.builds(), "workflows move from 1.0-z to 1.1-a (4 of 9)");
        let mut failed = change;
        failed["status"]["conditions"][2] =
            condition("Stalled", "True", "EvacuationFailed", "could not move 3");
        let report = of(&failed);
        assert_eq!((report.verdict, report.summary.as_str()), (Verdict::Stalled, "EvacuationFailed"));
        // One whose query was rejected has ended.
        failed["status"]["plan"]["state"] = json!("Failed");
        failed["status"]["evacuation"]["phase"] = json!("Failed");
        failed["status"]["evacuation"]["message"] = json!("bad query");
        assert_eq!(of(&failed).builds(), "the evacuation of 1.0-z failed: bad query");
        assert_eq!(report.waiting_for, "EvacuationFailed: could not move 3");
    }

    #[test]
    fn verdict_follows_conditions_of_the_current_spec() {
        let up = json!([
            condition("Ready", "True", "WorkersReady", ""),
            condition("UpToDate", "True", "Applied", "")
        ]);
        let short = json!([
            condition("Ready", "False", "WorkersNotReady", "0 of 2 workers are ready"),
            condition("UpToDate", "True", "Applied", ""),
        ]);
        let stands = json!([
            condition("UpToDate", "False", "GateFailed", "the smoke test failed"),
            condition("Stalled", "True", "GateFailed", "the smoke test failed"),
        ]);
        let refused = json!([
            condition("UpToDate", "False", "InvalidSpec", "no containers"),
            condition("Stalled", "True", "InvalidSpec", "no containers"),
        ]);
        let lost =
            json!([condition("UpToDate", "Unknown", "TemporalUnreachable", "since 04:00: no response")]);
        for (change, verdict, summary, waits) in [
            (json!({"status": {"conditions": up}}), Verdict::UpToDate, "UpToDate", ""),
            (
                json!({"status": {"conditions": short}}),
                Verdict::Progressing,
                "WorkersNotReady",
                "0 of 2 workers are ready",
            ),
            (
                json!({"spec": {"replicas": 0}, "status": {"conditions": short}}),
                Verdict::UpToDate,
                "UpToDate",
                "",
            ),
            (
                json!({"status": {"conditions": stands}}),
                Verdict::Stalled,
                "GateFailed",
                "GateFailed: the smoke test failed",
            ),
            (
                json!({"status": {"conditions": refused}}),
                Verdict::Refused,
                "InvalidSpec",
                "InvalidSpec: no containers",
            ),
            (
                json!({"status": {"conditions": lost}}),
                Verdict::Progressing,
                "TemporalUnreachable",
                "since 04:00: no response",
            ),
            // The status does not describe a spec that was not observed yet.
            (
                json!({"metadata": {"generation": 3}, "status": {"conditions": up}}),
                Verdict::Progressing,
                "not reconciled yet",
                "",
            ),
            (
                json!({"metadata": {"generation": 1}, "status": null}),
                Verdict::Progressing,
                "not reconciled yet",
                "",
            ),
            (
                json!({"spec": {"paused": true}}),
                Verdict::Progressing,
                "Ramping 5%",
                "at 5% for 3s of 60s (paused)",
            ),
        ] {
            let report = of(&change);
            assert_eq!(
                (report.verdict, report.summary.as_str(), report.waiting_for.as_str()),
                (verdict, summary, waits),
                "{change}"
            );
        }
        let gone = of(&json!({"metadata": {"deletionTimestamp": "2026-01-01T04:00:00Z"}}));
        assert_eq!((gone.verdict, gone.summary.as_str()), (Verdict::Progressing, "Terminating"));
    }
}
