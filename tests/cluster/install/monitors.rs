//! The chart's monitors and rules, validated by the Prometheus Operator's definitions.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::install::helm::{is_there, objects, path, rendered};
use windlass_harness::controlplane::{ControlPlane, Options};
use windlass_harness::debian::skipped;

const MODULE: &str = "github.com/prometheus-operator/prometheus-operator";
const KINDS: [&str; 3] = ["servicemonitors", "podmonitors", "prometheusrules"];

/// The files of the definitions, from its Go module; `None`, with a message, if it cannot be downloaded.
fn definitions() -> Option<Vec<PathBuf>> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", MODULE])
        .current_dir(path("tests/cluster/install/go/monitors"))
        .output()
        .expect("Go 1.26 is on PATH");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let Some(folder) = said["Dir"].as_str().map(PathBuf::from) else {
        let why = said["Error"]
            .as_str()
            .map_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned(), str::to_owned);
        skipped(&format!("the definitions of the Prometheus Operator cannot be had here: {}", why.trim()));
        return None;
    };
    let file = |kind: &str| {
        folder.join(format!("example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"))
    };
    Some(KINDS.map(file).to_vec())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn prometheus_operator_accepts_monitors_and_rules() {
    if !is_there() {
        return;
    }
    let Some(definitions) = definitions() else { return };
    let options = Options { kubelets: false, nodes: 0, crds: false, ..Options::default() };
    let cp = ControlPlane::start(options).await.expect("a control plane");
    for file in definitions {
        cp.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]).await.ok();
    }
    cp.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await.ok();
    cp.kubectl(&["create", "namespace", "windlass-system"]).await.ok();

    let apply = async |object: &Value| {
        let words = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        cp.kubectl_with(&words, &object.to_string()).await
    };
    let all = "metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true,metrics.prometheusRule.enabled=true";
    let own = "metrics.serviceMonitor.enabled=true,metrics.tokenReview=true";
    let behind = "metrics.tokenReview=true,metrics.tokenSecret";
    let of_secret =
        |name: &str, key: &str| json!({"type": "Bearer", "credentials": {"name": name, "key": key}});
    for (sets, count, authorization) in [
        (vec![all], 3, Value::Null),
        (vec![own], 1, Value::Null),
        (vec![all, &format!("{behind}.create=true")], 3, of_secret("windlass-metrics-reader", "token")),
        (
            vec![all, &format!("{behind}.name=mine,metrics.tokenSecret.key=bearer")],
            3,
            of_secret("mine", "bearer"),
        ),
    ] {
        let mut monitors = objects(&rendered(&sets).ok());
        monitors.retain(|_, object| object["apiVersion"] == "monitoring.coreos.com/v1");
        assert_eq!(monitors.len(), count, "{sets:?}");
        for ((kind, ..), object) in &monitors {
            let said = apply(object).await;
            assert!(said.code == Some(0) && said.stderr.is_empty(), "{kind}: {}{}", said.stdout, said.stderr);
            let scraped = match kind.as_str() {
                "ServiceMonitor" => &object["spec"]["endpoints"][0],
                "PodMonitor" => &object["spec"]["podMetricsEndpoints"][0],
                _ => continue,
            };
            assert_eq!(scraped["authorization"], authorization, "{kind} of {sets:?}");
            assert_eq!(scraped["bearerTokenFile"].is_string(), sets == [own], "{kind} of {sets:?}");
        }
    }
    // Unknown fields are refused.
    let mut wrong = objects(&rendered(&[all]).ok().replace("honorLabels", "honourLabels"));
    wrong.retain(|(kind, ..), _| kind == "PodMonitor");
    for object in wrong.values() {
        let said = apply(object).await;
        assert!(
            said.code != Some(0) && said.stderr.contains("honourLabels"),
            "{}{}",
            said.stdout,
            said.stderr
        );
    }
}
