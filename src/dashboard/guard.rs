//! Who may see the page, and whose clicks count: the secret of its address, and what keeps the pages of others from using it.
//!
//! The browser of whoever looks at the page may have other pages open, and any of them can send requests here. Four things
//! are asked: under which name the page was called (a name that somebody else points here is none of ours), from which page
//! a request comes, whether it has the secret, and whether a form was made here.

use std::fmt::Write as _;
use std::net::IpAddr;

use axum::http::header::{COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, Method};
use sha2::{Digest, Sha256};

/// The secrets of one run of the page.
#[derive(Clone)]
pub struct Secrets {
    /// Opens the page.
    token: String,
    /// In every form that is made here.
    form: String,
}

impl Secrets {
    /// Draws them from the operating system's source of randomness.
    pub fn draw() -> Result<Self, String> {
        Ok(Self { token: drawn()?, form: drawn()? })
    }

    /// What stands in the page's address.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// What stands in its forms.
    pub(super) fn form(&self) -> &str {
        &self.form
    }
}

fn drawn() -> Result<String, String> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| format!("no secret can be drawn: {error}"))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Whether two texts are equal, in a time that does not tell where they differ.
fn same(a: &str, b: &str) -> bool {
    Sha256::digest(a) == Sha256::digest(b)
}

/// What is asked of every request.
#[derive(Clone)]
pub struct Guard {
    secrets: Option<Secrets>,
    /// Under which port the page was called; any, where it may be forwarded from another.
    port: Option<u16>,
    /// Names under which it may be called beside those of this machine.
    names: Vec<String>,
    /// Whether it may be called by any address.
    addresses: bool,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turned {
    /// It calls the page by a name that is not its own.
    Name,
    /// It comes from another page.
    Origin,
    /// It does not know the secret.
    Secret,
}

impl Guard {
    /// Of a page on this machine alone, which takes the secret to see.
    #[must_use]
    pub fn local(port: u16, secrets: Secrets) -> Self {
        Self { secrets: Some(secrets), port: Some(port), names: Vec::new(), addresses: false }
    }

    /// Of a page that whoever reaches it may read: by an address, by `localhost`, or by one of these names.
    #[must_use]
    pub fn open(names: Vec<String>) -> Self {
        Self { secrets: None, port: None, names, addresses: true }
    }

    /// Asks all of a request but what is in its body.
    pub(super) fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Turned> {
        let host = text(headers, &HOST).filter(|host| self.is_ours(host)).ok_or(Turned::Name)?;
        let ours = |origin: &str| {
            let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
        };
        let origin = headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
        let fetch = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let site = fetch("sec-fetch-site");
        let reads = matches!(*method, Method::GET | Method::HEAD);
        // A link that somebody follows reads a page as its address does.
        let is_link = reads
            && fetch("sec-fetch-mode") == Some("navigate")
            && fetch("sec-fetch-dest") == Some("document");
        match (origin, site) {
            (Some(origin), _) if !ours(origin) => return Err(Turned::Origin),
            (_, Some(site)) if !matches!(site, "same-origin" | "none") && !is_link => {
                return Err(Turned::Origin);
            }
            // A browser says where a form comes from; what says nothing is not believed.
            (None, site) if !reads && site != Some("same-origin") => return Err(Turned::Origin),
            _ => {}
        }
        let Some(secrets) = &self.secrets else { return Ok(()) };
        let cookie = format!("{}=", self.cookie_name());
        let cookies = headers.get_all(COOKIE).into_iter().filter_map(|cookies| cookies.to_str().ok());
        let mut known = cookies.flat_map(|c| c.split(';')).filter_map(|c| c.trim().strip_prefix(&cookie));
        if known.any(|value| same(value, &secrets.token)) { Ok(()) } else { Err(Turned::Secret) }
    }

    /// The cookie that opens the page from now on, for whoever brings the secret in its address.
    pub(super) fn opened(&self, token: &str) -> Option<String> {
        let secrets = self.secrets.as_ref().filter(|secrets| same(token, &secrets.token))?;
        Some(format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie_name(), secrets.token))
    }

    /// The secret of its forms.
    pub(super) fn form(&self) -> &str {
        self.secrets.as_ref().map_or("", |secrets| secrets.form())
    }

    /// Whether a form was made here.
    pub(super) fn made(&self, form: &str) -> bool {
        self.secrets.as_ref().is_some_and(|secrets| same(form, &secrets.form))
    }

    /// A browser keeps cookies by name and host, whatever the port.
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

/// A host's name or address, and its port.
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
    fn a_name_that_somebody_points_here_is_turned_away() {
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
            let asked = guard.check(&Method::GET, &headers(&[("host", host), ("cookie", &cookie)]));
            assert_eq!(asked, if is_ours { Ok(()) } else { Err(Turned::Name) }, "{host}");
        }
        assert_eq!(guard.check(&Method::GET, &headers(&[("cookie", &cookie)])), Err(Turned::Name));
        let open = Guard::open(vec!["windlass.corp.example".into()]);
        for (host, is_ours) in [
            ("localhost:9999", true),
            ("10.0.0.1:8082", true),
            ("windlass.corp.example", true),
            ("evil.example", false),
        ] {
            let asked = open.check(&Method::GET, &headers(&[("host", host)]));
            assert_eq!(asked.is_ok(), is_ours, "{host}");
        }
    }

    #[test]
    fn a_request_of_another_page_is_turned_away_whatever_it_knows() {
        let (guard, cookie) = guard();
        let asked = |method: &Method, more: &[(&'static str, &str)]| {
            let mut all = vec![("host", "127.0.0.1:7070"), ("cookie", cookie.as_str())];
            all.extend_from_slice(more);
            guard.check(method, &headers(&all))
        };
        let (get, post) = (Method::GET, Method::POST);
        assert_eq!(asked(&get, &[]), Ok(()));
        assert_eq!(asked(&get, &[("origin", "https://evil.example")]), Err(Turned::Origin));
        for site in ["cross-site", "same-site"] {
            for method in [&get, &Method::HEAD] {
                assert_eq!(asked(method, &[("sec-fetch-site", site)]), Err(Turned::Origin), "{site}");
            }
            let link =
                [("sec-fetch-site", site), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
            assert_eq!(asked(&get, &link), Ok(()), "a link is followed");
            assert_eq!(asked(&post, &link), Err(Turned::Origin));
            let framed = [link[0], link[1], ("sec-fetch-dest", "iframe")];
            assert_eq!(asked(&get, &framed), Err(Turned::Origin));
        }
        assert_eq!(asked(&get, &[("sec-fetch-site", "none")]), Ok(()), "an address that was typed");
        assert_eq!(asked(&Method::HEAD, &[]), Ok(()));
        assert_eq!(asked(&post, &[("origin", "http://127.0.0.1:7070")]), Ok(()));
        assert_eq!(asked(&post, &[("sec-fetch-site", "same-origin")]), Ok(()));
        for origin in ["http://127.0.0.1:9090", "https://evil.example", "null", ""] {
            assert_eq!(asked(&post, &[("origin", origin)]), Err(Turned::Origin), "{origin}");
        }
        assert_eq!(asked(&post, &[]), Err(Turned::Origin), "it does not say where it comes from");
        assert_eq!(asked(&post, &[("sec-fetch-site", "cross-site")]), Err(Turned::Origin));
    }

    #[test]
    fn the_secret_opens_the_page_and_no_other_does() {
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
        assert_eq!(wrong("windlass-7070=guessed"), Err(Turned::Secret));
        assert_eq!(wrong(&cookie.replace("7070", "7071")), Err(Turned::Secret));
        assert!(guard.made(guard.form()) && !guard.made("") && !guard.made(token));
        assert!(!Guard::open(Vec::new()).made(""), "a page without secrets has no forms");
    }
}
