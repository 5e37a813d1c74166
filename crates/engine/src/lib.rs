//! Plans, tasks, the task registry, recipes and the executor. Independent of Kubernetes.

pub mod control;
pub mod env;
pub mod error;
pub mod executor;
pub mod id;
pub mod panics;
pub mod plan;
pub mod recipe;
pub mod registry;
mod required;
pub mod seed;
pub mod sentence;
pub mod task;

#[cfg(test)]
mod laws;

pub use control::{
    SkipRefused, abort, held_by, pass_over, restart_stalled, retry_seed, skip, supersede, try_again,
};
pub use env::Env;
pub use error::{ResolveError, TaskError};
pub use executor::{Advance, Deadline, advance, backoff, check_shape, next_deadline, stalled};
pub use id::PlanId;
pub use plan::{Plan, PlanState, TaskRecord, TaskState};
pub use recipe::{Builtin, Recipe, RecipeError};
pub use registry::Registry;
pub use seed::{PlanSeed, Step};
pub use task::{Due, Outcome, Policy, Task, TaskContext};
