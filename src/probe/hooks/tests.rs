use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;

use super::super::AnswerState;
use super::*;
use crate::clock::{Clock, SharedClock};
use crate::hooks::Host;
use windlass_kube_port::MockCluster;
use windlass_kube_port::{Key, Kind};

/// Answers with the given replies, in order, and records the requests.
#[derive(Default)]
struct FakePeers {
    replies: Mutex<VecDeque<Result<HookReply, String>>>,
    sent: Mutex<Vec<HookRequest>>,
}

#[async_trait]
impl HookClient for FakePeers {
    async fn send(&self, request: HookRequest) -> Result<HookReply, String> {
        self.sent.lock().unwrap().push(request);
        self.replies.lock().unwrap().pop_front().unwrap_or_else(|| Err("did not answer in time".to_owned()))
    }
}

struct Still;

impl Clock for Still {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp(1_900_000_000, 0).unwrap()
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as a client answers")]
fn reply(status: u16, body: &str) -> Result<HookReply, String> {
    Ok(HookReply { status, body: body.as_bytes().to_vec(), ..HookReply::default() })
}

fn owner() -> HookOwner {
    HookOwner::Node(Key::new("shop", "db-0"))
}

fn question(probe: HookProbe) -> HookQuestion {
    HookQuestion {
        task_id: "0123456789-2".to_owned(),
        attempt: 1,
        probe,
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(2),
    }
}

fn http(success: &str, failure: &str) -> HttpProbe {
    let values = Values { pod_ip: Some("10.0.0.7".to_owned()), ..Values::default() };
    HttpProbe {
        url: HookUrl::parse("http://{{podIP}}:80/drain", &[Host::parse("peer").unwrap()].into()).unwrap(),
        values,
        method: http::Method::POST,
        headers: vec![("X-A".to_owned(), HeaderText::Plain("1".to_owned()))],
        settings: OutwardSettings::default(),
        body: "{}".to_owned(),
        success: success.to_owned(),
        failure: failure.to_owned(),
    }
}

fn query(success: &str, failure: &str) -> HookProbe {
    HookProbe::Query(Box::new(QueryProbe {
        url: "http://prometheus:9090/api/v1/query".to_owned(),
        access: FileAccess::default(),
        promql: "sum(rate(errors[5m])) > 0".to_owned(),
        success: success.to_owned(),
        failure: failure.to_owned(),
    }))
}

struct ReceivedRequest {
    client: Arc<FakePeers>,
    prober: Arc<HookProber>,
}

fn asked(replies: Vec<Result<HookReply, String>>, cluster: MockCluster) -> ReceivedRequest {
    let client = Arc::new(FakePeers { replies: Mutex::new(replies.into()), ..FakePeers::default() });
    let clock: SharedClock = Arc::new(Still);
    let prober = HookProber::of_hooks(client.clone(), Arc::new(cluster), clock);
    ReceivedRequest { client, prober }
}

/// The verdict on one reply.
async fn verdict(probe: HookProbe, answered: Result<HookReply, String>) -> (Verdict, String) {
    let asked = asked(vec![answered], MockCluster::new());
    let question = question(probe);
    asked.prober.ask(&owner(), question.clone(), Duration::ZERO);
    assert!(asked.prober.answer_all().await);
    let answer = asked.prober.last(&owner(), &question).unwrap();
    (answer.verdict, answer.said)
}

#[tokio::test(start_paused = true)]
async fn http_verdict_follows_the_hook_expressions() {
    let drained = r#"{"state":"drained"}"#;
    let failed = r#"{"state":"failed"}"#;
    let judged = ("body.state == 'drained'", "body.state == 'failed'");
    let late = "x".repeat(400) + "\nbad";
    let table = [
        (("", ""), reply(204, ""), Verdict::Success, "answered 204"),
        (("", ""), reply(404, "no such\npage"), Verdict::Neither, "answered 404: no such page"),
        (("", ""), reply(302, ""), Verdict::Neither, "answered 302"),
        (("", ""), reply(503, "starting"), Verdict::Nothing, "answered 503: starting"),
        (("", ""), Err("did not answer in time".to_owned()), Verdict::Nothing, "did not answer in time"),
        (judged, reply(200, drained), Verdict::Success, "answered 200: {\"state\":\"drained\"}"),
        (judged, reply(200, failed), Verdict::Failure, "answered 200: {\"state\":\"failed\"}"),
        (judged, reply(500, failed), Verdict::Failure, "answered 500"),
        (judged, reply(503, drained), Verdict::Success, "answered 503"),
        (judged, reply(502, r#"{"state":""}"#), Verdict::Nothing, "answered 502"),
        (("", "status >= 400"), reply(500, ""), Verdict::Failure, "answered 500"),
        (("", "status == 500"), reply(503, ""), Verdict::Nothing, "answered 503"),
        (("", "status >= 400"), reply(409, ""), Verdict::Failure, "answered 409"),
        (("true", "status < 300"), reply(200, ""), Verdict::Failure, "answered 200"),
        (("status == 503", ""), reply(503, ""), Verdict::Success, "answered 503"),
        (judged, reply(200, "<html>"), Verdict::Neither, "cannot be evaluated"),
        (judged, reply(200, "{}"), Verdict::Neither, "`failure` cannot be evaluated"),
        (
            ("body.state == 'drained'", ""),
            reply(200, "{}"),
            Verdict::Neither,
            "`success` cannot be evaluated",
        ),
        (
            ("true", "body.state == 'failed'"),
            reply(200, "{}"),
            Verdict::Neither,
            "`failure` cannot be evaluated",
        ),
        // `text` is the whole body, and nothing else.
        (("text == 'ok'", ""), reply(200, "ok"), Verdict::Success, "answered 200: ok"),
        (("", "text.endsWith('bad')"), reply(200, &late), Verdict::Failure, "answered 200: xxx"),
        (("text.contains('200')", ""), reply(200, "fine"), Verdict::Neither, "answered 200: fine"),
    ];
    for ((success, failure), answered, expected, part) in table {
        let what = format!("{success} / {failure} / {answered:?}");
        let (verdict, said) = verdict(HookProbe::Http(Box::new(http(success, failure))), answered).await;
        assert_eq!(verdict, expected, "{what}: {said}");
        assert!(said.contains(part) && said.len() < 600, "{what}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn query_verdict_follows_the_hook_expressions() {
    let vector = |value: &str| {
        let result = json!([{"metric": {}, "value": [1, value]}]);
        reply(
            200,
            &json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string(),
        )
    };
    let none = json!({"status": "success", "data": {"resultType": "vector", "result": []}}).to_string();
    let table = [
        (vector("0.01"), Verdict::Success, "answered 0.01"),
        (vector("0.5"), Verdict::Failure, "answered 0.5"),
        (vector("0.1"), Verdict::Neither, "answered 0.1"),
        (
            vector("NaN"),
            Verdict::Neither,
            "answered NaN; `failure` cannot be evaluated: NaN cannot be compared",
        ),
        (reply(200, &none), Verdict::Nothing, "answered with no data"),
        (reply(503, "starting"), Verdict::Nothing, "answered 503"),
        (Err("did not answer: refused".to_owned()), Verdict::Nothing, "did not answer: refused"),
    ];
    for (answered, expected, part) in table {
        let (verdict, said) = verdict(query("scalar < 0.05", "scalar > 0.2"), answered).await;
        assert_eq!(verdict, expected, "{said}");
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_identifies_its_task_and_reads_the_secret_when_sent() {
    let mut cluster = MockCluster::new();
    let secret = json!({"data": {"token": "QmVhcmVyIGFiYwo="}});
    cluster
        .expect_get()
        .withf(|kind, namespace, name| (*kind, namespace, name) == (Kind::Secret, "shop", "drain"))
        .times(2)
        .returning(move |_, _, _| Ok(Some(secret.clone())));
    let asked = asked(vec![reply(200, "")], cluster);
    let text = |key: &str| HeaderText::Secret { name: "drain".to_owned(), key: key.to_owned() };
    let with = |key: &str| {
        let mut probe = http("", "");
        probe.headers.push(("Authorization".to_owned(), text(key)));
        question(HookProbe::Http(Box::new(probe)))
    };
    asked.prober.ask(&owner(), with("token"), Duration::ZERO);
    asked.prober.answer_all().await;
    {
        let sent = asked.client.sent.lock().unwrap();
        let request = &sent[0];
        assert_eq!(request.url.as_str(), "http://10.0.0.7/drain");
        assert_eq!((request.method.as_str(), &request.body[..]), ("POST", &b"{}"[..]));
        assert_eq!(request.timeout, Duration::from_secs(2));
        let header = |name: &str| request.headers[name].to_str().unwrap();
        assert_eq!(header("windlass-task"), "0123456789-2");
        assert_eq!(header("windlass-attempt"), "1");
        assert_eq!(header("x-a"), "1");
        assert_eq!(header("authorization"), "Bearer abc");
    }
    // A missing key is reported, and nothing is sent.
    let without = with("tok");
    asked.prober.ask(&owner(), without.clone(), Duration::ZERO);
    asked.prober.answer_all().await;
    let answer = asked.prober.last(&owner(), &without).unwrap();
    assert_eq!(answer.verdict, Verdict::Nothing);
    assert!(answer.said.contains("Secret shop/drain (http.headers) has no key tok"), "{}", answer.said);
    assert_eq!(asked.client.sent.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_request_is_sent_per_interval() {
    let asked = asked((0..9).map(|_| reply(503, "")).collect(), MockCluster::new());
    let question = question(HookProbe::Http(Box::new(http("", ""))));
    let ask = |first: u64| asked.prober.ask(&owner(), question.clone(), Duration::from_secs(first));
    // After a restart it is not due yet.
    assert_eq!(ask(3), AnswerState { last: None, is_fresh: false, again: Duration::from_secs(3) });
    assert!(!asked.prober.answer_all().await);
    tokio::time::advance(Duration::from_secs(3)).await;
    assert!(ask(3).last.is_none());
    ask(3);
    assert!(asked.prober.answer_all().await);
    assert!(!asked.prober.answer_all().await, "it is not asked again at once");
    let heard = ask(3);
    assert_eq!(heard.again, Duration::from_secs(5));
    let first = heard.last.unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(ask(3).last, Some(first.clone()));
    assert!(asked.prober.answer_all().await);
    // The clock stands still, and the two answers still differ.
    assert_ne!(ask(3).last.unwrap().at, first.at);
    assert_eq!(asked.client.sent.lock().unwrap().len(), 2);
    asked.prober.forget(&owner());
    assert_eq!(asked.prober.known(), 0);
}

#[tokio::test(start_paused = true)]
async fn answer_belongs_to_its_attempt() {
    let asked = asked(vec![reply(200, ""), reply(200, "")], MockCluster::new());
    let first = question(HookProbe::Http(Box::new(http("", ""))));
    let second = HookQuestion { attempt: 2, ..first.clone() };
    asked.prober.ask(&owner(), first.clone(), Duration::ZERO);
    asked.prober.answer_all().await;
    assert!(asked.prober.last(&owner(), &first).is_some());
    assert_eq!(asked.prober.ask(&owner(), second.clone(), Duration::ZERO).last, None);
    assert!(asked.prober.last(&owner(), &first).is_none());
    asked.prober.answer_all().await;
    assert!(asked.prober.last(&owner(), &second).is_some());
    let sent = asked.client.sent.lock().unwrap();
    assert_eq!(sent[1].headers["windlass-attempt"], "2");
}

/// A client with a bug.
struct Panics;

#[async_trait]
impl HookClient for Panics {
    async fn send(&self, _: HookRequest) -> Result<HookReply, String> {
        panic!("a bug of the client")
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_hook_request_is_reported_and_sent_again() {
    let clock: SharedClock = Arc::new(Still);
    let prober = HookProber::of_hooks(Arc::new(Panics), Arc::new(MockCluster::new()), clock);
    let question = question(HookProbe::Http(Box::new(http("", ""))));
    for _ in 0..2 {
        prober.ask(&owner(), question.clone(), Duration::ZERO);
        assert!(prober.answer_all().await);
        let answer = prober.last(&owner(), &question).unwrap();
        assert_eq!(
            (answer.verdict, answer.said.as_str()),
            (Verdict::Nothing, "the request panicked: a bug of the client")
        );
        tokio::time::advance(Duration::from_mins(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn query_has_the_headers_of_the_operator_flags() {
    let asked = asked(vec![reply(503, ""), reply(503, "")], MockCluster::new());
    let of = |headers: &[String]| {
        let url = "https://prometheus:9090";
        let access = FileAccess::new(crate::outward::Origin::Prometheus, url, None, None, headers).unwrap();
        let HookProbe::Query(probe) = query("true", "") else { unreachable!() };
        question(HookProbe::Query(Box::new(QueryProbe { access, ..*probe })))
    };
    for headers in [vec![], vec!["X-Scope-OrgID=shop".to_owned()]] {
        asked.prober.ask(&owner(), of(&headers), Duration::ZERO);
        asked.prober.answer_all().await;
    }
    let sent = asked.client.sent.lock().unwrap();
    let tenants: Vec<_> = sent.iter().map(|request| request.headers.get("x-scope-orgid")).collect();
    assert_eq!(tenants, [None, Some(&http::HeaderValue::from_static("shop"))]);
}

#[tokio::test(start_paused = true)]
async fn missing_certificate_secret_is_reported_and_nothing_is_sent() {
    let mut cluster = MockCluster::new();
    cluster.expect_get().returning(|_, _, _| Ok(None));
    let asked = asked(vec![reply(200, "")], cluster);
    let mut probe = http("", "");
    probe.settings.tls.ca_secret = "ca".to_owned();
    let question = question(HookProbe::Http(Box::new(probe)));
    asked.prober.ask(&owner(), question.clone(), Duration::ZERO);
    asked.prober.answer_all().await;
    let answer = asked.prober.last(&owner(), &question).unwrap();
    assert_eq!(answer.verdict, Verdict::Nothing);
    assert!(answer.said.contains("Secret shop/ca (http.tls.caSecret) does not exist"), "{}", answer.said);
    assert!(asked.client.sent.lock().unwrap().is_empty());
}
