//! What can go wrong when a kubelet is started.

/// Why a kubelet could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused something, or does not answer.
    #[error("the API server refused the kubelet's {what}: {source}")]
    Api {
        /// What was written.
        what: String,
        /// What the client says.
        source: kube::Error,
    },
    /// A folder, a socket or a program of this machine.
    #[error("{what}: {source}")]
    Io {
        /// What was done.
        what: String,
        /// What the machine says.
        source: std::io::Error,
    },
    /// The certificate of the endpoint for logs.
    #[error("no certificate for the endpoint of logs can be made: {0}")]
    Certificate(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Api { what, source }
    }
}
