//! Forecasts the effect of a change with the functions that the operator decides by, on objects that were read once
//! with the user's rights. What those do not allow is left out and reported.

mod change;
mod cluster;
mod differences;
mod hooks;
mod outcome;
mod quota;
mod rollouts;
mod taken;
mod volumes;
mod waits;

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::Client;
use serde_json::{Value, json};

pub use change::{After, Change, after};
pub use cluster::DryRunCluster;
pub use differences::{Field, fields};
pub use outcome::{Forecast, Move, MoveWave, Outcome, Takeover};
pub use rollouts::forecast_rollout;
pub use windlass_core::planner::fleet::forecast::Action;

use crate::reader::{FleetSelection, Sight};
use crate::report::observer_behind;
use windlass::internal::KINDS_OF_A_SET;
use windlass::internal::{Admission, claim_growth, fleet_objects, references};
use windlass::tasks::FleetScope;
use windlass_core::api::names::GROUP;
use windlass_core::api::{RolloutHash, SetName};
use windlass_core::planner::fleet::Order;
use windlass_core::planner::fleet::forecast;
use windlass_core::planner::fleet::sets::naming::{self, Naming};
use windlass_core::planner::fleet::status::{is_stalled, rollout_target_of};
use windlass_core::planner::fleet::{
    Blocker, Cause, FleetDecision, FleetFacts, FleetKind, RolloutTarget, Start, decide, possible,
};
use windlass_core::render::RenderOptions;
use windlass_engine::Plan;
use windlass_kube_port::observed::{Observed, ObservedFleet};
use windlass_kube_port::watch::Namespaces as Where;
use windlass_kube_port::{Cluster, Key, Kind, KubeCluster, View};

/// The kinds that are read besides the fleet.
const READ: [Kind; 6] = [
    Kind::StatefulNode,
    Kind::StatefulSet,
    Kind::Pod,
    Kind::Service,
    Kind::PersistentVolumeClaim,
    Kind::ControllerRevision,
];

/// Forecasts the effect of a change of a fleet. An error says why that is impossible.
pub async fn forecast(
    client: &Client,
    namespace: &str,
    name: &str,
    change: &Change,
    now: DateTime<Utc>,
) -> Result<Forecast, String> {
    forecast_with(client, (namespace, name), change, BTreeSet::new(), now).await
}

/// Forecasts the effect of a change of a fleet that is made together with these objects, each as `Kind name`. An error says
/// why that is impossible.
pub async fn forecast_with(
    client: &Client,
    (namespace, name): (&str, &str),
    change: &Change,
    applied: BTreeSet<String>,
    now: DateTime<Utc>,
) -> Result<Forecast, String> {
    let kind = Kind::NodeDeployment;
    let before = before(client, (kind, namespace, name)).await?;
    let (object, unchecked) = match after(client, (kind, namespace, name), before.as_ref(), change).await? {
        After::Refused(sentence) => {
            return Ok(Forecast::refused(namespace, name, before.as_ref(), change, sentence));
        }
        After::Taken(object, unchecked) => (object, unchecked),
    };
    let wanted =
        FleetSelection { scope: Where::Namespace(namespace.to_owned()), names: vec![name.to_owned()] };
    let sight = Sight::read_with(client, &wanted, before.as_ref(), &READ).await;
    let inner: Arc<dyn Cluster> = Arc::new(KubeCluster::new(client.clone(), View::shared()));
    let cluster = Arc::new(DryRunCluster::new(inner, sight.view.clone()).beside(applied));
    let old = before.as_ref().map(|before| Arc::new(ObservedFleet::read(before)));
    let unseen = old.as_deref().and_then(observer_behind);
    let old = old.and_then(|old| scope(&sight.view, &cluster, &old, now));
    let hash_before = old.as_ref().map(FleetScope::requested);
    let created = old.as_ref().and_then(volumes::created);
    let new = Arc::new(ObservedFleet::read(&newer(object)));
    // It replaces the stored one.
    sight.view.fleets.observe((*new).clone());
    let mut forecast =
        Forecast::begun((namespace, name), before.as_ref(), &new, created.as_deref().map(Vec::as_slice));
    forecast.unread = sight.unread.iter().cloned().chain(unchecked).collect();
    if new.meta.terminating {
        forecast.is_deleted();
        return Ok(forecast);
    }
    let topology = new.spec.as_ref().ok().and_then(|spec| spec.topology());
    let status = before.is_some().then_some(&*new.status);
    forecast.unread.extend(sight.read_domains(client, topology, status, |_| true).await);
    match scope(&sight.view, &cluster, &new, now) {
        Some(scope) => {
            let mut examined = Examined { scope, cluster: &cluster, now };
            forecast.unread.extend(examined.check().await?);
            examined.forecast_into(&mut forecast, hash_before.as_ref(), unseen).await?;
        }
        None => forecast.refuse(new.spec.as_ref().err().cloned().unwrap_or_default()),
    }
    // Without read access to nodes nothing can be said about them.
    if !sight.has_read(Kind::StatefulNode) && !forecast.is_new {
        forecast.leave_nodes_out();
    }
    let (taken, unchecked_names) = taken::name_of_another(&cluster, namespace, &forecast.waves).await;
    forecast.unread.extend(unchecked_names);
    if let Some(sentence) = taken {
        forecast.refuse(sentence);
    }
    let read = quota::read(client, namespace, &forecast.waves).await;
    let made = scope(&sight.view, &cluster, &new, now);
    let spec =
        |revision: &str| made.as_ref().and_then(|made| made.node_spec(&RolloutHash::recorded(revision)?));
    let has_claim = |claim: &str| sight.view.claims.get(&Key::new(namespace, claim)).is_some();
    let made = quota::CreatedNodes { spec: &spec, has_claim: &has_claim };
    let message = quota::judge(read, &forecast.waves, &made);
    forecast.unread.extend(message.unread);
    if let Some(sentence) = message.refused {
        forecast.refuse(sentence);
    }
    if new.spec.as_ref().is_ok_and(|spec| !spec.update_strategy.hooks.is_empty()) {
        forecast.unread.push(hooks::FLAGS_NOT_CHECKED.to_owned());
    }
    forecast.unread.extend(cluster.unchecked());
    Ok(forecast)
}

/// The stored object. An account that may list fleets but not get one, like the operator's, lists those with this
/// name.
pub async fn before(
    client: &Client,
    (kind, namespace, name): (Kind, &str, &str),
) -> Result<Option<Value>, String> {
    let api = kube::api::Api::<kube::api::DynamicObject>::namespaced_with(
        client.clone(),
        namespace,
        &kind.resource(),
    );
    let found = match api.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let named = kube::api::ListParams::default().fields(&format!("metadata.name={name}"));
            // The first error names the missing right.
            let listed = api.list(&named).await.map_err(|_| kube::Error::Api(status));
            listed.map(|list| list.items.into_iter().next())
        }
        found => found,
    };
    let of = format!("{}.{GROUP}/{name}", kind.name().to_lowercase());
    found
        .map(|found| found.map(|object| json!(object)))
        .map_err(|error| format!("{of}: {}", crate::reader::sentence(&error)))
}

/// An object as it would be stored, with a later resourceVersion.
fn newer(mut object: Value) -> Value {
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok());
    object["metadata"]["resourceVersion"] = json!((version.unwrap_or_default() + 1).to_string());
    object
}

/// The scope that the operator gives its tasks for this fleet.
fn scope(
    view: &Arc<View>,
    cluster: &Arc<DryRunCluster>,
    fleet: &Arc<ObservedFleet>,
    now: DateTime<Utc>,
) -> Option<FleetScope> {
    let cluster: Arc<dyn Cluster> = cluster.clone();
    FleetScope::of(
        fleet,
        view.clone(),
        cluster,
        Arc::default(),
        Arc::default(),
        Arc::new(RenderOptions::default()),
        now,
    )
    .map(FleetScope::repaired)
}

/// A fleet after the change, and the clients to examine it.
struct Examined<'a> {
    scope: FleetScope,
    cluster: &'a DryRunCluster,
    now: DateTime<Utc>,
}

impl Examined<'_> {
    async fn forecast_into(
        mut self,
        forecast: &mut Forecast,
        hash_before: Option<&RolloutHash>,
        unseen: Option<String>,
    ) -> Result<(), String> {
        let facts = self.scope.facts();
        forecast.limit = facts.limit_at_once();
        if facts.children.iter().any(|child| child.order == Order::Unknown) {
            forecast.unread.push(
                "order.last.sidecar: the roles of nodes are not known before the rollout begins".to_owned(),
            );
        }
        if let Some(sentence) = &facts.findings.undecided {
            forecast.refuse(sentence.clone());
            return Ok(());
        }
        if let Some(sentence) = self.service_of_another().await {
            forecast.refuse(sentence);
        }
        if let Some(conflict) = facts.conflicts.first() {
            forecast.refuse(conflict.message.clone());
        }
        let fleet = self.scope.fleet.clone();
        let status = &fleet.status;
        let plan = status.plan.as_ref().and_then(|plan| plan.parse().ok());
        let at = rollout_target_of(status);
        let stalled = is_stalled(status, &facts, self.now);
        let decision = decide(&facts, plan.as_ref(), &at, stalled);
        forecast.add_target(&facts, hash_before, self.scope.specified());
        let is_same = facts.kind == FleetKind::Nodes
            && self.scope.specified() != self.scope.written()
            && forecast.is_no_other_target(hash_before);
        self.add_decision(forecast, &facts, plan.as_ref(), &at, &decision).await?;
        let continued = facts.rollout.now.set().filter(|_| decision == FleetDecision::Keep);
        let entrant = forecast.set.clone().or_else(|| continued.map(|rollout| rollout.entrant.clone()));
        forecast.grows = self.growing_claims(&facts, entrant.as_ref());
        forecast.add_hooks(&self.scope.spec.update_strategy.hooks, &facts, &decision);
        if is_same {
            forecast.report_same_content();
        }
        if let Some(blocker) = &self.scope.blocker {
            forecast.refuse_template(blocker.to_string());
        }
        forecast.add_waits(&facts, &fleet, &decision);
        if let Some(who) = unseen {
            forecast.waits.insert(0, who);
        }
        Ok(())
    }

    /// The operator's checks before it decides. Returns what could not be checked.
    async fn check(&mut self) -> Result<Vec<String>, String> {
        if self.scope.promoting().is_some() {
            return Ok(Vec::new());
        }
        if let Some(sentence) = possible::why_not(&self.scope.spec) {
            self.scope.block(Blocker::Spec(sentence));
            return Ok(Vec::new());
        }
        self.scope.block(self.scope.check_windows_and_order());
        let of_hooks = hooks::check(&mut self.scope, Kind::NodeDeployment).await;
        let not_checked =
            |error| format!("not checked whether the API server accepts spec.template: {error}");
        let found = match fleet_objects::ensure_revision(&mut self.scope).await.map_err(not_checked)? {
            Admission::Admitted(_) => claim_growth::refusal(&self.scope).await.map_err(not_checked)?,
            Admission::Refused(sentence) => Some(sentence),
        };
        self.scope.block(found.map(Blocker::Spec));
        let not_known = "not checked whether the objects that the template names exist";
        let unread = match references::check(&mut self.scope).await {
            Ok(unread) => {
                unread.kinds().map(|kinds| format!("{not_known}: you have no right to get {kinds}"))
            }
            Err(error) => Some(format!("{not_known}: {error}")),
        };
        Ok(of_hooks.into_iter().chain(unread).collect())
    }

    fn has_service(&self) -> bool {
        self.scope.spec.service.is_some()
    }

    /// The owner of the Service with the fleet's name, if it belongs to another and the fleet needs one.
    async fn service_of_another(&self) -> Option<String> {
        let meta = &self.scope.fleet.meta;
        self.scope.spec.service.as_ref()?;
        let known = self.scope.view.services.get(&Key::new(&meta.namespace, &meta.name));
        let service = if let Some(service) = known {
            service
        } else {
            let found = self.cluster.get(Kind::Service, &meta.namespace, &meta.name).await.ok()??;
            Arc::new(Observed::read(&found))
        };
        (!self.scope.owns(&service.meta)).then(|| fleet_objects::foreign_service(&self.scope, &service.meta))
    }

    async fn add_decision(
        &mut self,
        forecast: &mut Forecast,
        facts: &FleetFacts,
        plan: Option<&Plan>,
        at: &RolloutTarget,
        decision: &FleetDecision,
    ) -> Result<(), String> {
        let fleet = self.scope.fleet.meta.name.clone();
        let active = plan.filter(|plan| plan.is_active());
        // True if a set no longer takes over.
        let mut gives_up = false;
        match decision {
            FleetDecision::Start(start)
            | FleetDecision::Supersede(start)
            | FleetDecision::RollBack(start)
            | FleetDecision::CompleteAndStart(start)
            | FleetDecision::Resume(start) => {
                let superseded = matches!(decision, FleetDecision::Supersede(_) | FleetDecision::RollBack(_));
                forecast.begins(start, active.filter(|_| superseded));
                let obeyed = obeying(facts, start);
                if start.strategy.creates_set() {
                    let set = self.name(facts, start).await?;
                    match set {
                        Admission::Admitted(set) => {
                            gives_up = superseded
                                && facts.rollout.now.set().is_some_and(|rollout| rollout.entrant != set);
                            forecast.set_waves(&fleet, facts, start, &set);
                            let takes = (&set, &start.target);
                            forecast.add_takeover(facts, start.strategy, takes, self.has_service());
                        }
                        Admission::Refused(sentence) => {
                            self.scope.block(Blocker::NoSetName(sentence));
                        }
                    }
                } else {
                    forecast.waves =
                        outcome::waves(forecast::in_place(&fleet, &obeyed, Some(&start.rollout_target)));
                    gives_up = superseded;
                }
            }
            FleetDecision::Keep if facts.terminating => {}
            FleetDecision::Keep => {
                let goes_on = active.filter(|_| facts.rollout.now.set().is_none()).map(|_| at);
                forecast.goes_on(active, facts);
                // A set that is removed first is not filled any more.
                let mut in_place = Vec::new();
                if !facts.active_set_is_removed() {
                    in_place = forecast::in_place(&fleet, facts, goes_on);
                    forecast.waves = outcome::waves(in_place.clone());
                }
                if let Some(rollout_target) = goes_on.filter(|_| forecast.waves.is_empty()) {
                    forecast
                        .add_later_waves(facts, forecast::in_place_once_up(&fleet, facts, rollout_target));
                }
                if let Some(rollout) = facts.rollout.now.set().filter(|r| r.entrant != facts.set) {
                    forecast.add_entrants(forecast::entrants(
                        &fleet,
                        &rollout.entrant,
                        facts,
                        &rollout.target,
                    ));
                    let takes = (&rollout.entrant, &rollout.target);
                    forecast.add_takeover(facts, rollout.strategy, takes, self.has_service());
                    forecast.add_incumbents(facts, rollout.strategy, &in_place);
                }
            }
            FleetDecision::Abort
            | FleetDecision::ScaledToZero
            | FleetDecision::CancelToCurrent
            | FleetDecision::CancelAfterFailure => {
                forecast.gives_up(decision, active);
                forecast.waves = outcome::waves(forecast::in_place(&fleet, facts, None));
                gives_up = true;
            }
        }
        forecast.add_estimate(&self.scope);
        if !facts.terminating {
            forecast.add_removals(facts, gives_up, self.now);
        }
        Ok(())
    }

    /// The name of a new set, or why there is none.
    async fn name(&self, facts: &FleetFacts, start: &Start) -> Result<Admission<SetName>, String> {
        if let Naming::Known(set) = naming::of_start(facts, start, self.now) {
            return Ok(Admission::Admitted(set));
        }
        let meta = &self.scope.fleet.meta;
        let mut taken = Vec::new();
        for kind in KINDS_OF_A_SET {
            let names = self.cluster.names(kind, &meta.namespace).await;
            taken.extend(names.map_err(|error| format!("cannot name the new set of nodes: {error}"))?);
        }
        let first_choice = naming::first_choice(&start.target, facts.spec.build_id.as_ref());
        Ok(naming::choose(&meta.name, &first_choice, facts.spec.replicas, &taken).into())
    }
}

/// The facts with the rollout's restart applied to every node.
fn obeying(facts: &FleetFacts, start: &Start) -> FleetFacts {
    // A rollout that starts has not stalled, whatever the condition of the previous one.
    let mut facts = facts.clone().with(|f| f.record.stalled = false);
    let Some(restart) = facts.requests.restart.clone().filter(|_| start.cause == Cause::RestartRequested)
    else {
        return facts;
    };
    facts.record.restarted_at = Some(restart.clone());
    for child in &mut facts.children {
        child.restarts.asked = Some(restart.clone());
    }
    // A restart changes each rendering's hash; the order of nodes does not depend on its value.
    let of_groups = facts.groups.iter_mut().map(|group| &mut group.renderings);
    for renderings in of_groups.chain([&mut facts.renderings]) {
        let under: Vec<_> = renderings.iter().map(|((hash, _), r)| (hash.clone(), r.clone())).collect();
        for (hash, mut rendering) in under {
            rendering.hash = rendering.hash.assumed_under(&restart);
            renderings.entry((hash, Some(restart.clone()))).or_insert(rendering);
        }
    }
    facts
}
