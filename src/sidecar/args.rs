//! The command line of `windlass sidecar`.

use std::net::SocketAddr;
use std::path::PathBuf;

use reqwest::Url;

#[cfg(feature = "cli")]
use super::url::parse_http;

/// The arguments of `windlass sidecar`.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct SidecarArgs {
    /// The address to serve on; 0.0.0.0 is every address, IPv6 as well
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
