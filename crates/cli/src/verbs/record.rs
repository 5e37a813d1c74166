//! Records who requested a change and why: in the object, from which the operator copies it into the history, and in
//! an event.

use chrono::{DateTime, SecondsFormat, Utc};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use super::change::{Change, Write};
use windlass_core::api::names::ANNOTATION_LAST_REQUEST;
use windlass_core::api::{LastRequest, RequestedRollback};
use windlass_kube_port::port::pointer_key;

/// The user as the API server knows them, or else their name on this machine.
pub async fn who(client: &Client) -> String {
    let kind = GroupVersionKind::gvk("authentication.k8s.io", "v1", "SelfSubjectReview");
    let resource = ApiResource::from_gvk_with_plural(&kind, "selfsubjectreviews");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let recorded_request = api.create(&PostParams::default(), &DynamicObject::new("", &resource)).await;
    let known = recorded_request
        .ok()
        .and_then(|a| Some(a.data["status"]["userInfo"]["username"].as_str()?.to_owned()));
    let local = || ["USER", "LOGNAME"].iter().find_map(|key| std::env::var(key).ok());
    known.filter(|name| !name.is_empty()).or_else(local).unwrap_or_else(|| "somebody".to_owned())
}

/// The request that the command line recorded last.
pub fn recorded_request(object: &Value) -> Option<LastRequest> {
    serde_json::from_str(object["metadata"]["annotations"][ANNOTATION_LAST_REQUEST].as_str()?).ok()
}

/// The JSON patch operations of a change, guarded by the object's version, with the record of the request.
pub fn ops(
    object: &Value,
    change: &Change,
    write: Write,
    by: &str,
    why: Option<&str>,
    now: DateTime<Utc>,
) -> Vec<Value> {
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let annotate = |key: &str, value: String| {
        add(&format!("/metadata/annotations/{}", pointer_key(key)), Value::String(value))
    };
    let mut ops = vec![add("/metadata/resourceVersion", object["metadata"]["resourceVersion"].clone())];
    if !object["metadata"]["annotations"].is_object() {
        ops.push(add("/metadata/annotations", json!({})));
    }
    match write {
        Write::Field(path, value) => ops.push(add(path, value)),
        Write::Fields(fields) => ops.extend(fields.into_iter().map(|(path, value)| add(path, value))),
        Write::Annotation(key, value) => ops.push(annotate(key, value)),
        Write::Annotations(annotations) => {
            ops.extend(annotations.map(|(key, value)| annotate(key, value)));
        }
    }
    let way_back = change.back_to.as_ref().map(|to| RequestedRollback {
        to: to.clone(),
        by: by.to_owned(),
        at: now,
        plan_id: text(&object["status"]["plan"]["id"]).to_owned(),
    });
    let recorded_request = LastRequest {
        verb: change.verb.to_owned(),
        by: by.to_owned(),
        why: why.unwrap_or_default().to_owned(),
        at: now,
        // A pause, say, does not cancel a rollback.
        rollback: way_back.or_else(|| recorded_request(object)?.rollback),
    };
    ops.push(annotate(ANNOTATION_LAST_REQUEST, json!(recorded_request).to_string()));
    ops
}

/// Sends an event about the change. Without the right to, the object still has the record.
pub async fn send_event(
    client: &Client,
    object: &Value,
    change: &Change,
    by: &str,
    why: Option<&str>,
    now: DateTime<Utc>,
) {
    let meta = &object["metadata"];
    let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let note: String =
        format!("{by} requested {} ({}){why}", change.verb, change.message).chars().take(1000).collect();
    let kind = GroupVersionKind::gvk("events.k8s.io", "v1", "Event");
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind));
    let event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": format!("{name}-"), "namespace": namespace},
        "eventTime": now.to_rfc3339_opts(SecondsFormat::Micros, true),
        "reportingController": "windlass.dev/cli",
        "reportingInstance": by,
        "action": change.reason(),
        "reason": change.reason(),
        "type": "Normal",
        "note": note,
        "regarding": {
            "apiVersion": object["apiVersion"], "kind": object["kind"], "name": name,
            "namespace": namespace, "uid": meta["uid"], "resourceVersion": meta["resourceVersion"],
        },
    });
    let sent = match serde_json::from_value(event) {
        Ok(event) => api.create(&PostParams::default(), &event).await.map(drop).map_err(sentence),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = sent {
        eprintln!(
            "windlass: {name} is changed and the request is recorded in it, but the event could not be created: {error}"
        );
    }
}

/// The API server's message, without the client's wrapping.
pub fn sentence(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
