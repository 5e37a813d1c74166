//! The configuration of a sidecar's server.

use std::net::SocketAddr;
use std::path::PathBuf;

use url::Url;

/// The arguments of [`SidecarServer::new`](super::SidecarServer::new), which are those of `windlass sidecar`.
#[derive(Clone, Debug)]
pub struct SidecarArgs {
    /// The address to listen on; 0.0.0.0 means every address, including IPv6.
    pub bind: SocketAddr,
    /// The application's URL that answers 2xx once it has caught up, unless its body is `false` or
    /// `{"caughtUp": false}`; without it, a node has caught up when it is ready.
    pub caught_up_url: Option<Url>,
    /// The application's URL that answers with its height: a whole number, or `{"height": n}`.
    pub height_url: Option<Url>,
    /// The application's URL that answers with its role: a text, or `{"role": "primary"}`.
    pub role_url: Option<Url>,
    /// A file with the bearer token that requests for tasks must have.
    pub token_file: Option<PathBuf>,
}
