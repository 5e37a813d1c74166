//! The evacuation of a version: its request, which is an annotation, and its status.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use windlass_core::revision::hash::hex;

use super::names::ANNOTATION_EVACUATE;
use crate::port::BuildId;

/// The longest query, in bytes: it is stored in the plan.
const MAX_QUERY_BYTES: usize = 1000;

/// The value of the annotation `windlass.dev/evacuate`, as JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EvacuationRequest {
    /// The version that the workflows leave.
    pub from: BuildId,
    /// The version that they move to.
    pub to: BuildId,
    /// Selects some of the workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The time of the request. The same request with another time is a new one.
    pub at: DateTime<Utc>,
}

impl EvacuationRequest {
    /// Reads the annotation. The error is a sentence.
    pub fn read(text: &str) -> Result<Self, String> {
        let request: Self = serde_json::from_str(text).map_err(|error| {
            format!(
                "{ANNOTATION_EVACUATE} is not a request such as {{\"from\": \"1.3-aaaaa\", \"to\": \"1.4-bbbbb\", \"at\": \
                 \"2030-01-31T12:00:00Z\"}}: {error}"
            )
        })?;
        if let Some(query) = &request.query {
            check_query(query)?;
        }
        Ok(request)
    }

    /// True if this requests the same as another one, at another time.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.from, &self.to, &self.query) == (&other.from, &other.to, &other.query)
    }
}

/// The digest of a request's text, by which the status remembers it.
#[must_use]
pub fn digest(text: &str) -> String {
    hex(&Sha256::digest(text)[..8])
}

/// Checks that a query is one condition: `a) OR (b` would select workflows of other versions. Temporal parses the rest.
pub fn check_query(query: &str) -> Result<(), String> {
    if query.trim().is_empty() {
        return Err(
            "the query is empty: name a condition such as WorkflowType = 'Order', or omit it".to_owned()
        );
    }
    if query.len() > MAX_QUERY_BYTES {
        return Err(format!("the query has {} bytes: at most {MAX_QUERY_BYTES} are allowed", query.len()));
    }
    if query.chars().any(char::is_control) {
        return Err(format!("the query {query:?} has a line break or another control character: remove it"));
    }
    let mut depth = 0_u32;
    let mut quote = None;
    let mut chars = query.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some('\'' | '"'), '\\') => {
                chars.next();
            }
            (Some(open), _) => quote = quote.filter(|_| open != c),
            (None, '\'' | '"' | '`') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => return Err(unbalanced(query)),
            (None, ')') => depth -= 1,
            (None, '-') if chars.peek() == Some(&'-') => return Err(comment(query)),
            (None, '/') if matches!(chars.peek(), Some('*' | '/')) => return Err(comment(query)),
            // After `@`, Temporal's parser reads quotation marks as part of a name.
            (None, '#' | ';' | '@') => return Err(comment(query)),
            (None, _) => {}
        }
    }
    if depth > 0 || quote.is_some() { Err(unbalanced(query)) } else { Ok(()) }
}

fn unbalanced(query: &str) -> String {
    format!("the query {query:?} has a parenthesis or a quotation mark without its counterpart: balance them")
}

fn comment(query: &str) -> String {
    format!("the query {query:?} has a comment, an @ or more than one statement: remove it")
}

/// The latest requested evacuation.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvacuationStatus {
    /// The digest of the request that Windlass accepted or refused.
    pub request: String,
    /// phase is Counting, Moving, Draining, Complete, Refused, Failed, Aborted or Superseded.
    pub phase: EvacuationPhase,
    /// The ID of the plan; absent if Windlass refused the request.
    #[serde(default, rename = "planID", skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// The build ID of the version that the workflows leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<BuildId>,
    /// The build ID of the version that they move to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub to: Option<BuildId>,
    /// The query that selects some of the workflows; absent if all move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The number of workflows to move, as counted before the first batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflows: Option<i64>,
    /// The ID of the latest batch operation in Temporal.
    #[serde(default, rename = "batchID", skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
    /// The number of workflows that the latest batch has moved. Temporal updates it once per thousand workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<i64>,
    /// The number of workflows that the latest batch could not move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<i64>,
    /// The condition that the evacuation waits for, or its outcome.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The phase of an evacuation.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum EvacuationPhase {
    /// Windlass counts the workflows.
    #[default]
    Counting,
    /// A batch operation moves the workflows, or is about to.
    Moving,
    /// Windlass waits until no workflow is left on the version.
    Draining,
    /// The workflows have left the version.
    Complete,
    /// Windlass did not accept the request.
    Refused,
    /// The evacuation failed.
    Failed,
    /// A person aborted the evacuation.
    Aborted,
    /// A rollout, another evacuation or the deletion of the object ended it.
    Superseded,
}

impl EvacuationPhase {
    /// True until the evacuation ends.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Self::Counting | Self::Moving | Self::Draining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_that_is_not_one_condition_is_refused() {
        for good in [
            "WorkflowType = 'Order'",
            "(A = 1 OR B = 2) AND C STARTS_WITH 'x'",
            "A = 'it''s (' AND B = \"a) OR (b\"",
            r"A = 'it\'s ('",
            "`A-b` = -1",
        ] {
            assert_eq!(check_query(good), Ok(()), "{good}");
        }
        for bad in [
            "A = 1 // '\n) OR (WorkflowType = 'Pay' // '\n",
            "A = 1 // comment",
            "A = 1\nOR B = 2",
            "A = @@x'",
            "A = 1) OR (B = 2",
            "(A = 1",
            "A = 'x",
            r"A = 'x\') OR (B = 'y'",
            "A = 1 /* ' */ ) OR (B = 2 /* ' */",
            "A = 1 -- ",
            "A = 1; B",
            "A = 1 # ",
            "",
            "  ",
            &"x".repeat(1001),
        ] {
            assert!(check_query(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn request_names_its_fields() {
        let text = r#"{"from": "a", "to": "b", "at": "2030-01-31T12:00:00Z"}"#;
        let request = EvacuationRequest::read(text).unwrap();
        assert_eq!((request.from.as_str(), request.to.as_str(), &request.query), ("a", "b", &None));
        assert!(EvacuationRequest::read(r#"{"from": "a", "to": "b"}"#).unwrap_err().contains("`at`"));
        let misspelt = r#"{"from": "a", "to": "b", "at": "2030-01-31T12:00:00Z", "querry": "x"}"#;
        assert!(EvacuationRequest::read(misspelt).unwrap_err().contains("querry"));
        assert_ne!(digest(text), digest(misspelt));
    }
}
