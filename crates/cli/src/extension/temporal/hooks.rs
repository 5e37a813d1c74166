//! Carries out the hooks of `WorkerDeployments` with the tasks, the rules and the clients of fleets' hooks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use tokio::time::Instant;
use windlass_temporal::hooks::{HookContext, HookedObject, Hooks, HooksRejected};

use windlass::internal::Remembered;
use windlass::internal::{About, DeletedJobs, HookList, HookScope, JobOwner, Unfit, check_all, delete_jobs};
use windlass::internal::{HookOwner, HookProber, HttpClient, KeptConnections};
use windlass::internal::{HookRules, Values};
use windlass::operator::HookClient;
use windlass_clock::{SharedClock, monotonic};
use windlass_core::api::Hook;
use windlass_engine::{Env, Plan};
use windlass_kube_port::{Cluster, Key, Kind};

/// How soon a Job that the API server refused is checked again.
const JOB_RECHECK_INTERVAL: Duration = Duration::from_secs(50);

/// Carries out the hooks of `WorkerDeployments`.
pub struct WorkerHooks {
    rules: Arc<HookRules>,
    cluster: Arc<dyn Cluster>,
    prober: Arc<HookProber>,
    checked: Remembered<str, Verdict>,
    deleted: Arc<DeletedJobs>,
    /// The UIDs of the observed objects, which are the keys of cached data. Of a deleted object only the name is known.
    uids: Mutex<BTreeMap<Key, String>>,
    answered: Mutex<Vec<UnboundedSender<(String, String)>>>,
}

/// The result of the check of one generation's hooks.
#[derive(Clone)]
struct Verdict {
    generation: i64,
    at: Instant,
    found: Result<(), String>,
}

/// The client for the peers of hooks.
#[must_use]
pub fn peers() -> Arc<dyn HookClient> {
    Arc::new(HttpClient::new(KeptConnections::None))
}

impl WorkerHooks {
    /// Creates the hooks with these rules and this client for their peers.
    #[must_use]
    pub fn new(
        rules: HookRules,
        client: Arc<dyn HookClient>,
        cluster: Arc<dyn Cluster>,
        clock: SharedClock,
    ) -> Arc<Self> {
        let prober = HookProber::of_hooks(client, cluster.clone(), clock);
        Arc::new(Self {
            rules: Arc::new(rules),
            cluster,
            prober,
            checked: Remembered::default(),
            deleted: Arc::default(),
            uids: Mutex::default(),
            answered: Mutex::default(),
        })
    }

    /// Sends requests to the peers of hooks forever, and reports the objects that got a new answer.
    pub async fn run(&self) {
        self.prober.run(|owner| self.on_answer(owner.key())).await;
    }

    fn on_answer(&self, key: &Key) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.retain(|to| to.unbounded_send((key.namespace.clone(), key.name.clone())).is_ok());
    }

    /// Notes the UID of an object. An earlier object with its name no longer exists.
    fn see(&self, of: &HookedObject) {
        let key = Key::new(&of.namespace, &of.name);
        let before = self.uids.lock().unwrap_or_else(PoisonError::into_inner).insert(key, of.uid.clone());
        if let Some(earlier) = before.filter(|before| *before != of.uid) {
            self.forget_uid(&earlier);
        }
    }

    fn forget_uid(&self, uid: &str) {
        self.checked.forget(uid);
        self.deleted.forget(uid);
    }

    fn known(&self, of: &HookedObject) -> Option<Result<(), String>> {
        let verdict = self.checked.get(&of.uid).filter(|verdict| verdict.generation == of.generation)?;
        let holds = verdict.found.is_ok() || monotonic().duration_since(verdict.at) < JOB_RECHECK_INTERVAL;
        holds.then_some(verdict.found)
    }

    fn keep(&self, of: &HookedObject, found: Result<(), String>) {
        let verdict = Verdict { generation: of.generation, at: monotonic(), found };
        self.checked.put(&of.uid, verdict);
    }
}

fn owner(of: &HookedObject) -> JobOwner {
    JobOwner::itself(Kind::WorkerDeployment, &of.namespace, &of.name, &of.uid)
}

#[async_trait]
impl Hooks for WorkerHooks {
    async fn check(&self, of: &HookedObject, hooks: &[Hook]) -> Result<(), HooksRejected> {
        self.see(of);
        if let Some(found) = self.known(of) {
            return found.map_err(HooksRejected::Permanent);
        }
        let found = match check_all(self.cluster.as_ref(), &owner(of), hooks, &self.rules).await {
            Ok(()) => Ok(()),
            Err(Unfit::Refused(sentence)) => Err(sentence),
            Err(Unfit::Unknown { sentence, is_transient }) => {
                let refused = if is_transient { HooksRejected::Transient } else { HooksRejected::Permanent };
                return Err(refused(sentence));
            }
        };
        self.keep(of, found.clone());
        found.map_err(HooksRejected::Permanent)
    }

    fn equip(&self, env: Env, turn: HookContext) -> Env {
        self.see(&turn.of);
        let values = Values {
            fleet: Some(turn.of.name.clone()),
            namespace: Some(turn.of.namespace.clone()),
            image: Some(turn.image),
            from_hash: Some(turn.from_hash),
            target_hash: Some(turn.target_hash),
            set: Some(turn.build),
            ..Values::default()
        };
        env.with(self.deleted.clone()).with(HookScope {
            hooks: HookList::These(turn.hooks),
            owner: owner(&turn.of),
            values,
            rules: self.rules.clone(),
            cluster: self.cluster.clone(),
            prober: self.prober.clone(),
            approved: turn.approved.into_iter().collect(),
            about: About::Point(turn.about),
            skip: turn.skip,
            hold: turn.hold,
            awaits: None,
        })
    }

    async fn end(&self, of: &HookedObject, plan: &Plan) -> Result<(), String> {
        self.see(of);
        let deleted = delete_jobs(self.cluster.as_ref(), &owner(of), plan, &self.deleted).await;
        deleted.map_err(|error| format!("the Jobs of its hooks are not deleted yet: {error}"))
    }

    fn forget(&self, namespace: &str, name: &str) {
        let key = Key::new(namespace, name);
        let uid = self.uids.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        if let Some(uid) = uid {
            self.forget_uid(&uid);
        }
        self.prober.forget(&HookOwner::Fleet(key));
    }

    fn answered(&self) -> UnboundedReceiver<(String, String)> {
        let (sender, answered) = unbounded();
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        answered
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use windlass_sim::{Cluster as Simulated, Options};

    use super::*;
    use windlass_clock::SystemClock;
    use windlass_kube_port::{KubeCluster, View};

    fn orders(uid: &str) -> HookedObject {
        HookedObject {
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
            uid: uid.to_owned(),
            generation: 1,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn worker_hook_state_is_dropped_on_deletion_or_replacement() {
        let simulated = Simulated::start(Options::seeded(1));
        let cluster = Arc::new(KubeCluster::new(simulated.client("windlass", "shop"), View::shared()));
        let hooks = WorkerHooks::new(HookRules::default(), peers(), cluster, Arc::new(SystemClock));
        let is_kept = |uid: &str| (hooks.known(&orders(uid)).is_some(), hooks.deleted.has(uid, "job"));
        for uid in ["a", "b"] {
            hooks.check(&orders(uid), &[]).await.unwrap();
            hooks.deleted.put(uid, "job");
            assert_eq!(is_kept(uid), (true, true), "{uid}");
        }
        assert_eq!(is_kept("a"), (false, false), "another object has its name");
        hooks.forget("shop", "others");
        assert_eq!(is_kept("b"), (true, true));
        hooks.forget("shop", "orders");
        assert_eq!(is_kept("b"), (false, false));
        assert!(hooks.uids.lock().unwrap().is_empty());
    }
}
