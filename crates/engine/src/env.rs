//! The dependencies of tasks. An environment holds one value per type; the engine does not know the types, so a custom
//! task can bring its own dependencies.

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::error::TaskError;

/// One value per type. Clones are cheap and share the values. A layer adds values to an environment, or shadows some of
/// them, without changing it.
#[derive(Clone, Default)]
pub struct Env {
    layer: Arc<Layer>,
}

#[derive(Clone, Default)]
struct Layer {
    values: BTreeMap<TypeId, Entry>,
    below: Option<Env>,
}

#[derive(Clone)]
struct Entry {
    type_name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl Env {
    /// An empty environment.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value. It replaces a value of the same type.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, value: T) -> Self {
        let entry = Entry { type_name: type_name::<T>(), value: Arc::new(value) };
        Arc::make_mut(&mut self.layer).values.insert(TypeId::of::<T>(), entry);
        self
    }

    /// A new, empty layer on top of this environment, for values that belong to a single reconcile.
    #[must_use]
    pub fn layer(&self) -> Self {
        Self { layer: Arc::new(Layer { values: BTreeMap::new(), below: Some(self.clone()) }) }
    }

    /// The value of a type, if there is one.
    #[must_use]
    pub fn find<T: Any + Send + Sync>(&self) -> Option<&T> {
        let key = TypeId::of::<T>();
        let mut at = Some(self);
        while let Some(env) = at {
            if let Some(entry) = env.layer.values.get(&key) {
                return entry.value.downcast_ref();
            }
            at = env.layer.below.as_ref();
        }
        None
    }

    /// The value of a type. If there is none, returns a terminal error that names the type: the program is set up
    /// wrongly, and a retry would not help.
    pub fn get<T: Any + Send + Sync>(&self) -> Result<&T, TaskError> {
        self.find().ok_or_else(|| {
            TaskError::terminal(format!(
                "the environment has no {}: provide one to the operator before it starts",
                type_name::<T>()
            ))
        })
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = f.debug_set();
        let mut at = Some(self);
        while let Some(env) = at {
            names.entries(env.layer.values.values().map(|entry| entry.type_name));
            at = env.layer.below.as_ref();
        }
        names.finish()
    }
}
