//! A plan's shape as data: which tasks, in which order, with which params.

use chrono::SubsecRound;
use serde::{Deserialize, Serialize};

use super::error::ResolveError;
use super::id::{plan_id, task_id};
use super::plan::{Plan, PlanState, TaskRecord};
use super::seed::{PlanSeed, Step};

/// The maximum number of tasks in a recipe: a plan is stored in an object's status, whose size is limited.
pub const MAX_TASKS: usize = 32;

/// A named list of steps.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Its name, in camel case: the value of a plan's `recipe`.
    pub name: String,
    /// Its steps, first to last.
    pub tasks: Vec<Step>,
}

/// The recipes that come with Windlass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Builtin {
    /// A fleet's rollout that creates a set of nodes.
    BlueGreen,
    /// The same with `promotion: Immediately`.
    BlueGreenImmediate,
    /// Volume claims grow in place: of a fleet, and of each of its nodes.
    GrowClaims,
    /// A fleet's rollout that halts the old nodes at a height.
    HardFork,
    /// A fleet's rollout that updates its nodes.
    InPlace,
    /// Marks a node ready that has nothing else to do.
    MarkReady,
    /// Moves a node's pod to another machine.
    MoveNode,
    /// Moves a node to another pod template.
    NodeUpdate,
    /// Moves a pod of an existing StatefulSet to another revision.
    PodUpdate,
    /// Removes a node.
    RemoveNode,
    /// Replaces a node's pod by one of the same template.
    RestartNode,
}

impl Builtin {
    pub(super) const ALL: [Self; 11] = [
        Self::BlueGreen,
        Self::BlueGreenImmediate,
        Self::GrowClaims,
        Self::HardFork,
        Self::InPlace,
        Self::MarkReady,
        Self::MoveNode,
        Self::NodeUpdate,
        Self::PodUpdate,
        Self::RemoveNode,
        Self::RestartNode,
    ];

    fn yaml(self) -> &'static str {
        match self {
            Self::BlueGreen => include_str!("../plans/blue-green.yaml"),
            Self::BlueGreenImmediate => include_str!("../plans/blue-green-immediate.yaml"),
            Self::GrowClaims => include_str!("../plans/grow-claims.yaml"),
            Self::HardFork => include_str!("../plans/hard-fork.yaml"),
            Self::InPlace => include_str!("../plans/in-place.yaml"),
            Self::MarkReady => include_str!("../plans/mark-ready.yaml"),
            Self::MoveNode => include_str!("../plans/move-node.yaml"),
            Self::NodeUpdate => include_str!("../plans/node-update.yaml"),
            Self::PodUpdate => include_str!("../plans/pod-update.yaml"),
            Self::RemoveNode => include_str!("../plans/remove-node.yaml"),
            Self::RestartNode => include_str!("../plans/restart-node.yaml"),
        }
    }
}

/// Why a recipe is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecipeError {
    /// Its text is not a recipe.
    #[error("the recipe cannot be read: {0}")]
    Unreadable(String),
    /// It has no name.
    #[error("a recipe has no name: give it one")]
    MissingName,
    /// It has no tasks: a plan of this recipe would complete without doing anything.
    #[error("recipe {0} has no tasks: give it at least one")]
    Empty(String),
    /// It has too many tasks for an object's status.
    #[error("recipe {name} has {count} tasks: at most {MAX_TASKS} are allowed")]
    TooLong {
        /// The recipe.
        name: String,
        /// How many tasks it has.
        count: usize,
    },
    /// One of its steps cannot be run.
    #[error("recipe {name}: {source}")]
    Step {
        /// The recipe.
        name: String,
        /// What is wrong with the step.
        source: ResolveError,
    },
    /// It overrides a built-in recipe and lacks one of its steps.
    #[error(
        "recipe {name} has no task {task}, which every plan of that name needs: add it{place}; custom tasks may be \
         anywhere"
    )]
    Lacks {
        /// The recipe.
        name: String,
        /// The type of the required task.
        task: String,
        /// Where it belongs: ` after …`, ` before …` or ` between … and …`; empty if it is the only one.
        place: String,
    },
    /// It overrides a built-in recipe and has one of its steps out of order.
    #[error(
        "recipe {name} has task {task} out of order, at index {index}: its required tasks are {}, in this order, \
         each once; custom tasks may be anywhere", required.join(", ")
    )]
    OutOfTurn {
        /// The recipe.
        name: String,
        /// The type of the task.
        task: String,
        /// The task's index.
        index: usize,
        /// The types of all required tasks, in order.
        required: Vec<String>,
    },
    /// It overrides a built-in recipe and has one of its steps with other params.
    #[error("recipe {name}: task {task} needs the params {params}, as in the built-in recipe")]
    OtherParams {
        /// The recipe.
        name: String,
        /// The type of the task.
        task: String,
        /// The required params, as JSON.
        params: String,
    },
    /// A step was to be inserted next to one that the recipe does not have.
    #[error("recipe {name} has no task {task}; it has: {}", known.join(", "))]
    NoSuchStep {
        /// The recipe.
        name: String,
        /// The type of the task that was named.
        task: String,
        /// The types of its tasks, in order.
        known: Vec<String>,
    },
    /// Two task types have the same name, so a plan does not say which one it means.
    #[error("two task types have the name {0:?}: rename one of them")]
    SameName(String),
    /// There is no recipe of this name.
    #[error("there is no recipe {name}; there are: {}", known.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
}

impl Recipe {
    /// Reads a recipe from YAML.
    pub fn parse(yaml: &str) -> Result<Self, RecipeError> {
        let recipe: Self =
            serde_saphyr::from_str(yaml).map_err(|e| RecipeError::Unreadable(e.to_string()))?;
        recipe.check_shape()?;
        Ok(recipe)
    }

    /// A recipe that comes with Windlass.
    #[must_use]
    #[allow(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "they are part of the program; a test reads them"
    )]
    pub fn builtin(recipe: Builtin) -> Self {
        Self::parse(recipe.yaml()).expect("a built-in recipe is valid")
    }

    /// The recipe with a step before the first one of this type.
    pub fn insert_before(self, type_: &str, step: Step) -> Result<Self, RecipeError> {
        self.insert(0, type_, step)
    }

    /// The recipe with a step after the first one of this type.
    pub fn insert_after(self, type_: &str, step: Step) -> Result<Self, RecipeError> {
        self.insert(1, type_, step)
    }

    fn insert(mut self, offset: usize, type_: &str, step: Step) -> Result<Self, RecipeError> {
        let Some(at) = self.tasks.iter().position(|step| step.type_ == type_) else {
            return Err(RecipeError::NoSuchStep {
                name: self.name,
                task: type_.to_owned(),
                known: self.tasks.into_iter().map(|step| step.type_).collect(),
            });
        };
        self.tasks.insert(at + offset, step);
        Ok(self)
    }

    /// A new plan from this recipe, with all tasks pending.
    #[must_use]
    pub fn plan(&self, seed: PlanSeed<'_>) -> Plan {
        let id = plan_id(&self.name, &seed);
        let tasks = self.tasks.iter().enumerate();
        let tasks = tasks.map(|(index, step)| TaskRecord::pending(task_id(&id, index), step));
        Plan {
            recipe: self.name.clone(),
            target_hash: seed.target_hash.to_owned(),
            state: PlanState::Active,
            started_at: seed.now.trunc_subsecs(6),
            finished_at: None,
            attempt: seed.attempt,
            retry_at: None,
            tasks: tasks.collect(),
            failure: String::new(),
            id,
        }
    }

    pub(super) fn check_shape(&self) -> Result<(), RecipeError> {
        if self.name.is_empty() {
            return Err(RecipeError::MissingName);
        }
        match self.tasks.len() {
            0 => Err(RecipeError::Empty(self.name.clone())),
            count if count > MAX_TASKS => Err(RecipeError::TooLong { name: self.name.clone(), count }),
            _ => Ok(()),
        }
    }
}
