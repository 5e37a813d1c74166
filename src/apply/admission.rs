//! The result of a dry run: whether the API server would admit an object.

/// Whether an object would be accepted, by a dry run or by what is already known. If the API server could not be asked,
/// that is a separate error.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub enum Admission<T = ()> {
    /// The object is accepted.
    Admitted(T),
    /// The object is refused; a sentence for users says why.
    Refused(String),
}

impl<T> Admission<T> {
    /// Converts the accepted value.
    pub fn map<U>(self, what: impl FnOnce(T) -> U) -> Admission<U> {
        match self {
            Self::Admitted(taken) => Admission::Admitted(what(taken)),
            Self::Refused(sentence) => Admission::Refused(sentence),
        }
    }
}

impl<T> From<Result<T, String>> for Admission<T> {
    fn from(result: Result<T, String>) -> Self {
        result.map_or_else(Self::Refused, Self::Admitted)
    }
}
