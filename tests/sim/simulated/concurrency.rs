//! `--concurrency`: how many objects of a kind are reconciled at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass::engine::{Outcome, Recipe, Task, TaskContext, TaskError};
use windlass::operator::Operator;

use super::sets::world::{fleet, play};

/// The current and the greatest number of reconciles.
#[derive(Clone, Default)]
struct Room(Arc<Mutex<(usize, usize)>>);

/// `linger`: a reconcile takes a second.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Linger {}

#[typetag::serde(name = "linger")]
#[async_trait]
impl Task for Linger {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let room = cx.env.get::<Room>()?;
        {
            let mut room = room.0.lock().unwrap();
            *room = (room.0 + 1, room.1.max(room.0 + 1));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        room.0.lock().unwrap().0 -= 1;
        Ok(Outcome::Done)
    }
}

const NODE_UPDATE: &str = "
name: NodeUpdate
tasks:
  - type: linger
  - type: apply-stateful-set
  - type: apply-service
  - type: replace-pod
  - type: observe-image
  - type: mark-ready
";

/// The most nodes of a fleet of twelve that were reconciled at the same time.
fn most_at_once(concurrency: u16) -> usize {
    let room = Room::default();
    let provided = room.clone();
    play(|w| async move {
        w.kill_operator();
        let operator = Operator::new(w.cluster.client("windlass", "test"))
            .clock(w.cluster.clock())
            .concurrency(concurrency)
            .recipe(Recipe::parse(NODE_UPDATE).unwrap())
            .provide(provided);
        tokio::spawn(operator.run(std::future::pending::<()>()));
        w.serve(fleet(12, json!({"type": "InPlace"}))).await;
    });
    room.0.lock().unwrap().1
}

#[test]
fn concurrent_node_reconciles_are_limited() {
    for concurrency in [1, 3] {
        assert_eq!(most_at_once(concurrency), usize::from(concurrency));
    }
    assert_eq!(most_at_once(32), 12, "where there is room, all of them");
}
