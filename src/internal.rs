//! For the command line and the tests of this workspace only: nothing here is stable, and no other program may use it.

pub use crate::apply::{Admission, fleet_objects};
pub use crate::cache::remembered::Remembered;
pub use crate::controller::KINDS_OF_A_SET;
pub use crate::hooks::{HookRules, Values};
pub use crate::listen::listen;
pub use crate::metrics::CONTENT_TYPE;
pub use crate::observe::node_scope::{Belongs, belongs};
pub use crate::probe::hooks::{HookOwner, HookProber, HttpHookClient};
pub use crate::sidecar::url::parse_http;
pub use crate::tasks::hooks::{
    About, DeletedJobs, HookList, HookScope, JobOwner, Unfit, check_all, delete_jobs,
};
#[cfg(feature = "otlp")]
pub use crate::traces::Otlp;

/// The metrics of an operator's requests, in which those of others in its process are counted.
#[must_use]
pub fn port_metrics(health: &crate::operator::Health) -> windlass_kube_port::metrics::SharedMetrics {
    health.port_metrics()
}
