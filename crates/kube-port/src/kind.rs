//! The kinds of objects that Windlass reads or writes.

use kube::core::ApiResource;

use windlass_core::api::names::{GROUP, VERSION};

/// A kind of object that Windlass reads or writes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// `windlass.dev` NodeDeployment.
    NodeDeployment,
    /// `windlass.dev` StatefulNode.
    StatefulNode,
    /// `windlass.dev` StatefulSetRollout.
    StatefulSetRollout,
    /// `windlass.dev` WorkerDeployment.
    WorkerDeployment,
    /// `windlass.dev` TemporalConnection.
    TemporalConnection,
    /// `windlass.dev` ClusterTemporalConnection.
    ClusterTemporalConnection,
    /// `apps` Deployment.
    Deployment,
    /// `apps` StatefulSet.
    StatefulSet,
    /// `apps` ControllerRevision.
    ControllerRevision,
    /// Core Service.
    Service,
    /// Core Pod.
    Pod,
    /// `batch` Job. Never watched; read by name if a hook has one.
    Job,
    /// Core PersistentVolumeClaim.
    PersistentVolumeClaim,
    /// Core Node: a machine. Watched only if drains are carried out.
    Node,
    /// `policy` PodDisruptionBudget.
    PodDisruptionBudget,
    /// Core Secret. Single ones are followed by name, or read if a sidecar, a hook or a template names them.
    Secret,
    /// Core ConfigMap. Single ones are followed by name, or read if a template names them.
    ConfigMap,
    /// Core ServiceAccount. Never watched; read by name if a template names it.
    ServiceAccount,
    /// `scheduling.k8s.io` PriorityClass. Never watched; read by name if a template names it.
    PriorityClass,
    /// `events.k8s.io` Event.
    Event,
    /// A kind that is known only at run time. Watched if a WorkerDeployment has such objects.
    Dynamic(&'static DynamicKind),
}

/// A kind that is known only at run time, as the API server describes it.
#[derive(Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DynamicKind {
    /// The group, for example `autoscaling`.
    pub group: String,
    /// The version, for example `v2`.
    pub version: String,
    /// The name in manifests, for example `HorizontalPodAutoscaler`.
    pub kind: String,
    /// The name in paths, for example `horizontalpodautoscalers`.
    pub plural: String,
}

impl Kind {
    /// The kind's name in manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NodeDeployment => "NodeDeployment",
            Self::StatefulNode => "StatefulNode",
            Self::StatefulSetRollout => "StatefulSetRollout",
            Self::WorkerDeployment => "WorkerDeployment",
            Self::TemporalConnection => "TemporalConnection",
            Self::ClusterTemporalConnection => "ClusterTemporalConnection",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::ControllerRevision => "ControllerRevision",
            Self::Service => "Service",
            Self::Pod => "Pod",
            Self::Job => "Job",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Node => "Node",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::ServiceAccount => "ServiceAccount",
            Self::PriorityClass => "PriorityClass",
            Self::Event => "Event",
            Self::Dynamic(kind) => &kind.kind,
        }
    }

    /// The group and version in manifests, for example `apps/v1`.
    #[must_use]
    pub fn api_version(self) -> String {
        let (group, version) = self.group_version();
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
    }

    fn group_version(self) -> (&'static str, &'static str) {
        match self {
            Self::NodeDeployment
            | Self::StatefulNode
            | Self::StatefulSetRollout
            | Self::WorkerDeployment
            | Self::TemporalConnection
            | Self::ClusterTemporalConnection => (GROUP, VERSION),
            Self::Deployment | Self::StatefulSet | Self::ControllerRevision => ("apps", "v1"),
            Self::Job => ("batch", "v1"),
            Self::PodDisruptionBudget => ("policy", "v1"),
            Self::Service
            | Self::Pod
            | Self::PersistentVolumeClaim
            | Self::Node
            | Self::Secret
            | Self::ConfigMap
            | Self::ServiceAccount => ("", "v1"),
            Self::PriorityClass => ("scheduling.k8s.io", "v1"),
            Self::Event => ("events.k8s.io", "v1"),
            Self::Dynamic(kind) => (&kind.group, &kind.version),
        }
    }

    /// True if objects of this kind belong to a namespace.
    #[must_use]
    pub fn is_namespaced(self) -> bool {
        !matches!(self, Self::Node | Self::PriorityClass | Self::ClusterTemporalConnection)
    }

    /// The description of the kind for kube-rs.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let (group, version) = self.group_version();
        let kind = self.name().to_owned();
        let plural = match self {
            Self::Dynamic(kind) => kind.plural.clone(),
            _ => kind.to_lowercase() + if kind.ends_with('s') { "es" } else { "s" },
        };
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: self.api_version(),
            plural,
            kind,
        }
    }
}
