//! Restricts where a hook's request may go: to a node of the fleet, or to a host that the operator's flags allow.
//! Otherwise anyone who may write fleets could make the operator call internal services.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use url::Url;

use super::values::{Filled, Piece, ValueName, Values};

/// An allowed host: a name or an address, without a port, normalized.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Host(String);

impl Host {
    /// Parses a host. An error is a sentence with the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let is_six = bare.parse::<Ipv6Addr>().is_ok();
        let is_name = bare == text && text.chars().all(|c| c.is_alphanumeric() || ".-_".contains(c));
        let url = if is_six { format!("http://[{bare}]/") } else { format!("http://{text}/") };
        let host = Url::parse(&url).ok().filter(|_| is_six || is_name).and_then(|url| Self::of(&url));
        host.ok_or_else(|| {
            format!(
                "{text:?} is not a host: use a name or an IP address without http://, port or path, such as \
                 alertmanager.monitoring.svc, 10.0.0.7 or fd00::7"
            )
        })
    }

    /// The host of a URL, without the brackets of an address and the final dot of a name.
    fn of(url: &Url) -> Option<Self> {
        let host = url.host_str()?.trim_start_matches('[').trim_end_matches([']', '.']);
        (!host.is_empty()).then(|| Self(host.to_owned()))
    }

    /// In the form that is compared with a URL's host.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The destination of a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Peer {
    /// The pod of the hook's node.
    Pod,
    /// An allowed host.
    Host(Host),
}

/// A hook's URL with an allowed host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookUrl {
    /// The destination.
    pub peer: Peer,
    text: Filled,
}

impl HookUrl {
    /// Parses a URL. An error is the end of a sentence that begins with `http.url`.
    pub fn parse(text: &str, allowed: &BTreeSet<Host>) -> Result<Self, String> {
        let filled = Filled::parse(text)?;
        if let Some(odd) = text.chars().find(|c| c.is_whitespace() || c.is_control() || *c == '\\') {
            return Err(format!("has the character {odd:?}, which is not allowed in a URL"));
        }
        let peer = peer(&filled, allowed)?;
        Ok(Self { peer, text: filled })
    }

    /// Its placeholders.
    pub fn values(&self) -> impl Iterator<Item = ValueName> {
        self.text.values()
    }

    /// The URL with its values filled in and escaped.
    pub fn fill(&self, values: &Values) -> Result<String, String> {
        let in_host = matches!(self.peer, Peer::Pod);
        let mut is_first = in_host;
        let mut pieces = self.text.clone();
        // Only as the host, an IPv6 address gets its brackets.
        for piece in &mut pieces.pieces {
            if is_first && *piece == Piece::Value(ValueName::PodIp) {
                is_first = false;
                let address = values.get(ValueName::PodIp).filter(|ip| !ip.is_empty());
                let address = address.ok_or("{{podIP}} is not known")?;
                let written = match address.parse::<IpAddr>() {
                    Ok(IpAddr::V4(address)) => address.to_string(),
                    Ok(IpAddr::V6(address)) => format!("[{address}]"),
                    Err(_) => {
                        return Err(format!("{{{{podIP}}}} is {address:?}, which is not an IP address"));
                    }
                };
                *piece = Piece::Text(written);
            }
        }
        pieces.fill(values, |_, value| escaped(value))
    }

    /// True if the URL library parses the expected host: a filled-in value must not have changed it.
    #[must_use]
    pub fn goes_to(&self, host: &str, values: &Values) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match &self.peer {
            Peer::Host(allowed) => {
                bare.strip_suffix('.').unwrap_or(bare).eq_ignore_ascii_case(allowed.as_str())
            }
            Peer::Pod => {
                let wanted = values.get(ValueName::PodIp).and_then(|ip| ip.parse::<IpAddr>().ok());
                wanted.is_some() && bare.parse::<IpAddr>().ok() == wanted
            }
        }
    }
}

/// The destination of a URL, found by parsing it with two sets of values: no value may change its host or port.
fn peer(url: &Filled, allowed: &BTreeSet<Host>) -> Result<Peer, String> {
    let with = |address: &str, other: &str| {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Value(ValueName::PodIp) => address.to_owned(),
            Piece::Value(_) => other.to_owned(),
        };
        let url: String = url.pieces.iter().map(text).collect();
        Url::parse(&url).map_err(|error| format!("is not a URL: {error}"))
    };
    let (url, with_others) = (with("192.0.2.1", "a1")?, with("192.0.2.2", "b2")?);
    if !matches!(url.scheme(), "http" | "https") {
        return Err("has to begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user or password: use http.auth".to_owned());
    }
    if url.port() == Some(0) || url.port() != with_others.port() {
        return Err("has a port that is not a number from 1 to 65535".to_owned());
    }
    let names: Vec<&str> = allowed.iter().map(Host::as_str).collect();
    let others = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let whose = format!(
        "has to be {{{{podIP}}}} of the node, or a host that the operator allows with --hook-host ({others})"
    );
    match (Host::of(&url), Host::of(&with_others)) {
        (Some(one), Some(other)) if one.0 == "192.0.2.1" && other.0 == "192.0.2.2" => Ok(Peer::Pod),
        (Some(host), Some(other)) if host == other && allowed.contains(&host) => Ok(Peer::Host(host)),
        (Some(host), Some(other)) if host == other => {
            Err(format!("has the host {host}, which is not allowed: it {whose}"))
        }
        _ => Err(format!("has a placeholder in its host: it {whose}")),
    }
}

/// A value, percent-encoded for a path or a query.
fn escaped(value: &str) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const MEANS_SOMETHING: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');
    utf8_percent_encode(value, MEANS_SOMETHING).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> BTreeSet<Host> {
        ["hooks.example.com", "127.0.0.1", "fd00::7", "Peer."].map(|host| Host::parse(host).unwrap()).into()
    }

    fn values() -> Values {
        Values {
            fleet: Some("db".to_owned()),
            pod_ip: Some("10.0.0.7".to_owned()),
            image: Some("registry/db:1 ?#&/../%".to_owned()),
            target_hash: Some("v1:abc".to_owned()),
            ..Values::default()
        }
    }

    #[test]
    fn host_is_parsed_without_scheme_port_or_path() {
        let table = [
            ("peer", "peer"),
            ("Hooks.Example.COM.", "hooks.example.com"),
            ("10.0.0.7", "10.0.0.7"),
            ("FD00::0007", "fd00::7"),
            ("[fd00::7]", "fd00::7"),
            ("my_peer", "my_peer"),
            ("127.1", "127.0.0.1"),
        ];
        for (text, host) in table {
            assert_eq!(Host::parse(text).unwrap().as_str(), host);
        }
        for text in [
            "",
            "peer:8080",
            "10.0.0.7:80",
            "[fd00::7]:80",
            "http://peer",
            "peer/path",
            "a b",
            "*",
            "u@peer",
            "[peer]",
            "{{podIP}}",
            "peer?",
            "peer#",
        ] {
            let sentence = Host::parse(text).unwrap_err();
            assert!(sentence.contains("without http://, port or path"), "{text}: {sentence}");
        }
    }

    #[test]
    fn url_may_target_the_node_or_an_allowed_host() {
        let table = [
            ("http://{{podIP}}", "http://10.0.0.7"),
            ("http://{{podIP}}:8080/drain", "http://10.0.0.7:8080/drain"),
            ("HTTP://{{podIP}}/a?b={{fleet}}", "HTTP://10.0.0.7/a?b=db"),
            ("http://{{podIP}}?ip={{podIP}}", "http://10.0.0.7?ip=10.0.0.7"),
            ("http://127.0.0.1:9/{{targetHash}}", "http://127.0.0.1:9/v1:abc"),
            ("http://hooks.example.com/x@y/{{fleet}}", "http://hooks.example.com/x@y/db"),
            ("http://HOOKS.example.com./", "http://HOOKS.example.com./"),
            ("http://[fd00:0::7]:80/", "http://[fd00:0::7]:80/"),
            ("http://peer", "http://peer"),
            ("https://peer:8443/", "https://peer:8443/"),
            ("HTTPS://{{podIP}}/{{fleet}}", "HTTPS://10.0.0.7/db"),
            // Other notations of a host that is allowed.
            ("http://2130706433/", "http://2130706433/"),
            ("http://%70eer/", "http://%70eer/"),
            ("http://peer/?i={{image}}", "http://peer/?i=registry%2Fdb:1%20%3F%23%26%2F..%2F%25"),
        ];
        for (text, filled) in table {
            let url = HookUrl::parse(text, &allowed()).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(url.fill(&values()).as_deref(), Ok(filled), "{text}");
            let host = url::Url::parse(filled).unwrap().host_str().unwrap().to_owned();
            assert!(url.goes_to(&host, &values()), "{text}: {host}");
        }
        let six = Values { pod_ip: Some("fd00::9".to_owned()), ..values() };
        let url = HookUrl::parse("http://{{podIP}}:80/{{podIP}}", &allowed()).unwrap();
        assert_eq!(url.fill(&six).as_deref(), Ok("http://[fd00::9]:80/fd00::9"));
        assert!(url.goes_to("[fd00::9]", &six) && !url.goes_to("[fd00::8]", &six));
    }

    #[test]
    fn url_to_any_other_host_is_rejected() {
        let table = [
            "http://kubernetes.default.svc/",
            "http://10.0.0.1/",
            "http://peer@kubernetes.default.svc/",
            "http://peer:80@kubernetes.default.svc/",
            "http://{{podIP}}@kubernetes.default.svc/",
            "http://{{podIP}}:80@kubernetes.default.svc/",
            "http://user:pass@peer/",
            "http://peer\\@kubernetes.default.svc/",
            "http://peer.kubernetes.default.svc/",
            "http://{{podIP}}.kubernetes.default.svc/",
            "http://kubernetes{{podIP}}/",
            "http://{{fleet}}/",
            "http://{{fleet}}.{{podIP}}/",
            "http://{{podIP}}{{fleet}}/",
            "http://{{podIP}}:{{ordinal}}/",
            "http://peer:{{ordinal}}/",
            "http://peer{{fleet}}",
            "http://{{podIP}}:0/",
            "http://{{podIP}}:99999/",
            "http://{{podIP}}:+80/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[peer]/",
            "http://[fd00::7",
            "http://127.0.0.1.nip.io/",
            "https://kubernetes.default.svc/",
            "https://peer@kubernetes.default.svc/",
            "https://{{podIP}}.kubernetes.default.svc/",
            "https://user:pass@peer/",
            "ftp://peer/",
            "//peer/",
            "peer",
            "",
            "{{podIP}}",
            "{{fleet}}://peer",
            " http://peer/",
            "http://peer/\nHost: x",
            "http://pe\ter/",
            "http://peer\u{3002}com/",
        ];
        for text in table {
            let sentence = HookUrl::parse(text, &allowed()).unwrap_err();
            assert!(!sentence.is_empty(), "{text}");
        }
        let refused = HookUrl::parse("http://kubernetes.default.svc/", &allowed()).unwrap_err();
        assert!(refused.contains("kubernetes.default.svc") && refused.contains("--hook-host"), "{refused}");
    }

    #[test]
    fn missing_or_invalid_pod_ip_is_an_error() {
        let url = HookUrl::parse("http://{{podIP}}:1/", &BTreeSet::new()).unwrap();
        for ip in [None, Some(""), Some("peer"), Some("10.0.0.7@peer")] {
            let values = Values { pod_ip: ip.map(str::to_owned), ..values() };
            assert!(url.fill(&values).is_err(), "{ip:?}");
        }
    }
}
