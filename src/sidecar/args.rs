//! What `windlass sidecar` is told on its command line, and the command itself.

use std::net::SocketAddr;
use std::path::PathBuf;

use reqwest::Url;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::server::{SidecarServer, serve};
use super::token::TokenFile;
#[cfg(feature = "cli")]
use super::url::parse_http;

/// The arguments of `windlass sidecar`.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct SidecarArgs {
    /// The address to serve on
    #[cfg_attr(feature = "cli", arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7777"))]
    pub bind: SocketAddr,

    /// The application's URL that answers 2xx once it has caught up, unless its body is `false` or
    /// `{"caughtUp": false}`; without it, a node has caught up when it is ready
    #[cfg_attr(feature = "cli", arg(long, value_name = "URL", value_parser = application_url))]
    pub caught_up_url: Option<Url>,

    /// The application's URL that answers with its height: a whole number, or `{"height": n}`
    #[cfg_attr(feature = "cli", arg(long, value_name = "URL", value_parser = application_url))]
    pub height_url: Option<Url>,

    /// A file with the bearer token that tasks must come with
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub token_file: Option<PathBuf>,
}

#[cfg(feature = "cli")]
fn application_url(text: &str) -> Result<Url, String> {
    parse_http(text).map_err(|fault| format!("it {fault}"))
}

/// Serves until the process is told to stop (SIGTERM or SIGINT). The error is one sentence that says what
/// to do.
pub async fn run(args: SidecarArgs) -> Result<(), String> {
    let server = SidecarServer::new(&args)?;
    if let Some(file) = args.token_file.clone().map(TokenFile) {
        // A sidecar that could take no task at all should say so when it starts, not when it is asked.
        file.read().await?;
    }
    let told_to_stop = told_to_stop()?;
    let listener = TcpListener::bind(args.bind).await.map_err(|error| {
        format!("cannot serve on {} ({error}): choose another address with --bind", args.bind)
    })?;
    tracing::info!(address = %args.bind, "the sidecar serves");
    serve(listener, server, told_to_stop)
        .await
        .map_err(|error| format!("the sidecar stopped serving: {error}"))
}

/// Resolves at the first signal. The handlers stand when this returns: as process 1 of a container, a
/// signal without one would be ignored.
fn told_to_stop() -> Result<impl Future<Output = ()> + Send + 'static, String> {
    let on = |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
