//! The sidecar's endpoints, without an application.

use serde_json::json;

use super::{Sidecar, args};

#[tokio::test]
async fn new_sidecar_is_alive_and_not_ready() {
    let sidecar = Sidecar::start(args()).await;
    assert_eq!(sidecar.get("/healthz").await.0, 200);
    assert_eq!(sidecar.get("/readyz").await.0, 503);
    assert_eq!(
        sidecar.get_json("/v1/status").await,
        json!({"ready": false, "caughtUp": false, "height": null, "halted": false})
    );
}

#[tokio::test]
async fn mark_ready_takes_effect_at_once() {
    let sidecar = Sidecar::start(args()).await;
    let (status, answer) = sidecar.post(json!({"id": "a1-4", "type": "mark-ready", "params": {}})).await;
    assert_eq!((status, &answer["id"], &answer["state"]), (202, &json!("a1-4"), &json!("Complete")));
    assert_eq!(sidecar.get("/readyz").await.0, 200);
    assert_eq!(
        sidecar.get_json("/v1/status").await,
        json!({"ready": true, "caughtUp": true, "height": null, "halted": false})
    );
    assert_eq!(sidecar.get_json("/v1/tasks/a1-4").await, answer);
}

#[tokio::test]
async fn repeated_task_is_answered_without_running_again() {
    let sidecar = Sidecar::start(args()).await;
    let request = json!({"id": "a1-4", "type": "mark-ready", "params": {}});
    let (_, first) = sidecar.post(&request).await;
    assert_eq!(sidecar.post(&request).await, (200, first.clone()));
    assert_eq!(sidecar.post(json!({"id": "a1-4", "type": "mark-ready"})).await, (200, first));
}

#[tokio::test]
async fn same_id_with_different_content_is_a_conflict() {
    let sidecar = Sidecar::start(args()).await;
    sidecar.post(json!({"id": "x", "type": "halt-at-height", "params": {"height": 5}})).await;
    let before = sidecar.get_json("/v1/tasks/x").await;
    for other in [
        json!({"id": "x", "type": "mark-ready"}),
        json!({"id": "x", "type": "halt-at-height", "params": {"height": 6}}),
    ] {
        let (status, answer) = sidecar.post(other).await;
        assert_eq!(status, 409);
        let sentence = answer["message"].as_str().unwrap();
        assert!(sentence.contains("the ID x belongs to a halt-at-height task"), "{sentence}");
    }
    assert_eq!(sidecar.get("/readyz").await.0, 503);
    assert_eq!(sidecar.get_json("/v1/tasks/x").await, before);
}

#[tokio::test]
async fn malformed_task_is_refused_with_the_field() {
    let sidecar = Sidecar::start(args()).await;
    let table = [
        ("{".to_owned(), "not JSON"),
        (String::new(), "not JSON"),
        ("[]".to_owned(), "JSON object"),
        (json!({"type": "mark-ready"}).to_string(), "`id`"),
        (json!({"id": 1, "type": "mark-ready"}).to_string(), "`id`"),
        (json!({"id": "a"}).to_string(), "`type`"),
        (json!({"id": "a", "type": "reboot"}).to_string(), "`type`"),
        (json!({"id": "a", "type": "mark-ready", "params": []}).to_string(), "`params`"),
        (
            json!({"id": "a", "type": "halt-at-height", "params": {"height": 0}}).to_string(),
            "`params.height`",
        ),
    ];
    for (body, part) in table {
        let (status, answer) = sidecar.post(&body).await;
        assert_eq!(status, 400, "{body}");
        let sentence = answer["message"].as_str().unwrap();
        assert!(sentence.contains(part), "{body}: {sentence}");
    }
    assert_eq!(sidecar.get("/v1/tasks/a").await.0, 404);
    assert_eq!(sidecar.get("/readyz").await.0, 503);
}

#[tokio::test]
async fn oversized_task_is_refused() {
    let sidecar = Sidecar::start(args()).await;
    let request = json!({"id": "a", "type": "mark-ready", "params": {"padding": "x".repeat(16 * 1024)}});
    let (status, answer) = sidecar.post(request).await;
    assert_eq!(status, 413);
    assert!(answer["message"].is_string(), "{answer}");
    assert_eq!(sidecar.get("/readyz").await.0, 503);
}

#[tokio::test]
async fn unknown_task_and_unknown_path_are_not_found() {
    let sidecar = Sidecar::start(args()).await;
    let (status, body) = sidecar.get("/v1/tasks/never-heard-of").await;
    assert_eq!(status, 404);
    assert!(body.contains("submit it again"), "{body}");
    assert_eq!(sidecar.get("/v2/tasks").await.0, 404);
    assert_eq!(sidecar.get("/v1/tasks").await.0, 405);
}

#[tokio::test]
async fn restarted_sidecar_is_not_ready() {
    let sidecar = Sidecar::start(args()).await;
    sidecar.post(json!({"id": "a", "type": "mark-ready"})).await;
    drop(sidecar);
    let sidecar = Sidecar::start(args()).await;
    assert_eq!(sidecar.get("/readyz").await.0, 503);
    assert_eq!(sidecar.get("/v1/tasks/a").await.0, 404);
}
