//! The two exposition formats. The encoder writes OpenMetrics; the Prometheus text format names a counter by its
//! samples, and has no end marker.

use std::fmt::Write;

/// An exposition format.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Format {
    /// The Prometheus text format, which every scraper reads.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0, for scrapers that accept it.
    OpenMetrics,
}

impl Format {
    /// The format for an `Accept` header.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let asks =
            |range: &str| range.split(';').next().is_some_and(|t| t.trim() == "application/openmetrics-text");
        if accept.split(',').any(asks) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Its media type. With a wrong one a scraper refuses the response, or treats counters as untyped.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts both texts, given in OpenMetrics, to this format.
    #[must_use]
    pub fn joined(self, text: String, more: String) -> String {
        if more.is_empty() {
            return text;
        }
        match self {
            Self::Prometheus => text + &self.of(more),
            Self::OpenMetrics => text.trim_end_matches("# EOF\n").to_owned() + &more,
        }
    }

    /// Converts OpenMetrics to this format.
    pub(super) fn of(self, text: String) -> String {
        if self == Self::OpenMetrics {
            return text;
        }
        let lines: Vec<&str> = text.lines().filter(|line| *line != "# EOF").collect();
        let counters: Vec<&str> =
            lines.iter().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
        let mut out = String::with_capacity(text.len());
        for line in lines {
            let told = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
            let _ = match told.and_then(|told| told.split_once(' ')) {
                Some((name, rest)) if counters.contains(&name) => {
                    writeln!(out, "{}{name}_total {rest}", &line[.."# HELP ".len()])
                }
                _ => writeln!(out, "{line}"),
            };
        }
        out
    }
}
