//! The objects of `spec.perVersion`: an autoscaler for each version, scaled by this test's own metrics, and the
//! policy about their authors.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_clock::{Clock as _, SystemClock, monotonic};
use windlass_harness::controlplane::{Error, Options};
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, NAME, PATIENCE, condition, version};
use windlass_harness::tls::{Authority, TlsOptions, TlsServer};

use crate::stage::server;

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

/// The backlog of each version, by its build ID; that of others is 1.
#[derive(Clone, Default)]
struct Backlogs(Arc<Mutex<BTreeMap<String, i64>>>);

impl Backlogs {
    fn set(&self, build: &str, backlog: i64) {
        self.0.lock().unwrap().insert(build.to_owned(), backlog);
    }

    /// Serves them as external metrics, and registers that with the API server.
    async fn serve(&self, cluster: &Cluster) -> Result<TlsServer, Error> {
        let backlogs = self.0.clone();
        let answer = move |path: &str| {
            let group = "external.metrics.k8s.io/v1beta1";
            let Some((_, query)) = path.split_once("/backlog?") else {
                return json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []});
            };
            let build =
                query.split("build%3D").nth(1).and_then(|rest| rest.split('&').next()).unwrap_or_default();
            let backlog = backlogs.lock().unwrap().get(build).copied().unwrap_or(1);
            let item = json!({"metricName": "backlog", "metricLabels": {"build": build}, "value": backlog.to_string(),
                "timestamp": SystemClock.now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)});
            json!({"kind": "ExternalMetricValueList", "apiVersion": group, "metadata": {}, "items": [item]})
        };
        let identity = Authority::new().server(&["localhost"]);
        let served = TlsServer::start(&identity, TlsOptions::default(), move |received| {
            (200, answer(&received.request).to_string())
        })
        .await;
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics", "namespace": "default"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        let group = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
            "spec": {
                "group": "external.metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": "metrics", "namespace": "default", "port": served.address.port()},
            },
        });
        for object in [service, group] {
            let said = cluster.cp.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await;
            assert_eq!(said.code, Some(0), "{}", said.stderr);
        }
        let wait = [
            "wait",
            "--for=condition=Available",
            "apiservice/v1beta1.external.metrics.k8s.io",
            "--timeout=60s",
        ];
        let said = cluster.cp.kubectl(&wait).await;
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        Ok(served)
    }
}

fn autoscaler() -> Value {
    let at_once = json!({"stabilizationWindowSeconds": 0});
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "spec": {
            "scaleTargetRef": {}, "minReplicas": 0, "maxReplicas": 3,
            "metrics": [{"type": "External", "external": {
                "metric": {"name": "backlog", "selector": {"matchLabels": {"build": "{{buildID}}"}}},
                "target": {"type": "AverageValue", "averageValue": "1"},
            }}],
            "behavior": {"scaleDown": at_once, "scaleUp": at_once},
        },
    })
}

async fn until_replicas(farm: &Farm<'_>, build: &str, replicas: i64) -> Result<(), Error> {
    let until = monotonic() + PATIENCE;
    loop {
        let deployments = farm.deployments().await?;
        if deployments.contains(&(format!("{NAME}-{build}"), replicas)) {
            return Ok(());
        }
        if monotonic() > until {
            let autoscalers = farm.place.kubectl(&["get", "hpa", "-o", "yaml"]).await?;
            return Err(format!("{build} has not {replicas} replicas: {deployments:?}\n{autoscalers}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_version_is_scaled_to_zero_and_back_by_its_autoscaler() -> Result<(), Error> {
    let options = Options { feature_gates: "HPAScaleToZero=true", ..Options::default() };
    let cluster = Cluster::start_with(options).await?;
    let backlogs = Backlogs::default();
    let _served = backlogs.serve(&cluster).await?;
    let farm = Farm::new(&cluster, server().await, OPERATOR, "scaled").await?;
    let mut spec = farm.spec("1");
    spec.as_object_mut().unwrap().remove("replicas");
    spec["perVersion"] = json!([autoscaler()]);
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    let applied = |seen: &Value, build: &str| {
        version(seen, build).is_some_and(|v| v["resources"][0]["applied"] == true)
    };
    farm.until("v1 has its autoscaler", |seen| applied(seen, &v1)).await?;
    backlogs.set(&v1, 3);
    until_replicas(&farm, &v1, 3).await?;
    backlogs.set(&v1, 0);
    until_replicas(&farm, &v1, 0).await?;
    farm.until("it is still Ready", |seen| condition(seen, "Ready").0 == "True").await?;

    // A version that its autoscaler has scaled to zero receives a workflow, and its worker.
    farm.set_image("2").await?;
    let target = |seen: &Value| seen["status"]["targetBuildID"].as_str().unwrap_or_default().to_owned();
    let seen = farm.until("v2 is the target", |seen| target(seen) != v1 && !target(seen).is_empty()).await?;
    let v2 = target(&seen);
    farm.until("Temporal knows v2", |seen| {
        version(seen, &v2).is_some_and(|v2| v2["state"] != "NotRegistered")
    })
    .await?;
    backlogs.set(&v2, 0);
    until_replicas(&farm, &v2, 0).await?;
    assert_eq!(farm.until_current().await?, v2);
    assert!(applied(&farm.object().await?, &v2));
    backlogs.set(&v2, 1);
    until_replicas(&farm, &v2, 1).await?;
    farm.begin_on(&v2).await?;

    farm.until("v1 is gone", |seen| version(seen, &v1).is_none()).await?;
    let left = farm.place.kubectl(&["get", "hpa", "-o", "name"]).await?;
    assert_eq!(left.trim(), format!("horizontalpodautoscaler.autoscaling/{NAME}-{v2}"));
    farm.end_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn author_needs_the_rights_for_the_objects() -> Result<(), Error> {
    let cluster = Cluster::shared().await;
    let farm = Farm::new(cluster, server().await, OPERATOR, "authors").await?;
    let ns = farm.place.ns.to_string();
    let policy = format!("{}/deploy/policies/worker-resources.yaml", windlass_harness::root().display());
    farm.place.kubectl(&["apply", "-f", &policy]).await?;
    let grant = |name: &str, rule: Value| {
        let metadata = json!({"name": name, "namespace": ns});
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": [rule]});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        });
        json!({"apiVersion": "v1", "kind": "List", "items": [role, binding]}).to_string()
    };
    let all = json!({"apiGroups": ["windlass.dev"], "resources": ["workerdeployments"], "verbs": ["*"]});
    assert_eq!(cluster.cp.kubectl_with(&["apply", "-f", "-"], &grant("workers", all)).await.code, Some(0));
    let object = |manifests: &Value| {
        let mut spec = farm.spec("1");
        spec["perVersion"] = manifests.clone();
        json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "WorkerDeployment",
            "metadata": {"name": NAME, "namespace": ns}, "spec": spec})
        .to_string()
    };
    let apply = ["--as=jane", "apply", "--validate=false", "-f", "-"];
    // It takes a moment until the API server applies a new policy.
    let until = monotonic() + PATIENCE;
    let dry = [&apply[..], &["--dry-run=server"]].concat();
    while cluster.cp.kubectl_with(&dry, &object(&json!([autoscaler()]))).await.code == Some(0) {
        assert!(monotonic() < until, "the policy is never in force");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let refused = cluster.cp.kubectl_with(&apply, &object(&json!([autoscaler()]))).await;
    let sentence = format!(
        "spec.perVersion: jane has to have the right to create each of its objects in {ns} (HorizontalPodAutoscaler of \
         autoscaling/v2)"
    );
    assert!(refused.code != Some(0) && refused.stderr.contains(&sentence), "{}", refused.stderr);
    let accepted = cluster.cp.kubectl_with(&apply, &object(&json!([]))).await;
    assert_eq!(accepted.code, Some(0), "{}", accepted.stderr);

    let create =
        json!({"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["create"]});
    assert_eq!(
        cluster.cp.kubectl_with(&["apply", "-f", "-"], &grant("autoscalers", create)).await.code,
        Some(0)
    );
    let mut last = String::new();
    while monotonic() < until {
        let applied = cluster.cp.kubectl_with(&apply, &object(&json!([autoscaler()]))).await;
        if applied.code == Some(0) {
            last.clear();
            break;
        }
        last = applied.stderr;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(last, "");
    let mut other = autoscaler();
    other["kind"] = "Role".into();
    other["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    let refused = cluster.cp.kubectl_with(&apply, &object(&json!([other]))).await;
    assert!(
        refused.code != Some(0) && refused.stderr.contains("(Role of rbac.authorization.k8s.io/v1)"),
        "{}",
        refused.stderr
    );
    farm.place.kubectl(&["delete", "-f", &policy]).await?;
    farm.delete().await?;
    farm.until_gone().await
}
