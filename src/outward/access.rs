//! What a request needs besides its URL: the certificates, and the headers with credentials.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

/// The shortest credential that is hidden, in bytes. A shorter one would occur in most answers by chance.
const MIN_HIDDEN: usize = 4;
const NOT_TEXT: &str = "has a credential that is no text in UTF-8";

/// The settings that a request was made from. Its messages name their fields.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Origin {
    /// A hook.
    #[default]
    Hook,
    /// A sidecar.
    Sidecar,
    /// The flags for Prometheus.
    Prometheus,
    /// The flags for the trace collector.
    Collector,
}

impl Origin {
    /// The setting with the certificate authorities.
    pub(super) fn ca(self) -> &'static str {
        match self {
            Self::Hook => "http.tls.caSecret",
            Self::Sidecar => "sidecar.tls.caSecret",
            Self::Prometheus => "--prometheus-ca-file",
            Self::Collector => "--otlp-ca-file",
        }
    }

    /// The setting with the client certificate; `None` if there is none.
    pub(super) fn client_cert(self) -> Option<&'static str> {
        match self {
            Self::Hook => Some("http.tls.clientCertSecret"),
            Self::Sidecar => Some("sidecar.tls.clientCertSecret"),
            Self::Prometheus | Self::Collector => None,
        }
    }

    /// The setting with the name to verify; for flags, the one with the URL.
    pub(super) fn server_name(self) -> &'static str {
        match self {
            Self::Hook => "http.tls.serverName",
            Self::Sidecar => "sidecar.tls.serverName",
            Self::Prometheus => "--prometheus-url",
            Self::Collector => "--otlp-endpoint",
        }
    }

    /// The setting with the bearer token.
    pub(super) fn bearer(self) -> &'static str {
        match self {
            Self::Hook => "http.auth.bearerSecret",
            Self::Sidecar => "sidecar.auth.bearerSecret",
            Self::Prometheus => "--prometheus-token-file",
            Self::Collector => "--otlp-token-file",
        }
    }

    /// The setting with headers.
    pub(super) fn headers(self) -> &'static str {
        match self {
            Self::Hook => "http.headers",
            Self::Sidecar => "sidecar",
            Self::Prometheus => "--prometheus-header",
            Self::Collector => "--otlp-header",
        }
    }

    /// The setting with the user name and the password; `None` if there is none.
    pub(super) fn basic(self) -> Option<&'static str> {
        match self {
            Self::Hook => Some("http.auth.basicSecret"),
            Self::Sidecar => Some("sidecar.auth.basicSecret"),
            Self::Prometheus | Self::Collector => None,
        }
    }
}

/// A PEM file: certificates or a key.
#[derive(Clone, Eq, PartialEq)]
pub struct Pem {
    /// Where it is from: `Secret shop/ca (http.tls.caSecret)`.
    pub(super) source: String,
    pub(super) bytes: Vec<u8>,
}

impl fmt::Debug for Pem {
    /// Without the content, which may be a private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

/// The certificates of a request, and the name that it expects. The default trusts the system's authorities.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Trust {
    pub(super) origin: Origin,
    /// Replaces the system's certificate authorities.
    pub(super) ca: Option<Pem>,
    /// The client's certificate and its key.
    pub(super) client: Option<(Pem, Pem)>,
    /// The name that the server's certificate must have; empty: the URL's host.
    pub(super) server_name: String,
}

impl Trust {
    /// The system's authorities and no client certificate.
    #[must_use]
    pub fn of(origin: Origin) -> Self {
        Self { origin, ..Self::default() }
    }
}

/// The certificates of a request, and its headers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Access {
    /// The certificates.
    pub trust: Trust,
    /// The headers. Those from Secrets and files are marked as sensitive.
    pub headers: HeaderMap,
}

impl Access {
    /// Neither certificates nor headers.
    #[must_use]
    pub fn of(origin: Origin) -> Self {
        Self { trust: Trust::of(origin), headers: HeaderMap::new() }
    }

    /// Adds a bearer token. Secrets and files often end in a newline, which is not part of it. An error is the end of a
    /// sentence that begins with the source of the token.
    pub(super) fn add_bearer(&mut self, token: &[u8]) -> Result<(), String> {
        let token = std::str::from_utf8(token).map_err(|_| NOT_TEXT)?.trim();
        if token.is_empty() {
            return Err("has no token".to_owned());
        }
        self.authorize(&format!("Bearer {token}"))
    }

    /// Adds a user name and a password.
    pub(super) fn add_basic(&mut self, username: &[u8], password: &[u8]) -> Result<(), String> {
        let text = |bytes| -> Result<&str, &str> {
            let text = std::str::from_utf8(bytes).map_err(|_| NOT_TEXT)?;
            Ok(text.trim_end_matches(['\r', '\n']))
        };
        let (username, password) = (text(username)?, text(password)?);
        if username.contains(':') {
            return Err("has a user name with a colon, which basic authentication cannot have".to_owned());
        }
        let pair = format!("{username}:{password}");
        self.authorize(&format!("Basic {}", STANDARD.encode(pair)))
    }

    fn authorize(&mut self, value: &str) -> Result<(), String> {
        let value = sensitive(value)
            .ok_or("has characters that are not allowed in an HTTP header: put a single line into it")?;
        self.headers.insert(AUTHORIZATION, value);
        Ok(())
    }
}

/// The credentials of a request, which a server may quote in its answer.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Credentials(Vec<String>);

impl Credentials {
    /// Those in sensitive headers: the whole value, and the part after the scheme, also as it was before its encoding.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let mut all = Vec::new();
        for value in
            headers.values().filter(|value| value.is_sensitive()).filter_map(|value| value.to_str().ok())
        {
            all.push(value.to_owned());
            let Some((_, rest)) = value.split_once(' ') else { continue };
            all.push(rest.to_owned());
            let decoded = STANDARD.decode(rest).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some(pair) = decoded {
                all.extend(pair.split_once(':').map(|(_, password)| password.to_owned()));
                all.push(pair);
            }
        }
        let escaped: Vec<String> = all.iter().flat_map(|one| in_json(one)).collect();
        all.extend(escaped);
        all.retain(|one| one.len() >= MIN_HIDDEN);
        // The longest come first, since one may be a part of another.
        all.sort_by_key(|one| std::cmp::Reverse(one.len()));
        all.dedup();
        Self(all)
    }

    /// A text without them.
    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, one| text.replace(one, "***"))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} credentials", self.0.len())
    }
}

/// A text as JSON has it: also with slashes escaped, and with the characters escaped that HTML uses.
fn in_json(text: &str) -> [String; 3] {
    let quoted = serde_json::Value::from(text).to_string();
    let escaped = quoted[1..quoted.len() - 1].to_owned();
    let for_html = escaped.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
    [escaped.replace('/', "\\/"), for_html, escaped]
}

/// A header's value that `Debug` does not print; `None` if no header can have it.
pub(super) fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn debug_output_shows_no_credentials() {
        let pem = |source: &str| Pem { source: source.to_owned(), bytes: b"hunter2".to_vec() };
        let mut access = Access::of(Origin::Hook);
        access.trust.ca = Some(pem("ca"));
        access.trust.client = Some((pem("cert"), pem("key")));
        access.add_bearer(b" hunter2\n").unwrap();
        let shown = format!("{access:?}");
        assert!(shown.contains("key") && !shown.contains("hunter2"), "{shown}");
        assert!(!shown.contains(&format!("{:?}", b"hunter2")), "{shown}");
        assert_eq!(access.headers[AUTHORIZATION], "Bearer hunter2");
        access.add_basic(b"ann\n", b"a:b\n").unwrap();
        assert_eq!(access.headers[AUTHORIZATION], "Basic YW5uOmE6Yg==");
        assert!(!format!("{access:?}").contains("YW5u"));
    }

    #[test]
    fn quoted_credentials_are_removed() {
        let mut access = Access::of(Origin::Hook);
        access.add_bearer(b"hunter2").unwrap();
        access.headers.append("x-key", sensitive("open sesame").unwrap());
        access.headers.append("x-plain", HeaderValue::from_static("shop"));
        let text = "got authorization: Bearer hunter2, token hunter2, x-key: open sesame, x-plain: shop";
        let shown = Credentials::of(&access.headers).hide(text);
        assert_eq!(shown, "got authorization: ***, token ***, x-key: ***, x-plain: shop");
        access.add_basic(b"ann", b"pass?/word>").unwrap();
        let text = r#"{"got": "Basic YW5uOnBhc3M/L3dvcmQ+", "is": "Basic YW5uOnBhc3M\/L3dvcmQ+", "of": "ann:pass?/word>", "or": "pass?\/word>"}"#;
        let shown = Credentials::of(&access.headers).hide(text);
        assert_eq!(shown, r#"{"got": "***", "is": "***", "of": "***", "or": "***"}"#);
    }

    #[test]
    fn token_that_no_header_can_have_is_rejected_without_quoting_it() {
        for token in [&b"hun\nter2"[..], b"", b" \n"] {
            let said = Access::of(Origin::Hook).add_bearer(token).unwrap_err();
            assert!(!said.contains("hun"), "{said}");
        }
    }
}
