//! The Secrets of the workers: which of them do not exist, and the digest that makes a change of their data a change of
//! the rendered pods.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use windlass_core::revision::config::{ConfigKind, ConfigReference, compose};

use crate::api::Connection;
use crate::api::connection::{CA, CERTIFICATE, PRIVATE_KEY};

/// A Secret in a field of the connection that the workers use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Use {
    /// The Secret.
    pub secret: ConfigReference,
    field: &'static str,
    keys: Vec<String>,
    /// True if a change of its data updates the workers.
    is_followed: bool,
}

/// The observed data of a Secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Data {
    /// The Secret exists.
    Found {
        /// The digest of its data.
        digest: String,
        /// The keys of its data.
        keys: BTreeSet<String>,
    },
    /// It does not exist.
    Missing,
    /// Windlass may not read it; why, in a sentence of the API server.
    Unreadable(String),
}

/// Why workers cannot use a Secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Problem {
    /// The Secret or a key does not exist, in a sentence: new pods would not start.
    Missing(String),
    /// Windlass may not read it, in a sentence: the pods may have it.
    Unreadable(String),
}

/// The observed Secrets of the workers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WorkerSecrets {
    followed: Vec<ConfigReference>,
    digests: BTreeMap<ConfigReference, String>,
    problem: Option<Problem>,
    /// The time until a change of the data counts: several Secrets may be written one after the other.
    pub settles_in: Option<Duration>,
}

/// The Secrets of a connection that the workers use.
#[must_use]
pub fn used_by_workers(connection: &Connection) -> Vec<Use> {
    let mut uses = Vec::new();
    let mut add = |name: Option<&String>, field, keys: &[&str], is_followed| {
        let Some(name) = name else { return };
        let secret = ConfigReference { kind: ConfigKind::Secret, name: name.clone() };
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        uses.push(Use { secret, field, keys, is_followed });
    };
    let workers = connection.workers.as_ref();
    let tls = workers.and_then(|workers| workers.tls.as_ref());
    let cert = tls.and_then(|tls| tls.cert_secret.as_ref());
    add(cert, "connection.workers.tls.certSecret", &[CERTIFICATE, PRIVATE_KEY], true);
    add(tls.and_then(|tls| tls.ca_secret.as_ref()), "connection.workers.tls.caSecret", &[CA], true);
    if let Some(secret) = workers.and_then(|workers| workers.api_key_secret.as_ref()) {
        add(Some(&secret.name), "connection.workers.apiKeySecret", &[&secret.key], true);
    }
    add(connection.worker_secret.as_ref(), "connection.workerSecret", &[], false);
    uses
}

impl WorkerSecrets {
    /// Reads these answers. A Secret without an answer is unknown, and its digest stays as it is.
    #[must_use]
    pub fn of(namespace: &str, uses: &[Use], answers: &BTreeMap<ConfigReference, Data>) -> Self {
        let problems: Vec<Problem> =
            uses.iter().filter_map(|used| used.problem(namespace, answers.get(&used.secret)?)).collect();
        let is_missing = |problem: &&Problem| matches!(problem, Problem::Missing(_));
        let worst = problems.iter().find(is_missing).or(problems.first());
        let followed: BTreeSet<ConfigReference> =
            uses.iter().filter(|used| used.is_followed).map(|used| used.secret.clone()).collect();
        let digests = followed.iter().filter_map(|secret| match answers.get(secret)? {
            Data::Found { digest, .. } => Some((secret.clone(), digest.clone())),
            Data::Missing | Data::Unreadable(_) => None,
        });
        Self {
            digests: digests.collect(),
            followed: followed.iter().cloned().collect(),
            problem: worst.cloned(),
            settles_in: None,
        }
    }

    /// The digest in the pods of a version that has this one. The part of a Secret without data stays.
    #[must_use]
    pub fn digest(&self, recorded: &str) -> String {
        compose(&self.followed, recorded, |secret| self.digests.get(secret).cloned())
    }

    /// True if the workers of existing versions are left as they are: new pods would not start, or would start twice.
    #[must_use]
    pub fn hold_updates(&self) -> bool {
        matches!(self.problem, Some(Problem::Missing(_))) || self.settles_in.is_some()
    }

    /// Why workers cannot use a Secret, in a sentence.
    #[must_use]
    pub fn sentence(&self) -> Option<&str> {
        match self.problem.as_ref()? {
            Problem::Missing(sentence) | Problem::Unreadable(sentence) => Some(sentence),
        }
    }
}

impl Use {
    fn problem(&self, namespace: &str, data: &Data) -> Option<Problem> {
        let called = format!("Secret {namespace}/{} ({})", self.secret.name, self.field);
        match data {
            Data::Missing => Some(Problem::Missing(format!(
                "{called} does not exist: create it. Until then, Windlass updates no workers"
            ))),
            Data::Unreadable(why) => Some(Problem::Unreadable(format!(
                "Windlass cannot read {called}: {why}. A change of it updates no workers"
            ))),
            Data::Found { keys, .. } => {
                let missing = self.keys.iter().find(|key| !keys.contains(*key))?;
                Some(Problem::Missing(format!(
                    "{called} has no key {missing}: add it. Until then, Windlass updates no workers"
                )))
            }
        }
    }
}
