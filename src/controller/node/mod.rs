//! The executor: the reconcile of one node, as a pipeline of values. Each stage consumes the result of the one before
//! it.
//!
//! [`Node::probe`] → `Probed` → `decide` → `Decided` → `act` → `Acted` → `report` → [`Next`]
//!
//! A stage that fails returns a [`Failed`], which still reports what was observed.

mod act;
mod change;
mod context;
mod decide;
mod hooks;
mod of_fleet;
mod plans;
mod probe;
mod report;

use super::{Context, Next, ReconcileError};
use context::{Failed, Node};
use windlass_kube_port::Key;

/// Reconciles one node.
pub async fn reconcile(cx: &Context, key: &Key) -> Result<Next, ReconcileError> {
    let Some(node) = cx.view.nodes.get(key) else { return Ok(Next::on_event()) };
    match advance(Node::new(cx, key, node)).await {
        Ok(next) => Ok(next),
        Err(failed) => failed.report().await,
    }
}

async fn advance(node: Node<'_>) -> Result<Next, Box<Failed<'_>>> {
    node.probe().await?.decide().act().await?.report().await
}
