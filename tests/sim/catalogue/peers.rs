//! The peers of hooks, in this process: one that drains nodes, and a Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::json;
use windlass::operator::{HookClient, HookReply, HookRequest};

/// The behaviour of peers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Manner {
    /// They do what they are asked, and confirm it.
    #[default]
    Well,
    /// They refuse connections.
    Dead,
    /// They accept requests, do nothing, and do not answer in time.
    Slow,
    /// They answer in an unexpected format.
    Lying,
    /// They do what they are asked, and answer too late.
    Late,
    /// They do what they are asked, and answer with an error.
    Erring,
}

#[derive(Debug, Default)]
struct State {
    manner: Manner,
    /// The tasks that sent a request, by its path and query.
    asked: BTreeMap<String, BTreeSet<String>>,
}

/// All peers.
#[derive(Clone, Debug, Default)]
pub struct Peers(Arc<Mutex<State>>);

impl Peers {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the behaviour.
    pub fn behave(&self, manner: Manner) {
        self.with(|state| state.manner = manner);
    }

    /// The requests that more than one task sent.
    pub fn asked_twice(&self) -> Vec<String> {
        self.with(|state| {
            let twice = state.asked.iter().filter(|(_, tasks)| tasks.len() > 1);
            twice.map(|(what, tasks)| format!("{what} by {tasks:?}")).collect()
        })
    }
}

#[async_trait]
impl HookClient for Peers {
    async fn send(&self, request: HookRequest) -> Result<HookReply, String> {
        let task = request.headers.get("windlass-task").and_then(|task| task.to_str().ok());
        let what =
            format!("{} {}?{}", request.method, request.url.path(), request.url.query().unwrap_or_default());
        let of_task = task.map(str::to_owned);
        let manner = self.with(|state| {
            if let Some(task) = of_task.clone() {
                state.asked.entry(what).or_default().insert(task);
            }
            state.manner
        });
        let data = json!({"resultType": "vector", "result": [{"metric": {}, "value": [1, "0.25"]}]});
        // Queries to Prometheus lack the task's headers.
        let (body, error) = if request.url.path().starts_with("/api/v1/") {
            (json!({"status": "success", "data": data}), 503)
        } else {
            (json!({"state": "drained"}), 500)
        };
        let reply = |status: u16, body: &str| {
            Ok(HookReply { status, body: body.as_bytes().to_vec(), ..HookReply::default() })
        };
        match manner {
            Manner::Well => reply(200, &body.to_string()),
            Manner::Dead => Err("did not answer: connection refused".to_owned()),
            Manner::Slow | Manner::Late => {
                tokio::time::sleep(request.timeout).await;
                Err("did not answer in time".to_owned())
            }
            Manner::Lying => reply(200, "<html>drained</html>"),
            Manner::Erring => reply(error, &body.to_string()),
        }
    }
}
