//! The sidecars of all pods, in this process: what the operator asks and what the kubelet probes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass::clock::monotonic;
use windlass::sidecar::{SidecarClient, SidecarError, Status, TaskAnswer, TaskRequest, TaskState, TaskType};
use windlass_sim::kubelet::Probe;

/// How sidecars behave.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Manner {
    /// As they should.
    #[default]
    Well,
    /// They do not answer.
    Dead,
    /// They answer 503.
    Failing,
    /// They take tasks and say Ready, and stay out of service.
    Lying,
    /// They do what they are asked, and answer after a second.
    Late,
    /// They do what they are asked, and every answer to a task is an error.
    Mute,
    /// What is sent to them is dropped on the way: nothing is ever answered.
    Swallowing,
}

#[derive(Clone, Debug, Default)]
struct State {
    manner: Manner,
    /// The hosts that were marked ready.
    ready: BTreeSet<String>,
    /// The hosts that claim it without being so.
    claimed: BTreeSet<String>,
    /// By host and task: the height that an application is to halt at, and when it was first asked.
    halts: BTreeMap<String, BTreeMap<String, (i64, Instant)>>,
    effects: u32,
}

/// The height that applications are at until they are asked to halt, and what they gain in a second from then on.
const HEIGHT: i64 = 500;
const PACE: i64 = 100;
/// How long a client of a sidecar waits for an answer.
const TIME_OUT: Duration = Duration::from_secs(2);

impl State {
    /// The height that the application of a host is at, and whether it halted there.
    fn height(&self, host: &str) -> (i64, bool) {
        let Some(halts) = self.halts.get(host) else { return (HEIGHT, false) };
        let Some((height, since)) = halts.values().min_by_key(|(height, since)| (*since, *height)) else {
            return (HEIGHT, false);
        };
        let gained = monotonic().duration_since(*since).as_secs() as i64 * PACE;
        ((HEIGHT + gained).min(*height), HEIGHT + gained >= *height)
    }
}

/// All sidecars.
#[derive(Clone, Debug, Default)]
pub struct Sidecars {
    state: Arc<Mutex<State>>,
    /// Told whenever the kubelet may hear another answer than before.
    news: Arc<Notify>,
}

fn host(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    rest.split(['/', ':']).next().unwrap_or_default().to_owned()
}

impl Sidecars {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on they behave so.
    pub fn behave(&self, manner: Manner) {
        self.with(|state| {
            state.manner = manner;
            state.claimed.clear();
        });
        self.news.notify_waiters();
    }

    /// Others that know what these know now.
    pub fn copy(&self) -> Self {
        Self { state: Arc::new(Mutex::new(self.with(|state| state.clone()))), news: Arc::default() }
    }

    /// How the kubelet asks them.
    pub fn probe(&self) -> Probe {
        let this = self.clone();
        Arc::new(move |url| {
            // The kubelet is on the same machine, which no network comes between.
            let ready = this.with(|state| state.manner != Manner::Dead && state.ready.contains(&host(&url)));
            std::future::ready(ready).boxed()
        })
    }

    /// What the kubelet need not ask before.
    pub fn news(&self) -> Arc<Notify> {
        self.news.clone()
    }

    async fn manner(&self, url: &str) -> Result<Manner, SidecarError> {
        let manner = self.with(|state| state.manner);
        match manner {
            Manner::Dead => Err(SidecarError::Unreachable(format!("the sidecar at {url} did not answer"))),
            Manner::Failing => Err(SidecarError::Refused {
                status: 503,
                message: format!("the sidecar at {url} answered 503"),
            }),
            Manner::Swallowing => {
                tokio::time::sleep(TIME_OUT).await;
                Err(SidecarError::Unreachable(format!("the sidecar at {url} did not answer in time")))
            }
            Manner::Late => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(manner)
            }
            Manner::Well | Manner::Lying | Manner::Mute => Ok(manner),
        }
    }
}

#[async_trait]
impl SidecarClient for Sidecars {
    async fn status(&self, base_url: &str) -> Result<Status, SidecarError> {
        self.manner(base_url).await?;
        let host = host(base_url);
        Ok(self.with(|state| {
            let ready = state.ready.contains(&host) || state.claimed.contains(&host);
            let (height, halted) = state.height(&host);
            Status { ready, caught_up: ready, height: Some(height), halted }
        }))
    }

    async fn submit<'a>(
        &self,
        base_url: &str,
        request: &TaskRequest,
        _token: Option<&'a str>,
    ) -> Result<(), SidecarError> {
        let manner = self.manner(base_url).await?;
        let host = host(base_url);
        self.with(|state| {
            state.effects += 1;
            if request.kind == TaskType::HaltAtHeight {
                let asked = (request.height().unwrap_or_default(), monotonic());
                state.halts.entry(host).or_default().entry(request.id.clone()).or_insert(asked);
                return false;
            }
            if manner == Manner::Lying { state.claimed.insert(host) } else { state.ready.insert(host) }
        });
        self.news.notify_waiters();
        if manner == Manner::Mute {
            return Err(SidecarError::Unreachable(format!("the sidecar at {base_url} hung up")));
        }
        Ok(())
    }

    async fn task(&self, base_url: &str, id: &str) -> Result<Option<TaskAnswer>, SidecarError> {
        self.manner(base_url).await?;
        let host = host(base_url);
        Ok(self.with(|state| {
            let is_halt = state.halts.get(&host).is_some_and(|halts| halts.contains_key(id));
            if !is_halt && !state.ready.contains(&host) && !state.claimed.contains(&host) {
                return None;
            }
            let runs = is_halt && !state.height(&host).1;
            let state = if runs { TaskState::Running } else { TaskState::Complete };
            Some(TaskAnswer { id: id.to_owned(), state, message: String::new() })
        }))
    }
}
