//! One watch of events tells of every pod that is refused; what it keeps is bounded, and it may fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::super::port::Told;
use super::super::refusals::{SELECTOR, watch};
use super::super::watch::Scope;
use super::super::{Key, Kind, View};

fn event(uid: &str, note: &str, at: &str, version: u32) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"namespace": "shop", "name": format!("{uid}.{version}"), "resourceVersion": version.to_string()},
        "regarding": {"kind": "StatefulSet", "namespace": "shop", "name": format!("set {uid}"), "uid": uid},
        "reason": "FailedCreate", "note": note, "deprecatedLastTimestamp": at,
    })
}

fn told(seconds: i64) -> Told {
    Told { note: "no".to_owned(), at: chrono::DateTime::from_timestamp(seconds, 0).unwrap() }
}

/// An API server that lists one event, then watches what comes; requests that begin so get this code instead.
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
            format!("{}\n", json!({"type": "ADDED", "object": later}))
        } else {
            json!({"apiVersion": "events.k8s.io/v1", "kind": "EventList", "metadata": {"resourceVersion": "7"},
                "items": [event("a", "first", "2030-01-01T00:00:00Z", 6)]})
            .to_string()
        };
        let status = if is_refused { code } else { 200 };
        let watches = log.lock().unwrap().iter().filter(|uri| uri.contains("watch=true")).count();
        async move {
            if watches > 1 && !is_refused {
                // Nothing more comes.
                std::future::pending::<()>().await;
            }
            Response::builder().status(status).body(Body::from(answer.into_bytes()))
        }
    });
    (Client::new(service, "shop"), asked)
}

/// What a watch tells of in a while, and the view that it kept.
async fn watched(refuses: &'static str, code: u16) -> (Vec<String>, Arc<View>, Vec<String>) {
    let (client, asked) = server(refuses, code);
    let view = View::shared();
    let stream = watch(Scope::All.api(&client, &view, Kind::Event), view.clone());
    let stop = tokio::time::sleep(Duration::from_secs(20));
    let news: Vec<String> = stream.map(|meta| meta.name).take_until(stop).collect().await;
    let asked = asked.lock().unwrap().clone();
    (news, view, asked)
}

#[tokio::test(start_paused = true)]
async fn what_is_listed_and_what_comes_is_kept_by_statefulset_and_told_once() {
    let (news, view, asked) = watched("", 0).await;
    assert_eq!(news, ["set a", "set b"]);
    assert_eq!(view.refusals.last("a").unwrap().note, "first");
    assert_eq!(view.refusals.last("b").unwrap().note, "later");
    assert!(view.refusals.is_settled());
    let selector = SELECTOR.replace('=', "%3D").replace(',', "%2C");
    assert!(asked.iter().all(|uri| uri.contains(&selector)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_events_that_may_not_be_watched_or_cannot_be_had() {
    for (refuses, code) in [("list", 403), ("watch", 403), ("list", 500)] {
        let (news, view, _) = watched(refuses, code).await;
        assert!(view.refusals.is_settled(), "{refuses} {code}");
        assert!(view.freshness.ages().is_empty(), "no decision rests on events: they may be silent for ever");
        let expected: &[&str] = if refuses == "list" { &[] } else { &["set a"] };
        assert_eq!(news, expected, "{refuses} {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_is_newer_is_news() {
    let view = View::shared();
    assert!(view.refusals.note("a", told(100)));
    assert!(!view.refusals.note("a", told(100)), "the same");
    assert!(!view.refusals.note("a", told(99)), "older");
    assert!(view.refusals.note("a", told(101)));
    let long = Told { note: "é".repeat(5_000), at: told(102).at };
    assert!(view.refusals.note("a", long));
    assert!(view.refusals.last("a").unwrap().note.len() <= 2_048);
}

#[tokio::test(start_paused = true)]
async fn what_is_old_or_of_a_statefulset_that_is_gone_is_forgotten() {
    let view = View::shared();
    let set = |uid: &str| json!({"metadata": {"namespace": "shop", "name": uid, "uid": uid, "resourceVersion": "1"}});
    view.observe(Kind::StatefulSet, &set("here"));
    view.observe(Kind::StatefulSet, &set("goes"));
    for uid in ["here", "goes", "never seen"] {
        view.refusals.note(uid, told(100));
    }
    view.deleted(Kind::StatefulSet, &Key::new("shop", "goes"), "goes");
    view.refusals.sweep(&view);
    assert_eq!(view.refusals.len(), 3, "its watch may be late");
    tokio::time::sleep(Duration::from_mins(2)).await;
    view.refusals.sweep(&view);
    assert_eq!(view.refusals.len(), 1);
    assert!(view.refusals.last("here").is_some());
    tokio::time::sleep(Duration::from_hours(1)).await;
    view.refusals.sweep(&view);
    assert!(view.refusals.is_empty());
    for n in 0..20_100 {
        view.refusals.note(&n.to_string(), told(100));
    }
    assert!(view.refusals.len() <= 20_000);
}
