//! Parses HTTP requests into calls: verb, resource and options.

use std::collections::BTreeMap;

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::super::refusal::Refusal;
use super::super::selector::{FieldSelector, LabelSelector};
use super::read::ListOptions;
use super::table::{Form, Include};
use super::{FieldValidation, WriteOptions};

/// Some kubectl commands, such as `create configmap`, support nothing else.
const PROTOBUF: &str = "the simulated cluster reads JSON and YAML, not protobuf: say it with --dry-run=client -o yaml, and pipe that into kubectl apply -f -";

/// The target of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    /// `/version`, `/healthz`, `/api`, `/apis` and the like.
    Meta(String),
    /// The discovery of a group and version.
    Group(String, String),
    /// Objects.
    Resource { group: String, version: String, plural: String },
}

/// A parsed request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub verb: &'static str,
    pub target: Target,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    pub query: BTreeMap<String, String>,
    pub content_type: String,
    pub accept: String,
    pub user_agent: String,
    pub body: Bytes,
}

impl Call {
    /// Parses a request with its body.
    pub(crate) fn read(parts: &http::request::Parts, body: Bytes, user_agent: &str) -> Self {
        let header =
            |name| parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        let query = read_query(parts.uri.query().unwrap_or_default());
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let path: Vec<String> =
            parts.uri.path().split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let (target, rest): (Target, &[&str]) = match path.as_slice() {
            ["api", version] => (Target::Group(String::new(), (*version).into()), &[]),
            ["apis", group, version] => (Target::Group((*group).into(), (*version).into()), &[]),
            ["api", version, rest @ ..] => (resource("", version), rest),
            ["apis", group, version, rest @ ..] => (resource(group, version), rest),
            _ => (Target::Meta(parts.uri.path().to_owned()), &[]),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..] if !matches!(*plural, "status" | "finalize") => {
                ((*namespace).to_owned(), [&[*plural], rest].concat())
            }
            rest => (String::new(), rest.to_vec()),
        };
        let target = match (target, rest.first()) {
            (Target::Resource { group, version, .. }, Some(plural)) => {
                Target::Resource { group, version, plural: (*plural).to_owned() }
            }
            (target, _) => target,
        };
        let at = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        let (name, subresource) = (at(1), at(2));
        let watching = matches!(query.get("watch").map(String::as_str), Some("true" | "1"));
        let verb = match parts.method.as_str() {
            "GET" | "HEAD" if watching => "watch",
            "GET" | "HEAD" if !name.is_empty() => "get",
            "GET" | "HEAD" if matches!(target, Target::Resource { .. }) => "list",
            "GET" | "HEAD" => "get",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if name.is_empty() => "deletecollection",
            "DELETE" => "delete",
            _ => "",
        };
        let agent = header("user-agent");
        Self {
            verb,
            target,
            namespace,
            name,
            subresource,
            query,
            content_type: header("content-type"),
            accept: header("accept"),
            user_agent: if agent.is_empty() { user_agent.to_owned() } else { agent },
            body,
        }
    }

    /// The body as JSON; null without a body. Apply patches may be YAML.
    pub(crate) fn json(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        if let Ok(value) = serde_json::from_slice(&self.body) {
            return Ok(value);
        }
        if self.content_type.contains("protobuf") {
            return Err(Refusal::new(415, "UnsupportedMediaType", PROTOBUF));
        }
        let text = String::from_utf8_lossy(&self.body);
        if self.content_type.contains("yaml")
            && let Ok(value) = serde_saphyr::from_str(&text)
        {
            return Ok(value);
        }
        let why =
            serde_json::from_slice::<Value>(&self.body).err().map(|e| e.to_string()).unwrap_or_default();
        Err(Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {why}",
            self.name
        )))
    }

    /// True for a dry run.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.query.get("dryRun").is_some_and(|value| value == "All")
    }

    pub(crate) fn write_options(&self) -> Result<WriteOptions, Refusal> {
        let validation = match self.query.get("fieldValidation").map(String::as_str) {
            Some("Strict") => FieldValidation::Strict,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Warn" | "") | None => FieldValidation::Warn,
            Some(other) => {
                return Err(Refusal::bad_request(format!(
                    "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
                )));
            }
        };
        Ok(WriteOptions {
            dry_run: self.is_dry_run(),
            validation,
            manager: self.query.get("fieldManager").cloned().unwrap_or_default(),
            force: self.query.get("force").is_some_and(|value| value == "true"),
            patch: false,
            subresource: false,
        })
    }

    pub(crate) fn list_options(&self) -> Result<ListOptions, Refusal> {
        let get = |name: &str| self.query.get(name).filter(|value| !value.is_empty()).cloned();
        let labels = get("labelSelector").unwrap_or_default();
        let fields = get("fieldSelector").unwrap_or_default();
        Ok(ListOptions {
            labels: LabelSelector::parse(&labels).map_err(Refusal::bad_request)?,
            fields: FieldSelector::parse(&fields).map_err(Refusal::bad_request)?,
            limit: get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(0),
            continues: get("continue"),
            version: get("resourceVersion"),
            version_match: get("resourceVersionMatch"),
            bookmarks: get("allowWatchBookmarks").is_some_and(|v| v == "true" || v == "1"),
            initial_events: get("sendInitialEvents").is_some_and(|v| v == "true" || v == "1"),
            timeout_seconds: get("timeoutSeconds").and_then(|v| v.parse().ok()),
        })
    }

    /// The requested form of objects.
    pub(crate) fn form(&self) -> Form {
        if self.accept.contains("as=Table") {
            Form::Table(match self.query.get("includeObject").map(String::as_str) {
                Some("None") => Include::Nothing,
                Some("Object") => Include::Object,
                _ => Include::Metadata,
            })
        } else if self.accept.contains("as=PartialObjectMetadata") {
            Form::Metadata
        } else {
            Form::Whole
        }
    }

    /// The resource's plural and group, for the audit log.
    pub(crate) fn resource(&self) -> String {
        match &self.target {
            Target::Resource { group, plural, .. } if group.is_empty() => plural.clone(),
            Target::Resource { group, plural, .. } => format!("{plural}.{group}"),
            Target::Group(group, version) => format!("{group}/{version}"),
            Target::Meta(path) => path.clone(),
        }
    }
}

fn resource(group: &str, version: &str) -> Target {
    Target::Resource { group: group.to_owned(), version: version.to_owned(), plural: String::new() }
}

fn read_query(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}
