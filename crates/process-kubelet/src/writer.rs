//! Writes a pod's status whenever it changes, until the pod has terminated or is gone.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use tokio::time::sleep;

use crate::{clock, context::Context, status};

/// The first retry interval of a failed write, doubled up to the last.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_LAST: Duration = Duration::from_secs(5);

pub(crate) async fn write(context: Arc<Context>) {
    let pods: Api<Pod> = Api::namespaced(context.shared.client.clone(), &context.namespace);
    let mut changes = context.table.changes();
    let mut view = context.view.clone();
    let mut written = None;
    let mut latest: Option<Arc<Pod>> = None;
    let mut again = AGAIN_FIRST;
    loop {
        let (sandbox, records) = context.table.read();
        let seen = view.borrow_and_update().clone();
        if seen.gone {
            return;
        }
        // The response to the last write may be newer than the watch.
        let pod = latest.as_ref().filter(|pod| version(pod) > version(&seen.pod)).unwrap_or(&seen.pod);
        let patch = status::patch(pod, &sandbox, &records, &context.ip.to_string(), clock::now());
        if written.as_ref() != Some(&patch) {
            match pods.patch_status(&context.name, &PatchParams::default(), &Patch::Strategic(&patch)).await {
                Ok(answer) => {
                    latest = Some(Arc::new(answer));
                    written = Some(patch);
                    again = AGAIN_FIRST;
                }
                // It is gone, or was replaced by another pod of its name.
                Err(kube::Error::Api(status)) if status.code == 404 || is_another(&status.message) => return,
                Err(error) => {
                    tracing::debug!(%error, pod = context.name, "a status is not written");
                    sleep(again).await;
                    again = AGAIN_LAST.min(again * 2);
                    continue;
                }
            }
        }
        if sandbox.over {
            return;
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            changed = view.changed() => if changed.is_err() { return },
        }
    }
}

fn is_another(message: &str) -> bool {
    message.contains("the UID in the precondition")
}

fn version(pod: &Pod) -> u64 {
    let version = pod.metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}
