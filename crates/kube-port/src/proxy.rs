//! The route to an API server: direct, or through the proxy that a kubeconfig's `proxy-url` or `HTTPS_PROXY` names.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use kube::Config;
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceExt};

/// A connector to an API server.
#[derive(Clone)]
pub(crate) enum Route {
    Straight(HttpConnector),
    /// Through an HTTP proxy, by CONNECT.
    Http(Tunnel<HttpConnector>),
    Socks(SocksV5<HttpConnector>),
}

impl Route {
    /// The route to the cluster of this configuration. The error names a proxy of an unsupported kind.
    pub fn of(config: &Config, tcp: HttpConnector) -> kube::Result<Self> {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(proxy) = proxy(config, env) else { return Ok(Self::Straight(tcp)) };
        match proxy.uri().scheme_str() {
            Some("http") => {
                let tunnel = Tunnel::new(proxy.uri().clone(), tcp);
                Ok(Self::Http(match proxy.basic_auth() {
                    Some(auth) => tunnel.with_auth(auth.clone()),
                    None => tunnel,
                }))
            }
            Some("socks5" | "socks5h") => {
                let socks = SocksV5::new(proxy.uri().clone(), tcp);
                let socks = socks.local_dns(proxy.uri().scheme_str() == Some("socks5"));
                Ok(Self::Socks(match proxy.raw_auth() {
                    Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                    None => socks,
                }))
            }
            _ => Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy.uri().clone()) }),
        }
    }
}

/// The proxy for a cluster, if any. The kubeconfig's own proxy is always used. As in every Kubernetes client, the
/// environment's proxy is not used for this machine, nor if `NO_PROXY` has the API server. kube-rs puts both proxies
/// into one field.
fn proxy(config: &Config, env: impl Fn(&str) -> Option<String>) -> Option<Intercept> {
    let either = |upper: &str, lower: &str| env(upper).or_else(|| env(lower));
    let url = config.proxy_url.as_ref()?;
    let of_environment = either("HTTPS_PROXY", "https_proxy")
        .is_some_and(|value| value.parse::<Uri>().ok().as_ref() == Some(url));
    let mut matcher = Matcher::builder().all(url.to_string());
    if of_environment {
        if is_loopback(&config.cluster_url) {
            return None;
        }
        matcher = matcher.no(either("NO_PROXY", "no_proxy").unwrap_or_default());
    }
    matcher.build().intercept(&config.cluster_url)
}

fn is_loopback(cluster: &Uri) -> bool {
    let host = cluster.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Service<Uri> for Route {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each connection uses a clone, which is made ready by `oneshot`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, cluster: Uri) -> Self::Future {
        match self.clone() {
            Self::Straight(tcp) => Box::pin(async move { Ok(tcp.oneshot(cluster).await?) }),
            Self::Http(tunnel) => Box::pin(async move { Ok(tunnel.oneshot(cluster).await?) }),
            Self::Socks(socks) => Box::pin(async move { Ok(socks.oneshot(cluster).await?) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster, the proxy that kube-rs found for it, the environment, and the proxy that is used.
    type Case =
        (&'static str, Option<&'static str>, &'static [(&'static str, &'static str)], Option<&'static str>);

    #[test]
    fn environment_proxy_is_bypassed_according_to_no_proxy() {
        let far = "https://api.example:6443";
        let table: [Case; 10] = [
            (far, None, &[], None),
            (far, Some("http://proxy:3128"), &[], Some("http://proxy:3128/")),
            (far, Some("http://proxy:3128"), &[("NO_PROXY", "api.example")], Some("http://proxy:3128/")),
            ("https://127.0.0.1:6443", Some("http://proxy:3128"), &[], Some("http://proxy:3128/")),
            (far, Some("http://env:1"), &[("HTTPS_PROXY", "http://env:1")], Some("http://env:1/")),
            (
                far,
                Some("http://env:1"),
                &[("https_proxy", "http://env:1"), ("no_proxy", "10.0.0.0/8,.example")],
                None,
            ),
            (far, Some("http://env:1"), &[("HTTPS_PROXY", "http://env:1"), ("NO_PROXY", "*")], None),
            (
                "https://10.1.2.3",
                Some("http://env:1"),
                &[("HTTPS_PROXY", "http://env:1"), ("NO_PROXY", "10.0.0.0/8")],
                None,
            ),
            ("https://[::1]:6443", Some("http://env:1"), &[("HTTPS_PROXY", "http://env:1")], None),
            ("https://localhost", Some("http://env:1"), &[("HTTPS_PROXY", "http://env:1")], None),
        ];
        for (cluster, url, environment, expected) in table {
            let mut config = Config::new(cluster.parse().unwrap());
            config.proxy_url = url.map(|url| url.parse().unwrap());
            let env = |name: &str| {
                environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            let found = proxy(&config, env).map(|proxy| proxy.uri().to_string());
            assert_eq!(found.as_deref(), expected, "{cluster} {url:?} {environment:?}");
        }
    }

    #[test]
    fn unsupported_proxy_scheme_is_refused() {
        let mut config = Config::new("https://api.example".parse().unwrap());
        for (url, is_known) in
            [("http://a:1", true), ("socks5://me:secret@a:1", true), ("socks4://a:1", false)]
        {
            config.proxy_url = Some(url.parse().unwrap());
            assert_eq!(Route::of(&config, HttpConnector::new()).is_ok(), is_known, "{url}");
        }
    }
}
