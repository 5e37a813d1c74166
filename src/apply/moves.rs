//! Requests to nodes to move their pods off machines that are being drained.

use serde_json::json;

use super::many::{OnFailure, for_each_concurrent};
use crate::observe::FleetScope;
use crate::planner::fleet::FleetFacts;
use crate::planner::fleet::drain::{MoveRequest, ended_moves, next_moves};
use windlass_kube_port::{ClusterError, Key, Kind, Part, PatchOp, Target};

impl FleetScope {
    /// Requests the moves that the wave allows, and ends the requests that are of no more use. A move is requested only if
    /// the API server confirms that the nodes are as assumed. Returns a sentence that says what differs, if something
    /// does.
    pub(crate) async fn move_pods(&self) -> Result<Option<String>, ClusterError> {
        let facts = self.facts();
        self.request_moves(&facts, ended_moves(&facts)).await?;
        let facts = self.facts();
        let moves = next_moves(&facts, &self.rollout_target);
        if moves.is_empty() {
            return Ok(None);
        }
        let taken: Vec<&str> = moves.iter().map(|request| request.name.as_str()).collect();
        let differs = self.find_stale_pods(&facts.children, &taken).await?;
        if differs.is_none() {
            self.request_moves(&facts, moves).await?;
        }
        Ok(differs)
    }

    async fn request_moves(&self, facts: &FleetFacts, moves: Vec<MoveRequest>) -> Result<(), ClusterError> {
        if let Some(pods) = &self.pods {
            self.plan_moves(pods, facts, moves);
            return Ok(());
        }
        let request = |request: MoveRequest| async move { self.request_move(&request).await };
        for_each_concurrent(moves, OnFailure::DoAll, request).await.map(drop)
    }

    async fn request_move(&self, request: &MoveRequest) -> Result<(), ClusterError> {
        let key = Key::new(&self.fleet.meta.namespace, request.name.as_str());
        let Some(node) = self.view.nodes.get(&key) else { return Ok(()) };
        let op = match &request.pod {
            Some(pod) => PatchOp::set("/spec/move", json!(pod)),
            None => PatchOp::remove("/spec/move"),
        };
        match self.cluster.patch(Target::of(Kind::StatefulNode, &node.meta), Part::Main, vec![op]).await {
            Ok(_) | Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
