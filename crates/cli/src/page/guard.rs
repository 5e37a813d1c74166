//! Authorizes requests to the page: by the secret in its address, and by checks against requests from other sites.
//!
//! The user's browser may have other pages open, each of which can send requests here. Four things are checked: the
//! Host header (another name may resolve to this address: DNS rebinding), the origin of the request, the secret, and
//! whether this page made the form.

use std::fmt::Write as _;
use std::net::IpAddr;

use axum::http::header::{COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, Method};
use sha2::{Digest, Sha256};

/// The secrets of one run of the page.
#[derive(Clone)]
pub struct Secrets {
    /// Grants access to the page.
    token: String,
    /// The CSRF token in every form.
    form: String,
}

impl Secrets {
    /// Generates them from the operating system's random source.
    pub fn draw() -> Result<Self, String> {
        Ok(Self { token: drawn()?, form: drawn()? })
    }

    /// The token in the page's address.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The CSRF token.
    pub(super) fn form(&self) -> &str {
        &self.form
    }
}

fn drawn() -> Result<String, String> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| format!("cannot generate a secret: {error}"))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Compares in constant time.
fn same(a: &str, b: &str) -> bool {
    Sha256::digest(a) == Sha256::digest(b)
}

/// The checks of every request.
#[derive(Clone)]
pub struct Guard {
    secrets: Option<Secrets>,
    /// The port in the Host header; `None` accepts any, since a proxy may forward from another.
    port: Option<u16>,
    /// The host names that are accepted besides those of this machine.
    names: Vec<String>,
    /// True to accept any IP address as the host.
    addresses: bool,
}

/// Why a request is denied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Denial {
    /// The Host header is not one of the page's names.
    Name,
    /// Another site sent it.
    Origin,
    /// The secret is missing or wrong.
    Secret,
}

impl Guard {
    /// For a page on this machine, which requires the secret.
    #[must_use]
    pub fn local(port: u16, secrets: Secrets) -> Self {
        Self { secrets: Some(secrets), port: Some(port), names: Vec::new(), addresses: false }
    }

    /// For a page that everyone who can reach it may read: by address, by `localhost`, or by one of these names.
    #[must_use]
    pub fn open(names: Vec<String>) -> Self {
        Self { secrets: None, port: None, names, addresses: true }
    }

    /// Checks a request, except for its body.
    pub(super) fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Denial> {
        let host = text(headers, &HOST).filter(|host| self.is_ours(host)).ok_or(Denial::Name)?;
        let ours = |origin: &str| {
            let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
        };
        let origin = headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
        let fetch = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let site = fetch("sec-fetch-site");
        let reads = matches!(*method, Method::GET | Method::HEAD);
        // Following a link is allowed, like typing the address.
        let is_link = reads
            && fetch("sec-fetch-mode") == Some("navigate")
            && fetch("sec-fetch-dest") == Some("document");
        match (origin, site) {
            (Some(origin), _) if !ours(origin) => return Err(Denial::Origin),
            (_, Some(site)) if !matches!(site, "same-origin" | "none") && !is_link => {
                return Err(Denial::Origin);
            }
            // Browsers send the origin of a form; without one, a write is refused.
            (None, site) if !reads && site != Some("same-origin") => return Err(Denial::Origin),
            _ => {}
        }
        let Some(secrets) = &self.secrets else { return Ok(()) };
        let cookie = format!("{}=", self.cookie_name());
        let cookies = headers.get_all(COOKIE).into_iter().filter_map(|cookies| cookies.to_str().ok());
        let mut known = cookies.flat_map(|c| c.split(';')).filter_map(|c| c.trim().strip_prefix(&cookie));
        if known.any(|value| same(value, &secrets.token)) { Ok(()) } else { Err(Denial::Secret) }
    }

    /// The cookie that grants access from now on, if this token is right.
    pub(super) fn opened(&self, token: &str) -> Option<String> {
        let secrets = self.secrets.as_ref().filter(|secrets| same(token, &secrets.token))?;
        Some(format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie_name(), secrets.token))
    }

    /// The CSRF token of its forms.
    pub(super) fn form(&self) -> &str {
        self.secrets.as_ref().map_or("", |secrets| secrets.form())
    }

    /// True if this page made the form.
    pub(super) fn made(&self, form: &str) -> bool {
        self.secrets.as_ref().is_some_and(|secrets| same(form, &secrets.form))
    }

    /// Contains the port: browsers share cookies between the ports of a host.
    fn cookie_name(&self) -> String {
        format!("windlass-{}", self.port.unwrap_or_default())
    }

    fn is_ours(&self, host: &str) -> bool {
        let (name, port) = split(host);
        if self.port.is_some_and(|wanted| port != Some(wanted)) {
            return false;
        }
        if name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
        {
            return true;
        }
        name.parse::<IpAddr>().is_ok_and(|address| self.addresses || address.is_loopback())
    }
}

/// Splits a Host header into name or address, and port.
fn split(host: &str) -> (&str, Option<u16>) {
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return (address, rest.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match host.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok()),
        None => (host, None),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> (Guard, String) {
        let secrets = Secrets::draw().unwrap();
        let cookie = format!("other=1; windlass-7070={}", secrets.token());
        (Guard::local(7070, secrets), cookie)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn foreign_host_name_is_denied() {
        let (guard, cookie) = guard();
        for (host, is_ours) in [
            ("127.0.0.1:7070", true),
            ("localhost:7070", true),
            ("[::1]:7070", true),
            ("127.0.0.1:7071", false),
            ("127.0.0.1", false),
            ("evil.example:7070", false),
            ("localhost.evil.example:7070", false),
            ("10.0.0.1:7070", false),
        ] {
            let checked = guard.check(&Method::GET, &headers(&[("host", host), ("cookie", &cookie)]));
            assert_eq!(checked, if is_ours { Ok(()) } else { Err(Denial::Name) }, "{host}");
        }
        assert_eq!(guard.check(&Method::GET, &headers(&[("cookie", &cookie)])), Err(Denial::Name));
        let open = Guard::open(vec!["windlass.corp.example".into()]);
        for (host, is_ours) in [
            ("localhost:9999", true),
            ("10.0.0.1:8082", true),
            ("windlass.corp.example", true),
            ("evil.example", false),
        ] {
            let checked = open.check(&Method::GET, &headers(&[("host", host)]));
            assert_eq!(checked.is_ok(), is_ours, "{host}");
        }
    }

    #[test]
    fn cross_site_request_is_denied_even_with_valid_cookie() {
        let (guard, cookie) = guard();
        let checked = |method: &Method, more: &[(&'static str, &str)]| {
            let mut all = vec![("host", "127.0.0.1:7070"), ("cookie", cookie.as_str())];
            all.extend_from_slice(more);
            guard.check(method, &headers(&all))
        };
        let (get, post) = (Method::GET, Method::POST);
        assert_eq!(checked(&get, &[]), Ok(()));
        assert_eq!(checked(&get, &[("origin", "https://evil.example")]), Err(Denial::Origin));
        for site in ["cross-site", "same-site"] {
            for method in [&get, &Method::HEAD] {
                assert_eq!(checked(method, &[("sec-fetch-site", site)]), Err(Denial::Origin), "{site}");
            }
            let link =
                [("sec-fetch-site", site), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
            assert_eq!(checked(&get, &link), Ok(()), "a link is followed");
            assert_eq!(checked(&post, &link), Err(Denial::Origin));
            let framed = [link[0], link[1], ("sec-fetch-dest", "iframe")];
            assert_eq!(checked(&get, &framed), Err(Denial::Origin));
        }
        assert_eq!(checked(&get, &[("sec-fetch-site", "none")]), Ok(()), "an address that was typed");
        assert_eq!(checked(&Method::HEAD, &[]), Ok(()));
        assert_eq!(checked(&post, &[("origin", "http://127.0.0.1:7070")]), Ok(()));
        assert_eq!(checked(&post, &[("sec-fetch-site", "same-origin")]), Ok(()));
        for origin in ["http://127.0.0.1:9090", "https://evil.example", "null", ""] {
            assert_eq!(checked(&post, &[("origin", origin)]), Err(Denial::Origin), "{origin}");
        }
        assert_eq!(checked(&post, &[]), Err(Denial::Origin), "a request without an origin");
        assert_eq!(checked(&post, &[("sec-fetch-site", "cross-site")]), Err(Denial::Origin));
    }

    #[test]
    fn only_the_generated_token_opens_the_page() {
        let (guard, cookie) = guard();
        let token = cookie.rsplit('=').next().unwrap();
        let set = guard.opened(token).unwrap();
        assert!(set.starts_with(&format!("windlass-7070={token};")), "{set}");
        assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
        assert_eq!(guard.opened("guessed"), None);
        assert_eq!(guard.opened(""), None);
        let wrong = |cookie: &str| {
            guard.check(&Method::GET, &headers(&[("host", "localhost:7070"), ("cookie", cookie)]))
        };
        assert_eq!(wrong("windlass-7070=guessed"), Err(Denial::Secret));
        assert_eq!(wrong(&cookie.replace("7070", "7071")), Err(Denial::Secret));
        assert!(guard.made(guard.form()) && !guard.made("") && !guard.made(token));
        assert!(!Guard::open(Vec::new()).made(""), "a page without secrets has no forms");
    }
}
