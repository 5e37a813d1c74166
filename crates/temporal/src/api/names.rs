//! Names, labels and annotations that are part of the public interface.

/// Label on all that belongs to a WorkerDeployment: its name. What belongs to it carries no owner reference: a foreground
/// delete would take the pods from workflows that still run on them. Not the label of a fleet of nodes, whose controller would
/// take what carries that for its own.
pub use windlass_core::api::names::LABEL_WORKERS;
/// Label on a version's Deployment and pods: its build ID.
pub const LABEL_BUILD_ID: &str = "windlass.dev/build-id";
/// Annotation on a version's Deployment: the hash of the template that it was made from.
pub const ANNOTATION_TEMPLATE_HASH: &str = "windlass.dev/template-hash";
/// Annotation on a version's Deployment: the ControllerRevision with that template.
pub const ANNOTATION_REVISION: &str = "windlass.dev/revision";
/// Annotation on a version's Deployment: the hash of what was written of it, so that a later rendering is told from it.
pub const ANNOTATION_RENDERED: &str = "windlass.dev/rendered";
/// Annotation on a version's Deployment: Windlass took its pods, because no workflow ran on it any more.
pub const ANNOTATION_SUNSET: &str = "windlass.dev/sunset";
/// Annotation on a WorkerDeployment that is deleted: `now` waits for no workflow.
pub const ANNOTATION_DELETE: &str = "windlass.dev/delete";
/// What keeps a WorkerDeployment until its versions are gone.
pub const FINALIZER: &str = "windlass.dev/workers";
