//! When and how a status is written: as a whole, guarded by the resourceVersion that it was decided on, and only if it
//! differs.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::events::Event;
use super::record::{Progress, Recorded, record};
use super::{Context, Next, ReconcileError};
use crate::api::conditions::{self, Truth};
use crate::api::{Condition, Reason};
use windlass_kube_port::observed::Meta;
use windlass_kube_port::{Kind, Part, PatchOp, Target};

/// How long a node's plan may wait for the same thing before that progress is written.
const NODE_DELAY: Duration = Duration::from_secs(2);
/// The maximum time that progress of a node's plan stays unwritten, even if each of its waits is short.
const NODE_DELAY_IN_ALL: Duration = Duration::from_secs(10);
/// The minimum interval between writes of a fleet's progress.
const FLEET_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum size of a status, in bytes: etcd and the API server refuse objects over 1.5 MiB.
const MAX_STATUS_BYTES: usize = 512 * 1024;

/// How soon a changed status has to be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Urgency<'a> {
    /// A plan began or ended, or something changed that decisions depend on.
    Now,
    /// Progress within a plan, which may be lost because tasks are idempotent. The text is what a node's plan waits
    /// for: short waits are not written.
    Progress(&'a str),
}

/// Writes a status if it differs, now or in a later reconcile. Returns when to requeue.
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
        cx.status_writes.in_sync(&meta.uid);
        return Ok(Next::on_event());
    }
    if let Urgency::Progress(waits_for) = urgency
        && let Some(wait) = wait(cx, kind, meta, waits_for)
    {
        return Ok(Next::on_event().within(wait));
    }
    let value = json!(after);
    if value.to_string().len() > MAX_STATUS_BYTES {
        return Err(report_too_large(cx, kind, meta, &json!(before)).await);
    }
    write(cx, kind, meta, PatchOp::set("/status", value)).await?;
    // Recorded after the write, so that a reconcile that ends in a conflict counts nothing twice.
    record(cx, kind, meta, before, after, progress);
    Ok(Next::on_event())
}

/// Reports in the conditions of the stored status that the new status is too large to be written. Running pods are not
/// changed, because no plan starts that is not persisted. Returns the error of the reconcile.
async fn report_too_large(cx: &Context, kind: Kind, meta: &Meta, stored: &Value) -> ReconcileError {
    let sentence = format!(
        "status: not written, because it would have more than {MAX_STATUS_BYTES} bytes: remove what others have \
         added to it, or make the params of custom tasks smaller"
    );
    let before: Vec<Condition> = serde_json::from_value(stored["conditions"].clone()).unwrap_or_default();
    let mut said = before.clone();
    let up_to_date = (kind != Kind::StatefulNode).then_some((conditions::UP_TO_DATE, Truth::False));
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
    cx.events.record(kind, meta, &Event::warning(Reason::InvalidSpec, cause, &sentence));
    ReconcileError::Plan(sentence)
}

fn wait(cx: &Context, kind: Kind, meta: &Meta, waits_for: &str) -> Option<Duration> {
    let rest = if kind == Kind::StatefulNode {
        cx.status_writes.delayed(&meta.uid, waits_for, NODE_DELAY, NODE_DELAY_IN_ALL)
    } else {
        cx.status_writes.left_of(&meta.uid, FLEET_INTERVAL)
    };
    rest.filter(|rest| !rest.is_zero())
}

async fn write(cx: &Context, kind: Kind, meta: &Meta, op: PatchOp) -> Result<(), ReconcileError> {
    let patched = cx.cluster.patch(Target::of(kind, meta), Part::Status, vec![op]).await;
    patched.map_err(ReconcileError::Persist)?;
    cx.status_writes.wrote(&meta.uid);
    Ok(())
}
