//! Images: programs of this machine under the names that containers use.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use sha2::{Digest, Sha256};

/// An image: its programs, arguments and environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    programs: BTreeMap<String, PathBuf>,
    entrypoint: Vec<String>,
    arguments: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Image {
    /// An empty image: commands are found on this machine's PATH.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An image with one program, which is also its entrypoint.
    #[must_use]
    pub fn of(name: &str, path: impl Into<PathBuf>) -> Self {
        Self::new().program(name, path).entrypoint([name])
    }

    /// Adds a program under the name that commands use, such as `etcd`. A command with a folder
    /// (`/usr/local/bin/etcd`) finds it too.
    #[must_use]
    pub fn program(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.programs.insert(name.to_owned(), path.into());
        self
    }

    /// The entrypoint, for containers without `command`.
    #[must_use]
    pub fn entrypoint<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Self {
        self.entrypoint = words.into_iter().map(str::to_owned).collect();
        self
    }

    /// The arguments, for containers without `command` and `args`.
    #[must_use]
    pub fn arguments<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments = words.into_iter().map(str::to_owned).collect();
        self
    }

    /// A default variable; the container's own overrides it.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn variables(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    pub(crate) fn programs(&self) -> &BTreeMap<String, PathBuf> {
        &self.programs
    }

    /// The command line: the container's command and args override the image's, as in Docker.
    pub(crate) fn words(&self, command: &[String], args: &[String]) -> Vec<String> {
        if !command.is_empty() {
            return command.iter().chain(args).cloned().collect();
        }
        let args = if args.is_empty() { &self.arguments } else { args };
        self.entrypoint.iter().chain(args).cloned().collect()
    }

    /// The program for a command's first word, if the image has it.
    pub(crate) fn find(&self, word: &str) -> Option<&Path> {
        let file = Path::new(word).file_name().and_then(|name| name.to_str());
        let found = self.programs.get(word).or_else(|| file.and_then(|name| self.programs.get(name)));
        found.map(PathBuf::as_path)
    }
}

/// A registry of images. Clones share it, and it may change while pods run.
#[derive(Clone, Debug, Default)]
pub struct Images(Arc<Mutex<BTreeMap<String, Image>>>);

impl Images {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces an image; running containers are unaffected.
    pub fn add(&self, name: &str, image: Image) {
        self.lock().insert(name.to_owned(), image);
    }

    /// Removes an image: later pulls of it fail.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    pub(crate) fn get(&self, name: &str) -> Option<Image> {
        self.lock().get(name).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Image>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An image's ID, derived from its name and never equal to it.
pub(crate) fn id_of(name: &str) -> String {
    format!("process://sha256:{}", hex(&Sha256::digest(name.as_bytes())))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn container_command_overrides_image_arguments() {
        let image = Image::of("etcd", "/x/etcd").arguments(["--quiet"]);
        assert_eq!(image.words(&[], &[]), words("etcd --quiet"));
        assert_eq!(image.words(&[], &words("--loud")), words("etcd --loud"));
        assert_eq!(image.words(&words("sh -c"), &[]), words("sh -c"));
    }

    #[test]
    fn program_is_found_by_base_name() {
        let image = Image::of("etcd", "/x/y");
        assert_eq!(image.find("/usr/local/bin/etcd"), Some(Path::new("/x/y")));
        assert_eq!(image.find("etcd"), Some(Path::new("/x/y")));
        assert_eq!(image.find("etcdctl"), None);
    }

    #[test]
    fn image_changes_are_shared_between_clones() {
        let images = Images::new();
        let other = images.clone();
        images.add("a:1", Image::new());
        assert!(other.get("a:1").is_some());
        other.remove("a:1");
        assert!(images.get("a:1").is_none());
    }
}
