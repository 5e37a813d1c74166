//! Channels to Temporal: connecting, TLS, keepalive.

use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;
use windlass_temporal::port::TemporalError;

use crate::credentials::Handshake;

/// The time-out of a request.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The time-out of connecting, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval of keepalive pings on an idle connection. Temporal closes connections that ping more often than every
/// 10 s.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The time-out of a keepalive ping; then the connection is closed, and the next request opens another.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait for the server's first bytes after the handshake, before sending any.
const FIRST_WORD: Duration = Duration::from_millis(500);

/// A channel to an address, which connects lazily and reconnects.
pub(crate) fn open(address: &str, tls: Option<Handshake>) -> Result<Channel, TemporalError> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let no_address = || TemporalError::Unreachable {
        message: format!(
            "connection.address {address:?} is not a host and a port such as temporal-frontend.temporal.svc:7233"
        ),
    };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|_| no_address())?;
    let uri = endpoint.uri();
    if uri.port_u16().is_none() || uri.path().len() > 1 || uri.query().is_some() {
        return Err(no_address());
    }
    let agent = concat!("windlass/", env!("CARGO_PKG_VERSION"));
    endpoint = endpoint.user_agent(agent).map_err(|_| no_address())?;
    endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .tcp_keepalive(Some(KEEPALIVE))
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    Ok(match tls {
        None => endpoint.connect_lazy(),
        Some(tls) => endpoint.connect_with_connector_lazy(service_fn(move |uri: Uri| {
            let tls = tls.clone();
            async move { shake_hands(&uri, tls).await.map(TokioIo::new) }
        })),
    })
}

/// Connects and performs the TLS handshake.
///
/// In TLS 1.3 a server verifies the client's certificate after the client has finished its part, and rejects it with
/// an alert. A client that already sends may see a broken connection before it reads the alert, and then cannot
/// report the cause. So this waits for the server to send first: its HTTP/2 settings, or the alert.
async fn shake_hands(uri: &Uri, tls: Handshake) -> io::Result<TlsStream<TcpStream>> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let tcp = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or_default())).await?;
    tcp.set_nodelay(true)?;
    let name = match tls.server_name {
        Some(name) => name,
        None => ServerName::try_from(host).map_err(io::Error::other)?,
    };
    let mut stream = TlsConnector::from(tls.config).connect(name, tcp).await?;
    // The bytes stay in the stream's buffer. Some servers send nothing before the client does.
    match tokio::time::timeout(FIRST_WORD, stream.fill_buf()).await {
        Ok(Err(error)) => Err(error),
        Ok(Ok([])) => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the server closed the connection after the TLS handshake",
        )),
        Ok(Ok(_)) | Err(_) => Ok(stream),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};
    use windlass_temporal::port::Missing;

    use super::*;

    #[tokio::test]
    async fn server_without_tls_is_named_as_such() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            // HTTP/2 settings, as a server of gRPC sends them first.
            stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
            stream.shutdown().await
        });
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let tls = Handshake { config: Arc::new(config), server_name: None };
        let uri = Uri::try_from(format!("https://localhost:{port}")).map_err(io::Error::other)?;
        let Err(error) = shake_hands(&uri, tls).await else { return Err(io::Error::other("it shook hands")) };
        let status = tonic::Status::from_error(Box::new(error));
        let error = crate::refusals::of(&status, Missing::Deployment);
        assert!(error.to_string().contains("does not speak TLS on this port"), "{error}");
        Ok(())
    }

    #[tokio::test]
    async fn address_has_only_a_host_and_a_port() {
        for bad in
            ["", "temporal", "http://temporal:7233", "temporal:7233/x", "temporal:seven", "a b:1", "h:1?x"]
        {
            let refused = matches!(open(bad, None), Err(TemporalError::Unreachable { .. }));
            assert!(refused, "{bad:?}");
        }
        for good in ["temporal:7233", "127.0.0.1:1", "[::1]:7233", "a.b.svc.cluster.local:443"] {
            assert!(open(good, None).is_ok(), "{good:?}");
        }
    }
}
