//! Maps changes to the objects to reconcile: watches feed the caches, and each change adds the objects that it concerns to the
//! workqueues.

use std::sync::Arc;

use futures::{StreamExt, stream::BoxStream};
use kube::Client;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::api::RawPlan;
use crate::api::names::{LABEL_DEPLOYMENT, LABEL_MANAGED_BY, LABEL_NODE, MANAGER, place_of};
use crate::cluster::observed::Meta;
use crate::cluster::watch::{Namespaces, watch};
use crate::cluster::{Key, Kind, View, refusals};

/// Starts a watch of each kind, and one of the events that say why a StatefulSet has no pod.
pub fn start(
    client: &Client,
    scope: &Namespaces,
    view: &Arc<View>,
    fleets: UnboundedSender<Key>,
    nodes: UnboundedSender<Key>,
    helpers: &mut JoinSet<()>,
) {
    let managed = format!("{LABEL_MANAGED_BY}={MANAGER}");
    let of_fleets = format!("{LABEL_DEPLOYMENT},!{LABEL_NODE}");
    let tell = Tell { view: view.clone(), fleets, nodes };
    let api = |kind| scope.api(client, view, kind);
    let v = || view.clone();
    let streams: [(Kind, BoxStream<'static, Meta>); 7] = [
        (
            Kind::NodeDeployment,
            watch(api(Kind::NodeDeployment), None, Kind::NodeDeployment, v(), |v| &v.fleets),
        ),
        (Kind::StatefulNode, watch(api(Kind::StatefulNode), None, Kind::StatefulNode, v(), |v| &v.nodes)),
        (
            Kind::StatefulSet,
            watch(api(Kind::StatefulSet), Some(&managed), Kind::StatefulSet, v(), |v| &v.sets),
        ),
        (Kind::Service, watch(api(Kind::Service), Some(&managed), Kind::Service, v(), |v| &v.services)),
        (Kind::Pod, watch(api(Kind::Pod), Some(LABEL_NODE), Kind::Pod, v(), |v| &v.pods)),
        (
            Kind::PersistentVolumeClaim,
            watch(
                api(Kind::PersistentVolumeClaim),
                Some(LABEL_NODE),
                Kind::PersistentVolumeClaim,
                v(),
                |v| &v.claims,
            ),
        ),
        (
            Kind::ControllerRevision,
            watch(api(Kind::ControllerRevision), Some(&of_fleets), Kind::ControllerRevision, v(), |v| {
                &v.revisions
            }),
        ),
    ];
    let (news, mut told) = unbounded_channel();
    view.notify(news);
    let own = tell.clone();
    helpers.spawn(async move {
        while let Some((kind, meta)) = told.recv().await {
            own.about(kind, &meta);
        }
    });
    let own = tell.clone();
    let refused = move |set: Meta| own.node(&set.namespace, set.name);
    helpers.spawn(refusals::watch(api(Kind::Event), view.clone(), refused));
    for (kind, mut stream) in streams {
        let tell = tell.clone();
        helpers.spawn(async move {
            while let Some(meta) = stream.next().await {
                tell.about(kind, &meta);
            }
        });
    }
}

#[derive(Clone)]
struct Tell {
    view: Arc<View>,
    fleets: UnboundedSender<Key>,
    nodes: UnboundedSender<Key>,
}

impl Tell {
    fn about(&self, kind: Kind, meta: &Meta) {
        let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
        let label = |key: &str| meta.label(key).map(str::to_owned);
        let owner = |kind: &str| meta.owners.iter().find(|o| o.kind == kind).map(|o| o.name.clone());
        let fleet = || owner(Kind::NodeDeployment.name()).or_else(|| label(LABEL_DEPLOYMENT));
        match kind {
            Kind::NodeDeployment => {
                self.nodes_at_hooks(&Key::new(&namespace, name.clone()));
                self.fleet(&namespace, name);
            }
            Kind::StatefulNode => {
                match fleet() {
                    Some(fleet) => self.fleet(&namespace, fleet),
                    // Its labels are not known, or somebody took them: any fleet here may miss it.
                    None => self.every_fleet(&namespace),
                }
                self.node(&namespace, name);
            }
            Kind::StatefulSet => {
                self.fleet_without(&namespace, &name, label(LABEL_DEPLOYMENT));
                self.node(&namespace, name);
            }
            Kind::Service => {
                self.fleet(&namespace, name.clone());
                self.node(&namespace, name);
            }
            Kind::Pod => {
                let node = label(LABEL_NODE).or_else(|| name.strip_suffix("-0").map(str::to_owned));
                let node = node.unwrap_or_default();
                self.fleet_without(&namespace, &node, label(LABEL_DEPLOYMENT));
                self.node(&namespace, node);
            }
            Kind::PersistentVolumeClaim => {
                let node = label(LABEL_NODE).unwrap_or_default();
                // A set of nodes is removed only once its claims are not owned by them any more.
                let of_node = self.view.nodes.get(&Key::new(&namespace, &node));
                if let Some(fleet) = of_node.and_then(|n| n.meta.label(LABEL_DEPLOYMENT).map(str::to_owned)) {
                    self.fleet(&namespace, fleet);
                }
                self.node(&namespace, node);
            }
            Kind::ControllerRevision => match fleet() {
                Some(fleet) => self.fleet(&namespace, fleet),
                None => self.every_fleet(&namespace),
            },
            Kind::Event | Kind::Secret | Kind::WorkerDeployment | Kind::Job => {}
        }
    }

    fn fleet(&self, namespace: &str, name: String) {
        let key = Key::new(namespace, name);
        if self.view.fleets.get(&key).is_some() {
            // The receiver is gone only when the operator stops.
            let _ = self.fleets.send(key);
        }
    }

    /// What a fleet says of hooks concerns those of its nodes that do something: they read it there.
    fn nodes_at_hooks(&self, fleet: &Key) {
        let Some(fleet) = self.view.fleets.get(fleet) else { return };
        let Ok(spec) = &fleet.spec else { return };
        let has_any = spec.update_strategy.hooks.iter().any(|hook| hook.at.is_of_node());
        let nodes = self.view.nodes.group(&fleet.meta.namespace, &fleet.meta.uid);
        for node in nodes.iter().filter(|_| has_any) {
            if node.status.plan.as_ref().is_some_and(RawPlan::may_be_active) {
                let _ = self.nodes.send(node.meta.key());
            }
        }
    }

    /// What is left of a node that is gone concerns its fleet: it may wait for the last of it to go.
    fn fleet_without(&self, namespace: &str, node: &str, fleet: Option<String>) {
        if self.view.nodes.get(&Key::new(namespace, node)).is_some() {
            return;
        }
        if let Some(fleet) = fleet {
            return self.fleet(namespace, fleet);
        }
        // Of what a relist did not find any more only the name is known, and a node's name says whose it may be.
        for fleet in self.view.fleets.list(namespace, |f| place_of(&f.meta.name, node).is_some()) {
            let _ = self.fleets.send(fleet.meta.key());
        }
    }

    fn every_fleet(&self, namespace: &str) {
        for fleet in self.view.fleets.list(namespace, |_| true) {
            let _ = self.fleets.send(fleet.meta.key());
        }
    }

    fn node(&self, namespace: &str, name: String) {
        let key = Key::new(namespace, name);
        if self.view.nodes.get(&key).is_some() {
            let _ = self.nodes.send(key);
        }
    }
}
