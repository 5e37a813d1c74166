//! Where nodes may be unavailable at the same time, and which nodes are updated last.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The failure domains of a fleet, for example zones.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// The label whose value is the domain of a node: a label of its pod or, if the operator may read Nodes, of the machine.
    /// A pod without it counts as a domain of its own.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// The maximum number of domains with an unavailable node. Defaults to 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_unavailable_domains: i32,
    /// The maximum number of nodes of a domain that may be unavailable: a number, or a percentage (rounded down, at least 1).
    /// It replaces the fleet's number, unless there are no more domains than `maxUnavailableDomains`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
}

/// The order in which nodes are updated.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateOrder {
    /// The nodes that are updated once all others are available at the target. Windlass reads labels again before each grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastNodes>,
}

/// The nodes that are updated last. Exactly one of its fields must be set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastNodes {
    /// podLabels selects the nodes whose pods have all these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::pod_labels")]
    pub pod_labels: BTreeMap<String, String>,
    /// sidecar selects the nodes whose sidecars report this role.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub sidecar: String,
}

fn one() -> i32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(number: &i32) -> bool {
    *number == 1
}
