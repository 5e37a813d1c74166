//! The port to the hook runner. The tasks of hooks and the clients of their peers belong to the program that runs
//! this controller; the engine only needs the task types linked in.

use std::sync::Arc;

use async_trait::async_trait;
use futures::channel::mpsc::UnboundedReceiver;
use windlass_core::api::{AtHook, Hook, HookPoint};
use windlass_engine::{Env, Plan};

use crate::planner::{Facts, hooks};

/// The object that owns the hooks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookedObject {
    /// The namespace of the WorkerDeployment.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
}

impl HookedObject {
    /// The owner that these facts describe.
    #[must_use]
    pub fn facts(facts: &Facts) -> Self {
        Self {
            namespace: facts.namespace.clone(),
            name: facts.name.clone(),
            uid: facts.uid.clone(),
            generation: facts.generation,
        }
    }
}

/// The input of the tasks of hooks in one reconcile.
#[derive(Clone, Debug)]
pub struct HookContext {
    /// The owner.
    pub of: HookedObject,
    /// The hooks of the spec.
    pub hooks: Arc<[Hook]>,
    /// The image of the template's first container.
    pub image: String,
    /// The last completed rollout hash; empty before the first.
    pub from_hash: String,
    /// The rollout hash of the plan.
    pub target_hash: String,
    /// The build ID of the plan's version.
    pub build: String,
    /// The value of `windlass.dev/approve`.
    pub approved: Option<String>,
    /// The point that `skip` applies to.
    pub about: Option<HookPoint>,
    /// Why a hook is skipped, as a sentence.
    pub skip: Option<String>,
    /// Why no hook may start, as a sentence.
    pub hold: Option<String>,
}

impl HookContext {
    /// The context for a plan whose target these facts have.
    #[must_use]
    pub fn new(facts: &Facts, plan: &Plan, approved: Option<&str>) -> Self {
        let image = &facts.spec.template["spec"]["containers"][0]["image"];
        Self {
            of: HookedObject::facts(facts),
            hooks: facts.spec.hooks.clone().into(),
            image: image.as_str().unwrap_or_default().to_owned(),
            from_hash: facts.status.last_completed_rollout_hash.clone().unwrap_or_default(),
            target_hash: plan.target_hash.clone(),
            build: facts.target.build.to_string(),
            approved: approved.map(str::to_owned),
            about: AtHook::of(plan).and_then(|at| at.point),
            skip: hooks::skip_reason(plan),
            hold: facts.spec.paused.then(|| crate::planner::routing::PAUSED.to_owned()),
        }
    }
}

/// Why hooks cannot run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HooksRejected {
    /// The spec is invalid; a sentence with the hook's name.
    Permanent(String),
    /// It cannot be determined now; a sentence.
    Transient(String),
}

impl HooksRejected {
    /// The message.
    #[must_use]
    pub fn sentence(&self) -> &str {
        match self {
            Self::Permanent(sentence) | Self::Transient(sentence) => sentence,
        }
    }
}

/// Runs hooks.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// Checks that these hooks could run.
    async fn check(&self, of: &HookedObject, hooks: &[Hook]) -> Result<(), HooksRejected>;

    /// Adds to `env` what the tasks of hooks need.
    fn equip(&self, env: Env, context: HookContext) -> Env;

    /// Stops everything that the hooks of a plan have started. Called before the end of the plan is written. An error
    /// delays that end; it is a sentence.
    async fn end(&self, of: &HookedObject, plan: &Plan) -> Result<(), String>;

    /// Forgets a deleted object.
    fn forget(&self, namespace: &str, name: &str);

    /// Streams the namespace and name of each object for which a hook's response arrived. Each controller calls it
    /// once.
    fn answered(&self) -> UnboundedReceiver<(String, String)>;
}
