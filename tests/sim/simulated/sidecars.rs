//! Unreachable sidecars: requests to them are lost.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use windlass::clock::monotonic;
use windlass::operator::Operator;
use windlass::sidecar::{SidecarClient, SidecarError, Status, TaskAnswer, TaskRequest};

use super::sets::world::{NODE, fleet, is_up_to_date, play, with_sidecar};

/// Every exchange ends with the client's time-out.
struct Dropped;

async fn nothing() -> SidecarError {
    tokio::time::sleep(Duration::from_secs(2)).await;
    SidecarError::Unreachable("the sidecar did not answer within 2 s".to_owned())
}

#[async_trait]
impl SidecarClient for Dropped {
    async fn status(&self, _: &str) -> Result<Status, SidecarError> {
        Err(nothing().await)
    }

    async fn submit<'a>(&self, _: &str, _: &TaskRequest, _: Option<&'a str>) -> Result<(), SidecarError> {
        Err(nothing().await)
    }

    async fn task(&self, _: &str, _: &str) -> Result<Option<TaskAnswer>, SidecarError> {
        Err(nothing().await)
    }
}

/// How long the rollout of a fleet of three takes next to this many nodes with unreachable sidecars.
fn rolled_beside(cut_off: i32) -> Duration {
    let took = Cell::new(Duration::ZERO);
    let into = &took;
    play(|w| async move {
        w.kill_operator();
        let operator = Operator::new(w.cluster.client("windlass", "test"))
            .clock(w.cluster.clock())
            .sidecars(Arc::new(Dropped));
        tokio::spawn(operator.run(std::future::pending::<()>()));
        let hash = w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        if cut_off > 0 {
            let mut cut = with_sidecar(fleet(cut_off, json!({"type": "InPlace"})));
            cut["metadata"]["name"] = json!("cut");
            w.create(cut).await;
            let is_asked =
                |node: &String| w.get(NODE, node)["status"].to_string().contains("\"Unreachable\"");
            w.until("each of them was asked", |_| {
                let nodes = w.names(NODE);
                nodes.iter().filter(|node| node.starts_with("cut-") && is_asked(node)).count()
                    == usize::try_from(cut_off).unwrap()
            })
            .await;
        }
        let began = monotonic();
        w.image("db:2").await;
        w.until("it is rolled", |s| is_up_to_date(s) && s["lastCompletedRolloutHash"] != hash.as_str()).await;
        into.set(monotonic().duration_since(began));
    });
    took.get()
}

#[test]
fn many_unreachable_sidecars_delay_no_other_fleet() {
    let (alone, beside) = (rolled_beside(0), rolled_beside(150));
    assert!(beside <= alone + Duration::from_secs(1), "{beside:?} beside them, {alone:?} alone");
}
