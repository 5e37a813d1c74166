//! The actions of probes and lifecycle hooks: exec, HTTP and TCP. Each has a time-out; an error is the message of the
//! kubelet's event.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{HTTPGetAction, TCPSocketAction};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{processes::Processes, setting::Setting};

/// The most that is read of a response or of a command's output, in bytes.
const MOST_BYTES: u64 = 10 * 1024;

/// An action.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Exec(Vec<String>),
    Http(HTTPGetAction),
    Tcp(TCPSocketAction),
    Sleep(Duration),
    Unsupported(&'static str),
}

impl Action {
    pub(crate) async fn run(
        &self,
        setting: &Setting,
        processes: &Arc<Processes>,
        within: Duration,
    ) -> Result<(), String> {
        let done = async {
            match self {
                Self::Exec(words) => exec(setting, processes, words).await,
                Self::Http(get) => http(setting, get).await,
                Self::Tcp(tcp) => connected(setting, tcp).await,
                Self::Sleep(long) => {
                    tokio::time::sleep(*long).await;
                    Ok(())
                }
                Self::Unsupported(what) => Err(format!("{what} is not supported by this kubelet")),
            }
        };
        match timeout(within, done).await {
            Ok(done) => done,
            Err(_) => Err(self.too_late(within)),
        }
    }

    fn too_late(&self, within: Duration) -> String {
        match self {
            Self::Exec(words) => format!("command timed out: {words:?} timed out after {within:?}"),
            _ => format!("no answer within {within:?} (context deadline exceeded)"),
        }
    }
}

/// Dropping the future kills the command.
async fn exec(setting: &Setting, processes: &Arc<Processes>, words: &[String]) -> Result<(), String> {
    let mut command = setting.command(words)?;
    let mut process = processes.spawn(&mut command).map_err(|error| error.to_string())?;
    let Some((out, err)) = process.output.take() else { return Err("it has no output".to_owned()) };
    let (Ok(out), Ok(err)) =
        (tokio::process::ChildStdout::from_std(out), tokio::process::ChildStderr::from_std(err))
    else {
        return Err("its output cannot be read".to_owned());
    };
    let (out, err, exit) = tokio::join!(beginning(out), beginning(err), process.ended());
    if exit.code == 0 {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&[out, err].concat()).trim_end().to_owned();
    Err(if output.is_empty() { format!("command {words:?} exited with {}", exit.code) } else { output })
}

/// The start of a pipe's output; the rest is read and discarded.
async fn beginning(mut pipe: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut text = Vec::new();
    let _ = (&mut pipe).take(MOST_BYTES).read_to_end(&mut text).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    text
}

async fn connected(setting: &Setting, tcp: &TCPSocketAction) -> Result<(), String> {
    let (host, port) = (setting.host(tcp.host.as_deref()), setting.port(&tcp.port)?);
    let stream = TcpStream::connect((host.as_str(), port)).await;
    stream.map(drop).map_err(|error| format!("dial tcp {host}:{port}: {error}"))
}

async fn http(setting: &Setting, get: &HTTPGetAction) -> Result<(), String> {
    if get.scheme.as_deref().is_some_and(|scheme| scheme != "HTTP") {
        return Err("a probe over HTTPS is not supported by this kubelet".to_owned());
    }
    let (host, port) = (setting.host(get.host.as_deref()), setting.port(&get.port)?);
    let path = get.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
    let headers = get.http_headers.iter().flatten();
    let own = |name: &str| headers.clone().any(|header| header.name.eq_ignore_ascii_case(name));
    let mut request = format!("GET /{} HTTP/1.1\r\nConnection: close\r\n", path.trim_start_matches('/'));
    let usual = [
        ("Host", format!("{host}:{port}")),
        ("User-Agent", "kube-probe/1.36".to_owned()),
        ("Accept", "*/*".to_owned()),
    ];
    for (name, value) in usual.iter().filter(|(name, _)| !own(name)) {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    for header in headers.clone() {
        let _ = write!(request, "{}: {}\r\n", header.name, header.value);
    }
    request.push_str("\r\n");
    let failed = |error: std::io::Error| format!("Get \"http://{host}:{port}{path}\": {error}");
    let mut stream = TcpStream::connect((host.as_str(), port)).await.map_err(failed)?;
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    while status(&answer).is_none() && answer.len() < 256 {
        if stream.read_buf(&mut answer).await.map_err(failed)? == 0 {
            break;
        }
    }
    // The rest is irrelevant, but a server may log a connection that is closed early.
    let _ = (&mut stream).take(MOST_BYTES).read_to_end(&mut answer).await;
    match status(&answer) {
        Some(code) if (200..400).contains(&code) => Ok(()),
        Some(code) => Err(format!("HTTP probe failed with statuscode: {code}")),
        None => Err(format!("Get \"http://{host}:{port}{path}\": the answer is no HTTP")),
    }
}

/// The status code of a response, once its first line is complete.
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next().filter(|line| line.len() < answer.len())?;
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}
