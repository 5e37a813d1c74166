//! Evictions, as far as PodDisruptionBudgets with a whole number as `minAvailable` allow them. A real controller counts
//! the healthy pods a moment later, and remembers each eviction by the pod's name until it has seen its end; here they are
//! counted when a request comes.

use serde_json::{Value, json};

use super::super::refusal::Refusal;
use super::super::selector::LabelSelector;
use super::super::store::{Key, Object};
use super::super::world::World;

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

impl World {
    /// Why a pod may not be evicted now.
    pub(crate) fn refuse_eviction(&self, key: &Key) -> Option<Refusal> {
        let pods = self.kind("Pod")?;
        let pod = self.store.get(pods.shelf, key)?;
        // Such a pod serves nobody, and is evicted whatever the budget says.
        if pod.is_terminating() || pod.value["status"]["phase"] != "Running" {
            return None;
        }
        let selects = |budget: &Value, pod: &Object| {
            LabelSelector::of(&budget["spec"]["selector"])
                .is_some_and(|selector| selector.matches(&pod.value))
        };
        let budgets = self.store.list(self.kind("PodDisruptionBudget")?.shelf, &key.0);
        let mut budgets = budgets.map(|(_, budget)| &budget.value).filter(|budget| selects(budget, pod));
        let budget = budgets.next()?;
        if budgets.next().is_some() {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Some(Refusal::new(500, "", why));
        }
        let desired = budget["spec"]["minAvailable"].as_u64()? as usize;
        let is_healthy = |pod: &Object| !pod.is_terminating() && is_ready(&pod.value);
        let of_namespace = self.store.list(pods.shelf, &key.0).map(|(_, pod)| pod.as_ref());
        let healthy = of_namespace.filter(|pod| selects(budget, pod) && is_healthy(pod)).count();
        let is_allowed = if is_healthy(pod) {
            healthy > desired
        } else {
            budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || healthy >= desired && desired > 0
        };
        if is_allowed {
            return None;
        }
        let name = budget["metadata"]["name"].as_str().unwrap_or_default();
        let message =
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
        let mut refusal = Refusal::new(429, "TooManyRequests", REFUSED);
        refusal.details = json!({"causes": [{"reason": "DisruptionBudget", "message": message}]});
        Some(refusal)
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
