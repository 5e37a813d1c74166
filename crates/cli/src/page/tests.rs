//! The page over HTTP, without a socket, with a fake API server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body as Asked;
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt, service_fn};

use super::Source;
use super::actions::{Action, Actions, Refused, Rehearsed};
use super::guard::{Guard, Secrets};
use super::http::router;
use super::state::Page;
use super::subject::PageKind;
use crate::extension::{ledger, pod_object};
use crate::report::tests::fleet;
use windlass_clock::SystemClock;
use windlass_kube_port::watch::Namespaces;

/// A fake API server with one fleet and one StatefulSetRollout, whose watches send nothing and end at their time-out. While it is `gone`, it
/// refuses connections and its existing ones hang.
fn fake_api(gone: &Arc<AtomicBool>) -> Client {
    fake_api_with(gone, &Arc::default())
}

/// The same; while `forgotten`, every watch gets 410 Gone, and lists hang.
fn fake_api_with(gone: &Arc<AtomicBool>, forgotten: &Arc<AtomicBool>) -> Client {
    let (gone, forgotten) = (gone.clone(), forgotten.clone());
    let server = service_fn(move |request: http::Request<Body>| {
        let (gone, forgotten) = (gone.clone(), forgotten.clone());
        async move {
            if gone.load(Ordering::Relaxed) {
                return Err(BoxError::from("connection refused"));
            }
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let seconds = query.split('&').find_map(|part| part.strip_prefix("timeoutSeconds="));
            let is_watch = query.contains("watch=true");
            let body = if forgotten.load(Ordering::Relaxed) {
                if !is_watch {
                    std::future::pending::<()>().await;
                }
                let expired = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": 410, "reason": "Expired", "message": "too old resource version"}});
                futures::stream::once(std::future::ready(format!("{expired}\n").into_bytes())).boxed()
            } else if is_watch {
                let seconds = seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(60);
                let silence = async move {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    if gone.load(Ordering::Relaxed) {
                        std::future::pending::<()>().await;
                    }
                    Vec::new()
                };
                futures::stream::once(silence).boxed()
            } else {
                let items: Vec<Value> = match path.rsplit('/').next() {
                    Some("workerdeployments") => workers(),
                    Some("nodedeployments") => vec![at_rest()],
                    Some("statefulsetrollouts") => vec![ledger(&json!({}))],
                    Some("pods") if query.contains("pod-name") => pods_of_ledger(),
                    _ => Vec::new(),
                };
                let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items});
                let one = workers().pop().filter(|_| path.ends_with("/workerdeployments/orders"));
                let answer = one.unwrap_or(list).to_string();
                futures::stream::once(std::future::ready(answer.into_bytes())).boxed()
            };
            Ok(http::Response::new(Asked::from_stream(body.map(Ok::<_, BoxError>))))
        }
    });
    Client::new(server, "prod")
}

/// A WorkerDeployment in its ramp, if the kind is built in.
fn workers() -> Vec<Value> {
    #[cfg(feature = "temporal")]
    {
        let mut orders = crate::extension::ramping();
        orders["metadata"]["namespace"] = json!("prod");
        vec![orders]
    }
    #[cfg(not(feature = "temporal"))]
    Vec::new()
}

fn pods_of_ledger() -> Vec<Value> {
    let pod = |ordinal: u32, revision: &str, is_ready: bool| {
        let name = format!("ledger-{ordinal}");
        let mut pod = pod_object(&name, "ledger", revision, is_ready);
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
        pod
    };
    vec![pod(0, "5b7d9c8f6", true), pod(1, "5b7d9c8f6", true), pod(2, "7c6f5d4b8", false)]
}

/// A fleet that is up to date.
fn at_rest() -> Value {
    let mut fleet = fleet();
    let is = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T04:00:00Z"});
    fleet["status"]["rollout"] = json!(null);
    fleet["status"]["plan"] = json!(null);
    fleet["status"]["conditions"] =
        json!([is("Ready", "True", "AllNodesReady"), is("UpToDate", "True", "Applied")]);
    fleet
}

/// A read-only page of this API server.
fn page(client: Client) -> axum::Router {
    let source = Source::new(client, vec![Namespaces::Namespace("prod".into())], Arc::new(SystemClock));
    router(Page::new(Arc::new(source), None, Guard::open(Vec::new())))
}

fn request(method: &str, path: &str) -> Request<Asked> {
    Request::builder().method(method).uri(path).header("host", "localhost").body(Asked::empty()).unwrap()
}

async fn answered(page: &axum::Router, request: Request<Asked>) -> (StatusCode, String) {
    let answer = page.clone().oneshot(request).await.unwrap();
    let status = answer.status();
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Records the requested actions.
#[derive(Default)]
struct Asking(Mutex<Vec<Action>>);

#[async_trait::async_trait]
impl Actions for Asking {
    async fn rehearse(&self, _: &Action) -> Result<Rehearsed, Refused> {
        Ok(Rehearsed { message: "paused".into(), changes: true, then: Vec::new(), seal: "a seal".into() })
    }

    async fn carry_out(&self, action: &Action, _: Option<&str>) -> Result<String, Refused> {
        self.0.lock().unwrap().push(action.clone());
        Ok("paused".into())
    }
}

/// A page with buttons, its token, and its recorded actions.
struct Acting {
    page: axum::Router,
    cookie: String,
    form: String,
    done: Arc<Asking>,
}

fn acting() -> Acting {
    let source = Source::new(
        fake_api(&Arc::default()),
        vec![Namespaces::Namespace("prod".into())],
        Arc::new(SystemClock),
    );
    let secrets = Secrets::draw().unwrap();
    let (cookie, form) = (format!("windlass-7070={}", secrets.token()), secrets.form().to_owned());
    let done = Arc::new(Asking::default());
    let page = router(Page::new(Arc::new(source), Some(done.clone()), Guard::local(7070, secrets)));
    Acting { page, cookie, form, done }
}

impl Acting {
    async fn response(&self, method: &str, path: &str, body: String) -> (StatusCode, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost:7070")
            .header("origin", "http://localhost:7070")
            .header("cookie", &self.cookie)
            .header("content-type", "application/x-www-form-urlencoded");
        answered(&self.page, request.body(body.into()).unwrap()).await
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_page_or_method_gets_an_error_page() {
    let page = acting();
    let none = String::new;
    let (status, body) = page.response("HEAD", "/fleets/prod/db", none()).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, ""), "HEAD is as GET, without a body");
    for method in ["OPTIONS", "PUT", "DELETE", "TRACE", "PATCH"] {
        for path in ["/", "/fleets/prod/db/pause", "/none"] {
            let (status, body) = page.response(method, path, none()).await;
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            assert!(
                body.contains("does not support this method") && !body.contains("another page"),
                "{body}"
            );
        }
    }
    let (status, body) = page.response("POST", "/fleets/prod/db", none()).await;
    assert!(status == StatusCode::METHOD_NOT_ALLOWED && body.contains("<html"), "{status} {body}");
    let (status, body) = page.response("GET", &format!("/{}", "a".repeat(9_000)), none()).await;
    assert!(status == StatusCode::URI_TOO_LONG && body.contains("<html"), "{status} {body}");
    let (status, body) = page.response("GET", "/fleets/prod/other/pause", none()).await;
    assert!(status == StatusCode::NOT_FOUND && !body.contains("--namespace"), "{status} {body}");
}

#[tokio::test(start_paused = true)]
async fn statefulset_rollout_is_listed_and_has_its_own_page() {
    let page = acting();
    let get = async |path: &str| page.response("GET", path, String::new()).await;
    let (_, list) = get("/").await;
    let counted = if crate::extension::HAS_WORKERS {
        "1 fleet, 1 StatefulSetRollout, 1 WorkerDeployment: 0 stalled or rejected, 2 in progress"
    } else {
        "1 fleet, 1 StatefulSetRollout: 0 stalled or rejected, 1 in progress"
    };
    assert!(list.contains(counted), "{list}");
    assert!(
        list.contains("href=\"/rollouts/prod/ledger\"") && list.contains("href=\"/fleets/prod/db\""),
        "{list}"
    );

    let (status, body) = get("/rollouts/prod/ledger").await;
    assert_eq!(status, StatusCode::OK);
    for part in [
        "<h2>Pods</h2>",
        "5b7d9c8f6 → 7c6f5d4b8",
        "3 replicas, 2 ready, 1 updated",
        "<strong>ledger-2</strong>",
        "2 pods available at 5b7d9c8f6",
        "windlass abort ssr/ledger -n prod --rollback",
        "data-live=\"/live/rollouts/prod/ledger\"",
        "href=\"/rollouts/prod/ledger/pause\"",
        "href=\"/rollouts/prod/ledger/rollback\"",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    assert!(!body.contains("/promote\"") && !body.contains("nd/ledger"), "{body}");
    let (_, body) = get("/rollouts/prod/ledger/nodes").await;
    assert!(body.contains("Pods of ledger") && body.contains("ledger-0"), "{body}");

    let (status, body) = get("/rollouts/prod/ledger/abort").await;
    assert!(status == StatusCode::OK && body.contains("Pods keep their revisions"), "{status} {body}");
    assert_eq!(get("/rollouts/prod/ledger/promote").await.0, StatusCode::NOT_FOUND);
    let (status, body) = get("/rollouts/prod/db").await;
    assert!(status == StatusCode::NOT_FOUND && body.contains("no StatefulSetRollout db"), "{status} {body}");
    assert_eq!(get("/fleets/prod/ledger").await.0, StatusCode::NOT_FOUND);
    let form = format!("form={}&seal=x&reason=", page.form);
    let (status, _) = page.response("POST", "/rollouts/prod/ledger/pause", form).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(page.done.0.lock().unwrap()[0].kind, PageKind::StatefulSets);
}

#[cfg(feature = "temporal")]
#[tokio::test(start_paused = true)]
async fn worker_deployment_has_a_page_with_its_versions_plan_and_buttons() {
    let page = acting();
    let get = async |path: &str| page.response("GET", path, String::new()).await;
    let path = "/workerdeployments/prod/orders";
    let (_, list) = get("/").await;
    for part in [&format!("href=\"{path}\">orders</a>"), "Progressive", "Ramping 5%", "1.1-a → 1.2-b"] {
        assert!(list.contains(part), "{part}: {list}");
    }
    assert!(list.find("orders</a>") < list.find("db</a>"), "objects in progress are first: {list}");

    let (status, body) = get(path).await;
    assert_eq!(status, StatusCode::OK);
    for part in [
        "<span class=\"badge moving\">Updating</span>",
        "<progress max=\"100\" value=\"5\"",
        "at 5% for 3s of 60s",
        "Plan <code>0123456789</code>",
        "<h2>Versions</h2>",
        "<strong>1.2-b</strong> <span class=\"ill\">Ramping   1/2 ready</span>",
        "<strong>1.1-a</strong> <span class=\"dim\">Current   2/2 ready</span>",
        "<strong>1.0-z</strong> <span class=\"dim\">Draining   2/2 ready   3 workflows run</span>",
        "WorkerDeployment orders</strong> UpToDate=Unknown Ramping",
        "<li>in this order:</li>",
        "ramp: 50 % of the tasks",
        "Timeline of the plan",
        "data-live=\"/live/workerdeployments/prod/orders\"",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    // The buttons with an effect come first.
    let (first, others) = body.split_once("More actions").unwrap();
    let has = |html: &str, verb: &str| html.contains(&format!("href=\"{path}/{verb}\""));
    for verb in ["pause", "abort", "skip", "restart"] {
        assert!(has(first, verb), "{verb}: {first}");
    }
    for verb in ["resume", "promote", "approve", "retry"] {
        assert!(has(others, verb) && !has(first, verb), "{verb}: {body}");
    }
    assert!(!has(&body, "rollback"), "{body}");
    assert_eq!(get(&format!("{path}/rollback")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(get(&format!("{path}/nodes")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(get("/workerdeployments/prod/db").await.0, StatusCode::NOT_FOUND);

    let (status, body) = get(&format!("{path}/abort")).await;
    assert!(status == StatusCode::OK && body.contains("until you retry it or change it"), "{status} {body}");
    let form = format!("form={}&seal=x&reason=", page.form);
    let (status, _) = page.response("POST", &format!("{path}/abort"), form).await;
    assert_eq!(status, StatusCode::OK);
    let done = page.done.0.lock().unwrap()[0].clone();
    assert_eq!((done.kind.short(), done.button.word(), done.name.as_str()), ("wwd", "abort", "orders"));
}

#[cfg(feature = "temporal")]
#[tokio::test(start_paused = true)]
async fn read_only_and_live_pages_show_worker_deployments() {
    let page = page(fake_api(&Arc::default()));
    let (_, body) = answered(&page, request("GET", "/workerdeployments/prod/orders")).await;
    assert!(body.contains("windlass abort wwd/orders -n prod") && !body.contains("class=\"button"), "{body}");
    let live = page.clone().oneshot(request("GET", "/live/workerdeployments/prod/orders")).await.unwrap();
    let mut updates = live.into_body().into_data_stream();
    let mut sent = String::new();
    while let Ok(Some(part)) = tokio::time::timeout(Duration::from_secs(3), updates.next()).await {
        sent += &String::from_utf8_lossy(&part.unwrap());
        if sent.contains("\"id\":\"story\"") {
            break;
        }
    }
    for id in ["said", "head", "do", "nodes", "why", "next", "chart"] {
        assert!(sent.contains(&format!("\"id\":\"{id}\"")), "{id}: {sent}");
    }
    assert!(sent.contains("1.2-b") && !sent.contains("event: reload"), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn oversized_form_is_refused_without_effect() {
    let page = acting();
    let form = |reason: &str| format!("form={}&seal=x&reason={reason}", page.form);
    let pause = "/fleets/prod/db/pause";
    let (status, body) = page.response("POST", pause, form(&"x".repeat(20_000))).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(body.contains("larger than 16 KiB") && body.contains(&format!("href=\"{pause}\"")), "{body}");
    let (status, body) = page.response("POST", pause, form(&"x".repeat(201))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body.contains("at most 200 characters") && body.contains("<form"), "{body}");
    let (status, _) = page.response("POST", "/fleets/prod/other/pause", form("x")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(page.done.0.lock().unwrap().is_empty(), "none of these changed anything");
    let (status, _) = page.response("POST", pause, form(&"%C3%A4".repeat(200))).await;
    assert_eq!((status, page.done.0.lock().unwrap().len()), (StatusCode::OK, 1));
}

#[tokio::test(start_paused = true)]
async fn page_reports_lost_and_restored_api_server_connection() {
    const SAID: &str = "No response from the API server since";
    const PAGES: [&str; 4] = ["/", "/fleets/prod/db", "/fleets/prod/db/nodes", "/rollouts/prod/ledger"];
    let (gone, forgotten) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let page = page(fake_api_with(&gone, &forgotten));
    let live = page.clone().oneshot(request("GET", "/live")).await.unwrap();
    let mut updates = live.into_body().into_data_stream();
    let seconds = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
    for _ in 0..12 {
        for path in PAGES {
            let (status, body) = answered(&page, request("GET", path)).await;
            assert!(status == StatusCode::OK && !body.contains(SAID), "{path}: {body}");
        }
        assert_eq!(answered(&page, request("GET", "/healthz")).await, (StatusCode::OK, "ok\n".to_owned()));
        seconds(10).await;
    }
    while let Ok(Some(part)) = tokio::time::timeout(Duration::from_millis(1), updates.next()).await {
        assert!(!String::from_utf8_lossy(&part.unwrap()).contains(SAID));
    }

    gone.store(true, Ordering::Relaxed);
    seconds(30).await;
    for path in PAGES {
        let (status, body) = answered(&page, request("GET", path)).await;
        assert!(status == StatusCode::OK && body.contains(SAID), "{path}: {body}");
    }
    let (status, body) = answered(&page, request("GET", "/healthz")).await;
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && body.starts_with("no response"), "{body}");
    let mut live = String::new();
    while let Ok(Some(part)) = tokio::time::timeout(Duration::from_millis(1), updates.next()).await {
        live += &String::from_utf8_lossy(&part.unwrap());
    }
    assert!(live.contains(SAID) && live.contains("at the last response"), "{live}");

    // The server is back with a compacted history: the objects count as outdated until all of them are listed again.
    gone.store(false, Ordering::Relaxed);
    forgotten.store(true, Ordering::Relaxed);
    for _ in 0..30 {
        seconds(2).await;
        for path in PAGES {
            let (status, body) = answered(&page, request("GET", path)).await;
            assert!(status == StatusCode::OK && body.contains(SAID), "{path}: {body}");
        }
    }

    forgotten.store(false, Ordering::Relaxed);
    seconds(30).await;
    for path in PAGES {
        let (_, body) = answered(&page, request("GET", path)).await;
        assert!(!body.contains(SAID), "{path}: {body}");
    }
    assert_eq!(answered(&page, request("GET", "/healthz")).await.0, StatusCode::OK);
    let mut live = String::new();
    while let Ok(Some(part)) = tokio::time::timeout(Duration::from_millis(1), updates.next()).await {
        live += &String::from_utf8_lossy(&part.unwrap());
    }
    assert!(live.contains(r#"{"html":"","id":"silence"}"#), "{live}");
}
