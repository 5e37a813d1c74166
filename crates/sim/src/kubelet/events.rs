//! The kubelet's watches.

use std::time::Duration;

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client,
    runtime::watcher::{self, Event},
};
use tokio::time::sleep;

use super::STEER_LABEL;

/// The delay before a failed watch restarts.
const WATCH_RETRY: Duration = Duration::from_millis(500);

#[allow(clippy::large_enum_variant, reason = "most of what is seen is pods")]
pub(super) enum Seen {
    Pod(Event<Pod>),
    Claim(Event<PersistentVolumeClaim>),
    Steer(Event<ConfigMap>),
}

/// Pods, claims and steering config maps of all namespaces.
pub(super) fn all(client: &Client) -> BoxStream<'static, Seen> {
    let steers = watcher::Config::default().labels(&format!("{STEER_LABEL}=true"));
    let steers = watch(Api::all(client.clone()), steers).map(Seen::Steer);
    let pods = watch(Api::all(client.clone()), watcher::Config::default()).map(Seen::Pod);
    let claims = watch(Api::all(client.clone()), watcher::Config::default()).map(Seen::Claim);
    stream::select_all([steers.boxed(), claims.boxed(), pods.boxed()]).boxed()
}

fn watch<K>(api: Api<K>, config: watcher::Config) -> impl futures::Stream<Item = Event<K>> + Send + 'static
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    watcher::watcher(api, config).filter_map(|event| async move {
        match event {
            Ok(event) => Some(event),
            Err(error) => {
                tracing::debug!(%error, "the played kubelet watches again");
                sleep(WATCH_RETRY).await;
                None
            }
        }
    })
}
