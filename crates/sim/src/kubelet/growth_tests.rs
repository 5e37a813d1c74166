//! Claims on a simulated cluster, from a raised request on.

use super::*;
use crate::{Cluster, Options, kubelet::Kubelet};

const GROWS: [&str; 4] = ["ControllerResizeInProgress", "NodeResizePending", "NodeResizeInProgress", "2Gi"];

/// A bound claim `data` of 1 GiB, the pod `db-0` that uses it, and the kubelet.
struct Stage {
    cluster: Cluster,
    claims: Api<PersistentVolumeClaim>,
    pods: Api<Pod>,
}

impl Stage {
    async fn new(way: Expansion) -> Self {
        let cluster = Cluster::start(Options::seeded(3));
        cluster.install(way.class("grows")).unwrap();
        let client = cluster.client("kubelet", "default");
        tokio::spawn(Kubelet::new(client.clone(), cluster.clock()).run());
        let stage = Self {
            claims: Api::namespaced(client.clone(), "default"),
            pods: Api::namespaced(client.clone(), "default"),
            cluster,
        };
        let claim = json!({
            "metadata": {"name": "data"},
            "spec": {
                "storageClassName": "grows", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        stage.claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
        stage.start_pod().await;
        stage
    }

    async fn start_pod(&self) {
        let pod = json!({
            "metadata": {"name": "db-0"},
            "spec": {
                "nodeName": "n", "terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "x"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        });
        self.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        sleep(1).await;
    }

    async fn restart_pod(&self) {
        self.pods.delete("db-0", &kube::api::DeleteParams::default()).await.unwrap();
        sleep(2).await;
        self.start_pod().await;
    }

    async fn request(&self, size: &str) -> Result<(), String> {
        let patch = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let patched = self.claims.patch("data", &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| error.to_string())
    }

    fn status(&self) -> Value {
        self.cluster.get("v1", "PersistentVolumeClaim", "default", "data").unwrap()["status"].clone()
    }

    /// What the claim has shown since it began to grow: its stages, and its size at the end.
    fn shown(&self) -> Vec<String> {
        let mut shown: Vec<String> = Vec::new();
        self.cluster.replay(0, |step| {
            let Some(claim) = step.after.filter(|object| object["kind"] == "PersistentVolumeClaim") else {
                return;
            };
            let status = &claim["status"];
            let stage = status["allocatedResourceStatuses"]["storage"].as_str();
            let size =
                status["allocatedResources"].is_object().then(|| status["capacity"]["storage"].as_str());
            if let Some(now) = stage.or(size.flatten())
                && shown.last().is_none_or(|last| last != now)
            {
                shown.push(now.to_owned());
            }
        });
        shown
    }

    fn conditions(&self) -> Vec<String> {
        let status = self.status();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.map(|condition| condition["type"].as_str().unwrap().to_owned()).collect()
    }

    fn events(&self) -> Vec<String> {
        let events = self.cluster.snapshot_of("default", &["Event"]);
        events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }
}

async fn sleep(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn claim_grows_as_its_class_does() {
    let slow = Expansion::Slow(Duration::from_mins(3));
    for (way, seconds, stages, conditions) in [
        (Expansion::Online, 5, 4, vec![]),
        (Expansion::Offline, 3600, 3, vec!["FileSystemResizePending", "NodeResizeError"]),
        (slow, 170, 1, vec!["Resizing"]),
        (slow, 350, 3, vec!["FileSystemResizePending"]),
        (slow, 370, 4, vec![]),
        (Expansion::Never, 3600, 1, vec!["Resizing", "ControllerResizeError"]),
    ] {
        let stage = Stage::new(way).await;
        stage.request("2Gi").await.unwrap();
        sleep(seconds).await;
        assert_eq!(stage.shown(), GROWS[..stages], "{way:?} after {seconds} s");
        assert_eq!(stage.conditions(), conditions, "{way:?} after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn offline_claim_grows_with_the_next_pod_and_tells_events() {
    let stage = Stage::new(Expansion::Offline).await;
    stage.request("2Gi").await.unwrap();
    sleep(60).await;
    let volume = &stage.cluster.snapshot()[..];
    let volume = volume.iter().find(|object| object["kind"] == "PersistentVolume").unwrap();
    assert_eq!(volume["spec"]["capacity"]["storage"], "2Gi");
    assert_eq!(stage.status()["capacity"]["storage"], "1Gi");
    stage.restart_pod().await;
    sleep(5).await;
    assert_eq!(stage.shown(), GROWS);
    assert_eq!(stage.events(), ["Resizing", "FileSystemResizeRequired", "FileSystemResizeSuccessful"]);
}

#[tokio::test(start_paused = true)]
async fn claim_without_a_pod_grows_when_one_is_started() {
    let stage = Stage::new(Expansion::Online).await;
    stage.pods.delete("db-0", &kube::api::DeleteParams::default()).await.unwrap();
    sleep(2).await;
    stage.request("2Gi").await.unwrap();
    sleep(600).await;
    assert_eq!(stage.conditions(), ["FileSystemResizePending"]);
    stage.start_pod().await;
    sleep(5).await;
    assert_eq!(stage.shown(), GROWS);
}

#[tokio::test(start_paused = true)]
async fn second_request_follows_the_first() {
    let stage = Stage::new(Expansion::Slow(Duration::from_secs(30))).await;
    stage.request("2Gi").await.unwrap();
    sleep(10).await;
    stage.request("3Gi").await.unwrap();
    sleep(130).await;
    let again = ["ControllerResizeInProgress", "NodeResizePending", "NodeResizeInProgress", "3Gi"];
    assert_eq!(stage.shown(), [GROWS, again].concat());
}

#[tokio::test(start_paused = true)]
async fn failing_driver_tells_so_again_and_again_and_the_request_may_be_lowered() {
    let stage = Stage::new(Expansion::Never).await;
    stage.request("4Gi").await.unwrap();
    sleep(1200).await;
    let failures = stage.events().iter().filter(|reason| *reason == "VolumeResizeFailed").count();
    assert!((8..=14).contains(&failures), "{failures}");
    stage.request("2Gi").await.unwrap();
    sleep(600).await;
    assert_eq!(stage.status()["allocatedResources"]["storage"], "2Gi");
}

#[tokio::test(start_paused = true)]
async fn request_may_grow_only_where_the_class_allows_it() {
    let stage = Stage::new(Expansion::Offline).await;
    sleep(1).await;
    for (size, refusal) in [
        ("1Gi", None),
        ("1024Mi", None),
        (
            "512Mi",
            Some("spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"),
        ),
        ("1.5Gi", None),
        ("2Gi", None),
        ("1025Mi", None),
        ("1Gi", Some("field can not be less than status.capacity")),
    ] {
        let answer = stage.request(size).await;
        match refusal {
            None => assert_eq!(answer, Ok(()), "{size}"),
            Some(why) => assert!(answer.as_ref().is_err_and(|told| told.contains(why)), "{size}: {answer:?}"),
        }
    }
    let classes: Api<StorageClass> = Api::all(stage.cluster.client("admin", "default"));
    let patch = Patch::Merge(json!({"allowVolumeExpansion": false}));
    classes.patch("grows", &PatchParams::default(), &patch).await.unwrap();
    let refused = stage.request("5Gi").await.unwrap_err();
    assert!(refused.contains("only dynamically provisioned pvc can be resized"), "{refused}");
}
