//! The log endpoint for the API server: `/containerLogs/{namespace}/{pod}/{container}` over HTTPS, on loopback, with
//! a self-signed certificate that is not verified.

use std::{
    io::SeekFrom,
    net::Ipv4Addr,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Path, RawQuery, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures::stream::unfold;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use percent_encoding::percent_decode_str;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::{
    io::{AsyncReadExt, AsyncSeekExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
    server::TlsStream,
};

use crate::{
    Error, clock,
    context::{Shared, log_of},
    logs::{Open, Part, shown},
};

/// The polling interval of followers.
const POLL: Duration = Duration::from_millis(100);
/// The time-out of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Binds a port of the loopback address.
pub(crate) async fn listen() -> Result<(u16, TcpListener), Error> {
    let failed = || Error::io("no port of loopback can be listened on");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed())?;
    let port = listener.local_addr().map_err(failed())?.port();
    Ok((port, listener))
}

/// The connections after their handshake.
struct Secured {
    connections: mpsc::Receiver<(TlsStream<TcpStream>, std::net::SocketAddr)>,
    address: std::net::SocketAddr,
}

impl axum::serve::Listener for Secured {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(self.address)
    }
}

/// Serves logs until dropped.
pub(crate) fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
) -> Result<impl Future<Output = ()> + Send, Error> {
    let acceptor = acceptor()?;
    let address = listener.local_addr().map_err(Error::io("the endpoint of logs has no address"))?;
    let (hand_in, connections) = mpsc::channel(64);
    let accept = async move {
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                sleep(POLL).await;
                continue;
            };
            let (acceptor, hand_in) = (acceptor.clone(), hand_in.clone());
            tokio::spawn(async move {
                if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await {
                    let _ = hand_in.send((stream, peer)).await;
                }
            });
        }
    };
    let router =
        Router::new().route("/containerLogs/{namespace}/{pod}/{container}", get(logs)).with_state(shared);
    let serve = axum::serve(Secured { connections, address }, router);
    Ok(async move {
        tokio::select! {
            () = accept => {}
            _ = serve.into_future() => {}
        }
    })
}

fn acceptor() -> Result<TlsAcceptor, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Certificate(error.to_string());
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).map_err(|e| failed(&e))?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&e))?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .map_err(|e| failed(&e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn logs(
    State(shared): State<Arc<Shared>>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    let parameter = |name: &str| {
        let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        pair.and_then(|value| percent_decode_str(value).decode_utf8().ok()).map(std::borrow::Cow::into_owned)
    };
    let yes = |name: &str| parameter(name).is_some_and(|value| value == "true");
    let refused = |why: String| (StatusCode::BAD_REQUEST, why).into_response();
    let file =
        shared.latest(&namespace, &pod).and_then(|folder| newest(&folder, &container, yes("previous")));
    let Some(file) = file else {
        return refused(if yes("previous") {
            format!("previous terminated container {container:?} in pod {pod:?} not found")
        } else {
            format!("container {container:?} in pod {pod:?} is waiting to start")
        });
    };
    let ago = parameter("sinceSeconds").and_then(|seconds| seconds.parse().ok());
    let since = ago.and_then(|ago| clock::now().checked_sub(SignedDuration::from_secs(ago)).ok());
    let part = Part {
        tail: parameter("tailLines").and_then(|lines| lines.parse().ok()),
        since: since.or_else(|| parameter("sinceTime").and_then(|time| time.parse::<Timestamp>().ok())),
        timestamps: yes("timestamps"),
    };
    let most = parameter("limitBytes").and_then(|bytes| bytes.parse().ok()).unwrap_or(usize::MAX);
    let written = match tokio::fs::File::open(&file).await {
        Ok(written) => written,
        Err(error) => return refused(format!("the log of container {container:?} cannot be read: {error}")),
    };
    let reading = Reading {
        open: shared.logs.clone(),
        file,
        written,
        part,
        at: 0,
        left: most,
        follow: yes("follow"),
        last: false,
    };
    Body::from_stream(unfold(reading, Reading::next)).into_response()
}

/// The log file of the latest run, or of the one before.
fn newest(folder: &FilePath, container: &str, previous: bool) -> Option<PathBuf> {
    let runs = std::fs::read_dir(folder.join("logs").join(container)).ok()?;
    let numbers = runs.filter_map(|run| run.ok()?.path().file_stem()?.to_str()?.parse::<i32>().ok());
    let newest = numbers.max()?;
    let file = log_of(folder, container, if previous { newest - 1 } else { newest });
    file.is_file().then_some(file)
}

/// A log that is read in pieces.
struct Reading {
    open: Open,
    file: PathBuf,
    /// Stays open: a deleted pod removes its folder, and the last lines are still to be read.
    written: tokio::fs::File,
    part: Part,
    at: u64,
    left: usize,
    follow: bool,
    last: bool,
}

impl Reading {
    async fn next(mut self) -> Option<(Result<Bytes, std::io::Error>, Self)> {
        loop {
            if self.last || self.left == 0 {
                return None;
            }
            // Checked before reading: what was written before it was closed is read below.
            let goes_on = self.follow && self.open.is(&self.file);
            let mut new = Vec::new();
            if let Err(error) = self.written.seek(SeekFrom::Start(self.at)).await {
                return Some((Err(error), Self { last: true, ..self }));
            }
            if let Err(error) = self.written.read_to_end(&mut new).await {
                return Some((Err(error), Self { last: true, ..self }));
            }
            let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let mut text = shown(&new[..whole], &self.part);
            self.at += whole as u64;
            // The tail and time limits only apply to the existing part.
            self.part.tail = None;
            self.last = !goes_on;
            text.truncate(self.left);
            self.left -= text.len();
            if !text.is_empty() {
                return Some((Ok(Bytes::from(text)), self));
            }
            if self.last {
                return None;
            }
            sleep(POLL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn followed_log_is_read_to_its_end_after_folder_deletion() {
        let path = std::env::temp_dir().join(format!("process-kubelet-followed-{}", std::process::id()));
        let open = Open::default();
        let log = open.create(&path).unwrap();
        log.clone().keep(b"first\n".as_slice(), "stdout").await;
        let written = tokio::fs::File::open(&path).await.unwrap();
        let part = Part::default();
        let reading = Reading {
            open,
            file: path.clone(),
            written,
            part,
            at: 0,
            left: usize::MAX,
            follow: true,
            last: false,
        };
        let (text, reading) = reading.next().await.unwrap();
        assert_eq!(text.unwrap(), "first\n");
        log.keep(b"last\n".as_slice(), "stdout").await;
        std::fs::remove_file(&path).unwrap();
        let (text, reading) = reading.next().await.unwrap();
        assert_eq!(text.unwrap(), "last\n");
        assert!(reading.next().await.is_none());
    }
}
