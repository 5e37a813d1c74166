//! Jobs.

use super::*;
use crate::engine::Advance;
use crate::tasks::hooks::job::{DryRun, dry_run};
use windlass_kube_port::Selector;

pub(super) type Store = Arc<Mutex<Vec<Value>>>;

fn backup() -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "backup:1"}]});
    json!({"name": "backup", "at": "BeforeNode", "timeoutSeconds": 60, "job": {"template": {"template": {"spec": pod}}}})
}

/// A cluster that stores Jobs and has nothing else. The second list has the names of the Jobs that were created.
pub(super) fn cluster() -> (MockCluster, Store, Arc<Mutex<Vec<String>>>) {
    let (mut cluster, store, made) = keeping_jobs();
    cluster.expect_selected().returning(|_, _, _| Ok(Vec::new()));
    (cluster, store, made)
}

/// The same, without an answer to lists by a selector.
fn keeping_jobs() -> (MockCluster, Store, Arc<Mutex<Vec<String>>>) {
    let (store, made): (Store, Arc<Mutex<Vec<String>>>) = (Arc::default(), Arc::default());
    let mut cluster = MockCluster::new();
    let jobs = store.clone();
    cluster.expect_get().returning(move |kind, _, name| {
        assert_eq!(kind, Kind::Job);
        Ok(jobs.lock().unwrap().iter().find(|job| job["metadata"]["name"] == name).cloned())
    });
    let (jobs, names) = (store.clone(), made.clone());
    cluster.expect_create().returning(move |_, mut manifest| {
        let name = manifest["metadata"]["name"].as_str().unwrap().to_owned();
        let mut jobs = jobs.lock().unwrap();
        if jobs.iter().any(|job| job["metadata"]["name"] == name) {
            return Err(ClusterError::AlreadyExists { object: name });
        }
        let mut names = names.lock().unwrap();
        manifest["metadata"]["uid"] = json!(format!("uid {} of {name}", names.len()));
        manifest["metadata"]["resourceVersion"] = json!("1");
        names.push(name);
        jobs.push(manifest.clone());
        Ok(manifest)
    });
    let jobs = store.clone();
    cluster.expect_delete().returning(move |target| {
        jobs.lock().unwrap().retain(|job| job["metadata"]["uid"] != target.uid.as_str());
        Ok(())
    });
    (cluster, store, made)
}

/// The UID of the first stored Job.
fn uid(store: &Store) -> String {
    store.lock().unwrap()[0]["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn ends(store: &Store, type_: &str) {
    let condition =
        json!({"type": type_, "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"});
    store.lock().unwrap()[0]["status"] = json!({"conditions": [condition]});
}

#[tokio::test(start_paused = true)]
async fn task_creates_one_job_across_restarts() {
    let (cluster, store, made) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    let fresh = stage.plan.clone();
    let _ = stage.look().await;
    // The operator died after the Job was created and before that was persisted.
    stage.plan = fresh;
    stage.restart();
    let _ = stage.look().await;
    stage.restart();
    let looked = stage.look().await;
    assert_eq!(again(&looked), Duration::from_secs(2));
    let name = format!("db-0-backup-{}", &job_name("", "", &stage.id(), 1)[1..]);
    assert_eq!(made.lock().unwrap().as_slice(), std::slice::from_ref(&name));
    assert!(stage.message().contains(&format!("Job {name} is not complete")), "{}", stage.message());
    ends(&store, "Complete");
    stage.restart();
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Complete);
    assert_eq!(made.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_job_fails_the_task_with_its_message() {
    let (cluster, store, made) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    let _ = stage.look().await;
    ends(&store, "Failed");
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Failed);
    assert!(stage.message().ends_with("failed: BackoffLimitExceeded: too often"), "{}", stage.message());
    // This is what a retry does.
    let record = &mut stage.plan.tasks[0];
    (record.state, record.attempt, record.progress) = (TaskState::Pending, 2, Value::Null);
    (record.started_at, record.finished_at) = (None, None);
    let _ = stage.look().await;
    let made = made.lock().unwrap();
    assert_eq!(made.len(), 2);
    assert_ne!(made[0], made[1]);
    let second = store.lock().unwrap()[1].clone();
    assert_eq!(second["metadata"]["annotations"]["windlass.dev/attempt"], "2");
}

#[tokio::test(start_paused = true)]
async fn manually_deleted_job_is_not_recreated() {
    let (cluster, store, made) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    let _ = stage.look().await;
    store.lock().unwrap().clear();
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Failed);
    assert!(stage.message().contains("was deleted before Windlass observed its end"), "{}", stage.message());
    assert_eq!(made.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn job_deleted_after_completion_is_a_success() {
    let transient = || ClusterError::Transient {
        object: "events".to_owned(),
        message: "busy".to_owned(),
        retry_after: None,
    };
    let forbidden = || ClusterError::Forbidden { object: "events".to_owned(), message: "no".to_owned() };
    let of = |uid: &str| Ok(vec![json!({"regarding": {"uid": uid}, "reason": "Completed"})]);
    for (what, late, events, expected) in [
        ("its event", false, of("uid 0"), TaskState::Complete),
        ("its event, and time is up", true, of("uid 0"), TaskState::Complete),
        ("the event of another Job", false, of("another"), TaskState::Failed),
        ("no right to events", false, Err(forbidden()), TaskState::Failed),
        ("no answer", false, Err(transient()), TaskState::Running),
    ] {
        let (mut cluster, store, made) = keeping_jobs();
        cluster.expect_selected().returning(move |kind, _, by| {
            let Selector::Fields(fields) = by else { panic!("{by:?}") };
            assert!(kind == Kind::Event && fields.ends_with(",reason=Completed"), "{fields}");
            let name = fields.split(&['=', ','][..]).nth(3).unwrap().to_owned();
            let mut events = events.clone();
            for event in events.iter_mut().flatten() {
                if event["regarding"]["uid"] == "uid 0" {
                    event["regarding"]["uid"] = json!(format!("uid 0 of {name}"));
                }
            }
            events
        });
        let mut stage = Stage::new(&backup(), cluster);
        let _ = stage.look().await;
        store.lock().unwrap().clear();
        if late {
            pass(60).await;
        }
        stage.restart();
        let _ = stage.look().await;
        assert_eq!(stage.state(), expected, "{what}: {}", stage.message());
        assert_eq!(made.lock().unwrap().len(), 1, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_job_is_left_untouched() {
    let (cluster, store, made) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    let name = job_name("db-0", "backup", &stage.id(), 1);
    let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let of = |uid: &str, task: &str| {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": "x", "resourceVersion": "1",
            "annotations": {ANNOTATION_TASK: task},
            "ownerReferences": [{"kind": "StatefulNode", "name": "db-0", "uid": uid, "controller": true}]},
            "status": done})
    };
    for foreign in [of("earlier", &stage.id()), of("uid-0", "0000000000-0")] {
        *store.lock().unwrap() = vec![foreign];
        let mut plan = stage.plan.clone();
        std::mem::swap(&mut plan, &mut stage.plan);
        let _ = stage.look().await;
        assert_eq!(stage.state(), TaskState::Failed);
        assert!(stage.message().contains("does not touch it"), "{}", stage.message());
        stage.plan = plan;
    }
    assert!(made.lock().unwrap().is_empty());
    assert_eq!(store.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn job_that_never_starts_is_deleted_at_the_timeout() {
    let (cluster, store, _) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    let _ = stage.look().await;
    store.lock().unwrap()[0]["status"] = json!({"active": 1, "ready": 0});
    pass(60).await;
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Failed);
    let said = stage.message();
    assert!(
        said.contains("no success within 60 s") && said.contains("1 of its pods active, 0 of them ready"),
        "{said}"
    );
    assert!(store.lock().unwrap().is_empty(), "what is late does not go on");
}

#[tokio::test(start_paused = true)]
async fn timed_out_job_is_kept_while_earlier_leader_may_recreate_it() {
    let (cluster, store, _) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    pass(1).await;
    stage.restart();
    let _ = stage.look().await;
    store.lock().unwrap()[0]["status"] = json!({"active": 1, "ready": 0});
    // Whoever acts when the time is up.
    for seconds in [30, 30] {
        pass(seconds).await;
        stage.restart();
        let _ = stage.look().await;
    }
    let waits =
        "it has timed out, and Windlass deletes it once no request of an earlier leader can recreate it";
    assert!(stage.message().ends_with(waits), "{}", stage.message());
    assert_eq!((stage.state(), store.lock().unwrap().len()), (TaskState::Running, 1));
    pass(15).await;
    let _ = stage.look().await;
    assert!(stage.message().contains("no success within 60 s"), "{}", stage.message());
    assert_eq!((stage.state(), store.lock().unwrap().len()), (TaskState::Failed, 0));
}

#[tokio::test(start_paused = true)]
async fn timed_out_job_observed_after_creation_is_deleted_at_once() {
    let (cluster, store, _) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    let _ = stage.look().await;
    store.lock().unwrap()[0]["status"] = json!({"active": 1, "ready": 0});
    pass(59).await;
    stage.restart();
    pass(1).await;
    let _ = stage.look().await;
    assert_eq!((stage.state(), store.lock().unwrap().len()), (TaskState::Failed, 0));
}

/// Makes the Job incomplete, with a selector for its pods.
fn begun(store: &Store) {
    let mut jobs = store.lock().unwrap();
    jobs[0]["spec"]["selector"] = json!({"matchLabels": {"controller-uid": "x"}});
    jobs[0]["status"] = json!({"active": 1, "ready": 0});
}

#[tokio::test(start_paused = true)]
async fn pod_problem_is_reported_while_waiting_and_at_the_timeout() {
    let (mut cluster, store, _) = keeping_jobs();
    let back_off = Arc::new(Mutex::new(10));
    let (seconds, jobs) = (back_off.clone(), store.clone());
    cluster.expect_selected().returning(move |kind, _, by| {
        assert_eq!((kind, by), (Kind::Pod, Selector::Labels("controller-uid=x".to_owned())));
        let message = format!("Back-off {} s pulling image", seconds.lock().unwrap());
        let owners = |uid: &str| json!([{"kind": "Job", "name": "j", "uid": uid, "controller": true}]);
        let waits =
            json!([{"name": "a", "state": {"waiting": {"reason": "ImagePullBackOff", "message": message}}}]);
        let foreign = json!({"metadata": {"name": "x", "uid": "x", "ownerReferences": owners("other")}});
        let own = json!({"metadata": {"name": "j-1", "uid": "p", "ownerReferences": owners(&uid(&jobs))},
            "status": {"containerStatuses": waits}});
        Ok(vec![foreign, own])
    });
    let mut stage = Stage::new(&backup(), cluster);
    let _ = stage.look().await;
    begun(&store);
    let _ = stage.look().await;
    let first = stage.message().to_owned();
    let words = "container a of pod j-1 is waiting: ImagePullBackOff: Back-off 10 s";
    assert!(first.contains(words), "{first}");
    // Another operator process, and another number of seconds: the message stays the same.
    *back_off.lock().unwrap() = 20;
    stage.restart();
    let _ = stage.look().await;
    assert_eq!(stage.message(), first);
    pass(60).await;
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Failed);
    assert!(stage.message().contains("no success within 60 s") && stage.message().contains(words));
}

#[tokio::test(start_paused = true)]
async fn job_without_pods_reports_the_reason_and_lists_events_once() {
    let (mut cluster, store, _) = keeping_jobs();
    let jobs = store.clone();
    cluster.expect_selected().withf(|kind, _, _| *kind == Kind::Pod).returning(|_, _, _| Ok(Vec::new()));
    cluster.expect_selected().withf(|kind, _, _| *kind == Kind::Event).times(1).returning(move |_, _, by| {
        let Selector::Fields(fields) = by else { panic!("{by:?}") };
        assert!(fields.starts_with("regarding.kind=Job,regarding.name=db-0-backup-"), "{fields}");
        let event = |uid: &str, note: &str, at: &str| {
            json!({"regarding": {"uid": uid}, "note": note, "eventTime": at})
        };
        Ok(vec![
            event(&uid(&jobs), "Error creating: quota exceeded", "2026-01-02T00:00:00Z"),
            event(&uid(&jobs), "Error creating: earlier", "2026-01-01T00:00:00Z"),
            event("other", "Error creating: of another", "2026-01-03T00:00:00Z"),
        ])
    });
    let mut stage = Stage::new(&backup(), cluster);
    let _ = stage.look().await;
    begun(&store);
    for _ in 0..3 {
        let _ = stage.look().await;
        let said = stage.message();
        assert!(said.ends_with("; FailedCreate: Error creating: quota exceeded"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn plan_end_deletes_only_its_own_jobs() {
    let (cluster, store, _) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    // It may have begun although the status does not say so.
    let mut empty = MockCluster::new();
    empty.expect_get().times(1).returning(|_, _, _| Ok(None));
    delete_jobs(&empty, &stage.scope.owner, &stage.plan, &stage.deleted).await.unwrap();
    let _ = stage.look().await;
    let stranger = json!({"metadata": {"name": "other", "uid": "other"}});
    store.lock().unwrap().push(stranger.clone());
    delete_jobs(&*stage.scope.cluster, &stage.scope.owner, &stage.plan, &stage.deleted).await.unwrap();
    assert_eq!(*store.lock().unwrap(), [stranger]);
    // It may have to be called again.
    delete_jobs(&*stage.scope.cluster, &stage.scope.owner, &stage.plan, &stage.deleted).await.unwrap();
    let untouched = MockCluster::new();
    for state in [TaskState::Complete, TaskState::Skipped] {
        stage.plan.tasks[0].state = state;
        delete_jobs(&untouched, &stage.scope.owner, &stage.plan, &stage.deleted).await.unwrap();
    }
}

/// Otherwise a hook fails for what Windlass did: the write that ends its plan fails or conflicts, and what was wanted before
/// is wanted again by the next reconcile.
#[tokio::test(start_paused = true)]
async fn job_deleted_for_unstored_plan_end_is_recreated_by_the_task() {
    let (cluster, store, made) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    let _ = stage.look().await;
    let first = store.lock().unwrap()[0].clone();
    let end = async |stage: &Stage| {
        let (cluster, owner) = (stage.scope.cluster.as_ref(), &stage.scope.owner);
        delete_jobs(cluster, owner, &stage.plan, &stage.deleted).await.unwrap();
    };
    end(&stage).await;
    // It is still there for a while, and its pods are killed.
    let mut going = first.clone();
    going["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    store.lock().unwrap().push(going);
    ends(&store, "Failed");
    end(&stage).await;
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Running, "{}", stage.message());
    assert!(stage.message().ends_with("is being deleted, and Windlass recreates it"), "{}", stage.message());
    store.lock().unwrap().clear();
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Running, "{}", stage.message());
    assert_eq!(stage.plan.tasks[0].progress["uid"], uid(&store));
    assert_ne!(first["metadata"]["uid"], uid(&store));
    let names = made.lock().unwrap().clone();
    assert_eq!((names.len(), &names[0]), (2, &names[1]));
    // A hand deletes this one.
    let plan = stage.plan.clone();
    let second = std::mem::take(&mut *store.lock().unwrap());
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Failed);
    // Another process does not know who deleted it.
    stage.plan = plan;
    *store.lock().unwrap() = second;
    end(&stage).await;
    stage.restart();
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Failed);
    assert_eq!(made.lock().unwrap().len(), 2);
}

/// Otherwise a plan that waits for such a hook could not be ended by a person either.
#[tokio::test(start_paused = true)]
async fn plan_ends_without_permission_for_its_jobs() {
    let (cluster, _, _) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    let _ = stage.look().await;
    let answer = async |error: ClusterError| {
        let mut cluster = MockCluster::new();
        cluster.expect_get().times(1).returning(move |_, _, _| Err(error.clone()));
        delete_jobs(&cluster, &stage.scope.owner, &stage.plan, &stage.deleted).await
    };
    let (object, message) = ("jobs".to_owned(), "no".to_owned());
    answer(ClusterError::Forbidden { object: object.clone(), message: message.clone() }).await.unwrap();
    let busy = ClusterError::Transient { object, message, retry_after: None };
    assert!(answer(busy).await.is_err());
}

/// Otherwise a policy that protects Jobs would keep a plan from being aborted, rolled back or superseded, for ever.
#[tokio::test(start_paused = true)]
async fn plan_ends_when_a_job_delete_is_rejected() {
    let (cluster, store, _) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    let _ = stage.look().await;
    // A second attempt's Job.
    stage.plan.tasks[0].attempt = 2;
    let mut second = store.lock().unwrap()[0].clone();
    second["metadata"]["name"] = json!(job_name("db-0", "backup", &stage.id(), 2));
    second["metadata"]["uid"] = json!("second");
    store.lock().unwrap().push(second);
    let answer = async |refused: fn(String) -> ClusterError| {
        let (jobs, deleted) = (store.clone(), Arc::new(Mutex::new(Vec::new())));
        let mut cluster = MockCluster::new();
        cluster.expect_get().returning(move |_, _, name| {
            Ok(jobs.lock().unwrap().iter().find(|job| job["metadata"]["name"] == name).cloned())
        });
        let went = deleted.clone();
        cluster.expect_delete().returning(move |target| {
            if target.uid.as_str() != "second" {
                return Err(refused("Job shop/x".to_owned()));
            }
            went.lock().unwrap().push(target.uid.as_str().to_owned());
            Ok(())
        });
        let ended = delete_jobs(&cluster, &stage.scope.owner, &stage.plan, &stage.deleted).await;
        let deleted = deleted.lock().unwrap().clone();
        (ended, deleted)
    };
    let refused = |object| ClusterError::DeleteRefused { object, message: "a policy protects it".to_owned() };
    let (ended, deleted) = answer(refused).await;
    ended.unwrap();
    assert_eq!(deleted, ["second"]);
    let forbidden = |object| ClusterError::Forbidden { object, message: "no".to_owned() };
    let (ended, deleted) = answer(forbidden).await;
    ended.unwrap();
    assert_eq!(deleted, ["second"]);
    let busy = |object| ClusterError::Transient {
        object,
        message: "a webhook is away".to_owned(),
        retry_after: None,
    };
    assert!(answer(busy).await.0.is_err(), "it may be deleted a moment later");
}

#[tokio::test(start_paused = true)]
async fn no_job_is_created_while_held() {
    let (cluster, _, made) = cluster();
    let mut stage = Stage::new(&backup(), cluster);
    stage.scope.hold = Some("waiting for the fleet to be resumed".to_owned());
    let _ = stage.look().await;
    assert!(made.lock().unwrap().is_empty());
    assert_eq!(stage.message(), "waiting for the fleet to be resumed");
}

#[tokio::test(start_paused = true)]
async fn rejected_job_template_is_reported_with_the_hook_name() {
    let owner = Stage::new(&backup(), MockCluster::new()).scope.owner;
    let hook: Hook = serde_json::from_value(backup()).unwrap();
    let refuses = |error: ClusterError| {
        let mut cluster = MockCluster::new();
        cluster.expect_try_create().times(1).returning(move |kind, manifest| {
            assert_eq!(kind, Kind::Job);
            let variables = manifest["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
            assert_eq!(variables.len(), 13);
            Err(error.clone())
        });
        cluster
    };
    let (object, message) = ("Job shop/x".to_owned(), "unknown field \"spec.backofLimit\"".to_owned());
    let refused = refuses(ClusterError::Refused { object: object.clone(), message });
    let Err(DryRun::Refused(sentence)) = dry_run(&refused, &owner, &hook).await else { panic!("refused") };
    assert!(sentence.starts_with("hook backup: ") && sentence.contains("spec.backofLimit"), "{sentence}");
    let forbidden =
        refuses(ClusterError::Forbidden { object, message: "jobs.batch is forbidden".to_owned() });
    let Err(DryRun::NotNow(error)) = dry_run(&forbidden, &owner, &hook).await else { panic!("forbidden") };
    assert!(error.to_string().contains("deploy/rbac/hook-jobs"), "{error}");
    let wait: Hook =
        serde_json::from_value(json!({"name": "w", "at": "BeforeNode", "wait": {"seconds": 1}})).unwrap();
    assert!(dry_run(&MockCluster::new(), &owner, &wait).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn missing_permission_is_reported_while_waiting() {
    let mut cluster = MockCluster::new();
    cluster.expect_get().returning(|_, _, _| {
        Err(ClusterError::Forbidden { object: "Job shop/x".to_owned(), message: "no".to_owned() })
    });
    let mut stage = Stage::new(&backup(), cluster);
    let looked = stage.look().await;
    assert!(matches!(looked, Advance::Waiting { .. }));
    assert!(stage.message().contains("deploy/rbac/hook-jobs"), "{}", stage.message());
}
