//! Names, labels and annotations that are part of the public interface.

/// Label on every object that belongs to a WorkerDeployment; the value is its name. These objects have no owner
/// reference: a foreground delete would remove pods under workflows that still run on them. It is not the label of
/// NodeDeployments, whose controller would adopt every object that carries it.
pub use windlass_core::api::names::LABEL_WORKERS;
/// Label on a version's Deployment and pods: its build ID.
pub const LABEL_BUILD_ID: &str = "windlass.dev/build-id";
/// Label on a Deployment and its pods, if the version has several pools: the name of the pool, empty for that of
/// `spec.template`.
pub const LABEL_POOL: &str = "windlass.dev/pool";
/// Annotation on a version's Deployment: the hash of the template that it was created from.
pub const ANNOTATION_TEMPLATE_HASH: &str = "windlass.dev/template-hash";
/// Annotation on a version's Deployment: the ControllerRevision with that template.
pub const ANNOTATION_REVISION: &str = "windlass.dev/revision";
/// Annotation on a version's Deployment and its other objects: the hash of what was last written, to detect that a new
/// rendering differs.
pub const ANNOTATION_RENDERED: &str = "windlass.dev/rendered";
/// Annotation on a version's Deployment: Windlass scaled it to zero because no workflow runs on it.
pub const ANNOTATION_SUNSET: &str = "windlass.dev/sunset";
/// Annotation on a WorkerDeployment that is being deleted: with `now`, the deletion waits for no workflow.
pub const ANNOTATION_DELETE: &str = "windlass.dev/delete";
/// Annotation on a WorkerDeployment: an [`EvacuationRequest`](super::EvacuationRequest).
pub const ANNOTATION_EVACUATE: &str = "windlass.dev/evacuate";
/// The finalizer that keeps a WorkerDeployment until its versions are deleted.
pub const FINALIZER: &str = "windlass.dev/workers";
