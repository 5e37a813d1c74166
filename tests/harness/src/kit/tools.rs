//! More tools of a [`World`]: steering, annotations, events, history and the audit log.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use crate::controlplane::{Audit, Mark};
use crate::kit::World;

impl World {
    /// Sets or (null) removes an annotation.
    pub async fn annotate(&self, api: &Api<DynamicObject>, name: &str, key: &str, value: Value) {
        self.patch(api, name, json!({"metadata": {"annotations": {key: value}}})).await;
    }

    /// Sets or (null) removes an annotation of the fleet `db`.
    pub async fn annotate_fleet(&self, key: &str, value: Value) {
        self.annotate(&self.fleets(), "db", key, value).await;
    }

    /// The notes of all events with this reason about objects with this name.
    pub async fn notes_about(&self, about: &str, reason: &str) -> Vec<String> {
        let events = self.list(&self.api("events.k8s.io/v1", "Event")).await;
        let of = |e: &&Value| e["reason"] == reason && e["regarding"]["name"] == about;
        events.iter().filter(of).map(|e| e["note"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Watches an object for a while; panics if `holds` becomes false.
    pub async fn throughout(
        &self,
        long: Duration,
        api: &Api<DynamicObject>,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) {
        let until = tokio::time::Instant::now() + long;
        while tokio::time::Instant::now() < until {
            let seen = self.get(api, name).await;
            assert!(holds(&seen), "{what} does not hold: {seen:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The UIDs of all objects of a kind, by name.
    pub async fn uids(&self, api: &Api<DynamicObject>) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = self.list(api).await;
        list.iter().map(|o| (text(&o["metadata"]["name"]), text(&o["metadata"]["uid"]))).collect()
    }

    /// The operator's writes in this namespace since a mark.
    pub async fn operator_audit(&self, since: Mark) -> Audit {
        let user = format!("system:serviceaccount:{}:windlass", &*self.ns);
        self.cp.audit_since(since).await.user(&user).namespace(&self.ns).write_attempts()
    }

    /// Panics if the operator writes anything within a while, after its pending writes.
    pub async fn writes_nothing_for(&self, long: Duration) {
        // A fleet's progress is written at most once a second, and an event comes after its status.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let mark = self.cp.audit_mark().await;
        tokio::time::sleep(long).await;
        let written = self.operator_audit(mark).await;
        assert_eq!(written.count(), 0, "the operator writes: {:#?}", written.entries());
    }

    /// Waits until a pod is Ready and its main container has this image.
    pub async fn until_pod_runs(&self, pod: &str, image: &str) -> Value {
        let what = format!("it is Ready with {image}");
        self.until(&self.pods(), pod, &what, |p| is_up(p) && image_of(p) == image).await
    }
}

/// True if a pod is Ready and not terminating.
pub fn is_up(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The image of a pod's main container.
pub fn image_of(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

/// The outcomes in a history, oldest first.
pub fn outcomes(object: &Value) -> Vec<&str> {
    let history = object["status"]["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    history.iter().map(|h| h["outcome"].as_str().unwrap_or_default()).collect()
}

/// The message of a condition.
pub fn message(object: &Value, type_: &str) -> String {
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|c| c["type"] == type_);
    found.and_then(|c| c["message"].as_str()).unwrap_or_default().to_owned()
}

/// The ID of a fleet's plan.
pub fn plan_id(object: &Value) -> String {
    object["status"]["plan"]["id"].as_str().unwrap_or_default().to_owned()
}
