//! The CustomResourceDefinition in its installed form.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use windlass_core::api::crd::{finished, yaml};

use super::{WorkerDeployment, rules};

/// The CustomResourceDefinition of WorkerDeployment.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    finished(WorkerDeployment::crd(), &[("", rules::WORKER_DEPLOYMENT)])
}

/// The CustomResourceDefinition as a YAML document that starts with `---`.
#[must_use]
pub fn crd_yaml() -> String {
    yaml(&crd())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/temporal/workerdeployments.windlass.dev.yaml");

    #[test]
    fn crd_file_matches_the_types() {
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::write(FILE, crd_yaml()).unwrap();
        }
        let stored = std::fs::read_to_string(FILE).unwrap();
        assert!(
            stored == crd_yaml(),
            "run UPDATE_CRDS=1 cargo test -p windlass-temporal --lib, and commit what changed"
        );
    }

    #[test]
    fn every_rule_is_attached() {
        let text = serde_json::to_string(&crd()).unwrap();
        assert_eq!(text.matches("\"rule\":").count(), rules::WORKER_DEPLOYMENT.len());
    }
}
