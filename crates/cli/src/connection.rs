//! The connection to the cluster, by the same flags that kubectl has.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::report::{Typed, quoted};
use windlass_kube_port::client::connect;

/// The help heading of these flags. Each flag names it: a heading for all that follow would also cover the command's
/// own flags.
pub const HEADING: &str = "Cluster";

/// The cluster, and the user for its requests.
#[derive(Args, Clone, Debug, Default)]
pub struct Connection {
    /// The kubeconfig [default: $KUBECONFIG, or ~/.kube/config; in a pod its service account]
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context [default: its current one]
    #[arg(help_heading = HEADING, long, value_name = "NAME")]
    context: Option<String>,
    /// The user to impersonate; needs the right to impersonate
    #[arg(help_heading = HEADING, long = "as", value_name = "USER")]
    as_user: Option<String>,
    /// A group to impersonate; repeatable
    #[arg(help_heading = HEADING, long = "as-group", value_name = "GROUP", requires = "as_user")]
    as_groups: Vec<String>,
}

/// The flags for the cluster and its namespaces.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterFlags {
    /// The namespace [default: the context's]
    #[arg(long, short = 'n', value_name = "NS", conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// All namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    #[command(flatten)]
    pub connection: Connection,
}

/// A connected cluster, with the namespaces that the flags select.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// The namespace: -n, or else the context's.
    pub namespace: String,
    pub all_namespaces: bool,
}

impl ClusterFlags {
    /// Reads the flags from an incomplete command line, as far as possible.
    pub fn of_words(words: &[String]) -> Self {
        let value = |flags: [&str; 2]| {
            words.iter().enumerate().rev().find_map(|(index, word)| {
                let joined = flags.iter().find_map(|flag| word.strip_prefix(flag)?.strip_prefix('='));
                let next =
                    || words.get(index + 1).filter(|_| flags.contains(&word.as_str())).map(String::as_str);
                joined.or_else(next).map(str::to_owned)
            })
        };
        Self {
            namespace: value(["--namespace", "-n"]),
            all_namespaces: words.iter().any(|word| word == "-A" || word == "--all-namespaces"),
            connection: Connection {
                kubeconfig: value(["--kubeconfig", "--kubeconfig"]).map(PathBuf::from),
                context: value(["--context", "--context"]),
                as_user: value(["--as", "--as"]),
                as_groups: value(["--as-group", "--as-group"]).into_iter().collect(),
            },
        }
    }

    /// Connects.
    pub async fn cluster(&self) -> Result<Cluster, String> {
        let (client, home) = self.connection.client(super::AGENT).await?;
        let namespace = self.namespace.clone().unwrap_or(home);
        Ok(Cluster { client, namespace, all_namespaces: self.all_namespaces })
    }
}

impl Connection {
    /// How suggested commands have to be typed: with the same flags for the cluster.
    pub fn typed(&self) -> Typed {
        Typed::of(super::called().starts_with("kubectl-"), self.flags())
    }

    fn flags(&self) -> String {
        let file = self.kubeconfig.as_ref().map(|file| file.display().to_string());
        let one = [("--context", &self.context), ("--kubeconfig", &file), ("--as", &self.as_user)];
        let one = one.into_iter().filter_map(|(flag, value)| Some((flag, value.as_deref()?)));
        let all = one.chain(self.as_groups.iter().map(|group| ("--as-group", group.as_str())));
        all.fold(String::new(), |flags, (flag, value)| flags + " " + flag + " " + &quoted(value))
    }

    /// A client with this user agent, and the default namespace of the context or the account.
    pub async fn client(&self, agent: &'static str) -> Result<(Client, String), String> {
        let mut config = self.config().await?;
        config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
        if let Some(user) = &self.as_user {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups =
                Some(self.as_groups.clone()).filter(|groups| !groups.is_empty());
        }
        let namespace = config.default_namespace.clone();
        let client = connect(config).map_err(|e| format!("cannot create the Kubernetes client: {e}"))?;
        Ok((client, namespace))
    }

    async fn config(&self) -> Result<Config, String> {
        if self.kubeconfig.is_none() && self.context.is_none() {
            if let Ok(config) = Config::infer().await {
                return Ok(config);
            }
            // The inferred config's error lists each source that it tried.
            let unread = Config::from_kubeconfig(&KubeConfigOptions::default()).await.err();
            return Err(unknown(std::env::var_os("KUBECONFIG").as_deref(), unread));
        }
        let read = self.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        let kubeconfig = read.map_err(|e| format!("cannot read the kubeconfig: {e}"))?;
        if let Some(context) = &self.context
            && !kubeconfig.contexts.iter().any(|known| known.name == *context)
        {
            let known: Vec<&str> = kubeconfig.contexts.iter().map(|known| known.name.as_str()).collect();
            let known = if known.is_empty() {
                "it defines none".to_owned()
            } else {
                format!("it defines {}", known.join(", "))
            };
            return Err(format!("the kubeconfig has no context {context}: {known}"));
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|e| format!("cannot use the kubeconfig: {e}"))
    }
}

/// Why no cluster is configured, and what to do.
fn unknown(named: Option<&OsStr>, unread: Option<KubeconfigError>) -> String {
    let named = named.filter(|paths| !paths.is_empty());
    match (named, unread) {
        (Some(paths), Some(KubeconfigError::ReadConfig(error, path))) => format!(
            "cannot read {} of KUBECONFIG ({}): {error}; set KUBECONFIG to an existing file, or unset it",
            path.display(),
            paths.to_string_lossy()
        ),
        (_, Some(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath)) => {
            "no cluster is configured: set KUBECONFIG to a kubeconfig, or run in a pod with a service account"
                .to_owned()
        }
        (_, Some(error)) => format!("cannot use the kubeconfig: {error}"),
        (_, None) => "the kubeconfig was not readable a moment ago, but is now: try again".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_cluster_configuration_error_explains_the_fix() {
        let missing = || KubeconfigError::ReadConfig(std::io::ErrorKind::NotFound.into(), "/none".into());
        for (named, unread, message) in [
            (Some("/none"), missing(), "cannot read /none of KUBECONFIG (/none): "),
            (None, missing(), "no cluster is configured: set KUBECONFIG"),
            (Some(""), missing(), "no cluster is configured: set KUBECONFIG"),
            (None, KubeconfigError::CurrentContextNotSet, "cannot use the kubeconfig: "),
        ] {
            let sentence = unknown(named.map(OsStr::new), Some(unread));
            assert!(sentence.starts_with(message) && !sentence.contains("in-cluster"), "{sentence}");
        }
    }
}
