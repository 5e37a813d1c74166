//! The validation rules that the API server enforces. Bounds and types are in the schema.

use windlass_core::api::rules::{
    HAS_HEADER_VALUE, HAS_ONE_ACTION, HEADER_VALUE, HOOK_NAME, HOOK_NAMES_DIFFER, IS_HOOK_NAME, ONE_ACTION,
    Reason, Rule,
};

pub(super) const WORKER_DEPLOYMENT: &[Rule] = &[
    Rule::new(
        "",
        "oldSelf.hasValue() || (size(self.metadata.name) <= 45 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
        "metadata.name has to match [a-z]([-a-z0-9]*[a-z0-9])? and to have at most 45 characters: the names of its \
         Deployments are longer",
    )
    .on("metadata.name")
    .with_optional_old_self(),
    Rule::new(
        "spec",
        "(has(self.deploymentName) ? self.deploymentName : '') == (has(oldSelf.deploymentName) ? oldSelf.deploymentName : '')",
        "spec.deploymentName cannot be changed: Temporal keeps workflows under that name. Create another WorkerDeployment, \
         and delete this one after its versions are drained",
    )
    .on("deploymentName")
    .class(Reason::Forbidden),
    Rule::new(
        "spec.connection.address",
        ADDRESS,
        "spec.connection.address has to be a host and a port without a scheme, such as temporal-frontend.temporal.svc:7233",
    ),
    Rule::new(
        "spec.connection",
        "[has(self.name), has(self.clusterName), has(self.address)].exists_one(given, given)",
        "spec.connection needs exactly one of name (a TemporalConnection), clusterName (a ClusterTemporalConnection) and address",
    )
    .class(Reason::Required),
    Rule::new(
        "spec.connection",
        "has(self.address) || !(has(self.tls) || has(self.apiKeySecret) || has(self.workers) || has(self.workerSecret))",
        "spec.connection has only namespace beside name or clusterName: tls, apiKeySecret, workers and workerSecret belong \
         into the object with that name",
    )
    .class(Reason::Forbidden),
    Rule::new(
        "spec.connection",
        // The default of a named connection is not known here: Windlass compares that. `namespace` is a reserved word of
        // CEL: unescaped, the API server compiles it, estimates an unbounded length, and rejects the definition for its
        // cost.
        "(has(self.__namespace__) ? self.__namespace__ : has(self.address) ? 'default' : '') == \
         (has(oldSelf.__namespace__) ? oldSelf.__namespace__ : has(oldSelf.address) ? 'default' : '') || \
         !(has(self.__namespace__) || has(self.address)) || !(has(oldSelf.__namespace__) || has(oldSelf.address))",
        "spec.connection.namespace cannot be changed: workflows that run there would lose their workers. Create another \
         WorkerDeployment, and delete this one after its versions are drained",
    )
    .on("namespace")
    .class(Reason::Forbidden),
    Rule::new(
        "spec.deploymentName",
        "self == '' || (self.matches('^[^.:]+$') && !self.startsWith('__'))",
        "spec.deploymentName must not contain dots or colons, nor begin with two underscores: Temporal rejects such names",
    ),
    Rule::new(
        "spec.unsafeCustomBuildID",
        "self == '' || (size(self) <= 63 && self.matches('^[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?$'))",
        "spec.unsafeCustomBuildID must have at most 63 characters of A-Z, a-z, 0-9, '.', '_' and '-', with a letter or digit \
         at both ends",
    ),
    Rule::new(
        "spec.template.spec",
        "size(self.containers) > 0",
        "spec.template.spec.containers is empty: add the worker's container",
    )
    .on("containers")
    .class(Reason::Required),
    Rule::new(
        "spec.pools[].template.spec",
        "size(self.containers) > 0",
        "the spec.template.spec.containers of a pool of spec.pools is empty: add the worker's container",
    )
    .on("containers")
    .class(Reason::Required),
    Rule::new(
        "spec.pools[].name",
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "the name of a pool of spec.pools has to match [a-z0-9]([-a-z0-9]*[a-z0-9])?: it is part of the names of its Deployments",
    ),
    Rule::new(
        "spec.pools",
        "self.all(p, self.exists_one(q, q.name == p.name))",
        "spec.pools has two pools with the same name: rename one",
    ),
    Rule::new(
        "spec",
        "!has(self.maxSurge) || !has(self.maxUnavailable) || !(string(self.maxSurge) in ['0', '0%'] && \
         string(self.maxUnavailable) in ['0', '0%'])",
        "spec.maxSurge and spec.maxUnavailable are both 0: set one of them to more than 0",
    )
    .on("maxUnavailable"),
    Rule::new("spec.maxSurge", COUNT, "spec.maxSurge has to be a number of at least 0, or a percentage"),
    Rule::new(
        "spec.maxUnavailable",
        COUNT,
        "spec.maxUnavailable has to be a number of at least 0, or a percentage",
    ),
    Rule::new(
        "spec.rollout",
        "!has(self.strategy) || self.strategy != 'Progressive' || (has(self.steps) && size(self.steps) > 0)",
        "spec.rollout.strategy Progressive needs spec.rollout.steps: add at least one step, or use AllAtOnce",
    )
    .on("steps")
    .class(Reason::Required),
    Rule::new(
        "spec.rollout.steps",
        "self.map(s, s.percent).isSorted() && self.all(s, self.exists_one(t, t.percent == s.percent))",
        "spec.rollout.steps have to ascend: sort them by percent, without duplicates",
    ),
    Rule::new(
        "spec.rollout",
        "!has(self.steps) || has(self.gate) || !self.steps.exists(s, has(s.gate) && s.gate)",
        "a step of spec.rollout.steps has gate: true, but there is no spec.rollout.gate",
    )
    .on("gate")
    .class(Reason::Required),
    Rule::new(
        "spec.rollout.gate",
        "!has(self.input) || !has(self.inputFrom)",
        "spec.rollout.gate has both input and inputFrom: remove one of them",
    )
    .on("inputFrom"),
    Rule::new(
        "spec.rollout.gate.inputFrom",
        "has(self.configMapKeyRef) != has(self.secretKeyRef)",
        "spec.rollout.gate.inputFrom needs either configMapKeyRef or secretKeyRef, but not both",
    ),
    Rule::new(
        "spec.hooks[]",
        "!has(self.at) || self.at in ['BeforeRollout', 'AfterStep', 'BeforePromotion', 'AfterRollout']",
        "a hook of a WorkerDeployment can be at BeforeRollout, AfterStep, BeforePromotion or AfterRollout: the other points \
         apply to nodes only",
    )
    .on("at"),
    Rule::new(
        "spec",
        "!has(self.hooks) || !self.hooks.exists(h, has(h.at) && h.at == 'AfterStep') || (has(self.rollout) \
         && has(self.rollout.steps) && self.rollout.steps.exists(s, has(s.hooks) && s.hooks))",
        "a hook at AfterStep needs a step of spec.rollout.steps with hooks: true, after which it runs",
    )
    .on("hooks"),
    Rule::new(
        "spec",
        "!has(self.hooks) || !self.hooks.exists(h, has(h.at) && h.at == 'AfterStep') || !has(self.rollout) \
         || !has(self.rollout.strategy) || self.rollout.strategy == 'Progressive'",
        "a hook at AfterStep needs spec.rollout.strategy Progressive, the only strategy with steps",
    )
    .on("hooks"),
    Rule::new(
        "spec.hooks[]",
        "!has(self.onFailure) || self.onFailure != 'Rollback' || !has(self.at) || self.at != 'AfterRollout'",
        "onFailure Rollback is not possible at AfterRollout: workflows already run on the new version. Use BeforePromotion, \
         or onFailure Hold or Continue",
    )
    .on("onFailure"),
    Rule::new(
        "spec.hooks",
        HOOK_NAMES_DIFFER,
        "spec.hooks has two hooks with the same name: rename one",
    ),
    Rule::new(
        "spec.hooks[].name",
        IS_HOOK_NAME,
        HOOK_NAME,
    ),
    Rule::new(
        "spec.hooks[]",
        HAS_ONE_ACTION,
        ONE_ACTION,
    )
    .class(Reason::Required),
    Rule::new(
        "spec.hooks[].http.headers[]",
        HAS_HEADER_VALUE,
        HEADER_VALUE,
    ),
];

/// The rules of both kinds of connections.
pub(super) const CONNECTION: &[Rule] = &[
    Rule::new(
        "spec.address",
        ADDRESS,
        "spec.address has to be a host and a port without a scheme, such as temporal-frontend.temporal.svc:7233",
    ),
    Rule::new(
        "spec",
        // As above, the field has a default.
        "self.__namespace__ == oldSelf.__namespace__",
        "spec.namespace cannot be changed: workflows that run there would lose their workers. Create another connection",
    )
    .on("namespace")
    .class(Reason::Forbidden),
];

pub(super) const CLUSTER_CONNECTION: &[Rule] = &[Rule::new(
    "spec",
    "has(self.secretNamespace) || !(has(self.apiKeySecret) || (has(self.tls) && (has(self.tls.caSecret) || \
     has(self.tls.certSecret))))",
    "spec.secretNamespace is missing: set it to the namespace of the Secrets in tls and apiKeySecret",
)
.on("secretNamespace")
.class(Reason::Required)];

const ADDRESS: &str = "self == '' || self.matches('^([-A-Za-z0-9._]+|\\\\[[0-9A-Fa-f:.]+\\\\]):[0-9]{1,5}$')";
const COUNT: &str = "type(self) == int ? self >= 0 : self.matches('^[0-9]{1,3}%$')";
