//! The kinds in kubectl.

use serde_json::Value;

use super::control_plane;

#[tokio::test]
#[ignore = "nightly"]
async fn definitions_have_no_schema_violations() {
    let cp = control_plane().await;
    for kind in ["nodedeployments", "statefulnodes", "statefulsetrollouts"] {
        let name = &format!("{kind}.windlass.dev");
        let stored: Value =
            serde_json::from_str(&cp.kubectl(&["get", "crd", name, "-o", "json"]).await.ok()).unwrap();
        for condition in stored["status"]["conditions"].as_array().unwrap() {
            let bad = ["NonStructuralSchema", "KubernetesAPIApprovalPolicyConformant"];
            assert!(!bad.contains(&condition["type"].as_str().unwrap()), "{name}: {condition}");
            assert_eq!(condition["status"], "True", "{name}: {condition}");
        }
    }
}
