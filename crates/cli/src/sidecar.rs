//! `windlass sidecar`: its arguments. What it serves is the library's (`src/sidecar`).

use std::net::SocketAddr;
use std::path::PathBuf;

use url::Url;
use windlass::internal::parse_http;

/// The arguments of `windlass sidecar`.
#[derive(Debug, clap::Args)]
pub struct SidecarArgs {
    /// The address to serve on; 0.0.0.0 listens on every address, also IPv6
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7777")]
    bind: SocketAddr,

    /// The application's URL that returns 2xx once it has caught up, unless the body is `false` or
    /// `{"caughtUp": false}`; without it, a node has caught up when it is ready
    #[arg(long, value_name = "URL", value_parser = application_url)]
    caught_up_url: Option<Url>,

    /// The application's URL that returns its height: a whole number, or `{"height": n}`
    #[arg(long, value_name = "URL", value_parser = application_url)]
    height_url: Option<Url>,

    /// The application's URL that returns its role: a text, or `{"role": "primary"}`
    #[arg(long, value_name = "URL", value_parser = application_url)]
    role_url: Option<Url>,

    /// A file with the bearer token that requests for tasks must have
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

fn application_url(text: &str) -> Result<Url, String> {
    parse_http(text).map_err(|fault| format!("it {fault}"))
}

/// Serves the sidecar's protocol until SIGTERM or SIGINT.
pub async fn run(arguments: SidecarArgs) -> Result<(), String> {
    let SidecarArgs { bind, caught_up_url, height_url, role_url, token_file } = arguments;
    let arguments = windlass::sidecar::SidecarArgs { bind, caught_up_url, height_url, role_url, token_file };
    windlass::sidecar::run(arguments).await
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::SidecarArgs;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        sidecar: SidecarArgs,
    }

    fn parse(flags: &[&str]) -> Result<SidecarArgs, String> {
        let words = ["sidecar"].iter().chain(flags);
        Command::try_parse_from(words).map(|command| command.sidecar).map_err(|error| error.to_string())
    }

    #[test]
    fn all_arguments_are_optional() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.bind.to_string(), "0.0.0.0:7777");
        assert_eq!((args.caught_up_url, args.height_url, args.token_file), (None, None, None));
    }

    #[test]
    fn all_arguments_are_parsed() {
        let args = parse(&[
            "--bind=[::1]:9",
            "--caught-up-url=http://127.0.0.1:1/ok",
            "--height-url=http://127.0.0.1:1/height",
            "--token-file=token",
        ])
        .unwrap();
        assert_eq!(args.bind.to_string(), "[::1]:9");
        assert_eq!(args.caught_up_url.unwrap().path(), "/ok");
        assert_eq!(args.height_url.unwrap().path(), "/height");
        assert_eq!(args.token_file.unwrap().to_str(), Some("token"));
    }

    #[test]
    fn unsupported_url_is_a_usage_error() {
        for (url, part) in
            [("https://127.0.0.1/", "http://"), ("127.0.0.1:80", "not a URL"), ("", "not a URL")]
        {
            for flag in ["--caught-up-url", "--height-url"] {
                let error = parse(&[&format!("{flag}={url}")]).unwrap_err();
                assert!(error.contains(flag) && error.contains(part), "{error}");
            }
        }
    }
}
