//! `windlass evacuate`.

use std::cell::RefCell;

use chrono::SubsecRound;
use clap::Args;
use serde_json::{Value, json};
use windlass_temporal::api::evacuation::{check_query, digest};
use windlass_temporal::api::names::ANNOTATION_EVACUATE;
use windlass_temporal::api::{EvacuationRequest, VersionRecord, VersionState, WorkerDeploymentStatus};
use windlass_temporal::planner::evacuate::{PlanKind, is_replaceable};
use windlass_temporal::port::{BuildId, DeploymentName, PinnedWorkflows};

use super::WORKERS;
use crate::target::Kind;
use crate::verbs::change::{Change, Write, annotation};
use crate::verbs::{Needs, VerbArgs, carry_out_on};
use windlass_core::api::RawPlan;
use windlass_core::api::names::argument_of;

/// The arguments of `windlass evacuate`.
#[derive(Debug, Args)]
pub struct EvacuateArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// The version that the workflows leave: a build ID of `windlass status` that is neither current nor ramping
    #[arg(long, value_name = "BUILD_ID")]
    from: String,
    /// The version that the workflows move to: a build ID with workers
    #[arg(long, value_name = "BUILD_ID")]
    to: String,
    /// Move only the workflows that match this condition, in the language of Temporal's visibility queries
    #[arg(long, value_name = "CONDITION")]
    query: Option<String>,
}

/// Requests the evacuation of a version of each selected object.
pub async fn evacuate(arguments: EvacuateArgs) -> Result<(), String> {
    let EvacuateArgs { verb, from, to, query } = arguments;
    if let Some(query) = &query {
        check_query(query).map_err(|sentence| format!("--query: {sentence}"))?;
    }
    let cluster = verb.named.flags.cluster().await?;
    for located in verb.named.located(&cluster).await? {
        located.target.require(Kind::Other(WORKERS), "evacuate")?;
        let request = EvacuationRequest {
            from: BuildId::new(&from),
            to: BuildId::new(&to),
            query: query.clone(),
            at: crate::now().trunc_subsecs(0),
        };
        let effect = RefCell::new(String::new());
        let decide = |_: &[_], object: &Value| {
            let change = change(&request, object)?;
            *effect.borrow_mut() = effect_of(&request, object);
            Ok(change)
        };
        let done = carry_out_on(&verb, &cluster, &located, Needs::Object, decide).await?;
        crate::print(&done)?;
        if verb.dry_run && verb.output.is_none() {
            crate::print(&effect.borrow())?;
        }
    }
    Ok(())
}

/// Decides what an evacuation changes in a `WorkerDeployment`.
fn change(request: &EvacuationRequest, object: &Value) -> Result<Change, String> {
    let status = status_of(object);
    let EvacuationRequest { from, to, .. } = request;
    if from == to {
        return Err(format!("--from and --to are both {from}: name two versions"));
    }
    let (left, refuge) = (record(&status, from)?, record(&status, to)?);
    if let VersionState::Current | VersionState::Ramping = left.state {
        return Err(format!(
            "--from {from} is {:?}, so new workflows start on it: roll out another version first, for example with windlass \
             rollback {}",
            left.state,
            argument_of("wwd", name(object), text(&object["metadata"]["namespace"]))
        ));
    }
    if refuge.deployment.is_none() {
        return Err(format!("--to {to} has no Deployment: name a version with workers"));
    }
    let plan = status.plan.as_ref().and_then(|raw: &RawPlan| raw.parse().ok());
    let plan = plan.filter(windlass_engine::Plan::is_active);
    let asked = annotation(object, ANNOTATION_EVACUATE);
    let before = asked.and_then(|asked| EvacuationRequest::read(asked).ok());
    let is_same = before.is_some_and(|before| before.is_like(request));
    let known = status.evacuation.as_ref();
    let is_pending = is_same && known.is_none_or(|known| Some(&known.request) != asked.map(digest).as_ref());
    let is_active =
        plan.as_ref().is_some_and(|plan| PlanKind::of(plan) == PlanKind::Evacuation && !is_replaceable(plan));
    if is_pending || (is_same && is_active) {
        return Ok(Change::already(
            "evacuate",
            format!("the evacuation of {from} to {to} is already requested"),
        ));
    }
    if let Some(plan) = plan.as_ref().filter(|_| is_active) {
        return Err(format!(
            "plan {} is an evacuation, too: wait until its workflows have moved, or stop it with windlass abort",
            plan.id
        ));
    }
    let waits = plan.filter(|plan| PlanKind::of(plan) == PlanKind::Rollout);
    let waits =
        waits.map(|plan| format!("; it starts when rollout {} has ended", plan.id)).unwrap_or_default();
    let write = Write::Annotation(ANNOTATION_EVACUATE, json!(request).to_string());
    Ok(Change::done("evacuate", write, format!("evacuation of {from} to {to} requested{waits}")))
}

/// What a request would do, for a dry run. The commands have no access to Temporal, so the count is the operator's last one.
fn effect_of(request: &EvacuationRequest, object: &Value) -> String {
    let (status, meta, spec) = (status_of(object), &object["metadata"], &object["spec"]);
    let deployment = spec["deploymentName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let deployment = deployment.unwrap_or_else(|| format!("{}/{}", text(&meta["namespace"]), name(object)));
    let workflows = PinnedWorkflows {
        deployment: DeploymentName::new(deployment),
        build: request.from.clone(),
        query: request.query.clone(),
    };
    let count = record(&status, &request.from).ok().and_then(|record| record.running_workflows);
    let count = match count {
        Some(count) => {
            format!("pinned workflows on {} when the operator last counted them: {count}", request.from)
        }
        None => format!("the operator has not counted the workflows on {}", request.from),
    };
    let query = workflows.visibility_query();
    let found = status.connection.map(|connection| connection.namespace);
    let namespace = found.or_else(|| spec["connection"]["namespace"].as_str().map(str::to_owned));
    let namespace = namespace.unwrap_or_else(|| "default".to_owned());
    // For a shell: a single quotation mark cannot be escaped inside of single ones.
    let typed = query.replace('\'', "'\\''");
    format!(
        "{count}\nTemporal would pin the workflows of this query to {}: {query}\nto count them now, run: temporal workflow count \
         --namespace {namespace} --query '{typed}'\n",
        request.to
    )
}

fn status_of(object: &Value) -> WorkerDeploymentStatus {
    serde_json::from_value(object["status"].clone()).unwrap_or_default()
}

fn record<'a>(status: &'a WorkerDeploymentStatus, build: &BuildId) -> Result<&'a VersionRecord, String> {
    status.versions.iter().find(|record| record.build_id == *build).ok_or_else(|| {
        let names: Vec<&str> = status.versions.iter().map(|record| record.build_id.as_str()).collect();
        format!("there is no version {build}; status.versions has: {}", names.join(", "))
    })
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;

    fn request(from: &str, to: &str) -> EvacuationRequest {
        let at: DateTime<Utc> = "2026-01-01T04:15:11Z".parse().unwrap();
        EvacuationRequest { from: BuildId::new(from), to: BuildId::new(to), query: None, at }
    }

    fn object() -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": "orders"},
            "spec": {"connection": {"address": "t:7233", "namespace": "orders"}},
            "status": {"versions": [
                {"buildID": "a", "state": "Draining", "replicas": 2, "ready": 2, "deployment": "orders-a", "runningWorkflows": 7},
                {"buildID": "b", "state": "Current", "replicas": 2, "ready": 2, "deployment": "orders-b"},
                {"buildID": "c", "state": "Drained", "replicas": 0, "ready": 0},
            ]},
        })
    }

    fn plan(recipe: &str, type_: &str) -> Value {
        json!({"id": "0123456789", "recipe": recipe, "targetHash": "b", "state": "Active",
            "startedAt": "2026-01-01T04:00:00Z",
            "tasks": [{"id": "0123456789-0", "type": type_, "state": "Running"}]})
    }

    #[test]
    fn request_is_written_as_an_annotation_once() {
        let wanted = request("a", "b");
        let Some(Write::Annotation(ANNOTATION_EVACUATE, written)) = change(&wanted, &object()).unwrap().write
        else {
            panic!("not an annotation")
        };
        assert_eq!(EvacuationRequest::read(&written).unwrap(), wanted);

        let mut again = object();
        again["metadata"]["annotations"] = json!({ ANNOTATION_EVACUATE: written });
        let later = EvacuationRequest { at: wanted.at + chrono::TimeDelta::seconds(9), ..wanted.clone() };
        assert_eq!(change(&later, &again).unwrap().write, None, "the operator has not observed it yet");
        again["status"]["evacuation"] = json!({"request": digest(&written), "phase": "Moving"});
        again["status"]["plan"] = plan("Evacuate", "move-workflows");
        assert_eq!(change(&later, &again).unwrap().write, None, "it is active");
        assert!(change(&request("a", "c"), &again).is_err(), "another one is active");
        again["status"]["plan"] = plan("Evacuate", "await-drained");
        assert!(change(&later, &again).unwrap().write.is_some(), "its batch has ended");
        again["status"]["plan"] = plan("WorkerRollout", "ramp");
        let waits = change(&later, &again).unwrap();
        assert!(
            waits.write.is_some() && waits.message.ends_with("it starts when rollout 0123456789 has ended")
        );
    }

    #[test]
    fn impossible_evacuation_is_refused_with_the_remedy() {
        for (from, to, words) in [
            ("a", "a", "name two versions"),
            ("x", "b", "status.versions has: a, b, c"),
            ("a", "x", "status.versions has: a, b, c"),
            ("b", "a", "windlass rollback wwd/orders -n shop"),
            ("a", "c", "name a version with workers"),
        ] {
            let sentence = change(&request(from, to), &object()).unwrap_err();
            assert!(sentence.contains(words), "{sentence}");
        }
    }

    #[test]
    fn dry_run_prints_the_last_count_and_the_query() {
        let mut wanted = request("a", "b");
        wanted.query = Some("WorkflowType = 'Order'".to_owned());
        let effect = effect_of(&wanted, &object());
        for words in [
            "when the operator last counted them: 7\n",
            "TemporalWorkerDeploymentVersion = 'shop/orders:a'",
            "AND (WorkflowType = 'Order')",
            "temporal workflow count --namespace orders --query",
        ] {
            assert!(effect.contains(words), "{words}: {effect}");
        }
    }
}
