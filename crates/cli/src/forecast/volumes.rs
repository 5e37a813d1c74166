//! The volume claims that grow after a change.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Examined;
use windlass::tasks::FleetScope;
use windlass_core::api::names::pod_name;
use windlass_core::api::{SetName, Shared, StatefulNodeSpec};
use windlass_core::planner::fleet::{ChildFacts, FleetFacts};
use windlass_core::planner::growth::{Growth, GrowthInput};
use windlass_core::revision::{RevisionData, are_same_claims, growth, sizes_of};
use windlass_kube_port::Key;

/// The claims that the nodes of the active set were created with; `None` if no node was read.
pub(super) fn created(scope: &FleetScope) -> Option<Shared<Vec<Value>>> {
    let namespace = &scope.fleet.meta.namespace;
    let node = |child: &ChildFacts| scope.view.nodes.get(&Key::new(namespace, child.name.as_str()));
    let claims = |child| Some(node(child)?.spec.as_ref().ok()?.volume_claim_templates.clone());
    scope.facts().wanted().find_map(claims)
}

impl Examined<'_> {
    /// The claims that grow, each in a sentence. `entrant`: the set that takes over, if one does: only its nodes get the desired
    /// sizes.
    pub(super) fn growing_claims(&self, facts: &FleetFacts, entrant: Option<&SetName>) -> Vec<String> {
        let of_entrant = entrant.and_then(|set| facts.sets.get_key_value(set)).into_iter();
        let of_entrant = of_entrant.flat_map(|(set, of)| of.children.iter().map(move |child| (set, child)));
        let nodes = facts.wanted().map(|child| (&facts.set, child)).chain(of_entrant);
        let mut sentences = Vec::new();
        for (set, child) in nodes.filter(|(_, child)| !child.surplus && !child.terminating) {
            let key = Key::new(&self.scope.fleet.meta.namespace, child.name.as_str());
            let Some(node) = self.scope.view.nodes.get(&key) else { continue };
            // A node that is suspended waits until it is resumed.
            let Some(spec) = node.spec.as_deref().ok().filter(|spec| !spec.suspend) else { continue };
            let sizes = self.claim_sizes(spec, entrant.is_none_or(|entrant| entrant == set));
            let growing = sizes.into_iter().filter_map(|size| self.growing(&key, size));
            sentences.extend(growing.map(|sentence| format!("{}: {sentence}", child.name)));
        }
        sentences
    }

    /// The sizes to which the claims of a node grow, by the names of their templates. `stays`: no other set takes its place.
    fn claim_sizes(&self, spec: &StatefulNodeSpec, stays: bool) -> BTreeMap<String, String> {
        let desired = RevisionData::of(&self.scope.spec.template.spec);
        let sizes = sizes_of(&desired.volume_claim_templates);
        let created = &spec.volume_claim_templates;
        let has_same = are_same_claims(&desired.with_sizes_of(created).volume_claim_templates, created);
        if stays && has_same && self.scope.blocker.is_none() && !self.scope.spec.paused {
            growth(created, &sizes)
        } else {
            spec.claim_sizes.clone()
        }
    }

    /// What is left to do until a claim of a node has this size, in a sentence; `None` if it does not grow.
    fn growing(&self, node: &Key, (template, size): (String, String)) -> Option<String> {
        let view = &self.scope.view;
        let pod = view.pods.get(&Key::new(&node.namespace, pod_name(&node.name)));
        let input = GrowthInput {
            node: &node.name,
            sizes: &BTreeMap::from([(template, size)]),
            set: None,
            pod: pod.as_deref(),
            now: self.now,
            seen: &|_| self.now,
            warning: &|_| None,
        };
        let growth = Growth::of(&input, |name| view.claims.get(&Key::new(&node.namespace, name)));
        growth.is_pending().then(|| growth.sentence().to_owned())
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "as tests read best")]
mod tests {
    use serde_json::{Value, json};

    use crate::empty_cluster::with_objects;
    use crate::forecast::{Change, Forecast, forecast};
    use crate::plan;
    use windlass_core::api::StatefulNodeSpec;
    use windlass_core::revision::RevisionData;

    /// The new set of a rollout that waits for its promotion.
    const NEW: &str = "abcde";

    fn template(image: &str, sizes: [&str; 2]) -> Value {
        let claim = |name: &str, size: &str| {
            json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}}}})
        };
        let sidecar = json!({"image": "sidecar:1", "args": ["--height-url=http://localhost/height"]});
        json!({"image": image, "sidecar": sidecar, "podTemplate": {"spec": {"containers": [{"name": "db"}]}},
            "volumeClaimTemplates": [claim("data", sizes[0]), claim("wal", sizes[1])]})
    }

    fn hash(template: &Value) -> String {
        let spec: StatefulNodeSpec = serde_json::from_value(template.clone()).unwrap();
        RevisionData::of(&spec).rollout_hash("").to_string()
    }

    fn namespaced(kind: &str, name: &str, more: Value) -> Value {
        let mut object = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": name,
            "namespace": "prod", "uid": format!("uid of {name}"), "generation": 1, "resourceVersion": "5"}});
        json_patch::merge(&mut object, &more);
        object
    }

    fn node(set: &str, template: Value) -> Vec<Value> {
        let name = if set == "first" { "db-0".to_owned() } else { format!("db-{set}-0") };
        let owner = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "name": "db",
            "uid": "uid of db", "controller": true});
        let meta = json!({"labels": {"windlass.dev/deployment": "db"}, "ownerReferences": [owner]});
        let claims = ["data", "wal"].map(|claim| {
            let labels = json!({"windlass.dev/node": name});
            namespaced(
                "PersistentVolumeClaim",
                &format!("{claim}-{name}-0"),
                json!({"metadata": {"labels": labels},
                    "spec": {"resources": {"requests": {"storage": "10Gi"}}},
                    "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}}}),
            )
        });
        let node = namespaced("StatefulNode", &name, json!({"metadata": meta, "spec": template}));
        claims.into_iter().chain([node]).collect()
    }

    /// A fleet with one node and volumes of 10Gi that has completed db:1, with `status` merged.
    fn fleet(strategy: &str, template: &Value, status: Value) -> Value {
        let completed = hash(&self::template("db:1", ["10Gi"; 2]));
        let mut fleet = namespaced(
            "NodeDeployment",
            "db",
            json!({"spec": {"replicas": 1, "template": {"spec": template}, "updateStrategy": {"type": strategy, "hardFork": {"haltHeight": 100}}},
                "status": {"observedGeneration": 1, "activeSet": "first", "replicas": 1,
                    "requestedRolloutHash": hash(template), "lastCompletedRolloutHash": completed}}),
        );
        json_patch::merge(&mut fleet, &json!({"status": status}));
        fleet
    }

    /// The forecast of a change of the image and of the sizes.
    async fn after(objects: Vec<Value>, image: &str, sizes: [&str; 2]) -> Forecast {
        let change = Change::Merge(json!({"spec": {"template": {"spec": template(image, sizes)}}}));
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        forecast(&with_objects(objects, &[]), "prod", "db", &change, now).await.unwrap()
    }

    fn told(forecast: &Forecast) -> String {
        let lines = plan::lines(forecast).into_iter().map(|line| format!("{line}\n"));
        lines.collect()
    }

    fn steady(strategy: &str) -> Vec<Value> {
        let template = template("db:1", ["10Gi"; 2]);
        let mut objects = node("first", template.clone());
        objects.push(fleet(strategy, &template, json!({})));
        objects
    }

    const SIZES: &str = "  applies at once:
    volumeClaimTemplates[0].spec.resources.requests.storage \"10Gi\" → \"20Gi\"
    volumeClaimTemplates[1].spec.resources.requests.storage \"10Gi\" → \"30Gi\"
";

    #[tokio::test]
    async fn every_claim_that_grows_is_listed() {
        for strategy in ["InPlace", "BlueGreen", "HardFork"] {
            let forecast = after(steady(strategy), "db:1", ["20Gi", "30Gi"]).await;
            let text = told(&forecast);
            assert!(text.starts_with(&format!("db   no new target\n{SIZES}")), "{strategy}: {text}");
            assert_eq!(
                forecast.grows,
                [
                    "db-0: PersistentVolumeClaim data-db-0-0 grows from 10Gi to 20Gi",
                    "db-0: PersistentVolumeClaim wal-db-0-0 grows from 10Gi to 30Gi"
                ],
                "{strategy}: {text}"
            );
        }
        let one = after(steady("InPlace"), "db:1", ["10Gi", "30Gi"]).await;
        assert_eq!(one.grows, ["db-0: PersistentVolumeClaim wal-db-0-0 grows from 10Gi to 30Gi"]);
    }

    #[tokio::test]
    async fn claims_of_nodes_that_are_replaced_do_not_grow() {
        for (strategy, count) in [("InPlace", 2), ("BlueGreen", 0), ("HardFork", 0)] {
            let forecast = after(steady(strategy), "db:2", ["20Gi", "30Gi"]).await;
            let text = told(&forecast);
            let image = "db   new target\n  makes another target:\n    podTemplate.spec.containers[db].image \"db:1\" → \"db:2\"\n";
            assert!(text.starts_with(&format!("{image}{SIZES}")), "{strategy}: {text}");
            assert_eq!(forecast.grows.len(), count, "{strategy}: {text}");
        }
        // While it is paused, only nodes that have begun grow.
        let mut paused = steady("InPlace");
        paused.last_mut().unwrap()["spec"]["paused"] = json!(true);
        assert!(after(paused, "db:1", ["20Gi", "30Gi"]).await.grows.is_empty());
    }

    #[tokio::test]
    async fn while_a_set_takes_over_only_its_claims_grow() {
        for strategy in ["BlueGreen", "HardFork"] {
            let new = template("db:2", ["10Gi"; 2]);
            let mut objects = node("first", template("db:1", ["10Gi"; 2]));
            objects.extend(node(NEW, new.clone()));
            let hash = hash(&new);
            let at = "2026-01-01T00:00:00Z";
            let rollout = json!({"strategy": strategy, "recipe": strategy, "stage": "AwaitingPromotion",
                "cause": "TemplateChanged", "targetHash": hash, "incumbentSet": "first", "entrantSet": NEW,
                "startedAt": at, "lastProgressAt": at});
            let plan = json!({"id": "0123456789", "recipe": strategy, "targetHash": hash, "state": "Active",
                "startedAt": at, "tasks": [{"id": "0123456789-0", "type": "await-promotion", "state": "Running"}]});
            objects.push(fleet(strategy, &new, json!({"rollout": rollout, "plan": plan})));
            let forecast = after(objects, "db:2", ["20Gi", "30Gi"]).await;
            let text = told(&forecast);
            assert!(text.starts_with(&format!("db   no new target\n{SIZES}")), "{strategy}: {text}");
            assert_eq!(
                forecast.grows,
                [
                    "db-abcde-0: PersistentVolumeClaim data-db-abcde-0-0 grows from 10Gi to 20Gi",
                    "db-abcde-0: PersistentVolumeClaim wal-db-abcde-0-0 grows from 10Gi to 30Gi"
                ],
                "{strategy}: {text}"
            );
        }
    }
}
