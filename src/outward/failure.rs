//! Names the reason why a request got no answer.

use std::error::Error;
use std::io;

use chrono::{DateTime, SecondsFormat};
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, InvalidMessage};

use super::access::{Origin, Trust};
use crate::engine::sentence::cut;

/// The most of the names in a certificate that a message shows, in bytes.
const NAMES_BYTES: usize = 120;

/// The end of a sentence that begins with the request.
pub(super) fn no_answer(error: &(dyn Error + 'static), is_https: bool, trust: &Trust) -> String {
    match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!("has a certificate that does not verify: {}", certificate(why, trust))
        }
        Some(rustls::Error::AlertReceived(alert)) => rejected(*alert, trust),
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "does not speak TLS on this port: use a URL with http://, or the port for https".to_owned()
        }
        Some(other) => format!("did not answer: TLS failed: {other}"),
        None if is_https && is_closed(error) => {
            let hint = match (trust.origin.client_cert(), &trust.client) {
                (Some(_), Some((pem, _))) => {
                    format!("; it may reject the client certificate in {}", pem.source)
                }
                (Some(field), None) => format!("; it may require a client certificate: set {field}"),
                (None, _) => "; it may require a client certificate".to_owned(),
            };
            format!("closed the connection during or after the TLS handshake: {}{hint}", root_cause(error))
        }
        None => format!("did not answer: {}", root_cause(error)),
    }
}

/// Why a certificate does not verify, and the remedy.
fn certificate(why: &CertificateError, trust: &Trust) -> String {
    let (ca, name) = (trust.origin.ca(), trust.origin.server_name());
    match why {
        // A bad signature is that of another authority with the same name, such as a renewed one.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => match &trust.ca {
            Some(pem) => format!("no authority in {} has signed it", pem.source),
            None => format!("no authority that this system trusts has signed it; set {ca}"),
        },
        CertificateError::Expired => "it has expired; renew it".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("it expired at {}; renew it", shown(*not_after))
        }
        CertificateError::NotValidYet => "it is not valid yet".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("it is not valid before {}; check the clocks", shown(*not_before))
        }
        CertificateError::NotValidForName => format!("it is for another name; set {name}"),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            let names =
                cut(&presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", "), NAMES_BYTES);
            // The URL of a sidecar may be any that the operator can reach, and its user may not.
            if trust.origin == Origin::Sidecar {
                return format!("it is not for {expected}; set {name} to a name in the certificate");
            }
            if names.is_empty() {
                return format!("it has no names, so it is not for {expected}; issue one with that name");
            }
            format!("it is for {names}, not for {expected}; set {name} to a name in the certificate")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not for servers; issue one with the extended key usage serverAuth".to_owned()
        }
        CertificateError::Revoked => "it was revoked; renew it".to_owned(),
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is the certificate of an authority; issue a certificate for the server".to_owned()
        }
        other => other.to_string(),
    }
}

/// `DnsName("db.shop")` as `db.shop`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

/// The server ended the handshake with an alert.
fn rejected(alert: AlertDescription, trust: &Trust) -> String {
    match (alert, &trust.client, trust.origin.client_cert()) {
        (AlertDescription::CertificateRequired, None, Some(field)) => {
            format!("requires a client certificate: set {field}")
        }
        (AlertDescription::CertificateRequired, ..) => {
            "requires a client certificate from an authority that it trusts".to_owned()
        }
        (_, Some((pem, _)), _) if is_of_certificate(alert) => {
            format!("rejected the client certificate in {}: {alert:?}", pem.source)
        }
        (_, None, Some(field)) if is_of_certificate(alert) || alert == AlertDescription::HandshakeFailure => {
            format!("rejected the TLS handshake: {alert:?}; it may require a client certificate: set {field}")
        }
        (AlertDescription::UnrecognisedName, ..) => {
            let name = trust.origin.server_name();
            format!("does not serve this name: set {name} to one that it serves")
        }
        _ => format!("rejected the TLS handshake: {alert:?}"),
    }
}

fn is_of_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
    )
}

fn shown(time: UnixTime) -> String {
    let time = i64::try_from(time.as_secs()).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.map_or_else(|| "an unknown time".to_owned(), |time| time.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// The error of TLS in a chain.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// True if the server closed the connection.
fn is_closed(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    chain(error).any(|error| {
        error.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
        })
    })
}

/// An error and its causes. `source` of an I/O error skips the error that it wraps.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    })
}

/// The client's own message stops at "error trying to connect"; the cause is at the end of the chain.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}
