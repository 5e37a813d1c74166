//! Image names as a container runtime reports them.

use sha2::{Digest, Sha256};

/// The runtime's name of an image: with its registry, its repository and its tag.
pub(super) fn normalised(image: &str) -> String {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    let path = match path.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => path.to_owned(),
        Some(_) => format!("docker.io/{path}"),
        None => format!("docker.io/library/{path}"),
    };
    match (tag, digest) {
        (Some(tag), None) => format!("{path}:{tag}"),
        (None, None) => format!("{path}:latest"),
        (_, Some(digest)) => format!("{path}@{digest}"),
    }
}

/// The `imageID` of a pulled image: its name with a digest derived from it.
pub(super) fn id(image: &str) -> String {
    let normal = normalised(image);
    if normal.contains('@') {
        return normal;
    }
    let path = normal.rsplit_once(':').map_or(normal.as_str(), |(path, _)| path);
    format!("{path}@sha256:{}", hex(&normal))
}

/// 64 hex digits derived from `text`.
pub(crate) fn hex(text: &str) -> String {
    use std::fmt::Write;
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_are_normalised_as_by_container_runtimes() {
        for (image, normal) in [
            ("nginx:1", "docker.io/library/nginx:1"),
            ("nginx", "docker.io/library/nginx:latest"),
            ("foo/bar", "docker.io/foo/bar:latest"),
            ("localhost/x:1", "localhost/x:1"),
            ("registry:5000/x", "registry:5000/x:latest"),
            ("registry.test/a/b:2", "registry.test/a/b:2"),
            ("x:1@sha256:ab", "docker.io/library/x@sha256:ab"),
        ] {
            assert_eq!(normalised(image), normal, "{image}");
        }
        assert!(id("nginx:1").starts_with("docker.io/library/nginx@sha256:"));
    }
}
