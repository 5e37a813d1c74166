//! Names, labels and annotations that are part of the public interface.

use super::ids::{NodeName, SetName};

/// The API group of every custom resource.
pub const GROUP: &str = "windlass.dev";
/// The API version of every custom resource.
pub const VERSION: &str = "v1alpha1";

/// Label: the name of the fleet that an object belongs to.
pub const LABEL_DEPLOYMENT: &str = "windlass.dev/deployment";
/// Label: the name of the node that an object belongs to.
pub const LABEL_NODE: &str = "windlass.dev/node";
/// Label: the set of nodes (see `status.activeSet`) that an object belongs to.
pub const LABEL_SET: &str = "windlass.dev/set";
/// Label on pods: the node's ordinal in its set.
pub const LABEL_ORDINAL: &str = "windlass.dev/ordinal";
/// Label on pods: the revision that the pod was created for. All nodes of a revision have the same value.
pub const LABEL_REVISION: &str = "windlass.dev/revision";
/// Label: the manager of an object; its value is [`MANAGER`]. Windlass does not set it on pods, where users may.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`LABEL_MANAGED_BY`], and the field manager of all writes of the operator.
pub const MANAGER: &str = "windlass";
/// The field manager of all writes of the command line.
pub const CLI_MANAGER: &str = "windlass-cli";
/// The prefix of Windlass's own labels and annotations.
pub const OWN_PREFIX: &str = "windlass.dev/";

/// Annotation on a fleet's ControllerRevision: the `unsafeCustomBuildID` of the fleet at that time, if it was set.
pub const ANNOTATION_BUILD_ID: &str = "windlass.dev/build-id";
/// Annotation: the UID of the fleet that a node belongs to, under `deletionPolicy: Retain`.
pub const ANNOTATION_OWNER_UID: &str = "windlass.dev/owner-uid";
/// Annotation: the time of a requested restart of the pods of this object (RFC 3339).
pub const ANNOTATION_RESTARTED_AT: &str = "windlass.dev/restartedAt";
/// Annotation that `kubectl rollout restart` writes into a pod template: the time of the restart.
pub const ANNOTATION_KUBECTL_RESTART: &str = "kubectl.kubernetes.io/restartedAt";
/// Annotation: abort the plan with this ID.
pub const ANNOTATION_ABORT: &str = "windlass.dev/abort";
/// Annotation on a StatefulSetRollout, in addition to [`ANNOTATION_ABORT`]: also roll back the aborted plan.
pub const ANNOTATION_ABORT_ROLLBACK: &str = "windlass.dev/abort-rollback";
/// Annotation: retry the plan with this ID.
pub const ANNOTATION_RETRY: &str = "windlass.dev/retry";
/// Annotation: skip the task with this ID.
pub const ANNOTATION_SKIP: &str = "windlass.dev/skip";
/// Annotation: approve the task with this ID, which waits for a user.
pub const ANNOTATION_APPROVE: &str = "windlass.dev/approve";
/// Annotation: open the window of the plan with this ID now.
pub const ANNOTATION_OPEN_WINDOW: &str = "windlass.dev/open-window";
/// Annotation: the release that the object is at. Objects that name it in `after` wait for the same value.
pub const ANNOTATION_RELEASE: &str = "windlass.dev/release";
/// Label on a hook's Job: the name of the hook.
pub const LABEL_HOOK: &str = "windlass.dev/hook";
/// Label on all objects of a WorkerDeployment: its name.
pub const LABEL_WORKERS: &str = "windlass.dev/worker-deployment";
/// Annotation on a volume claim that hooks at `BeforeCreate` use, until they are done: no pod has ever used it.
pub const ANNOTATION_FIRST_START: &str = "windlass.dev/first-start";
/// Annotation on a hook's Job: the ID of the task that created it.
pub const ANNOTATION_TASK: &str = "windlass.dev/task";
/// Annotation on a hook's Job: the attempt of the task that created it.
pub const ANNOTATION_ATTEMPT: &str = "windlass.dev/attempt";
/// Annotation: the last request that a user sent with the command line, and its reason; an [`super::LastRequest`] as
/// JSON.
pub const ANNOTATION_LAST_REQUEST: &str = "windlass.dev/last-request";
/// Annotation on a StatefulSet, and on its pod template: the pod template hash that the template was rendered from.
pub const ANNOTATION_TEMPLATE_HASH: &str = "windlass.dev/pod-template-hash";
/// Annotation on a StatefulSet's pod template: the main container's image, as specified.
pub const ANNOTATION_IMAGE: &str = "windlass.dev/image";
/// Annotation on a StatefulSet's pod template: the main container's name.
pub const ANNOTATION_MAIN_CONTAINER: &str = "windlass.dev/main-container";
/// Annotation on a fleet's Service: the set that Windlass last switched it to. An edit of the selector by a user does
/// not change this annotation, so Windlass can tell them apart.
pub const ANNOTATION_SWITCHED_TO: &str = "windlass.dev/switched-to";
/// Annotation on child objects: the keys of labels and annotations from `template.metadata`. If a key is removed there,
/// Windlass removes it from the child. JSON: `{"labels": [key…], "annotations": [key…]}`.
pub const ANNOTATION_APPLIED_METADATA: &str = "windlass.dev/applied-metadata";
/// Annotation on a fleet's pod template: the ConfigMaps and Secrets whose data is a part of it, such as
/// `configmap/db-conf,secret/db-tls`.
pub const ANNOTATION_RESTART_ON: &str = "windlass.dev/restart-on";
/// Annotation on pods: the digest of that data.
pub const ANNOTATION_CONFIG_DIGEST: &str = "windlass.dev/config-digest";
/// Annotation on a StatefulSet that a StatefulSetRollout holds: its previous `updateStrategy`, as JSON.
pub const ANNOTATION_UPDATE_STRATEGY: &str = "windlass.dev/update-strategy";
/// The finalizer of a StatefulSetRollout: Windlass restores the update strategies of its StatefulSets before the object
/// is deleted.
pub const FINALIZER_RELEASE: &str = "windlass.dev/release";
/// Label that Kubernetes sets on each pod of a StatefulSet: the pod's name.
pub const LABEL_POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The pod labels that Windlass or Kubernetes sets. A user's pod template must not contain them.
pub const RESERVED_LABELS: [&str; 9] = [
    LABEL_DEPLOYMENT,
    LABEL_NODE,
    LABEL_SET,
    LABEL_ORDINAL,
    LABEL_REVISION,
    LABEL_WORKERS,
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
];
/// The pod annotations that Windlass sets. A user's pod template must not contain them.
pub const RESERVED_ANNOTATIONS: [&str; 3] =
    [ANNOTATION_IMAGE, ANNOTATION_MAIN_CONTAINER, ANNOTATION_TEMPLATE_HASH];
/// The annotation in which `kubectl apply` stores a copy of the whole object. Windlass neither reads nor writes it.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The name of the container that Windlass adds for a node's sidecar. No container of a pod template may have this
/// name.
pub const SIDECAR_CONTAINER: &str = "windlass-sidecar";

/// The maximum length of a StatefulNode's name: a StatefulSet with a longer name cannot create its pod.
pub const MAX_NODE_NAME: usize = 52;

/// The name of the node with this ordinal in a set of a fleet.
#[must_use]
pub fn node_name(deployment: &str, set: &SetName, ordinal: i32) -> String {
    if *set == SetName::FIRST {
        format!("{deployment}-{ordinal}")
    } else {
        format!("{deployment}-{set}-{ordinal}")
    }
}

/// An object as an argument of `windlass` commands in messages, for example `nd/db -n shop`. `kind` is its short name.
#[must_use]
pub fn argument_of(kind: &str, name: &str, namespace: &str) -> String {
    format!("{kind}/{name} -n {namespace}")
}

/// The set and the ordinal in a node's name, if it has the form that this fleet uses. A name never changes, so it is
/// more reliable than a label.
#[must_use]
pub fn place_of(deployment: &str, node: &str) -> Option<(SetName, i32)> {
    let rest = node.strip_prefix(deployment)?.strip_prefix('-')?;
    let (set, digits) = match rest.rsplit_once('-') {
        Some((set, digits)) => (SetName::recorded(set).filter(|set| *set != SetName::FIRST)?, digits),
        None => (SetName::FIRST, rest),
    };
    let canonical = digits == "0" || !digits.starts_with('0');
    let is_ordinal = canonical && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if is_ordinal { Some((set, digits.parse().ok()?)) } else { None }
}

/// The name of a node's only pod.
#[must_use]
pub fn pod_name(node: &str) -> String {
    format!("{node}-0")
}

/// The name of the claim that a StatefulSet creates for a node from a claim template.
#[must_use]
pub fn claim_name(template: &str, node: &str) -> String {
    format!("{template}-{node}-0")
}

impl NodeName {
    /// The name of the node with this ordinal in a set of a fleet.
    #[must_use]
    pub fn of(deployment: &str, set: &SetName, ordinal: i32) -> Self {
        Self::composed(node_name(deployment, set, ordinal))
    }

    /// The name of the node's only pod.
    #[must_use]
    pub fn pod(&self) -> String {
        pod_name(self.as_str())
    }
}
