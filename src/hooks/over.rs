//! The inputs of expressions.

/// The input of an expression.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Over {
    /// An HTTP response: `status`, `headers`, `text` and `body`.
    Answer,
    /// A query's result: `result` and `scalar`.
    Result,
}

impl Over {
    #[must_use]
    pub fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Answer => &["status", "headers", "text", "body"],
            Self::Result => &["result", "scalar"],
        }
    }
}
