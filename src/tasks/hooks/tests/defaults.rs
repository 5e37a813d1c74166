//! The defaults of hooks.

use super::*;
use crate::api::OnHookFailure;

const SCALAR: &str = r#"{"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}}"#;

fn bare(action: &Value) -> Value {
    let mut hook = json!({"name": "h", "at": "BeforeNode"});
    hook.as_object_mut().unwrap().extend(action.as_object().unwrap().clone());
    hook
}

fn http() -> Value {
    bare(&json!({"http": {"url": "http://peer/"}}))
}

fn query() -> Value {
    bare(&json!({"query": {"promql": "1", "success": "scalar == 1.0", "failure": "scalar == 2.0"}}))
}

fn job() -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "backup:1"}]});
    bare(&json!({"job": {"template": {"template": {"spec": pod}}}}))
}

/// Requests, Jobs and queries time out after ten minutes; approvals and waits do not time out.
#[tokio::test(start_paused = true)]
async fn default_timeout_is_ten_minutes_except_for_approval_and_wait() {
    for hook in [http(), query(), job()] {
        let mut stage = Stage::new(&hook, jobs::cluster().0);
        let _ = stage.look().await;
        pass(599).await;
        let _ = stage.turn().await;
        assert_eq!(stage.state(), TaskState::Running, "{hook}");
        pass(1).await;
        let _ = stage.look().await;
        assert_eq!(stage.state(), TaskState::Failed, "{hook}");
        assert!(stage.message().contains("no success within 600 s"), "{}", stage.message());
        let hook: Hook = serde_json::from_value(hook).unwrap();
        assert_eq!(hook.on_failure(), OnHookFailure::Hold);
    }
    for action in [json!({"approval": {}}), json!({"wait": {"seconds": 864_000}})] {
        let mut stage = Stage::new(&bare(&action), MockCluster::new());
        let _ = stage.look().await;
        pass(800_000).await;
        let _ = stage.look().await;
        assert_eq!(stage.state(), TaskState::Running, "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn default_request_is_get_every_five_seconds_and_accepts_2xx() {
    let mut stage = Stage::new(&http(), MockCluster::new());
    for status in [199, 300, 404, 500] {
        stage.answers(status, "");
        let waits = stage.turn().await;
        assert_eq!((stage.state(), again(&waits)), (TaskState::Running, Duration::from_secs(5)), "{status}");
        pass(4).await;
        let sent = stage.sent();
        let _ = stage.turn().await;
        assert_eq!(stage.sent(), sent, "not before five seconds have passed");
        pass(1).await;
    }
    {
        let sent = stage.peer.sent.lock().unwrap();
        assert_eq!((sent[0].method.as_str(), sent[0].timeout), ("GET", Duration::from_secs(5)));
        assert!(sent[0].body.is_empty());
    }
    stage.answers(299, "");
    let _ = stage.turn().await;
    assert_eq!(stage.state(), TaskState::Complete);
}

#[tokio::test(start_paused = true)]
async fn default_query_runs_every_thirty_seconds_and_needs_one_answer() {
    for (answer, ends) in
        [(SCALAR.to_owned(), TaskState::Complete), (SCALAR.replace("\"1\"", "\"2\""), TaskState::Failed)]
    {
        let mut stage = Stage::new(&query(), MockCluster::new());
        stage.answers(200, &SCALAR.replace("\"1\"", "\"3\""));
        let waits = stage.turn().await;
        assert_eq!((stage.state(), again(&waits)), (TaskState::Running, Duration::from_secs(30)));
        stage.answers(200, &answer);
        pass(29).await;
        let _ = stage.turn().await;
        assert_eq!(stage.sent(), 1, "not before thirty seconds have passed");
        pass(1).await;
        let _ = stage.turn().await;
        assert_eq!(stage.state(), ends, "{answer}: {}", stage.message());
    }
}
