//! Answers calls.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::kinds::Kind;
use super::super::refusal::Refusal;
use super::super::shared::{Shared, WatchView};
use super::super::store::{Key, Object};
use super::super::world::World;
use super::create::Written;
use super::delete::{DeleteOptions, Deleted};
use super::read::{Page, metadata_only};
use super::table::{Form, table};
use super::watch::Lens;
use super::{Call, Part, PatchKind, Target, WatchStream, discovery, openapi};

/// The payload of a response.
pub(crate) enum Payload {
    Json(Bytes),
    Watch(Box<WatchStream>),
}

/// A response.
pub(crate) struct Reply {
    pub code: u16,
    pub payload: Payload,
    pub warnings: Vec<String>,
}

impl Reply {
    fn json(code: u16, value: &Value) -> Self {
        Self { code, payload: Payload::Json(Bytes::from(value.to_string())), warnings: Vec::new() }
    }

    fn object(code: u16, object: &Arc<Object>) -> Self {
        Self { code, payload: Payload::Json(object.json()), warnings: Vec::new() }
    }

    fn written(written: &Written) -> Self {
        let code = if written.created { 201 } else { 200 };
        Self { warnings: written.warnings.clone(), ..Self::object(code, &written.object) }
    }

    /// The response to a refused request.
    pub(crate) fn refusal(refusal: &Refusal) -> Self {
        Self::json(refusal.code, &refusal.body())
    }
}

impl World {
    /// Answers a call.
    pub(crate) fn answer(&mut self, shared: &Arc<Shared>, call: &Call, view: WatchView) -> Reply {
        match self.try_answer(shared, call, view) {
            Ok(reply) => reply,
            Err(refusal) => Reply::refusal(&refusal),
        }
    }

    fn try_answer(&mut self, shared: &Arc<Shared>, call: &Call, view: WatchView) -> Result<Reply, Refusal> {
        let (group, version, plural) = match &call.target {
            Target::Meta(path) => {
                let schema = openapi::answer(&self.kinds, path);
                let answer = schema.unwrap_or_else(|| discovery::meta(&self.kinds, path));
                return answer.map(|v| Reply::json(200, &v));
            }
            Target::Group(group, version) => {
                return discovery::group(&self.kinds, group, version).map(|v| Reply::json(200, &v));
            }
            Target::Resource { group, version, plural } => (group, version, plural),
        };
        if plural == "selfsubjectaccessreviews" && group == "authorization.k8s.io" && call.verb == "create" {
            // Whatever the request and its format.
            return Ok(Reply::json(
                201,
                &json!({
                    "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {},
                    "status": {"allowed": true, "reason": "a simulated cluster allows everything"},
                }),
            ));
        }
        let Some(kind) = self.kinds.by_path(group, version, plural).cloned() else {
            // Only built-in groups answer in JSON.
            if self.kinds.all().any(|k| k.group == *group && !k.is_custom()) {
                return Err(Refusal::no_such_path());
            }
            let payload = Payload::Json(Bytes::from_static(b"404 page not found\n"));
            return Ok(Reply { code: 404, payload, warnings: Vec::new() });
        };
        let namespace = if kind.namespaced { call.namespace.clone() } else { String::new() };
        let key: Key = (namespace, call.name.clone());
        if kind.namespaced && key.0.is_empty() && !matches!(call.verb, "list" | "watch") {
            return Err(Refusal::no_such_path());
        }
        match call.subresource.as_str() {
            "" => self.answer_object(shared, call, &kind, &key, view),
            "status" if kind.has_status => self.answer_part(call, &kind, &key, Part::Status),
            "scale" if kind.scale.is_some() => self.answer_scale(call, &kind, &key),
            "binding" if kind.is("Pod") && call.verb == "create" => {
                self.bind(&kind, &key, &call.json()?).map(|v| Reply::json(201, &v))
            }
            "eviction" if kind.is("Pod") && call.verb == "create" => {
                let body = call.json()?;
                let mut options = DeleteOptions::read(&body["deleteOptions"]);
                options.dry_run |= call.is_dry_run();
                if let Some(refusal) = self.refuse_eviction(&key) {
                    return Err(refusal);
                }
                self.delete(&kind, &key, &options)?;
                Ok(Reply::json(201, &success(&Value::Null)))
            }
            "log" if kind.is("Pod") => Err(Refusal::bad_request(format!(
                "container logs of pod {:?} are not available: its node is played, and nothing runs on it",
                key.1
            ))),
            "exec" | "attach" | "portforward" if kind.is("Pod") => Err(Refusal::bad_request(format!(
                "{} of pod {:?} is not possible: its node is played, and nothing runs on it",
                call.subresource, key.1
            ))),
            _ => Err(Refusal::no_such_path()),
        }
    }

    fn answer_object(
        &mut self,
        shared: &Arc<Shared>,
        call: &Call,
        kind: &Arc<Kind>,
        key: &Key,
        view: WatchView,
    ) -> Result<Reply, Refusal> {
        match call.verb {
            "get" => self.get(kind, key).map(|object| match call.form() {
                Form::Whole => Reply::object(200, &object),
                Form::Metadata => Reply::json(200, &metadata_only(&object.value)),
                Form::Table(include) => {
                    let now = self.now();
                    let mut body = table(kind, std::iter::once(&object.value), include, true, now);
                    body["metadata"]["resourceVersion"] = object.meta("resourceVersion").into();
                    Reply::json(200, &body)
                }
            }),
            "list" => {
                let options = call.list_options()?;
                check_fields(kind, &options.fields)?;
                let page = self.list(kind, &key.0, &options)?;
                if let Form::Table(include) = call.form() {
                    let objects = page.items.iter().map(|object| &object.value);
                    let mut body = table(kind, objects, include, true, self.now());
                    body["metadata"] = list_meta(&page);
                    return Ok(Reply::json(200, &body));
                }
                Ok(list_reply(kind, &page, call.form() == Form::Metadata))
            }
            "watch" => {
                let options = call.list_options()?;
                check_fields(kind, &options.fields)?;
                let lens = Lens {
                    kind: kind.clone(),
                    namespace: key.0.clone(),
                    name: Some(key.1.clone()).filter(|name| !name.is_empty()),
                    options,
                    form: call.form(),
                    clock: self.clock.clone(),
                    described: AtomicBool::new(false),
                };
                let stream = self.watch(shared, lens, view)?;
                Ok(Reply { code: 200, payload: Payload::Watch(Box::new(stream)), warnings: Vec::new() })
            }
            "create" if key.1.is_empty() => {
                let written = self.create(kind, &key.0, call.json()?, &call.write_options()?)?;
                Ok(Reply::written(&written))
            }
            "update" | "patch" => self.answer_part(call, kind, key, Part::Main),
            "delete" => {
                let options = delete_options(call)?;
                Ok(match self.delete(kind, key, &options)? {
                    Deleted::Gone(object) if kind.is("Pod") => Reply::object(200, &object),
                    Deleted::Gone(object) => Reply::json(
                        200,
                        &success(&json!({
                            "name": key.1, "group": kind.group, "kind": kind.plural, "uid": object.uid(),
                        })),
                    ),
                    Deleted::Pending(object) => Reply::object(200, &object),
                })
            }
            "deletecollection" => {
                let list = call.list_options()?;
                check_fields(kind, &list.fields)?;
                let options = delete_options(call)?;
                let items = self.delete_collection(kind, &key.0, &list.labels, &list.fields, &options)?;
                let page = Page { items, version: self.store.version(), continues: None, remaining: None };
                Ok(list_reply(kind, &page, false))
            }
            _ => Err(Refusal::not_allowed()),
        }
    }

    fn answer_part(
        &mut self,
        call: &Call,
        kind: &Arc<Kind>,
        key: &Key,
        part: Part,
    ) -> Result<Reply, Refusal> {
        let options = call.write_options()?;
        match call.verb {
            "get" => self.get(kind, key).map(|object| Reply::object(200, &object)),
            "update" => self.replace(kind, key, part, call.json()?, &options).map(|w| Reply::written(&w)),
            "patch" => {
                let how = PatchKind::of(&call.content_type, kind)?;
                let body = call.json()?;
                self.patch(kind, key, part, how, &body, &options).map(|w| Reply::written(&w))
            }
            _ => Err(Refusal::not_allowed()),
        }
    }

    fn answer_scale(&mut self, call: &Call, kind: &Arc<Kind>, key: &Key) -> Result<Reply, Refusal> {
        let options = call.write_options()?;
        let how = match call.verb {
            "get" => return self.scale(kind, key).map(|v| Reply::json(200, &v)),
            "update" => None,
            "patch" => Some(PatchKind::of(&call.content_type, kind)?),
            _ => return Err(Refusal::not_allowed()),
        };
        self.write_scale(kind, key, how, &call.json()?, &options).map(|v| Reply::json(200, &v))
    }

    /// The binding that a scheduler posts.
    fn bind(&mut self, kind: &Arc<Kind>, key: &Key, body: &Value) -> Result<Value, Refusal> {
        check_type_of_binding(body)?;
        let node = body["target"]["name"].as_str().unwrap_or_default().to_owned();
        let old = self.store.get(kind.shelf, key).cloned().ok_or_else(|| Refusal::not_found(kind, &key.1))?;
        if old.value["spec"]["nodeName"].as_str().is_some_and(|n| !n.is_empty()) {
            return Err(Refusal::conflict(
                kind,
                &key.1,
                &format!("pod {} is already assigned to node", key.1),
            ));
        }
        self.bind_to(kind, key, &node);
        Ok(success(&Value::Null))
    }
}

fn check_type_of_binding(body: &Value) -> Result<(), Refusal> {
    if body["target"]["name"].is_string() {
        return Ok(());
    }
    Err(Refusal::bad_request("target.name: Required value"))
}

fn delete_options(call: &Call) -> Result<DeleteOptions, Refusal> {
    let body = call.json()?;
    if !body.is_null() && body["kind"].is_string() && body["kind"] != "DeleteOptions" {
        return Err(Refusal::bad_request("the body of a DELETE must be DeleteOptions"));
    }
    let mut options = DeleteOptions::read(&body);
    options.dry_run |= call.is_dry_run();
    if let Some(policy) = call.query.get("propagationPolicy") {
        options.propagation = Some(policy.clone());
    }
    if let Some(grace) = call.query.get("gracePeriodSeconds").and_then(|text| text.parse().ok()) {
        options.grace_seconds = Some(grace);
    }
    Ok(options)
}

fn check_fields(kind: &Kind, fields: &super::super::selector::FieldSelector) -> Result<(), Refusal> {
    let supported: Vec<&str> = kind.field_paths.iter().map(String::as_str).collect();
    match fields.unsupported(&supported) {
        Some(path) if kind.is_custom() => {
            Err(Refusal::bad_request(format!("field label not supported: {path}")))
        }
        Some(path) => Err(Refusal::bad_request(format!(
            "Unable to find {:?} that match label selector \"\", field selector {path:?}: field label not supported: {path}",
            format!("{}, Resource={}", kind.api_version(), kind.plural)
        ))),
        None => Ok(()),
    }
}

fn success(details: &Value) -> Value {
    let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if !details.is_null() {
        body["details"] = details.clone();
    }
    body
}

fn list_meta(page: &Page) -> Value {
    let mut meta = json!({"resourceVersion": page.version.to_string()});
    if let Some(token) = &page.continues {
        meta["continue"] = token.clone().into();
    }
    if let Some(remaining) = page.remaining {
        meta["remainingItemCount"] = remaining.into();
    }
    meta
}

fn list_reply(kind: &Kind, page: &Page, metadata: bool) -> Reply {
    let (list_kind, list_version) = if metadata {
        ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
    } else {
        (format!("{}List", kind.kind), kind.api_version())
    };
    let meta = list_meta(page);
    let mut text = Vec::new();
    text.extend_from_slice(
        format!("{{\"kind\":{list_kind:?},\"apiVersion\":{list_version:?},\"metadata\":{meta},\"items\":[")
            .as_bytes(),
    );
    for (index, object) in page.items.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        if metadata {
            text.extend_from_slice(metadata_only(&object.value).to_string().as_bytes());
        } else {
            text.extend_from_slice(&object.json());
        }
    }
    text.extend_from_slice(b"]}");
    Reply { code: 200, payload: Payload::Json(Bytes::from(text)), warnings: Vec::new() }
}
