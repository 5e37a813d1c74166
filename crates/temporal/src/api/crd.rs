//! The CustomResourceDefinitions in their installed form.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use windlass_core::api::crd::{finished, yaml};

use super::{ClusterTemporalConnection, TemporalConnection, WorkerDeployment, rules};

/// The CustomResourceDefinitions of WorkerDeployment and of the connections.
#[must_use]
pub fn crds() -> [CustomResourceDefinition; 3] {
    [
        finished(WorkerDeployment::crd(), &[("", rules::WORKER_DEPLOYMENT)]),
        finished(TemporalConnection::crd(), &[("", rules::CONNECTION)]),
        finished(
            ClusterTemporalConnection::crd(),
            &[("", rules::CONNECTION), ("", rules::CLUSTER_CONNECTION)],
        ),
    ]
}

/// The CustomResourceDefinitions as YAML documents, each of which starts with `---`.
#[must_use]
pub fn crds_yaml() -> String {
    crds().iter().map(yaml).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/temporal");

    #[test]
    fn crd_files_match_the_types() {
        for definition in crds() {
            let name = definition.metadata.name.clone().unwrap();
            let file = format!("{FOLDER}/{name}.yaml");
            if std::env::var_os("UPDATE_CRDS").is_some() {
                std::fs::write(&file, yaml(&definition)).unwrap();
            }
            let stored = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                stored == yaml(&definition),
                "{file}: run UPDATE_CRDS=1 cargo test -p windlass-temporal --lib, and commit what changed"
            );
        }
    }

    #[test]
    fn every_rule_is_attached() {
        let text = json!(crds()).to_string();
        let rules =
            rules::WORKER_DEPLOYMENT.len() + 2 * rules::CONNECTION.len() + rules::CLUSTER_CONNECTION.len();
        assert_eq!(text.matches("\"rule\":").count(), rules);
    }
}
