//! One watch of events reports every refused pod. Its store is bounded, and the watch may fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::port::EventNote;
use crate::refusals::{EventsOf, sweep, watch};
use crate::watch::Namespaces;
use crate::{Key, Kind, View};
use windlass_clock::monotonic;
use windlass_core::observed::Meta;

fn event(uid: &str, note: &str, at: &str, version: u32) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"namespace": "shop", "name": format!("{uid}.{version}"), "resourceVersion": version.to_string()},
        "regarding": {"kind": "StatefulSet", "namespace": "shop", "name": format!("set {uid}"), "uid": uid},
        "reason": "FailedCreate", "note": note, "deprecatedLastTimestamp": at,
    })
}

fn told(seconds: i64) -> EventNote {
    EventNote { note: "no".to_owned(), at: chrono::DateTime::from_timestamp(seconds, 0).unwrap() }
}

/// An API server that lists one event and then sends events to a watch. Requests of the kind `refuses` get this code
/// instead.
fn server(refuses: &'static str, code: u16) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        log.lock().unwrap().push(uri.clone());
        let is_watch = uri.contains("watch=true");
        let is_refused = !refuses.is_empty() && is_watch == (refuses == "watch");
        let answer = if is_refused {
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": "X", "message": "no"})
                .to_string()
        } else if is_watch {
            let later = event("b", "later", "2030-01-01T00:05:00Z", 8);
            line("ADDED", &later)
        } else {
            json!({"apiVersion": "events.k8s.io/v1", "kind": "EventList", "metadata": {"resourceVersion": "7"},
                "items": [event("a", "first", "2030-01-01T00:00:00Z", 6)]})
            .to_string()
        };
        let status = if is_refused { code } else { 200 };
        let watches = log.lock().unwrap().iter().filter(|uri| uri.contains("watch=true")).count();
        async move {
            if watches > 1 && !is_refused {
                // The watch stays open without further events.
                std::future::pending::<()>().await;
            }
            Response::builder().status(status).body(Body::from(answer.into_bytes()))
        }
    });
    (Client::new(service, "shop"), asked)
}

/// What a watch reports within some time, the view, and the requests that were sent.
async fn watched(refuses: &'static str, code: u16) -> (Vec<String>, Arc<View>, Vec<String>) {
    let (client, asked) = server(refuses, code);
    let view = View::shared();
    let news = heard_in(Duration::from_secs(20), client, &view).await;
    let asked = asked.lock().unwrap().clone();
    (news, view, asked)
}

/// What a watch of refusals reports within this time.
async fn heard_in(time: Duration, client: Client, view: &Arc<View>) -> Vec<String> {
    heard_of(EventsOf::Refusals, time, client, view).await
}

/// What a watch of these events reports within this time.
async fn heard_of(of: EventsOf, time: Duration, client: Client, view: &Arc<View>) -> Vec<String> {
    let news = Mutex::new(Vec::new());
    let tell = |meta: Meta| news.lock().unwrap().push(meta.name);
    let api = Namespaces::All.api(&client, view, Kind::Event);
    let watch = watch(of, api, view.clone(), tell);
    assert!(tokio::time::timeout(time, watch).await.is_err(), "it goes on for ever");
    news.into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn rejections_are_kept_by_stateful_set_and_notified_once() {
    let (news, view, asked) = watched("", 0).await;
    assert_eq!(news, ["set a", "set b"]);
    assert_eq!(view.refusals.last("a").unwrap().note, "first");
    assert_eq!(view.refusals.last("b").unwrap().note, "later");
    assert!(view.refusals.is_settled());
    let selector = EventsOf::Refusals.selector().replace('=', "%3D").replace(',', "%2C");
    assert!(asked.iter().all(|uri| uri.contains(&selector)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn pod_warnings_of_nodes_are_kept_and_not_listed() {
    let view = View::shared();
    let node = json!({"metadata": {"namespace": "shop", "name": "db-1", "uid": "n", "resourceVersion": "1"}});
    view.observe(Kind::StatefulNode, &node);
    let (client, asked) = scripted(|ask, before| match ask {
        Ask::List | Ask::Page => no(500),
        Ask::Newest => (200, 0, list("7", "", &[])),
        Ask::Watch if before > 0 => (200, 3_600, String::new()),
        Ask::Watch => {
            let warning = |pod: &str, version| {
                let mut event = event(pod, "no volume", "2030-01-01T00:05:00Z", version);
                event["regarding"] = json!({"kind": "Pod", "namespace": "shop", "name": pod, "uid": pod});
                event["reason"] = json!("FailedMount");
                line("ADDED", &event)
            };
            (200, 0, ["db-1-0", "db-2-0", "other-0"].map(|pod| warning(pod, 8)).concat())
        }
    });
    let news = heard_of(EventsOf::Pods, Duration::from_secs(20), client, &view).await;
    assert_eq!(news, ["db-1"]);
    assert_eq!(view.refusals.last("db-1-0").unwrap().note, "FailedMount: no volume");
    assert_eq!(view.refusals.len(), 1);
    assert!(!view.refusals.is_settled(), "nobody waits for these events");
    assert_eq!(count(&asked.lock().unwrap(), Ask::List), 0);
}

#[tokio::test(start_paused = true)]
async fn unavailable_events_do_not_delay_startup() {
    for (refuses, code) in [("list", 403), ("watch", 403), ("list", 500)] {
        let (news, view, _) = watched(refuses, code).await;
        assert!(view.refusals.is_settled(), "{refuses} {code}");
        assert!(view.freshness.ages().is_empty(), "no decision rests on events: they may be silent for ever");
        let expected: &[&str] = if refuses == "list" { &[] } else { &["set a"] };
        assert_eq!(news, expected, "{refuses} {code}");
    }
}

/// A request: the list of events, a later page of it, the current resourceVersion, or a watch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ask {
    List,
    Page,
    Newest,
    Watch,
}

/// A response: this code and text after so many seconds, or at once if the code is not 200.
type Answer = (u16, u64, String);

/// The requests, each with the number of seconds after which it came.
type RequestLog = Arc<Mutex<Vec<(u64, Ask)>>>;

/// An API server whose responses depend on the kind of request and on how many of that kind came before.
fn scripted(answer: fn(Ask, usize) -> Answer) -> (Client, RequestLog) {
    let (asked, began) = (RequestLog::default(), monotonic());
    let log = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let ask = match (
            query.contains("watch=true"),
            query.contains("continue="),
            query.contains("fieldSelector"),
        ) {
            (true, _, true) => Ask::Watch,
            (false, true, true) => Ask::Page,
            (false, false, true) => Ask::List,
            (false, false, false) if query.contains("limit=1") => Ask::Newest,
            _ => panic!("{query}"),
        };
        let before = count(&log.lock().unwrap(), ask);
        log.lock().unwrap().push((began.elapsed().as_secs(), ask));
        let (code, seconds, text) = answer(ask, before);
        async move {
            if ask != Ask::Watch {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
            let later = async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                text
            };
            let body = Late(Some(Box::pin(later)));
            Ok::<_, tower::BoxError>(Response::builder().status(code).body(body).unwrap())
        }
    });
    (Client::new(service, "shop"), asked)
}

fn count(asked: &[(u64, Ask)], ask: Ask) -> usize {
    asked.iter().filter(|(_, asked)| *asked == ask).count()
}

/// A body that arrives late, as a whole.
struct Late(Option<std::pin::Pin<Box<dyn Future<Output = String> + Send>>>);

impl http_body::Body for Late {
    type Data = bytes::Bytes;
    type Error = tower::BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, tower::BoxError>>> {
        let Some(late) = self.0.as_mut() else { return std::task::Poll::Ready(None) };
        let text = std::task::ready!(late.as_mut().poll(context));
        self.0 = None;
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(text.into()))))
    }
}

fn list(version: &str, token: &str, items: &[Value]) -> String {
    json!({"apiVersion": "events.k8s.io/v1", "kind": "EventList",
        "metadata": {"resourceVersion": version, "continue": token}, "items": items})
    .to_string()
}

fn no(code: u16) -> Answer {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": "X", "message": "no"});
    (code, 0, status.to_string())
}

fn line(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

#[tokio::test(start_paused = true)]
async fn list_with_failing_second_page_does_not_block_startup() {
    let (client, asked) = scripted(|ask, _| match ask {
        Ask::List => (200, 0, list("7", "more", &[event("a", "first", "2030-01-01T00:00:00Z", 6)])),
        Ask::Page => no(500),
        Ask::Newest => (200, 0, list("9", "", &[])),
        Ask::Watch => (200, 20, line("ADDED", &event("b", "later", "2030-01-01T00:05:00Z", 10))),
    });
    let view = View::shared();
    let news = heard_in(Duration::from_secs(29), client, &view).await;
    assert!(view.refusals.is_settled());
    assert_eq!(news, ["set a"]);
    let asked = asked.lock().unwrap().clone();
    assert_eq!((count(&asked, Ask::List), count(&asked, Ask::Newest)), (3, 1), "{asked:?}");
    assert_eq!(count(&asked, Ask::Watch), 1, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn very_slow_list_delays_startup_only_briefly() {
    let (client, _) = scripted(|ask, _| match ask {
        Ask::List | Ask::Page => (200, 7, list("7", "more", &[])),
        Ask::Newest | Ask::Watch => no(500),
    });
    let view = View::shared();
    heard_in(Duration::from_secs(29), client.clone(), &view).await;
    assert!(!view.refusals.is_settled());
    heard_in(Duration::from_secs(31), client, &view).await;
    assert!(view.refusals.is_settled());
}

#[tokio::test(start_paused = true)]
async fn expired_watch_continues_from_the_current_version() {
    let (client, asked) = scripted(|ask, before| match ask {
        Ask::List | Ask::Page => (200, 0, list("7", "", &[])),
        Ask::Newest => (200, 0, list("1000", "", &[])),
        Ask::Watch if before == 400 => {
            (200, 3, line("ADDED", &event("b", "later", "2030-01-01T00:05:00Z", 10)))
        }
        // After five minutes without events the resourceVersion is gone. The server reports that in either of two ways.
        Ask::Watch if before % 30 == 14 => no(410),
        Ask::Watch if before % 30 == 29 => {
            (200, 0, line("ERROR", &serde_json::from_str(&no(410).2).unwrap()))
        }
        Ask::Watch => (200, 20, String::new()),
    });
    let view = View::shared();
    let news = heard_in(Duration::from_hours(3), client, &view).await;
    assert_eq!(news, ["set b"]);
    let asked = asked.lock().unwrap().clone();
    assert_eq!(count(&asked, Ask::List), 1);
    let (watches, newest) = (count(&asked, Ask::Watch), count(&asked, Ask::Newest));
    assert!((500..600).contains(&watches) && newest == watches / 15, "{watches} {newest}");
    for round in asked.windows(3).filter(|round| round[1].1 == Ask::Newest) {
        assert!(round[2].1 == Ask::Watch && round[2].0 == round[0].0, "no time is lost: {round:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unwatchable_events_are_requested_every_few_minutes() {
    type Script = fn(Ask, usize) -> Answer;
    let scripts: [(&str, Script, Option<usize>); 5] = [
        ("all is forbidden", |_, _| no(403), None),
        ("nothing is answered", |_, _| (200, 3_600, String::new()), Some(3)),
        ("too many requests", |_, _| no(429), Some(3)),
        (
            "each watch is over at once",
            |ask, _| (200, 0, if ask == Ask::Watch { String::new() } else { list("7", "", &[]) }),
            Some(1),
        ),
        (
            "each place is gone",
            |ask, _| if ask == Ask::Watch { no(410) } else { (200, 0, list("7", "", &[])) },
            Some(1),
        ),
    ];
    for (what, script, lists) in scripts {
        let (client, asked) = scripted(script);
        let view = View::shared();
        heard_in(Duration::from_hours(2), client, &view).await;
        assert!(view.refusals.is_settled(), "{what}");
        let asked = asked.lock().unwrap().clone();
        assert!(asked.len() < 120, "{what}: {} in two hours", asked.len());
        let late: Vec<_> =
            asked.windows(2).filter(|pair| pair[0].0 > 600 && pair[1].0 > pair[0].0 + 11).collect();
        assert!(late.iter().all(|pair| (120..260).contains(&(pair[1].0 - pair[0].0))), "{what}: {late:?}");
        if let Some(lists) = lists {
            assert_eq!(count(&asked, Ask::List), lists, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_newer_event_notes_are_notified() {
    let view = View::shared();
    assert!(view.refusals.note("a", told(100)));
    assert!(!view.refusals.note("a", told(100)), "the same");
    assert!(!view.refusals.note("a", told(99)), "older");
    assert!(view.refusals.note("a", told(101)));
    let long = EventNote { note: "é".repeat(5_000), at: told(102).at };
    assert!(view.refusals.note("a", long));
    assert!(view.refusals.last("a").unwrap().note.len() <= 2_048);
}

#[tokio::test(start_paused = true)]
async fn old_notes_and_notes_of_deleted_sets_are_removed() {
    let view = View::shared();
    let set = |uid: &str| json!({"metadata": {"namespace": "shop", "name": uid, "uid": uid, "resourceVersion": "1"}});
    view.observe(Kind::StatefulSet, &set("here"));
    view.observe(Kind::StatefulSet, &set("goes"));
    for uid in ["here", "goes", "never seen"] {
        view.refusals.note(uid, told(100));
    }
    view.deleted(Kind::StatefulSet, &Key::new("shop", "goes"), "goes");
    sweep(&view);
    assert_eq!(view.refusals.len(), 3, "its watch may be late");
    tokio::time::sleep(Duration::from_mins(2)).await;
    sweep(&view);
    assert_eq!(view.refusals.len(), 1);
    assert!(view.refusals.last("here").is_some());
    tokio::time::sleep(Duration::from_hours(1)).await;
    sweep(&view);
    assert!(view.refusals.is_empty());
    for n in 0..20_100 {
        view.refusals.note(&n.to_string(), told(100));
    }
    assert!(view.refusals.len() <= 20_000);
}
