//! When and how a status is written: whole, guarded by the resourceVersion that it was decided on, and
//! only when it says something new.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::{Context, Next, ReconcileError};
use crate::clock::monotonic;
use crate::cluster::observed::Meta;
use crate::cluster::{Kind, Part, PatchOp, Target};

/// How long the progress of a node's plan may stay unwritten.
const NODE_DELAY: Duration = Duration::from_secs(2);
/// A fleet's progress is written at most this often.
const FLEET_INTERVAL: Duration = Duration::from_secs(1);
/// The largest status that is written, in bytes: etcd and the API server refuse objects over 1.5 MiB.
const MAX_STATUS_BYTES: usize = 512 * 1024;

/// How soon a difference has to be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Urgency {
    /// A plan began or ended, or something that a decision rests on changed.
    Now,
    /// Progress within a plan: it may be done again at no cost, so it may be lost.
    Progress,
}

/// Writes a status if it differs, now or later. Answers with when to look again.
pub async fn save<S: Serialize + PartialEq>(
    cx: &Context,
    kind: Kind,
    meta: &Meta,
    before: &S,
    after: &S,
    urgency: Urgency,
) -> Result<Next, ReconcileError> {
    if before == after {
        cx.memory.unsaved_since.take(&meta.uid);
        return Ok(Next::on_event());
    }
    if urgency == Urgency::Progress
        && let Some(wait) = wait(cx, kind, meta)
    {
        return Ok(Next::on_event().within(wait));
    }
    write(cx, kind, meta, after).await?;
    Ok(Next::on_event())
}

fn wait(cx: &Context, kind: Kind, meta: &Meta) -> Option<Duration> {
    let now = monotonic();
    let (since, delay) = if kind == Kind::NodeDeployment {
        (cx.memory.saved_at.get(&meta.uid)?, FLEET_INTERVAL)
    } else {
        let since = cx.memory.unsaved_since.get(&meta.uid).unwrap_or(now);
        cx.memory.unsaved_since.put(meta.uid.clone(), since);
        (since, NODE_DELAY)
    };
    delay.checked_sub(now.duration_since(since)).filter(|rest| !rest.is_zero())
}

async fn write<S: Serialize>(
    cx: &Context,
    kind: Kind,
    meta: &Meta,
    status: &S,
) -> Result<(), ReconcileError> {
    let value = json!(status);
    let bytes = value.to_string().len();
    if bytes > MAX_STATUS_BYTES {
        return Err(ReconcileError::Plan(format!(
            "the status of {} {} would have {bytes} bytes; at most {MAX_STATUS_BYTES} are written",
            kind.name(),
            meta.key()
        )));
    }
    let ops = vec![PatchOp::set("/status", value)];
    cx.cluster.patch(Target::of(kind, meta), Part::Status, ops).await.map_err(ReconcileError::Persist)?;
    cx.memory.unsaved_since.take(&meta.uid);
    cx.memory.saved_at.put(meta.uid.clone(), monotonic());
    Ok(())
}
