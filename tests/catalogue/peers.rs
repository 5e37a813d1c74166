//! The peers of hooks, in this process: what drains nodes, and a Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::json;
use windlass::asking::hooks::{HookClient, HookReply, HookRequest};

/// How peers answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Manner {
    /// They do what they are asked, and say so.
    #[default]
    Well,
    /// They do not listen.
    Dead,
    /// They take requests, do nothing, and do not answer in time.
    Slow,
    /// They answer, and not as was agreed.
    Lying,
    /// They do what they are asked, and their answers come too late.
    Late,
    /// They do what they are asked, say so, and answer with an error.
    Erring,
}

#[derive(Debug, Default)]
struct State {
    manner: Manner,
    /// By what was asked, path and query: the tasks that did.
    asked: BTreeMap<String, BTreeSet<String>>,
}

/// All peers.
#[derive(Clone, Debug, Default)]
pub struct Peers(Arc<Mutex<State>>);

impl Peers {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on they answer so.
    pub fn behave(&self, manner: Manner) {
        self.with(|state| state.manner = manner);
    }

    /// What more than one task asked for.
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
        // A Prometheus is asked by none of the tasks' headers.
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
