//! Whether the names of what is made with nodes are another's: a StatefulSet or a headless Service that Windlass does not touch.

use std::collections::BTreeSet;

use super::cluster::Asked;
use super::foreseen::MoveWave;
use crate::cluster::observed::Meta;
use crate::cluster::{Cluster, Kind};
use crate::observe::node_scope::{Belongs, belongs};

/// What a node has of its own name.
const OF_ITS_NAME: [Kind; 2] = [Kind::StatefulSet, Kind::Service];

/// What the operator would say of the first node whose StatefulSet or Service is another's, and what could not be looked at.
pub(super) async fn name_of_another(
    asked: &Asked,
    namespace: &str,
    waves: &[MoveWave],
) -> (Option<String>, Vec<String>) {
    let mut unread = Vec::new();
    let made = waves.iter().flat_map(|wave| &wave.nodes).filter(|node| node.action == "Create");
    let made: BTreeSet<&str> = made.map(|node| node.name.as_str()).collect();
    if made.is_empty() {
        return (None, unread);
    }
    let mut refused = Vec::new();
    for kind in OF_ITS_NAME {
        let names = match asked.names(kind, namespace).await {
            Ok(names) => names,
            Err(error) => {
                unread.push(format!("not looked which names {}s have: {error}", kind.name()));
                continue;
            }
        };
        for name in names.iter().filter(|name| made.contains(name.as_str())) {
            let found = match asked.get(kind, namespace, name).await {
                Ok(found) => found,
                Err(error) => {
                    unread.push(format!("not looked whose {} {name} is: {error}", kind.name()));
                    continue;
                }
            };
            // The node is not there yet.
            let node = Meta { name: name.clone(), namespace: namespace.to_owned(), ..Meta::default() };
            let whose = found.map(|found| belongs(&Meta::read(&found), &node, kind.name()));
            if let Some(Belongs::Elsewhere(sentence)) = whose {
                refused.push((name.clone(), format!("{name}: {sentence}")));
            }
        }
    }
    // By node; of one node the StatefulSet is looked at first.
    refused.sort_by(|a, b| a.0.cmp(&b.0));
    (refused.into_iter().next().map(|(_, sentence)| sentence), unread)
}
