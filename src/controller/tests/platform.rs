//! A platform changes a node's objects on the way to the API server. To the executor that is neither drift, nor another
//! pod, nor another image.

use super::fleet::template;
use super::*;

const SET: Kind = Kind::StatefulSet;

fn annotate(set: &mut Value) {
    set["spec"]["template"]["metadata"]["annotations"]["policy"] = json!("was here");
}

fn mirror(set: &mut Value) {
    let image = &mut set["spec"]["template"]["spec"]["containers"][0]["image"];
    let asked = image.as_str().unwrap().to_owned();
    if !asked.starts_with("mirror/") {
        *image = json!(format!("mirror/{asked}"));
    }
}

/// Injects a proxy as the first container.
fn inject(set: &mut Value) {
    let containers = set["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
    if containers[0]["name"] != "proxy" {
        containers.insert(0, json!({"name": "proxy", "image": "proxy:1"}));
    }
}

impl Stage {
    fn pod_uid(&self) -> String {
        self.get(Kind::Pod, "db-0-0")["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    }

    fn revision(&self) -> Value {
        self.get(SET, "db-0")["status"]["updateRevision"].clone()
    }

    /// Removes a label, which the executor restores: admission sees two writes.
    fn strip_label(&self) {
        self.change(SET, "db-0", &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}));
    }

    /// Replaces the process by one that knows only what is persisted.
    fn restart(&mut self) {
        self.cx.caches = Arc::default();
        self.cx.sightings = Arc::default();
        self.cx.status_writes = Arc::default();
        self.cx.deleted_jobs = Arc::default();
    }

    async fn rests(&self) {
        self.node_settles().await;
        self.calls();
        self.look_at_node().await.unwrap();
        assert_eq!(self.calls(), [""; 0], "it is at rest");
    }

    /// Leaves the objects as the previous version of Windlass would.
    fn forget_what_is_new(&self) {
        let labels = json!({
            "windlass.dev/ordinal": null, "windlass.dev/revision": null, "app.kubernetes.io/managed-by": "windlass"});
        let strip = json!({"metadata": {"annotations": null, "labels": labels}});
        let generation = self.get(SET, "db-0")["metadata"]["generation"].clone();
        self.change(SET, "db-0", &json!({"spec": {"template": strip}}));
        self.change(SET, "db-0", &json!({"metadata": {"generation": generation}}));
        self.play();
        let at = json!({"metadata": {"labels": {"controller-revision-hash": self.revision()}}});
        if !self.pod_uid().is_empty() {
            self.change(Kind::Pod, "db-0-0", &strip);
            self.change(Kind::Pod, "db-0-0", &at);
        }
        let learned = json!({"templateDigest": null, "revisions": null});
        self.change_node(&json!({"status": {"statefulSet": learned}}));
    }
}

#[tokio::test(start_paused = true)]
async fn admission_template_changes_replace_no_pod_and_are_kept() {
    for (what, policy) in
        [("an annotation", annotate as fn(&mut Value)), ("a mirror", mirror), ("a proxy", inject)]
    {
        for remembers in [true, false] {
            let mut stage = Stage::running(&template("v1")).await;
            let (pod, revision) = (stage.pod_uid(), stage.revision());
            stage.admits(policy);
            stage.strip_label();
            stage.play();
            if !remembers {
                stage.restart();
            }
            stage.rests().await;
            assert_ne!(stage.revision(), revision, "{what}: the revision moved by itself");
            assert_eq!(stage.pod_uid(), pod, "{what}");
            assert_eq!(stage.history().len(), 1, "{what}");
            assert_eq!(stage.node()["status"]["currentImage"], "db:v1", "{what}");
            // The platform stops its changes; then the generation changes for another reason.
            let template_now = stage.get(SET, "db-0")["spec"]["template"].clone();
            stage.admits(|_| {});
            stage.change(SET, "db-0", &json!({"spec": {"replicas": 2}}));
            stage.restart();
            stage.rests().await;
            assert_eq!(
                stage.get(SET, "db-0")["spec"]["template"],
                template_now,
                "{what}: it is not put back"
            );
            assert_eq!((stage.pod_uid(), stage.history().len()), (pod, 1), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn node_completes_with_desired_image_under_mutating_admission() {
    for (what, policy) in
        [("an annotation", annotate as fn(&mut Value)), ("a mirror", mirror), ("a proxy", inject)]
    {
        let stage = Stage::new();
        stage.admits(policy);
        stage.put(Kind::StatefulNode, "db-0", json!({"spec": template("v1")}));
        stage.node_settles().await;
        for image in ["db:v1", "db:v2"] {
            stage.change_node(&json!({"spec": {"image": image}}));
            stage.node_settles().await;
            let status = &stage.node()["status"];
            assert_eq!(
                (&status["phase"], &status["currentImage"]),
                (&json!("Running"), &json!(image)),
                "{what}"
            );
        }
        assert_eq!(stage.history(), ["NodeUpdate Complete "; 2], "{what}");
        // The template changes but the image does not: that is a restart, whatever image the pod has.
        stage.change_node(&json!({"spec": {"podTemplate": {"metadata": {"labels": {"x": "y"}}}}}));
        stage.rests().await;
        assert_eq!(stage.history()[2..], ["RestartNode Complete "], "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn manual_template_edit_under_mutating_admission_is_reverted() {
    let stage = Stage::running(&template("v1")).await;
    stage.admits(annotate);
    stage.strip_label();
    stage.rests().await;
    let pod = stage.pod_uid();
    stage.change(SET, "db-0", &json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 9}}}}));
    stage.play();
    stage.rests().await;
    assert!(stage.get(SET, "db-0")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].is_null());
    assert_eq!(stage.pod_uid(), pod, "its pod was never at the edit");
    assert_eq!(stage.history().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pod_recreated_before_revision_change_is_known_by_annotations() {
    let mut stage = Stage::running(&template("v1")).await;
    stage.change_node(&json!({"spec": {"image": "db:v2"}}));
    stage.node_settles().await;
    let known = stage.node()["status"]["statefulSet"]["revisions"].clone();
    assert_eq!(known.as_array().map(Vec::len), Some(2), "{known}");
    // While the operator is down, the pod is evicted and recreated; then Kubernetes serialises revisions differently.
    stage.remove(Kind::Pod, "db-0-0");
    stage.play();
    let pod = stage.pod_uid();
    stage.change(SET, "db-0", &json!({"status": {"updateRevision": "db-0-serialised-otherwise"}}));
    stage.restart();
    for _ in 0..3 {
        stage.look_at_node().await.unwrap();
        stage.pass(2).await;
    }
    assert_eq!(stage.pod_uid(), pod);
    assert_eq!(stage.node()["status"]["podUID"], pod.as_str());
    assert_eq!(stage.history().len(), 2);
}

/// Otherwise all nodes whose statuses were lost would replace their pods, each by itself.
#[tokio::test(start_paused = true)]
async fn pod_of_an_earlier_revision_is_kept_after_status_loss() {
    let mut stage = Stage::running(&template("v1")).await;
    let hash = stage.node()["status"]["podTemplateHash"].clone();
    stage.change_node(&json!({"spec": {"grantedHash": hash, "grantID": "0123456789-2"}}));
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["spentGrantID"], "0123456789-2");
    let pod = stage.pod_uid();
    stage.admits(annotate);
    stage.strip_label();
    stage.node_settles().await;
    stage.change_node(&json!({"status": null}));
    stage.restart();
    stage.rests().await;
    stage.pass(60).await;
    stage.rests().await;
    assert_eq!(stage.pod_uid(), pod);
    let status = stage.node()["status"].clone();
    assert_eq!((&status["spentGrantID"], &status["podTemplateHash"]), (&json!("0123456789-2"), &hash));
}

/// A template that a person edits keeps Windlass's annotations, so a pod that was created from it has them as well.
#[tokio::test(start_paused = true)]
async fn pod_of_an_edited_template_is_replaced_after_status_loss() {
    let mut stage = Stage::running(&template("v1")).await;
    stage.change(SET, "db-0", &json!({"spec": {"template": {"metadata": {"annotations": {"by": "hand"}}}}}));
    stage.remove(Kind::Pod, "db-0-0");
    stage.play();
    let pod = stage.pod_uid();
    stage.change_node(&json!({"status": null}));
    stage.restart();
    stage.node_settles().await;
    stage.pass(60).await;
    stage.rests().await;
    assert_ne!(stage.pod_uid(), pod);
    let by = |object: Value| object["metadata"]["annotations"]["by"].clone();
    assert_eq!(by(stage.get(Kind::Pod, "db-0-0")), Value::Null);
    assert_eq!(by(stage.get(SET, "db-0")["spec"]["template"].clone()), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn objects_of_an_earlier_version_and_their_pods_are_kept() {
    let mut stage = Stage::running(&template("v1")).await;
    stage.forget_what_is_new();
    let (pod, set, node) = (stage.pod_uid(), stage.get(SET, "db-0"), stage.node());
    stage.restart();
    stage.calls();
    for _ in 0..3 {
        stage.look_at_node().await.unwrap();
        stage.pass(2).await;
        stage.play();
    }
    assert_eq!(stage.calls(), [""; 0], "an upgrade writes nothing");
    assert_eq!((stage.get(SET, "db-0"), stage.node()), (set, node));

    // The generation changes, and no annotation explains why: the template is compared with the written one.
    stage.change(SET, "db-0", &json!({"spec": {"replicas": 2}}));
    stage.restart();
    stage.rests().await;
    assert!(
        stage.get(SET, "db-0")["spec"]["template"]["metadata"]["annotations"]["windlass.dev/image"].is_null()
    );
    stage.admits(annotate);
    stage.strip_label();
    stage.restart();
    stage.rests().await;
    assert_eq!((stage.pod_uid(), stage.history().len()), (pod.clone(), 1));

    // The next StatefulSet template has the annotations of what it was made for.
    stage.change_node(&json!({"spec": {"image": "db:v2"}}));
    stage.rests().await;
    assert_ne!(stage.pod_uid(), pod);
    let made = stage.get(SET, "db-0")["spec"]["template"]["metadata"]["annotations"].clone();
    assert_eq!(
        (&made["windlass.dev/image"], &made["windlass.dev/main-container"]),
        (&json!("db:v2"), &json!("db"))
    );
    assert_eq!(made["windlass.dev/pod-template-hash"], stage.node()["status"]["podTemplateHash"]);
}
