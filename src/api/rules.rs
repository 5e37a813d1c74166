//! The validation rules that the API server enforces, as data: where each is attached, what it checks, and the
//! sentence that a person reads. Bounds and types are in the schema; what a later version allows is in `not_yet`.
//!
//! A rule sits as deep in the schema as its inputs allow. The API server does not report a rule again while the
//! value that it sits on is unchanged, so that an object which became invalid after it was stored (by a newer
//! CRD) can still be scaled, finished and given a status. A rule higher up has to see to that itself.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;

/// One validation rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The schema that it is attached to: field names with dots, `[]` after a list for its items. Empty: the object.
    pub at: &'static str,
    /// The CEL expression; false refuses the object.
    pub check: &'static str,
    /// What is wrong and what to do; names the field.
    pub sentence: &'static str,
    /// The field below `at` that the error is reported on; empty: `at` itself.
    pub field: &'static str,
    /// How the error is classed.
    pub reason: Reason,
    /// Whether `oldSelf` is an optional that is empty on creation, instead of skipping the rule there.
    pub optional_old_self: bool,
}

/// The classes of errors that the API knows, less Duplicate, with which the API server drops the sentence.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    Invalid,
    Required,
    Forbidden,
}

impl Rule {
    /// A rule of class `Invalid`.
    pub(super) const fn new(at: &'static str, check: &'static str, sentence: &'static str) -> Self {
        Self { at, check, sentence, field: "", reason: Reason::Invalid, optional_old_self: false }
    }

    /// Reports on a field below the one that the rule is attached to.
    pub(super) const fn on(self, field: &'static str) -> Self {
        Self { field, ..self }
    }

    /// Sets the class.
    pub(super) const fn class(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    const fn with_optional_old_self(self) -> Self {
        Self { optional_old_self: true, ..self }
    }

    /// The form in a CRD.
    pub(super) fn to_validation(self) -> ValidationRule {
        let reason = match self.reason {
            // The default, left out.
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

/// Rules of a whole NodeDeployment.
pub(super) const NODE_DEPLOYMENT: &[Rule] = &[
    // Names never change: checked on creation only, whatever else of the object does.
    Rule::new(
        "",
        "oldSelf.hasValue() || size(self.metadata.name) <= 39",
        "metadata.name of a NodeDeployment is over 39 characters: choose a shorter one, since the names of nodes and pods add to it",
    )
    .on("metadata.name")
    .with_optional_old_self(),
    Rule::new(
        "",
        "oldSelf.hasValue() || self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name has to match [a-z]([-a-z0-9]*[a-z0-9])?: a letter first, then letters, digits and dashes, no dash at the end and no dots",
    )
    .on("metadata.name")
    .with_optional_old_self(),
    Rule::new(
        "spec",
        "!has(self.unsafeCustomBuildID) || self.unsafeCustomBuildID == '' || self.updateStrategy.type != 'InPlace' \
         || (oldSelf.hasValue() && has(oldSelf.value().unsafeCustomBuildID) \
         && oldSelf.value().unsafeCustomBuildID == self.unsafeCustomBuildID \
         && oldSelf.value().updateStrategy.type == self.updateStrategy.type)",
        "unsafeCustomBuildID cannot be used with updateStrategy.type InPlace, which makes no new set of nodes to name: remove it",
    )
    .on("unsafeCustomBuildID")
    .class(Reason::Forbidden)
    .with_optional_old_self(),
    // A strategy that makes new nodes gives them new volumes; under a build ID that stays, it too updates in place.
    Rule::new(
        "spec",
        "(self.updateStrategy.type in ['BlueGreen', 'HardFork'] \
         && !(has(self.unsafeCustomBuildID) && self.unsafeCustomBuildID != '' \
         && has(oldSelf.unsafeCustomBuildID) && self.unsafeCustomBuildID == oldSelf.unsafeCustomBuildID)) \
         || (has(self.template.spec.volumeClaimTemplates) ? \
         has(oldSelf.template.spec.volumeClaimTemplates) \
         && self.template.spec.volumeClaimTemplates == oldSelf.template.spec.volumeClaimTemplates \
         : !has(oldSelf.template.spec.volumeClaimTemplates))",
        "volumeClaimTemplates cannot change where nodes are updated in place: they keep the volumes they were made with. \
         To grow a volume, edit its PersistentVolumeClaim; for other claims, make a new NodeDeployment",
    )
    .on("template.spec.volumeClaimTemplates")
    .class(Reason::Forbidden),
    Rule::new(
        "spec.unsafeCustomBuildID",
        "self == '' || (size(self) <= 63 && self.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$'))",
        "unsafeCustomBuildID has to be at most 63 of letters, digits, '.', '_' and '-', with a letter or a digit at both ends",
    ),
    Rule::new(
        "spec.updateStrategy",
        "self.type != 'HardFork' || (has(self.hardFork) && has(self.hardFork.haltHeight))",
        "updateStrategy.type HardFork needs hardFork.haltHeight: set the height at which the old nodes halt",
    )
    .on("hardFork.haltHeight")
    .class(Reason::Required),
    Rule::new(
        "spec.updateStrategy.hardFork.haltHeight",
        "self > 0",
        "hardFork.haltHeight has to be above 0: the height at which the old nodes halt",
    ),
    Rule::new(
        "spec.updateStrategy.inPlace.maxUnavailable",
        "type(self) == int ? (self > 0 && self <= 2147483647) : self.matches('^([1-9][0-9]?|100)%$')",
        "inPlace.maxUnavailable has to be a number above 0, or a percentage from 1% to 100%: with 0 no node could ever be updated",
    ),
    Rule::new("spec.service.ports", "size(self) > 0", "service.ports is empty: name at least one port, or leave service out")
        .class(Reason::Required),
    Rule::new("spec.service.ports", PORTS_ARE_NAMED, "service.ports has several ports: give each a name").class(Reason::Required),
    Rule::new("spec.service.ports", PORT_NAMES_DIFFER, "service.ports has two ports of one name: rename one"),
    Rule::new("spec.service.ports[].targetPort", IS_PORT, "targetPort has to be a number from 1 to 65535, or the name of a container's port"),
    Rule::new("spec.template.spec", "!has(self.grantedHash)", "grantedHash is written by Windlass into the nodes of a NodeDeployment: remove it from template.spec")
        .on("grantedHash")
        .class(Reason::Forbidden),
    Rule::new("spec.template.spec", "!has(self.grantID)", "grantID is written by Windlass into the nodes of a NodeDeployment: remove it from template.spec")
        .on("grantID")
        .class(Reason::Forbidden),
    Rule::new(
        "spec.template.spec",
        "!has(self.suspend)",
        "suspend cannot be set for a whole NodeDeployment: remove it from template.spec, and set replicas to 0 or suspend single StatefulNodes",
    )
    .on("suspend")
    .class(Reason::Forbidden),
];

/// Rules of a whole StatefulNode.
pub(super) const STATEFUL_NODE: &[Rule] = &[
    Rule::new(
        "",
        "oldSelf.hasValue() || size(self.metadata.name) <= 52",
        "metadata.name of a StatefulNode is over 52 characters: choose a shorter one, since a StatefulSet of a longer name gets no pod",
    )
    .on("metadata.name")
    .with_optional_old_self(),
    Rule::new(
        "",
        "oldSelf.hasValue() || self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name has to match [a-z]([-a-z0-9]*[a-z0-9])?: a letter first, then letters, digits and dashes, no dash at the end and no dots",
    )
    .on("metadata.name")
    .with_optional_old_self(),
    Rule::new(
        "spec",
        "has(self.volumeClaimTemplates) ? \
         has(oldSelf.volumeClaimTemplates) && self.volumeClaimTemplates == oldSelf.volumeClaimTemplates \
         : !has(oldSelf.volumeClaimTemplates)",
        "volumeClaimTemplates cannot change: a node keeps the volumes it was made with. \
         To grow a volume, edit its PersistentVolumeClaim; for other claims, make a new StatefulNode",
    )
    .on("volumeClaimTemplates")
    .class(Reason::Forbidden),
];

/// Rules of a node's spec: a StatefulNode's own, and the one in a NodeDeployment's template.
pub(super) const NODE_SPEC: &[Rule] = &[
    Rule::new(
        "",
        "!has(self.mainContainer) || self.mainContainer == '' || size(self.podTemplate.spec.containers) == 0 \
         || self.podTemplate.spec.containers.exists(c, c.name == self.mainContainer)",
        "mainContainer is not one of podTemplate.spec.containers: give the name of one of them, or leave it out for the first",
    )
    .on("mainContainer"),
    Rule::new(
        "podTemplate.spec.containers",
        "size(self) > 0",
        "podTemplate.spec.containers is empty: give at least one container",
    )
    .class(Reason::Required),
    Rule::new("podTemplate.spec.containers[].name", IS_NOT_RESERVED, RESERVED),
    Rule::new("podTemplate.spec.initContainers[].name", IS_NOT_RESERVED, RESERVED),
    Rule::new(
        "volumeClaimTemplates",
        "self.all(a, self.exists_one(b, a.metadata.name == b.metadata.name))",
        "volumeClaimTemplates has two claims of one name: rename one metadata.name",
    ),
    Rule::new("ports", PORTS_ARE_NAMED, "ports has several ports: give each a name").class(Reason::Required),
    Rule::new("ports", PORT_NAMES_DIFFER, "ports has two ports of one name: rename one"),
    Rule::new("ports[].targetPort", IS_PORT, "targetPort has to be a number from 1 to 65535, or the name of a container's port"),
];

const IS_NOT_RESERVED: &str = "self != 'windlass-sidecar'";
const RESERVED: &str = "podTemplate has a container named windlass-sidecar, which is the one that Windlass adds for sidecar: rename it";
const PORTS_ARE_NAMED: &str = "size(self) < 2 || self.all(p, has(p.name) && p.name != '')";
const PORT_NAMES_DIFFER: &str =
    "self.all(p, !has(p.name) || p.name == '' || self.exists_one(q, has(q.name) && q.name == p.name))";
const IS_PORT: &str =
    "type(self) == int ? (self >= 1 && self <= 65535) : self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')";
