//! The sidecars of all pods, in this process: what the operator asks and what the kubelet probes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use windlass::sidecar::{SidecarClient, SidecarError, Status, TaskAnswer, TaskRequest, TaskState};
use windlass::sim::kubelet::Probe;

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
}

#[derive(Clone, Debug, Default)]
struct State {
    manner: Manner,
    /// The hosts that were marked ready.
    ready: BTreeSet<String>,
    /// The hosts that claim it without being so.
    claimed: BTreeSet<String>,
    effects: u32,
}

/// All sidecars.
#[derive(Clone, Debug, Default)]
pub struct Sidecars(Arc<Mutex<State>>);

fn host(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    rest.split(['/', ':']).next().unwrap_or_default().to_owned()
}

impl Sidecars {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on they behave so.
    pub fn behave(&self, manner: Manner) {
        self.with(|state| {
            state.manner = manner;
            state.claimed.clear();
        });
    }

    /// Others that know what these know now.
    pub fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.with(|state| state.clone()))))
    }

    /// How the kubelet asks them.
    pub fn probe(&self) -> Probe {
        let this = self.clone();
        Arc::new(move |url| {
            let ready = this.with(|state| state.manner != Manner::Dead && state.ready.contains(&host(&url)));
            std::future::ready(ready).boxed()
        })
    }

    async fn manner(&self, url: &str) -> Result<Manner, SidecarError> {
        let manner = self.with(|state| state.manner);
        match manner {
            Manner::Dead => Err(SidecarError::Unreachable(format!("the sidecar at {url} did not answer"))),
            Manner::Failing => Err(SidecarError::Refused {
                status: 503,
                message: format!("the sidecar at {url} answered 503"),
            }),
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
        let ready = self.with(|state| state.ready.contains(&host) || state.claimed.contains(&host));
        Ok(Status { ready, caught_up: ready, height: None, halted: false })
    }

    async fn submit<'a>(
        &self,
        base_url: &str,
        _request: &TaskRequest,
        _token: Option<&'a str>,
    ) -> Result<(), SidecarError> {
        let manner = self.manner(base_url).await?;
        let host = host(base_url);
        self.with(|state| {
            state.effects += 1;
            if manner == Manner::Lying { state.claimed.insert(host) } else { state.ready.insert(host) }
        });
        if manner == Manner::Mute {
            return Err(SidecarError::Unreachable(format!("the sidecar at {base_url} hung up")));
        }
        Ok(())
    }

    async fn task(&self, base_url: &str, id: &str) -> Result<Option<TaskAnswer>, SidecarError> {
        self.manner(base_url).await?;
        Ok(Some(TaskAnswer { id: id.to_owned(), state: TaskState::Complete, message: String::new() }))
    }
}
