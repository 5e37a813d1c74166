//! Errors of starting a kubelet.

/// Why a kubelet could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API server failed.
    #[error("the API server refused the kubelet's {what}: {source}")]
    Api {
        /// The request.
        what: String,
        /// The client's error.
        source: kube::Error,
    },
    /// A local operation failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The certificate of the log endpoint could not be made.
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
