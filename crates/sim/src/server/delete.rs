//! DELETE: preconditions, grace periods, finalizers, and propagation.

use std::sync::Arc;

use chrono::{Duration, SecondsFormat};
use serde_json::{Value, json};

use super::super::kinds::Kind;
use super::super::refusal::Refusal;
use super::super::selector::{FieldSelector, LabelSelector};
use super::super::store::{Key, Object, meta};
use super::super::world::World;
use super::create::shown_form;

/// The finalizer of foreground deletion.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of orphaning.
pub(crate) const ORPHAN: &str = "orphan";

/// The options of a DELETE, from its body or query.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub dry_run: bool,
    pub grace_seconds: Option<i64>,
    pub uid: Option<String>,
    pub version: Option<String>,
    pub propagation: Option<String>,
}

impl DeleteOptions {
    /// Parses the body of a DELETE.
    pub(crate) fn read(body: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            dry_run: body["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
            uid: text(&body["preconditions"]["uid"]),
            version: text(&body["preconditions"]["resourceVersion"]),
            propagation: text(&body["propagationPolicy"]),
        }
    }

    /// With the UID as a precondition.
    pub(crate) fn of_uid(uid: &str) -> Self {
        Self { uid: Some(uid.to_owned()), ..Self::default() }
    }
}

/// The result of a deletion.
pub(crate) enum Deleted {
    /// It is gone.
    Gone(Arc<Object>),
    /// It is terminating; its current state.
    Pending(Arc<Object>),
}

impl World {
    /// Deletes an object, or sets its deletionTimestamp.
    pub(crate) fn delete(
        &mut self,
        kind: &Arc<Kind>,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Deleted, Refusal> {
        let old = self.store.get(kind.shelf, key).cloned();
        let old = old.ok_or_else(|| Refusal::not_found(kind, &key.1))?;
        check_preconditions(kind, key, &old, options)?;
        let finalizers = finalizers_for(&old.value, options.propagation.as_deref());
        let grace = grace_seconds(kind, &old.value, options);
        let held = !finalizers.is_empty()
            || grace > 0
            || (kind.is("Namespace")
                && old.value["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()));
        if !held {
            if options.dry_run {
                return Ok(Deleted::Gone(old));
            }
            return Ok(Deleted::Gone(match self.remove(kind, key) {
                Some(removed) => shown_form(kind, &removed),
                None => old,
            }));
        }
        let new = self.marked(kind, &old, finalizers, grace);
        if new == old.value || options.dry_run {
            return Ok(Deleted::Pending(Object::unstored(new)));
        }
        Ok(Deleted::Pending(shown_form(kind, &self.put(kind, key.clone(), new))))
    }

    /// The object with its deletionTimestamp.
    fn marked(&self, kind: &Kind, old: &Object, finalizers: Vec<Value>, grace: i64) -> Value {
        let mut new = old.value.clone();
        if finalizers.is_empty() {
            if let Some(metadata) = new["metadata"].as_object_mut() {
                metadata.remove("finalizers");
            }
        } else {
            new["metadata"]["finalizers"] = finalizers.into();
        }
        let first = !old.is_terminating();
        let shorter = old.value["metadata"]["deletionGracePeriodSeconds"].as_i64().is_some_and(|g| grace < g);
        if first || shorter {
            let end = self.now() + Duration::seconds(grace);
            new["metadata"]["deletionTimestamp"] = end.to_rfc3339_opts(SecondsFormat::Secs, true).into();
            new["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        }
        if first && let Some(generation) = new["metadata"]["generation"].as_i64() {
            new["metadata"]["generation"] = (generation + 1).into();
        }
        if kind.is("Namespace") {
            new["status"] = json!({"phase": "Terminating"});
        }
        new
    }

    /// Deletes every matching object individually.
    pub(crate) fn delete_collection(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        labels: &LabelSelector,
        fields: &FieldSelector,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Object>>, Refusal> {
        let chosen: Vec<(Key, Arc<Object>)> = self
            .store
            .list(kind.shelf, namespace)
            .filter(|(_, object)| labels.matches(&object.value) && fields.matches(&object.value))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        for (key, _) in &chosen {
            self.delete(kind, key, options)?;
        }
        Ok(chosen.into_iter().map(|(_, object)| object).collect())
    }
}

fn check_preconditions(kind: &Kind, key: &Key, old: &Object, options: &DeleteOptions) -> Result<(), Refusal> {
    if let Some(uid) = &options.uid
        && uid != old.uid()
    {
        // This conflict names the kind; all others name the resource.
        let mut refusal = Refusal::stale(kind, &key.1);
        refusal.message = format!(
            "Operation cannot be fulfilled on {} {:?}: the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            kind.group_kind(),
            key.1,
            old.uid()
        );
        return Err(refusal);
    }
    if let Some(version) = &options.version
        && *version != old.version.to_string()
    {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {}",
            old.version
        );
        return Err(Refusal::conflict(kind, &key.1, &why));
    }
    Ok(())
}

/// The finalizers of an object with this propagation policy.
fn finalizers_for(old: &Value, propagation: Option<&str>) -> Vec<Value> {
    let held = old["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let wanted = match propagation {
        Some("Foreground") => Some(FOREGROUND),
        Some("Orphan") => Some(ORPHAN),
        Some(_) => None,
        // By default the object's own finalizers decide.
        None => return held,
    };
    let mut finalizers: Vec<Value> = held.into_iter().filter(|f| f != FOREGROUND && f != ORPHAN).collect();
    finalizers.extend(wanted.map(Value::from));
    finalizers
}

/// The grace period. Only pods have one, once they are bound to a node.
fn grace_seconds(kind: &Kind, old: &Value, options: &DeleteOptions) -> i64 {
    if !kind.is("Pod") {
        return 0;
    }
    let unbound = old["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let ended = matches!(old["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    let asked = options
        .grace_seconds
        .or_else(|| old["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(30)
        .max(0);
    if unbound || ended || asked == 0 {
        return 0;
    }
    match old["metadata"]["deletionGracePeriodSeconds"].as_i64() {
        Some(left) if !meta(old, "deletionTimestamp").is_empty() => asked.min(left),
        _ => asked,
    }
}
