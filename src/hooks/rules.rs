//! The operator's settings for hooks.

use std::collections::BTreeSet;

use super::host::Host;
use crate::outward::FileAccess;

/// The operator's settings for hooks.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HookRules {
    /// The hosts that requests may go to, besides the fleet's own nodes.
    pub hosts: BTreeSet<Host>,
    /// The Prometheus for queries.
    pub prometheus: Option<PrometheusUrl>,
    /// The certificates and credentials for that Prometheus.
    pub prometheus_access: FileAccess,
}

/// The base URL of a Prometheus.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PrometheusUrl(String);

impl PrometheusUrl {
    /// Parses a URL. An error is a sentence with the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let how =
            "use a URL such as http://prometheus.monitoring.svc:9090, with its path prefix if it has one";
        let rest = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"))
            .ok_or_else(|| format!("{text:?} does not begin with http:// or https://: {how}"))?;
        let authority = rest.split('/').next().unwrap_or_default();
        let is_odd =
            |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '\\' | '@' | '{' | '}');
        if authority.is_empty() || authority.starts_with(':') || rest.contains(is_odd) {
            return Err(format!("{text:?} is not the URL of a Prometheus server: {how}"));
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }

    /// The URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL of instant queries.
    #[must_use]
    pub fn instant_queries(&self) -> String {
        format!("{}/api/v1/query", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_url_yields_the_query_endpoint() {
        let at = |text| PrometheusUrl::parse(text).map(|url| url.instant_queries());
        assert_eq!(at("http://p:9090").as_deref(), Ok("http://p:9090/api/v1/query"));
        assert_eq!(at("http://p/under/").as_deref(), Ok("http://p/under/api/v1/query"));
        assert_eq!(at("https://p:9090").as_deref(), Ok("https://p:9090/api/v1/query"));
        for text in [
            "",
            "p:9090",
            "ftp://p",
            "https://",
            "https://u:p@p/",
            "http://",
            "http://:9090",
            "http://u@p/",
            "http://p/?a=b",
            "http://p p",
        ] {
            let sentence = PrometheusUrl::parse(text).unwrap_err();
            assert!(sentence.contains("http://prometheus.monitoring.svc:9090"), "{sentence}");
        }
    }
}
