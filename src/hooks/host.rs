//! Restricts where a hook's request may go: to a node of the fleet, or to a host that the operator's flags allow.
//! Otherwise anyone who may write fleets could make the operator call internal services.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use super::values::{Filled, Piece, ValueName, Values};

/// An allowed host: a name or an address, without a port, normalized.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Host(String);

impl Host {
    /// Parses a host. An error is a sentence with the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let how = "a host is a name or an address, without http://, port or path: alertmanager.monitoring.svc, \
                   10.0.0.7 or fd00::7";
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<Ipv6Addr>() {
            return Ok(Self(address.to_string()));
        }
        if bare != text || text.contains(':') {
            return Err(format!("{text:?} has a port, or is no host: {how}"));
        }
        Self::name(text).ok_or_else(|| format!("{text:?} is no host: {how}"))
    }

    /// Normalizes a name: lower case, and without the final dot.
    fn name(text: &str) -> Option<Self> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_label = |label: &str| {
            let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
            (1..=63).contains(&label.len())
                && label.bytes().all(inner)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if name.len() > 253 || !name.split('.').all(is_label) {
            return None;
        }
        // A name whose last label is a number is parsed as an address, in many notations: only the plain one is
        // accepted.
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_a_number = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
        if is_a_number && name.parse::<IpAddr>().is_err() {
            return None;
        }
        Some(Self(name))
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
            return Err(format!("has the character {odd:?}, which no URL has"));
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
                    Err(_) => return Err(format!("{{{{podIP}}}} is {address:?}, which is no address")),
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

fn peer(url: &Filled, allowed: &BTreeSet<Host>) -> Result<Peer, String> {
    const SCHEME: &str = "http://";
    let wrong = || "has to begin with http:// and a host".to_owned();
    let Some(Piece::Text(first)) = url.pieces.first() else { return Err(wrong()) };
    let is_http = first.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
    if !is_http {
        return Err(wrong());
    }
    let first = &first[SCHEME.len()..];
    let whose = || {
        let names: Vec<&str> = allowed.iter().map(Host::as_str).collect();
        let others = if names.is_empty() { "no other".to_owned() } else { names.join(", ") };
        format!(
            "may be {{{{podIP}}}} of the node, or a host that the operator was started with (--hook-host: {others})"
        )
    };
    if first.is_empty() {
        // The host is a placeholder.
        let Some(Piece::Value(ValueName::PodIp)) = url.pieces.get(1) else {
            return Err(format!("has a host that is filled in: it {}", whose()));
        };
        return match url.pieces.get(2) {
            None => Ok(Peer::Pod),
            Some(Piece::Text(rest)) => port_only(rest, url.pieces.len() == 3).map(|()| Peer::Pod),
            Some(Piece::Value(_)) => Err(format!("has a host that is filled in: it {}", whose())),
        };
    }
    let end = first.find(['/', '?', '#']);
    let authority = &first[..end.unwrap_or(first.len())];
    if end.is_none() && url.pieces.len() > 1 {
        return Err(format!("has a value in its host or port: its host {}", whose()));
    }
    if authority.contains('@') {
        return Err("names a user: use a header with secretKeyRef".to_owned());
    }
    let (host, rest) = match authority.strip_prefix('[') {
        Some(inside) => {
            inside.split_once(']').ok_or_else(|| "has a bracket without its partner".to_owned())?
        }
        None => authority.find(':').map_or((authority, ""), |at| authority.split_at(at)),
    };
    port_only(rest, true)?;
    let is_bracketed = authority.starts_with('[');
    let host = match host.parse::<Ipv6Addr>() {
        Ok(address) if is_bracketed => Host(address.to_string()),
        _ if is_bracketed => return Err(format!("has the host [{host}], which is no address")),
        _ => Host::name(host).ok_or_else(|| format!("has the host {host:?}, which is none"))?,
    };
    if allowed.contains(&host) {
        return Ok(Peer::Host(host));
    }
    Err(format!("has the host {host}, which is not allowed: it {}", whose()))
}

/// Checks what follows a host: nothing, a port, or a path.
fn port_only(rest: &str, is_last: bool) -> Result<(), String> {
    let end = rest.find(['/', '?', '#']);
    let port = &rest[..end.unwrap_or(rest.len())];
    if end.is_none() && !is_last {
        return Err("has a value in its port: write the number".to_owned());
    }
    let digits = match port.strip_prefix(':') {
        Some(digits) => digits,
        None if port.is_empty() => return Ok(()),
        None => return Err("has a host that goes on after {{podIP}}, or is no URL".to_owned()),
    };
    match digits.parse::<u16>() {
        Ok(1..) if digits.bytes().all(|b| b.is_ascii_digit()) => Ok(()),
        _ => Err(format!("has the port {digits:?}, which is none")),
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
    fn a_host_is_given_without_a_port() {
        let table = [
            ("peer", "peer"),
            ("Hooks.Example.COM.", "hooks.example.com"),
            ("10.0.0.7", "10.0.0.7"),
            ("FD00::0007", "fd00::7"),
            ("[fd00::7]", "fd00::7"),
            ("my_peer", "my_peer"),
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
            "-a",
            "a..b",
            "u@peer",
            "0x7f.1",
            "127.1",
            "2130706433",
            "[peer]",
            "{{podIP}}",
            "ünï.de",
            "peer?",
            "peer#",
        ] {
            let sentence = Host::parse(text).unwrap_err();
            assert!(sentence.contains("without http://, port or path"), "{text}: {sentence}");
        }
    }

    #[test]
    fn a_request_goes_to_the_node_or_to_a_host_that_is_allowed() {
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
            ("http://peer/?i={{image}}", "http://peer/?i=registry%2Fdb:1%20%3F%23%26%2F..%2F%25"),
        ];
        for (text, filled) in table {
            let url = HookUrl::parse(text, &allowed()).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(url.fill(&values()).as_deref(), Ok(filled), "{text}");
            let host = reqwest::Url::parse(filled).unwrap().host_str().unwrap().to_owned();
            assert!(url.goes_to(&host, &values()), "{text}: {host}");
        }
        let six = Values { pod_ip: Some("fd00::9".to_owned()), ..values() };
        let url = HookUrl::parse("http://{{podIP}}:80/{{podIP}}", &allowed()).unwrap();
        assert_eq!(url.fill(&six).as_deref(), Ok("http://[fd00::9]:80/fd00::9"));
        assert!(url.goes_to("[fd00::9]", &six) && !url.goes_to("[fd00::8]", &six));
    }

    #[test]
    fn no_trick_leads_a_request_elsewhere() {
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
            "http://{{podIP}}:/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[peer]/",
            "http://[fd00::7",
            "http://127.1/",
            "http://0x7f000001/",
            "http://2130706433/",
            "http://127.0.0.1.nip.io/",
            "http:///peer/",
            "http:peer",
            "https://peer/",
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
            "http://\u{ff50}eer/",
            "http://%70eer/",
        ];
        for text in table {
            let sentence = HookUrl::parse(text, &allowed()).unwrap_err();
            assert!(!sentence.is_empty(), "{text}");
        }
        let refused = HookUrl::parse("http://kubernetes.default.svc/", &allowed()).unwrap_err();
        assert!(refused.contains("kubernetes.default.svc") && refused.contains("--hook-host"), "{refused}");
    }

    #[test]
    fn without_an_address_there_is_nobody_to_ask() {
        let url = HookUrl::parse("http://{{podIP}}:1/", &BTreeSet::new()).unwrap();
        for ip in [None, Some(""), Some("peer"), Some("10.0.0.7@peer")] {
            let values = Values { pod_ip: ip.map(str::to_owned), ..values() };
            assert!(url.fill(&values).is_err(), "{ip:?}");
        }
    }
}
