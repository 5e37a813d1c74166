//! The API server's audit log.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::Error;

/// One request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    #[serde(rename = "auditID")]
    pub audit_id: String,
    pub stage: String,
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    pub verb: String,
    pub user: User,
    pub user_agent: String,
    pub object_ref: ObjectRef,
    pub response_status: Status,
    pub request_received_timestamp: String,
    /// When it was answered, in the `ResponseComplete` stage.
    pub stage_timestamp: String,
}

/// The user of a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct User {
    pub username: String,
    /// More about the user: for a pod's token, the pod's name.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The object of a request. A generated name is not known at creation.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(default)]
pub struct ObjectRef {
    #[serde(rename = "apiGroup")]
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

/// The status of the response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub code: u16,
}

impl Entry {
    /// True if it was a write and not a dry run.
    pub fn is_write(&self) -> bool {
        let verb =
            matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection");
        let virtual_kind =
            self.object_ref.subresource == "token" || self.object_ref.resource.ends_with("reviews");
        verb && !virtual_kind && !self.is_dry_run()
    }

    pub fn is_dry_run(&self) -> bool {
        self.request_uri
            .split_once('?')
            .is_some_and(|(_, query)| query.split('&').any(|part| part == "dryRun=All"))
    }

    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }
}

/// A part of the log, oldest first. Each method filters it.
#[derive(Clone, Debug)]
pub struct Audit {
    entries: Vec<Entry>,
}

impl Audit {
    pub(super) fn read(path: &Path, from: u64) -> Result<Self, Error> {
        Self::read_to(path, from, u64::MAX)
    }

    pub(super) fn read_to(path: &Path, from: u64, to: u64) -> Result<Self, Error> {
        use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
        let mut file = std::fs::File::open(path)?;
        file.seek(SeekFrom::Start(from))?;
        let mut last_stage: BTreeMap<String, usize> = BTreeMap::new();
        let mut entries: Vec<Entry> = Vec::new();
        for line in BufReader::new(file.take(to.saturating_sub(from))).lines() {
            // The last line may be incomplete.
            let Ok(entry) = serde_json::from_str::<Entry>(&line?) else { continue };
            // A watch is logged at its start and at its end.
            let next = entries.len();
            let at = *last_stage.entry(entry.audit_id.clone()).or_insert(next);
            if at == next {
                entries.push(entry);
            } else {
                entries[at] = entry;
            }
        }
        Ok(Self { entries })
    }

    pub fn filter(mut self, keep: impl Fn(&Entry) -> bool) -> Self {
        self.entries.retain(keep);
        self
    }

    /// Requests of this user: `admin`, or `system:serviceaccount:<namespace>:<name>`.
    pub fn user(self, name: &str) -> Self {
        self.filter(|entry| entry.user.username == name)
    }

    /// Requests with this user agent prefix.
    pub fn agent(self, prefix: &str) -> Self {
        self.filter(|entry| entry.user_agent.starts_with(prefix))
    }

    pub fn verb(self, verb: &str) -> Self {
        self.filter(|entry| entry.verb == verb)
    }

    /// The resource's plural, with all subresources.
    pub fn resource(self, plural: &str) -> Self {
        self.filter(|entry| entry.object_ref.resource == plural)
    }

    /// `status`, `scale`, …; empty for the object itself.
    pub fn subresource(self, name: &str) -> Self {
        self.filter(|entry| entry.object_ref.subresource == name)
    }

    pub fn namespace(self, name: &str) -> Self {
        self.filter(|entry| entry.object_ref.namespace == name)
    }

    pub fn name(self, name: &str) -> Self {
        self.filter(|entry| entry.object_ref.name == name)
    }

    /// Writes that were carried out, dry runs left out.
    pub fn writes(self) -> Self {
        self.filter(|entry| entry.is_write() && entry.succeeded())
    }

    /// Writes carried out or refused, dry runs left out.
    pub fn write_attempts(self) -> Self {
        self.filter(Entry::is_write)
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Requests that were forbidden, by verb and URL.
    pub fn refused(&self) -> Vec<String> {
        let refused = self.entries.iter().filter(|entry| entry.response_status.code == 403);
        refused.map(|entry| format!("{} {}", entry.verb, entry.request_uri)).collect()
    }

    /// The number of entries per object, by subresource.
    pub fn per_object(&self) -> BTreeMap<ObjectRef, usize> {
        self.entries.iter().fold(BTreeMap::new(), |mut counts, entry| {
            *counts.entry(entry.object_ref.clone()).or_default() += 1;
            counts
        })
    }
}
