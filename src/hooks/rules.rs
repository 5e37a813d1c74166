//! What the operator was told of hooks when it was started.

use std::collections::BTreeSet;

use super::host::Host;

/// What the operator was told of hooks when it was started.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HookRules {
    /// Whom requests may go to, beside the fleet's own nodes.
    pub hosts: BTreeSet<Host>,
    /// The Prometheus that queries are asked of.
    pub prometheus: Option<PrometheusUrl>,
}

/// Where a Prometheus answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PrometheusUrl(String);

impl PrometheusUrl {
    /// Reads one. An error is a sentence that says how it is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let how = "it is written http://prometheus.monitoring.svc:9090, with the path under which it is served if it has one";
        let rest = text
            .strip_prefix("http://")
            .ok_or_else(|| format!("{text:?} does not begin with http://: {how}"))?;
        let authority = rest.split('/').next().unwrap_or_default();
        let is_odd =
            |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '\\' | '@' | '{' | '}');
        if authority.is_empty() || authority.starts_with(':') || rest.contains(is_odd) {
            return Err(format!("{text:?} is no URL of a Prometheus: {how}"));
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }

    /// Where instant queries are answered.
    #[must_use]
    pub fn instant_queries(&self) -> String {
        format!("{}/api/v1/query", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prometheus_is_where_its_url_says() {
        let at = |text| PrometheusUrl::parse(text).map(|url| url.instant_queries());
        assert_eq!(at("http://p:9090").as_deref(), Ok("http://p:9090/api/v1/query"));
        assert_eq!(at("http://p/under/").as_deref(), Ok("http://p/under/api/v1/query"));
        for text in [
            "",
            "p:9090",
            "https://p",
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
