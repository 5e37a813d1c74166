//! When and how a status is written: whole, guarded by the resourceVersion that it was decided on, and
//! only when it says something new.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::{Context, Next, ReconcileError};
use crate::clock::monotonic;
use crate::cluster::memory::Unsaved;
use crate::cluster::observed::Meta;
use crate::cluster::{Kind, Part, PatchOp, Target};

/// How long a node's plan may wait for one thing before that is written.
const NODE_DELAY: Duration = Duration::from_secs(2);
/// How long the progress of a node's plan may stay unwritten, however short each of its waits is.
const NODE_DELAY_IN_ALL: Duration = Duration::from_secs(10);
/// A fleet's progress is written at most this often.
const FLEET_INTERVAL: Duration = Duration::from_secs(1);
/// The largest status that is written, in bytes: etcd and the API server refuse objects over 1.5 MiB.
const MAX_STATUS_BYTES: usize = 512 * 1024;

/// How soon a difference has to be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Urgency<'a> {
    /// A plan began or ended, or something that a decision rests on changed.
    Now,
    /// Progress within a plan: it may be done again at no cost, so it may be lost. With it what a node's plan
    /// waits for, in a sentence: a wait is told if it is a long one.
    Progress(&'a str),
}

/// Writes a status if it differs, now or later. Answers with when to look again.
pub async fn save<S: Serialize + PartialEq>(
    cx: &Context,
    kind: Kind,
    meta: &Meta,
    before: &S,
    after: &S,
    urgency: Urgency<'_>,
) -> Result<Next, ReconcileError> {
    if before == after {
        cx.memory.unsaved_since.take(&meta.uid);
        return Ok(Next::on_event());
    }
    if let Urgency::Progress(waits_for) = urgency
        && let Some(wait) = wait(cx, kind, meta, waits_for)
    {
        return Ok(Next::on_event().within(wait));
    }
    write(cx, kind, meta, after).await?;
    Ok(Next::on_event())
}

fn wait(cx: &Context, kind: Kind, meta: &Meta, waits_for: &str) -> Option<Duration> {
    let now = monotonic();
    let left = |since: Instant, delay: Duration| delay.checked_sub(now.duration_since(since));
    let rest = if kind == Kind::NodeDeployment {
        left(cx.memory.saved_at.get(&meta.uid)?, FLEET_INTERVAL)
    } else {
        let known = cx.memory.unsaved_since.get(&meta.uid);
        let same = known.as_ref().filter(|known| known.waits_for == waits_for).map(|known| known.since);
        let unsaved = Unsaved {
            first: known.map_or(now, |known| known.first),
            since: same.unwrap_or(now),
            waits_for: waits_for.to_owned(),
        };
        let rest = left(unsaved.since, NODE_DELAY).min(left(unsaved.first, NODE_DELAY_IN_ALL));
        cx.memory.unsaved_since.put(meta.uid.clone(), unsaved);
        rest
    };
    rest.filter(|rest| !rest.is_zero())
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
