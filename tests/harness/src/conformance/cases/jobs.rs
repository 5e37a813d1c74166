//! Jobs that need one pod at a time.

use serde_json::{Value, json};

use super::cases;
use crate::conformance::suite::Ctx;

cases![
    a_job_is_complete_when_its_pod_has_succeeded,
    a_job_fails_when_its_pods_failed_too_often,
    a_job_fails_when_it_takes_too_long,
    a_job_that_is_suspended_makes_no_pod,
    finished_job_is_deleted_after_its_ttl,
    pods_are_deleted_with_their_job,
    a_job_is_filled_in,
    a_job_whose_pods_are_to_run_for_ever_is_refused,
    a_misspelt_field_of_a_job_is_refused_by_strict_validation,
];

fn job(name: &str, image: &str, more: Value) -> Value {
    let pod = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": image}]});
    let mut spec = json!({"template": {"spec": pod}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn made(w: &Ctx, image: &str, more: Value) {
    w.made(&w.at("batch:jobs"), job("work", image, more)).await;
}

async fn ended(w: &Ctx) -> Value {
    let is_over = |c: &Value| matches!(c["type"].as_str(), Some("Complete" | "Failed"));
    let path = w.at("batch:jobs/work");
    w.until_is(&path, |job| {
        job["status"]["conditions"].as_array().is_some_and(|list| list.iter().any(is_over))
    })
    .await
}

fn note_end(w: &Ctx, job: &Value) {
    let status = &job["status"];
    let conditions = status["conditions"].as_array().unwrap().iter();
    let conditions: Vec<Value> =
        conditions.map(|c| json!([c["type"], c["status"], c["reason"], c["message"]])).collect();
    w.note("conditions", conditions);
    w.note("counts", json!([status["active"], status["succeeded"], status["failed"], status["ready"]]));
    w.note("times", json!([status["startTime"].is_string(), status["completionTime"].is_string()]));
}

async fn pods(w: &Ctx) -> Vec<Value> {
    w.get(&w.at("pods?labelSelector=job-name%3Dwork")).await.body["items"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

async fn a_job_is_complete_when_its_pod_has_succeeded(w: &Ctx) {
    made(w, "work:1", json!({"backoffLimit": 0})).await;
    let done = ended(w).await;
    note_end(w, &done);
    let pods = pods(w).await;
    w.note("pods", pods.len());
    let meta = &pods[0]["metadata"];
    let owner = &meta["ownerReferences"][0];
    w.note(
        "owner",
        json!([owner["kind"], owner["name"], owner["uid"] == done["metadata"]["uid"], owner["controller"]]),
    );
    let labels: Vec<&String> = meta["labels"].as_object().unwrap().keys().collect();
    w.note("labels", json!(labels));
    w.note(
        "selects",
        done["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"]
            == done["metadata"]["uid"],
    );
}

async fn a_job_fails_when_its_pods_failed_too_often(w: &Ctx) {
    made(w, "work:crash", json!({"backoffLimit": 0})).await;
    note_end(w, &ended(w).await);
    w.note("pods", pods(w).await.len());
}

async fn a_job_fails_when_it_takes_too_long(w: &Ctx) {
    made(w, "work:nope", json!({"activeDeadlineSeconds": 2})).await;
    let failed = ended(w).await;
    let conditions = failed["status"]["conditions"].as_array().unwrap().iter();
    w.note("why", conditions.map(|c| json!([c["type"], c["reason"]])).collect::<Vec<_>>());
    w.until("its pod to go", async || pods(w).await.is_empty().then_some(())).await;
}

async fn a_job_that_is_suspended_makes_no_pod(w: &Ctx) {
    made(w, "work:1", json!({"suspend": true})).await;
    w.settle().await;
    w.note("pods", pods(w).await.len());
    let job = w.get(&w.at("batch:jobs/work")).await.body;
    w.note("started", job["status"]["startTime"].is_string());
}

async fn finished_job_is_deleted_after_its_ttl(w: &Ctx) {
    made(w, "work:1", json!({"ttlSecondsAfterFinished": 2})).await;
    ended(w).await;
    w.until_gone(&w.at("batch:jobs/work")).await;
    w.note("gone", true);
}

async fn pods_are_deleted_with_their_job(w: &Ctx) {
    made(w, "work:1", json!({})).await;
    ended(w).await;
    w.delete(&w.at("batch:jobs/work"), json!({"propagationPolicy": "Background"})).await;
    w.until("its pods to go", async || pods(w).await.is_empty().then_some(())).await;
    w.note("gone", true);
}

async fn a_job_is_filled_in(w: &Ctx) {
    made(w, "work:1", json!({"suspend": true})).await;
    let mut spec = w.get(&w.at("batch:jobs/work")).await.body["spec"].clone();
    spec.as_object_mut().unwrap().retain(|field, _| !matches!(field.as_str(), "template" | "selector"));
    w.note("spec", spec);
}

async fn a_job_whose_pods_are_to_run_for_ever_is_refused(w: &Ctx) {
    let mut always = job("work", "work:1", json!({}));
    always["spec"]["template"]["spec"]["restartPolicy"] = "Always".into();
    w.said("always", &w.post(&w.at("batch:jobs"), always).await);
    let mut unsaid = job("work", "work:1", json!({}));
    unsaid["spec"]["template"]["spec"].as_object_mut().unwrap().remove("restartPolicy");
    w.said("unsaid", &w.post(&w.at("batch:jobs"), unsaid).await);
}

async fn a_misspelt_field_of_a_job_is_refused_by_strict_validation(w: &Ctx) {
    let misspelt = job("work", "work:1", json!({"backofLimit": 1}));
    let path = format!("{}?fieldValidation=Strict&dryRun=All", w.at("batch:jobs"));
    w.strictly("misspelt", &w.post(&path, misspelt).await);
    let good = job("work", "work:1", json!({}));
    w.note("good", w.post(&path, good).await.code);
    w.note("stored", w.get(&w.at("batch:jobs/work")).await.code);
}
