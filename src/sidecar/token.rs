//! The bearer token that guards a sidecar's tasks.

use std::path::PathBuf;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

/// A token in a file. It is read at every use: a mounted Secret may change, and tasks are rare.
#[derive(Clone, Debug)]
pub(super) struct TokenFile(pub(super) PathBuf);

impl TokenFile {
    /// The token, without surrounding white space. The error is a sentence about the file.
    pub(super) async fn read(&self) -> Result<Vec<u8>, String> {
        let path = self.0.display();
        let bytes = tokio::fs::read(&self.0).await.map_err(|error| {
            format!("--token-file {path} cannot be read ({error}): set it to a readable file")
        })?;
        let token = bytes.trim_ascii();
        if token.is_empty() {
            return Err(format!("--token-file {path} is empty: write the token into it, or remove the flag"));
        }
        Ok(token.to_vec())
    }
}

/// The token of a request's `Authorization: Bearer` header.
pub(super) fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Compares in constant time, whatever the lengths.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = Sha256::digest(one)
        .iter()
        .zip(Sha256::digest(other).iter())
        .fold(0, |differences, (a, b)| std::hint::black_box(differences | (a ^ b)));
    differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_tokens_match() {
        assert!(same(b"secret", b"secret"));
        for other in [&b"secreT"[..], b"Secret", b"secre", b"secrets", b""] {
            assert!(!same(b"secret", other), "{other:?}");
        }
    }

    #[test]
    fn token_is_read_from_the_bearer_scheme() {
        let headers = |value: &str| HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
        assert_eq!(presented(&headers("Bearer abc")), Some(&b"abc"[..]));
        assert_eq!(presented(&headers("bearer  abc")), Some(&b"abc"[..]));
        for value in ["Basic abc", "abc", "Bearer", "Bearerabc", ""] {
            assert_eq!(presented(&headers(value)), None, "{value}");
        }
        assert_eq!(presented(&HeaderMap::new()), None);
    }
}
