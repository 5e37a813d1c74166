//! A sidecar whose tasks require a token.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::super::{HttpSidecar, SidecarArgs, SidecarClient, SidecarError, TaskRequest, run};
use super::{File, Sidecar, args, ask, http};

async fn guarded(file: &File) -> Sidecar {
    Sidecar::start(SidecarArgs { token_file: Some(file.0.clone()), ..args() }).await
}

async fn submit(sidecar: &Sidecar, token: Option<&str>) -> Result<(), SidecarError> {
    let client = HttpSidecar::new(HttpSidecar::DEFAULT_TIMEOUT);
    client.submit(&sidecar.url, &TaskRequest::mark_ready("a"), token).await
}

fn status_of(result: Result<(), SidecarError>) -> u16 {
    match result.unwrap_err() {
        SidecarError::Refused { status, .. } => status,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn task_without_valid_token_is_refused() {
    let file = File::with("s3cret\n");
    let sidecar = guarded(&file).await;
    assert_eq!(status_of(submit(&sidecar, None).await), 401);
    for wrong in ["", "s3cre", "s3crets", "S3cret"] {
        let error = submit(&sidecar, Some(wrong)).await.unwrap_err();
        assert!(error.to_string().contains("sidecar.tokenSecret"), "{error}");
        assert_eq!(status_of(Err(error)), 401);
    }
    assert_eq!(sidecar.get("/readyz").await.0, 503);
}

#[tokio::test]
async fn token_is_checked_before_the_task() {
    let file = File::with("s3cret");
    let sidecar = guarded(&file).await;
    let request = http().post(format!("{}/v1/tasks", sidecar.url)).body("{");
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 401);
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
}

#[tokio::test]
async fn task_with_token_is_accepted_and_reads_need_none() {
    let file = File::with("s3cret\n");
    let sidecar = guarded(&file).await;
    submit(&sidecar, Some("s3cret\n")).await.unwrap();
    assert_eq!(sidecar.get("/readyz").await.0, 200);
    assert_eq!(sidecar.get_json("/v1/status").await["ready"], true);
    assert_eq!(sidecar.get_json("/v1/tasks/a").await["state"], "Complete");
}

#[tokio::test]
async fn changed_token_applies_to_the_next_task() {
    let file = File::with("old");
    let sidecar = guarded(&file).await;
    submit(&sidecar, Some("old")).await.unwrap();
    file.write("new");
    assert_eq!(status_of(submit(&sidecar, Some("old")).await), 401);
    submit(&sidecar, Some("new")).await.unwrap();
}

#[tokio::test]
async fn missing_or_empty_token_refuses_every_task() {
    let file = File::with(" \n");
    let sidecar = guarded(&file).await;
    for token in [None, Some(""), Some("s3cret")] {
        assert_eq!(status_of(submit(&sidecar, token).await), 503);
    }
    std::fs::remove_file(&file.0).unwrap();
    let post = http().post(format!("{}/v1/tasks", sidecar.url)).bearer_auth("");
    let (status, body) = ask(post.body(json!({"id": "a", "type": "mark-ready"}).to_string())).await;
    assert_eq!(status, 503);
    assert!(body.contains("--token-file"), "{body}");
    assert_eq!(sidecar.get("/readyz").await.0, 503);
}

#[tokio::test]
async fn sidecar_does_not_start_with_an_unreadable_token() {
    let empty = File::with("\n");
    let missing = empty.0.with_extension("missing");
    for file in [empty.0.clone(), missing] {
        let running = run(SidecarArgs { token_file: Some(file), ..args() });
        let sentence = timeout(Duration::from_secs(5), running).await.unwrap().unwrap_err();
        assert!(sentence.starts_with("--token-file"), "{sentence}");
    }
}
