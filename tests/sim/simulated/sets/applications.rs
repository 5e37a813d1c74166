//! Fake applications and their sidecars: they catch up and reach heights on the test's command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::FutureExt;
use windlass::sidecar::{
    SidecarClient, SidecarError, SidecarTaskType, Status, TaskAnswer, TaskRequest, TaskState,
};
use windlass_sim::kubelet::Probe;

#[derive(Debug, Default)]
struct FakeApplications {
    /// The height of every application.
    height: i64,
    /// True if applications catch up by themselves.
    caught_up: bool,
    /// The hosts whose height is unknown.
    without_height: BTreeSet<String>,
    /// The host of the application that says that it is the primary.
    primary: String,
    /// True if sidecars do not answer.
    dead: bool,
    ready: BTreeSet<String>,
    /// By host: task and height.
    halts: BTreeMap<String, BTreeMap<String, i64>>,
    /// How often a task was accepted for the first time.
    effects: usize,
    /// The number of requests to sidecars.
    requests: usize,
}

/// All applications and their sidecars.
#[derive(Clone, Debug, Default)]
pub struct Applications(Arc<Mutex<FakeApplications>>);

fn host(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    rest.split(['/', ':']).next().unwrap_or_default().to_owned()
}

impl Applications {
    fn with<T>(&self, f: impl FnOnce(&mut FakeApplications) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applications that have caught up as soon as they run.
    pub fn caught_up() -> Self {
        let this = Self::default();
        this.catch_up(true);
        this
    }

    pub fn catch_up(&self, caught_up: bool) {
        self.with(|played| played.caught_up = caught_up);
    }

    pub fn reach(&self, height: i64) {
        self.with(|played| played.height = height);
    }

    /// Hides the heights of these hosts.
    pub fn hide_height(&self, hosts: &[&str]) {
        self.with(|played| played.without_height = hosts.iter().map(|host| (*host).to_owned()).collect());
    }

    /// Makes the application on this host the only primary.
    pub fn elect(&self, host: &str) {
        self.with(|played| host.clone_into(&mut played.primary));
    }

    /// Every sidecar forgets that it was marked ready, as a new process of it would.
    pub fn forget_ready(&self) {
        self.with(|played| played.ready.clear());
    }

    pub fn die(&self, dead: bool) {
        self.with(|played| played.dead = dead);
    }

    /// The requested heights of halts, and by how many.
    pub fn halts(&self) -> Vec<i64> {
        self.with(|played| played.halts.values().flat_map(BTreeMap::values).copied().collect())
    }

    /// The number of the operator's requests.
    pub fn requests(&self) -> usize {
        self.with(|played| played.requests)
    }

    /// The kubelet's probe.
    pub fn probe(&self) -> Probe {
        let this = self.clone();
        Arc::new(move |url| std::future::ready(this.with(|p| p.ready.contains(&host(&url)))).boxed())
    }

    fn answer(&self, url: &str) -> Result<String, SidecarError> {
        self.with(|played| played.requests += 1);
        if self.with(|played| played.dead) {
            return Err(SidecarError::Unreachable(format!("the sidecar at {url} did not answer")));
        }
        Ok(host(url))
    }
}

#[async_trait]
impl SidecarClient for Applications {
    async fn status(&self, base_url: &str) -> Result<Status, SidecarError> {
        let host = self.answer(base_url)?;
        Ok(self.with(|played| {
            let halts = played.halts.get(&host);
            let halted = halts.is_some_and(|h| h.values().any(|height| played.height >= *height));
            let ready = played.ready.contains(&host);
            let height = (!played.without_height.contains(&host)).then_some(played.height);
            let role = if played.primary == host { "primary" } else { "replica" };
            let role = (!played.primary.is_empty()).then(|| role.to_owned());
            Status { ready, caught_up: played.caught_up, height, halted, role }
        }))
    }

    async fn submit<'a>(
        &self,
        base_url: &str,
        request: &TaskRequest,
        _token: Option<&'a str>,
    ) -> Result<(), SidecarError> {
        let host = self.answer(base_url)?;
        self.with(|played| {
            let is_new = match request.kind {
                SidecarTaskType::MarkReady => played.ready.insert(host),
                SidecarTaskType::HaltAtHeight => {
                    let halts = played.halts.entry(host).or_default();
                    halts.insert(request.id.clone(), request.height().unwrap()).is_none()
                }
            };
            played.effects += usize::from(is_new);
        });
        Ok(())
    }

    async fn task(&self, base_url: &str, id: &str) -> Result<Option<TaskAnswer>, SidecarError> {
        let host = self.answer(base_url)?;
        Ok(self.with(|played| {
            let height = *played.halts.get(&host)?.get(id)?;
            let state = if played.height >= height { TaskState::Complete } else { TaskState::Running };
            Some(TaskAnswer { id: id.to_owned(), state, message: String::new() })
        }))
    }
}
