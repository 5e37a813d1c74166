//! The operator's client, against the real server and against servers that are dead, slow or lying.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::{
    HttpSidecar, MockSidecarClient, SidecarArgs, SidecarClient, SidecarError, Status, TaskRequest, TaskState,
};
use super::{Answer, FakeServer, Sidecar, args, dead_url};
use crate::clock::monotonic;
use crate::outward::{Access, Origin};

const STATUS: &str = r#"{"ready": true, "caughtUp": true, "height": 7, "halted": false}"#;

fn client() -> HttpSidecar {
    HttpSidecar::new(HttpSidecar::DEFAULT_TIMEOUT)
}

fn impatient() -> HttpSidecar {
    HttpSidecar::new(Duration::from_millis(150))
}

/// The error of each of the three requests.
async fn errors(client: &HttpSidecar, url: &str) -> [SidecarError; 3] {
    [
        client.status(url).await.unwrap_err(),
        client.submit(url, &TaskRequest::mark_ready("a"), None).await.unwrap_err(),
        client.task(url, "a").await.unwrap_err(),
    ]
}

/// The errors of the two requests whose answers are parsed.
async fn reading_errors(client: &HttpSidecar, url: &str) -> [SidecarError; 2] {
    [client.status(url).await.unwrap_err(), client.task(url, "a").await.unwrap_err()]
}

#[tokio::test]
async fn client_and_server_understand_each_other() {
    let application = FakeServer::saying("41").await;
    let sidecar = Sidecar::start(SidecarArgs { height_url: Some(application.url()), ..args() }).await;
    let (client, url): (Arc<dyn SidecarClient>, _) = (Arc::new(client()), sidecar.url.as_str());

    assert_eq!(client.task(url, "a1-0").await, Ok(None));
    let mark_ready = TaskRequest::mark_ready("a1-0");
    client.submit(url, &mark_ready, None).await.unwrap();
    client.submit(url, &mark_ready, None).await.unwrap();
    let task = client.task(url, "a1-0").await.unwrap().unwrap();
    assert_eq!((task.id.as_str(), task.state), ("a1-0", TaskState::Complete));

    client.submit(url, &TaskRequest::halt_at_height("a1-1", 42), None).await.unwrap();
    assert_eq!(client.task(url, "a1-1").await.unwrap().unwrap().state, TaskState::Running);
    application.now_says("42");
    let status = Status { ready: true, caught_up: true, height: Some(42), halted: true, role: None };
    assert_eq!(client.status(url).await, Ok(status));

    let refused = client.submit(url, &TaskRequest::mark_ready("a1-1"), None).await.unwrap_err();
    assert!(matches!(refused, SidecarError::Refused { status: 409, .. }), "{refused:?}");
}

#[tokio::test]
async fn requests_use_their_own_path_below_the_base_url() {
    let sidecar = FakeServer::saying(STATUS).await;
    let base = format!("{}/nodes/db-0/", sidecar.url);
    client().status(&base).await.unwrap();
    client().submit(&base, &TaskRequest::mark_ready("a1-0"), Some("s3cret\n")).await.unwrap();
    client().task(&base, "a/../b?c").await.unwrap_err();
    let heard = sidecar.heard();
    let requests: Vec<_> = heard.iter().map(|heard| heard.request.as_str()).collect();
    assert_eq!(
        requests,
        ["GET /nodes/db-0/v1/status", "POST /nodes/db-0/v1/tasks", "GET /nodes/db-0/v1/tasks/a%2F..%2Fb%3Fc"]
    );
    assert_eq!(heard[1].authorization.as_deref(), Some("Bearer s3cret"));
    let body: Value = serde_json::from_str(&heard[1].body).unwrap();
    assert_eq!(body, json!({"id": "a1-0", "type": "mark-ready", "params": {}}));
}

#[tokio::test]
async fn token_invalid_as_a_header_is_neither_sent_nor_printed() {
    let sidecar = FakeServer::saying("").await;
    let request = TaskRequest::mark_ready("a");
    let error = client().submit(&sidecar.url, &request, Some("s3c\nret")).await.unwrap_err();
    assert!(matches!(error, SidecarError::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains("token") && !error.to_string().contains("s3c"), "{error}");
    assert!(sidecar.heard().is_empty());
}

#[tokio::test]
async fn dead_sidecar_is_unreachable() {
    let url = dead_url().await;
    for error in errors(&client(), &url).await {
        assert!(matches!(error, SidecarError::Unreachable(_)), "{error:?}");
        let sentence = error.to_string();
        assert!(sentence.contains(&url) && sentence.contains("refused"), "{sentence}");
    }
}

#[tokio::test]
async fn invalid_base_url_is_unreachable() {
    for url in ["", "10.0.0.1:7777", "ftp://10.0.0.1:7777"] {
        for error in errors(&client(), url).await {
            assert!(matches!(error, SidecarError::Unreachable(_)), "{error:?}");
            assert!(error.to_string().contains(&format!("`{url}`")), "{error}");
        }
    }
}

#[tokio::test]
async fn slow_sidecar_times_out() {
    let sidecar = FakeServer::start(Answer::Never).await;
    let given_up = timeout(Duration::from_secs(5), errors(&impatient(), &sidecar.url)).await.unwrap();
    for error in given_up {
        assert!(matches!(error, SidecarError::Unreachable(_)), "{error:?}");
        let sentence = error.to_string();
        assert!(sentence.contains(&sidecar.url) && sentence.contains("in time"), "{sentence}");
    }
    let began = monotonic();
    client().status(&sidecar.url).await.unwrap_err();
    assert!(began.elapsed() >= Duration::from_millis(1900), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn sidecar_refusal_is_quoted() {
    let sidecar = FakeServer::start(Answer::Say(500, r#"{"message": "out of\ncheese"}"#.into())).await;
    for error in errors(&client(), &sidecar.url).await {
        let SidecarError::Refused { status, message } = error else { panic!("{error:?}") };
        assert_eq!(status, 500);
        assert!(message.contains(&sidecar.url) && message.ends_with("out of cheese"), "{message}");
    }
    sidecar.now(Answer::Say(500, json!({"message": "x".repeat(10_000)}).to_string()));
    let error = client().status(&sidecar.url).await.unwrap_err();
    assert!(error.to_string().len() < 400, "{error}");
    sidecar.now(Answer::Say(502, String::new()));
    let error = client().status(&sidecar.url).await.unwrap_err();
    assert!(error.to_string().ends_with("502 Bad Gateway"), "{error}");
    sidecar.now(Answer::Say(401, json!({"message": "the token sesame does not match"}).to_string()));
    let mut access = Access::of(Origin::Sidecar);
    access.headers.insert("authorization", sensitive("Bearer sesame"));
    let error = client().with_access(access).unwrap().status(&sidecar.url).await.unwrap_err();
    assert!(error.to_string().ends_with(": the token *** does not match"), "{error}");
}

fn sensitive(value: &'static str) -> HeaderValue {
    let mut value = HeaderValue::from_static(value);
    value.set_sensitive(true);
    value
}

#[tokio::test]
async fn non_protocol_content_is_not_quoted() {
    let server = FakeServer::saying("").await;
    let secrets = [
        "s3cret",
        r#""s3cret""#,
        r#"{"key": "s3cret"}"#,
        r#"{"ready": "s3cret", "id": "a", "state": "s3cret"}"#,
    ];
    for (status, body) in [200, 500].into_iter().flat_map(|status| secrets.map(|body| (status, body))) {
        server.now(Answer::Say(status, body.to_owned()));
        for error in reading_errors(&client(), &server.url).await {
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}

#[tokio::test]
async fn only_404_means_an_unknown_task() {
    let sidecar = FakeServer::start(Answer::Say(404, String::new())).await;
    assert_eq!(client().task(&sidecar.url, "a").await, Ok(None));
    assert!(matches!(client().status(&sidecar.url).await, Err(SidecarError::Refused { status: 404, .. })));
    sidecar.now(Answer::Say(410, String::new()));
    assert!(matches!(client().task(&sidecar.url, "a").await, Err(SidecarError::Refused { status: 410, .. })));
}

#[tokio::test]
async fn non_protocol_answer_is_garbled() {
    let sidecar = FakeServer::saying("").await;
    for lie in ["", "<html>", "{", "[]", "{}", r#"{"ready": "yes"}"#, r#"{"id": "a", "state": "Done"}"#] {
        sidecar.now_says(lie);
        for error in reading_errors(&client(), &sidecar.url).await {
            assert!(matches!(error, SidecarError::Garbled(_)), "{lie}: {error:?}");
            assert!(error.to_string().contains(&sidecar.url), "{error}");
        }
    }
}

#[tokio::test]
async fn answer_for_another_task_is_garbled() {
    let sidecar = FakeServer::saying(r#"{"id": "b", "state": "Complete", "message": ""}"#).await;
    let error = client().task(&sidecar.url, "a").await.unwrap_err();
    assert!(matches!(error, SidecarError::Garbled(_)), "{error:?}");
    assert!(client().task(&sidecar.url, "b").await.unwrap().is_some());
}

#[tokio::test]
async fn answer_is_read_up_to_64_kib() {
    let padding = |bytes: usize| " ".repeat(bytes - STATUS.len());
    let sidecar = FakeServer::saying(&format!("{}{STATUS}", padding(64 * 1024))).await;
    client().status(&sidecar.url).await.unwrap();
    sidecar.now_says(&format!("{}{STATUS}", padding(64 * 1024 + 1)));
    for error in errors(&client(), &sidecar.url).await {
        assert!(matches!(error, SidecarError::Garbled(_)), "{error:?}");
        assert!(error.to_string().contains("65536 bytes"), "{error}");
    }
}

#[tokio::test]
async fn accepted_task_needs_no_response_body() {
    let sidecar = FakeServer::start(Answer::Say(202, String::new())).await;
    client().submit(&sidecar.url, &TaskRequest::mark_ready("a"), None).await.unwrap();
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let elsewhere = FakeServer::saying(STATUS).await;
    let sidecar = FakeServer::start(Answer::RedirectTo(format!("{}/v1/status", elsewhere.url))).await;
    for error in errors(&client(), &sidecar.url).await {
        assert!(matches!(error, SidecarError::Refused { status: 307, .. }), "{error:?}");
    }
    assert!(elsewhere.heard().is_empty());
}

#[tokio::test]
async fn client_can_be_mocked() {
    let mut mock = MockSidecarClient::new();
    mock.expect_submit()
        .withf(|url, request, token| {
            url == "http://node" && *request == TaskRequest::mark_ready("a") && *token == Some("t")
        })
        .times(1)
        .returning(|_, _, _| Ok(()));
    let client: Arc<dyn SidecarClient> = Arc::new(mock);
    client.submit("http://node", &TaskRequest::mark_ready("a"), Some("t")).await.unwrap();
}

#[test]
fn sidecar_client_ignores_proxy_variables() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = format!("http://{nobody}");
    // Variables belong to a process: another test runs again in one that has them.
    let test = concat!(module_path!(), "::client_and_server_understand_each_other");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test.split_once("::").unwrap().1])
        .envs([("http_proxy", &proxy), ("HTTP_PROXY", &proxy), ("ALL_PROXY", &proxy)])
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}
