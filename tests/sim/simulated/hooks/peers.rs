//! Peers of hooks and Jobs that are dead, slow, wrong, late, or succeed with an error; and the operator killed after
//! each of its writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use windlass::operator::{HookClient, HookReply, HookRequest};

use super::*;

const JOB: (&str, &str) = ("batch/v1", "Job");
const POD: (&str, &str) = ("v1", "Pod");

/// The behavior of a peer.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Dead,
    Slow,
    Lies,
    /// It does what it is asked, and the first answer is lost.
    Late,
    /// It does what it is asked and answers with an error.
    Errs,
    Drains,
}

/// Draining peers: the requests and effects, by task.
#[derive(Clone, Default)]
pub struct Peers {
    manners: Arc<Mutex<Vec<Manner>>>,
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
}

#[async_trait]
impl HookClient for Peers {
    async fn send(&self, request: HookRequest) -> Result<HookReply, String> {
        let task = request.headers["windlass-task"].to_str().unwrap().to_owned();
        let manner = {
            let mut manners = self.manners.lock().unwrap();
            if manners.is_empty() { Manner::Drains } else { manners.remove(0) }
        };
        *self.asked.lock().unwrap().entry(task).or_default() += 1;
        let reply = |status: u16, body: &str| {
            Ok(HookReply { status, body: body.as_bytes().to_vec(), ..HookReply::default() })
        };
        let silent = || Err("did not answer in time".to_owned());
        match manner {
            Manner::Dead => Err("did not answer: connection refused".to_owned()),
            Manner::Slow | Manner::Late => {
                tokio::time::sleep(request.timeout).await;
                silent()
            }
            Manner::Lies => reply(200, "<html>busy: false</html>"),
            Manner::Errs => reply(500, r#"{"state":"drained"}"#),
            Manner::Drains => reply(200, r#"{"state":"drained"}"#),
        }
    }
}

impl Peers {
    fn tasks(&self) -> BTreeSet<String> {
        self.asked.lock().unwrap().keys().cloned().collect()
    }
}

fn drain() -> Value {
    json!([{"name": "drain", "at": "BeforeNode", "http": {"url": "http://{{podIP}}/drain", "method": "POST",
        "success": "status == 200 && body.state == 'drained' && !has(body.busy)", "failure": "body.state == 'failed'", "intervalSeconds": 1}}])
}

fn backup(image: &str, more: &Value) -> Value {
    let pod = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{"name": "a", "image": image}]});
    let mut hook = json!({"name": "backup", "at": "BeforeRollout", "job": {"template": {"backoffLimit": 0, "template": {"spec": pod}}}});
    hook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!([hook])
}

impl World {
    /// The number of the operator's writes after this many audit entries.
    fn writes(&self, since: usize) -> usize {
        let entries = self.cluster.audit_after(since);
        entries.iter().filter(|e| e.user_agent == "windlass" && e.is_write()).count()
    }

    /// The creation times of all Jobs.
    fn made(&self) -> Vec<u64> {
        let entries = self.cluster.audit();
        let made = entries
            .iter()
            .filter(|e| e.resource == "jobs.batch" && e.verb == "create" && e.is_write() && e.code == 201);
        made.map(|e| e.at_micros).collect()
    }

    /// Rolls out another image, kills the operator after its `kill`th write, and waits until everything is done.
    /// False if there were fewer writes.
    async fn rolled_over_a_death(&self, kill: usize) -> bool {
        let since = self.cluster.audit_len();
        self.image("db:2").await;
        let mut died = false;
        for _ in 0..60_000 {
            if !died && self.writes(since) >= kill {
                self.kill_operator();
                died = true;
                self.rest(1).await;
                self.start_operator();
            }
            if is_up_to_date(&self.status()) && self.images().iter().all(|pod| !pod.ends_with("db:1")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.until("it is complete", is_up_to_date).await;
        died
    }
}

#[test]
fn a_peer_that_is_dead_slow_lies_answers_late_or_errs_is_asked_until_it_has_drained() {
    for manner in [Manner::Dead, Manner::Slow, Manner::Lies, Manner::Late, Manner::Errs] {
        play(|w| async move {
            w.serve(in_place(2, json!({}), drain())).await;
            *w.peers.manners.lock().unwrap() = vec![manner; 3];
            w.image("db:2").await;
            w.rest(1).await;
            assert_eq!(
                w.images(),
                ["db-0-0 db:1", "db-1-0 db:1"],
                "{manner:?}: nothing goes before it is drained"
            );
            w.until("it is complete", is_up_to_date).await;
            let asked = w.peers.asked.lock().unwrap().clone();
            let mut times: Vec<usize> = asked.values().copied().collect();
            times.sort_unstable();
            assert_eq!(times, [1, 4], "{manner:?}: {asked:?}");
            w.is_at_rest().await;
        });
    }
}

#[test]
fn each_node_is_drained_once_whatever_write_the_operator_dies_after() {
    let mut reached = 0;
    for kill in 1..=40 {
        let (send, heard) = std::sync::mpsc::channel();
        play(|w| async move {
            w.serve(in_place(2, json!({}), drain())).await;
            let died = w.rolled_over_a_death(kill).await;
            assert_eq!(
                w.peers.tasks().len(),
                2,
                "death after write {kill}: {:?}",
                w.peers.asked.lock().unwrap()
            );
            send.send(died).unwrap();
        });
        if !heard.recv().unwrap() {
            break;
        }
        reached = kill;
    }
    assert!(reached >= 8, "a rollout of two nodes has more writes than {reached}");
}

#[test]
fn a_rollout_makes_one_job_whatever_write_the_operator_dies_after() {
    let mut reached = 0;
    for kill in 1..=40 {
        let (send, heard) = std::sync::mpsc::channel();
        play(|w| async move {
            w.serve(in_place(1, json!({}), backup("backup:1", &json!({})))).await;
            let died = w.rolled_over_a_death(kill).await;
            // The answer to the create may be lost with the operator, and is then in no audit log.
            assert!(w.made().len() <= 1, "death after write {kill}: {:?}", w.made());
            assert_eq!(w.names(JOB).len(), 1, "death after write {kill}");
            send.send(died).unwrap();
        });
        if !heard.recv().unwrap() {
            break;
        }
        reached = kill;
    }
    assert!(reached >= 6, "a rollout with a Job has more writes than {reached}");
}

#[test]
fn a_job_that_a_hand_deletes_fails_or_never_starts_holds_the_rollout_and_says_why() {
    let never = |pod: Value| {
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "backup:1"}]});
        let mut spec = json!({"backoffLimit": 0, "template": {"spec": spec}});
        json_patch::merge(&mut spec["template"]["spec"], &pod);
        json!({"timeoutSeconds": 30, "job": {"template": spec}})
    };
    let volume = json!({"name": "to", "persistentVolumeClaim": {"claimName": "nobodys"}});
    let homeless = json!({"volumes": [volume]});
    for (image, more, deleted, words) in [
        ("backup:nope", json!({}), true, &["was deleted before it was seen to end"][..]),
        (
            "backup:crash",
            json!({}),
            false,
            &[
                "failed: BackoffLimitExceeded: ",
                "; container a of pod db-backup-",
                " ended with exit code 1: Error",
            ],
        ),
        (
            "backup:nope",
            json!({"timeoutSeconds": 30}),
            false,
            &[
                "no success within 30 s",
                "container a of pod db-backup-",
                " waits: ImagePullBackOff: Back-off pulling",
            ],
        ),
        (
            "backup:pull-loop",
            json!({"timeoutSeconds": 90}),
            false,
            &["no success within 90 s", " waits: ImagePullBackOff: Back-off pulling"],
        ),
        ("", never(homeless), false, &["no success within 30 s", " is not scheduled: Unschedulable: "]),
        (
            "",
            never(json!({"serviceAccountName": "ghost"})),
            false,
            &["no success within 30 s", "FailedCreate: Error creating: ", "ghost"],
        ),
    ] {
        play(|w| async move {
            w.serve(in_place(1, json!({}), backup(image, &more))).await;
            w.image("db:2").await;
            if deleted {
                w.until("the Job is known", |s| s["plan"]["tasks"][0]["progress"]["uid"].is_string()).await;
                let names = w.names(JOB);
                w.delete(JOB, &names[0]).await;
            } else if words[0].starts_with("no success") {
                let is_said = |s: &Value| {
                    let task = &s["plan"]["tasks"][0];
                    task["state"] == "Running" && words[1..].iter().all(|w| text(task, "message").contains(w))
                };
                w.until(&format!("it says while it waits: {words:?}"), is_said).await;
                // An unchanged state is not written again.
                w.rest(5).await;
                let since = w.cluster.audit_len();
                w.rest(20).await;
                assert_eq!(w.writes(since), 0, "{words:?}");
            }
            let held = w.until("it holds", |s| condition(s, "UpToDate") == "False/HookFailed").await;
            let said = text(&held["plan"]["tasks"][0], "message");
            for word in words {
                assert!(said.contains(word), "{word:?}: {said}");
            }
            assert!(message(&held, "UpToDate").contains(words[words.len() - 1]), "{held}");
            assert_eq!(w.made().len(), 1, "it is not run again by itself");
            assert!(w.images().contains(&"db-0-0 db:1".to_owned()));
        });
    }
}

#[test]
fn a_job_that_completed_is_a_success_whatever_deletes_it() {
    #[derive(Clone, Copy, Debug)]
    enum By {
        /// The controller of TTLs, which the template asks for.
        Ttl,
        /// The same, while the operator is away for this many seconds.
        TtlWhileAway(u64),
        /// A cleaner that deletes what is Complete at once.
        Cleaner,
        /// The same, while the operator is away.
        CleanerWhileAway,
    }
    let cases = [By::Ttl, By::TtlWhileAway(20), By::TtlWhileAway(3_000), By::Cleaner, By::CleanerWhileAway];
    for by in cases {
        for point in ["BeforeRollout", "BeforeNode", "AfterRollout"] {
            play(|w| async move {
                let mut hooks = backup("backup:1", &json!({"at": point}));
                hooks[0]["job"]["template"]["ttlSecondsAfterFinished"] = json!(0);
                w.serve(in_place(1, json!({}), hooks)).await;
                w.image("db:2").await;
                let what = format!("{by:?} at {point}");
                let has = |w: &World, condition_: &str| {
                    let jobs = w.names(JOB);
                    jobs.iter()
                        .any(|job| condition(&w.get(JOB, job)["status"], condition_).starts_with("True"))
                };
                w.until("a Job is known", |s| {
                    let of_node = w.get(NODE, "db-0")["status"]["plan"].clone();
                    let knows = |plan: &Value| {
                        let tasks = plan["tasks"].as_array().cloned().unwrap_or_default();
                        tasks.iter().any(|task| task["progress"]["uid"].is_string())
                    };
                    knows(&s["plan"]) || knows(&of_node)
                })
                .await;
                if matches!(by, By::TtlWhileAway(_) | By::CleanerWhileAway) {
                    w.kill_operator();
                }
                if matches!(by, By::Cleaner | By::CleanerWhileAway) {
                    while !has(&w, "Complete") {
                        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    }
                    w.delete(JOB, &w.names(JOB)[0]).await;
                }
                match by {
                    By::TtlWhileAway(seconds) => w.rest(seconds).await,
                    By::CleanerWhileAway => w.rest(20).await,
                    By::Ttl | By::Cleaner => {}
                }
                if matches!(by, By::TtlWhileAway(_) | By::CleanerWhileAway) {
                    w.start_operator();
                }
                w.until(&what, |s| is_up_to_date(s) && w.images().contains(&"db-0-0 db:2".to_owned())).await;
                assert_eq!(w.made().len(), 1, "{what}: it runs once");
                assert!(w.events("HookFailed").is_empty(), "{what}");
            });
        }
    }
}

#[test]
fn a_job_goes_with_the_plan_that_is_superseded_or_aborted() {
    play(|w| async move {
        w.serve(in_place(1, json!({}), backup("backup:nope", &json!({})))).await;
        w.image("db:2").await;
        w.until("the Job is known", |s| s["plan"]["tasks"][0]["progress"]["uid"].is_string()).await;
        let first = w.names(JOB);
        w.image("db:3").await;
        w.until("another is made", |_| w.made().len() == 2).await;
        w.rest(2).await;
        assert!(w.names(JOB).iter().all(|name| !first.contains(name)), "{:?}", w.names(JOB));
        let plan = text(&w.status()["plan"], "id").to_owned();
        w.annotate("windlass.dev/abort", &plan).await;
        w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
        w.rest(5).await;
        assert!(w.names(JOB).is_empty(), "{:?}", w.names(JOB));
        assert!(w.names(POD).iter().all(|name| !name.contains("backup")), "its pods go with it");
    });
}
