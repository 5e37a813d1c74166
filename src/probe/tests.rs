//! The prober with fake sidecars, under paused time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use super::sidecar::SidecarKey;
use super::{Halt, Peer, Question, RequestKind, SIDECAR_VALIDITY, SidecarProber, SidecarRequest};
use crate::clock::monotonic;
use crate::sidecar::{SidecarClient, SidecarError, Status, TaskAnswer, TaskRequest};
use windlass_kube_port::Key;
use windlass_kube_port::MockCluster;

/// The behavior of a test's sidecars, by URL.
#[derive(Default)]
struct FakeSidecars {
    /// The response times; without an entry at once, `None` never.
    takes: Mutex<BTreeMap<String, Option<Duration>>>,
    /// The times at which each was asked, in seconds from the start.
    asked: Mutex<BTreeMap<String, Vec<f64>>>,
    /// The tasks that each was given.
    tasks: Mutex<Vec<(String, String)>>,
    /// True if they refuse tasks, as they do without their token.
    refuses: Mutex<bool>,
    /// The times at which a task was refused.
    refused: Mutex<Vec<f64>>,
    at_once: Mutex<(usize, usize)>,
    began: Mutex<Option<Instant>>,
}

impl FakeSidecars {
    fn takes(&self, url: &str, time: Option<Duration>) {
        self.takes.lock().unwrap().insert(url.to_owned(), time);
    }

    fn asked(&self, url: &str) -> Vec<f64> {
        self.asked.lock().unwrap().get(url).cloned().unwrap_or_default()
    }

    fn now(&self) -> f64 {
        let began = *self.began.lock().unwrap().get_or_insert_with(monotonic);
        monotonic().duration_since(began).as_secs_f64()
    }

    async fn pause(&self, url: &str) -> Result<(), SidecarError> {
        let at = self.now();
        self.asked.lock().unwrap().entry(url.to_owned()).or_default().push(at);
        let takes = self.takes.lock().unwrap().get(url).copied();
        {
            let mut at_once = self.at_once.lock().unwrap();
            at_once.0 += 1;
            at_once.1 = at_once.1.max(at_once.0);
        }
        let answers = match takes {
            None => true,
            Some(Some(time)) => {
                sleep(time).await;
                true
            }
            Some(None) => {
                sleep(Duration::from_secs(2)).await;
                false
            }
        };
        self.at_once.lock().unwrap().0 -= 1;
        if answers { Ok(()) } else { Err(SidecarError::Unreachable(format!("{url} did not answer"))) }
    }
}

#[async_trait]
impl SidecarClient for FakeSidecars {
    async fn status(&self, url: &str) -> Result<Status, SidecarError> {
        self.pause(url).await?;
        let ready = self.tasks.lock().unwrap().iter().any(|(of, _)| of == url);
        Ok(Status { ready, caught_up: true, height: Some(7), halted: false, role: None })
    }

    async fn submit<'a>(
        &self,
        url: &str,
        request: &TaskRequest,
        _token: Option<&'a str>,
    ) -> Result<(), SidecarError> {
        if *self.refuses.lock().unwrap() {
            let at = self.now();
            self.refused.lock().unwrap().push(at);
            return Err(SidecarError::Refused { status: 401, message: format!("{url} wants its token") });
        }
        let mut tasks = self.tasks.lock().unwrap();
        let task = (url.to_owned(), request.id.clone());
        if !tasks.contains(&task) {
            tasks.push(task);
        }
        Ok(())
    }

    async fn task(&self, _: &str, _: &str) -> Result<Option<TaskAnswer>, SidecarError> {
        Ok(None)
    }
}

fn key(name: &str) -> Key {
    Key::new("shop", name)
}

fn question(url: &str, request: SidecarRequest) -> Question {
    let peer = Peer { pod_uid: "pod".to_owned(), url: url.to_owned(), ..Peer::default() };
    Question { peer, request }
}

fn mark(url: &str) -> Question {
    question(url, SidecarRequest::MarkReady { task_id: "plan-4".to_owned() })
}

fn watch(url: &str) -> Question {
    question(url, SidecarRequest::Watch { halt: None })
}

fn prober() -> (Arc<FakeSidecars>, Arc<SidecarProber>) {
    let sidecars = Arc::new(FakeSidecars::default());
    let prober = SidecarProber::of_sidecars(sidecars.clone(), Arc::new(MockCluster::new()));
    (sidecars, prober)
}

#[tokio::test(start_paused = true)]
async fn probe_is_asynchronous_and_answer_is_fresh_for_five_seconds() {
    let (sidecars, prober) = prober();
    let heard = prober.ask_sidecar(&key("a"), mark("http://a"));
    assert_eq!((heard.last, heard.is_fresh), (None, false));
    assert!(sidecars.asked("http://a").is_empty(), "who asks does not wait");
    prober.answer_all().await;
    let heard = prober.ask_sidecar(&key("a"), mark("http://a"));
    assert!(heard.last.unwrap().unwrap().ready && heard.is_fresh);
    assert_eq!((heard.again, sidecars.asked("http://a").len()), (SIDECAR_VALIDITY, 2));
    sleep(SIDECAR_VALIDITY).await;
    let heard = prober.ask_sidecar(&key("a"), mark("http://a"));
    assert!(heard.last.unwrap().unwrap().ready && !heard.is_fresh, "it may have been restarted");
    prober.answer_all().await;
    assert!(prober.ask_sidecar(&key("a"), mark("http://a")).is_fresh);
    assert_eq!(sidecars.tasks.lock().unwrap().len(), 1, "what is ready is not told again");
}

#[tokio::test(start_paused = true)]
async fn answer_belongs_to_its_pod_address_and_task() {
    let other_pod = |mut question: Question| {
        question.peer.pod_uid = "another".to_owned();
        question
    };
    let restarted = |mut question: Question| {
        question.peer.restarts = 1;
        question
    };
    let others = [
        other_pod(mark("http://a")),
        restarted(mark("http://a")),
        mark("http://b"),
        question("http://a", SidecarRequest::MarkReady { task_id: "plan-9".to_owned() }),
    ];
    for other in others {
        let (_, prober) = prober();
        prober.ask_sidecar(&key("a"), mark("http://a"));
        prober.answer_all().await;
        let heard = prober.ask_sidecar(&key("a"), other.clone());
        assert_eq!((heard.last, heard.is_fresh), (None, false), "{other:?}");
        prober.answer_all().await;
        assert!(prober.ask_sidecar(&key("a"), other).is_fresh, "it is asked at once");
    }
    let (_, prober) = prober();
    let halt = |height| {
        let halt = Some(Halt { task_id: "halt".to_owned(), height });
        question("http://a", SidecarRequest::Watch { halt })
    };
    prober.ask_sidecar(&key("a"), halt(7));
    prober.answer_all().await;
    assert_eq!(prober.ask_sidecar(&key("a"), halt(8)).last, None);
    assert_eq!(prober.ask_sidecar(&key("a"), watch("http://a")).last, None);
}

#[tokio::test(start_paused = true)]
async fn answer_to_an_outdated_request_is_dropped() {
    let (sidecars, prober) = prober();
    sidecars.takes("http://a", Some(Duration::from_secs(1)));
    let answered = run(&prober);
    prober.ask_sidecar(&key("a"), watch("http://a"));
    sleep(Duration::from_millis(300)).await;
    let mut next = watch("http://a");
    next.peer.pod_uid = "another".to_owned();
    assert_eq!(prober.ask_sidecar(&key("a"), next.clone()).last, None);
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(*answered.lock().unwrap(), 0);
    assert_eq!(prober.ask_sidecar(&key("a"), next.clone()).last, None);
    sleep(Duration::from_secs(2)).await;
    assert!(prober.ask_sidecar(&key("a"), next).is_fresh);
    assert_eq!(*answered.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn unresponsive_sidecar_is_probed_with_backoff_until_it_answers() {
    let (sidecars, prober) = prober();
    sidecars.takes("http://a", None);
    let hour = async {
        for _ in 0..3600 * 4 {
            prober.ask_sidecar(&key("a"), watch("http://a"));
            prober.answer_all().await;
            sleep(Duration::from_millis(250)).await;
        }
    };
    hour.await;
    let asked = sidecars.asked("http://a");
    // After missing the prompt lane it is asked again with more time; then the backoff doubles.
    assert!(asked[2] - asked[1] < 4.0 && asked[3] - asked[2] < 5.0, "{:?}", &asked[..6]);
    let waits: Vec<f64> = asked[20..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.iter().all(|wait| (16.0..=36.0).contains(wait)), "{waits:?}");
    let heard = prober.ask_sidecar(&key("a"), watch("http://a"));
    assert_eq!(heard.last, Some(Err("http://a did not answer".to_owned())));
    sidecars.takes("http://a", Some(Duration::ZERO));
    sleep(Duration::from_secs(32)).await;
    prober.ask_sidecar(&key("a"), watch("http://a"));
    prober.answer_all().await;
    assert!(prober.ask_sidecar(&key("a"), watch("http://a")).last.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn failing_request_backs_off_while_another_succeeds() {
    let (sidecars, prober) = prober();
    *sidecars.refuses.lock().unwrap() = true;
    for _ in 0..600 * 4 {
        prober.ask_sidecar(&key("a"), mark("http://a"));
        prober.ask_sidecar(&key("a"), watch("http://a"));
        prober.answer_all().await;
        sleep(Duration::from_millis(250)).await;
    }
    let refused = sidecars.refused.lock().unwrap().clone();
    let waits: Vec<f64> = refused.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.len() > 15 && waits[0] < 1.5 && waits[3] > 3.5, "{waits:?}");
    assert!(waits[5..].iter().all(|wait| (16.0..=36.0).contains(wait)), "{waits:?}");
    // Before it is told to mark the node, it is asked whether it has. All other requests are to watch it.
    let asked = sidecars.asked("http://a");
    let watched = asked.len() - refused.len();
    assert!((100..=121).contains(&watched), "{watched} in ten minutes");
    assert!(asked.windows(2).all(|pair| pair[1] - pair[0] < 5.5), "{asked:?}");
    assert!(prober.ask_sidecar(&key("a"), watch("http://a")).last.unwrap().is_ok());
    let heard = prober.ask_sidecar(&key("a"), mark("http://a"));
    assert_eq!(heard.last, Some(Err("http://a wants its token".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn other_requests_do_not_raise_the_rate_to_a_silent_sidecar() {
    let (sidecars, prober) = prober();
    sidecars.takes("http://a", None);
    let task = |n: usize| question("http://a", SidecarRequest::MarkReady { task_id: format!("plan-{n}") });
    for n in 0..600 * 4 {
        // Something else is first asked of it after a minute, and something new with each request from then on.
        if n > 60 * 4 {
            prober.ask_sidecar(&key("a"), task(sidecars.asked("http://a").len()));
        }
        prober.ask_sidecar(&key("a"), watch("http://a"));
        prober.answer_all().await;
        sleep(Duration::from_millis(250)).await;
    }
    let asked = sidecars.asked("http://a");
    let later = asked.iter().filter(|at| **at > 60.0).count();
    // Two questions, each of them every 16 s at most.
    let seconds = (sidecars.now() - 60.0) as usize;
    assert!((seconds / 20 - 2..=seconds / 8 + 2).contains(&later), "{later} in {seconds} s: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn failing_request_does_not_delay_others_to_the_same_sidecar() {
    let (sidecars, prober) = prober();
    *sidecars.refuses.lock().unwrap() = true;
    run(&prober);
    let ask = || {
        prober.ask_sidecar(&key("a"), mark("http://a"));
        prober.ask_sidecar(&key("a"), watch("http://a"))
    };
    ask();
    sleep(SIDECAR_VALIDITY).await;
    ask();
    sleep(Duration::from_millis(1)).await;
    assert!(ask().is_fresh);
    assert_eq!(sidecars.refused.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn slow_sidecar_is_probed_again_with_a_longer_timeout() {
    let (sidecars, prober) = prober();
    sidecars.takes("http://a", Some(Duration::from_millis(900)));
    run(&prober);
    let ask = || prober.ask_sidecar(&key("a"), watch("http://a"));
    assert_eq!(ask().last, None);
    sleep(Duration::from_millis(250 + 899)).await;
    assert_eq!(ask().last, None);
    sleep(Duration::from_millis(2)).await;
    assert!(ask().is_fresh);
    // It is slow, and has no moment in the prompt lane any more.
    sleep(SIDECAR_VALIDITY).await;
    assert!(!ask().is_fresh);
    sleep(Duration::from_millis(901)).await;
    assert!(ask().is_fresh);
    assert_eq!(sidecars.asked("http://a").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn repeated_requests_are_sent_once() {
    let (sidecars, prober) = prober();
    sidecars.takes("http://a", Some(Duration::from_millis(100)));
    run(&prober);
    for _ in 0..100 {
        prober.ask_sidecar(&key("a"), watch("http://a"));
        prober.ask_sidecar(&key("a"), mark("http://a"));
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(sidecars.asked("http://a").len(), 1 + 2, "watched once, and before and after it was marked");
}

/// Runs the prober. Returns the number of answers so far.
fn run(prober: &Arc<SidecarProber>) -> Arc<Mutex<usize>> {
    let answers = Arc::new(Mutex::new(0));
    let (prober, counted) = (prober.clone(), answers.clone());
    tokio::spawn(async move { prober.run(|_| *counted.lock().unwrap() += 1).await });
    answers
}

#[tokio::test(start_paused = true)]
async fn state_of_deleted_or_settled_nodes_is_forgotten() {
    let (_, prober) = prober();
    for name in ["a", "b"] {
        prober.ask_sidecar(&key(name), watch("http://a"));
        prober.ask_sidecar(&key(name), mark("http://a"));
    }
    prober.answer_all().await;
    assert_eq!(prober.known(), 4);
    prober.forget_node(&key("a"));
    prober.settle(&key("b"), RequestKind::MarkReady);
    assert_eq!(prober.known(), 1);
    prober.settle(&key("b"), RequestKind::Watch);
    assert_eq!(prober.known(), 0);
    // A question that arrives while it is being asked.
    prober.ask_sidecar(&key("a"), watch("http://a"));
    prober.settle(&key("a"), RequestKind::Watch);
    prober.answer_all().await;
    assert_eq!(prober.known(), 0);
    assert_eq!(prober.ask_sidecar(&key("a"), watch("http://a")).last, None);
}

/// A client with a bug.
struct Panics;

#[async_trait]
impl SidecarClient for Panics {
    async fn status(&self, _: &str) -> Result<Status, SidecarError> {
        panic!("a bug of the client")
    }

    async fn submit<'a>(&self, _: &str, _: &TaskRequest, _: Option<&'a str>) -> Result<(), SidecarError> {
        Ok(())
    }

    async fn task(&self, _: &str, _: &str) -> Result<Option<TaskAnswer>, SidecarError> {
        Ok(None)
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_sidecar_request_is_reported_and_sent_again() {
    let prober = SidecarProber::of_sidecars(Arc::new(Panics), Arc::new(MockCluster::new()));
    for _ in 0..2 {
        prober.ask_sidecar(&key("a"), watch("http://a"));
        assert!(prober.answer_all().await);
        let said = prober.ask_sidecar(&key("a"), watch("http://a")).last.unwrap().unwrap_err();
        assert_eq!(said, "the request panicked: a bug of the client");
        sleep(Duration::from_mins(1)).await;
    }
}

/// Peers whose name begins with `cut` never answer. Peers whose name begins with `slow` take half a second.
#[derive(Default)]
struct Dropped {
    at_once: Mutex<(usize, usize)>,
}

#[async_trait]
impl SidecarClient for Dropped {
    async fn status(&self, url: &str) -> Result<Status, SidecarError> {
        if !url.starts_with("cut") {
            sleep(Duration::from_millis(if url.starts_with("slow") { 500 } else { 2 })).await;
            return Ok(Status { ready: true, ..Status::default() });
        }
        {
            let mut at_once = self.at_once.lock().unwrap();
            at_once.0 += 1;
            at_once.1 = at_once.1.max(at_once.0);
        }
        let _end = OneLess(&self.at_once);
        sleep(Duration::from_secs(2)).await;
        Err(SidecarError::Unreachable("it did not answer".to_owned()))
    }

    async fn submit<'a>(&self, _: &str, _: &TaskRequest, _: Option<&'a str>) -> Result<(), SidecarError> {
        Ok(())
    }

    async fn task(&self, _: &str, _: &str) -> Result<Option<TaskAnswer>, SidecarError> {
        Ok(None)
    }
}

/// Decrements the counter when it is dropped: a request may be dropped in flight.
struct OneLess<'a>(&'a Mutex<(usize, usize)>);

impl Drop for OneLess<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().0 -= 1;
    }
}

fn ask_to_watch(prober: &SidecarProber, name: &str) -> super::AnswerState<super::SidecarAnswer> {
    let peer = Peer { pod_uid: "pod".to_owned(), url: name.to_owned(), ..Peer::default() };
    prober.ask_sidecar(
        &Key::new("shop", name),
        Question { peer, request: SidecarRequest::Watch { halt: None } },
    )
}

/// How long it takes until all of these have answered.
async fn heard(prober: &SidecarProber, names: &[String]) -> Duration {
    let began: Instant = monotonic();
    while names.iter().filter(|name| ask_to_watch(prober, name).last.is_none()).count() > 0 {
        sleep(Duration::from_millis(10)).await;
    }
    monotonic().duration_since(began)
}

#[tokio::test(start_paused = true)]
async fn thousand_unresponsive_sidecars_do_not_delay_the_others() {
    let client = Arc::new(Dropped::default());
    let prober = SidecarProber::of_sidecars(client.clone(), Arc::new(MockCluster::new()));
    let times: Arc<Mutex<BTreeMap<Key, usize>>> = Arc::default();
    let (running, counted) = (prober.clone(), times.clone());
    let count = move |key: &SidecarKey| *counted.lock().unwrap().entry(key.node.clone()).or_default() += 1;
    tokio::spawn(async move { running.run(count).await });
    let cut: Vec<String> = (0..1000).map(|n| format!("cut-{n}")).collect();
    let well = |round: usize| (0..10).map(|n| format!("well-{round}-{n}")).collect::<Vec<_>>();
    for name in &cut {
        ask_to_watch(&prober, name);
    }
    // All peers are new at the same moment, which is the worst case.
    let first = heard(&prober, &well(0)).await;
    let again = prober.clone();
    let asking = tokio::spawn(async move {
        loop {
            for name in &cut {
                ask_to_watch(&again, name);
            }
            sleep(Duration::from_millis(250)).await;
        }
    });
    let mut later = Vec::new();
    for round in 1..=60 {
        sleep(Duration::from_secs(5)).await;
        later.push(heard(&prober, &well(round)).await);
    }
    // A slow peer that has answered before waits for one of them at most.
    ask_to_watch(&prober, "slow");
    heard(&prober, &["slow".to_owned()]).await;
    for _ in 0..10 {
        sleep(super::SIDECAR_VALIDITY).await;
        let began = monotonic();
        while !ask_to_watch(&prober, "slow").is_fresh {
            sleep(Duration::from_millis(10)).await;
        }
        let took = monotonic().duration_since(began);
        assert!(took <= Duration::from_millis(2_000 + 600), "{took:?}");
    }
    asking.abort();
    println!("heard after {first:?}, and later after {:?} at most", later.iter().max());
    assert!(first <= Duration::from_secs(5), "{first:?}");
    assert!(later[1..].iter().all(|time| *time <= Duration::from_millis(20)), "{later:?}");
    let most = client.at_once.lock().unwrap().1;
    assert!((64..=128).contains(&most), "{most} at the same time");
    let times = times.lock().unwrap();
    // In five minutes each is reported for its first failures, then two or three times a minute.
    let most = times.iter().filter(|(key, _)| key.name.starts_with("cut")).map(|(_, count)| *count).max();
    assert!((5..=25).contains(&most.unwrap()), "{most:?}");
}

/// A real sidecar client, a real server with TLS, and Secrets.
mod over_tls {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};
    use windlass_harness::tls::{Authority, TlsOptions, TlsServer};

    use super::*;
    use crate::outward::{Origin, OutwardSettings};
    use crate::sidecar::HttpSidecar;

    fn secret(pairs: &[(&str, &str)]) -> Value {
        let data: Value =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(STANDARD.encode(value)))).collect();
        json!({"data": data})
    }

    #[tokio::test]
    async fn sidecar_is_asked_with_certificates_and_credentials_from_secrets() {
        let (authority, clients) = (Authority::new(), Authority::new());
        let options = TlsOptions { clients: Some(&clients), ..TlsOptions::default() };
        let server = TlsServer::start(&authority.server(&["db.shop"]), options, |received| {
            match received.headers.get("authorization").map(String::as_str) {
                Some("Bearer sesame") => (200, r#"{"ready": true, "caughtUp": true}"#.to_owned()),
                _ => (401, String::new()),
            }
        })
        .await;
        let (client, ca) = (clients.client(), authority.pem());
        let mut cluster = MockCluster::new();
        cluster.expect_get().returning(move |_, _, name| {
            Ok(match name {
                "ca" => Some(secret(&[("ca.crt", &ca)])),
                "cert" => Some(secret(&[("tls.crt", &client.certificate), ("tls.key", &client.key)])),
                "token" => Some(secret(&[("token", "sesame")])),
                _ => None,
            })
        });
        let client = Arc::new(HttpSidecar::new(Duration::from_secs(20)));
        let prober = SidecarProber::of_sidecars(client, Arc::new(cluster));
        let of = |tls: Value, auth: Value| {
            let (tls, auth) = (serde_json::from_value(tls).unwrap(), serde_json::from_value(auth).unwrap());
            let settings = OutwardSettings { origin: Origin::Sidecar, tls, auth };
            let peer = Peer { url: server.url(), settings, ..Peer::default() };
            Question { peer, request: SidecarRequest::Watch { halt: None } }
        };
        let answer = async |name: &str, question: Question| {
            let ask = || prober.ask_sidecar(&key(name), question.clone()).last;
            ask();
            prober.answer_all().await;
            ask().unwrap()
        };
        let (tls, auth) = (
            json!({"caSecret": "ca", "clientCertSecret": "cert", "serverName": "db.shop"}),
            json!({"bearerSecret": "token"}),
        );
        assert!(answer("a", of(tls.clone(), auth.clone())).await.unwrap().ready);
        let said = answer("b", of(tls.clone(), json!({}))).await.unwrap_err();
        assert!(said.contains("answered 401"), "{said}");
        let said = answer("c", of(json!({}), auth)).await.unwrap_err();
        let part = "no authority that this system trusts has signed it; set sidecar.tls.caSecret";
        assert!(said.contains(part) && said.contains(&server.url()), "{said}");
        let said = answer("d", of(tls, json!({"bearerSecret": "none"}))).await.unwrap_err();
        let part = "cannot be sent: Secret shop/none (sidecar.auth.bearerSecret) does not exist";
        assert!(said.starts_with("the request to the sidecar at https://") && said.contains(part), "{said}");
    }
}
