//! Whoever carries hooks out: a port, since the tasks of hooks, and those who ask their peers, are the program's that runs this
//! controller. That their tasks' types are linked into the program is all that the engine needs.

use std::sync::Arc;

use async_trait::async_trait;
use futures::channel::mpsc::UnboundedReceiver;
use windlass_core::api::{AtHook, Hook, HookPoint};
use windlass_engine::{Env, Plan};

use crate::planner::{Facts, hooks};

/// Whose hooks they are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HooksOf {
    /// The namespace of the WorkerDeployment.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
}

impl HooksOf {
    /// Those of the object that these facts are of.
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

/// What the tasks of hooks are handed at one look.
#[derive(Clone, Debug)]
pub struct HookTurn {
    /// Whose they are.
    pub of: HooksOf,
    /// The list, as it is now.
    pub hooks: Arc<[Hook]>,
    /// The image of the first container, as it is wanted.
    pub image: String,
    /// The rollout hash that last completed; empty before the first.
    pub from_hash: String,
    /// The rollout hash that the plan goes to.
    pub target_hash: String,
    /// The build ID that the plan goes to: the set of workers.
    pub build: String,
    /// What `windlass.dev/approve` says.
    pub approved: Option<String>,
    /// The point that `skip` is about.
    pub about: Option<HookPoint>,
    /// Why a hook need not be carried out here and now.
    pub skip: Option<String>,
    /// Why nothing may be begun now.
    pub hold: Option<String>,
}

impl HookTurn {
    /// That of a plan whose target these facts want.
    #[must_use]
    pub fn new(facts: &Facts, plan: &Plan, approved: Option<&str>) -> Self {
        let image = &facts.spec.template["spec"]["containers"][0]["image"];
        Self {
            of: HooksOf::facts(facts),
            hooks: facts.spec.hooks.clone().into(),
            image: image.as_str().unwrap_or_default().to_owned(),
            from_hash: facts.status.last_completed_rollout_hash.clone().unwrap_or_default(),
            target_hash: plan.target_hash.clone(),
            build: facts.target.build.to_string(),
            approved: approved.map(str::to_owned),
            about: AtHook::of(plan).and_then(|at| at.at),
            skip: hooks::needless(plan),
            hold: facts.spec.paused.then(|| crate::planner::routing::PAUSED.to_owned()),
        }
    }
}

/// Why hooks cannot be carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HooksRefused {
    /// The spec is at fault, in a sentence with the hook's name.
    Lasting(String),
    /// It cannot be told now, in such a sentence.
    ForNow(String),
}

impl HooksRefused {
    /// The sentence.
    #[must_use]
    pub fn sentence(&self) -> &str {
        match self {
            Self::Lasting(sentence) | Self::ForNow(sentence) => sentence,
        }
    }
}

/// Whoever carries hooks out.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// Whether these could be carried out.
    async fn check(&self, of: &HooksOf, hooks: &[Hook]) -> Result<(), HooksRefused>;

    /// Adds to an environment what the tasks of hooks work with.
    fn equip(&self, env: Env, turn: HookTurn) -> Env;

    /// Ends what hooks of a plan have begun, and is called before the plan's end is written. An error is a sentence: the plan
    /// does not end yet.
    async fn end(&self, of: &HooksOf, plan: &Plan) -> Result<(), String>;

    /// An object is gone.
    fn forget(&self, namespace: &str, name: &str);

    /// Tells by namespace and name of each object for whose hook something new was heard. It is asked for once by each of
    /// those who look.
    fn answered(&self) -> UnboundedReceiver<(String, String)>;
}
