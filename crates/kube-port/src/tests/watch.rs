//! A watch whose other side is gone is restarted within half a minute, and so is a list without a response.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use crate::watch::{Attempts, Namespaces, watch};
use crate::{Kind, View};
use windlass_clock::monotonic;

/// The requests, each with the number of seconds after which it came.
type RequestLog = Arc<Mutex<Vec<(u64, String)>>>;

/// A server that leaves the first lists without a response, and whose watches send nothing and never end.
fn black_hole(lists_unanswered: usize) -> (Client, RequestLog) {
    let (asked, began) = (RequestLog::default(), monotonic());
    let log = asked.clone();
    let server = service_fn(move |request: Request<Body>| {
        let log = log.clone();
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let is_watch = query.contains("watch=true");
            let lists = {
                let mut log = log.lock().unwrap();
                log.push((began.elapsed().as_secs(), query));
                log.iter().filter(|(_, query)| !query.contains("watch=true")).count()
            };
            if is_watch || lists > lists_unanswered {
                let list: Value = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []});
                let stream = futures::stream::once(std::future::ready(list.to_string()));
                let body: Silence = if is_watch { Silence(None) } else { Silence(Some(stream.boxed())) };
                return Ok::<_, BoxError>(Response::new(body));
            }
            std::future::pending().await
        }
    });
    (Client::new(server, "shop"), asked)
}

/// The lines of a response, or silence.
struct Silence(Option<futures::stream::BoxStream<'static, String>>);

impl http_body::Body for Silence {
    type Data = bytes::Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, BoxError>>> {
        let Some(lines) = self.0.as_mut() else { return std::task::Poll::Pending };
        lines.poll_next_unpin(context).map(|line| line.map(|line| Ok(http_body::Frame::data(line.into()))))
    }
}

/// Watches pods for this time, or until the first change.
async fn watched(client: &Client, time: Duration) -> Arc<View> {
    let view = View::shared();
    let api = Namespaces::All.api(client, &view, Kind::Pod);
    let mut changes = watch(api, None, Kind::Pod, view.clone(), |view| &view.pods);
    let _ = tokio::time::timeout(time, changes.next()).await;
    view
}

async fn watched_for(seconds: u64, lists_unanswered: usize) -> (Vec<(u64, String)>, Arc<View>) {
    let (client, asked) = black_hole(lists_unanswered);
    let view = watched(&client, Duration::from_secs(seconds)).await;
    let asked = asked.lock().unwrap().clone();
    (asked, view)
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_restarted_within_half_a_minute() {
    let (asked, _) = watched_for(200, 0).await;
    let watches: Vec<&(u64, String)> =
        asked.iter().filter(|(_, query)| query.contains("watch=true")).collect();
    assert!(watches.len() >= 200 / 30, "{watches:?}");
    for pair in watches.windows(2) {
        assert!(pair[1].0 - pair[0].0 < 29, "{watches:?}");
        assert!(pair[1].1.contains("resourceVersion=7"), "{watches:?}");
    }
    assert_eq!(asked.len() - watches.len(), 1, "it is not listed again: {asked:?}");
    // A server that is reachable ends a watch before the client gives it up.
    let seconds = watches[0].1.split('&').find_map(|part| part.strip_prefix("timeoutSeconds=")).unwrap();
    assert!(seconds.parse::<u64>().unwrap() < watches[1].0, "{watches:?}");
}

#[tokio::test(start_paused = true)]
async fn unanswered_list_is_requested_again() {
    let (asked, view) = watched_for(9, 1).await;
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(!view.pods.is_ready());
    assert!(view.freshness.ages().contains(&(Kind::Pod, Duration::from_secs(9))));
    let (asked, view) = watched_for(20, 1).await;
    assert!(asked.len() >= 3 && (10..13).contains(&asked[1].0), "{asked:?}");
    assert!(view.pods.is_ready(), "the second list was answered, and a watch begun: {asked:?}");
}

/// The times of a watch's requests in seconds, within these minutes, if all lists, or all watches, get this code.
async fn refused_for(minutes: u64, refuses: &'static str, code: u16) -> (Vec<u64>, Arc<View>) {
    let (asked, began) = (Arc::new(Mutex::new(Vec::new())), monotonic());
    let log = asked.clone();
    let server = service_fn(move |request: Request<Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let is_refused = is_watch == (refuses == "watch");
        if is_refused {
            log.lock().unwrap().push(began.elapsed().as_secs());
        }
        let answer = if is_refused {
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": "X", "message": "no"})
        } else {
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []})
        };
        async move {
            if is_refused && code == 0 {
                std::future::pending::<()>().await;
            }
            let code = if is_refused { code } else { 200 };
            Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))
        }
    });
    let view = watched(&Client::new(server, "shop"), Duration::from_mins(minutes)).await;
    let asked = asked.lock().unwrap().clone();
    (asked, view)
}

#[tokio::test(start_paused = true)]
async fn permanently_refused_requests_are_sent_less_and_less_often() {
    for refuses in ["list", "watch"] {
        // A time-out (0) lasts as long as the wait after it.
        for (code, longest) in [(403, 30), (404, 30), (429, 30), (500, 10), (0, 20)] {
            let (asked, view) = refused_for(10, refuses, code).await;
            let gaps: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(gaps.iter().all(|gap| *gap <= longest + 1), "{refuses} {code}: {gaps:?}");
            assert!(gaps[8..].iter().all(|gap| gap + 1 >= longest), "{refuses} {code}: {gaps:?}");
            assert!(view.freshness.ages()[0].1 >= Duration::from_secs(590), "{refuses} {code}");
            let was_answered = view.freshness.without_response()[0].1 <= Duration::from_secs(31);
            assert_eq!(was_answered, code != 0, "{refuses} {code}");
        }
    }
}

/// A server whose lists have two pages, whose watches end at once because their resourceVersion is too old, and that
/// fails to serve the second page from the second list on.
fn second_page_lost() -> Client {
    let whole = Arc::new(Mutex::new(false));
    let server = service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let is_second = query.contains("continue=");
        let mut whole = whole.lock().unwrap();
        let (code, answer) = if query.contains("watch=true") {
            (
                200,
                json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "no"}}),
            )
        } else if is_second && *whole {
            (500, json!({"kind": "Status", "status": "Failure", "code": 500, "reason": "X", "message": "no"}))
        } else {
            *whole |= is_second;
            let meta = json!({"resourceVersion": "7", "continue": if is_second { "" } else { "more" }});
            (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": []}))
        };
        async move { Response::builder().status(code).body(Body::from(format!("{answer}\n").into_bytes())) }
    });
    Client::new(server, "shop")
}

#[tokio::test(start_paused = true)]
async fn list_with_failing_second_page_does_not_refresh_the_cache() {
    let view = watched(&second_page_lost(), Duration::from_mins(10)).await;
    assert!(view.pods.is_ready(), "the first list was complete");
    let longest = |times: Vec<(Kind, Duration)>| times[0].1;
    assert!(longest(view.freshness.ages()) >= Duration::from_secs(590), "{:?}", view.freshness);
    assert!(
        longest(view.freshness.without_progress()) <= Duration::from_secs(31),
        "the first pages were answered"
    );
}

#[tokio::test(start_paused = true)]
async fn request_refused_at_the_end_of_an_outage_is_retried_soon() {
    const OUTAGE: Duration = Duration::from_mins(5);
    let (began, refusals) = (monotonic(), Arc::new(Mutex::new(0)));
    let log = refusals.clone();
    let server = service_fn(move |_: Request<Body>| {
        let log = log.clone();
        async move {
            if began.elapsed() < OUTAGE {
                return Err(BoxError::from("connection refused"));
            }
            // A server that has just started does not know the permissions yet.
            let mut refusals = log.lock().unwrap();
            *refusals += 1;
            let code = if *refusals <= 2 { 403 } else { 200 };
            let answer = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [],
                "status": "Failure", "code": code, "reason": "Forbidden", "message": "no"});
            Ok(Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap())
        }
    });
    let view = watched(&Client::new(server, "shop"), OUTAGE + Duration::from_secs(15)).await;
    assert!(view.pods.is_ready(), "{refusals:?} refused");
}

#[tokio::test(start_paused = true)]
async fn backoff_is_reset_after_success() {
    let mut attempts = Attempts::of("x".to_owned());
    let first = attempts.failed();
    assert!((500..1_000).contains(&first.as_millis()), "{first:?}");
    let waits: Vec<Duration> = (0..9).map(|_| attempts.failed()).collect();
    assert!(waits[..6].is_sorted() && waits[8] >= Duration::from_secs(30), "{waits:?}");
    attempts.reset_backoff();
    assert_eq!(attempts.failed(), first);
    let wait = attempts.failed();
    tokio::time::advance(wait + Duration::from_mins(1)).await;
    let wait = attempts.failed();
    assert!(wait > first * 2, "a minute is not long: {wait:?}");
    tokio::time::advance(wait + Duration::from_secs(121)).await;
    assert_eq!(attempts.failed(), first);
    assert_eq!(Attempts::of("x".to_owned()).slower(4).failed(), first * 4);
}

/// A server that lists one StatefulSet and then shows a later version that differs in nothing that is read.
fn only_the_version_moves() -> Client {
    let set = |version: &str| {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db-0", "namespace": "shop", "uid": "u",
            "resourceVersion": version}, "spec": {}, "status": {"readyReplicas": version}})
    };
    let server = service_fn(move |request: Request<Body>| async move {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let said = if is_watch {
            format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", set("6"))
        } else {
            json!({"kind": "StatefulSetList", "apiVersion": "apps/v1", "metadata": {"resourceVersion": "5"}, "items": [set("5")]})
                .to_string()
        };
        let said = futures::stream::once(std::future::ready(said));
        // The watch stays open after this event.
        let said = if is_watch { said.chain(futures::stream::pending()).boxed() } else { said.boxed() };
        Ok::<_, BoxError>(Response::new(Silence(Some(said))))
    });
    Client::new(server, "shop")
}

#[tokio::test(start_paused = true)]
async fn version_only_change_is_notified_while_a_write_is_in_doubt() {
    for in_doubt in [false, true] {
        let view = View::shared();
        let api = Namespaces::All.api(&only_the_version_moves(), &view, Kind::StatefulSet);
        let mut changes = watch(api, None, Kind::StatefulSet, view.clone(), |view| &view.stateful_sets);
        assert_eq!(changes.next().await.unwrap().resource_version, "5", "the list");
        if in_doubt {
            view.doubt(Kind::StatefulSet, crate::Key::new("shop", "db-0"), "5");
        }
        let told = tokio::time::timeout(Duration::from_secs(5), changes.next()).await;
        assert_eq!(told.is_ok(), in_doubt, "{told:?}");
        let known = view.stateful_sets.list("shop", |_| true).remove(0);
        assert_eq!(known.meta.resource_version, "6");
    }
}
