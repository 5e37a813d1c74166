//! Checks whether the names of a new node's objects are taken: by a StatefulSet or a headless Service that Windlass
//! does not own.

use std::collections::BTreeSet;

use super::cluster::DryRunCluster;
use super::outcome::MoveWave;
use windlass::internal::{Belongs, belongs};
use windlass_core::planner::fleet::forecast::Action;
use windlass_kube_port::observed::Meta;
use windlass_kube_port::{Cluster, Kind};

/// The kinds of objects that have the node's own name.
const OF_ITS_NAME: [Kind; 2] = [Kind::StatefulSet, Kind::Service];

/// The operator's message about the first node whose StatefulSet or Service is taken, and what could not be checked.
pub(super) async fn name_of_another(
    cluster: &DryRunCluster,
    namespace: &str,
    waves: &[MoveWave],
) -> (Option<String>, Vec<String>) {
    let mut unread = Vec::new();
    let made = waves.iter().flat_map(|wave| &wave.nodes).filter(|node| node.action == Action::Create);
    let made: BTreeSet<&str> = made.map(|node| node.name.as_str()).collect();
    if made.is_empty() {
        return (None, unread);
    }
    let mut refused = Vec::new();
    for kind in OF_ITS_NAME {
        let names = match cluster.names(kind, namespace).await {
            Ok(names) => names,
            Err(error) => {
                unread.push(format!("names of {}s not checked: {error}", kind.name()));
                continue;
            }
        };
        for name in names.iter().filter(|name| made.contains(name.as_str())) {
            let found = match cluster.get(kind, namespace, name).await {
                Ok(found) => found,
                Err(error) => {
                    unread.push(format!("owner of {} {name} not checked: {error}", kind.name()));
                    continue;
                }
            };
            // The node does not exist yet.
            let node = Meta { name: name.clone(), namespace: namespace.to_owned(), ..Meta::default() };
            let involved = found.map(|found| belongs(&Meta::read(&found), &node, kind.name()));
            if let Some(Belongs::Elsewhere(sentence)) = involved {
                refused.push((name.clone(), format!("{name}: {sentence}")));
            }
        }
    }
    // By node; the StatefulSet first.
    refused.sort_by(|a, b| a.0.cmp(&b.0));
    (refused.into_iter().next().map(|(_, sentence)| sentence), unread)
}
