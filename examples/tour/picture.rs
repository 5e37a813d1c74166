//! The fleet as a line of text, drawn anew whenever it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::{Stream, StreamExt, stream};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use windlass::clock::{Clock, SystemClock, monotonic};

/// Changes that come together are drawn together.
const TOGETHER: Duration = Duration::from_millis(150);
/// Sentences longer than this are cut; the whole of them is in the object.
const SENTENCE: usize = 58;

/// What is known of the fleet, its nodes and their pods.
#[derive(Clone, Default)]
pub struct Seen {
    pub fleet: Value,
    pub nodes: BTreeMap<String, Value>,
    pub pods: BTreeMap<String, Value>,
    /// The most nodes without a Ready pod that were seen at once, since counting began.
    pub most_down: usize,
    counting: bool,
    /// Every pod that there ever was, by UID.
    pub pods_ever: BTreeSet<String>,
}

impl Seen {
    pub fn phase(&self) -> &str {
        text(&self.fleet["status"]["phase"])
    }

    /// Whether the fleet says that it runs this image, and nothing is left to do.
    pub fn is_applied(&self, image: &str) -> bool {
        let conditions = self.fleet["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let applied = conditions.iter().any(|c| c["type"] == "UpToDate" && c["status"] == "True");
        let settled = self.fleet["status"]["observedGeneration"] == self.fleet["metadata"]["generation"];
        applied && settled && self.at(image) == self.nodes.len() && self.phase() == "Ready"
    }

    /// How many nodes serve at an image.
    pub fn at(&self, image: &str) -> usize {
        let serves = |(name, node): &(&String, &Value)| {
            node["status"]["currentImage"] == image && self.pod(name).is_some_and(is_ready)
        };
        self.nodes.iter().filter(serves).count()
    }

    /// The nodes that cannot run what they were granted, each with the reason.
    pub fn failed(&self) -> Vec<(&str, String)> {
        let failed = self.nodes.iter().filter(|(_, node)| node["status"]["phase"] == "Failed");
        let why = |node: &Value| {
            let problem = &node["status"]["problem"];
            format!("{}: {}", text(&problem["reason"]), text(&problem["message"]))
        };
        failed.map(|(name, node)| (name.as_str(), why(node))).collect()
    }

    /// The UID of each node's pod.
    pub fn pod_uids(&self) -> BTreeMap<String, String> {
        let uid = |pod: &Value| text(&pod["metadata"]["uid"]).to_owned();
        self.pods.iter().map(|(name, pod)| (name.clone(), uid(pod))).collect()
    }

    fn take(&mut self, kind: &str, event: &Event<DynamicObject>) {
        let (Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) = event else { return };
        let name = object.metadata.name.clone().unwrap_or_default();
        let value = serde_json::to_value(object).unwrap_or_default();
        let gone = matches!(event, Event::Delete(_));
        if kind == "Pod" {
            self.pods_ever.insert(object.metadata.uid.clone().unwrap_or_default());
        }
        let map = match kind {
            "StatefulNode" => &mut self.nodes,
            "Pod" => &mut self.pods,
            _ => {
                self.fleet = if gone { Value::Null } else { value };
                return;
            }
        };
        if gone {
            map.remove(&name);
        } else {
            map.insert(name, value);
        }
        self.count_down();
    }

    fn pod(&self, node: &str) -> Option<&Value> {
        self.pods.get(&format!("{node}-0"))
    }

    fn count_down(&mut self) {
        if self.counting {
            let down = self.nodes.keys().filter(|name| !self.pod(name).is_some_and(is_ready)).count();
            self.most_down = self.most_down.max(down);
        }
    }

    fn glyphs(&self) -> String {
        let wanted = &self.fleet["spec"]["template"]["spec"]["image"];
        let soon = TimeDelta::seconds(self.fleet["spec"]["minReadySeconds"].as_i64().unwrap_or_default());
        let glyph = |(name, node): (&String, &Value)| match self.pod(name) {
            _ if node["status"]["phase"] == "Failed" => paint("31", "✗"),
            Some(pod) if is_ready(pod) && pod["spec"]["containers"][0]["image"] == *wanted => {
                let counts = ready_since(pod).is_some_and(|since| since + soon <= SystemClock.now());
                if counts { paint("32", "●") } else { paint("33", "◉") }
            }
            Some(pod) if is_ready(pod) => paint("36", "○"),
            _ => paint("33", "◐"),
        };
        self.nodes.iter().map(glyph).collect::<Vec<_>>().join(" ")
    }

    /// Phase, summary, wave, nodes and what is waited for.
    fn line(&self) -> String {
        let status = &self.fleet["status"];
        let rollout = &status["rollout"];
        let most = &self.fleet["spec"]["updateStrategy"]["inPlace"]["maxUnavailable"];
        let disrupted = rollout["nodes"]["disrupted"].as_i64();
        let wave = disrupted.map_or_else(String::new, |disrupted| format!("wave {disrupted}/{most}"));
        let message = text(&rollout["message"]);
        let cut: String = message.chars().take(SENTENCE).collect();
        let more = if cut.len() < message.len() { "…" } else { "" };
        let summary = text(&rollout["summary"]);
        format!("{:<12} {summary:<12} {wave:<8}  {}   {cut}{more}", self.phase(), self.glyphs())
    }
}

pub const LEGEND: &str = "○ serves what was before    ◐ on its way    ✗ cannot run\n\
                          ◉ serves what is wanted     ● and has done so for minReadySeconds: its place in the wave is free";

/// Text in a colour, where there is somebody to see it.
pub fn paint(colour: &str, text: &str) -> String {
    let plain =
        !std::io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    if plain { text.to_owned() } else { format!("\x1b[{colour}m{text}\x1b[0m") }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_ready(pod: &Value) -> bool {
    ready_since(pod).is_some() && pod["metadata"]["deletionTimestamp"].is_null()
}

fn ready_since(pod: &Value) -> Option<DateTime<Utc>> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|c| c["type"] == "Ready" && c["status"] == "True")?;
    text(&ready["lastTransitionTime"]).parse().ok()
}

/// Watches the fleet and draws it, until it is dropped.
pub struct Picture {
    seen: Arc<Mutex<Seen>>,
    began: Instant,
    _tasks: JoinSet<()>,
}

impl Picture {
    /// Begins to watch and draw.
    pub fn begin(client: &kube::Client) -> Self {
        let (seen, began): (Arc<Mutex<Seen>>, _) = (Arc::default(), monotonic());
        let (watching, drawing) = (seen.clone(), seen.clone());
        let all = [("windlass.dev", "NodeDeployment"), ("windlass.dev", "StatefulNode"), ("", "Pod")]
            .map(|(group, kind)| watch(client, group, kind).boxed());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut news = stream::select_all(all);
            while let Some((kind, event)) = news.next().await {
                lock(&watching).take(kind, &event);
            }
        });
        tasks.spawn(async move {
            let mut last = String::new();
            loop {
                tokio::time::sleep(TOGETHER).await;
                let line = lock(&drawing).line();
                if !line.trim().is_empty() && line != last {
                    let seconds = monotonic().duration_since(began).as_secs_f64();
                    println!("  {}  {line}", paint("2", &format!("{seconds:>5.1}s")));
                    last = line;
                }
            }
        });
        Self { seen, began, _tasks: tasks }
    }

    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// How long the tour has lasted.
    pub fn seconds(&self) -> f64 {
        monotonic().duration_since(self.began).as_secs_f64()
    }

    /// Counts from now on how many nodes are out of service at once.
    pub fn count(&self) {
        lock(&self.seen).counting = true;
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(
    client: &kube::Client,
    group: &str,
    kind: &'static str,
) -> impl Stream<Item = (&'static str, Event<DynamicObject>)> + Send + use<> {
    let version = if group.is_empty() { "v1" } else { "v1alpha1" };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    // The watcher begins again by itself after an error.
    watcher::watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| async move { event.ok().map(|event| (kind, event)) })
}
