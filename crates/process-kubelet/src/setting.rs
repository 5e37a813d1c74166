//! The environment of a container's processes: variables, folders, programs, address.

use std::{
    collections::BTreeMap,
    env, fs, io,
    net::Ipv4Addr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use k8s_openapi::{
    api::core::v1::{Container, ContainerPort},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{env::expand, images::Image, translate::Translation};

/// Made anew for each run of the container.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) ip: Ipv4Addr,
    image: Image,
    env: BTreeMap<String, String>,
    translation: Translation,
    /// The container's root folder, where its processes start.
    root: PathBuf,
    cwd: PathBuf,
    ports: Vec<ContainerPort>,
}

impl Setting {
    /// Creates the folders, and adds the variables that every process needs.
    pub(crate) fn new(
        container: &Container,
        image: Image,
        mut env: BTreeMap<String, String>,
        translation: Translation,
        root: &Path,
        hostname: &str,
        ip: Ipv4Addr,
    ) -> io::Result<Self> {
        let bin = root.join("bin");
        fs::create_dir_all(&bin)?;
        for (name, path) in image.programs() {
            let link = bin.join(name);
            let _ = fs::remove_file(&link);
            symlink(path, link)?;
        }
        for value in env.values_mut() {
            *value = translation.text(value);
        }
        let path = env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
        let path = env.get("PATH").map_or(path, Clone::clone);
        env.insert("PATH".to_owned(), format!("{}:{path}", bin.display()));
        env.entry("HOME".to_owned()).or_insert_with(|| root.display().to_string());
        env.entry("HOSTNAME".to_owned()).or_insert_with(|| hostname.to_owned());
        let cwd = match container.working_dir.as_deref() {
            Some(folder) => {
                translation.path(folder).unwrap_or_else(|| root.join(folder.trim_start_matches('/')))
            }
            None => root.to_owned(),
        };
        fs::create_dir_all(&cwd)?;
        let ports = container.ports.clone().unwrap_or_default();
        Ok(Self { ip, image, env, translation, root: root.to_owned(), cwd, ports })
    }

    /// The command line of the container's main process.
    pub(crate) fn words(&self, container: &Container) -> Vec<String> {
        let some = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
        let words = self.image.words(&some(&container.command), &some(&container.args));
        words.iter().map(|word| expand(word, &self.env)).collect()
    }

    /// A command; an error is the container runtime's message.
    pub(crate) fn command(&self, words: &[String]) -> Result<Command, String> {
        let [first, rest @ ..] = words else { return Err("no command specified".to_owned()) };
        let program = match self.image.find(first) {
            // By its link, whose name multi-call programs depend on.
            Some(_) => self.root.join("bin").join(Path::new(first).file_name().unwrap_or_default()),
            None => PathBuf::from(self.translation.text(first)),
        };
        let found =
            if program.components().count() > 1 { self.cwd.join(&program) } else { self.on_path(&program)? };
        if !found.is_file() {
            return Err(format!("exec: {first:?}: stat {first}: no such file or directory"));
        }
        let mut command = Command::new(found);
        command.args(rest.iter().map(|word| self.translation.text(word)));
        command.env_clear().envs(&self.env).current_dir(&self.cwd);
        Ok(command)
    }

    fn on_path(&self, program: &Path) -> Result<PathBuf, String> {
        let folders = self.env.get("PATH").map(env::split_paths).into_iter().flatten();
        let found = folders.map(|folder| folder.join(program)).find(|path| path.is_file());
        found.ok_or_else(|| {
            format!("exec: {:?}: executable file not found in $PATH", program.display().to_string())
        })
    }

    /// A port by number or name.
    pub(crate) fn port(&self, port: &IntOrString) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let named = self.ports.iter().find(|port| port.name.as_deref() == Some(name));
                let number = named.map(|port| port.container_port).or_else(|| name.parse().ok());
                number.ok_or_else(|| format!("no port is named {name:?}"))?
            }
        };
        u16::try_from(number).map_err(|_| format!("{number} is no port"))
    }

    /// The host of a request: the pod itself, unless named.
    pub(crate) fn host(&self, named: Option<&str>) -> String {
        named
            .filter(|host| !host.is_empty())
            .map_or_else(|| self.ip.to_string(), |host| self.translation.text(host))
    }
}
