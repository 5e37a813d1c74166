//! Hooks (`updateStrategy.hooks`): user-defined steps of a rollout. Each becomes a task of a plan. They are not part of
//! a revision, so a change to them applies at once.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TaskType;

/// The default of a hook's `timeoutSeconds`.
pub const DEFAULT_HOOK_TIMEOUT_SECONDS: i64 = 600;

/// A step of one's own: where it stands, what it does, and what its failure leads to.
// The API server fills in no default: inside a list, it would show up as a difference from what was applied.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// Its name: a DNS label, and no other hook's of this fleet.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Where it stands.
    pub at: HookPoint,
    /// After how many seconds without success it has failed: 1 to 86400. Default: 600; of approval and wait: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<i64>,
    /// What its failure leads to. Default: Hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OnHookFailure")]
    pub on_failure: Option<OnHookFailure>,
    /// Sends an HTTP request, again and again until the answer is a success. So it has to be idempotent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HttpHook")]
    pub http: Option<HttpHook>,
    /// Runs a Job, and waits until it is Complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JobHook")]
    pub job: Option<JobHook>,
    /// Asks the operator's Prometheus, again and again until the answer is a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "QueryHook")]
    pub query: Option<QueryHook>,
    /// Waits for a person: `windlass approve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ApprovalHook")]
    pub approval: Option<ApprovalHook>,
    /// Waits for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WaitHook")]
    pub wait: Option<WaitHook>,
}

/// Where a hook stands.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum HookPoint {
    /// Before anything of a rollout is done.
    #[default]
    BeforeRollout,
    /// Before a node's pod is replaced.
    BeforeNode,
    /// After a node is ready at what it was moved to.
    AfterNode,
    /// After the nodes of a step of `inPlace.steps` have converged.
    AfterStep,
    /// Before a new set of nodes takes over.
    BeforePromotion,
    /// After traffic moved to a new set, before the old one goes.
    AfterPromotion,
    /// After everything of a rollout is done.
    AfterRollout,
    /// Before a node leaves.
    BeforeRemove,
}

impl HookPoint {
    /// All points.
    pub const ALL: [Self; 8] = [
        Self::BeforeRollout,
        Self::BeforeNode,
        Self::AfterNode,
        Self::AfterStep,
        Self::BeforePromotion,
        Self::AfterPromotion,
        Self::AfterRollout,
        Self::BeforeRemove,
    ];

    /// True if its hooks are tasks of a node's plans, and not of the fleet's.
    #[must_use]
    pub fn is_of_node(self) -> bool {
        matches!(self, Self::BeforeNode | Self::AfterNode | Self::BeforeRemove)
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
        }
    }
}

/// What a hook's failure leads to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnHookFailure {
    /// The rollout holds until a person decides.
    #[default]
    Hold,
    /// What the rollout did is taken back.
    Rollback,
    /// The rollout goes on without it.
    Continue,
}

/// An HTTP request.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpHook {
    /// Where it goes to: a node of this fleet (`http://{{podIP}}:…`), or a host that the operator was started with.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// GET, HEAD, POST, PUT, PATCH or DELETE. Default: GET.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]))]
    pub method: String,
    /// Headers; at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub headers: Vec<HttpHeader>,
    /// The request's body, a text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16_384))]
    pub body: String,
    /// When an answer is a success, in CEL over `status`, `headers`, `text` and `body`.
    /// Default: `status >= 200 && status < 300`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub success: String,
    /// When an answer is a failure, in CEL over the same. Default: never.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub failure: String,
    /// How many seconds after an answer it is sent again. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1, max = 86_400))]
    pub interval_seconds: Option<i64>,
    /// How many seconds an answer is waited for. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1, max = 300))]
    pub request_timeout_seconds: Option<i64>,
}

/// A header of a request.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpHeader {
    /// Its name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 4096))]
    pub value: Option<String>,
    /// The key of a Secret in the fleet's namespace that holds its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SecretKeyRef")]
    pub secret_key_ref: Option<SecretKeyRef>,
}

/// A key of a Secret.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct SecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A Job.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct JobHook {
    /// A `JobSpec`, with every field that the cluster's Kubernetes knows.
    #[schemars(schema_with = "super::schema::raw_object")]
    pub template: Value,
}

/// A question to Prometheus.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryHook {
    /// The query.
    #[schemars(length(min = 1, max = 8192))]
    pub promql: String,
    /// When an answer is a success, in CEL over `result` and `scalar`.
    #[schemars(length(min = 1, max = 2048))]
    pub success: String,
    /// When an answer is a failure, in CEL over the same. Default: never.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub failure: String,
    /// How many seconds after an answer it is asked again. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1, max = 86_400))]
    pub interval_seconds: Option<i64>,
    /// How many successes in a row are success. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1, max = 1000))]
    pub count: Option<i64>,
    /// How many failures are not yet failure. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 0, max = 1000))]
    pub failure_limit: Option<i64>,
}

/// A person's word.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ApprovalHook {}

/// A time.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct WaitHook {
    /// How many seconds: 1 to 604800, a week.
    #[schemars(range(min = 1, max = 604_800))]
    pub seconds: i64,
}

/// What a hook does.
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
    /// Waits for a time.
    Wait(&'a WaitHook),
}

impl HookAction<'_> {
    /// The type of the task that carries it out.
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
    /// What it does; `None` if it has no action or several, which the API server rejects.
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

    /// What its failure leads to, with the default filled in.
    #[must_use]
    pub fn on_failure(&self) -> OnHookFailure {
        self.on_failure.unwrap_or_default()
    }

    /// The number of seconds without success after which it has failed; `None` for never.
    #[must_use]
    pub fn timeout_seconds(&self) -> Option<i64> {
        let never = matches!(self.action(), Some(HookAction::Approval | HookAction::Wait(_)));
        self.timeout_seconds.or((!never).then_some(DEFAULT_HOOK_TIMEOUT_SECONDS))
    }
}

/// The number of nodes in a step of a rollout, at least 1: a number, or a percentage of `replicas` that is rounded
/// down.
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
    fn a_hook_does_one_thing_or_nothing_is_known_of_it() {
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
    fn a_hook_is_written_as_it_was_read() {
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
    fn people_and_times_are_waited_for_without_end_unless_one_is_set() {
        let timeout = |action: Value| hook(&action).timeout_seconds();
        assert_eq!(timeout(json!({"http": {"url": "http://x/"}})), Some(600));
        assert_eq!(timeout(json!({"approval": {}})), None);
        assert_eq!(timeout(json!({"wait": {"seconds": 900}})), None);
        assert_eq!(timeout(json!({"approval": {}, "timeoutSeconds": 7})), Some(7));
    }

    #[test]
    fn a_step_is_at_least_one_node() {
        let step = |step: Value| nodes_of_step(&serde_json::from_value(step).unwrap(), 10);
        assert_eq!(["1%", "25%", "100%"].map(|percent| step(json!(percent))), [1, 2, 10]);
        assert_eq!([1, 7, 70].map(|count| step(json!(count))), [1, 7, 70]);
    }
}
