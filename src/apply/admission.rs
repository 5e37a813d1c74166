//! Whether the API server would admit an object, asked by a dry run.

/// What the API server, or what is known of it already, says of an object that would be made. That it could not be asked is
/// an error beside this.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub enum Admission<T = ()> {
    /// It is taken.
    Admitted(T),
    /// It is not, and why: a sentence for people.
    Refused(String),
}

impl<T> Admission<T> {
    /// What is taken, with something else of it.
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
