//! The wire protocol between operator and sidecar: its types, and the parsing of requests. No I/O.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// The longest task ID that a sidecar accepts, in bytes.
pub const MAX_TASK_ID_BYTES: usize = 253;

/// The answer to `GET /v1/status`. Unknown fields are ignored, and all but `ready` may be missing and then mean "no":
/// operator and sidecar are upgraded at different times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The node was marked ready since the sidecar started.
    pub ready: bool,
    /// The application has caught up with its peers.
    #[serde(default)]
    pub caught_up: bool,
    /// The application's height; `None` if unknown.
    #[serde(default)]
    pub height: Option<i64>,
    /// The application reached the requested halt height.
    #[serde(default)]
    pub halted: bool,
    /// The application's role, for example `primary`; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// The types of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SidecarTaskType {
    /// Put the pod in service: `/readyz` answers 200 from now on.
    MarkReady,
    /// Wait for the application to reach `params.height`.
    HaltAtHeight,
}

impl SidecarTaskType {
    const ALL: [Self; 2] = [Self::MarkReady, Self::HaltAtHeight];

    /// The name on the wire, in kebab case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MarkReady => "mark-ready",
            Self::HaltAtHeight => "halt-at-height",
        }
    }
}

impl std::fmt::Display for SidecarTaskType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for SidecarTaskType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The body of `POST /v1/tasks`. Two requests of one ID are the same request if they are equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct TaskRequest {
    /// Chosen by the client; identifies repeats.
    pub id: String,
    /// The type of the task.
    #[serde(rename = "type")]
    pub kind: SidecarTaskType,
    /// The parameters of the type; unknown ones are ignored.
    pub params: Map<String, Value>,
}

impl TaskRequest {
    /// A request to put the pod in service.
    #[must_use]
    pub fn mark_ready(id: impl Into<String>) -> Self {
        Self { id: id.into(), kind: SidecarTaskType::MarkReady, params: Map::new() }
    }

    /// A request to halt at `height`, which must be above 0.
    #[must_use]
    pub fn halt_at_height(id: impl Into<String>, height: i64) -> Self {
        let params = Map::from_iter([("height".to_owned(), height.into())]);
        Self { id: id.into(), kind: SidecarTaskType::HaltAtHeight, params }
    }

    /// The height in `params`, if it is a whole number above 0.
    #[must_use]
    pub fn height(&self) -> Option<i64> {
        self.params.get("height")?.as_i64().filter(|height| *height > 0)
    }
}

/// Read by hand, so that a refusal names the field as its author wrote it.
impl TryFrom<Value> for TaskRequest {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let Value::Object(mut fields) = value else {
            return Err("the request must be a JSON object with `id`, `type` and `params`".to_owned());
        };
        let id = match fields.remove("id") {
            Some(Value::String(id)) if is_task_id(&id) => id,
            _ => {
                return Err(format!(
                    "`id` must be a string of 1 to {MAX_TASK_ID_BYTES} letters, digits and `._:-` that begins \
                     with a letter or digit"
                ));
            }
        };
        let kind = match fields.remove("type") {
            Some(Value::String(name)) => SidecarTaskType::ALL.into_iter().find(|kind| kind.as_str() == name),
            _ => None,
        }
        .ok_or("`type` must be `mark-ready` or `halt-at-height`")?;
        let params = match fields.remove("params") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Err("`params` must be a JSON object".to_owned()),
        };
        let request = Self { id, kind, params };
        if kind == SidecarTaskType::HaltAtHeight && request.height().is_none() {
            return Err("`params.height` must be a whole number above 0".to_owned());
        }
        Ok(request)
    }
}

/// The ID is a segment of a URL's path, where `..` or a slash would lead elsewhere.
fn is_task_id(id: &str) -> bool {
    id.len() <= MAX_TASK_ID_BYTES
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.chars().all(|c| c.is_ascii_alphanumeric() || "._:-".contains(c))
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    /// Accepted, not started.
    Pending,
    /// Started, and waiting for something.
    Running,
    /// Done.
    Complete,
    /// Failed; the message says why.
    Failed,
}

impl TaskState {
    /// True if it is final.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}

/// The answer to `GET /v1/tasks/{id}` and to a `POST` that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAnswer {
    /// The request's ID.
    pub id: String,
    /// Its state.
    pub state: TaskState,
    /// One sentence for people: what it waits for, or why it failed.
    #[serde(default)]
    pub message: String,
}

/// The body of every refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalBody {
    /// One sentence that says what to do.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(value: Value) -> String {
        serde_json::from_value::<TaskRequest>(value).unwrap_err().to_string()
    }

    #[test]
    fn wire_format_matches_the_documentation() {
        let status = Status { ready: true, caught_up: false, height: None, halted: false, role: None };
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            json!({"ready": true, "caughtUp": false, "height": null, "halted": false})
        );
        assert_eq!(
            serde_json::to_value(TaskRequest::mark_ready("a1-4")).unwrap(),
            json!({"id": "a1-4", "type": "mark-ready", "params": {}})
        );
        assert_eq!(
            serde_json::to_value(TaskRequest::halt_at_height("a1-1", 8_000_000)).unwrap(),
            json!({"id": "a1-1", "type": "halt-at-height", "params": {"height": 8_000_000}})
        );
        for state in ["Pending", "Running", "Complete", "Failed"] {
            let answer = json!({"id": "x", "state": state, "message": "m"});
            let read: TaskAnswer = serde_json::from_value(answer.clone()).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), answer);
        }
    }

    #[test]
    fn requests_round_trip() {
        for request in [TaskRequest::mark_ready("a"), TaskRequest::halt_at_height("b", 7)] {
            let text = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<TaskRequest>(&text).unwrap(), request);
        }
    }

    #[test]
    fn answers_of_newer_and_older_sidecars_are_readable() {
        let newer = json!({"ready": true, "caughtUp": true, "height": 3, "halted": true, "peers": 9});
        let status: Status = serde_json::from_value(newer).unwrap();
        assert_eq!(
            status,
            Status { ready: true, caught_up: true, height: Some(3), halted: true, role: None }
        );
        let older: Status = serde_json::from_value(json!({"ready": true})).unwrap();
        assert_eq!(older, Status { ready: true, ..Status::default() });
        let answer: TaskAnswer =
            serde_json::from_value(json!({"id": "x", "state": "Complete", "at": 1})).unwrap();
        assert_eq!(answer.message, "");
    }

    #[test]
    fn answer_without_readiness_is_not_a_status() {
        serde_json::from_value::<Status>(json!({"caughtUp": true})).unwrap_err();
        serde_json::from_value::<TaskAnswer>(json!({"id": "x", "state": "Done"})).unwrap_err();
    }

    #[test]
    fn unneeded_params_may_be_omitted() {
        for request in [
            json!({"id": "a", "type": "mark-ready"}),
            json!({"id": "a", "type": "mark-ready", "params": null}),
            json!({"id": "a", "type": "mark-ready", "params": {}, "note": "ignored"}),
        ] {
            let read: TaskRequest = serde_json::from_value(request).unwrap();
            assert_eq!(read, TaskRequest::mark_ready("a"));
        }
    }

    #[test]
    fn refusal_names_the_field() {
        let long = "x".repeat(MAX_TASK_ID_BYTES + 1);
        for id in [json!(null), json!(7), json!(""), json!(".."), json!("a/b"), json!("a b"), json!(long)] {
            let sentence = refusal(json!({"id": id, "type": "mark-ready"}));
            assert!(sentence.contains("`id`"), "{id}: {sentence}");
        }
        for kind in [json!(null), json!(7), json!(""), json!("MarkReady"), json!("reboot")] {
            let sentence = refusal(json!({"id": "a", "type": kind}));
            assert!(sentence.contains("`type`"), "{kind}: {sentence}");
        }
        for params in [json!([]), json!("x"), json!(1)] {
            let sentence = refusal(json!({"id": "a", "type": "mark-ready", "params": params}));
            assert!(sentence.contains("`params`"), "{params}: {sentence}");
        }
        let heights =
            [json!(null), json!(0), json!(-1), json!(1.5), json!("8"), json!(true), json!(u64::MAX)];
        for height in heights {
            let request = json!({"id": "a", "type": "halt-at-height", "params": {"height": height}});
            let sentence = refusal(request);
            assert!(sentence.contains("`params.height`"), "{height}: {sentence}");
        }
        assert!(refusal(json!({"id": "a", "type": "halt-at-height"})).contains("`params.height`"));
        assert!(refusal(json!([])).contains("JSON object"));
    }
}
