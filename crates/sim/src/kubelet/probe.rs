//! Probes the real sidecar of a pod.

use std::{sync::Arc, time::Duration};

use futures::future::{AbortHandle, Abortable, Aborted, BoxFuture, FutureExt};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use tokio::{sync::Notify, time::sleep_until};

use super::{Kubelet, SIDECAR_URL, outlook::is_native_sidecar};
use windlass_clock::monotonic;

/// Probes a URL; true for a 200.
pub type Probe = Arc<dyn Fn(String) -> BoxFuture<'static, bool> + Send + Sync>;

/// A running probe, stopped on drop.
pub(super) struct Probing {
    pub(super) url: String,
    handle: AbortHandle,
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Probes a URL after a delay and then at every interval, until the result differs from `was`; resolves to that.
pub(super) fn until_other(
    kubelet: &Kubelet,
    url: String,
    was: bool,
    after: Duration,
) -> (Probing, BoxFuture<'static, Result<bool, Aborted>>) {
    let (handle, registration) = AbortHandle::new_pair();
    let (probe, interval, asked) = (kubelet.probe.clone(), kubelet.probe_interval, url.clone());
    let notify = kubelet.probe_on_notify.clone();
    let mut next = monotonic() + after;
    let answer = async move {
        loop {
            sleep_until(next).await;
            // A notification during the request counts for the next one.
            let notified = notify.as_deref().map(Notify::notified);
            let answer = probe(asked.clone()).await;
            if answer != was {
                return answer;
            }
            next = monotonic() + interval;
            if let Some(notified) = notified {
                notified.await;
                while next < monotonic() {
                    next += interval;
                }
            }
        }
    };
    (Probing { url, handle }, Abortable::new(answer, registration).boxed())
}

pub(super) fn over_http() -> Probe {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(1)).no_proxy().build();
    Arc::new(move |url| {
        let client = client.as_ref().ok().cloned();
        Box::pin(async move {
            let Some(client) = client else { return false };
            client.get(url).send().await.is_ok_and(|answer| answer.status() == 200)
        })
    })
}

/// The path of a native sidecar's readiness probe, if it is an HTTP probe of `/readyz`.
pub(super) fn probe_path(container: &Container) -> Option<&str> {
    let path = container.readiness_probe.as_ref()?.http_get.as_ref()?.path.as_deref()?;
    (is_native_sidecar(container) && path == "/readyz").then_some(path)
}

/// The URL to probe, if the pod has such a sidecar with the annotation.
pub(super) fn sidecar_url(pod: &Pod, ip: &str) -> Option<String> {
    let template = pod.annotations().get(SIDECAR_URL)?;
    let inits = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let path = inits.into_iter().find_map(probe_path)?;
    let url = template
        .replace("{name}", &pod.name_any())
        .replace("{namespace}", &pod.namespace().unwrap_or_default())
        .replace("{podIP}", ip);
    let base = url.trim_end_matches('/');
    Some(if base.ends_with(path) { base.to_owned() } else { format!("{base}{path}") })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{Cluster, Options};

    /// Probes a server that becomes ready at 3,601.3 s; returns the seconds of its requests.
    async fn seconds_asked(notified: bool) -> Vec<u64> {
        let began = monotonic();
        let asked: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let note = asked.clone();
        let is_ready = move || monotonic().duration_since(began) >= Duration::from_millis(3_601_300);
        let probe: Probe = Arc::new(move |_| {
            note.lock().unwrap().push(monotonic());
            std::future::ready(is_ready()).boxed()
        });
        let cluster = Cluster::start(Options::seeded(1));
        let kubelet = Kubelet::new(cluster.client("kubelet", "default"), cluster.clock()).probe(probe);
        let mut kubelet = kubelet.probe_interval(Duration::from_secs(1));
        let notify = Arc::new(Notify::new());
        if notified {
            kubelet = kubelet.probe_on_notify(notify.clone());
        }
        tokio::spawn(async move {
            sleep(Duration::from_millis(3_601_300)).await;
            notify.notify_waiters();
        });
        let (_probing, answer) = until_other(&kubelet, "http://db-0".to_owned(), false, Duration::ZERO);
        assert_eq!(answer.await, Ok(true));
        let asked = asked.lock().unwrap();
        asked.iter().map(|at| at.duration_since(began).as_secs()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn probe_with_notification_does_not_poll_at_its_interval() {
        assert_eq!(seconds_asked(false).await, (0..=3602).collect::<Vec<u64>>());
        assert_eq!(seconds_asked(true).await, [0, 3602]);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_probe_is_aborted() {
        let cluster = Cluster::start(Options::seeded(1));
        let probe: Probe = Arc::new(|_| std::future::ready(false).boxed());
        let kubelet = Kubelet::new(cluster.client("kubelet", "default"), cluster.clock()).probe(probe);
        let (probing, answer) = until_other(&kubelet, "http://db-0".to_owned(), false, Duration::ZERO);
        drop(probing);
        assert_eq!(answer.await, Err(Aborted));
    }
}
