//! The executor: the reconcile of one node, as a pipeline of values. Each stage consumes the result of the one before
//! it.
//!
//! [`Node::observe`] → `Observed` → `decide` → `Decided` → `apply` → `Applied` → `report` → [`Next`]
//!
//! A stage that fails returns a [`Failed`], which still reports what was observed.

mod apply;
mod change;
mod context;
mod decide;
mod hooks;
mod observe;
mod of_fleet;
mod plans;
mod report;

use super::{Context, Next, ReconcileError};
use crate::cluster::Key;
use context::{Failed, Node};

/// Reconciles one node.
pub async fn reconcile(cx: &Context, key: &Key) -> Result<Next, ReconcileError> {
    let Some(node) = cx.view.nodes.get(key) else { return Ok(Next::on_event()) };
    match advance(Node::new(cx, key, node)).await {
        Ok(next) => Ok(next),
        Err(failed) => failed.report().await,
    }
}

async fn advance(node: Node<'_>) -> Result<Next, Box<Failed<'_>>> {
    let observed = node.observe();
    let decided = observed.decide().await?;
    let applied = decided.apply().await?;
    applied.report().await
}
