//! The sidecar server's queries to its application.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::SidecarArgs;
use super::{Answer, FakeServer, Sidecar, args, dead_url};
use crate::clock::monotonic;

async fn beside_caught_up(application: &FakeServer) -> Sidecar {
    Sidecar::start(SidecarArgs { caught_up_url: Some(application.url()), ..args() }).await
}

async fn beside_height(application: &FakeServer) -> Sidecar {
    Sidecar::start(SidecarArgs { height_url: Some(application.url()), ..args() }).await
}

async fn caught_up(sidecar: &Sidecar) -> Value {
    sidecar.get_json("/v1/status").await["caughtUp"].clone()
}

async fn height(sidecar: &Sidecar) -> Value {
    sidecar.get_json("/v1/status").await["height"].clone()
}

async fn halt_at(sidecar: &Sidecar, height: i64) -> (u16, Value) {
    sidecar.post(json!({"id": "halt", "type": "halt-at-height", "params": {"height": height}})).await
}

/// Exceeds the limit, but valid otherwise.
fn padded(answer: &str) -> String {
    format!("{}{answer}", " ".repeat(64 * 1024))
}

#[tokio::test]
async fn caught_up_follows_the_application_response() {
    let application = FakeServer::saying("").await;
    let sidecar = beside_caught_up(&application).await;
    for (answer, expected) in [
        (Answer::Say(200, String::new()), true),
        (Answer::Say(204, String::new()), true),
        (Answer::Say(200, r#"{"caughtUp": true}"#.into()), true),
        (Answer::Say(200, r#"{"caughtUp": false}"#.into()), false),
        (Answer::Say(200, "false".into()), false),
        (Answer::Say(503, "true".into()), false),
        (Answer::Say(404, String::new()), false),
        (Answer::Say(200, padded("true")), false),
        (Answer::RedirectTo(application.url.clone()), false),
    ] {
        application.now(answer);
        assert_eq!(caught_up(&sidecar).await, expected);
    }
}

#[tokio::test]
async fn ready_node_with_lagging_application_is_not_caught_up() {
    let application = FakeServer::saying("false").await;
    let sidecar = beside_caught_up(&application).await;
    sidecar.post(json!({"id": "a", "type": "mark-ready"})).await;
    assert_eq!(
        sidecar.get_json("/v1/status").await,
        json!({"ready": true, "caughtUp": false, "height": null, "halted": false})
    );
}

#[tokio::test]
async fn dead_application_is_not_caught_up_and_has_no_height() {
    let dead = Some(dead_url().await.parse().unwrap());
    let sidecar =
        Sidecar::start(SidecarArgs { caught_up_url: dead.clone(), height_url: dead, ..args() }).await;
    let status = sidecar.get_json("/v1/status").await;
    assert_eq!(status, json!({"ready": false, "caughtUp": false, "height": null, "halted": false}));
}

#[tokio::test]
async fn silent_application_does_not_delay_the_status() {
    let application = FakeServer::start(Answer::Never).await;
    let sidecar = Sidecar::start(SidecarArgs {
        caught_up_url: Some(application.url()),
        height_url: Some(application.url()),
        ..args()
    })
    .await;
    let began = monotonic();
    let status = sidecar.get_json("/v1/status").await;
    // Shorter than the operator's time-out, or a slow application would look like a dead sidecar.
    assert!(began.elapsed() < Duration::from_millis(1900), "{:?}", began.elapsed());
    assert_eq!(status, json!({"ready": false, "caughtUp": false, "height": null, "halted": false}));
    assert_eq!(application.heard().len(), 2);
}

#[tokio::test]
async fn height_follows_the_application_response() {
    let application = FakeServer::saying("").await;
    let sidecar = beside_height(&application).await;
    for (answer, expected) in [
        (Answer::Say(200, "12".into()), json!(12)),
        (Answer::Say(200, "12\n".into()), json!(12)),
        (Answer::Say(200, r#"{"height": 13}"#.into()), json!(13)),
        (Answer::Say(200, "twelve".into()), json!(null)),
        (Answer::Say(200, padded("12")), json!(null)),
        (Answer::Say(500, "12".into()), json!(null)),
    ] {
        application.now(answer);
        assert_eq!(height(&sidecar).await, expected);
    }
}

#[tokio::test]
async fn halt_runs_until_the_application_reaches_the_height() {
    let application = FakeServer::saying("99").await;
    let sidecar = beside_height(&application).await;
    let (status, answer) = halt_at(&sidecar, 100).await;
    assert_eq!((status, &answer["state"]), (202, &json!("Running")));

    let task = sidecar.get_json("/v1/tasks/halt").await;
    assert_eq!(task["state"], "Running");
    assert_eq!(task["message"], "waiting for height 100: the application is at 99");
    assert_eq!(sidecar.get_json("/v1/status").await["halted"], false);

    application.now_says(r#"{"height": 100}"#);
    let status = sidecar.get_json("/v1/status").await;
    assert_eq!(status, json!({"ready": false, "caughtUp": false, "height": 100, "halted": true}));
    assert_eq!(sidecar.get_json("/v1/tasks/halt").await["state"], "Complete");
    assert_eq!(halt_at(&sidecar, 100).await.0, 200);
}

#[tokio::test]
async fn reading_the_task_suffices_to_complete_it() {
    let application = FakeServer::saying("100").await;
    let sidecar = beside_height(&application).await;
    halt_at(&sidecar, 100).await;
    assert_eq!(sidecar.get_json("/v1/tasks/halt").await["state"], "Complete");
    application.heard();
    sidecar.get_json("/v1/tasks/halt").await;
    assert!(application.heard().is_empty(), "a finished task asks the application nothing");
}

#[tokio::test]
async fn application_that_stops_at_the_height_stays_halted() {
    let application = FakeServer::saying("100").await;
    let sidecar = beside_height(&application).await;
    halt_at(&sidecar, 100).await;
    assert_eq!(sidecar.get_json("/v1/status").await["halted"], true);
    application.now(Answer::Say(503, String::new()));
    assert_eq!(
        sidecar.get_json("/v1/status").await,
        json!({"ready": false, "caughtUp": false, "height": null, "halted": true})
    );
}

#[tokio::test]
async fn halt_at_unknown_height_keeps_running_with_the_reason() {
    let application = FakeServer::start(Answer::Say(500, String::new())).await;
    let sidecar = beside_height(&application).await;
    halt_at(&sidecar, 100).await;
    let task = sidecar.get_json("/v1/tasks/halt").await;
    assert_eq!(task["state"], "Running");
    let sentence = task["message"].as_str().unwrap();
    assert!(sentence.contains(&application.url) && sentence.contains("500"), "{sentence}");
}

#[tokio::test]
async fn halt_without_height_url_fails_with_advice() {
    let sidecar = Sidecar::start(args()).await;
    let (status, answer) = halt_at(&sidecar, 100).await;
    assert_eq!((status, &answer["state"]), (202, &json!("Failed")));
    let sentence = answer["message"].as_str().unwrap();
    assert!(sentence.contains("--height-url"), "{sentence}");
    assert_eq!(sidecar.get_json("/v1/status").await["halted"], false);
}
