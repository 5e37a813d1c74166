//! The tools of a case: raw requests, recorded observations, and waits.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::{AsyncBufReadExt, FutureExt};
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use windlass_sim::Cluster;

/// A case; its name is the behaviour that it shows.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub run: for<'a> fn(&'a Ctx) -> LocalBoxFuture<'a, ()>,
}

/// A cluster, a namespace of the case's own, and its observations.
pub struct Ctx {
    pub client: Client,
    pub ns: String,
    /// The simulated cluster, if it is one.
    pub simulated: Option<Arc<Cluster>>,
    /// Policies that were installed cluster-wide.
    pub policies: Mutex<Vec<String>>,
    notes: Mutex<Vec<Value>>,
}

/// An answer of the API server.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
    pub warnings: Vec<String>,
}

pub const MERGE: &str = "application/merge-patch+json";
pub const JSON: &str = "application/json-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

/// Runs a case; a panic in it is an error.
pub async fn run(case: Case, ctx: Arc<Ctx>) -> Result<Value, String> {
    let limit = Duration::from_mins(2);
    let outcome = tokio::time::timeout(limit, AssertUnwindSafe((case.run)(&ctx)).catch_unwind()).await;
    ctx.clear_away().await;
    match outcome {
        Err(_) => Err(format!("not done after {limit:?}; notes so far: {}", ctx.notes())),
        Ok(Err(panic)) => {
            let why = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("{}; notes so far: {}", why.unwrap_or_default(), ctx.notes()))
        }
        Ok(Ok(())) => Ok(ctx.notes()),
    }
}

/// Installs the kind that cases of schemas use.
pub async fn prepare(client: &Client) {
    let ctx = Ctx::new(client.clone(), "default");
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    ctx.send("POST", path, "", Some(super::cases::widget::definition())).await;
    ctx.until("the widgets to be served", async || {
        (ctx.get("/apis/conformance.windlass.dev/v1/namespaces/default/widgets").await.code == 200)
            .then_some(())
    })
    .await;
    // That one list succeeds does not mean that the watch cache is warm, or that discovery is complete.
    tokio::time::sleep(Duration::from_millis(500)).await;
}

impl Ctx {
    pub fn new(client: Client, ns: &str) -> Self {
        Self {
            client,
            ns: ns.to_owned(),
            simulated: None,
            policies: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    /// The path of a resource in the case's namespace: `pods`, `apps/statefulsets`, `nd`, `widgets`, with a rest.
    pub fn at(&self, resource: &str) -> String {
        let (group, rest) = match resource.split_once(':') {
            Some(("batch", rest)) => ("apis/batch/v1", rest),
            Some(("apps", rest)) => ("apis/apps/v1", rest),
            Some(("events", rest)) => ("apis/events.k8s.io/v1", rest),
            Some(("lease", rest)) => ("apis/coordination.k8s.io/v1", rest),
            Some(("wl", rest)) => ("apis/windlass.dev/v1alpha1", rest),
            Some(("conf", rest)) => ("apis/conformance.windlass.dev/v1", rest),
            _ => ("api/v1", resource),
        };
        format!("/{group}/namespaces/{}/{rest}", self.ns)
    }

    pub async fn send(&self, method: &str, path: &str, content_type: &str, body: Option<Value>) -> Answer {
        let bytes = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        let content_type = if content_type.is_empty() { "application/json" } else { content_type };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("accept", "application/json")
            .body(Body::from(bytes))
            .unwrap();
        let response = self.client.send(request).await.expect("an answer");
        let code = response.status().as_u16();
        let warnings = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|value| value.to_str().unwrap_or_default().to_owned())
            .collect();
        let bytes = response.into_body().collect_bytes().await.expect("a body");
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { code, body, warnings }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, "", Some(body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send("PUT", path, "", Some(body)).await
    }

    pub async fn patch(&self, path: &str, content_type: &str, body: Value) -> Answer {
        self.send("PATCH", path, content_type, Some(body)).await
    }

    pub async fn delete(&self, path: &str, options: Value) -> Answer {
        let options = (!options.is_null()).then_some(options);
        self.send("DELETE", path, "", options).await
    }

    /// Creates an object that the case needs.
    pub async fn made(&self, path: &str, body: Value) -> Value {
        let answer = self.post(path, body).await;
        assert!(answer.code == 201, "{path}: {}", answer.body);
        answer.body
    }

    /// The next `count` events of a watch, without bookmarks; fewer if none comes for two seconds.
    pub async fn events(&self, path: &str, count: usize) -> Vec<Value> {
        let request = Request::get(path).body(Vec::new()).unwrap();
        let mut lines = std::pin::pin!(self.client.request_stream(request).await.expect("a watch").lines());
        let mut events = Vec::new();
        while events.len() < count {
            let next = futures::StreamExt::next(&mut lines);
            let Ok(Some(Ok(line))) = tokio::time::timeout(Duration::from_secs(2), next).await else { break };
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["type"] != "BOOKMARK" {
                events.push(event);
            }
        }
        events
    }

    /// Polls until there is an answer.
    pub async fn until<T>(&self, what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
        for _ in 0..2500 {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("waited in vain for {what}");
    }

    /// Waits until an object is gone.
    pub async fn until_gone(&self, path: &str) {
        self.until(&format!("{path} to be gone"), async || (self.get(path).await.code == 404).then_some(()))
            .await;
    }

    /// Waits until `test` is true for an object.
    pub async fn until_is(&self, path: &str, test: impl Fn(&Value) -> bool) -> Value {
        self.until(&format!("{path} to be as it should"), async || {
            let answer = self.get(path).await;
            (answer.code == 200 && test(&answer.body)).then_some(answer.body)
        })
        .await
    }

    /// Waits for something that should not happen.
    pub async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(700)).await;
    }

    /// Records an observation.
    pub fn note(&self, what: &str, observed: impl Into<Value>) {
        let mut observed = observed.into();
        self.normalise(&mut observed);
        self.notes.lock().unwrap().push(json!({what: observed}));
    }

    /// Records an answer's code and, of a refusal, reason and message.
    pub fn said(&self, what: &str, answer: &Answer) {
        let mut observed = json!({"code": answer.code});
        if answer.code >= 400 {
            observed["reason"] = answer.body["reason"].clone();
            observed["message"] = answer.body["message"].clone();
            if answer.body["details"]["causes"].is_array() {
                observed["causes"] = answer.body["details"]["causes"].clone();
            }
        }
        self.note(what, observed);
    }

    /// Records the end of a refusal that begins with the whole object, whose fields have no fixed order.
    pub fn strictly(&self, what: &str, answer: &Answer) {
        let message = answer.body["message"].as_str().unwrap_or_default();
        let start = message.find("strict decoding error").unwrap_or(0);
        self.note(
            what,
            json!({"code": answer.code, "reason": answer.body["reason"], "end": &message[start..]}),
        );
    }

    /// Records an answer's code and reason only, if the message differs from run to run.
    pub fn coded(&self, what: &str, answer: &Answer) {
        self.note(what, json!({"code": answer.code, "reason": answer.body["reason"]}));
    }

    fn notes(&self) -> Value {
        self.notes.lock().unwrap().clone().into()
    }

    /// Replaces what differs from run to run: the namespace's name, UIDs.
    fn normalise(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = without_uids(&text.replace(&self.ns, "NS")),
            Value::Array(items) => items.iter_mut().for_each(|item| self.normalise(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.normalise(item)),
            _ => {}
        }
    }
}

fn without_uids(text: &str) -> String {
    let is_uid = |part: &[u8]| {
        part.len() == 36
            && part.iter().enumerate().all(|(index, b)| match index {
                8 | 13 | 18 | 23 => *b == b'-',
                _ => b.is_ascii_hexdigit(),
            })
    };
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut index = 0;
    while index < bytes.len() {
        if index + 36 <= bytes.len() && is_uid(&bytes[index..index + 36]) {
            out.extend_from_slice(b"UID");
            index += 36;
        } else {
            out.push(bytes[index]);
            index += 1;
        }
    }
    String::from_utf8(out).unwrap()
}

/// A version as a number.
pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse().unwrap_or(0)
}

pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}
