//! `windlass explain` of a StatefulSetRollout.

use kube::Client;

use super::objects::{observed, read_pods};
use crate::explain::last_of;
use crate::reader::InvolvedObject;
use crate::report::chain::{Chain, Deletion, culprit, of_stateful_sets};
use crate::report::{SeenStatefulSets, StatefulSetsReport};
use crate::target::Target;
use windlass_kube_port::watch::Namespaces;

/// Explains a StatefulSetRollout. Also returns what could not be read.
pub async fn explain(
    client: &Client,
    namespace: &str,
    target: &Target,
) -> Result<(Chain, Vec<String>), String> {
    let object = target.get(client, namespace).await?;
    let pods = read_pods(client, &Namespaces::Namespace(namespace.to_owned())).await;
    let mut unread: Vec<String> = pods.as_ref().err().cloned().into_iter().collect();
    let pods = pods.ok().as_ref().map(observed);
    let seen = SeenStatefulSets::of(&object, pods.as_deref(), &unread);
    let report = StatefulSetsReport::of(&seen, crate::now());
    let events = match culprit(&report.fleet) {
        Some(name) => {
            let involved = match (seen.seen.pods.get(name), seen.set_of(name)) {
                (Some(pod), _) => InvolvedObject { kind: "Pod", name, uid: &pod.meta.uid },
                (None, Some(set)) => InvolvedObject { kind: "StatefulSet", name: &set.name, uid: &set.uid },
                (None, None) => InvolvedObject { kind: "Pod", name, uid: "" },
            };
            last_of(client, namespace, involved, &mut unread).await
        }
        None => Vec::new(),
    };
    let chain = of_stateful_sets(&seen, &report, &events);
    Ok((chain.of_deleted(Deletion::read(&object).as_ref()), unread))
}
