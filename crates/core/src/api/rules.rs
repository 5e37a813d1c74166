//! The validation rules that the API server enforces, as data: where each is attached, what it checks, and the message
//! that a user sees. Bounds and types are in the schema.
//!
//! If a newer CRD makes a stored object invalid, it must still be possible to scale the object, to remove its
//! finalizers and to update its status. So a rule is attached as deep in the schema as its inputs allow: the API server
//! ignores a violation by a value that did not change. A rule that is attached higher, or that reads `oldSelf`, has to
//! allow unchanged values itself. And no rule may cause an evaluation error, for example because a required field is
//! missing: neither such an error nor a violation of a rule with `oldSelf` is ever ignored.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;

/// One validation rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The schema that the rule is attached to: field names with dots, `[]` after a list for its items. Empty for the
    /// object.
    pub at: &'static str,
    /// The CEL expression; false rejects the object.
    pub check: &'static str,
    /// The message: what is wrong and what to do. It names the field.
    pub sentence: &'static str,
    /// The field below `at` that the error is reported on; empty: `at` itself.
    pub field: &'static str,
    /// The class of the error.
    pub reason: Reason,
    /// True if `oldSelf` is an optional that is empty on creation; otherwise the rule is skipped on creation.
    pub optional_old_self: bool,
}

/// The error classes of the API, without Duplicate: for that class the API server drops the message.
#[derive(Clone, Copy, Debug)]
pub enum Reason {
    /// The value is invalid.
    Invalid,
    /// Something is missing.
    Required,
    /// The field may not be changed, or may not be set.
    Forbidden,
}

impl Rule {
    /// A rule of class `Invalid`.
    #[must_use]
    pub const fn new(at: &'static str, check: &'static str, sentence: &'static str) -> Self {
        Self { at, check, sentence, field: "", reason: Reason::Invalid, optional_old_self: false }
    }

    /// Reports the error on a field below the one that the rule is attached to.
    #[must_use]
    pub const fn on(self, field: &'static str) -> Self {
        Self { field, ..self }
    }

    /// Sets the class.
    #[must_use]
    pub const fn class(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// Makes `oldSelf` an optional that is empty on creation.
    #[must_use]
    pub const fn with_optional_old_self(self) -> Self {
        Self { optional_old_self: true, ..self }
    }

    /// The form in a CRD.
    pub(super) fn to_validation(self) -> ValidationRule {
        let reason = match self.reason {
            // The default is omitted.
            Reason::Invalid => None,
            Reason::Required => Some("FieldValueRequired"),
            Reason::Forbidden => Some("FieldValueForbidden"),
        };
        ValidationRule {
            rule: self.check.to_owned(),
            message: Some(self.sentence.to_owned()),
            field_path: (!self.field.is_empty()).then(|| format!(".{}", self.field)),
            reason: reason.map(ToOwned::to_owned),
            optional_old_self: self.optional_old_self.then_some(true),
            message_expression: None,
        }
    }
}

const CLAIMS_STAY: &str = "volumeClaimTemplates cannot change if nodes are updated in place, except that \
     resources.requests.storage may grow: a node keeps the volumes that it was created with. For other claims, create a \
     new NodeDeployment";

/// A label key.
pub(super) const IS_LABEL_KEY: &str =
    "self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')";
pub(super) const DOMAIN_SHARE: &str =
    "topology.maxUnavailable has to be a number above 0, or a percentage from 1% to 100%";
/// Labels that a pod can have.
pub(super) const ARE_LABELS: &str = "self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') \
     && self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))";
pub(super) const LABELS: &str =
    "order.last.podLabels has a key or value that no label of a pod can have: correct it";
pub(super) const LABEL_KEY: &str =
    "topology.key has to be the key of a label, for example topology.kubernetes.io/zone";

/// The form of a schedule; the operator checks the rest.
pub(super) const IS_SCHEDULE: &str = "self.matches('^\\\\s*(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[0-9*?/,-]+\\\\s+[0-9*?/,-]+\\\\s+[0-9*?/,-]+\\\\s+[0-9A-Za-z*?/,-]+\\\\s+[0-9A-Za-z*?/,-]+)\\\\s*$')";
pub(super) const SCHEDULE: &str = "windows[].schedule has to be the schedule of a CronJob with five fields, for example \
     '0 2 * * 1-5': minute, hour, day of the month, month, day of the week";
pub(super) const IS_DURATION: &str =
    "self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?$') && self.matches('[1-9]')";
pub(super) const DURATION: &str =
    "windows[].duration has to be hours and minutes above 0, for example 3h or 1h30m";
pub(super) const IS_ZONE: &str = "self == '' || self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$')";
pub(super) const ZONE: &str =
    "windows[].timeZone has to be the name of a time zone, for example Europe/Berlin";

/// Nodes that are updated last are selected in one way.
pub(super) const SELECTS_LAST: &str =
    "(has(self.podLabels) && size(self.podLabels) > 0) != (has(self.sidecar) && self.sidecar != '')";
pub(super) const LAST: &str =
    "order.last needs either podLabels or sidecar, but not both: set one of them and remove the other";

/// `RESERVED_LABELS` as a list in CEL.
macro_rules! reserved_labels {
    () => {
        "['windlass.dev/deployment', 'windlass.dev/node', 'windlass.dev/set', 'windlass.dev/ordinal', \
         'windlass.dev/revision', 'windlass.dev/worker-deployment', 'apps.kubernetes.io/pod-index', \
         'controller-revision-hash', 'statefulset.kubernetes.io/pod-name']"
    };
}

/// `RESERVED_ANNOTATIONS` as a list in CEL.
macro_rules! reserved_annotations {
    () => {
        "['windlass.dev/image', 'windlass.dev/main-container', 'windlass.dev/pod-template-hash']"
    };
}

/// The check that a StatefulNode is not being created by a user.
macro_rules! is_not_new_by_user {
    () => {
        "oldSelf.hasValue() || (has(self.grantedHash) && self.grantedHash != '') || !has(self.podTemplate)"
    };
}

/// The check that no container of `$spec` has the port of the injected sidecar.
macro_rules! sidecar_port_is_free {
    ($spec:literal) => {
        concat!(
            "!has(",
            $spec,
            ".sidecar) || !has(",
            $spec,
            ".sidecar.image) || ",
            $spec,
            ".sidecar.image == '' || !has(",
            $spec,
            ".podTemplate) || !has(",
            $spec,
            ".podTemplate.spec) || !(",
            sidecar_port_is_taken!($spec, ".podTemplate.spec.containers"),
            " || ",
            sidecar_port_is_taken!($spec, ".podTemplate.spec.initContainers"),
            ")"
        )
    };
}

/// The check that one of these containers of `$spec` has the port of the injected sidecar.
macro_rules! sidecar_port_is_taken {
    ($spec:literal, $containers:literal) => {
        concat!(
            "(has(",
            $spec,
            $containers,
            ") && ",
            $spec,
            $containers,
            ".exists(c, has(c.ports) && c.ports.exists(p, has(p.containerPort) && p.containerPort == (has(",
            $spec,
            ".sidecar.port) ? ",
            $spec,
            ".sidecar.port : 7777) && (!has(p.protocol) || p.protocol == 'TCP'))))"
        )
    };
}

const RESERVED_LABEL: &str = "podTemplate.metadata.labels has a reserved label: remove it, or choose another name. \
     Windlass sets windlass.dev/deployment, node, set, ordinal, revision and worker-deployment. Kubernetes sets \
     apps.kubernetes.io/pod-index, controller-revision-hash and statefulset.kubernetes.io/pod-name";

const RESERVED_ANNOTATION: &str = "podTemplate.metadata.annotations has a reserved annotation: remove it, or choose \
     another name. Windlass sets windlass.dev/image, main-container and pod-template-hash";

const SIDECAR_PORT: &str = "sidecar.port is already a port of a container in podTemplate: set sidecar.port to a \
     free port. All containers of a pod share its ports";

/// Rules of a whole NodeDeployment.
pub(super) const NODE_DEPLOYMENT: &[Rule] = &[
    NAME_PATTERN,
    Rule::new(
        "",
        "oldSelf.hasValue() || size(self.metadata.name) <= 39",
        "metadata.name of a NodeDeployment is longer than 39 characters: choose a shorter name. The names of nodes \
         and pods add a suffix to it",
    )
    .on("metadata.name")
    .with_optional_old_self(),
    Rule::new(
        "spec",
        "!has(self.unsafeCustomBuildID) || self.unsafeCustomBuildID == '' \
         || !has(self.updateStrategy) || !has(self.updateStrategy.type) || self.updateStrategy.type != 'InPlace' \
         || (oldSelf.hasValue() && has(oldSelf.value().unsafeCustomBuildID) \
         && oldSelf.value().unsafeCustomBuildID == self.unsafeCustomBuildID \
         && has(oldSelf.value().updateStrategy) && has(oldSelf.value().updateStrategy.type) \
         && oldSelf.value().updateStrategy.type == self.updateStrategy.type)",
        "unsafeCustomBuildID cannot be used with updateStrategy.type InPlace, which creates no new set of nodes: \
         remove it",
    )
    .on("unsafeCustomBuildID")
    .class(Reason::Forbidden)
    .with_optional_old_self(),
    // New nodes get new volumes. If the build ID does not change, a strategy that creates new nodes updates in place as
    // well. An added or removed field may be a written-out default, or the order may differ: the operator checks this
    // with a dry run, and rejects other changes.
    Rule::new(
        "spec",
        "(has(self.updateStrategy) && has(self.updateStrategy.type) \
         && self.updateStrategy.type in ['BlueGreen', 'HardFork'] \
         && !(has(self.unsafeCustomBuildID) && self.unsafeCustomBuildID != '' \
         && has(oldSelf.unsafeCustomBuildID) && self.unsafeCustomBuildID == oldSelf.unsafeCustomBuildID)) \
         || !has(self.template) || !has(self.template.spec) || !has(oldSelf.template) || !has(oldSelf.template.spec) \
         || (has(self.template.spec.volumeClaimTemplates) && size(self.template.spec.volumeClaimTemplates) > 0 \
         ? has(oldSelf.template.spec.volumeClaimTemplates) \
         && size(self.template.spec.volumeClaimTemplates) == size(oldSelf.template.spec.volumeClaimTemplates) \
         && self.template.spec.volumeClaimTemplates.all(a, oldSelf.template.spec.volumeClaimTemplates.exists(b, \
         has(a.metadata) && has(b.metadata) && has(a.metadata.name) && has(b.metadata.name) \
         && a.metadata.name == b.metadata.name && has(a.metadata.labels) == has(b.metadata.labels) \
         && (!has(a.metadata.labels) || a.metadata.labels == b.metadata.labels) \
         && has(a.metadata.annotations) == has(b.metadata.annotations) \
         && (!has(a.metadata.annotations) || a.metadata.annotations == b.metadata.annotations) \
         && (!has(a.spec) || !has(b.spec) || ((!has(a.spec.storageClassName) || !has(b.spec.storageClassName) \
         || a.spec.storageClassName == b.spec.storageClassName) \
         && (!has(a.spec.volumeMode) || !has(b.spec.volumeMode) || a.spec.volumeMode == b.spec.volumeMode) \
         && (!has(a.spec.volumeName) || !has(b.spec.volumeName) || a.spec.volumeName == b.spec.volumeName) \
         && (!has(a.spec.accessModes) || !has(b.spec.accessModes) \
         || (size(a.spec.accessModes) == size(b.spec.accessModes) \
         && a.spec.accessModes.all(m, m in b.spec.accessModes))))))) : !has(oldSelf.template.spec.volumeClaimTemplates) \
         || size(oldSelf.template.spec.volumeClaimTemplates) == 0)",
        CLAIMS_STAY,
    )
    .on("template.spec.volumeClaimTemplates")
    .class(Reason::Forbidden),
    Rule::new(
        "spec.unsafeCustomBuildID",
        "self == '' || (size(self) <= 63 && self.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$'))",
        "unsafeCustomBuildID has to be at most 63 letters, digits, '.', '_' and '-', with a letter or a digit at \
         both ends",
    ),
    Rule::new(
        "spec.updateStrategy",
        "!has(self.type) || self.type != 'HardFork' || (has(self.hardFork) && has(self.hardFork.haltHeight))",
        "updateStrategy.type HardFork needs hardFork.haltHeight: set the height at which the old nodes halt",
    )
    .on("hardFork.haltHeight")
    .class(Reason::Required),
    // Its inputs are far apart in the spec, so the rule itself has to allow objects that were stored before it existed.
    Rule::new(
        "spec",
        "!has(self.updateStrategy) || !has(self.updateStrategy.type) || self.updateStrategy.type != 'HardFork' \
         || !has(self.template) || !has(self.template.spec) \
         || (has(self.template.spec.sidecar) \
         && ((has(self.template.spec.sidecar.image) && size(self.template.spec.sidecar.image) > 0) \
         || (has(self.template.spec.sidecar.url) && size(self.template.spec.sidecar.url) > 0))) \
         || (oldSelf.hasValue() \
         && has(oldSelf.value().updateStrategy) && has(oldSelf.value().updateStrategy.type) \
         && oldSelf.value().updateStrategy.type == 'HardFork' \
         && has(oldSelf.value().template) && has(oldSelf.value().template.spec) \
         && !(has(oldSelf.value().template.spec.sidecar) \
         && ((has(oldSelf.value().template.spec.sidecar.image) \
         && size(oldSelf.value().template.spec.sidecar.image) > 0) \
         || (has(oldSelf.value().template.spec.sidecar.url) \
         && size(oldSelf.value().template.spec.sidecar.url) > 0))))",
        "updateStrategy.type HardFork needs a sidecar that reports the height of a node: set \
         template.spec.sidecar.image, with --height-url in its args, or template.spec.sidecar.url",
    )
    .on("template.spec.sidecar")
    .class(Reason::Required)
    .with_optional_old_self(),
    Rule::new(
        "spec.updateStrategy.hardFork.haltHeight",
        "self > 0",
        "hardFork.haltHeight has to be above 0: it is the height at which the old nodes halt",
    ),
    Rule::new(
        "spec.updateStrategy.inPlace.maxUnavailable",
        IS_SHARE,
        "inPlace.maxUnavailable has to be a number above 0, or a percentage from 1% to 100%",
    ),
    Rule::new(
        "spec.updateStrategy.inPlace.steps[]",
        IS_SHARE,
        "a step of inPlace.steps has to be a number above 0, or a percentage from 1% to 100%",
    ),
    Rule::new("spec.updateStrategy.inPlace.steps", COUNTS_ASCEND, "inPlace.steps have to ascend: sort the numbers"),
    Rule::new(
        "spec.updateStrategy.inPlace.steps",
        PERCENTAGES_ASCEND,
        "inPlace.steps have to ascend: sort the percentages",
    ),
    Rule::new("spec.updateStrategy.inPlace.topology.key", IS_LABEL_KEY, LABEL_KEY),
    Rule::new("spec.updateStrategy.windows[].schedule", IS_SCHEDULE, SCHEDULE),
    Rule::new("spec.updateStrategy.windows[].duration", IS_DURATION, DURATION),
    Rule::new("spec.updateStrategy.windows[].timeZone", IS_ZONE, ZONE),
    Rule::new(
        "spec.updateStrategy.inPlace.topology.maxUnavailable",
        IS_SHARE,
        DOMAIN_SHARE,
    ),
    Rule::new("spec.updateStrategy.inPlace.order.last", SELECTS_LAST, LAST).class(Reason::Required),
    Rule::new("spec.updateStrategy.inPlace.order.last.podLabels", ARE_LABELS, LABELS),
    Rule::new(
        "spec",
        "!has(self.updateStrategy) || !has(self.updateStrategy.inPlace) || !has(self.updateStrategy.inPlace.order) \
         || !has(self.updateStrategy.inPlace.order.last) || !has(self.updateStrategy.inPlace.order.last.sidecar) \
         || self.updateStrategy.inPlace.order.last.sidecar == '' || !has(self.template) || !has(self.template.spec) \
         || has(self.template.spec.sidecar) || (oldSelf.hasValue() \
         && has(oldSelf.value().updateStrategy) && has(oldSelf.value().updateStrategy.inPlace) \
         && has(oldSelf.value().updateStrategy.inPlace.order) && has(oldSelf.value().updateStrategy.inPlace.order.last) \
         && has(oldSelf.value().updateStrategy.inPlace.order.last.sidecar) \
         && oldSelf.value().updateStrategy.inPlace.order.last.sidecar == self.updateStrategy.inPlace.order.last.sidecar \
         && has(oldSelf.value().template) && has(oldSelf.value().template.spec) \
         && !has(oldSelf.value().template.spec.sidecar))",
        "order.last.sidecar needs template.spec.sidecar, which reports the role: add a sidecar, or use order.last.podLabels",
    )
    .on("updateStrategy.inPlace.order.last.sidecar")
    .with_optional_old_self(),
    Rule::new(
        "spec.updateStrategy",
        "!has(self.hooks) || !self.hooks.exists(h, has(h.at) && h.at == 'AfterStep') \
         || (has(self.inPlace) && has(self.inPlace.steps) && size(self.inPlace.steps) > 0)",
        "a hook at AfterStep needs updateStrategy.inPlace.steps: set the numbers of nodes after which the rollout stops",
    )
    .on("hooks"),
    Rule::new(
        "spec.updateStrategy",
        "!has(self.type) || self.type == 'InPlace' || !has(self.hooks) \
         || !self.hooks.exists(h, has(h.at) && h.at == 'AfterStep')",
        "a hook at AfterStep needs updateStrategy.type InPlace, the only strategy with steps",
    )
    .on("hooks"),
    Rule::new(
        "spec.updateStrategy",
        "!has(self.hooks) || (has(self.type) && self.type != 'InPlace' && !(self.type == 'BlueGreen' \
         && has(self.blueGreen) && has(self.blueGreen.promotion) && self.blueGreen.promotion == 'Immediately')) \
         || !self.hooks.exists(h, has(h.at) && h.at in ['BeforePromotion', 'AfterPromotion'])",
        "a hook at BeforePromotion or AfterPromotion needs old nodes that still exist at the promotion: use \
         updateStrategy.type BlueGreen with a promotion other than Immediately. BeforePromotion also works with HardFork",
    )
    .on("hooks"),
    Rule::new(
        "spec.updateStrategy",
        "!has(self.type) || self.type != 'HardFork' || !has(self.hooks) \
         || !self.hooks.exists(h, has(h.at) && h.at == 'AfterPromotion')",
        "a hook at AfterPromotion needs updateStrategy.type BlueGreen: after the promotion of a HardFork, the old \
         nodes have halted. Use BeforePromotion or AfterRollout",
    )
    .on("hooks"),
    Rule::new(
        "spec.updateStrategy",
        "!has(self.hooks) || !self.hooks.exists(h, has(h.onFailure) && h.onFailure == 'Rollback' && has(h.at) \
         && (h.at in ['BeforeRemove', 'BeforeCreate', 'AfterCreate', 'AfterFirstCreation', 'AfterScaleUp'] \
         || (has(self.type) && self.type in ['BlueGreen', 'HardFork'] && h.at == 'AfterRollout')))",
        "onFailure Rollback is not possible at BeforeRemove, BeforeCreate, AfterCreate, AfterFirstCreation and \
         AfterScaleUp, nor at AfterRollout with BlueGreen or HardFork: there is nothing to roll back to. Use Hold or \
         Continue",
    )
    .on("hooks"),
    Rule::new(
        "spec.updateStrategy.hooks",
        HOOK_NAMES_DIFFER,
        "hooks has two hooks with the same name: rename one",
    ),
    Rule::new(
        "spec.updateStrategy.hooks[].name",
        IS_HOOK_NAME,
        HOOK_NAME,
    ),
    Rule::new(
        "spec.updateStrategy.hooks[]",
        HAS_ONE_ACTION,
        ONE_ACTION,
    )
    .class(Reason::Required),
    Rule::new(
        "spec.updateStrategy.hooks[].http.headers[]",
        HAS_HEADER_VALUE,
        HEADER_VALUE,
    ),
    Rule::new(
        "spec.service.ports",
        "size(self) > 0",
        "service.ports is empty: add at least one port, or remove service",
    )
    .class(Reason::Required),
    Rule::new("spec.service.ports", PORTS_HAVE_NAMES, "service.ports has several ports: give each a name")
        .class(Reason::Required),
    Rule::new("spec.service.ports", PORT_NAMES_DIFFER, "service.ports has two ports with the same name: rename one"),
    Rule::new(
        "spec.service.ports",
        PORTS_DIFFER,
        "service.ports has two entries with the same port and protocol: remove one",
    ),
    Rule::new("spec.service.ports[].name", IS_PORT_NAME, PORT_NAME),
    Rule::new("spec.service.ports[].targetPort", IS_TARGET_PORT, TARGET_PORT),
    Rule::new(
        "spec.template.spec",
        "!has(self.grantedHash)",
        "grantedHash is written by Windlass into the nodes of a NodeDeployment: remove it from template.spec",
    )
    .on("grantedHash")
    .class(Reason::Forbidden),
    Rule::new(
        "spec.template.spec",
        "!has(self.grantID)",
        "grantID is written by Windlass into the nodes of a NodeDeployment: remove it from template.spec",
    )
    .on("grantID")
    .class(Reason::Forbidden),
    Rule::new(
        "spec.template.spec",
        "!has(self.haltHeight)",
        "haltHeight is written by Windlass into the nodes of a NodeDeployment: remove it from template.spec",
    )
    .on("haltHeight")
    .class(Reason::Forbidden),
    Rule::new(
        "spec.template.spec",
        "!has(self.haltTaskID)",
        "haltTaskID is written by Windlass into the nodes of a NodeDeployment: remove it from template.spec",
    )
    .on("haltTaskID")
    .class(Reason::Forbidden),
    Rule::new(
        "spec.template.spec",
        "!has(self.watchSidecar)",
        "watchSidecar is written by Windlass into the nodes of a NodeDeployment: remove it from template.spec",
    )
    .on("watchSidecar")
    .class(Reason::Forbidden),
    Rule::new(
        "spec.template.spec",
        "!has(self.move)",
        "move is written by Windlass into the nodes of a NodeDeployment: remove it from template.spec",
    )
    .on("move")
    .class(Reason::Forbidden),
    Rule::new(
        "spec.template.spec",
        "!has(self.suspend)",
        "suspend cannot be set for a whole NodeDeployment: remove it from template.spec, and set replicas to 0 or \
         suspend individual StatefulNodes",
    )
    .on("suspend")
    .class(Reason::Forbidden),
];

/// Rules of a whole StatefulNode.
pub(super) const STATEFUL_NODE: &[Rule] = &[
    NAME_PATTERN,
    Rule::new(
        "",
        "oldSelf.hasValue() || size(self.metadata.name) <= 52",
        "metadata.name of a StatefulNode is longer than 52 characters: choose a shorter name. A StatefulSet with a \
         longer name cannot create its pod",
    )
    .on("metadata.name")
    .with_optional_old_self(),
    // A node that a fleet creates has a grant. Its template was checked with the fleet, or is older than these rules.
    Rule::new(
        "spec",
        concat!(
            is_not_new_by_user!(),
            " || !has(self.podTemplate.metadata) || !has(self.podTemplate.metadata.labels) || !",
            reserved_labels!(),
            ".exists(k, k in self.podTemplate.metadata.labels)"
        ),
        RESERVED_LABEL,
    )
    .on("podTemplate.metadata.labels")
    .class(Reason::Forbidden)
    .with_optional_old_self(),
    Rule::new(
        "spec",
        concat!(
            is_not_new_by_user!(),
            " || !has(self.podTemplate.metadata) || !has(self.podTemplate.metadata.annotations) || !",
            reserved_annotations!(),
            ".exists(k, k in self.podTemplate.metadata.annotations)"
        ),
        RESERVED_ANNOTATION,
    )
    .on("podTemplate.metadata.annotations")
    .class(Reason::Forbidden)
    .with_optional_old_self(),
    Rule::new("spec", concat!(is_not_new_by_user!(), " || ", sidecar_port_is_free!("self")), SIDECAR_PORT)
        .on("sidecar")
        .with_optional_old_self(),
    Rule::new(
        "spec",
        "has(self.volumeClaimTemplates) && size(self.volumeClaimTemplates) > 0 \
         ? has(oldSelf.volumeClaimTemplates) && self.volumeClaimTemplates == oldSelf.volumeClaimTemplates \
         : !has(oldSelf.volumeClaimTemplates) || size(oldSelf.volumeClaimTemplates) == 0",
        "volumeClaimTemplates cannot change: a node keeps the volumes that it was created with. To grow a volume, set \
         its size in claimSizes. For other claims, create a new StatefulNode",
    )
    .on("volumeClaimTemplates")
    .class(Reason::Forbidden),
];

/// Rules of a NodeDeployment's template that do not apply to the nodes created from it. An object that was stored
/// before these rules existed stays valid, and Windlass can still create its nodes.
pub(super) const NODE_TEMPLATE: &[Rule] = &[
    // An object that had such a key before this rule existed may keep it.
    Rule::new(
        "podTemplate.metadata.labels",
        concat!(
            "!",
            reserved_labels!(),
            ".exists(k, k in self && !(oldSelf.hasValue() && k in oldSelf.value()))"
        ),
        RESERVED_LABEL,
    )
    .class(Reason::Forbidden)
    .with_optional_old_self(),
    Rule::new(
        "podTemplate.metadata.annotations",
        concat!(
            "!",
            reserved_annotations!(),
            ".exists(k, k in self && !(oldSelf.hasValue() && k in oldSelf.value()))"
        ),
        RESERVED_ANNOTATION,
    )
    .class(Reason::Forbidden)
    .with_optional_old_self(),
    // An object that was stored before these rules existed stays valid, so the second rule compares with the old
    // object. The API server does not know the size of an optional `oldSelf`, and would reject a rule that reads all of
    // it.
    Rule::new("", concat!("oldSelf.hasValue() || ", sidecar_port_is_free!("self")), SIDECAR_PORT)
        .on("sidecar")
        .with_optional_old_self(),
    Rule::new(
        "",
        concat!(sidecar_port_is_free!("self"), " || !(", sidecar_port_is_free!("oldSelf"), ")"),
        SIDECAR_PORT,
    )
    .on("sidecar"),
];

/// Rules of a node's spec: a StatefulNode's own, and the one in a NodeDeployment's template.
pub(super) const NODE_SPEC: &[Rule] = &[
    Rule::new(
        "",
        "!has(self.mainContainer) || self.mainContainer == '' || !has(self.podTemplate) \
         || !has(self.podTemplate.spec) || !has(self.podTemplate.spec.containers) \
         || size(self.podTemplate.spec.containers) == 0 \
         || self.podTemplate.spec.containers.exists(c, has(c.name) && c.name == self.mainContainer)",
        "mainContainer is not the name of a container in podTemplate.spec.containers: set it to one of their names, \
         or remove it to use the first container",
    )
    .on("mainContainer"),
    Rule::new(
        "podTemplate.spec.containers",
        "size(self) > 0",
        "podTemplate.spec.containers is empty: add at least one container",
    )
    .class(Reason::Required),
    Rule::new("podTemplate.spec.containers[].name", IS_NOT_RESERVED, RESERVED),
    Rule::new("podTemplate.spec.initContainers[].name", IS_NOT_RESERVED, RESERVED),
    Rule::new(
        "volumeClaimTemplates",
        "self.all(a, !has(a.metadata) || !has(a.metadata.name) || self.exists_one(b, \
         has(b.metadata) && has(b.metadata.name) && a.metadata.name == b.metadata.name))",
        "volumeClaimTemplates has two claims with the same metadata.name: rename one",
    ),
    Rule::new(
        "sidecar",
        "(has(self.image) && size(self.image) > 0) || (has(self.url) && size(self.url) > 0)",
        "sidecar needs an image, which Windlass injects into the pod, or the url of an existing sidecar",
    )
    .on("image")
    .class(Reason::Required),
    Rule::new(
        "sidecar.url",
        "self == '' || self.matches('^https?://([^{}]|[{](name|namespace|port|podIP)[}])+$')",
        "sidecar.url is not a valid URL: it has to begin with http:// or https://, and the only placeholders are {name}, \
         {namespace}, {port} and {podIP}",
    ),
    Rule::new(
        "sidecar",
        "!has(self.tls) || (has(self.url) && self.url.startsWith('https://'))",
        "sidecar.tls needs a sidecar.url with https://: change the url, or remove tls",
    )
    .on("tls"),
    Rule::new(
        "sidecar",
        "!has(self.auth) || !has(self.tokenSecret) || self.tokenSecret == ''",
        "sidecar.auth replaces sidecar.tokenSecret: remove one of them",
    )
    .on("auth"),
    Rule::new(
        "sidecar.auth",
        "has(self.bearerSecret) != has(self.basicSecret)",
        "sidecar.auth needs either bearerSecret or basicSecret, but not both",
    ),
    Rule::new(
        "sidecar.tokenSecret",
        "self == '' || self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",
        "sidecar.tokenSecret is not a valid name of a Secret: set it to a Secret in the node's namespace that has \
         the key token, or remove it",
    ),
    Rule::new("ports", PORTS_HAVE_NAMES, "ports has several ports: give each a name").class(Reason::Required),
    Rule::new("ports", PORT_NAMES_DIFFER, "ports has two ports with the same name: rename one"),
    Rule::new("ports", PORTS_DIFFER, "ports has two entries with the same port and protocol: remove one"),
    Rule::new("ports[].name", IS_PORT_NAME, PORT_NAME),
    Rule::new("ports[].targetPort", IS_TARGET_PORT, TARGET_PORT),
];

// Names never change: they are checked on creation only.
const NAME_PATTERN: Rule = Rule::new(
    "",
    "oldSelf.hasValue() || self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "metadata.name has to match [a-z]([-a-z0-9]*[a-z0-9])?: a lowercase letter first, then lowercase letters, \
     digits and dashes, no dash at the end and no dots",
)
.on("metadata.name")
.with_optional_old_self();

const IS_NOT_RESERVED: &str = "self != 'windlass-sidecar'";
const RESERVED: &str = "podTemplate has a container named windlass-sidecar, which is the name of the container that \
     Windlass injects: rename it";

// The requirements of a Service's own validation.
const PORTS_HAVE_NAMES: &str = "size(self) < 2 || self.all(p, has(p.name) && p.name != '')";
const PORT_NAMES_DIFFER: &str =
    "self.all(p, !has(p.name) || p.name == '' || self.exists_one(q, has(q.name) && q.name == p.name))";
const PORTS_DIFFER: &str = "self.all(p, !has(p.port) || self.exists_one(q, has(q.port) && q.port == p.port \
     && (has(q.protocol) ? q.protocol : 'TCP') == (has(p.protocol) ? p.protocol : 'TCP')))";
/// The check that all hooks in a list have different names.
pub const HOOK_NAMES_DIFFER: &str =
    "self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))";
/// The check that a text is a valid hook name.
pub const IS_HOOK_NAME: &str = "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')";
/// The message for an invalid hook name.
pub const HOOK_NAME: &str =
    "a hook's name has to be lowercase letters, digits and dashes, with no dash at either end";
/// The check that a hook has exactly one action.
pub const HAS_ONE_ACTION: &str =
    "[has(self.http), has(self.job), has(self.query), has(self.approval), has(self.wait)].exists_one(a, a)";
/// The message for a hook that does not have exactly one action.
pub const ONE_ACTION: &str =
    "a hook needs exactly one of http, job, query, approval and wait: set one of them and remove the others";
/// The check that a request header has exactly one source of its value.
pub const HAS_HEADER_VALUE: &str = "has(self.value) != has(self.secretKeyRef)";
/// The message for a request header that does not have exactly one source of its value.
pub const HEADER_VALUE: &str = "a header needs either value or secretKeyRef, but not both";
const IS_PORT_NAME: &str = "self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')";
const PORT_NAME: &str =
    "the port's name has to be lowercase letters, digits and dashes, with no dash at either end";
// To estimate a rule's cost, Kubernetes before 1.36 assumes that a value that is a number or a string is as long as a
// request, whatever its maxLength says, and rejects a rule that reads all of it. So the rules for such fields match no
// pattern; they only compare single characters, and texts with those in a list.
pub(super) const IS_SHARE: &str = "type(self) == int ? (self > 0 && self <= 2147483647) : self in ['1%', '2%', '3%', '4%', '5%', '6%', '7%', \
     '8%', '9%', '10%', '11%', '12%', '13%', '14%', '15%', '16%', '17%', '18%', '19%', '20%', '21%', '22%', \
     '23%', '24%', '25%', '26%', '27%', '28%', '29%', '30%', '31%', '32%', '33%', '34%', '35%', '36%', '37%', \
     '38%', '39%', '40%', '41%', '42%', '43%', '44%', '45%', '46%', '47%', '48%', '49%', '50%', '51%', '52%', \
     '53%', '54%', '55%', '56%', '57%', '58%', '59%', '60%', '61%', '62%', '63%', '64%', '65%', '66%', '67%', \
     '68%', '69%', '70%', '71%', '72%', '73%', '74%', '75%', '76%', '77%', '78%', '79%', '80%', '81%', '82%', \
     '83%', '84%', '85%', '86%', '87%', '88%', '89%', '90%', '91%', '92%', '93%', '94%', '95%', '96%', '97%', \
     '98%', '99%', '100%']";
// A number and a percentage cannot be compared without the number of all nodes. The planner ignores a step that adds no
// node. Both rules in one exceed the cost limit, and so does a comparison by index.
pub(super) const COUNTS_ASCEND: &str = "self.filter(s, type(s) == int).map(s, int(s)).isSorted()";
// Compared as text, with leading zeros: 005%, 050%, 100%.
pub(super) const PERCENTAGES_ASCEND: &str =
    "self.filter(s, type(s) == string).map(s, size(s) < 3 ? '00' + s : size(s) < 4 ? '0' + s : s).isSorted()";
const IS_TARGET_PORT: &str = "type(self) in [int] ? (self >= 1 && self <= 65535) : (size(self) >= 1 && size(self) <= 15 && [0, 1, 2, 3, \
     4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14].all(i, i >= size(self) || self.charAt(i) in ['-', '0', '1', '2', \
     '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', \
     'o', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z']) && [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, \
     12, 13, 14].exists(i, i < size(self) && self.charAt(i) in ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', \
     'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z']) && self.charAt(0) \
     != '-' && self.charAt(size(self) - 1) != '-' && ![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, \
     14].exists(i, i + 1 < size(self) && self.charAt(i) == '-' && self.charAt(i + 1) == '-'))";
const TARGET_PORT: &str = "targetPort has to be a number from 1 to 65535, or the name of a container's port: at most 15 \
     lowercase letters, digits and single dashes";
