//! Workflows that are pinned to a version before it takes tasks.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Ground, describe, identity, queue, until, until_status};
use windlass_temporal::port::{BuildId, GateStart, GateState, TemporalError, VersionStatus};

fn gate(ground: &dyn Ground, id: &str, input: Value) -> GateStart {
    let id = format!("{}-{id}", ground.deployment());
    GateStart {
        deployment: ground.deployment(),
        build: BuildId::new("v1"),
        workflow_id: id.clone(),
        request_id: id,
        workflow_type: "Gate".to_owned(),
        task_queue: queue(ground),
        input: Some(input).filter(|input| !input.is_null()),
        timeout: Duration::from_mins(1),
        identity: identity(),
    }
}

/// Starts a gate as soon as the version accepts pinned workflows.
async fn begun(ground: &dyn Ground, start: &GateStart) {
    until(ground, "the gate is taken", async || match ground.temporal().start_gate(start).await {
        Ok(()) => Some(()),
        Err(TemporalError::VersionNotReady { .. }) => None,
        Err(error) => panic!("{error}"),
    })
    .await;
}

async fn ended(ground: &dyn Ground, start: &GateStart) -> GateState {
    begun(ground, start).await;
    until(ground, "the gate has ended", async || {
        let state = ground.temporal().describe_gate(&start.workflow_id).await.ok()?;
        (state != GateState::Running).then_some(state)
    })
    .await
}

pub async fn ends(ground: &dyn Ground) {
    ground.work("v1", &[queue(ground)]).await;
    let port = ground.temporal();
    let good = gate(ground, "good", json!({"order": 7}));
    assert_eq!(ended(ground, &good).await, GateState::Completed);
    assert_eq!(port.start_gate(&good).await, Ok(()), "the same request again");
    let other = GateStart { request_id: "another".to_owned(), ..good.clone() };
    assert_eq!(port.start_gate(&other).await, Ok(()), "another request for the same gate");
    assert_eq!(port.describe_gate(&good.workflow_id).await, Ok(GateState::Completed), "it did not run again");
    let bad = gate(ground, "bad", json!({"fail": "no stock, no sale"}));
    let words = GateState::Failed { message: "no stock, no sale".to_owned() };
    assert_eq!(ended(ground, &bad).await, words);
    assert_eq!(ended(ground, &gate(ground, "none", Value::Null)).await, GateState::Completed);
}

pub async fn hangs(ground: &dyn Ground) {
    ground.work("v1", &[queue(ground)]).await;
    let port = ground.temporal();
    let short = GateStart { timeout: Duration::from_secs(2), ..gate(ground, "short", json!({"hang": true})) };
    assert_eq!(ended(ground, &short).await, GateState::TimedOut);
    let long = gate(ground, "long", json!({"hang": true}));
    begun(ground, &long).await;
    assert_eq!(port.describe_gate(&long.workflow_id).await, Ok(GateState::Running));
    assert_eq!(port.end_gate(&long.workflow_id, "its target was given up", &identity()).await, Ok(()));
    let message = "its target was given up".to_owned();
    assert_eq!(port.describe_gate(&long.workflow_id).await, Ok(GateState::Ended { message }));
    assert_eq!(port.end_gate(&long.workflow_id, "again", &identity()).await, Ok(()));
}

pub async fn drains(ground: &dyn Ground) {
    ground.work("v1", &[queue(ground)]).await;
    assert_eq!(ended(ground, &gate(ground, "alone", Value::Null)).await, GateState::Completed);
    until_status(ground, "v1", VersionStatus::Drained).await;
    let v1 = describe(ground).await.versions.into_iter().find(|version| version.build.as_str() == "v1");
    let v1 = v1.unwrap_or_else(|| panic!("v1 is listed"));
    assert_eq!((v1.first_activated, v1.last_current), (None, None), "it was never promoted");
}
