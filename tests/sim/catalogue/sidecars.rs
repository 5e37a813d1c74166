//! The sidecars of all pods, in this process, for the operator's requests and the kubelet's probes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass::clock::monotonic;
use windlass::sidecar::{
    SidecarClient, SidecarError, SidecarTaskType, Status, TaskAnswer, TaskRequest, TaskState,
};
use windlass_sim::kubelet::Probe;

/// The behaviour of sidecars.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Manner {
    /// Correct.
    #[default]
    Well,
    /// They do not answer.
    Dead,
    /// They answer 503.
    Failing,
    /// They accept tasks and report Ready, but their probe fails.
    Lying,
    /// They do what they are asked, and answer after a second.
    Late,
    /// They do what they are asked, and answer every task request with an error.
    Mute,
    /// Requests are lost: nothing is ever answered.
    Swallowing,
}

#[derive(Clone, Debug, Default)]
struct State {
    manner: Manner,
    /// The hosts that are ready.
    ready: BTreeSet<String>,
    /// The hosts that report it without being ready.
    claimed: BTreeSet<String>,
    /// By host and task: the height of the halt, and when it was first requested.
    halts: BTreeMap<String, BTreeMap<String, (i64, Instant)>>,
    effects: u32,
}

/// The initial height of applications, and their gain per second once a halt is requested.
const HEIGHT: i64 = 500;
const PACE: i64 = 100;
/// The time-out of a sidecar's client.
const TIME_OUT: Duration = Duration::from_secs(2);

impl State {
    /// The height of a host's application, and whether it has halted.
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
    /// Notified whenever the kubelet's probe may have another result.
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

    /// Sets the behaviour.
    pub fn behave(&self, manner: Manner) {
        self.with(|state| {
            state.manner = manner;
            state.claimed.clear();
        });
        self.news.notify_waiters();
    }

    /// A copy with the same state.
    pub fn copy(&self) -> Self {
        Self { state: Arc::new(Mutex::new(self.with(|state| state.clone()))), news: Arc::default() }
    }

    /// The kubelet's probe.
    pub fn probe(&self) -> Probe {
        let this = self.clone();
        Arc::new(move |url| {
            // The kubelet is on the same machine, so lost requests do not affect it.
            let ready = this.with(|state| state.manner != Manner::Dead && state.ready.contains(&host(&url)));
            std::future::ready(ready).boxed()
        })
    }

    /// The notification that replaces probing at intervals.
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
            Status { ready, caught_up: ready, height: Some(height), halted, role: None }
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
            if request.kind == SidecarTaskType::HaltAtHeight {
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
