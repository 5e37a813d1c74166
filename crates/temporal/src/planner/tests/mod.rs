//! Table tests of the planner's decisions.

mod connect;
mod evacuate;
mod hooks;
mod names;
mod routing;
mod secrets;

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use super::facts::{Facts, PoolWorkers, TemporalState, Version, Workers};
use super::{Target, WorkerSecrets, recipe};
use crate::api::{Connection, WorkerDeploymentSpec, WorkerDeploymentStatus};
use crate::port::{
    BuildId, ConflictToken, DeploymentName, DescribedDeployment, Identity, Routing, VersionStatus,
    VersionSummary,
};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_900_000_000, 0).unwrap()
}

fn spec(rollout: serde_json::Value) -> WorkerDeploymentSpec {
    let mut spec = json!({
        "connection": {"address": "temporal:7233"},
        "template": {"spec": {"containers": [{"name": "worker", "image": "orders:v2"}]}},
        "unsafeCustomBuildID": "two",
    });
    spec["rollout"] = rollout;
    serde_json::from_value(spec).unwrap()
}

/// Facts of a deployment whose current version is `one` and whose target is `two`.
fn facts(rollout: serde_json::Value) -> Facts {
    let spec = spec(rollout);
    let one = BuildId::new("one");
    Facts {
        name: "orders".into(),
        namespace: "shop".into(),
        uid: "uid".into(),
        generation: 2,
        deleted_at: None,
        delete_now: false,
        connection: Connection {
            address: "temporal:7233".into(),
            namespace: "default".into(),
            ..Connection::default()
        },
        target: Target::of(&spec),
        spec,
        status: WorkerDeploymentStatus::default(),
        deployment: DeploymentName::new("shop/orders"),
        identity: Identity::new("windlass/shop/orders/uid"),
        temporal: TemporalState::Known(DescribedDeployment {
            conflict_token: ConflictToken::default(),
            routing: Routing { current: Some(one.clone()), ramp: None },
            is_settled: true,
            manager: Some(Identity::new("windlass/shop/orders/uid")),
            last_modifier: None,
            versions: Vec::new(),
        }),
        versions: BTreeMap::from([(one.clone(), version(&one, VersionStatus::Current, true))]),
        secrets: WorkerSecrets::default(),
        invalid: None,
        unchecked: None,
    }
}

fn version(build: &BuildId, status: VersionStatus, was_active: bool) -> Version {
    let since = was_active.then(|| now() - TimeDelta::hours(1));
    let mut version = Version::new(build.clone());
    version.listed = Some(VersionSummary {
        build: build.clone(),
        status,
        created: Some(now() - TimeDelta::hours(2)),
        first_activated: since,
        last_current: since,
        last_deactivated: None,
        drainage: None,
    });
    version.workers = Workers::of([PoolWorkers {
        name: format!("orders-{build}"),
        replicas: 2,
        available: 2,
        ..PoolWorkers::default()
    }]);
    version.has_revision = true;
    version
}

/// Changes the Deployment of a version.
fn edit(version: &mut Version, change: impl FnOnce(&mut PoolWorkers)) {
    let mut pool = version.workers.as_ref().unwrap().first().clone();
    change(&mut pool);
    version.workers = Workers::of([pool]);
}

fn tasks(facts: &Facts) -> Vec<String> {
    let text = |step: windlass_engine::Step| match step.params.get("percent") {
        Some(percent) => format!("{} {percent}", step.type_),
        None => step.type_,
    };
    recipe::recipe(facts).tasks.into_iter().map(text).collect()
}
