//! `windlass explain` of a `WorkerDeployment`.

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::json;
use windlass_temporal::api::VersionRecord;
use windlass_temporal::api::names::{LABEL_BUILD_ID, LABEL_WORKERS};

use super::chain::{of_workers, version_in_the_way};
use super::report::WorkersReport;
use crate::explain::last_of;
use crate::reader::{InvolvedObject, sentence};
use crate::report::chain::Chain;
use crate::target::Target;
use windlass_kube_port::Kind;
use windlass_kube_port::observed::{Observed, ObservedPod};

/// Explains a `WorkerDeployment`. Also returns what could not be read.
pub async fn explain(
    client: &Client,
    namespace: &str,
    target: &Target,
) -> Result<(Chain, Vec<String>), String> {
    let object = target.get(client, namespace).await?;
    let report = WorkersReport::of(&object, crate::now());
    let mut unread = Vec::new();
    let mut events = Vec::new();
    let mut worst = None;
    if let Some(version) = version_in_the_way(&report) {
        match pods(client, &report, version).await {
            Ok(pods) => worst = pods.into_iter().min_by_key(ObservedPod::is_ready),
            Err(sentence) => unread.push(format!("left out, because its pods are not readable: {sentence}")),
        }
        if let Some(pod) = &worst {
            events = last_of(
                client,
                namespace,
                InvolvedObject { kind: "Pod", name: &pod.meta.name, uid: &pod.meta.uid },
                &mut unread,
            )
            .await;
        }
    }
    Ok((of_workers(&object, &report, worst.as_ref(), &events), unread))
}

/// The pods of a version.
async fn pods(
    client: &Client,
    report: &WorkersReport,
    version: &VersionRecord,
) -> Result<Vec<ObservedPod>, String> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &report.namespace, &Kind::Pod.resource());
    let labels = format!("{LABEL_WORKERS}={},{LABEL_BUILD_ID}={}", report.name, version.build_id);
    let listed = api.list(&ListParams::default().labels(&labels)).await.map_err(|e| sentence(&e))?;
    let read = |pod: DynamicObject| ObservedPod::read(&json!(pod));
    Ok(listed.items.into_iter().map(read).collect())
}
