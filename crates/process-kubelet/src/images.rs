//! What an image is here: programs of this machine under the names that containers call them by.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use sha2::{Digest, Sha256};

/// The programs, arguments and environment that an image's name stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    programs: BTreeMap<String, PathBuf>,
    entrypoint: Vec<String>,
    arguments: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Image {
    /// An image with nothing in it: its containers' commands are found on this machine's PATH.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An image that runs one program when the container names no command.
    #[must_use]
    pub fn of(name: &str, path: impl Into<PathBuf>) -> Self {
        Self::new().program(name, path).entrypoint([name])
    }

    /// Adds a program under the name that commands use: `etcd`. A command that names it with a folder
    /// (`/usr/local/bin/etcd`) finds it too.
    #[must_use]
    pub fn program(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.programs.insert(name.to_owned(), path.into());
        self
    }

    /// What runs when the container has no `command`.
    #[must_use]
    pub fn entrypoint<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Self {
        self.entrypoint = words.into_iter().map(str::to_owned).collect();
        self
    }

    /// The arguments of a container that has neither `command` nor `args`.
    #[must_use]
    pub fn arguments<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments = words.into_iter().map(str::to_owned).collect();
        self
    }

    /// A variable that the image sets; the container's own wins.
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

    /// The words to run: the container's command and args win over the image's, as Docker's do.
    pub(crate) fn words(&self, command: &[String], args: &[String]) -> Vec<String> {
        if !command.is_empty() {
            return command.iter().chain(args).cloned().collect();
        }
        let args = if args.is_empty() { &self.arguments } else { args };
        self.entrypoint.iter().chain(args).cloned().collect()
    }

    /// The program that a command's first word means, if this image has it.
    pub(crate) fn find(&self, word: &str) -> Option<&Path> {
        let file = Path::new(word).file_name().and_then(|name| name.to_str());
        let found = self.programs.get(word).or_else(|| file.and_then(|name| self.programs.get(name)));
        found.map(PathBuf::as_path)
    }
}

/// The images that there are. Clones share them, and they may change while pods run.
#[derive(Clone, Debug, Default)]
pub struct Images(Arc<Mutex<BTreeMap<String, Image>>>);

impl Images {
    /// No images yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an image, or puts another in its place; containers that run are not touched.
    pub fn add(&self, name: &str, image: Image) {
        self.lock().insert(name.to_owned(), image);
    }

    /// Removes an image: a container that starts next cannot pull it.
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

/// An image's ID: the same for the same name, and never its name.
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
    fn a_containers_command_silences_the_images_arguments() {
        let image = Image::of("etcd", "/x/etcd").arguments(["--quiet"]);
        assert_eq!(image.words(&[], &[]), words("etcd --quiet"));
        assert_eq!(image.words(&[], &words("--loud")), words("etcd --loud"));
        assert_eq!(image.words(&words("sh -c"), &[]), words("sh -c"));
    }

    #[test]
    fn a_program_is_found_by_its_name_whatever_its_folder() {
        let image = Image::of("etcd", "/x/y");
        assert_eq!(image.find("/usr/local/bin/etcd"), Some(Path::new("/x/y")));
        assert_eq!(image.find("etcd"), Some(Path::new("/x/y")));
        assert_eq!(image.find("etcdctl"), None);
    }

    #[test]
    fn images_change_under_those_who_hold_them() {
        let images = Images::new();
        let other = images.clone();
        images.add("a:1", Image::new());
        assert!(other.get("a:1").is_some());
        other.remove("a:1");
        assert!(images.get("a:1").is_none());
    }
}
