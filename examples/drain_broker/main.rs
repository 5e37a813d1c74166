//! An operator of one's own, which drains a broker before its pod is replaced: see docs/custom-tasks.md.

use std::{error::Error, time::Duration};

use async_trait::async_trait;
use reqwest::{Client as Http, Method, Response};
use serde::{Deserialize, Serialize};
use windlass::engine::{Outcome, Recipe, Task, TaskContext, TaskError};
use windlass::operator::{Operator, connect};
use windlass::tasks::{NodeScope, ObservedPod, Replacement};

/// `drain-broker`: nobody depends any more on the broker whose pod is about to be replaced.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct DrainBroker {
    container: String,
    port: u16,
}

#[typetag::serde(name = "drain-broker")]
#[async_trait]
impl Task for DrainBroker {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        // Asked at every run: a new node has nothing to drain, nor has one whose pod went in the meantime.
        let pod = match cx.env.get::<NodeScope>()?.replacement()? {
            Replacement::Due(pod) => pod,
            Replacement::Done => return Ok(Outcome::Done),
            Replacement::NotNow(outcome) => return Ok(outcome),
        };
        // A broker that does not run holds nothing; waiting for it would keep its own fix away from it.
        if !pod.container(&self.container).is_some_and(|c| c.running) {
            return Ok(Outcome::Done);
        }
        let http = cx.env.get::<Http>()?;
        let mut state = self.ask(http, Method::GET, &pod).await?;
        if state == "serving" {
            state = self.ask(http, Method::POST, &pod).await?;
        }
        let waiting = format!("waiting for the broker to be drained: it is {state}");
        Ok(if state == "drained" { Outcome::Done } else { Outcome::recheck(waiting, Duration::from_secs(1)) })
    }

    fn skippable(&self) -> bool {
        true // The way out when a broker never answers.
    }
}

#[derive(Deserialize)]
struct Answer {
    pod: String,
    state: String,
}

impl DrainBroker {
    async fn ask(&self, http: &Http, method: Method, pod: &ObservedPod) -> Result<String, TaskError> {
        let url = format!("http://{}:{}/drain", pod.ip, self.port);
        let request = http.request(method, url).json(&serde_json::json!({"pod": pod.meta.uid}));
        let answer = async { request.send().await.and_then(Response::error_for_status)?.json().await };
        match answer.await {
            Ok(Answer { pod: uid, state }) if uid == pod.meta.uid => Ok(state),
            // Addresses are used again.
            Ok(_) => Err(TaskError::transient(format!("waiting for the broker: another is at {}", pod.ip))),
            Err(e) => Err(TaskError::transient(format!("waiting for the broker: {e}"))),
        }
    }
}

/// Windlass with these recipes, and an HTTP client for their tasks.
pub fn operator(client: kube::Client, recipes: [&str; 2]) -> Result<Operator, Box<dyn Error + Send + Sync>> {
    let http = Http::builder().timeout(Duration::from_secs(2)).no_proxy().build()?;
    recipes.iter().try_fold(Operator::new(client).provide(http), |o, yaml| Ok(o.recipe(Recipe::parse(yaml)?)))
}

/// Windlass's own recipes for replacing pods, with one more step.
pub const RECIPES: [&str; 2] = [include_str!("node-update.yaml"), include_str!("restart-node.yaml")];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let operator = operator(connect(kube::Config::infer().await?)?, RECIPES)?;
    Ok(operator.run(async { drop(tokio::signal::ctrl_c().await) }).await?)
}
