//! The TLS configuration from PEM files, or from the system's certificate authorities.

use std::sync::{Arc, LazyLock};

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

use super::access::{Pem, Trust};

/// The variables that replace the system's authorities.
const VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The system's certificate authorities. The operator's image has none, as it has no files but the program: there, and
/// wherever else there are none, they are Mozilla's. If one of [`VARIABLES`] is set, only those that it names count.
static SYSTEM: LazyLock<Result<Arc<RootCertStore>, String>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        if let Some(variable) = VARIABLES.iter().find(|variable| std::env::var_os(variable).is_some()) {
            return Err(format!("cannot be sent: {variable} names no certificate of an authority in PEM"));
        }
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(Arc::new(roots))
});

/// A configuration that trusts nobody, for a client that uses no TLS.
pub(super) fn without_authorities() -> Result<ClientConfig, String> {
    Ok(builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot be sent: TLS could not be set up: {error}"))
}

/// The TLS configuration. An error is the end of a sentence: "cannot be sent: …".
pub(super) fn config(trust: &Trust) -> Result<ClientConfig, String> {
    let builder = builder()?.with_root_certificates(match &trust.ca {
        Some(ca) => Arc::new(authorities(ca)?),
        None => SYSTEM.clone()?,
    });
    let Some((certificate, key)) = &trust.client else {
        return Ok(without_resumption(builder.with_no_client_auth()));
    };
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|_| invalid(key, "private key"))?;
    let Pem { source, .. } = certificate;
    let config = builder.with_client_auth_cert(chain, private).map_err(|error| {
        format!("cannot be sent: {source} has a certificate and a key that cannot be used together: {error}")
    })?;
    Ok(without_resumption(config))
}

/// A resumed session does not verify the certificate again, which may have expired.
fn without_resumption(mut config: ClientConfig) -> ClientConfig {
    config.resumption = Resumption::disabled();
    config
}

/// The name that the server's certificate must have; `None`: the URL's host.
pub(super) fn server_name(trust: &Trust) -> Result<Option<ServerName<'static>>, String> {
    let Trust { origin, server_name, .. } = trust;
    if server_name.is_empty() {
        return Ok(None);
    }
    ServerName::try_from(server_name.clone()).map(Some).map_err(|_| {
        let field = origin.server_name();
        format!("cannot be sent: {field} {server_name:?} is not a DNS name or an IP address")
    })
}

/// True if a certificate can have this name.
#[must_use]
pub fn is_server_name(text: &str) -> bool {
    ServerName::try_from(text).is_ok()
}

/// The authorities of a file with at least one. A file may also have others that this version cannot use.
fn authorities(ca: &Pem) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(ca)?);
    if roots.is_empty() { Err(invalid(ca, "certificate of an authority")) } else { Ok(roots) }
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.bytes).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| invalid(pem, "certificate"))
}

fn invalid(pem: &Pem, what: &str) -> String {
    format!("cannot be sent: {} has no valid {what} in PEM", pem.source)
}
