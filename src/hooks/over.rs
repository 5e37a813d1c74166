//! What expressions are about.

/// What an expression is about.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Over {
    /// The answer to a request: `status`, `headers`, `text` and `body`.
    Answer,
    /// The answer to a query: `result` and `scalar`.
    Result,
}

impl Over {
    /// The names that it may use.
    #[must_use]
    pub fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Answer => &["status", "headers", "text", "body"],
            Self::Result => &["result", "scalar"],
        }
    }
}
