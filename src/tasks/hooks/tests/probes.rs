//! HTTP requests and queries.

use super::*;

fn drain(more: &Value) -> Value {
    let mut http = json!({"url": "http://{{podIP}}:80/drain?node={{node}}&task={{taskID}}", "method": "POST",
        "success": "body.state == 'drained'", "failure": "body.state == 'failed'"});
    http.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"name": "drain", "at": "BeforeNode", "timeoutSeconds": 60, "http": http})
}

#[tokio::test(start_paused = true)]
async fn request_is_sent_at_each_interval_until_success() {
    let mut stage = Stage::new(&drain(&json!({"intervalSeconds": 3})), MockCluster::new());
    let _ = stage.turn().await;
    assert!(stage.message().ends_with("did not answer in time"), "{}", stage.message());
    for (status, body) in [(503, "starting"), (200, "<html>"), (200, "{\"state\":\"draining\"}")] {
        stage.answers(status, body);
        let looked = stage.look().await;
        assert_eq!(again(&looked), Duration::from_secs(3));
        pass(3).await;
        let _ = stage.turn().await;
        let said = format!("http://10.0.0.7:80/drain?node=db-0&task={} answered {status}", stage.id());
        assert!(stage.message().contains(&said), "{}", stage.message());
        assert_eq!(stage.state(), TaskState::Running);
    }
    stage.answers(200, "{\"state\":\"drained\"}");
    pass(3).await;
    let ended = stage.turn().await;
    assert_eq!((ended, stage.state()), (Advance::Ended, TaskState::Complete));
    assert_eq!(stage.sent(), 5);
    let sent = stage.peer.sent.lock().unwrap();
    assert!(sent.iter().all(|request| request.headers["windlass-task"] == *stage.plan.tasks[0].id));
}

#[tokio::test(start_paused = true)]
async fn failure_response_fails_the_task_at_once_with_the_response() {
    let mut stage = Stage::new(&drain(&json!({})), MockCluster::new());
    stage.answers(200, "{\"state\":\"failed\",\"why\":\"no quorum\"}");
    let _ = stage.turn().await;
    assert_eq!(stage.state(), TaskState::Failed);
    assert!(stage.plan.is_active());
    let said = stage.message();
    assert!(said.starts_with("POST http://10.0.0.7:80/drain"), "{said}");
    assert!(said.contains("answered 200") && said.contains("no quorum"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn unresponsive_peer_fails_the_task_only_at_the_timeout() {
    let mut stage = Stage::new(&drain(&json!({})), MockCluster::new());
    let _ = stage.turn().await;
    pass(55).await;
    stage.answers(500, "{\"state\":\"starting\"}");
    let waits = stage.turn().await;
    assert_eq!(stage.state(), TaskState::Running);
    assert!(again(&waits) <= Duration::from_millis(5_001), "it is looked at when its time is up: {waits:?}");
    // The timeout counts from the persisted start.
    stage.restart();
    pass(6).await;
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Running, "this operator has asked nobody yet");
    let _ = stage.turn().await;
    assert_eq!(stage.state(), TaskState::Failed);
    let said = stage.message();
    assert!(said.contains("no success within 60 s") && said.contains("answered 500"), "{said}");
}

/// Otherwise a hook whose peer was done in the meantime fails, and the rollout is taken back.
#[tokio::test(start_paused = true)]
async fn peer_is_probed_once_more_after_an_unattended_timeout() {
    let late = "no success within 60 s; POST http://10.0.0.7:80/drain?node=db-0&task=";
    for (answer, ends, said, words) in [
        (Some((200, "{\"state\":\"drained\"}")), TaskState::Complete, "", ""),
        (Some((200, "{\"state\":\"failed\"}")), TaskState::Failed, "POST", "answered 200"),
        (Some((200, "{\"state\":\"draining\"}")), TaskState::Failed, late, "last answered 200"),
        (Some((503, "starting")), TaskState::Failed, late, "last answered 503: starting"),
        (None, TaskState::Failed, late, "last did not answer in time"),
    ] {
        let mut stage = Stage::new(&drain(&json!({})), MockCluster::new());
        stage.answers(200, "{\"state\":\"draining\"}");
        let _ = stage.turn().await;
        stage.restart();
        pass(660).await;
        *stage.peer.answer.lock().unwrap() = answer.map(|(status, body)| (status, body.to_owned()));
        let waits = stage.look().await;
        assert_eq!((stage.state(), stage.sent()), (TaskState::Running, 1), "{answer:?}");
        assert_eq!(again(&waits), Duration::from_secs(30), "unless the answer comes before: {answer:?}");
        let _ = stage.turn().await;
        assert_eq!((stage.state(), stage.sent()), (ends, 2), "{answer:?}: {}", stage.message());
        let message = stage.message();
        assert!(message.contains(said) && message.contains(words), "{answer:?}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_peer_fails_the_task_after_an_unattended_timeout() {
    let mut stage = Stage::new(&drain(&json!({})), MockCluster::new());
    let _ = stage.turn().await;
    stage.restart();
    pass(660).await;
    stage.scope.values.pod_ip = None;
    let _ = stage.look().await;
    assert_eq!((stage.state(), stage.sent()), (TaskState::Failed, 1));
    let said = stage.message();
    assert!(said.contains("no success within 60 s") && said.contains("{{podIP}} is not known"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn request_timeout_is_capped_by_the_hook_timeout() {
    let mut stage = Stage::new(&drain(&json!({"requestTimeoutSeconds": 300})), MockCluster::new());
    let _ = stage.turn().await;
    let mut brief = errors();
    brief["timeoutSeconds"] = json!(3);
    let mut query = Stage::new(&brief, MockCluster::new());
    let _ = query.turn().await;
    let timeout = |stage: &Stage| stage.peer.sent.lock().unwrap()[0].timeout.as_secs();
    assert_eq!((timeout(&stage), timeout(&query)), (60, 3));
}

#[tokio::test(start_paused = true)]
async fn restarted_operator_sends_the_same_task_id() {
    let mut stage = Stage::new(&drain(&json!({})), MockCluster::new());
    stage.answers(200, "{\"state\":\"draining\"}");
    let _ = stage.turn().await;
    let before = stage.message().to_owned();
    stage.restart();
    let _ = stage.look().await;
    assert_eq!(stage.message(), before);
    let _ = stage.turn().await;
    let sent = stage.peer.sent.lock().unwrap();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].headers["windlass-task"], sent[1].headers["windlass-task"]);
}

#[tokio::test(start_paused = true)]
async fn no_request_starts_while_held_but_received_answers_count() {
    let mut stage = Stage::new(&drain(&json!({})), MockCluster::new());
    stage.scope.hold = Some("waiting for the fleet to be resumed".to_owned());
    stage.answers(200, "{\"state\":\"drained\"}");
    let _ = stage.turn().await;
    assert_eq!((stage.sent(), stage.message()), (0, "waiting for the fleet to be resumed"));
    stage.scope.hold = None;
    let _ = stage.look().await;
    stage.scope.prober.answer_all().await;
    stage.scope.hold = Some("waiting for the fleet to be resumed".to_owned());
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Complete);
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_the_pod_ip() {
    let mut stage = Stage::new(&drain(&json!({})), MockCluster::new());
    stage.scope.values.pod_ip = None;
    let _ = stage.turn().await;
    assert!(stage.message().contains("{{podIP}} is not known"), "{}", stage.message());
    stage.scope.values.pod_ip = Some("10.0.0.7".to_owned());
    let _ = stage.turn().await;
    assert_eq!(stage.sent(), 1);
    let mut elsewhere =
        Stage::new(&drain(&json!({"url": "http://kubernetes.default.svc/"})), MockCluster::new());
    let _ = elsewhere.turn().await;
    assert!(elsewhere.message().contains("not allowed"), "{}", elsewhere.message());
    assert_eq!(elsewhere.sent(), 0);
}

fn errors() -> Value {
    json!({"name": "errors", "at": "AfterStep", "timeoutSeconds": 3600, "query": {"promql": "errors{node=\"{{node}}\"}",
        "success": "scalar < 0.05", "failure": "scalar > 0.2", "count": 3, "failureLimit": 1}})
}

fn vector(value: &str) -> String {
    let result = json!([{"metric": {}, "value": [1, value]}]);
    json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
}

#[tokio::test(start_paused = true)]
async fn required_consecutive_successes_complete_the_task() {
    let mut stage = Stage::new(&errors(), MockCluster::new());
    let nothing = json!({"status": "success", "data": {"resultType": "vector", "result": []}}).to_string();
    // Answers that end the row, answers that do not, and one failure that is allowed.
    for (answer, in_a_row) in [
        (vector("0.01"), 1),
        (vector("0.01"), 2),
        (vector("0.1"), 0),
        (vector("0.01"), 1),
        (nothing, 1),
        (vector("0.5"), 0),
        (vector("0.01"), 1),
        (vector("0.01"), 2),
    ] {
        stage.answers(200, &answer);
        let _ = stage.turn().await;
        assert!(stage.message().contains(&format!("{in_a_row} of 3 successes")), "{}", stage.message());
        // An answer counts once, however many reconciles there are, and the operator may die after any of them.
        let _ = stage.look().await;
        stage.restart();
        let _ = stage.look().await;
        assert!(stage.message().contains(&format!("{in_a_row} of 3 successes")), "{}", stage.message());
        pass(30).await;
    }
    let _ = stage.turn().await;
    assert_eq!(stage.state(), TaskState::Complete);
    assert_eq!(stage.sent(), 9, "it is asked at each interval, and no more often after a restart");
    let sent = stage.peer.sent.lock().unwrap();
    let query = sent[0].url.query_pairs().next().map(|(name, value)| format!("{name}={value}"));
    assert_eq!(query.as_deref(), Some("query=errors{node=\"db-0\"}"));
}

#[tokio::test(start_paused = true)]
async fn inconclusive_answers_are_not_stored_and_are_retried() {
    let nothing = json!({"status": "success", "data": {"resultType": "vector", "result": []}}).to_string();
    let unavailable = (503, "starting".to_owned());
    for (status, answer) in [(200, nothing), (200, vector("0.1")), unavailable] {
        let mut stage = Stage::new(&errors(), MockCluster::new());
        stage.answers(200, &vector("0.5"));
        let _ = stage.turn().await;
        let kept = stage.plan.tasks[0].progress.clone();
        assert_eq!(kept["failures"], 1, "{kept}");
        stage.answers(status, &answer);
        for sent in 2..6 {
            pass(30).await;
            let _ = stage.turn().await;
            let _ = stage.look().await;
            assert_eq!((stage.sent(), &stage.plan.tasks[0].progress), (sent, &kept), "{answer}");
        }
        stage.answers(200, &vector("0.01"));
        for _ in 0..3 {
            pass(30).await;
            let _ = stage.turn().await;
        }
        assert_eq!(stage.state(), TaskState::Complete, "{answer}: {}", stage.message());
    }
}

#[tokio::test(start_paused = true)]
async fn failures_over_the_limit_fail_the_task() {
    let mut stage = Stage::new(&errors(), MockCluster::new());
    for answer in ["0.5", "0.01"] {
        stage.answers(200, &vector(answer));
        let _ = stage.turn().await;
        assert_eq!(stage.state(), TaskState::Running);
        stage.restart();
        pass(30).await;
    }
    stage.answers(200, &vector("0.7"));
    let _ = stage.turn().await;
    assert_eq!(stage.state(), TaskState::Failed);
    let said = stage.message();
    assert!(said.starts_with("the query answered 0.7"), "{said}");
    assert!(said.contains("2 failures of at most 1"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn unresponsive_prometheus_fails_the_task_only_at_the_timeout() {
    let mut stage = Stage::new(&errors(), MockCluster::new());
    for _ in 0..60 {
        let _ = stage.turn().await;
        assert_eq!(stage.state(), TaskState::Running);
        pass(60).await;
    }
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Failed);
    let said = stage.message();
    assert!(said.contains("no success within 3600 s") && said.contains("did not answer in time"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn query_is_sent_once_more_after_an_unattended_timeout() {
    for (value, ends) in
        [(Some("0.01"), TaskState::Complete), (Some("0.1"), TaskState::Failed), (None, TaskState::Failed)]
    {
        let mut stage = Stage::new(&errors(), MockCluster::new());
        stage.answers(200, &vector("0.01"));
        for _ in 0..2 {
            let _ = stage.turn().await;
            pass(30).await;
        }
        stage.restart();
        pass(3600).await;
        *stage.peer.answer.lock().unwrap() = value.map(|value| (200, vector(value)));
        let _ = stage.look().await;
        assert_eq!((stage.state(), stage.sent()), (TaskState::Running, 2), "{value:?}");
        let _ = stage.turn().await;
        assert_eq!((stage.state(), stage.sent()), (ends, 3), "{value:?}: {}", stage.message());
    }
    // One that was not due yet was not missed.
    let mut stage = Stage::new(&errors(), MockCluster::new());
    let _ = stage.look().await;
    pass(3580).await;
    stage.answers(200, &vector("0.01"));
    let _ = stage.turn().await;
    stage.restart();
    pass(21).await;
    let _ = stage.look().await;
    assert_eq!((stage.state(), stage.sent()), (TaskState::Failed, 1));
    assert!(stage.message().contains("no success within 3600 s"), "{}", stage.message());
}
