//! Forces situations that timing would cause once in a thousand runs.

use std::time::Duration;

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::json;
use windlass::operator::Operator;

use crate::kit::{PATIENCE, World};

impl World {
    /// Grants or revokes the operator's right to delete pods, which extends the time between a template's write and
    /// the pod's replacement.
    pub async fn allow_pod_deletes(&self, allowed: bool) {
        let api = self.api("rbac.authorization.k8s.io/v1", "Role");
        let mut role = self.get(&api, "windlass").await;
        let rules = role["rules"].as_array_mut().expect("rules");
        let pods = rules.iter_mut().find(|r| r["resources"] == json!(["pods"])).expect("a rule for pods");
        pods["verbs"] =
            if allowed { json!(["get", "list", "watch", "delete"]) } else { json!(["get", "list", "watch"]) };
        self.patch(&api, "windlass", json!({"rules": role["rules"]})).await;
        let user = self.operator_user();
        let can = ["-n", &self.ns, "auth", "can-i", "delete", "pods", "--as", &user];
        let until = tokio::time::Instant::now() + PATIENCE;
        while (self.cp.kubectl(&can).await.stdout.trim() == "yes") != allowed {
            assert!(tokio::time::Instant::now() < until, "the role does not come into force");
        }
    }

    /// Prevents the StatefulSet controller from updating statuses in this namespace, or allows it again.
    pub async fn freeze_set_status(&self, frozen: bool) {
        let group = "admissionregistration.k8s.io/v1";
        let name = format!("freeze-{}", &*self.ns);
        let all = |kind| {
            let resource =
                ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
            Api::<DynamicObject>::all_with(self.client.clone(), &resource)
        };
        let (kind, binding_kind) = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding");
        let (policies, bindings) = (all(kind), all(binding_kind));
        if frozen {
            let rule = json!({
                "apiGroups": ["apps"], "apiVersions": ["v1"],
                "operations": ["UPDATE"], "resources": ["statefulsets/status"],
            });
            let here = json!({"matchLabels": {"kubernetes.io/metadata.name": &*self.ns}});
            let policy = json!({
                "apiVersion": group, "kind": kind, "metadata": {"name": name},
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {"namespaceSelector": here, "resourceRules": [rule]},
                    "validations": [{"expression": "false", "message": "frozen by a test"}],
                },
            });
            let binding = json!({
                "apiVersion": group, "kind": binding_kind, "metadata": {"name": name},
                "spec": {"policyName": name, "validationActions": ["Deny"]},
            });
            for (api, object) in [(&policies, policy), (&bindings, binding)] {
                let object: DynamicObject = serde_json::from_value(object).expect("an object");
                api.create(&PostParams::default(), &object).await.expect("it is created");
            }
        } else {
            for api in [&bindings, &policies] {
                api.delete(&name, &DeleteParams::default()).await.expect("it is deleted");
            }
        }
        let sets = self.list(&self.sets()).await;
        let set = sets[0]["metadata"]["name"].as_str().expect("a StatefulSet");
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let patch = Patch::Merge(json!({"status": {"collisionCount": 7}}));
            if self.sets().patch_status(set, &params, &patch).await.is_err() == frozen {
                return;
            }
            assert!(tokio::time::Instant::now() < until, "the policy does not come into force");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs an operator of another version in this process, under the same account, until it is dropped.
    pub async fn other_operator(&self, change: impl FnOnce(Operator) -> Operator) -> OtherOperator {
        let file = kube::config::Kubeconfig::read_from(&self.kubeconfig).expect("the kubeconfig");
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(file, &options).await.expect("a configuration");
        let client = kube::Client::try_from(config).expect("a client");
        let operator = change(Operator::new(client).namespaces([self.ns.to_string()]));
        let health = operator.health();
        let task = tokio::spawn(async move {
            let _ = operator.run(std::future::pending()).await;
        });
        let until = tokio::time::Instant::now() + PATIENCE;
        while !health.is_ready() {
            assert!(tokio::time::Instant::now() < until, "the other operator does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        OtherOperator(task)
    }
}

/// An operator in this process, stopped on drop.
pub struct OtherOperator(tokio::task::JoinHandle<()>);

impl Drop for OtherOperator {
    fn drop(&mut self) {
        self.0.abort();
    }
}
