//! Hooks of rollouts.

use serde_json::{Value, json};
use windlass_temporal::port::{BuildId, Percent, RoutingWrite};

use crate::fake_hooks::HookResult;
use crate::stage::{NAME, Stage, deployment, spec};

fn http(name: &str, at: &str) -> Value {
    json!({"name": name, "at": at, "http": {"url": "http://peer/"}})
}

fn approval(name: &str, at: &str) -> Value {
    json!({"name": name, "at": at, "approval": {}})
}

/// Two steps, of which the first stops for hooks.
fn hooked(hooks: &Value) -> Value {
    let mut spec = spec("v1");
    spec["hooks"] = hooks.clone();
    spec["rollout"]["steps"][0]["hooks"] = json!(true);
    spec
}

async fn second(hooks: &Value) -> (Stage, BuildId) {
    let s = Stage::new();
    s.create(spec("v1")).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    s.patch(json!({"spec": {"hooks": hooks, "rollout": hooked(hooks)["rollout"]}})).await;
    (s, v1)
}

fn types(s: &Stage) -> Vec<String> {
    let tasks = s.status()["plan"]["tasks"].as_array().cloned().unwrap_or_default();
    let name = |task: &Value| task["params"]["hook"].as_str().or(task["type"].as_str()).unwrap().to_owned();
    tasks.iter().map(name).collect()
}

fn last(s: &Stage) -> Value {
    s.status()["history"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn hooks_run_at_their_points_and_rollout_ends_after_the_last() {
    let hooks = json!([
        http("last", "AfterRollout"),
        http("first", "BeforeRollout"),
        http("look", "AfterStep"),
        approval("person", "BeforePromotion"),
    ]);
    let (s, v1) = second(&hooks).await;
    s.hooks.done(&["first", "look"]);
    let v2 = s.roll_to("v2").await;
    s.until("a person is asked", |s| s.status()["hooks"][0]["state"] == "AwaitingApproval").await;
    s.seconds(1).await;
    assert_eq!(
        types(&s),
        [
            "first",
            "create-version",
            "await-available",
            "await-registered",
            "claim-manager",
            "ramp",
            "look",
            "ramp",
            "person",
            "set-current",
            "last"
        ]
    );
    assert_eq!(s.status()["currentBuildID"], v1.as_str());
    assert_eq!(
        (s.events("ApprovalRequested"), s.hooks.ran()),
        (1, vec!["first".into(), "look".into(), "person".into()])
    );
    let task = s.status()["hooks"][0]["taskID"].as_str().unwrap().to_owned();
    s.annotate("windlass.dev/approve", &task).await;
    s.until("it is current", |s| s.status()["currentBuildID"] == v2.as_str()).await;
    s.seconds(60).await;
    assert_ne!(
        s.status()["lastCompletedRolloutHash"],
        s.status()["requestedRolloutHash"],
        "its last hook waits"
    );
    assert_ne!(s.condition("UpToDate"), "True/Applied");
    s.hooks.done(&["last"]);
    s.until_current(&v2).await;
    assert_eq!(last(&s)["outcome"], "Complete");
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn failed_hook_holds_the_rollout_until_retry() {
    let (s, v1) = second(&json!([http("look", "AfterStep")])).await;
    s.hooks.set_result("look", HookResult::Fails("answered 500".into()));
    let v2 = s.roll_to("v2").await;
    s.until("it has failed", |s| s.condition("UpToDate") == "False/HookFailed").await;
    let message = s.message("UpToDate");
    assert!(
        message.contains("hook look failed: answered 500") && message.contains("windlass retry wwd/"),
        "{message}"
    );
    s.seconds(120).await;
    assert_eq!((s.condition("Stalled"), s.events("HookFailed")), ("True/HookFailed".into(), 1));
    assert_eq!(
        (s.status()["currentBuildID"].clone(), s.status()["rampPercent"].clone()),
        (json!(v1.as_str()), json!(5))
    );
    let plan = s.status()["plan"]["id"].as_str().unwrap().to_owned();
    s.annotate("windlass.dev/retry", &plan).await;
    s.until("it has failed once more", |s| {
        s.status()["plan"]["tasks"][5]["attempt"] == 2 && s.condition("UpToDate") == "False/HookFailed"
    })
    .await;
    s.seconds(5).await;
    assert_eq!(s.events("HookFailed"), 2, "once for each attempt");
    s.hooks.done(&["look"]);
    s.annotate("windlass.dev/retry", &format!("{plan}/2")).await;
    s.until_current(&v2).await;
}

#[tokio::test(start_paused = true)]
async fn on_failure_decides_the_effect_of_a_failed_hook() {
    for (on_failure, outcome) in [("Rollback", "RolledBack"), ("Continue", "Complete")] {
        let mut hook = http("look", "AfterStep");
        hook["onFailure"] = json!(on_failure);
        let (s, v1) = second(&json!([hook])).await;
        s.hooks.set_result("look", HookResult::Fails("answered 500".into()));
        let v2 = s.roll_to("v2").await;
        s.until("it is over", |s| last(s)["outcome"] == outcome).await;
        if on_failure == "Rollback" {
            s.until("its ramp is gone", |s| s.status()["rampingBuildID"].is_null()).await;
            assert_eq!(s.status()["currentBuildID"], v1.as_str());
            assert_eq!(
                (s.condition("UpToDate"), last(&s)["reason"].clone()),
                ("False/RolledBack".into(), json!("HookFailed"))
            );
            assert!(s.message("UpToDate").contains("hook look: answered 500"), "{}", s.message("UpToDate"));
            assert_eq!(s.hooks.ended().len(), 1, "what its hooks began is ended");
            s.seconds(120).await;
            assert_eq!(s.status()["currentBuildID"], v1.as_str(), "it is not tried again by itself");
        } else {
            s.until_current(&v2).await;
            assert!(s.events("HookFailed") > 0);
            assert_eq!(s.status()["plan"]["tasks"][5]["state"], "Skipped");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pending_hook_can_be_skipped() {
    let (s, _) = second(&json!([approval("person", "BeforePromotion")])).await;
    let v2 = s.roll_to("v2").await;
    s.until("a person is asked", |s| s.status()["hooks"][0]["hook"] == "person").await;
    let task = s.status()["hooks"][0]["taskID"].as_str().unwrap().to_owned();
    s.annotate("windlass.dev/skip", &task).await;
    s.until_current(&v2).await;
    assert_eq!(s.status()["hooks"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn hook_list_change_applies_at_once_to_pending_tasks() {
    let (s, _) = second(&json!([http("look", "AfterStep"), http("gone", "BeforePromotion")])).await;
    let v2 = s.roll_to("v2").await;
    s.until("the first waits", |s| s.message("UpToDate").contains("hook look")).await;
    let hooks =
        json!([http("look", "AfterStep"), http("came", "BeforePromotion"), http("before", "BeforeRollout")]);
    s.patch(json!({"spec": {"hooks": hooks}})).await;
    s.until("the plan follows", |s| types(s).contains(&"came".to_owned())).await;
    assert!(
        !types(&s).contains(&"gone".to_owned()) && !types(&s).contains(&"before".to_owned()),
        "{:?}",
        types(&s)
    );
    assert_eq!(types(&s).iter().filter(|type_| *type_ == "ramp").count(), 2);
    s.hooks.done(&["look", "came"]);
    s.until_current(&v2).await;
    assert_eq!(s.hooks.ran(), ["look", "came"]);
}

#[tokio::test(start_paused = true)]
async fn rollback_waits_for_no_hook() {
    let (s, v1) = second(&json!([http("first", "BeforeRollout"), http("look", "AfterStep")])).await;
    s.hooks.done(&["first", "look"]);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.hooks.set_result("first", HookResult::Fails("never".into()));
    assert_eq!(s.roll_to("v1").await, v1);
    s.until_current(&v1).await;
}

#[tokio::test(start_paused = true)]
async fn ramp_is_kept_at_its_step_while_a_hook_runs() {
    let (s, _) = second(&json!([http("look", "AfterStep")])).await;
    let v2 = s.roll_to("v2").await;
    s.until("the hook waits", |s| s.message("UpToDate").contains("hook look")).await;
    let by_hand = RoutingWrite::Ramp { to: v2.clone(), percent: Percent(77.0) };
    s.temporal.by_hand(&deployment(), &by_hand).unwrap();
    s.until("it is put back", |s| s.ramps().last() == Some(&5) && s.events("RampRestored") == 1).await;
    s.hooks.done(&["look"]);
    s.until_current(&v2).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_hooks_are_refused_before_any_change() {
    let (s, v1) = second(&json!([http("first", "BeforeRollout")])).await;
    s.hooks.refuse(Some("hook first: http.url has host peer, which is not allowed"));
    s.hooks.done(&["first"]);
    s.set_image("v2").await;
    s.until("it is refused", |s| s.condition("UpToDate") == "False/InvalidSpec").await;
    assert!(s.message("UpToDate").contains("hook first"), "{}", s.message("UpToDate"));
    s.seconds(60).await;
    assert_eq!((s.deployments().len(), s.status()["currentBuildID"].clone()), (1, json!(v1.as_str())));
    s.hooks.refuse(None);
    let v2 = s.target().await;
    s.until_current(&v2).await;
}

#[tokio::test(start_paused = true)]
async fn api_server_rejects_invalid_hooks() {
    let s = Stage::new();
    let two = json!({"name": "a", "at": "BeforeRollout", "approval": {}, "wait": {"seconds": 1}});
    let back = json!({"name": "a", "at": "AfterRollout", "onFailure": "Rollback", "approval": {}});
    for (hooks, steps, sentence) in [
        (json!([http("a", "BeforeNode")]), true, "apply to nodes only"),
        (json!([http("a", "AfterPromotion")]), true, "apply to nodes only"),
        (json!([http("a", "AfterStep")]), false, "a step of spec.rollout.steps with hooks: true"),
        (
            json!([http("a", "BeforeRollout"), http("a", "AfterRollout")]),
            true,
            "two hooks with the same name",
        ),
        (json!([http("A", "BeforeRollout")]), true, "lowercase letters"),
        (json!([{"name": "a", "at": "BeforeRollout"}]), true, "exactly one of"),
        (json!([two]), true, "exactly one of"),
        (json!([back]), true, "not possible at AfterRollout"),
    ] {
        let mut spec = hooked(&hooks);
        if !steps {
            spec["rollout"]["steps"][0]["hooks"] = json!(false);
        }
        let error = s.try_create(spec).await.unwrap_err().to_string();
        assert!(error.contains(sentence), "{hooks}: {error}");
    }
    assert!(s.object().is_none(), "{NAME}");
}

#[tokio::test(start_paused = true)]
async fn deletion_ends_the_plan_with_a_history_entry() {
    let (s, _) = second(&json!([http("look", "AfterStep")])).await;
    s.roll_to("v2").await;
    s.until("the hook waits", |s| s.message("UpToDate").contains("hook look")).await;
    let plan = s.status()["plan"]["id"].as_str().unwrap().to_owned();
    let (watched, seen) = (s.status()["history"].as_array().unwrap().len(), plan.clone());
    s.delete().await;
    s.until("it is told of", |s| {
        s.object().is_none() || s.status()["history"].as_array().is_some_and(|all| all.len() == watched + 1)
    })
    .await;
    assert_eq!((last(&s)["planID"].clone(), last(&s)["reason"].clone()), (json!(seen), json!("Terminating")));
    assert_eq!(s.hooks.ended(), [plan]);
}

#[tokio::test(start_paused = true)]
async fn unstoppable_hooks_block_only_their_own_rollout() {
    let hooks = json!([http("first", "BeforeRollout")]);
    let (s, v1) = second(&hooks).await;
    s.hooks.done(&["first"]);
    s.temporal.start(&deployment(), "long", None, 99.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.hooks.set_result("first", HookResult::Fails("no".into()));
    s.set_image("v3").await;
    s.until("it is held", |s| s.condition("UpToDate") == "False/HookFailed").await;
    let sentence = "the Jobs of its hooks are not deleted yet: a webhook is away";
    s.hooks.go_on(Some(sentence));
    let plan = s.status()["plan"]["id"].as_str().unwrap().to_owned();
    s.annotate("windlass.dev/abort", &plan).await;
    s.until("it is said", |s| s.events("ApplyFailed") == 1).await;
    s.temporal.end("long");
    s.until("v1 goes", |s| s.deployment_of(&v1).is_none() && s.record(&v1).is_null()).await;
    assert_eq!((s.status()["plan"]["state"].clone(), s.events("ApplyFailed")), (json!("Active"), 1));
    s.hooks.go_on(None);
    s.until("it is aborted", |s| last(s)["outcome"] == "Aborted").await;
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn deleted_worker_deployment_reports_unstoppable_hooks() {
    let hooks = json!([http("first", "BeforeRollout")]);
    let (s, _) = second(&hooks).await;
    s.set_image("v2").await;
    s.until("the hook is waited for", |s| s.message("UpToDate").contains("hook first: it was asked")).await;
    s.hooks.go_on(Some("the Jobs of its hooks are not deleted yet: a webhook is away"));
    s.delete().await;
    s.until("it is said", |s| s.message("Reconciling").contains("a webhook is away")).await;
    assert!(s.message("Reconciling").contains("windlass delete wwd/"), "{}", s.message("Reconciling"));
    s.seconds(300).await;
    assert!(s.object().is_some());
    s.annotate("windlass.dev/delete", "now").await;
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn panic_in_a_reconcile_is_retried() {
    let (s, _) = second(&json!([http("first", "BeforeRollout")])).await;
    s.hooks.done(&["first"]);
    s.hooks.panic_once();
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    assert!(s.hooks.has_panicked());
}
