//! The kubelet's event recorder: repeated events are counted in one object.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::{
    clock::{now, text},
    images::hex,
};

/// The most queued events; further ones are dropped, as in every recorder.
const MOST: usize = 1000;
/// The most events with a known count.
const KNOWN: usize = 4096;

/// The event recorder.
#[derive(Clone)]
pub(crate) struct Events {
    queue: mpsc::Sender<(Value, &'static str, String, String)>,
    node: String,
}

/// Records events about one pod, one of its containers, or a claim.
#[derive(Clone)]
pub(crate) struct About {
    events: Events,
    regarding: Value,
}

impl Events {
    /// The recorder, and the future that sends its events.
    pub(crate) fn new(client: Client) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, mut waiting) = mpsc::channel::<(Value, &'static str, String, String)>(MOST);
        let send = async move {
            let mut counts = BTreeMap::new();
            while let Some((regarding, kind, reason, message)) = waiting.recv().await {
                // A failure only loses the event.
                if let Err(error) = send(&client, &mut counts, regarding, kind, &reason, &message).await {
                    tracing::debug!(%error, reason, "an event is lost");
                }
            }
        };
        (Self { queue, node: String::new() }, send)
    }

    pub(crate) fn about(&self, pod: &Pod) -> About {
        let meta = &pod.metadata;
        let regarding = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid,
        });
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        About { events: Self { queue: self.queue.clone(), node }, regarding }
    }

    pub(crate) fn about_claim(&self, claim: &PersistentVolumeClaim) -> About {
        let meta = &claim.metadata;
        let regarding = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta.namespace, "name": meta.name,
            "uid": meta.uid,
        });
        About { events: self.clone(), regarding }
    }
}

impl About {
    /// For events about a container; `list` is `containers` or `initContainers`.
    pub(crate) fn container(&self, list: &str, name: &str) -> Self {
        let mut about = self.clone();
        about.regarding["fieldPath"] = json!(format!("spec.{list}{{{name}}}"));
        about
    }

    pub(crate) fn normal(&self, reason: &str, message: impl Into<String>) {
        self.send("Normal", reason, message.into());
    }

    pub(crate) fn warning(&self, reason: &str, message: impl Into<String>) {
        self.send("Warning", reason, message.into());
    }

    fn send(&self, kind: &'static str, reason: &str, message: String) {
        let mut regarding = self.regarding.clone();
        regarding["node"] = json!(self.events.node);
        let _ = self.events.queue.try_send((regarding, kind, reason.to_owned(), message));
    }
}

async fn send(
    client: &Client,
    counts: &mut BTreeMap<String, i32>,
    mut regarding: Value,
    kind: &str,
    reason: &str,
    message: &str,
) -> Result<(), kube::Error> {
    let node = regarding["node"].take();
    regarding.as_object_mut().map(|map| map.remove("node"));
    let digest = Sha256::digest(format!("{regarding}{kind}{reason}{message}").as_bytes());
    let text_of = |field: &str| regarding[field].as_str().unwrap_or_default();
    let name = format!("{}.{}", text_of("name"), &hex(&digest)[..16]);
    let api: Api<Event> = Api::namespaced(client.clone(), text_of("namespace"));
    if counts.len() > KNOWN {
        counts.clear();
    }
    let count = counts.entry(name.clone()).or_default();
    *count += 1;
    let time = text(now());
    if *count > 1 {
        let patch = Patch::Merge(json!({"count": count, "lastTimestamp": time}));
        return api.patch(&name, &PatchParams::default(), &patch).await.map(drop);
    }
    let event = json!({
        "metadata": {"name": name, "namespace": text_of("namespace")},
        "involvedObject": regarding, "type": kind, "reason": reason, "message": message, "count": 1,
        "firstTimestamp": time, "lastTimestamp": time, "source": {"component": "kubelet", "host": node},
        "reportingComponent": "kubelet", "reportingInstance": node,
    });
    let event: Event = serde_json::from_value(event).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &event).await {
        // An earlier kubelet in this folder created it.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop),
    }
}
