//! The two formats in which metrics are scraped. The encoder knows OpenMetrics; the text format of Prometheus calls a
//! counter by the name of its samples, and ends without a word.

use std::fmt::Write;

/// A format in which metrics are scraped.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Format {
    /// The text format of Prometheus, which everything reads.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0, for those who ask for it.
    OpenMetrics,
}

impl Format {
    /// What a scraper that sends this in `Accept` gets.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let asks =
            |range: &str| range.split(';').next().is_some_and(|t| t.trim() == "application/openmetrics-text");
        if accept.split(',').any(asks) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Its media type. A scraper that is told another one refuses what it gets, or takes counters for untyped ones.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// A text in this format, and what another registry tells, in OpenMetrics.
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

    /// OpenMetrics in this format.
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
