//! Errors are distinguished by what the caller can do about them.

use std::time::Duration;

use serde_json::json;

use crate::ClusterError;
use windlass_engine::TaskError;

/// What the API server says of a JSON patch that removes what is not there (tests/harness/src/conformance/observed.json).
const DOES_NOT_APPLY: &str = "the server rejected our request due to an error in our request";

fn answered(code: u16, reason: &str, message: &str, retry_after_seconds: u32) -> ClusterError {
    let status = serde_json::from_value(json!({
        "status": "Failure", "code": code, "reason": reason, "message": message,
        "details": {"retryAfterSeconds": retry_after_seconds},
    }))
    .unwrap();
    ClusterError::from_kube("Pod shop/db-0-0".to_owned(), kube::Error::Api(status))
}

#[test]
fn only_not_found_that_names_the_object_means_deleted() {
    let answered = |reason: &str, details: serde_json::Value| {
        let status = json!({"code": 404, "reason": reason, "message": "not found", "details": details});
        let status = serde_json::from_value(status).unwrap();
        ClusterError::from_kube("Pod shop/db-0-0".to_owned(), kube::Error::Api(status))
    };
    assert_eq!(kind(&answered("NotFound", json!({"name": "db-0-0", "kind": "pods"}))), "gone");
    // A definition that is temporarily not served, or a proxy that does not know the path.
    assert_eq!(kind(&answered("NotFound", json!({}))), "transient");
    assert_eq!(kind(&answered("NotFound", json!(null))), "transient");
    assert_eq!(kind(&answered("", json!({"name": "db-0-0"}))), "transient");
}

/// The variant of an error, as a word.
fn kind(error: &ClusterError) -> &'static str {
    match error {
        ClusterError::Conflict { .. } => "conflict",
        ClusterError::AlreadyExists { .. } => "exists",
        ClusterError::NotFound { .. } => "gone",
        ClusterError::Refused { .. } => "refused",
        ClusterError::DeleteRefused { .. } => "delete refused",
        ClusterError::Forbidden { .. } => "forbidden",
        ClusterError::Transient { .. } => "transient",
    }
}

#[test]
fn api_server_errors_are_classified_by_required_handling() {
    let typed = "failed to create typed patch object (shop/db-0; apps/v1, Kind=StatefulSet): .spec.x: field not declared";
    let table = [
        (400, "BadRequest", "unknown field spec.tempalte", "refused"),
        (401, "Unauthorized", "no", "transient"),
        (
            403,
            "Forbidden",
            "statefulsets.apps \"db-0\" is forbidden: exceeded quota: few, requested: 1",
            "forbidden",
        ),
        (403, "Forbidden", "statefulsets.apps is forbidden: no permission", "forbidden"),
        (404, "", "404 page not found", "transient"),
        (409, "AlreadyExists", "it is there", "exists"),
        (409, "Conflict", "the object has been modified", "conflict"),
        (413, "RequestEntityTooLarge", "too large", "refused"),
        (422, "Invalid", "spec.template: Forbidden", "refused"),
        (422, "Invalid", DOES_NOT_APPLY, "conflict"),
        (422, "Invalid", "admission webhook \"x\" denied the request: the smoke test failed", "refused"),
        (429, "TooManyRequests", "slow down", "transient"),
        (500, "InternalError", typed, "refused"),
        (500, "InternalError", "etcdserver: request timed out", "transient"),
        (503, "ServiceUnavailable", "apiserver is shutting down", "transient"),
        (504, "Timeout", "request did not complete", "transient"),
    ];
    for (code, reason, message, expected) in table {
        let error = answered(code, reason, message, 0);
        assert_eq!(kind(&error), expected, "{code} {reason}: {message}");
        assert_eq!(error.is_conflict(), expected == "conflict", "{code}");
        assert_eq!(error.exceeds_quota(), message.contains("exceeded quota"), "{code}: {message}");
        assert_eq!(error.refusal().is_some(), expected == "refused", "{code}");
        let is_terminal = matches!(TaskError::from(error), TaskError::Terminal { .. });
        assert_eq!(is_terminal, expected == "refused", "{code}: what a task makes of it");
    }
}

#[test]
fn inapplicable_patch_is_a_conflict_unless_a_field_is_named() {
    let answered = |code: u16, details: serde_json::Value| {
        let status = json!({"status": "Failure", "code": code, "reason": "Invalid", "message": DOES_NOT_APPLY, "details": details});
        let status = serde_json::from_value(status).unwrap();
        ClusterError::from_kube("StatefulNode shop/db-0".to_owned(), kube::Error::Api(status))
    };
    let cause = json!({"reason": "FieldValueInvalid", "field": "spec.ports", "message": "no"});
    assert_eq!(kind(&answered(422, json!({}))), "conflict", "as the API server answers");
    assert_eq!(kind(&answered(422, json!(null))), "conflict");
    assert_eq!(kind(&answered(422, json!({"causes": [cause]}))), "refused");
    assert_eq!(kind(&answered(400, json!({}))), "refused", "of a request that cannot be read");
}

#[test]
fn retry_after_of_the_server_is_passed_on() {
    let waits = |error| match TaskError::from(error) {
        TaskError::Transient { retry_after, .. } => retry_after,
        TaskError::Terminal { message } => panic!("{message}"),
    };
    assert_eq!(waits(answered(429, "TooManyRequests", "slow down", 7)), Some(Duration::from_secs(7)));
    assert_eq!(waits(answered(503, "ServiceUnavailable", "later", 0)), None);
}

#[test]
fn error_message_names_the_object_and_the_server_reason() {
    let error = answered(422, "Invalid", "spec.x: no", 0);
    assert_eq!(error.to_string(), "the API server rejects Pod shop/db-0-0: spec.x: no");
}

#[test]
fn request_that_never_reached_the_server_is_transient() {
    let error = kube::Error::LinesCodecMaxLineLengthExceeded;
    assert_eq!(kind(&ClusterError::from_kube("x".to_owned(), error)), "transient");
}

#[test]
fn events_of_old_and_new_client_libraries_are_read() {
    use crate::port::EventNote;
    let at = |text: &str| text.parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    let made = "2030-01-01T00:00:00Z";
    let old = json!({"note": "no", "eventTime": null, "deprecatedLastTimestamp": "2030-01-01T00:05:00Z",
        "metadata": {"creationTimestamp": made}});
    let new = json!({"note": "no", "eventTime": "2030-01-01T00:00:01.000000Z",
        "series": {"count": 3, "lastObservedTime": "2030-01-01T00:09:00.000000Z"}, "metadata": {"creationTimestamp": made}});
    assert_eq!(EventNote::read(&old), Some(EventNote { note: "no".into(), at: at("2030-01-01T00:05:00Z") }));
    assert_eq!(EventNote::read(&new), Some(EventNote { note: "no".into(), at: at("2030-01-01T00:09:00Z") }));
    assert_eq!(EventNote::read(&json!({"metadata": {"creationTimestamp": made}})), None);
}
