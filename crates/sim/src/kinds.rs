//! The served kinds: the built-in ones, and those of custom resource definitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::custom::{CustomSchema, ScalePaths};
use super::json_path::Step;
use super::types::{self, StructId};

/// The schema that validates and normalizes an object.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// A Go struct.
    Builtin(StructId),
    /// A CRD's schema.
    Custom(Arc<CustomSchema>),
    /// None: for the definitions themselves.
    Free,
}

/// A printer column of a definition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PrinterColumn {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub path: Vec<Step>,
}

/// The part of the store with a kind's objects. Kinds that are views of the same objects share one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Shelf(pub u16);

/// One kind in one version.
#[derive(Clone, Debug)]
#[allow(clippy::struct_field_names, reason = "`kind` is what Kubernetes calls it")]
pub(crate) struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub shape: Shape,
    pub has_status: bool,
    pub scale: Option<ScalePaths>,
    /// The supported field selectors.
    pub field_paths: Vec<String>,
    /// The printer columns of a custom kind, besides the name.
    pub columns: Vec<PrinterColumn>,
    pub shelf: Shelf,
}

impl Kind {
    /// Such as `apps/v1`, or `v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Such as `statefulsets.apps`, or `pods`: the name in errors.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Such as `StatefulSet.apps`, or `Pod`.
    pub(crate) fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.shape, Shape::Custom(_))
    }

    /// True if it is this built-in kind.
    pub(crate) fn is(&self, kind: &str) -> bool {
        !self.is_custom() && self.kind == kind
    }
}

/// All kinds, by group, version and plural.
#[derive(Clone, Debug)]
pub(crate) struct Kinds {
    by_path: BTreeMap<(String, String, String), Arc<Kind>>,
    shelves: u16,
}

/// Group, version, kind, plural, namespaced, status, struct, short names (comma), field selectors (comma).
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    bool,
    bool,
    &'static str,
    &'static str,
    &'static str,
);

const BUILTIN: &[Row] = &[
    ("", "v1", "Namespace", "namespaces", false, true, "core.Namespace", "ns", "status.phase"),
    ("", "v1", "Node", "nodes", false, true, "core.Node", "no", "spec.unschedulable"),
    (
        "",
        "v1",
        "Pod",
        "pods",
        true,
        true,
        "core.Pod",
        "po",
        "spec.nodeName,spec.restartPolicy,spec.schedulerName,spec.serviceAccountName,spec.hostNetwork,status.phase,status.podIP,status.nominatedNodeName",
    ),
    ("", "v1", "Service", "services", true, true, "core.Service", "svc", "spec.clusterIP,spec.type"),
    ("", "v1", "Endpoints", "endpoints", true, false, "core.Endpoints", "ep", ""),
    (
        "",
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        true,
        true,
        "core.PersistentVolumeClaim",
        "pvc",
        "",
    ),
    ("", "v1", "PersistentVolume", "persistentvolumes", false, true, "core.PersistentVolume", "pv", ""),
    ("", "v1", "ConfigMap", "configmaps", true, false, "core.ConfigMap", "cm", ""),
    ("", "v1", "Secret", "secrets", true, false, "core.Secret", "", "type"),
    ("", "v1", "ServiceAccount", "serviceaccounts", true, false, "core.ServiceAccount", "sa", ""),
    (
        "",
        "v1",
        "Event",
        "events",
        true,
        false,
        "core.Event",
        "ev",
        "involvedObject.kind,involvedObject.namespace,involvedObject.name,involvedObject.uid,involvedObject.apiVersion,involvedObject.resourceVersion,involvedObject.fieldPath,reason,reportingComponent,source,type",
    ),
    (
        "events.k8s.io",
        "v1",
        "Event",
        "events",
        true,
        false,
        "events.Event",
        "ev",
        "regarding.kind,regarding.namespace,regarding.name,regarding.uid,regarding.apiVersion,regarding.resourceVersion,regarding.fieldPath,reason,reportingController,type",
    ),
    ("apps", "v1", "StatefulSet", "statefulsets", true, true, "apps.StatefulSet", "sts", ""),
    (
        "apps",
        "v1",
        "ControllerRevision",
        "controllerrevisions",
        true,
        false,
        "apps.ControllerRevision",
        "",
        "",
    ),
    // Only stored: tests simulate its controller.
    ("apps", "v1", "Deployment", "deployments", true, true, "", "deploy", ""),
    ("batch", "v1", "Job", "jobs", true, true, "batch.Job", "", "status.successful"),
    (
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        true,
        true,
        "policy.PodDisruptionBudget",
        "pdb",
        "",
    ),
    // Only stored: no pod has a priority.
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false, false, "", "pc", ""),
    ("coordination.k8s.io", "v1", "Lease", "leases", true, false, "coordination.Lease", "", ""),
    (
        "storage.k8s.io",
        "v1",
        "StorageClass",
        "storageclasses",
        false,
        false,
        "storage.StorageClass",
        "sc",
        "",
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
        true,
        "",
        "crd,crds",
        "",
    ),
];

impl Kinds {
    /// The built-in kinds.
    pub(crate) fn builtin() -> Self {
        let mut kinds = Self { by_path: BTreeMap::new(), shelves: 0 };
        let mut events = None;
        for &(group, version, kind, plural, namespaced, has_status, name, short, paths) in BUILTIN {
            let shelf = match events {
                Some(shelf) if kind == "Event" => shelf,
                _ => kinds.new_shelf(),
            };
            if kind == "Event" {
                events = Some(shelf);
            }
            let scale = (kind == "StatefulSet").then(|| ScalePaths {
                spec: words("spec.replicas", '.'),
                status: words("status.replicas", '.'),
                selector: None,
            });
            kinds.add(Kind {
                group: group.into(),
                version: version.into(),
                kind: kind.into(),
                plural: plural.into(),
                singular: kind.to_lowercase(),
                short_names: words(short, ','),
                categories: if matches!(kind, "StatefulSet" | "Pod" | "Service") {
                    vec!["all".into()]
                } else {
                    Vec::new()
                },
                namespaced,
                shape: types::find(name).map_or(Shape::Free, Shape::Builtin),
                has_status,
                scale,
                field_paths: words(paths, ','),
                columns: Vec::new(),
                shelf,
            });
        }
        kinds
    }

    /// An unused shelf.
    pub(crate) fn new_shelf(&mut self) -> Shelf {
        self.shelves += 1;
        Shelf(self.shelves - 1)
    }

    pub(crate) fn add(&mut self, kind: Kind) {
        let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.by_path.insert(key, Arc::new(kind));
    }

    /// Removes a resource.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        self.by_path.retain(|(g, _, p), _| g != group || p != plural);
    }

    pub(crate) fn by_path(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The kind that an owner reference names.
    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.by_path.values().find(|k| k.group == group && k.kind == kind)
    }

    /// A built-in kind.
    pub(crate) fn builtin_kind(&self, kind: &str) -> Option<Arc<Kind>> {
        self.by_path.values().find(|k| k.is(kind)).cloned()
    }

    /// A kind, in any version, whose objects are on this shelf.
    pub(crate) fn of_shelf(&self, shelf: Shelf) -> Option<&Arc<Kind>> {
        self.by_path.values().find(|k| k.shelf == shelf)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.by_path.values()
    }
}

fn words(text: &str, separator: char) -> Vec<String> {
    text.split(separator).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
