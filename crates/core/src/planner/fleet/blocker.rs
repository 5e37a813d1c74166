//! What keeps a rollout to the desired revision from starting.

use std::fmt;

/// Why no rollout to the desired revision can start. The variants are in the order of their priority: the status reports
/// the first of those that were found.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Blocker {
    /// It is not known which set is active; a sentence with the command that resolves it.
    Ambiguous(String),
    /// The fleet's Service cannot be created or updated; a sentence. It has priority over errors of the spec: traffic
    /// cannot be switched, so no node that receives traffic may be removed.
    Service(String),
    /// The spec requests something impossible, or its names belong to other objects; a sentence that begins with the
    /// field.
    Spec(String),
    /// The API server rejects the rendered template; the message of the API server.
    TemplateRefused(String),
    /// No name is free for a new set of nodes; a sentence.
    NoSetName(String),
    /// The API server has not answered a required request yet; a sentence. The next reconcile may succeed.
    Unanswered(String),
}

impl Blocker {
    /// True if it may go away by itself, so that the spec is not at fault.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unanswered(_))
    }

    /// True if the spec has to be corrected.
    #[must_use]
    pub fn is_of_spec(&self) -> bool {
        matches!(self, Self::Spec(_) | Self::TemplateRefused(_))
    }

    /// True if it is about the fleet's Service.
    #[must_use]
    pub fn is_of_service(&self) -> bool {
        matches!(self, Self::Service(_))
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ambiguous(sentence)
            | Self::Spec(sentence)
            | Self::NoSetName(sentence)
            | Self::Service(sentence)
            | Self::Unanswered(sentence) => f.write_str(sentence),
            Self::TemplateRefused(message) => write!(f, "template: the API server rejects it: {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_blocker_takes_precedence_over_spec_blockers() {
        let service = Blocker::Service("service: Service db is not this fleet's".to_owned());
        for other in [
            Blocker::Spec("template: no".to_owned()),
            Blocker::TemplateRefused("no".to_owned()),
            Blocker::NoSetName("no name is free".to_owned()),
            Blocker::Unanswered("not known yet".to_owned()),
        ] {
            assert_eq!(other.clone().min(service.clone()), service, "{other}");
            assert!(!other.is_of_service() && service.is_of_service());
        }
        assert!(Blocker::Ambiguous("which set serves".to_owned()) < service);
    }
}
