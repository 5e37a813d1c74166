//! Forecasts the effect of a change of a `WorkerDeployment` with the functions that the operator decides by. Temporal is not
//! read: its state is what the operator recorded in the status.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use ratatui::style::{Style, Stylize};
use ratatui::text::Span;
use serde::Serialize;
use serde_json::{Value, json};
use windlass_temporal::api::names::LABEL_WORKERS;
use windlass_temporal::api::{VersionRecord, VersionState};
use windlass_temporal::children::Children;
use windlass_temporal::connect;
use windlass_temporal::observe::{self, Read};
use windlass_temporal::per_version;
use windlass_temporal::planner::build::deployment_names;
use windlass_temporal::planner::decide::AnnotationRequests;
use windlass_temporal::planner::evacuate::{self, Evacuation};
use windlass_temporal::planner::forecast::{self as planner, Takeover};
use windlass_temporal::planner::{Decision, Facts, TemporalState, WorkerSecrets, hooks};

use super::KIND;
use super::tree::words;
use crate::forecast::{After, Change, DryRunCluster, Field, Outcome, after, before, fields};
use crate::plan::Prediction;
use crate::reader::sentence;
use crate::report::age;
use crate::text::Line;
use windlass_core::api::at_hook::hook_of;
use windlass_core::api::names::{ANNOTATION_ABORT, ANNOTATION_RETRY, argument_of};
use windlass_core::observed::ObservedObject;
use windlass_core::revision::drift;
use windlass_engine::{Plan, TaskRecord};
use windlass_kube_port::observed::Observed;
use windlass_kube_port::{Cluster, Kind, KubeCluster, View};

/// A task of the plan.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Step {
    /// Its type.
    #[serde(rename = "type")]
    type_: String,
    /// What it does, in words.
    words: String,
}

/// A version that keeps its workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// The version, as in the status.
    #[serde(flatten)]
    version: VersionRecord,
    /// True if it stops being current because of the rollout.
    is_replaced: bool,
}

/// The forecast of a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    kind: &'static str,
    namespace: String,
    name: String,
    /// The effect of the change.
    outcome: Outcome,
    /// Why it is rejected, or no rollout to its target starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// True if the change creates the object.
    is_new: bool,
    /// The target's build ID.
    #[serde(rename = "targetBuildID")]
    target_build_id: String,
    /// How the target takes over.
    takeover: Takeover,
    /// The changed fields that make another target.
    target: Vec<Field>,
    /// The changed fields that apply at once.
    at_once: Vec<Field>,
    /// What happens, each in a sentence.
    happens: Vec<String>,
    /// The tasks that are not done yet of the rollout that starts or continues.
    steps: Vec<Step>,
    /// The versions, other than the target, that keep their workers.
    keeps: Vec<Kept>,
    /// What the rollout waits for now.
    waits: Vec<String>,
    /// What could not be read or checked.
    unread: Vec<String>,
}

/// Forecasts the effect of a change. An error says why that is impossible.
pub async fn forecast(
    client: &Client,
    (namespace, name): (&str, &str),
    change: &Change,
    now: DateTime<Utc>,
) -> Result<Forecast, String> {
    let before = before(client, (KIND, namespace, name)).await?;
    let mut forecast = Forecast::new(namespace, name, before.is_none());
    let object = match after(client, (KIND, namespace, name), before.as_ref(), change).await? {
        After::Refused(sentence) => return Ok(forecast.refused(sentence)),
        After::Taken(object, unchecked) => {
            forecast.unread.extend(unchecked);
            object
        }
    };
    forecast.compare(before.as_ref().map(|before| &before["spec"]), &object["spec"]);
    let view = View::shared();
    let labels = ListParams::default().labels(&format!("{LABEL_WORKERS}={name}"));
    for kind in [Kind::Deployment, Kind::ControllerRevision] {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind.resource());
        let listed = api.list(&labels).await;
        let listed =
            listed.map_err(|error| format!("{}s cannot be listed: {}", kind.name(), sentence(&error)))?;
        for item in listed.items {
            view.observe(kind, &json!(item));
        }
    }
    let inner: Arc<dyn Cluster> = Arc::new(KubeCluster::new(client.clone(), View::shared()));
    let dry = Arc::new(DryRunCluster::new(inner, view.clone()));
    let read = Read::of(Arc::new(ObservedObject::read(&object)));
    let spec = match &read.spec {
        Ok(spec) => spec.clone(),
        Err(sentence) => return Ok(forecast.refused(sentence.clone())),
    };
    let children = Children::read(dry.clone(), &view, namespace, name, Arc::default());
    let recorded = planner::recorded(&read.status, &windlass_temporal::planner::Target::of(&spec));
    let connection = connect::recorded(&spec.connection, read.status.connection.as_ref());
    let mut facts =
        observe::facts_of(&read, spec, connection, WorkerSecrets::default(), &children, Ok(recorded));
    let plan = read.status.plan.as_ref().and_then(|plan| plan.parse().ok());
    observe::check_target(&mut facts, &children, plan.as_ref()).await;
    if !facts.spec.per_version.is_empty() {
        forecast
            .unread
            .push("not checked whether the API server accepts the manifests of spec.perVersion".to_owned());
    }
    facts.invalid = facts
        .invalid
        .take()
        .or_else(|| hooks::too_many_tasks(&facts))
        .or_else(|| per_version::problem(&facts));
    forecast.unread.extend(dry.unchecked());
    let annotation = |key: &str| read.annotation(key).map(str::to_owned);
    let spent = read.status.spent_retry.clone();
    let requests = AnnotationRequests {
        abort: annotation(ANNOTATION_ABORT),
        retry: annotation(ANNOTATION_RETRY).filter(|words| Some(words) != spent.as_ref()),
        evacuation: None,
    };
    forecast.add(&facts, plan.as_ref(), &requests, now);
    Ok(forecast)
}

impl Forecast {
    fn new(namespace: &str, name: &str, is_new: bool) -> Self {
        Self {
            kind: KIND.name(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            outcome: if is_new { Outcome::Changes } else { Outcome::Nothing },
            refused: None,
            is_new,
            target_build_id: String::new(),
            takeover: Takeover::None,
            target: Vec::new(),
            at_once: Vec::new(),
            happens: Vec::new(),
            steps: Vec::new(),
            keeps: Vec::new(),
            waits: Vec::new(),
            unread: Vec::new(),
        }
    }

    fn refused(mut self, sentence: String) -> Self {
        self.outcome = Outcome::Refused;
        self.refused = Some(sentence);
        self
    }

    /// Adds the changed fields.
    fn compare(&mut self, before: Option<&Value>, after: &Value) {
        let Some(before) = before else { return };
        let is_of_target = |field: &Field| {
            let is_of_pools = field.path.starts_with("pools") && !field.path.ends_with(".replicas");
            field.path.starts_with("template.") || field.path == "unsafeCustomBuildID" || is_of_pools
        };
        (self.target, self.at_once) =
            fields(drift::between(before, after)).into_iter().partition(is_of_target);
        if !(self.target.is_empty() && self.at_once.is_empty()) {
            self.outcome = Outcome::Changes;
        }
    }

    /// Adds what the operator decides, and what follows.
    fn add(&mut self, facts: &Facts, plan: Option<&Plan>, requests: &AnnotationRequests, now: DateTime<Utc>) {
        let then = planner::forecast(facts, plan, requests, now);
        let build = &facts.target.build;
        self.target_build_id = build.to_string();
        self.takeover = then.takeover;
        let is_valid = facts.invalid.is_none();
        self.add_applied_at_once(facts);
        let from = facts.current().map_or("no version".to_owned(), ToString::to_string);
        let object = argument_of("wwd", &facts.name, &facts.namespace);
        let active = evacuate::rollout(plan).filter(|plan| plan.is_active());
        if let Some(evacuation) = evacuate::active(plan).and_then(Evacuation::of) {
            let Evacuation { from, to, .. } = &evacuation;
            let ends = !matches!(then.decision, Decision::Keep | Decision::Refuse { .. });
            let what = if ends { "ends" } else { "continues" };
            self.happens.push(format!("the evacuation from {from} to {to} {what}"));
            if is_valid && !ends && !facts.is_at_target() {
                self.waits.push(evacuate::waiting_rollout(facts, &evacuation));
            }
        }
        let ended = active.map(|plan| format!("the rollout {} ends", plan.id)).unwrap_or_default();
        if facts.deleted_at.is_some() {
            self.happens.push("it is being deleted: no rollout starts".to_owned());
            return;
        }
        match &then.decision {
            Decision::Start(cause) => {
                self.happens.push(format!("a rollout starts from {from} to {build} ({})", cause.reason()));
            }
            Decision::Supersede => {
                self.happens.push(format!("{ended}, and a rollout to {build} starts"));
            }
            Decision::Keep => {
                if let Some(plan) = active.filter(|_| is_valid) {
                    self.happens.push(format!("the rollout {} continues", plan.id));
                }
            }
            Decision::Record => self.happens.push(format!("{build} is already the current version")),
            Decision::End => self.happens.push(format!("{ended}, and no other starts")),
            Decision::RollBack { message, .. } => {
                self.happens.push(format!("{ended}, and Windlass rejects {build}: {message}"));
            }
            Decision::Abort if active.is_none() => {}
            Decision::Abort => self.happens.push(format!("{ended}: its abort is requested")),
            Decision::Refuse { message, .. } => self.refuse(message.clone()),
            // A forecast has no request for one.
            Decision::Evacuate(_) | Decision::RefuseEvacuation { .. } => {}
        }
        if let Some(sentence) = &facts.invalid {
            self.refuse(sentence.clone());
        }
        if let Some(rejected) = facts.status.rejected.as_ref().filter(|of| of.hash == facts.target.hash)
            && active.is_none()
            && then.plan.is_none()
        {
            let sentence = format!(
                "Windlass rejects {build}, whose rollout ended as {}: windlass retry {object}",
                rejected.outcome
            );
            self.waits.push(sentence);
        }
        if then.plan.as_ref().is_some_and(|of| active.is_none_or(|active| active.id != of.id)) {
            self.outcome = if self.outcome == Outcome::Refused { Outcome::Refused } else { Outcome::Changes };
        }
        let rest = then.plan.as_ref().map(|plan| plan.tasks.iter().skip(plan.current().unwrap_or_default()));
        let step =
            |task: &TaskRecord| Step { type_: task.type_.clone(), words: step(task, facts, then.takeover) };
        self.steps = rest.into_iter().flatten().map(step).collect();
        self.add_waits(facts, then.plan.is_some(), &object);
        let replaces = then.plan.is_some();
        let is_kept = |version: &&VersionRecord| version.deployment.is_some() && version.build_id != *build;
        let kept = |version: &VersionRecord| Kept {
            version: version.clone(),
            is_replaced: replaces && version.state == VersionState::Current,
        };
        self.keeps = facts.status.versions.iter().filter(is_kept).map(kept).collect();
        if !facts.spec.hooks.is_empty() {
            self.unread.push(
                "hooks not checked against --hook-host and --prometheus-url of the operator; their duration is not known"
                    .to_owned(),
            );
        }
    }

    fn add_applied_at_once(&mut self, facts: &Facts) {
        let with_workers = facts.versions.values().filter(|version| version.workers.is_some()).count();
        let has =
            |field: &str| self.at_once.iter().any(|changed| changed.path.split('.').next() == Some(field));
        let mut happens = Vec::new();
        if has("connection") && with_workers > 0 {
            happens.push(format!(
                "the Deployments of all versions are updated ({with_workers}), once Temporal answers at the new connection"
            ));
        }
        if has("replicas") && with_workers > 0 && per_version::replicas(&facts.spec, "").is_some() {
            happens.push(format!("spec.replicas applies to all versions with workers ({with_workers})"));
        }
        self.happens.extend(happens);
    }

    fn add_waits(&mut self, facts: &Facts, has_plan: bool, object: &str) {
        if let TemporalState::Lost { message, .. } = &facts.temporal {
            self.waits.push(message.clone());
        }
        if let Some(at) = facts.status.temporal_lost_at {
            let at = at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
            self.waits.push(format!(
                "Temporal gives the operator no usable answers since {at}: see windlass status {object}"
            ));
        }
        self.waits.extend(facts.unchecked.clone());
        if facts.spec.paused && has_plan {
            self.waits.push(format!("the rollout is paused: windlass resume {object}"));
        }
        if facts.generation > 0 && facts.status.observed_generation == 0 && !self.is_new {
            self.waits.push("no operator has reconciled the object yet".to_owned());
        }
    }

    /// Adds why no rollout to the target starts. The API server stores the change all the same.
    fn refuse(&mut self, sentence: String) {
        self.outcome = if self.at_once.is_empty() { Outcome::Refused } else { Outcome::Changes };
        self.refused.get_or_insert(sentence);
    }

    /// The forecast for output.
    pub fn prediction(&self) -> Prediction {
        let exit_code = match self.outcome {
            Outcome::Nothing => 0,
            Outcome::Refused => 1,
            Outcome::Changes => 2,
        };
        let is_empty = self.target.is_empty() && self.at_once.is_empty();
        Prediction {
            exit_code,
            is_made: exit_code == 2 && !is_empty && self.refused.is_none(),
            lines: self.lines(),
            document: json!(self),
        }
    }

    fn lines(&self) -> Vec<Line> {
        let build = &self.target_build_id;
        let (style, word) = match (self.outcome, self.takeover) {
            (Outcome::Nothing, _) => (Style::new().green(), "no change".to_owned()),
            (Outcome::Refused, _) => (Style::new().red(), "is rejected".to_owned()),
            (Outcome::Changes, _) if self.refused.is_some() => {
                (Style::new().yellow(), format!("no rollout to {build} starts, the rest applies at once"))
            }
            (Outcome::Changes, Takeover::None) => (Style::new().yellow(), "no new version".to_owned()),
            (Outcome::Changes, Takeover::NewVersion) => {
                (Style::new().yellow(), format!("new version {build}"))
            }
            (Outcome::Changes, Takeover::InPlace) => {
                (Style::new().yellow(), format!("updates the workers of {build} in place"))
            }
            (Outcome::Changes, Takeover::AtOnce) => {
                (Style::new().yellow(), format!("{build} takes over again, without a ramp"))
            }
        };
        let mut head = Line::from(self.name.clone().bold());
        head.push_span(Span::styled(format!("   {word}"), style));
        let mut lines = vec![head];
        lines.extend(self.refused.iter().map(|sentence| Line::from(format!("  {sentence}").red())));
        let mut section = |title: &str, texts: Vec<String>| {
            if !texts.is_empty() {
                lines.push(Line::from(format!("  {title}").dim()));
                lines.extend(texts.into_iter().map(|text| Line::from(Span::raw(format!("    {text}")))));
            }
        };
        let texts = |fields: &[Field]| fields.iter().map(ToString::to_string).collect();
        section("makes another target:", texts(&self.target));
        section("applies at once:", texts(&self.at_once));
        section("then:", self.happens.clone());
        section("in this order:", self.steps.iter().map(|step| step.words.clone()).collect());
        section("keeps workers of other versions:", self.keeps.iter().map(Kept::words).collect());
        section("currently waits for:", self.waits.clone());
        lines.extend(self.unread.iter().map(|sentence| Line::from(format!("  {sentence}").dim())));
        lines
    }
}

impl Kept {
    fn words(&self) -> String {
        let then = if self.is_replaced { ", drains after the rollout" } else { "" };
        format!("{}   {}{then}", self.version.build_id, words(&self.version))
    }
}

/// What a task does, in words.
fn step(task: &TaskRecord, facts: &Facts, takeover: Takeover) -> String {
    let type_ = task.type_.as_str();
    if let Some(hook) = hook_of(task) {
        return format!("hook {hook}");
    }
    let params = &task.params;
    match type_ {
        "create-version" => {
            let build = &facts.target.build;
            let workers = facts.target_version().and_then(|version| version.workers.as_ref());
            let name = workers.map(|workers| workers.first().name.clone());
            let name =
                name.or_else(|| deployment_names(&facts.name, build).into_iter().next()).unwrap_or_default();
            let how = match takeover {
                Takeover::InPlace => ", updated in place",
                Takeover::AtOnce => ", which runs",
                Takeover::NewVersion | Takeover::None => "",
            };
            format!("create-version: Deployment {name}{how}")
        }
        "run-gate" => {
            let input = ["secretKeyRef", "configMapKeyRef"].into_iter().find_map(|from| {
                let name = params["inputFrom"][from]["name"].as_str()?;
                let kind = if from == "secretKeyRef" { "Secret" } else { "ConfigMap" };
                Some(format!(", with the input of {kind} {name}"))
            });
            let workflow = params["workflowType"].as_str().unwrap_or_default();
            let seconds = params["timeoutSeconds"].as_i64().unwrap_or_default();
            format!("run-gate: workflow {workflow}{}, at most {seconds} s", input.unwrap_or_default())
        }
        "ramp" => {
            let pause = chrono::TimeDelta::seconds(params["pauseSeconds"].as_i64().unwrap_or_default());
            let pause = if pause.is_zero() { String::new() } else { format!(", for {}", age(pause)) };
            format!("ramp: {} % of the tasks{pause}", params["percent"])
        }
        "set-current" => "set-current: all tasks".to_owned(),
        "await-promote" => {
            let object = argument_of("wwd", &facts.name, &facts.namespace);
            format!("await-promote: until windlass promote {object}")
        }
        _ => type_.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use kube::api::{Patch, PatchParams, PostParams};
    use windlass_sim::{Cluster as Simulated, Options};

    use super::*;

    const NAMESPACE: &str = "shop";

    fn spec(tag: &str) -> Value {
        json!({
            "replicas": 2, "connection": {"address": "temporal:7233"},
            "template": {"spec": {"containers": [{"name": "worker", "image": format!("orders:{tag}")}]}},
            "rollout": {"steps": [{"percent": 5, "pauseSeconds": 90, "hooks": true}],
                "gate": {"workflowType": "Smoke", "timeoutSeconds": 60,
                    "inputFrom": {"secretKeyRef": {"name": "smoke", "key": "input"}}}},
            "hooks": [{"name": "errors", "at": "AfterStep", "wait": {"seconds": 1}}],
        })
    }

    /// A cluster with `orders`, whose version 1.0 is current and whose version 0.9 drains.
    async fn cluster() -> (Simulated, Client) {
        let simulated = Simulated::start(Options::seeded(1));
        simulated.install(json!(windlass_temporal::api::crds()[0])).unwrap();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        simulated.install(namespace).unwrap();
        let client = simulated.client("person", NAMESPACE);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &KIND.resource());
        let mut spec = spec("1.0");
        spec["unsafeCustomBuildID"] = json!("1.0");
        let object = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "WorkerDeployment",
            "metadata": {"name": "orders", "namespace": NAMESPACE}, "spec": spec});
        let stored =
            api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let spec = serde_json::from_value(json!(stored)["spec"].clone()).unwrap();
        let target = windlass_temporal::planner::Target::of(&spec);
        let labels = json!({LABEL_WORKERS: "orders", "windlass.dev/build-id": "1.0"});
        let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "worker", "image": "orders:1.0"}]}});
        simulated
            .install(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "orders-1.0", "namespace": NAMESPACE, "labels": labels,
                    "annotations": {"windlass.dev/template-hash": target.template_hash}},
                "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod},
            }))
            .unwrap();
        let status = json!({"status": {
            "observedGeneration": 1, "currentBuildID": "1.0", "targetBuildID": "1.0",
            "requestedRolloutHash": target.hash, "lastCompletedRolloutHash": target.hash,
            "versions": [
                {"buildID": "0.9", "state": "Draining", "deployment": "orders-0.9", "replicas": 2, "ready": 2,
                    "runningWorkflows": 3, "since": "2026-01-01T00:00:00Z"},
                {"buildID": "1.0", "state": "Current", "deployment": "orders-1.0", "replicas": 2, "ready": 2,
                    "since": "2026-01-01T00:00:00Z"},
            ],
        }});
        api.patch_status("orders", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        (simulated, client)
    }

    async fn told(client: &Client, spec: Value) -> (u8, String) {
        let change = Change::Merge(json!({"spec": spec}));
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let forecast = forecast(client, (NAMESPACE, "orders"), &change, now).await.unwrap();
        let prediction = forecast.prediction();
        let text = prediction.lines.iter().map(|line| line.to_string() + "\n").collect();
        (prediction.exit_code, text)
    }

    #[tokio::test(start_paused = true)]
    async fn plan_of_new_workers_shows_fields_steps_and_kept_versions() {
        let (_cluster, client) = cluster().await;
        assert_eq!(
            told(&client, json!({})).await,
            (0, "orders   no change\n  keeps workers of other versions:\n    0.9   Draining   2/2 ready   3 workflows run\n  \
                 hooks not checked against --hook-host and --prometheus-url of the operator; their duration is not known\n"
                .to_owned())
        );
        let change = json!({"unsafeCustomBuildID": "1.1", "replicas": 3, "paused": true,
            "template": spec("1.1")["template"]});
        let (code, text) = told(&client, change).await;
        assert_eq!(
            (code, text.as_str()),
            (
                2,
                "\
orders   new version 1.1
  makes another target:
    template.spec.containers[worker].image \"orders:1.0\" → \"orders:1.1\"
    unsafeCustomBuildID \"1.0\" → \"1.1\"
  applies at once:
    paused false → true
    replicas 2 → 3
  then:
    spec.replicas applies to all versions with workers (1)
    a rollout starts from 1.0 to 1.1 (TemplateChanged)
  in this order:
    create-version: Deployment orders-1.1
    await-available
    await-registered
    claim-manager
    run-gate: workflow Smoke, with the input of Secret smoke, at most 60 s
    ramp: 5 % of the tasks, for 1m30s
    hook errors
    set-current: all tasks
  keeps workers of other versions:
    0.9   Draining   2/2 ready   3 workflows run
    1.0   Current   2/2 ready, drains after the rollout
  currently waits for:
    the rollout is paused: windlass resume wwd/orders -n shop
  hooks not checked against --hook-host and --prometheus-url of the operator; their duration is not known
"
            )
        );
    }

    #[tokio::test(start_paused = true)]
    async fn plan_of_workers_names_in_place_updates_and_refusals() {
        let (_cluster, client) = cluster().await;
        let (code, text) = told(&client, json!({"template": spec("1.1")["template"]})).await;
        assert_eq!(code, 2);
        for words in
            ["orders   updates the workers of 1.0 in place", "Deployment orders-1.0, updated in place"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("ramp"), "{text}");
        for (change, words) in [
            (
                json!({"rollout": {"steps": [{"percent": 50, "hooks": true}, {"percent": 5}]}}),
                "have to ascend",
            ),
            (json!({"replica": 2}), "unknown field"),
        ] {
            let (code, text) = told(&client, change).await;
            assert!(
                code == 1 && text.contains(words) && text.starts_with("orders   is rejected\n"),
                "{text}"
            );
        }
        let (code, text) = told(&client, json!({"unsafeCustomBuildID": "1.1", "maxVersions": 2})).await;
        assert_eq!(code, 2);
        let head = "orders   no rollout to 1.1 starts, the rest applies at once\n  2 versions exist, and spec.maxVersions is 2";
        assert!(text.starts_with(head) && !text.contains("in this order"), "{text}");
    }
}
