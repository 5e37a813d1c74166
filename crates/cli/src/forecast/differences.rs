//! The fields that a change changes: those that make a new target, and those that apply at once.

use serde::Serialize;
use serde_json::Value;

use windlass_core::api::{NodeDeploymentSpec, Sidecar, StatefulNodeSpec};
use windlass_core::revision::{Difference, RevisionData, drift};

/// A changed field.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Field {
    /// Its path: `podTemplate.spec.containers[db].image`.
    pub path: String,
    /// Its old value as JSON; absent if it was not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its new value as JSON; absent if it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, from, to } = self;
        match (from, to) {
            (Some(from), Some(to)) => write!(f, "{path} {from} → {to}"),
            (None, Some(to)) => write!(f, "{path} added: {to}"),
            (Some(from), None) => write!(f, "{path} removed, was {from}"),
            (None, None) => write!(f, "{path}"),
        }
    }
}

/// Converts differences to fields, with list elements by name.
#[must_use]
pub fn fields(differences: Vec<Difference>) -> Vec<Field> {
    let field = |d: Difference| Field { path: d.path.replace("[name=", "["), from: d.from, to: d.to };
    differences.into_iter().map(field).collect()
}

/// The fields that make a new target, and those that apply at once. `created`: the claims that the nodes were created with; of
/// the previous spec if there are no nodes. A size above those belongs to no revision.
pub(super) fn of_change(
    before: Option<&NodeDeploymentSpec>,
    after: &NodeDeploymentSpec,
    created: Option<&[Value]>,
) -> (Vec<Field>, Vec<Field>) {
    let Some(before) = before else { return (Vec::new(), Vec::new()) };
    let created = created.unwrap_or(&before.template.spec.volume_claim_templates);
    let of = |spec: &NodeDeploymentSpec| RevisionData::of(&spec.template.spec);
    let of_revision = of(before).with_sizes_of(created).diff(&of(after).with_sizes_of(created));
    let is_of_revision = |found: &Difference| of_revision.iter().any(|of| of.path == found.path);
    let (target, sizes) = of(before).diff(&of(after)).into_iter().partition(is_of_revision);
    let mut target = fields(target);
    if before.unsafe_custom_build_id != after.unsafe_custom_build_id {
        let id = |id: &str| Some(format!("{id:?}")).filter(|_| !id.is_empty());
        target.push(Field {
            path: "unsafeCustomBuildID".to_owned(),
            from: id(&before.unsafe_custom_build_id),
            to: id(&after.unsafe_custom_build_id),
        });
    }
    let mut at_once = fields(drift::between(&fields_outside_target(before), &fields_outside_target(after)));
    at_once.extend(fields(sizes));
    (target, at_once)
}

/// A spec without the fields that make a target.
fn fields_outside_target(spec: &NodeDeploymentSpec) -> Value {
    let mut spec = spec.clone();
    spec.unsafe_custom_build_id.clear();
    // An empty revision removes the rest of the template.
    let nothing = RevisionData::of(&StatefulNodeSpec::default());
    let mut template = nothing.apply_to(&spec.template.spec);
    template.sidecar = spec.template.spec.sidecar.take().map(|mut sidecar| {
        if sidecar.is_injected() {
            let Sidecar { url, token_secret, tls, auth, .. } = sidecar;
            sidecar = Sidecar { url, token_secret, tls, auth, ..Sidecar::default() };
        }
        sidecar
    });
    spec.template.spec = template;
    serde_json::to_value(spec).unwrap_or_default()
}
