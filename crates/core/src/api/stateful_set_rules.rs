//! The validation rules of a StatefulSetRollout.

use super::rules::{
    ARE_LABELS, COUNTS_ASCEND, DOMAIN_SHARE, DURATION, HAS_HEADER_VALUE, HAS_ONE_ACTION, HEADER_VALUE,
    HOOK_NAME, HOOK_NAMES_DIFFER, IS_DURATION, IS_HOOK_NAME, IS_LABEL_KEY, IS_SCHEDULE, IS_SHARE, IS_ZONE,
    LABEL_KEY, LABELS, LAST, ONE_ACTION, PERCENTAGES_ASCEND, Reason, Rule, SCHEDULE, SELECTS_LAST, ZONE,
};

/// The rules of a StatefulSetRollout.
pub(super) const STATEFUL_SET_ROLLOUT: &[Rule] = &[
    Rule::new(
        "spec.statefulSets",
        "(has(self.names) && size(self.names) > 0) != has(self.selector)",
        "statefulSets needs either names or a selector, but not both: set one of them and remove the other",
    )
    .class(Reason::Required),
    Rule::new(
        "spec.statefulSets.selector",
        "(has(self.matchLabels) && size(self.matchLabels) > 0) \
         || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
        "statefulSets.selector is empty and would select every StatefulSet of the namespace: add matchLabels or \
         matchExpressions",
    ),
    Rule::new(
        "spec.statefulSets.selector.matchExpressions[]",
        "!has(self.operator) || (self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0) \
         : (!has(self.values) || size(self.values) == 0))",
        "an expression of statefulSets.selector needs values with In and NotIn, and none with Exists and DoesNotExist",
    ),
    Rule::new(
        "spec.strategy.maxUnavailable",
        IS_SHARE,
        "strategy.maxUnavailable has to be a number above 0, or a percentage from 1% to 100%",
    ),
    Rule::new(
        "spec.strategy.steps[]",
        IS_SHARE,
        "a step of strategy.steps has to be a number above 0, or a percentage from 1% to 100%",
    ),
    Rule::new("spec.strategy.steps", COUNTS_ASCEND, "strategy.steps have to ascend: sort the numbers"),
    Rule::new(
        "spec.strategy.steps",
        PERCENTAGES_ASCEND,
        "strategy.steps have to ascend: sort the percentages",
    ),
    Rule::new("spec.strategy.topology.key", IS_LABEL_KEY, LABEL_KEY),
    Rule::new("spec.strategy.windows[].schedule", IS_SCHEDULE, SCHEDULE),
    Rule::new("spec.strategy.windows[].duration", IS_DURATION, DURATION),
    Rule::new("spec.strategy.windows[].timeZone", IS_ZONE, ZONE),
    Rule::new(
        "spec.strategy.topology.maxUnavailable",
        IS_SHARE,
        DOMAIN_SHARE,
    ),
    Rule::new("spec.strategy.order.last", SELECTS_LAST, LAST).class(Reason::Required),
    Rule::new("spec.strategy.order.last.podLabels", ARE_LABELS, LABELS),
    Rule::new(
        "spec.strategy.order.last",
        "!has(self.sidecar) || self.sidecar == ''",
        "order.last.sidecar is not possible in a StatefulSetRollout, whose pods have no sidecar of Windlass: use \
         order.last.podLabels",
    )
    .on("sidecar"),
    Rule::new(
        "spec.strategy.hooks",
        "self.all(h, !has(h.at) || h.at in ['BeforeRollout', 'BeforeNode', 'AfterNode', 'AfterStep', 'AfterRollout'])",
        "a hook of a StatefulSetRollout runs at BeforeRollout, BeforeNode, AfterNode, AfterStep or AfterRollout: a \
         StatefulSetRollout promotes, creates and removes no pod",
    ),
    Rule::new(
        "spec.strategy",
        "!has(self.hooks) || !self.hooks.exists(h, has(h.at) && h.at == 'AfterStep') \
         || (has(self.steps) && size(self.steps) > 0)",
        "a hook at AfterStep needs strategy.steps: set the numbers of pods after which the rollout stops",
    )
    .on("hooks"),
    Rule::new(
        "spec.strategy.hooks",
        "!self.exists(h, has(h.onFailure) && h.onFailure == 'Rollback' && has(h.at) && h.at == 'AfterRollout')",
        "onFailure Rollback is not possible at AfterRollout, because each StatefulSet has completed the update: use \
         Hold or Continue, or move the hook to AfterNode or AfterStep",
    ),
    Rule::new("spec.strategy.hooks", HOOK_NAMES_DIFFER, "hooks has two hooks with the same name: rename one"),
    Rule::new("spec.strategy.hooks[].name", IS_HOOK_NAME, HOOK_NAME),
    Rule::new("spec.strategy.hooks[]", HAS_ONE_ACTION, ONE_ACTION).class(Reason::Required),
    Rule::new("spec.strategy.hooks[].http.headers[]", HAS_HEADER_VALUE, HEADER_VALUE),
];
