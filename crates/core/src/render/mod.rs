//! Renders the Kubernetes objects of a node and a fleet from their specs: pod template, StatefulSet, Services and their
//! metadata. Pure, and in raw JSON: a typed struct would drop the fields that it does not know.

pub mod claims;
pub mod identity;
pub mod metadata;
pub mod pod_template;
pub mod service;
pub mod stateful_set;

pub use claims::claims;
pub use identity::{FleetIdentity, NodeIdentity};
pub use metadata::{MetadataChange, applied_metadata, metadata_change};
pub use pod_template::{RenderError, RenderOptions, SIDECAR_CONTAINER, pod_template};
pub use service::{
    fleet_selector, fleet_service, headless_service, headless_service_metadata, service_ports,
};
pub use stateful_set::{
    REVISION_HISTORY_LIMIT, claim_retention, earlier_template, made_for, stateful_set, stateful_set_template,
};
