//! A realistic pod template of about 4.3 KB: two containers, 50 variables, probes, volumes. The same for everything
//! that is compared.

use serde_json::{Value, json};

/// The variables of each container.
const VARIABLES: usize = 25;

/// A template with these labels whose main container `db` runs an image.
pub fn template(labels: &Value, image: &str) -> Value {
    json!({
        "metadata": {
            "labels": labels,
            "annotations": {"checksum/config": "6f1a3c0b9d2e4f5a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f5a"},
        },
        "spec": {
            "terminationGracePeriodSeconds": 30,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 999, "runAsGroup": 999, "fsGroup": 999},
            "containers": [
                container("db", image, 5432, "/var/lib/db"),
                container("exporter", "exporter:0.15.0", 9187, "/var/run/exporter"),
            ],
            "volumes": [
                {"name": "data", "emptyDir": {"sizeLimit": "10Gi"}},
                {"name": "config", "configMap": {"name": "config", "optional": true}},
                {"name": "secret", "secret": {"secretName": "secret", "optional": true}},
            ],
        },
    })
}

fn container(name: &str, image: &str, port: i32, data: &str) -> Value {
    let variable =
        |n: usize| json!({"name": format!("SETTING_{n:02}"), "value": format!("the-value-of-{n:02}")});
    let probe = |path: &str, period: i32| json!({"httpGet": {"path": path, "port": port}, "periodSeconds": period, "timeoutSeconds": 3, "failureThreshold": 6});
    json!({
        "name": name,
        "image": image,
        "args": ["--config=/etc/config/main.yaml", "--log-level=info"],
        "ports": [{"name": name, "containerPort": port}],
        "env": (0..VARIABLES).map(variable).collect::<Vec<Value>>(),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "readinessProbe": probe("/ready", 5),
        "livenessProbe": probe("/live", 15),
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "data", "mountPath": data},
            {"name": "config", "mountPath": "/etc/config", "readOnly": true},
            {"name": "secret", "mountPath": "/etc/secret", "readOnly": true},
        ],
    })
}

/// Prints its size.
pub fn print_size() {
    let size = template(&json!({}), "db:0").to_string().len();
    println!("the pod template: {size} bytes");
}

/// A fleet of nodes with that template.
pub fn fleet(name: &str, replicas: u32, max_unavailable: &Value) -> Value {
    let mut fleet = windlass_harness::operated::fleet(name, replicas, "db:0", max_unavailable);
    fleet["spec"]["template"]["spec"]["podTemplate"] = template(&json!({"app": name}), "db:0");
    fleet
}

/// The change of a StatefulSet that sets its main container's image.
pub fn set_image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "db", "image": image}]}}}})
}
