//! Each bad object is refused with a message about its field, and each good twin is accepted.

use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client, Error};
use serde_json::{Value, json};

use super::{api_of, control_plane, dynamic, named};
use windlass_core::api::crd::cases::{self, Case};

const DRY_RUN: PostParams = PostParams { dry_run: true, field_manager: None };

/// The causes of a refusal for a field: reason and message.
fn causes(answer: Result<DynamicObject, Error>, of: &str) -> Vec<(String, String)> {
    match answer {
        Err(Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{of}: {}", status.message);
            let causes = status.details.into_iter().flat_map(|details| details.causes);
            causes.map(|cause| (cause.field, cause.message)).collect()
        }
        Err(error) => panic!("{of}: {error}"),
        Ok(_) => Vec::new(),
    }
}

async fn stored_before(
    client: &Client,
    namespace: &str,
    case: &Case,
    number: usize,
) -> Option<DynamicObject> {
    let old = named(case.old.as_ref()?, &format!("old-{number}"));
    let api = api_of(client, namespace, &old);
    Some(
        api.create(&PostParams::default(), &dynamic(&old))
            .await
            .unwrap_or_else(|e| panic!("{}: {e}", case.name)),
    )
}

async fn answer(
    api: &Api<DynamicObject>,
    old: Option<&DynamicObject>,
    object: &Value,
) -> Result<DynamicObject, Error> {
    let mut object = dynamic(object);
    let Some(old) = old else { return api.create(&DRY_RUN, &object).await };
    object.metadata.name.clone_from(&old.metadata.name);
    object.metadata.resource_version.clone_from(&old.metadata.resource_version);
    api.replace(old.metadata.name.as_deref().unwrap(), &DRY_RUN, &object).await
}

#[tokio::test]
async fn invalid_objects_are_rejected_and_valid_counterparts_accepted() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("refused").await);
    let mut wrong = Vec::new();
    for (number, case) in cases::all().iter().enumerate() {
        let api = api_of(&client, &ns, &case.bad);
        let old = stored_before(&client, &ns, case, number).await;
        let causes_of_bad = causes(answer(&api, old.as_ref(), &case.bad).await, case.name);
        if !causes_of_bad.iter().any(|(field, says)| field == case.field && says.contains(case.says)) {
            let Case { name, field, says, by, .. } = case;
            wrong.push(format!(
                "{name}: {field} is not refused by the {by:?} with {says:?}: {causes_of_bad:#?}"
            ));
        }
        let causes_of_good = causes(answer(&api, old.as_ref(), &case.good).await, case.name);
        if !causes_of_good.is_empty() {
            wrong.push(format!("{}: the good twin: {causes_of_good:#?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn largest_objects_fit_the_validation_cost_budget() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("largest").await);
    let name = |n: usize| format!("{}{n:02}", "n".repeat(61));
    let containers: Value = (0..64).map(|n| json!({"name": name(n), "image": "x:1"})).collect();
    let ports: Value = (0..64).map(|n| json!({"name": name(n), "port": n + 1, "protocol": "UDP"})).collect();
    let filler = "f".repeat(8_000);
    let claims: Value = (0..16)
        .map(|n| json!({"metadata": {"name": name(n), "annotations": {"filler": filler}}, "spec": {}}))
        .collect();
    let of_node = cases::node(&[
        ("spec.podTemplate.spec", json!({"containers": containers, "initContainers": containers})),
        ("spec.mainContainer", name(63).into()),
        ("spec.ports", ports.clone()),
        ("spec.volumeClaimTemplates", claims),
    ]);
    let of_fleet =
        cases::fleet(&[("spec.template.spec", of_node["spec"].clone()), ("spec.service.ports", ports)]);
    let label = "l".repeat(63);
    let values: Value = (0..64).map(|_| json!(label)).collect();
    let expressions: Value =
        (0..64).map(|n| json!({"key": name(n), "operator": "In", "values": values})).collect();
    let hooks: Value =
        (0..16).map(|n| json!({"name": name(n), "at": "AfterStep", "wait": {"seconds": 1}})).collect();
    let of_rollout = cases::rollout(&[
        ("spec.statefulSets", json!({"selector": {"matchExpressions": expressions}})),
        ("spec.strategy", json!({"steps": [1, 2, 3, 4, 5, 6, 7, 8, 9, "100%"], "hooks": hooks})),
    ]);
    for object in [of_node, of_fleet, of_rollout] {
        let api = api_of(&client, &ns, &object);
        let mut stored = api.create(&PostParams::default(), &dynamic(&object)).await.unwrap();
        stored.data["spec"]["paused"] = true.into();
        stored.data["spec"]["suspend"] = true.into();
        api.replace("db", &PostParams::default(), &stored).await.unwrap();
    }
}
