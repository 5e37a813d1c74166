//! Maps Temporal's errors to the port's.
//!
//! Temporal reports most actionable errors as `FAILED_PRECONDITION` with a sentence, without machine-readable
//! details. The sentences here are those of servers 1.28 to 1.32; an unknown one becomes [`TemporalError::Refused`].

use std::error::Error;
use std::time::Duration;

use prost::Message;
use temporalio_protos::google::rpc;
use tonic::{Code, Status};
use windlass_temporal::port::{Identity, Missing, TemporalError};

/// The error for a status; `about` is what a not-found refers to.
#[must_use]
pub fn of(status: &Status, about: Missing) -> TemporalError {
    let message = status.message().to_owned();
    match status.code() {
        Code::ResourceExhausted if message.contains("concurrent batch operations") => {
            TemporalError::TooManyBatches { message }
        }
        Code::ResourceExhausted => TemporalError::RateLimited { message, retry_after: pushback(status) },
        Code::Unauthenticated | Code::PermissionDenied => TemporalError::CredentialsInvalid { message },
        Code::NotFound => {
            let what = if is_of_namespace(status) { Missing::Namespace } else { about };
            TemporalError::NotFound { what, message }
        }
        Code::FailedPrecondition => precondition(message),
        Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented | Code::AlreadyExists => {
            TemporalError::Refused { message }
        }
        _ => unreachable(status),
    }
}

/// The error for the message of a `FAILED_PRECONDITION`.
fn precondition(message: String) -> TemporalError {
    let contains_words = |words: &str| message.contains(words);
    if contains_words("conflict token mismatch") {
        TemporalError::Conflict { message }
    } else if contains_words("does not match user identity") {
        TemporalError::OwnedByOther { manager: manager(&message), message }
    } else if contains_words("is missing active task queues") {
        TemporalError::MissingTaskQueues { message }
    } else if contains_words("not found in deployment") || contains_words("no pollers") {
        TemporalError::NoPollers { message }
    } else if contains_words("is not present in task queue") {
        TemporalError::VersionNotReady { message }
    } else if contains_words("since it has active pollers") {
        TemporalError::VersionHasPollers { message }
    } else if contains_words("since it is draining") {
        TemporalError::VersionDraining { message }
    } else if contains_words("since it is current or ramping") {
        TemporalError::VersionRouted { message }
    } else {
        TemporalError::Refused { message }
    }
}

/// The manager's identity in the message.
fn manager(message: &str) -> Option<Identity> {
    let (_, rest) = message.split_once("ManagerIdentity '")?;
    let (name, _) = rest.split_once("' is set and does not match")?;
    Some(Identity::new(name))
}

fn is_of_namespace(status: &Status) -> bool {
    rpc::Status::decode(status.details()).is_ok_and(|status| {
        status.details.iter().any(|detail| detail.type_url.ends_with("NamespaceNotFoundFailure"))
    })
}

/// The server's retry delay.
fn pushback(status: &Status) -> Option<Duration> {
    let pushback = status.metadata().get("grpc-retry-pushback-ms")?.to_str().ok()?;
    pushback.parse().ok().map(Duration::from_millis)
}

/// The error for a request without a response. Exception: a server rejects a client's certificate by closing with a
/// TLS alert.
fn unreachable(status: &Status) -> TemporalError {
    let message = match status.source() {
        Some(source) => chain(source),
        None => status.message().to_owned(),
    };
    // The error of rustls for a server whose first bytes are not TLS.
    if message.contains("InvalidContentType") {
        return TemporalError::Unreachable {
            message: "the server does not speak TLS on this port: correct connection.address, or remove connection.tls \
                      (an API key is sent over TLS only)"
                .to_owned(),
        };
    }
    // The name of the alert follows: CertificateRequired, BadCertificate, UnknownCA, …
    let alert = message.rsplit_once("received fatal alert: ").map(|(_, name)| name.to_owned());
    match alert {
        Some(name)
            if name.contains("Certificate")
                || name.contains("UnknownCA")
                || name.contains("AccessDenied") =>
        {
            TemporalError::CredentialsInvalid {
                message: format!("the server rejected the client's certificate ({name})"),
            }
        }
        _ => TemporalError::Unreachable { message },
    }
}

/// An error and its causes in one sentence, without generic outer ones.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if parts.last() != Some(&text) && !is_empty_word(&text) {
            parts.push(text);
        }
        next = error.source();
    }
    // Some errors repeat their cause at the end.
    let mut short: Vec<&str> = Vec::new();
    for (at, text) in parts.iter().enumerate() {
        if !parts.iter().skip(at + 1).any(|later| text.contains(later.as_str())) || at + 1 == parts.len() {
            short.push(text);
        }
    }
    if short.is_empty() { error.to_string() } else { short.join(": ") }
}

fn is_empty_word(text: &str) -> bool {
    matches!(text, "transport error" | "client error (Connect)" | "http2 error" | "error trying to connect")
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn refused(code: Code, message: &str) -> TemporalError {
        of(&Status::new(code, message), Missing::Version)
    }

    #[test]
    fn failed_precondition_messages_map_to_distinct_errors() {
        let sentence = |message: &str| refused(Code::FailedPrecondition, message);
        let message = |text: &str| text.to_owned();
        let text = "ManagerIdentity 'it's me' is set and does not match user identity 'x'; to proceed, …";
        assert_eq!(
            sentence(text),
            TemporalError::OwnedByOther { manager: Some(Identity::new("it's me")), message: message(text) }
        );
        let text = "something else";
        assert_eq!(sentence(text), TemporalError::Refused { message: message(text) });
        let text = "conflict token mismatch";
        assert_eq!(sentence(text), TemporalError::Conflict { message: message(text) });
    }

    #[test]
    fn status_codes_without_an_answer_are_not_refusals() {
        for code in [
            Code::Unavailable,
            Code::DeadlineExceeded,
            Code::Internal,
            Code::Unknown,
            Code::Cancelled,
            Code::Aborted,
            Code::DataLoss,
        ] {
            assert!(
                matches!(refused(code, "x"), TemporalError::Unreachable { message } if message == "x"),
                "{code}"
            );
        }
        for code in [Code::InvalidArgument, Code::OutOfRange, Code::Unimplemented, Code::AlreadyExists] {
            assert!(matches!(refused(code, "x"), TemporalError::Refused { .. }), "{code}");
        }
        for code in [Code::Unauthenticated, Code::PermissionDenied] {
            assert!(matches!(refused(code, "x"), TemporalError::CredentialsInvalid { .. }), "{code}");
        }
    }

    #[test]
    fn retry_pushback_of_the_server_is_honoured() {
        let mut status = Status::new(Code::ResourceExhausted, "namespace rate limit exceeded");
        status.metadata_mut().insert("grpc-retry-pushback-ms", "1500".parse().unwrap_or_else(|_| panic!()));
        let TemporalError::RateLimited { retry_after, .. } = of(&status, Missing::Deployment) else {
            panic!()
        };
        assert_eq!(retry_after, Some(Duration::from_millis(1500)));
    }
}
