//! Checks that the installed custom resource definitions are those of this version: fields that they lack are
//! refused, or dropped silently. Compares the published `OpenAPI` document, which everybody may read.

use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::Value;
use tracing::{debug, warn};

use windlass::operator::Health;
use windlass_core::api::crd::crds;
use windlass_core::api::names::{GROUP, VERSION};
use windlass_kube_port::client::GuardedClient;

/// How often they are checked: after they are updated, the operator recovers without a restart.
const EVERY: Duration = Duration::from_secs(30);
/// The delay of the first check: definitions that were just installed are published after some seconds.
const AT_FIRST: Duration = Duration::from_secs(5);

/// Checks the definitions repeatedly, and has `/readyz` report what is missing. `stateful_sets`: true if that of
/// StatefulSetRollouts is needed.
pub async fn watch(client: Client, health: Health, stateful_sets: bool) {
    // With time-outs: a request without an answer must not hang.
    let client = GuardedClient::new(&client).counted(windlass::internal::port_metrics(&health)).client();
    tokio::time::sleep(AT_FIRST).await;
    let mut before = None;
    loop {
        match published(&client).await {
            Ok(document) => {
                let missing = lacking(&document, stateful_sets);
                if missing != before
                    && let Some(sentence) = &missing
                {
                    warn!("{sentence}");
                }
                health.definitions_lack(missing.clone());
                before = missing;
            }
            // Not a reason for being unready: whatever fails here is reported elsewhere.
            Err(error) => debug!(%error, "cannot read the published OpenAPI schema"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn published(client: &Client) -> Result<Value, String> {
    let request = Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}"));
    let request = request.header("accept", "application/json").body(Vec::new()).map_err(|e| e.to_string())?;
    client.request(request).await.map_err(|e| e.to_string())
}

/// The fields that the published definitions lack, in a sentence. A definition that is not published at all is reported
/// only if it is that of StatefulSetRollouts: it is not installed where an earlier version was upgraded.
fn lacking(document: &Value, stateful_sets: bool) -> Option<String> {
    for crd in crds() {
        let kind = &crd.spec.names.kind;
        let is_optional = kind == "StatefulSetRollout";
        if is_optional && !stateful_sets {
            continue;
        }
        let schemas = document["components"]["schemas"].as_object()?;
        let is_of_kind = |schema: &&Value| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| {
                kinds.iter().any(|of| of["kind"] == kind.as_str() && of["group"] == GROUP)
            })
        };
        let served = match schemas.values().find(is_of_kind) {
            None if is_optional && !schemas.is_empty() => {
                return Some(format!(
                    "the CustomResourceDefinition {}.{GROUP} is not installed: apply deploy/crds of this version, or start the \
                     operator with --stateful-sets=false",
                    crd.spec.names.plural
                ));
            }
            found => found?,
        };
        let own = crd.spec.versions.first().and_then(|version| version.schema.as_ref());
        let own = serde_json::to_value(own.and_then(|schema| schema.open_api_v3_schema.as_ref())).ok()?;
        let missing = ["spec", "status"]
            .iter()
            .find_map(|part| first_missing(&own["properties"][part], &served["properties"][part], part));
        if let Some(path) = missing {
            return Some(format!(
                "the CustomResourceDefinition {}.{GROUP} is older than this version of Windlass and does \
                 not have {path}: apply deploy/crds of this version, or the output of `windlass crds`",
                crd.spec.names.plural
            ));
        }
    }
    None
}

/// The path of the first field that `own` has and `served` drops.
fn first_missing(own: &Value, served: &Value, path: &str) -> Option<String> {
    if let (true, true) = (own["items"].is_object(), served["items"].is_object()) {
        return first_missing(&own["items"], &served["items"], &format!("{path}[]"));
    }
    let fields = own["properties"].as_object()?;
    // A schema without properties is not published in full, or keeps unknown fields.
    let known = served["properties"].as_object()?;
    let keeps = served["x-kubernetes-preserve-unknown-fields"] == true;
    fields.iter().find_map(|(name, own)| {
        let path = format!("{path}.{name}");
        match known.get(name) {
            None if keeps => None,
            None => Some(path),
            Some(served) => first_missing(own, served, &path),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_sim::{Cluster, Options};

    async fn missing(change: impl Fn(&mut Value)) -> Option<String> {
        let cluster = Cluster::start(Options::seeded(1));
        for crd in crds() {
            let mut crd = serde_json::to_value(crd).unwrap();
            change(&mut crd);
            cluster.install(crd).unwrap();
        }
        lacking(&published(&cluster.client("windlass", "default")).await.unwrap(), true)
    }

    #[tokio::test(start_paused = true)]
    async fn statefulset_rollout_crd_is_required_unless_disabled() {
        let cluster = Cluster::start(Options::seeded(1));
        for crd in crds().iter().filter(|crd| crd.spec.names.kind != "StatefulSetRollout") {
            cluster.install(serde_json::to_value(crd).unwrap()).unwrap();
        }
        let document = published(&cluster.client("windlass", "default")).await.unwrap();
        assert_eq!(lacking(&document, false), None);
        let sentence = lacking(&document, true).unwrap();
        assert!(sentence.contains("statefulsetrollouts.windlass.dev is not installed"), "{sentence}");
    }

    fn schema<'a>(crd: &'a mut Value, part: &str) -> &'a mut Value {
        crd.pointer_mut(&format!("/spec/versions/0/schema/openAPIV3Schema/properties/{part}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn outdated_crd_is_reported_by_first_field_it_would_drop() {
        assert_eq!(missing(|_| {}).await, None);
        let older = |crd: &mut Value| {
            let spec = schema(crd, "spec");
            for of in ["/properties", "/properties/template/properties/spec/properties"] {
                if let Some(sidecar) = spec.pointer_mut(&format!("{of}/sidecar/properties")) {
                    sidecar.as_object_mut().unwrap().remove("args");
                }
            }
        };
        let sentence = missing(older).await.unwrap();
        assert!(sentence.contains("nodedeployments.windlass.dev"), "{sentence}");
        assert!(sentence.contains("template.spec.sidecar.args: apply deploy/crds"), "{sentence}");
    }

    #[tokio::test(start_paused = true)]
    async fn missing_status_field_matters_only_if_unknowns_are_dropped() {
        let less = |keeps: bool| {
            missing(move |crd| {
                let status = schema(crd, "status");
                status["properties"].as_object_mut().unwrap().remove("plan");
                status["x-kubernetes-preserve-unknown-fields"] = keeps.into();
            })
        };
        assert_eq!(less(true).await, None);
        assert!(less(false).await.unwrap().contains("does not have status.plan"));
    }

    #[test]
    fn missing_openapi_document_reports_nothing() {
        assert_eq!(lacking(&Value::Null, true), None);
        assert_eq!(lacking(&serde_json::json!({"components": {"schemas": {}}}), true), None);
    }
}
