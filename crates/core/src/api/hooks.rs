//! Hooks (`updateStrategy.hooks`): user-defined steps of a rollout. Each becomes a task of a plan. They are not part of
//! a revision, so a change to them applies at once.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Auth, TaskType, Tls};

/// The default of a hook's `timeoutSeconds`.
pub const DEFAULT_HOOK_TIMEOUT_SECONDS: i64 = 600;

/// A user-defined step of a rollout: when it runs, what it does, and what happens if it fails.
// The API server fills in no default: inside a list, it would show up as a difference from what was applied.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// The name of the hook: a DNS label that is unique among the hooks of the object.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The point of the rollout at which the hook runs.
    pub at: HookPoint,
    /// The number of seconds after which the hook fails if it has not succeeded: 1 to 86400. Defaults
    /// to 600; approval and wait have no time-out by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<i64>,
    /// The action when the hook fails. Hold stops the rollout until a person decides. Rollback
    /// rolls it back. Continue ignores the failure. Defaults to Hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OnHookFailure")]
    pub on_failure: Option<OnHookFailure>,
    /// http sends an HTTP request and repeats it until the answer is a success. The request must be idempotent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HttpHook")]
    pub http: Option<HttpHook>,
    /// job runs a Job and waits until it is Complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JobHook")]
    pub job: Option<JobHook>,
    /// query queries the operator's Prometheus repeatedly until the result is a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "QueryHook")]
    pub query: Option<QueryHook>,
    /// approval waits until a person approves with `windlass approve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ApprovalHook")]
    pub approval: Option<ApprovalHook>,
    /// wait waits for a fixed time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WaitHook")]
    pub wait: Option<WaitHook>,
}

/// The point of a rollout at which a hook runs.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum HookPoint {
    /// Before the rollout changes anything.
    #[default]
    BeforeRollout,
    /// Before Windlass replaces a node's pod.
    BeforeNode,
    /// After a node is ready at the revision that it moved to.
    AfterNode,
    /// After the nodes of a step in `inPlace.steps` have converged.
    AfterStep,
    /// Before a new set of nodes takes over.
    BeforePromotion,
    /// After traffic has moved to a new set, before Windlass removes the old set.
    AfterPromotion,
    /// After all other tasks of a rollout are done.
    AfterRollout,
    /// Before Windlass removes a node.
    BeforeRemove,
    /// Before the first pod of a node is created. Its volume claims exist.
    BeforeCreate,
    /// After a new node is ready for the first time.
    AfterCreate,
    /// After the nodes of a new fleet are ready for the first time.
    AfterFirstCreation,
    /// After the nodes that a higher number of replicas added are ready.
    AfterScaleUp,
}

impl HookPoint {
    /// All points, in the order of a rollout.
    pub const ALL: [Self; 12] = [
        Self::BeforeRollout,
        Self::BeforeCreate,
        Self::AfterCreate,
        Self::BeforeNode,
        Self::AfterNode,
        Self::AfterStep,
        Self::BeforePromotion,
        Self::AfterPromotion,
        Self::BeforeRemove,
        Self::AfterFirstCreation,
        Self::AfterScaleUp,
        Self::AfterRollout,
    ];

    /// The points of a fleet that follow the creation of nodes.
    pub const OF_NEW_NODES: [Self; 2] = [Self::AfterFirstCreation, Self::AfterScaleUp];

    /// True if the hooks at this point are tasks of a node's plans, not of the fleet's plan.
    #[must_use]
    pub fn is_of_node(self) -> bool {
        matches!(
            self,
            Self::BeforeNode | Self::AfterNode | Self::BeforeRemove | Self::BeforeCreate | Self::AfterCreate
        )
    }

    /// The value in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeRollout => "BeforeRollout",
            Self::BeforeNode => "BeforeNode",
            Self::AfterNode => "AfterNode",
            Self::AfterStep => "AfterStep",
            Self::BeforePromotion => "BeforePromotion",
            Self::AfterPromotion => "AfterPromotion",
            Self::AfterRollout => "AfterRollout",
            Self::BeforeRemove => "BeforeRemove",
            Self::BeforeCreate => "BeforeCreate",
            Self::AfterCreate => "AfterCreate",
            Self::AfterFirstCreation => "AfterFirstCreation",
            Self::AfterScaleUp => "AfterScaleUp",
        }
    }
}

/// The reaction to a failed hook.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnHookFailure {
    /// The rollout stops until a person decides.
    #[default]
    Hold,
    /// Windlass rolls the rollout back.
    Rollback,
    /// The rollout continues without the hook.
    Continue,
}

/// An HTTP request.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpHook {
    /// The address of the request: the pod of the hook's node (`http://{{podIP}}:…`), or a host that the
    /// operator's flag `--hook-host` allows.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// method is GET, HEAD, POST, PUT, PATCH or DELETE. Defaults to GET.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]))]
    pub method: String,
    /// The TLS settings of an `https://` url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Tls")]
    pub tls: Option<Tls>,
    /// The credentials of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Auth")]
    pub auth: Option<Auth>,
    /// headers lists the headers of the request; at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub headers: Vec<HttpHeader>,
    /// The body of the request, as text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16_384))]
    pub body: String,
    /// A CEL expression that decides whether an answer is a success. Its variables are `status`, `headers`,
    /// `text` and `body`. Defaults to `status >= 200 && status < 300`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub success: String,
    /// A CEL expression that decides whether an answer is a failure, with the same variables as `success`.
    /// Defaults to never.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub failure: String,
    /// The number of seconds between an answer and the next request. Defaults to 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1, max = 86_400))]
    pub interval_seconds: Option<i64>,
    /// The number of seconds to wait for an answer. Defaults to 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1, max = 300))]
    pub request_timeout_seconds: Option<i64>,
}

/// A header of an HTTP request.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpHeader {
    /// The name of the header.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// The value of the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 4096))]
    pub value: Option<String>,
    /// secretKeyRef selects the key of a Secret in the fleet's namespace that contains the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SecretKeyRef")]
    pub secret_key_ref: Option<SecretKeyRef>,
}

/// A reference to a key of a Secret.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct SecretKeyRef {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A Job.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct JobHook {
    /// A `JobSpec`, with any field that the cluster's Kubernetes version supports.
    #[schemars(schema_with = "super::schema::raw_object")]
    pub template: Value,
}

/// A Prometheus query.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryHook {
    /// The query.
    #[schemars(length(min = 1, max = 8192))]
    pub promql: String,
    /// A CEL expression that decides whether a result is a success. Its variables are `result` and `scalar`.
    #[schemars(length(min = 1, max = 2048))]
    pub success: String,
    /// A CEL expression that decides whether a result is a failure, with the same variables as `success`.
    /// Defaults to never.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub failure: String,
    /// The number of seconds between a result and the next query. Defaults to 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1, max = 86_400))]
    pub interval_seconds: Option<i64>,
    /// The number of consecutive successes after which the hook is done. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1, max = 1000))]
    pub count: Option<i64>,
    /// The number of failures that are tolerated. The hook fails if there are more in total. Defaults
    /// to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 0, max = 1000))]
    pub failure_limit: Option<i64>,
}

/// The approval of a person. It has no fields.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ApprovalHook {}

/// A fixed time.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct WaitHook {
    /// The number of seconds to wait: 1 to 604800 (one week).
    #[schemars(range(min = 1, max = 604_800))]
    pub seconds: i64,
}

/// The action of a hook.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HookAction<'a> {
    /// Sends an HTTP request.
    Http(&'a HttpHook),
    /// Runs a Job.
    Job(&'a JobHook),
    /// Queries Prometheus.
    Query(&'a QueryHook),
    /// Waits for a user's approval.
    Approval,
    /// Waits for a fixed time.
    Wait(&'a WaitHook),
}

impl HookAction<'_> {
    /// The type of the task that runs the action.
    #[must_use]
    pub fn task_type(self) -> &'static str {
        match self {
            Self::Http(_) => "call-http",
            Self::Job(_) => TaskType::RunJob.as_ref(),
            Self::Query(_) => "check-query",
            Self::Approval => TaskType::AwaitApproval.as_ref(),
            Self::Wait(_) => "wait",
        }
    }
}

impl Hook {
    /// The action of the hook; `None` if it has no action or several, which the API server rejects.
    #[must_use]
    pub fn action(&self) -> Option<HookAction<'_>> {
        let mut said = [
            self.http.as_ref().map(HookAction::Http),
            self.job.as_ref().map(HookAction::Job),
            self.query.as_ref().map(HookAction::Query),
            self.approval.as_ref().map(|_| HookAction::Approval),
            self.wait.as_ref().map(HookAction::Wait),
        ]
        .into_iter()
        .flatten();
        let first = said.next();
        if said.next().is_some() { None } else { first }
    }

    /// `onFailure`, or its default.
    #[must_use]
    pub fn on_failure(&self) -> OnHookFailure {
        self.on_failure.unwrap_or_default()
    }

    /// The number of seconds without success after which the hook fails; `None` for never.
    #[must_use]
    pub fn timeout_seconds(&self) -> Option<i64> {
        let never = matches!(self.action(), Some(HookAction::Approval | HookAction::Wait(_)));
        self.timeout_seconds.or((!never).then_some(DEFAULT_HOOK_TIMEOUT_SECONDS))
    }
}

/// The number of nodes in a step of a rollout, at least 1. A step is an absolute number or a percentage of `replicas`,
/// which is rounded down.
#[must_use]
pub fn nodes_of_step(step: &IntOrString, replicas: i32) -> i32 {
    let count = match step {
        IntOrString::Int(count) => *count,
        IntOrString::String(text) => text
            .strip_suffix('%')
            .and_then(|percent| percent.parse::<i64>().ok())
            .map_or(1, |percent| (i64::from(replicas) * percent / 100) as i32),
    };
    count.max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hook(action: &Value) -> Hook {
        let mut hook = json!({"name": "h", "at": "BeforeNode"});
        hook.as_object_mut().unwrap().extend(action.as_object().unwrap().clone());
        serde_json::from_value(hook).unwrap()
    }

    #[test]
    fn hook_has_exactly_one_action() {
        let wait = json!({"wait": {"seconds": 3}});
        for (action, task) in [
            (json!({"http": {"url": "http://x/"}}), Some("call-http")),
            (json!({"job": {"template": {"template": {}}}}), Some("run-job")),
            (json!({"query": {"promql": "up", "success": "scalar > 0.0"}}), Some("check-query")),
            (json!({"approval": {}}), Some("await-approval")),
            (wait.clone(), Some("wait")),
            (json!({}), None),
            (json!({"approval": {}, "wait": {"seconds": 3}}), None),
        ] {
            assert_eq!(hook(&action).action().map(HookAction::task_type), task, "{action}");
        }
    }

    #[test]
    fn hook_round_trips_through_json() {
        for action in [
            json!({"http": {"url": "http://x/", "headers": [{"name": "a", "value": ""}]}, "timeoutSeconds": 5}),
            json!({"job": {"template": {"backoffLimit": 0, "futureField": [null]}}, "onFailure": "Rollback"}),
            json!({"query": {"promql": "up", "success": "true", "count": 3, "failureLimit": 0}}),
            json!({"approval": {}}),
        ] {
            let mut whole = json!({"name": "h", "at": "BeforeNode"});
            whole.as_object_mut().unwrap().extend(action.as_object().unwrap().clone());
            assert_eq!(json!(hook(&action)), whole);
        }
    }

    #[test]
    fn approval_and_wait_hooks_have_no_default_timeout() {
        let timeout = |action: Value| hook(&action).timeout_seconds();
        assert_eq!(timeout(json!({"http": {"url": "http://x/"}})), Some(600));
        assert_eq!(timeout(json!({"approval": {}})), None);
        assert_eq!(timeout(json!({"wait": {"seconds": 900}})), None);
        assert_eq!(timeout(json!({"approval": {}, "timeoutSeconds": 7})), Some(7));
    }

    #[test]
    fn percentage_step_is_at_least_one_node() {
        let step = |step: Value| nodes_of_step(&serde_json::from_value(step).unwrap(), 10);
        assert_eq!(["1%", "25%", "100%"].map(|percent| step(json!(percent))), [1, 2, 10]);
        assert_eq!([1, 7, 70].map(|count| step(json!(count))), [1, 7, 70]);
    }
}
