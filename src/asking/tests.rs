//! The prober with fake sidecars, under paused time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;

use super::{ASK_AGAIN, Askers, Halt, Lane, Peer, Question, Wish};
use crate::clock::monotonic;
use crate::cluster::Key;
use crate::cluster::MockCluster;
use crate::sidecar::{SidecarClient, SidecarError, Status, TaskAnswer, TaskRequest};

/// The behavior of a test's sidecars, by URL.
#[derive(Default)]
struct Played {
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
    began: Mutex<Option<tokio::time::Instant>>,
}

impl Played {
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
impl SidecarClient for Played {
    async fn status(&self, url: &str) -> Result<Status, SidecarError> {
        self.pause(url).await?;
        let ready = self.tasks.lock().unwrap().iter().any(|(of, _)| of == url);
        Ok(Status { ready, caught_up: true, height: Some(7), halted: false })
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

fn question(url: &str, wish: Wish) -> Question {
    let peer = Peer { pod_uid: "pod".to_owned(), url: url.to_owned(), ..Peer::default() };
    Question { peer, wish }
}

fn mark(url: &str) -> Question {
    question(url, Wish::MarkReady { task_id: "plan-4".to_owned() })
}

fn watch(url: &str) -> Question {
    question(url, Wish::Watch { halt: None })
}

fn askers() -> (Arc<Played>, Arc<Askers>, super::Lanes) {
    let played = Arc::new(Played::default());
    let (askers, lanes) = Askers::new(played.clone(), Arc::new(MockCluster::new()));
    (played, askers, lanes)
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_later_and_its_answer_is_of_now_for_five_seconds() {
    let (played, askers, _lanes) = askers();
    let heard = askers.ask(&key("a"), mark("http://a"));
    assert_eq!((heard.last, heard.is_fresh), (None, false));
    assert!(played.asked("http://a").is_empty(), "who asks does not wait");
    askers.answer_all().await;
    let heard = askers.ask(&key("a"), mark("http://a"));
    assert!(heard.last.unwrap().unwrap().ready && heard.is_fresh);
    assert_eq!((heard.again, played.asked("http://a").len()), (ASK_AGAIN, 2));
    sleep(ASK_AGAIN).await;
    let heard = askers.ask(&key("a"), mark("http://a"));
    assert!(heard.last.unwrap().unwrap().ready && !heard.is_fresh, "it may have been restarted");
    askers.answer_all().await;
    assert!(askers.ask(&key("a"), mark("http://a")).is_fresh);
    assert_eq!(played.tasks.lock().unwrap().len(), 1, "what is ready is not told again");
}

#[tokio::test(start_paused = true)]
async fn an_answer_belongs_to_its_pod_its_address_and_its_task() {
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
        question("http://a", Wish::MarkReady { task_id: "plan-9".to_owned() }),
    ];
    for other in others {
        let (_, askers, _lanes) = askers();
        askers.ask(&key("a"), mark("http://a"));
        askers.answer_all().await;
        let heard = askers.ask(&key("a"), other.clone());
        assert_eq!((heard.last, heard.is_fresh), (None, false), "{other:?}");
        askers.answer_all().await;
        assert!(askers.ask(&key("a"), other).is_fresh, "it is asked at once");
    }
    let (_, askers, _lanes) = askers();
    let halt = |height| {
        let halt = Some(Halt { task_id: "halt".to_owned(), height });
        question("http://a", Wish::Watch { halt })
    };
    askers.ask(&key("a"), halt(7));
    askers.answer_all().await;
    assert_eq!(askers.ask(&key("a"), halt(8)).last, None);
    assert_eq!(askers.ask(&key("a"), watch("http://a")).last, None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_when_something_else_is_asked_is_no_news() {
    let (played, askers, _lanes) = askers();
    played.takes("http://a", Some(Duration::from_secs(1)));
    askers.ask(&key("a"), watch("http://a"));
    let asking = askers.clone();
    let first = tokio::spawn(async move { asking.answer(&key("a"), Lane::Patient).await });
    sleep(Duration::from_millis(10)).await;
    let mut next = watch("http://a");
    next.peer.pod_uid = "another".to_owned();
    assert_eq!(askers.ask(&key("a"), next.clone()).last, None);
    assert!(!first.await.unwrap());
    assert_eq!(askers.ask(&key("a"), next.clone()).last, None);
    askers.answer_all().await;
    assert!(askers.ask(&key("a"), next).is_fresh);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_answer_is_asked_less_and_less_and_heard_when_it_does() {
    let (played, askers, _lanes) = askers();
    played.takes("http://a", None);
    let hour = async {
        for _ in 0..3600 * 4 {
            askers.ask(&key("a"), watch("http://a"));
            askers.answer_all().await;
            sleep(Duration::from_millis(250)).await;
        }
    };
    hour.await;
    let asked = played.asked("http://a");
    // After missing the prompt lane it is asked again with more time; then the backoff doubles.
    assert!(asked[2] - asked[1] < 4.0 && asked[3] - asked[2] < 5.0, "{:?}", &asked[..6]);
    let waits: Vec<f64> = asked[20..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.iter().all(|wait| (16.0..=36.0).contains(wait)), "{waits:?}");
    let heard = askers.ask(&key("a"), watch("http://a"));
    assert_eq!(heard.last, Some(Err("http://a did not answer".to_owned())));
    played.takes("http://a", Some(Duration::ZERO));
    sleep(Duration::from_secs(32)).await;
    askers.ask(&key("a"), watch("http://a"));
    askers.answer_all().await;
    assert!(askers.ask(&key("a"), watch("http://a")).last.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_asked_less_and_less_though_something_else_is_answered() {
    let (played, askers, _lanes) = askers();
    *played.refuses.lock().unwrap() = true;
    for _ in 0..600 * 4 {
        askers.ask(&key("a"), mark("http://a"));
        askers.ask(&key("a"), watch("http://a"));
        askers.answer_all().await;
        sleep(Duration::from_millis(250)).await;
    }
    let refused = played.refused.lock().unwrap().clone();
    let waits: Vec<f64> = refused.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.len() > 15 && waits[0] < 1.5 && waits[3] > 3.5, "{waits:?}");
    assert!(waits[5..].iter().all(|wait| (16.0..=36.0).contains(wait)), "{waits:?}");
    // Before it is told to mark the node, it is asked whether it has. All other requests are to watch it.
    let asked = played.asked("http://a");
    let watched = asked.len() - refused.len();
    assert!((100..=121).contains(&watched), "{watched} in ten minutes");
    assert!(asked.windows(2).all(|pair| pair[1] - pair[0] < 5.5), "{asked:?}");
    assert!(askers.ask(&key("a"), watch("http://a")).last.unwrap().is_ok());
    let heard = askers.ask(&key("a"), mark("http://a"));
    assert_eq!(heard.last, Some(Err("http://a wants its token".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_answer_is_asked_no_more_often_because_it_is_asked_something_else() {
    let (played, askers, _lanes) = askers();
    played.takes("http://a", None);
    let task = |n: usize| question("http://a", Wish::MarkReady { task_id: format!("plan-{n}") });
    for n in 0..600 * 4 {
        // Something else is first asked of it after a minute, and something new with each request from then on.
        if n > 60 * 4 {
            askers.ask(&key("a"), task(played.asked("http://a").len()));
        }
        askers.ask(&key("a"), watch("http://a"));
        askers.answer_all().await;
        sleep(Duration::from_millis(250)).await;
    }
    let asked = played.asked("http://a");
    let later = asked.iter().filter(|at| **at > 60.0).count();
    // Two questions, each of them every 16 s at most.
    let seconds = (played.now() - 60.0) as usize;
    assert!((seconds / 20 - 2..=seconds / 8 + 2).contains(&later), "{later} in {seconds} s: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_fails_does_not_hold_up_what_is_answered_nor_those_that_answer_at_once() {
    let (played, askers, mut lanes) = askers();
    *played.refuses.lock().unwrap() = true;
    askers.ask(&key("a"), mark("http://a"));
    askers.ask(&key("a"), watch("http://a"));
    askers.answer_all().await;
    while lanes.prompt.try_recv().is_ok() {}
    sleep(ASK_AGAIN).await;
    askers.ask(&key("a"), mark("http://a"));
    askers.ask(&key("a"), watch("http://a"));
    assert_eq!(lanes.prompt.try_recv().unwrap(), key("a"));
    assert_eq!(lanes.patient.try_recv().unwrap(), key("a"));
    // The patient lane may be long, and the prompt one is not for what fails.
    assert!(askers.answer(&key("a"), Lane::Prompt).await);
    assert!(askers.ask(&key("a"), watch("http://a")).is_fresh);
    assert_eq!(played.refused.lock().unwrap().len(), 1);
    assert!(!askers.answer(&key("a"), Lane::Prompt).await);
    assert_eq!(played.refused.lock().unwrap().len(), 1);
    assert!(askers.answer(&key("a"), Lane::Patient).await);
    assert_eq!(played.refused.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_that_takes_long_is_waited_for_where_it_holds_up_nobody_who_does_not() {
    let (played, askers, mut lanes) = askers();
    played.takes("http://a", Some(Duration::from_millis(900)));
    askers.ask(&key("a"), watch("http://a"));
    assert_eq!(lanes.prompt.try_recv().unwrap(), key("a"));
    let began = monotonic();
    assert!(!askers.answer(&key("a"), Lane::Prompt).await, "nothing is known by then");
    assert_eq!(monotonic().duration_since(began), Duration::from_millis(250));
    assert_eq!(lanes.patient.try_recv().unwrap(), key("a"));
    assert!(askers.answer(&key("a"), Lane::Patient).await);
    assert!(askers.ask(&key("a"), watch("http://a")).is_fresh);
    // Now it is expected to answer.
    sleep(ASK_AGAIN).await;
    askers.ask(&key("a"), watch("http://a"));
    assert!(lanes.prompt.try_recv().is_err() && lanes.patient.try_recv().is_err());
    assert_eq!(lanes.slow.try_recv().unwrap(), key("a"), "among those that take their time");
    // One that stops answering is not.
    played.takes("http://a", None);
    assert!(askers.answer(&key("a"), Lane::Slow).await);
    sleep(Duration::from_secs(40)).await;
    askers.ask(&key("a"), watch("http://a"));
    assert!(lanes.slow.try_recv().is_err() && lanes.patient.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_sidecar_is_asked_one_thing_at_a_time_and_each_once() {
    let (played, askers, mut lanes) = askers();
    played.takes("http://a", Some(Duration::from_millis(100)));
    for _ in 0..10 {
        askers.ask(&key("a"), watch("http://a"));
        askers.ask(&key("a"), mark("http://a"));
    }
    let ask = |key: Key| {
        let askers = askers.clone();
        tokio::spawn(async move { askers.answer(&key, Lane::Prompt).await })
    };
    let mut asking = Vec::new();
    for _ in 0..100 {
        askers.ask(&key("a"), watch("http://a"));
        while let Ok(key) = lanes.prompt.try_recv() {
            asking.push(ask(key));
        }
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(asking.len(), 2, "one for each wish");
    assert_eq!(played.at_once.lock().unwrap().1, 1);
    assert_eq!(played.asked("http://a").len(), 1 + 2, "watched once, and before and after it was told");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_a_node_that_is_gone_or_of_which_nothing_is_wished() {
    let (_, askers, _lanes) = askers();
    for name in ["a", "b"] {
        askers.ask(&key(name), watch("http://a"));
        askers.ask(&key(name), mark("http://a"));
    }
    askers.answer_all().await;
    assert_eq!(askers.known(), 2);
    askers.forget(&key("a"));
    askers.settle(&key("b"), &mark("").wish);
    assert_eq!(askers.known(), 1);
    askers.settle(&key("b"), &watch("").wish);
    assert_eq!(askers.known(), 0);
    // A question that arrives while it is being asked.
    askers.ask(&key("a"), watch("http://a"));
    askers.settle(&key("a"), &watch("").wish);
    askers.answer_all().await;
    assert_eq!(askers.known(), 0);
    assert_eq!(askers.ask(&key("a"), watch("http://a")).last, None);
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
async fn a_request_that_panics_is_an_answer_that_says_so_and_it_is_asked_again() {
    let (askers, _lanes) = Askers::new(Arc::new(Panics), Arc::new(MockCluster::new()));
    for _ in 0..2 {
        askers.ask(&key("a"), watch("http://a"));
        assert!(
            askers.answer(&key("a"), Lane::Prompt).await || askers.answer(&key("a"), Lane::Patient).await
        );
        let said = askers.ask(&key("a"), watch("http://a")).last.unwrap().unwrap_err();
        assert_eq!(said, "the request to the sidecar panicked: a bug of the client");
        sleep(Duration::from_mins(1)).await;
    }
}
