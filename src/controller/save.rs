//! When and how a status is written: whole, guarded by the resourceVersion that it was decided on, and
//! only when it says something new.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::events::EventType;
use super::record::{Progress, Recorded, record};
use super::{Context, Next, ReconcileError};
use crate::api::conditions::{self, Truth};
use crate::api::{Condition, Reason};
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
pub async fn save<S: Serialize + PartialEq + Recorded>(
    cx: &Context,
    kind: Kind,
    meta: &Meta,
    before: &S,
    after: &S,
    urgency: Urgency<'_>,
    progress: Progress<'_>,
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
    let value = json!(after);
    if value.to_string().len() > MAX_STATUS_BYTES {
        return Err(say_too_large(cx, kind, meta, &json!(before)).await);
    }
    write(cx, kind, meta, PatchOp::set("/status", value)).await?;
    // What is persisted is counted and told, so that nothing is counted twice by a reconcile that ends in a conflict.
    record(cx, kind, meta, before, after, progress);
    Ok(Next::on_event())
}

/// Says that a status cannot be written, in what is stored of it; what runs is left alone, since nothing is begun that is
/// not persisted. Answers with the error that the reconcile ends in.
async fn say_too_large(cx: &Context, kind: Kind, meta: &Meta, stored: &Value) -> ReconcileError {
    let sentence = format!(
        "status: it would have more than {MAX_STATUS_BYTES} bytes and is not written; take out of it what somebody else put \
         there, or make the params of tasks of your own smaller"
    );
    let before: Vec<Condition> = serde_json::from_value(stored["conditions"].clone()).unwrap_or_default();
    let mut said = before.clone();
    let up_to_date = (kind == Kind::NodeDeployment).then_some((conditions::UP_TO_DATE, Truth::False));
    for (type_, truth) in up_to_date.into_iter().chain([(conditions::STALLED, Truth::True)]) {
        conditions::set(
            &mut said,
            type_,
            truth,
            Reason::InvalidSpec,
            &sentence,
            meta.generation,
            cx.clock.now(),
        );
    }
    if said != before {
        let op = if before.is_empty() {
            let mut status = stored.clone();
            status["conditions"] = json!(said);
            PatchOp::set("/status", status)
        } else {
            PatchOp::set("/status/conditions", json!(said))
        };
        if let Err(error) = write(cx, kind, meta, op).await {
            return error;
        }
    }
    let cause = format!("{}/size of the status", meta.generation);
    cx.events.send(kind, meta, EventType::Warning, Reason::InvalidSpec, &cause, &sentence);
    ReconcileError::Plan(sentence)
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
        cx.memory.unsaved_since.put(&meta.uid, unsaved);
        rest
    };
    rest.filter(|rest| !rest.is_zero())
}

async fn write(cx: &Context, kind: Kind, meta: &Meta, op: PatchOp) -> Result<(), ReconcileError> {
    let patched = cx.cluster.patch(Target::of(kind, meta), Part::Status, vec![op]).await;
    patched.map_err(ReconcileError::Persist)?;
    cx.memory.unsaved_since.take(&meta.uid);
    cx.memory.saved_at.put(&meta.uid, monotonic());
    Ok(())
}
