//! Which hooks a change would run, and whether the operator would accept them.

use url::Url;

use super::{Action, Forecast};
use windlass::internal::{HookRules, JobOwner, Unfit, check_all};
use windlass::operator::{Host, PrometheusUrl};
use windlass::tasks::FleetScope;
use windlass_core::api::{Hook, HookPoint};
use windlass_core::planner::fleet::hooks::{HookContext, NewNodes};
use windlass_core::planner::fleet::{Blocker, Cause, FleetDecision, FleetFacts, RolloutTarget};
use windlass_kube_port::Kind;

/// The remark that a check of hooks does not cover the operator's flags.
pub(super) const FLAGS_NOT_CHECKED: &str =
    "hooks not checked against --hook-host and --prometheus-url of the operator; their duration is not known";

/// Checks hooks as the operator does, and blocks the scope if it would refuse them. Its flags are not known, so each host counts as
/// allowed. Returns what could not be checked, in a sentence.
pub(super) async fn check(scope: &mut FleetScope, kind: Kind) -> Option<String> {
    let (meta, hooks) = (&scope.fleet.meta, &scope.spec.update_strategy.hooks);
    let owner = JobOwner::itself(kind, &meta.namespace, &meta.name, &meta.uid);
    let checked = check_all(scope.cluster.as_ref(), &owner, hooks, &rules_for(hooks)).await;
    match checked {
        Ok(()) => None,
        Err(Unfit::Refused(sentence)) => {
            // The listed hosts are not those of the operator.
            let known = sentence.split_once("--hook-host (").map(|(start, _)| format!("{start}--hook-host"));
            scope.block(Blocker::Spec(known.unwrap_or(sentence)));
            None
        }
        Err(Unfit::Unknown { sentence, .. }) => Some(sentence),
    }
}

/// Rules that allow the hosts of these hooks, and queries.
fn rules_for(hooks: &[Hook]) -> HookRules {
    let host = |hook: &Hook| {
        let url = Url::parse(&hook.http.as_ref()?.url).ok()?;
        Host::parse(url.host_str()?).ok()
    };
    HookRules {
        hosts: hooks.iter().filter_map(host).collect(),
        prometheus: PrometheusUrl::parse("http://unknown").ok(),
        ..HookRules::default()
    }
}

impl Forecast {
    /// Adds the hooks of the rollout that starts, and of the nodes that are created, updated or removed.
    pub(super) fn add_hooks(&mut self, hooks: &[Hook], facts: &FleetFacts, decision: &FleetDecision) {
        let mut points = points_of_rollout(facts, decision);
        let does = |action| self.waves.iter().flat_map(|wave| &wave.nodes).any(|node| node.action == action);
        if does(Action::Create) {
            points.extend([HookPoint::BeforeCreate, HookPoint::AfterCreate]);
        }
        if does(Action::Update) {
            points.extend([HookPoint::BeforeNode, HookPoint::AfterNode]);
        }
        if does(Action::Remove) {
            points.push(HookPoint::BeforeRemove);
        }
        let at = |point: HookPoint| hooks.iter().filter(move |hook| hook.at == point);
        let due = HookPoint::ALL.into_iter().filter(|point| points.contains(point)).flat_map(at);
        self.hooks = due.map(|hook| format!("{} ({})", hook.name, hook.at.as_str())).collect();
    }
}

/// The points of the fleet's plan.
fn points_of_rollout(facts: &FleetFacts, decision: &FleetDecision) -> Vec<HookPoint> {
    let (FleetDecision::Start(start)
    | FleetDecision::Supersede(start)
    | FleetDecision::RollBack(start)
    | FleetDecision::CompleteAndStart(start)) = decision
    else {
        return Vec::new();
    };
    let of_scale_up = facts.record.last_completed.is_some() && facts.adds_nodes();
    let context = HookContext {
        cause: Some(start.cause),
        own: start.rollout_target == RolloutTarget::Own,
        creates_set: start.strategy.creates_set(),
        is_way_back: matches!(decision, FleetDecision::RollBack(_)) && start.cause == Cause::Superseded,
        new_nodes: NewNodes { of_scale_up, ..NewNodes::default() },
        ..HookContext::default()
    };
    let is_there = |point: &HookPoint| match point {
        HookPoint::AfterStep => !facts.spec.steps.is_empty() && !start.strategy.creates_set(),
        HookPoint::BeforePromotion | HookPoint::AfterPromotion => start.strategy.creates_set(),
        _ => true,
    };
    context.owing(None).points().into_iter().filter(is_there).collect()
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "as tests read best")]
mod tests {
    use std::sync::Arc;

    use chrono::DateTime;
    use serde_json::{Value, json};

    use crate::empty_cluster::with_objects;
    use crate::forecast::cluster::DryRunCluster;
    use crate::forecast::scope;
    use windlass_kube_port::observed::{Observed, ObservedFleet};
    use windlass_kube_port::{Kind, KubeCluster, View};

    /// Why the operator would refuse this hook.
    async fn refused(hook: Value) -> Option<String> {
        let mut hook = hook;
        hook["name"] = json!("drain");
        let fleet = json!({
            "metadata": {"name": "db", "namespace": "shop", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {"replicas": 1, "template": {"spec": {"image": "db:1", "podTemplate": {}}}, "updateStrategy": {"type": "InPlace", "hooks": [hook]}}});
        let (view, client) = (View::shared(), with_objects(Vec::new(), &[]));
        let inner = Arc::new(KubeCluster::new(client, View::shared()));
        let cluster = Arc::new(DryRunCluster::new(inner, view.clone()));
        let fleet = Arc::new(ObservedFleet::read(&fleet));
        let mut scope = scope(&view, &cluster, &fleet, DateTime::UNIX_EPOCH).unwrap();
        assert_eq!(super::check(&mut scope, Kind::NodeDeployment).await, None);
        scope.blocker.map(|blocker| blocker.to_string())
    }

    fn http(url: &str, more: Value) -> Value {
        let mut http = json!({"url": url});
        json_patch::merge(&mut http, &more);
        json!({"at": "BeforeNode", "http": http})
    }

    #[tokio::test]
    async fn hook_that_the_operator_refuses_is_refused_with_its_sentence() {
        let both = json!({"auth": {"bearerSecret": "a", "basicSecret": "b"}});
        let header =
            json!({"auth": {"bearerSecret": "a"}, "headers": [{"name": "authorization", "value": "x"}]});
        for (hook, expected) in [
            (
                http("http://peer/", json!({"tls": {}})),
                "hook drain: http.tls needs a url that begins with https://: change the url, or remove tls",
            ),
            (
                http("https://peer/", json!({"tls": {"serverName": "a b"}})),
                "hook drain: http.tls.serverName \"a b\" is not a DNS name or an IP address: set it to a name in the \
                 server's certificate",
            ),
            (
                http("https://peer/", both),
                "hook drain: http.auth needs either bearerSecret or basicSecret, but not both",
            ),
            (
                http("https://peer/", json!({"auth": {}})),
                "hook drain: http.auth needs either bearerSecret or basicSecret, but not both",
            ),
            (
                http("https://peer/", header),
                "hook drain: http.auth sets the header Authorization: remove it from http.headers",
            ),
            (
                http("https://u:p@peer/", json!({})),
                "hook drain: http.url has a user or password: use http.auth",
            ),
            (
                http("http://{{fleet}}/", json!({})),
                "hook drain: http.url has a placeholder in its host: it has to be {{podIP}} of the node, or a host that \
                 the operator allows with --hook-host",
            ),
        ] {
            assert_eq!(refused(hook).await.as_deref(), Some(expected));
        }
    }

    #[tokio::test]
    async fn hosts_and_queries_of_hooks_count_as_allowed() {
        for hook in [
            http("https://Peer.example.:8443/{{node}}", json!({})),
            http("http://[fd00::7]/", json!({})),
            http("http://{{podIP}}:80/", json!({})),
            json!({"at": "AfterStep", "query": {"promql": "up", "success": "scalar > 0.0"}}),
            json!({"at": "BeforeRollout", "approval": {}}),
        ] {
            assert_eq!(refused(hook.clone()).await, None, "{hook}");
        }
    }
}
