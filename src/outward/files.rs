//! Certificates and credentials from files and flags of the operator.

use std::path::{Path, PathBuf};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};

use super::access::{Access, Origin, Pem, sensitive};
use super::pem;

/// How the operator reaches a server that its flags name. The files are read when a request is sent, so that a rotated
/// certificate or token needs no restart.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FileAccess {
    origin: Origin,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    headers: HeaderMap,
}

impl FileAccess {
    /// The settings of a server at this URL. `headers` are in the form `NAME=VALUE`. An error is a sentence that names a
    /// flag: a file that cannot be read, or settings that have no effect.
    pub fn new(
        origin: Origin,
        url: &str,
        ca_file: Option<PathBuf>,
        token_file: Option<PathBuf>,
        headers: &[String],
    ) -> Result<Self, String> {
        let of_url = origin.server_name();
        if ca_file.is_some() && !url.to_ascii_lowercase().starts_with("https://") {
            return Err(format!("{} needs a {of_url} that begins with https://", origin.ca()));
        }
        let mut all = HeaderMap::new();
        for header in headers {
            let (name, value) = parsed(header).map_err(|why| format!("{} {why}", origin.headers()))?;
            all.append(name, value);
        }
        if all.contains_key(AUTHORIZATION) && token_file.is_some() {
            return Err(format!(
                "{} sets the header Authorization: remove it from the other headers",
                origin.bearer()
            ));
        }
        let settings = Self { origin, ca_file, token_file, headers: all };
        let read = |path: &Option<PathBuf>| path.as_deref().map(std::fs::read).transpose();
        let (ca, token) = (read(&settings.ca_file), read(&settings.token_file));
        let access =
            settings.access_from(ca, token).map_err(|why| why.replacen("cannot be sent: ", "", 1))?;
        pem::config(&access.trust).map_err(|why| why.replacen("cannot be sent: ", "", 1))?;
        Ok(settings)
    }

    /// The certificates and credentials as the files have them now. An error is the end of a sentence: "cannot be sent:
    /// …".
    pub async fn access(&self) -> Result<Access, String> {
        let read = async |path: &Option<PathBuf>| match path {
            Some(path) => tokio::fs::read(path).await.map(Some),
            None => Ok(None),
        };
        let (ca, token) = (read(&self.ca_file).await, read(&self.token_file).await);
        self.access_from(ca, token)
    }

    fn access_from(&self, ca: Read, token: Read) -> Result<Access, String> {
        let mut access = Access::of(self.origin);
        access.headers = self.headers.clone();
        if let Some((bytes, source)) = found(ca, self.ca_file.as_deref(), self.origin.ca())? {
            access.trust.ca = Some(Pem { source, bytes });
        }
        if let Some((bytes, source)) = found(token, self.token_file.as_deref(), self.origin.bearer())? {
            access.add_bearer(&bytes).map_err(|why| format!("cannot be sent: {source} {why}"))?;
        }
        Ok(access)
    }
}

type Read = std::io::Result<Option<Vec<u8>>>;

/// The content of a flag's file, and its name in messages.
fn found(read: Read, path: Option<&Path>, flag: &str) -> Result<Option<(Vec<u8>, String)>, String> {
    let source = format!("{flag} {}", path.unwrap_or(Path::new("")).display());
    match read {
        Ok(bytes) => Ok(bytes.map(|bytes| (bytes, source))),
        Err(error) => Err(format!("cannot be sent: {source} cannot be read: {error}")),
    }
}

/// A header in the form `NAME=VALUE`. The error does not quote the value, which may be a credential.
fn parsed(header: &str) -> Result<(HeaderName, http::HeaderValue), String> {
    let wrong = || "needs the form NAME=VALUE, such as X-Scope-OrgID=shop, on a single line".to_owned();
    let (name, value) = header.split_once('=').ok_or_else(wrong)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
    Ok((name, sensitive(value.trim()).ok_or_else(wrong)?))
}
