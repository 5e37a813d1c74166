//! Plans, tasks, the registry, recipes and the executor. Knows nothing of Kubernetes; could drive anything.

pub mod plan;

pub use plan::{Plan, PlanState, TaskRecord, TaskState};
