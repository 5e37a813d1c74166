//! The registry of task types and recipes. Types register themselves where they are defined (through `typetag`);
//! recipes are data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde_json::{Map, Value, json};

use super::error::ResolveError;
use super::plan::TaskRecord;
use super::recipe::{Builtin, Recipe, RecipeError};
use super::required;
use super::task::Task;

/// Reads a task from its params.
type Read = fn(Value) -> Result<Box<dyn Task>, serde_json::Error>;

/// The task types of this program, and its recipes.
#[derive(Clone, Debug)]
pub struct Registry {
    types: BTreeSet<&'static str>,
    /// The types that were registered here, and not only where they are defined.
    registered: BTreeMap<&'static str, Read>,
    /// A name that two types have.
    same_name: Option<&'static str>,
    recipes: BTreeMap<String, Recipe>,
    /// The built-in recipes, unchanged: a recipe that overrides one of them has to keep its steps.
    originals: BTreeMap<String, Recipe>,
}

impl Registry {
    /// All task types of this program, and no recipes.
    #[must_use]
    pub fn new() -> Self {
        let names = known_types();
        Self {
            types: names.iter().copied().collect(),
            registered: BTreeMap::new(),
            same_name: first_repeated(names),
            recipes: BTreeMap::new(),
            originals: BTreeMap::new(),
        }
    }

    /// All task types of this program, and the built-in recipes.
    #[must_use]
    pub fn builtin_recipes() -> Self {
        // They are part of the program and parsed once.
        static READ: LazyLock<Registry> = LazyLock::new(|| {
            let recipes = Builtin::ALL.into_iter().map(Recipe::builtin);
            let registry = recipes.fold(Registry::new(), Registry::with_recipe);
            Registry { originals: registry.recipes.clone(), ..registry }
        });
        READ.clone()
    }

    /// Adds a task type by its name in plans. A type is known under its `typetag` name as soon as it is linked into the
    /// program; this makes sure that it is, and [`check_all`](Self::check_all) fails if another type has the name.
    #[must_use]
    pub fn with_task<T: Task + DeserializeOwned + 'static>(mut self, name: &'static str) -> Self {
        let read: Read = |params| Ok(Box::new(serde_json::from_value::<T>(params)?));
        if self.is_builtin(name) || self.registered.insert(name, read).is_some() {
            self.same_name = Some(name);
        }
        self.types.insert(name);
        self
    }

    /// Adds a recipe. It replaces a recipe of the same name.
    #[must_use]
    pub fn with_recipe(mut self, recipe: Recipe) -> Self {
        self.recipes.insert(recipe.name.clone(), recipe);
        self
    }

    /// The recipe with this name.
    pub fn recipe(&self, name: &str) -> Result<&Recipe, RecipeError> {
        self.recipes.get(name).ok_or_else(|| RecipeError::Unknown {
            name: name.to_owned(),
            known: self.recipes.keys().cloned().collect(),
        })
    }

    /// All recipes, sorted by name.
    pub fn recipes(&self) -> impl Iterator<Item = &Recipe> {
        self.recipes.values()
    }

    /// The names of all task types, in order.
    pub fn task_types(&self) -> impl Iterator<Item = &'static str> {
        self.types.iter().copied()
    }

    /// Checks that no two task types have the same name, that plans of all recipes can be run, and that each recipe that overrides a built-in one has all its
    /// steps, in order. Call this before the first plan starts.
    pub fn check_all(&self) -> Result<(), RecipeError> {
        if let Some(name) = self.same_name {
            return Err(RecipeError::SameName(name.to_owned()));
        }
        self.recipes.values().try_for_each(|recipe| {
            recipe.check(self)?;
            self.originals.get(&recipe.name).map_or(Ok(()), |original| required::check(recipe, original))
        })
    }

    /// True if a step of a built-in recipe has this type.
    #[must_use]
    pub fn is_builtin(&self, type_: &str) -> bool {
        self.originals.values().any(|recipe| recipe.tasks.iter().any(|step| step.type_ == type_))
    }

    /// Resolves a task's record: the code of its type, with the record's params.
    pub fn resolve(&self, record: &TaskRecord) -> Result<Box<dyn Task>, ResolveError> {
        self.resolve_parts(&record.id, &record.type_, &record.params)
    }

    pub(super) fn resolve_parts(
        &self,
        task_id: &str,
        type_: &str,
        params: &Value,
    ) -> Result<Box<dyn Task>, ResolveError> {
        if !self.types.contains(type_) {
            return Err(ResolveError::UnknownType {
                task_id: task_id.to_owned(),
                type_: type_.to_owned(),
                known: self.types.iter().map(ToString::to_string).collect(),
            });
        }
        read(type_, self.registered.get(type_).copied(), params).map_err(|reason| ResolveError::BadParams {
            task_id: task_id.to_owned(),
            type_: type_.to_owned(),
            reason,
        })
    }
}

impl Recipe {
    /// Checks that a plan of this recipe can be run: it has tasks, and each is of a known type with valid params. The
    /// steps that its name requires are checked by [`Registry::check_all`].
    pub fn check(&self, registry: &Registry) -> Result<(), RecipeError> {
        self.check_shape()?;
        for (index, step) in self.tasks.iter().enumerate() {
            let id = format!("at index {index}");
            registry
                .resolve_parts(&id, &step.type_, &Value::Object(step.params.clone()))
                .map_err(|source| RecipeError::Step { name: self.name.clone(), source })?;
        }
        Ok(())
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

fn read(type_: &str, registered: Option<Read>, params: &Value) -> Result<Box<dyn Task>, String> {
    // The type comes first, so that the params are deserialized directly; in the other order `typetag` would buffer
    // them in a format of its own.
    let read_as = |params: Value| {
        if let Some(read) = registered {
            return read(params);
        }
        let fields = [("type", Value::from(type_)), ("params", params)];
        <Box<dyn Task>>::deserialize(MapDeserializer::<_, serde_json::Error>::new(fields.into_iter()))
    };
    // The API server may drop an empty object, and serde reads a unit struct only from null. So both forms count as
    // absent params.
    let absent = params.is_null() || params.as_object().is_some_and(Map::is_empty);
    let task = match params {
        _ if absent => read_as(json!({})).or_else(|e| read_as(Value::Null).map_err(|_| e)),
        Value::Object(_) => read_as(params.clone()),
        // Serde would also read a struct from a list.
        _ => return Err("they are not an object".to_owned()),
    };
    task.map_err(|e| e.to_string())
}

/// The names of the types that `typetag` knows, sorted. Its registry is private, but the error for an unknown type lists
/// them.
fn known_types() -> &'static [&'static str] {
    let no_such_type = MapDeserializer::<_, KnownTypes>::new([("type", "")].into_iter());
    match <Box<dyn Task>>::deserialize(no_such_type) {
        Ok(_) => &[],
        Err(KnownTypes(names)) => names,
    }
}

/// The first name that a sorted list has twice.
fn first_repeated(names: &[&'static str]) -> Option<&'static str> {
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[derive(Debug)]
struct KnownTypes(&'static [&'static str]);

impl fmt::Display for KnownTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for KnownTypes {}

impl serde::de::Error for KnownTypes {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::first_repeated;

    #[test]
    fn duplicate_type_name_is_found() {
        assert_eq!(first_repeated(&["a", "b", "b", "c"]), Some("b"));
        assert_eq!(first_repeated(&["a", "b", "c"]), None);
    }
}
