//! The definition as it is installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use windlass_core::api::crd::{finished, yaml};

use super::{WorkerDeployment, rules};

/// The definition of WorkerDeployment.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    finished(WorkerDeployment::crd(), &[("", rules::WORKER_DEPLOYMENT)])
}

/// The definition as a YAML document, begun by `---`.
#[must_use]
pub fn crd_yaml() -> String {
    yaml(&crd())
}
