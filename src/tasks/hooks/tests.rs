use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::*;
use crate::api::names::ANNOTATION_TASK;
use crate::clock::Clock;
use crate::engine::{Advance, Env, Plan, Recipe, Registry, TaskState, advance};
use crate::hooks::{Host, PrometheusUrl};
use crate::probe::hooks::{HookClient, HookReply, HookRequest};
use crate::tasks::hooks::DeletedJobs;
use windlass_kube_port::ClusterError;
use windlass_kube_port::MockCluster;

mod defaults;
mod jobs;
mod probes;

/// A fake peer: what it answers now, and the requests that it received.
#[derive(Default)]
struct Peer {
    answer: Mutex<Option<(u16, String)>>,
    sent: Mutex<Vec<HookRequest>>,
}

#[async_trait::async_trait]
impl HookClient for Peer {
    async fn send(&self, request: HookRequest) -> Result<HookReply, String> {
        self.sent.lock().unwrap().push(request);
        let answer = self.answer.lock().unwrap().clone();
        let (status, body) = answer.ok_or("did not answer in time")?;
        Ok(HookReply { status, body: body.into_bytes(), ..HookReply::default() })
    }
}

/// A clock that advances with tokio's.
struct Moved(tokio::time::Instant);

fn epoch() -> DateTime<Utc> {
    DateTime::from_timestamp(1_900_000_000, 0).unwrap()
}

impl Clock for Moved {
    fn now(&self) -> DateTime<Utc> {
        epoch() + TimeDelta::from_std(self.0.elapsed()).unwrap()
    }
}

/// A plan with one hook, and everything that it needs to run.
struct Stage {
    plan: Plan,
    scope: HookScope,
    peer: Arc<Peer>,
    clock: Arc<Moved>,
    deleted: Arc<DeletedJobs>,
}

/// The spec of a fleet with this hook.
fn listing(hook: Hook) -> Arc<crate::api::NodeDeploymentSpec> {
    let mut spec = crate::api::NodeDeploymentSpec::default();
    spec.update_strategy.hooks = vec![hook];
    Arc::new(spec)
}

impl Stage {
    /// Must be called in a runtime whose time is paused.
    #[allow(clippy::disallowed_methods, reason = "time is paused: this is the clock of the test")]
    fn new(hook: &Value, cluster: MockCluster) -> Self {
        let hook: Hook = serde_json::from_value(hook.clone()).unwrap();
        let type_ = hook.action().unwrap().task_type();
        let recipe = Recipe::parse(&format!(
            "{{name: Test, tasks: [{{type: {type_}, params: {{hook: {}}}}}]}}",
            hook.name
        ));
        let seed = crate::engine::PlanSeed {
            uid: "uid",
            target_hash: "v1:2",
            now: epoch(),
            attempt: 0,
            disambiguator: "",
        };
        let (cluster, peer) = (Arc::new(cluster), Arc::new(Peer::default()));
        let clock = Arc::new(Moved(tokio::time::Instant::now()));
        let prober = HookProber::of_hooks(peer.clone(), cluster.clone(), clock.clone());
        let rules = HookRules {
            hosts: [Host::parse("peer").unwrap()].into(),
            prometheus: Some(PrometheusUrl::parse("http://prometheus").unwrap()),
            ..HookRules::default()
        };
        let scope = HookScope {
            about: About::EveryPoint,
            hooks: HookList::Fleet(listing(hook)),
            owner: JobOwner {
                kind: Kind::StatefulNode,
                namespace: "shop".to_owned(),
                name: "db-0".to_owned(),
                uid: "uid-0".to_owned(),
                fleet: "db".to_owned(),
            },
            values: Values {
                pod_ip: Some("10.0.0.7".to_owned()),
                node: Some("db-0".to_owned()),
                ..Values::default()
            },
            rules: Arc::new(rules),
            cluster,
            prober,
            approved: Vec::new(),
            skip: None,
            hold: None,
            awaits: None,
        };
        Self { plan: recipe.unwrap().plan(seed), scope, peer, clock, deleted: Arc::default() }
    }

    fn answers(&self, status: u16, body: &str) {
        *self.peer.answer.lock().unwrap() = Some((status, body.to_owned()));
    }

    fn sent(&self) -> usize {
        self.peer.sent.lock().unwrap().len()
    }

    /// One reconcile.
    async fn look(&mut self) -> Advance {
        let env = Env::new().with(self.scope.clone()).with(self.deleted.clone());
        advance(&mut self.plan, &Registry::new(), &env, self.clock.now(), 600).await
    }

    /// A reconcile, then the requests that it asked for, then another reconcile.
    async fn turn(&mut self) -> Advance {
        let _ = self.look().await;
        self.scope.prober.answer_all().await;
        self.look().await
    }

    /// The operator dies, and another one reads what was persisted.
    fn restart(&mut self) {
        let stored = self.plan.to_value().to_string();
        self.plan = Plan::from_value(&serde_json::from_str(&stored).unwrap()).unwrap();
        let prober = HookProber::of_hooks(self.peer.clone(), self.scope.cluster.clone(), self.clock.clone());
        self.scope.prober = prober;
        self.deleted = Arc::default();
    }

    fn state(&self) -> TaskState {
        self.plan.tasks[0].state
    }

    fn message(&self) -> &str {
        &self.plan.tasks[0].message
    }

    fn id(&self) -> String {
        self.plan.tasks[0].id.clone()
    }
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

fn again(advance: &Advance) -> Duration {
    let Advance::Waiting { recheck_after: Some(again) } = advance else { panic!("{advance:?}") };
    *again
}

#[tokio::test(start_paused = true)]
async fn params_are_the_hook_name_and_position() {
    let read = |params: &str| {
        let yaml = format!("{{name: T, tasks: [{{type: call-http, params: {params}}}]}}");
        Recipe::parse(&yaml).unwrap().check(&Registry::new())
    };
    assert_eq!(read("{hook: drain}"), Ok(()));
    assert_eq!(read("{hook: drain, at: AfterStep, step: 1}"), Ok(()));
    assert!(read("{}").is_err());
    assert!(read("{hook: drain, of: x}").is_err());
    let types: Vec<&str> = Registry::new().task_types().collect();
    for type_ in ["await-approval", "call-http", "check-query", "run-job", "wait"] {
        assert!(types.contains(&type_), "{types:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn task_without_work_is_skipped_with_the_reason() {
    let drain = json!({"name": "drain", "at": "BeforeNode", "http": {"url": "http://peer/"}});
    let mut gone = Stage::new(&drain, MockCluster::new());
    gone.scope.hooks = HookList::Fleet(Arc::default());
    let _ = gone.look().await;
    assert_eq!(gone.state(), TaskState::Skipped);
    assert!(gone.message().contains("no hook drain"), "{}", gone.message());
    let mut other = Stage::new(&drain, MockCluster::new());
    let wait = json!({"name": "drain", "at": "BeforeNode", "wait": {"seconds": 1}});
    other.scope.hooks = HookList::Fleet(listing(serde_json::from_value(wait).unwrap()));
    let _ = other.look().await;
    assert_eq!(other.state(), TaskState::Skipped);
    let mut broken = Stage::new(&drain, MockCluster::new());
    broken.scope.skip = Some("its container does not run".to_owned());
    let _ = broken.look().await;
    assert_eq!((broken.state(), broken.message()), (TaskState::Skipped, "its container does not run"));
    assert_eq!(gone.sent() + other.sent() + broken.sent(), 0);
}

#[tokio::test(start_paused = true)]
async fn wait_continues_across_operator_restarts() {
    let hook = json!({"name": "soak", "at": "AfterStep", "wait": {"seconds": 300}});
    let mut stage = Stage::new(&hook, MockCluster::new());
    assert_eq!(again(&stage.look().await), Duration::from_mins(5));
    assert!(stage.message().contains("300 s"), "{}", stage.message());
    pass(100).await;
    stage.restart();
    assert_eq!(again(&stage.look().await), Duration::from_secs(200));
    pass(199).await;
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Running);
    pass(1).await;
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Complete);
}

#[tokio::test(start_paused = true)]
async fn approval_hook_waits_until_its_task_is_approved() {
    let hook = json!({"name": "go", "at": "BeforePromotion", "approval": {}});
    let mut stage = Stage::new(&hook, MockCluster::new());
    let _ = stage.look().await;
    let (id, said) = (stage.id(), stage.message().to_owned());
    assert!(said.contains("windlass approve nd/db") && said.contains(&id), "{said}");
    pass(864_000).await;
    stage.scope.approved = vec!["0000000000-0".to_owned()];
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Running);
    stage.scope.approved.push(id);
    let _ = stage.look().await;
    assert_eq!(stage.state(), TaskState::Complete);
    let hook = json!({"name": "go", "at": "BeforePromotion", "timeoutSeconds": 60, "approval": {}});
    let mut late = Stage::new(&hook, MockCluster::new());
    let _ = late.look().await;
    pass(60).await;
    let _ = late.look().await;
    assert_eq!(late.state(), TaskState::Failed);
    assert!(late.message().contains("no success within 60 s; nobody approved"), "{}", late.message());
}
