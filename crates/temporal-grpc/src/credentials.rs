//! Credentials for Temporal, from Secrets.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use windlass_temporal::api::connection::{CA, CERTIFICATE, PRIVATE_KEY};
use windlass_temporal::api::{Connection, Tls};
use windlass_temporal::port::TemporalError;

use crate::secrets::Secret;

/// The Secrets of a connection, by their role.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) ca: Option<Named>,
    pub(crate) cert: Option<Named>,
    pub(crate) api_key: Option<Named>,
}

/// A Secret, and its name in messages.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// `Secret shop/temporal (connection.tls.caSecret)`.
    pub(crate) called: String,
    pub(crate) secret: Secret,
}

impl Named {
    /// The value of a key.
    fn value(&self, key: &str) -> Result<&[u8], TemporalError> {
        self.secret.data.get(key).map(Vec::as_slice).ok_or_else(|| TemporalError::SecretNotFound {
            message: format!("{} has no key {key}", self.called),
        })
    }

    fn invalid(&self, key: &str, what: &str) -> TemporalError {
        TemporalError::CredentialsInvalid { message: format!("{} has no {what} in key {key}", self.called) }
    }
}

/// The TLS settings.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    pub(crate) config: Arc<ClientConfig>,
    /// The name that the server's certificate has to match; `None`: the address's host.
    pub(crate) server_name: Option<ServerName<'static>>,
}

/// The TLS settings of a connection; `None`: plain text.
pub(crate) fn tls(connection: &Connection, found: &Found) -> Result<Option<Handshake>, TemporalError> {
    if !connection.is_tls() {
        return Ok(None);
    }
    let Tls { server_name, .. } = connection.tls.clone().unwrap_or_default();
    let refused = |message: String| TemporalError::CredentialsInvalid { message };
    let server_name = server_name
        .map(|name| {
            ServerName::try_from(name.clone())
                .map_err(|_| refused(format!("connection.tls.serverName {name:?} is not a host name")))
        })
        .transpose()?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(format!("could not set up TLS: {error}")))?
        .with_root_certificates(roots(found)?);
    let mut config = match &found.cert {
        None => builder.with_no_client_auth(),
        Some(cert) => {
            let chain = certificates(cert, CERTIFICATE)?;
            let key = PrivateKeyDer::from_pem_slice(cert.value(PRIVATE_KEY)?)
                .map_err(|_| cert.invalid(PRIVATE_KEY, "PEM private key"))?;
            let called = &cert.called;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| refused(format!("{called}: {error}")))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(Handshake { config: Arc::new(config), server_name }))
}

/// The trusted root certificates: those of the Secret, or those of this machine.
fn roots(found: &Found) -> Result<RootCertStore, TemporalError> {
    let mut roots = RootCertStore::empty();
    if let Some(ca) = &found.ca {
        for certificate in certificates(ca, CA)? {
            roots.add(certificate).map_err(|_| ca.invalid(CA, "valid certificate"))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(TemporalError::CredentialsInvalid {
                message:
                    "the operator has no trusted root certificates: set connection.tls.caSecret to a Secret with the server's \
                     certificate authority"
                        .to_owned(),
            });
        }
    }
    Ok(roots)
}

/// The API key; `None` without one.
pub(crate) fn api_key(connection: &Connection, found: &Found) -> Result<Option<String>, TemporalError> {
    let (Some(named), Some(wanted)) = (&found.api_key, &connection.api_key_secret) else { return Ok(None) };
    let text = std::str::from_utf8(named.value(&wanted.key)?).unwrap_or_default().trim();
    let is_key = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_key
        .then(|| Some(text.to_owned()))
        .ok_or_else(|| named.invalid(&wanted.key, "API key on a single line"))
}

/// At least one certificate, in PEM.
fn certificates(named: &Named, key: &str) -> Result<Vec<CertificateDer<'static>>, TemporalError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(named.value(key)?).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| named.invalid(key, "PEM certificate"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use windlass_temporal::api::ApiKeySecret;

    use super::*;

    #[allow(clippy::unnecessary_wraps, reason = "what it is handed to takes one or none")]
    fn named(pairs: &[(&str, &str)]) -> Option<Named> {
        let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let secret = Secret { version: "1".to_owned(), data };
        Some(Named { called: "Secret shop/s (connection.tls.certSecret)".to_owned(), secret })
    }

    fn with_key() -> Connection {
        let api_key_secret = Some(ApiKeySecret { name: "s".to_owned(), key: "api-key".to_owned() });
        Connection { address: "a:7233".to_owned(), api_key_secret, ..Connection::default() }
    }

    fn over_tls() -> Connection {
        Connection { tls: Some(Tls::default()), ..Connection::default() }
    }

    #[test]
    fn api_key_requires_tls_and_plain_text_has_neither() {
        let found = Found { api_key: named(&[("api-key", " k.e-y\n")]), ..Found::default() };
        assert!(tls(&with_key(), &found).unwrap().is_some());
        assert_eq!(api_key(&with_key(), &found).unwrap().as_deref(), Some("k.e-y"));
        assert!(tls(&Connection::default(), &Found::default()).unwrap().is_none());
        assert_eq!(api_key(&Connection::default(), &Found::default()).unwrap(), None);
    }

    #[test]
    fn missing_secret_key_is_distinguished_from_an_invalid_one() {
        let of = |pairs: &[(&str, &str)]| {
            let found = Found { cert: named(pairs), api_key: named(pairs), ..Found::default() };
            (tls(&over_tls(), &found).unwrap_err(), api_key(&with_key(), &found).unwrap_err())
        };
        let missing = |key| TemporalError::SecretNotFound {
            message: format!("Secret shop/s (connection.tls.certSecret) has no key {key}"),
        };
        assert_eq!(of(&[]), (missing("tls.crt"), missing("api-key")));
        let invalid = |what, key| TemporalError::CredentialsInvalid {
            message: format!("Secret shop/s (connection.tls.certSecret) has no {what} in key {key}"),
        };
        let nonsense = of(&[("tls.crt", "no certificate"), ("tls.key", "x"), ("api-key", "two\nlines")]);
        assert_eq!(
            nonsense,
            (invalid("PEM certificate", "tls.crt"), invalid("API key on a single line", "api-key"))
        );
    }

    #[test]
    fn debug_output_of_a_secret_shows_only_its_keys() {
        let printed = format!("{:?}", named(&[("api-key", "sesame")]));
        assert!(printed.contains("api-key") && !printed.contains("sesame"), "{printed}");
    }
}
