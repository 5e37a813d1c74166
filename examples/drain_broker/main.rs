//! An operator of one's own, which drains a broker before its pod is replaced: see docs/how-to/custom-tasks.md.

use std::{error::Error, time::Duration};

use async_trait::async_trait;
use reqwest::{Client as Http, Method, Response};
use serde::{Deserialize, Serialize};
use windlass::engine::{Builtin, Env, Outcome, Policy, Recipe, Step, Task, TaskContext, TaskError};
use windlass::operator::{Operator, connect};
use windlass::tasks::{NodeScope, ObservedPod, Replacement};

/// `drain-broker`: nobody depends any more on the broker whose pod is about to be replaced.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DrainBroker {
    /// The container that the broker runs in.
    pub container: String,
    /// The port at which it is asked.
    pub port: u16,
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

    fn policy(&self, _: &Env) -> Policy {
        // The way out when a broker never answers.
        Policy::default().skippable()
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

/// Windlass, which drains a broker before it replaces its pod.
pub fn operator(client: kube::Client, drain: &DrainBroker) -> Result<Operator, Box<dyn Error + Send + Sync>> {
    let http = Http::builder().timeout(Duration::from_secs(2)).no_proxy().build()?;
    let mut operator = Operator::new(client).task::<DrainBroker>("drain-broker").provide(http);
    for recipe in [Builtin::NodeUpdate, Builtin::RestartNode] {
        operator = operator.recipe(Recipe::builtin(recipe).insert_before("replace-pod", Step::of(drain)?)?);
    }
    Ok(operator)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let drain = DrainBroker { container: "broker".to_owned(), port: 8080 };
    let operator = operator(connect(kube::Config::infer().await?)?, &drain)?;
    Ok(operator.run(async { drop(tokio::signal::ctrl_c().await) }).await?)
}
