//! Computes a sidecar's URL from the `sidecar.url` template of its node.

use std::net::Ipv6Addr;

/// Why there is no URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The template needs the pod's IP, which is not assigned yet.
    #[error("the pod has no IP address yet, so its sidecar cannot be queried")]
    NoPodIp,
    /// The template is invalid.
    #[error("sidecar.url `{template}` {fault}")]
    BadTemplate {
        /// The template in the spec.
        template: String,
        /// The end of the sentence.
        fault: String,
    },
}

const DEFAULT_TEMPLATE: &str = "http://{podIP}:{port}";

/// The base URL of a node's sidecar, without a final slash: `template` (default `http://{podIP}:{port}`) with
/// `{name}`, `{namespace}`, `{port}` and `{podIP}` filled in. IPv6 addresses get brackets. An empty `pod_ip` is none.
pub fn url_for(
    template: Option<&str>,
    name: &str,
    namespace: &str,
    port: u16,
    pod_ip: Option<&str>,
) -> Result<String, UrlError> {
    let template = template.unwrap_or(DEFAULT_TEMPLATE);
    let bad = |fault: String| UrlError::BadTemplate { template: template.to_owned(), fault };
    let mut url = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        url.push_str(&rest[..at]);
        let (placeholder, after) = rest[at..]
            .strip_prefix('{')
            .and_then(|inside| inside.split_once('}'))
            .ok_or_else(|| bad("has an unmatched brace".to_owned()))?;
        match placeholder {
            "name" => url.push_str(name),
            "namespace" => url.push_str(namespace),
            "port" => url.push_str(&port.to_string()),
            "podIP" => {
                let ip = pod_ip.filter(|ip| !ip.is_empty()).ok_or(UrlError::NoPodIp)?;
                let bare_ipv6 = ip.parse::<Ipv6Addr>().is_ok() && !url.ends_with('[');
                let (open, close) = if bare_ipv6 { ("[", "]") } else { ("", "") };
                url.extend([open, ip, close]);
            }
            unknown => {
                return Err(bad(format!(
                    "has the unknown placeholder {{{unknown}}}; the placeholders are {{name}}, {{namespace}}, \
                     {{port}} and {{podIP}}"
                )));
            }
        }
        rest = after;
    }
    url.push_str(rest);
    parse_web(&url).map_err(|fault| bad(format!("gives a URL that {fault}")))?;
    Ok(url.trim_end_matches('/').to_owned())
}

/// Parses an absolute `http` or `https` URL. The error is the end of a sentence that begins with the URL.
pub(super) fn parse_web(text: &str) -> Result<url::Url, String> {
    let url = url::Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    // A request that can never be sent should not look like a dead server.
    if !matches!(url.scheme(), "http" | "https") {
        return Err("does not begin with http:// or https://".to_owned());
    }
    // Statuses and events show the URL.
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user or password: use sidecar.auth".to_owned());
    }
    Ok(url)
}

/// Parses an absolute `http` URL, of a server on the same machine. The error is the end of a sentence that begins with
/// the URL.
pub fn parse_http(text: &str) -> Result<url::Url, String> {
    let url = url::Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    if url.scheme() != "http" {
        return Err("does not begin with http://".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn db_0(template: Option<&str>, pod_ip: Option<&str>) -> Result<String, UrlError> {
        url_for(template, "db-0", "prod", 7777, pod_ip)
    }

    #[test]
    fn template_is_filled_in() {
        let table = [
            (None, "10.0.0.7", "http://10.0.0.7:7777"),
            (None, "fd00::7", "http://[fd00::7]:7777"),
            (Some("http://{podIP}:9/{name}"), "fd00::7", "http://[fd00::7]:9/db-0"),
            (Some("http://[{podIP}]:{port}"), "fd00::7", "http://[fd00::7]:7777"),
            (Some("http://{name}-0.{name}.{namespace}.svc:{port}/"), "", "http://db-0-0.db-0.prod.svc:7777"),
            (Some("http://gateway/{namespace}/{name}?via=a"), "", "http://gateway/prod/db-0?via=a"),
            (Some("http://127.0.0.1:8080"), "", "http://127.0.0.1:8080"),
            (Some("https://{podIP}:{port}"), "10.0.0.7", "https://10.0.0.7:7777"),
        ];
        for (template, ip, url) in table {
            assert_eq!(db_0(template, Some(ip)).as_deref(), Ok(url), "{template:?}");
        }
    }

    #[test]
    fn missing_pod_ip_is_its_own_error() {
        assert_eq!(db_0(None, None), Err(UrlError::NoPodIp));
        assert_eq!(db_0(None, Some("")), Err(UrlError::NoPodIp));
        assert_eq!(db_0(Some("http://{name}:{port}"), None).as_deref(), Ok("http://db-0:7777"));
    }

    #[test]
    fn bad_template_error_describes_the_template() {
        let table = [
            ("http://{pod}:{port}", "{pod}"),
            ("http://{podip}", "{podip}"),
            ("http://{}", "{}"),
            ("http://{name", "brace"),
            ("http://name}", "brace"),
            ("{name}:{port}", "http://"),
            ("ftp://{name}", "http://"),
            ("https://ann:secret@{name}", "sidecar.auth"),
            ("http://", "not a URL"),
            ("", "not a URL"),
            ("http://{name}:port", "not a URL"),
        ];
        for (template, part) in table {
            let error = db_0(Some(template), Some("10.0.0.7")).unwrap_err();
            assert!(matches!(error, UrlError::BadTemplate { .. }), "{template}: {error:?}");
            let sentence = error.to_string();
            assert!(sentence.starts_with("sidecar.url"), "{sentence}");
            assert!(sentence.contains(part), "{template}: {sentence}");
        }
    }
}
