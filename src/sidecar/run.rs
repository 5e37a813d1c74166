//! The command `windlass sidecar`.

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::args::SidecarArgs;
use super::server::{SidecarServer, serve};
use super::token::TokenFile;
use crate::listen::listen;

/// Serves until SIGTERM or SIGINT. The error is one sentence that says what to do.
pub async fn run(args: SidecarArgs) -> Result<(), String> {
    let server = SidecarServer::new(&args);
    if let Some(file) = args.token_file.clone().map(TokenFile) {
        // A sidecar that could accept no task should fail at its start.
        file.read().await?;
    }
    let stop_signal = stop_signal()?;
    let listener = listen(args.bind).and_then(TcpListener::from_std).map_err(|error| {
        format!("cannot listen on {} ({error}): choose another address with --bind", args.bind)
    })?;
    tracing::info!(address = %args.bind, "the sidecar is listening");
    serve(listener, server, stop_signal)
        .await
        .map_err(|error| format!("the sidecar stopped serving: {error}"))
}

/// Resolves at the first signal. The handlers are installed before this returns: as process 1 of a container, signals
/// without a handler are ignored.
fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, String> {
    let on = |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
