//! Certificate authorities, and HTTPS servers on loopback that use them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        Self::named("an authority of a test")
    }

    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The certificate of the authority, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Its own certificate as that of a server.
    pub fn itself(&self) -> Identity {
        Identity { certificate: self.0.pem(), key: self.0.key().serialize_pem() }
    }

    /// A server's certificate with these names.
    pub fn server(&self, names: &[&str]) -> Identity {
        self.issue(names, |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// A client's certificate.
    pub fn client(&self) -> Identity {
        self.issue(&[], |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth])
    }

    /// A server's certificate that expired in 2021.
    pub fn expired(&self, names: &[&str]) -> Identity {
        self.issue(names, |params| {
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 2), date_time_ymd(2021, 1, 2));
        })
    }

    /// A server's certificate that is valid from 2999.
    pub fn early(&self, names: &[&str]) -> Identity {
        self.issue(names, |params| params.not_before = date_time_ymd(2999, 1, 2))
    }

    fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Identity { certificate: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        roots
    }
}

/// A request that a server received.
#[derive(Clone, Debug)]
pub struct Received {
    /// `POST /drain`.
    pub request: String,
    /// The headers, with names in lowercase.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    /// The name that the client asked for (SNI).
    pub server_name: Option<String>,
    /// True if the client sent a certificate.
    pub has_certificate: bool,
}

/// What a server expects of TLS.
#[derive(Clone, Copy, Default)]
pub struct TlsOptions<'a> {
    /// Requires client certificates of this authority.
    pub clients: Option<&'a Authority>,
    /// Speaks TLS 1.2 only.
    pub is_old: bool,
}

type Answer = dyn Fn(&Received) -> (u16, String) + Send + Sync;

/// An HTTPS server on loopback, stopped on drop. It closes the connection after each answer.
pub struct TlsServer {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    acceptor: Arc<Mutex<TlsAcceptor>>,
    serving: JoinHandle<()>,
}

impl TlsServer {
    pub async fn start(
        identity: &Identity,
        options: TlsOptions<'_>,
        answer: impl Fn(&Received) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = Arc::new(Mutex::new(acceptor(identity, options)));
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let answer: Arc<Answer> = Arc::new(answer);
        let (log, current) = (received.clone(), acceptor.clone());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = current.lock().unwrap().clone();
                tokio::spawn(serve(stream, acceptor, log.clone(), answer.clone()));
            }
        });
        Self { address, received, acceptor, serving }
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// New connections get this certificate.
    pub fn renew(&self, identity: &Identity, options: TlsOptions<'_>) {
        *self.acceptor.lock().unwrap() = acceptor(identity, options);
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn acceptor(identity: &Identity, options: TlsOptions<'_>) -> TlsAcceptor {
    let provider = Arc::new(ring::default_provider());
    let versions = if options.is_old { vec![&TLS12] } else { vec![&TLS13, &TLS12] };
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions).unwrap();
    let builder = match options.clients {
        None => builder.with_no_client_auth(),
        Some(authority) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(authority.roots()), provider)
                .build()
                .unwrap(),
        ),
    };
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
}

async fn serve(
    stream: tokio::net::TcpStream,
    acceptor: TlsAcceptor,
    log: Arc<Mutex<Vec<Received>>>,
    answer: Arc<Answer>,
) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let session = stream.get_ref().1;
    let server_name = session.server_name().map(str::to_owned);
    let has_certificate = session.peer_certificates().is_some();
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) if line.trim_end().is_empty() => break,
            Ok(_) => lines.push(line.trim_end().to_owned()),
        }
    }
    let Some((first, rest)) = lines.split_first() else { return };
    let headers: BTreeMap<String, String> = rest
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    if stream.read_exact(&mut body).await.is_err() {
        return;
    }
    let request = first.trim_end_matches(" HTTP/1.1").to_owned();
    let received = Received { request, headers, body, server_name, has_certificate };
    let (status, text) = answer(&received);
    log.lock().unwrap().push(received);
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let _ = stream.write_all(format!("{head}{text}").as_bytes()).await;
    let _ = stream.shutdown().await;
}
