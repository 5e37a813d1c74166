//! Parses the names of objects on the command line: `TYPE/NAME …`, `TYPE NAME …`, or a type alone, as in kubectl.

use std::fmt;
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use kube::Client;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use super::completion::objects;
use super::connection::{Cluster, ClusterFlags};
use super::help;
pub use super::kind::Kind;
use crate::reader::sentence;
use windlass_core::api::names::GROUP;

/// An object that the command line names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    pub kind: Kind,
    pub name: String,
}

impl Target {
    fn new(kind: Kind, name: &str) -> Result<Self, String> {
        if name.is_empty() || name.contains('/') {
            return Err(format!("{name:?} does not name an object; write {}", Kind::forms("NAME")));
        }
        Ok(Self { kind, name: name.to_owned() })
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text
            .split_once('/')
            .ok_or_else(|| format!("{text:?} has no kind; write {}", Kind::forms(text)))?;
        let kind = Kind::called(kind)
            .ok_or_else(|| format!("{kind:?} is not a kind of Windlass; write {}", Kind::forms(name)))?;
        Self::new(kind, name)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{GROUP}/{}", self.kind.name().to_lowercase(), self.name)
    }
}

impl Target {
    /// The API of its kind.
    pub fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        self.kind.api(client, namespace)
    }

    /// Gets the object.
    pub async fn get(&self, client: &Client, namespace: &str) -> Result<Value, String> {
        match self.api(client, namespace).get_opt(&self.name).await {
            Ok(Some(object)) => Ok(json!(object)),
            Ok(None) => Err(format!(
                "{self} does not exist in namespace {namespace}; select another with --namespace"
            )),
            Err(error) => Err(format!("{self}: {}", sentence(&error))),
        }
    }

    /// An error unless it is of this kind.
    pub fn require(&self, kind: Kind, verb: &str) -> Result<(), String> {
        if self.kind == kind {
            return Ok(());
        }
        Err(format!("{self}: {verb} is for a {}; write {}/NAME", kind.name(), kind.short()))
    }
}

/// The objects that the words name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ObjectSelector {
    /// No words were given.
    Nothing,
    /// All objects of a kind.
    All(Kind),
    /// These, at least one.
    These(Vec<Target>),
}

impl ObjectSelector {
    /// The kinds of the objects.
    pub fn kinds(&self) -> Vec<Kind> {
        match self {
            Self::Nothing => Vec::new(),
            Self::All(kind) => vec![*kind],
            Self::These(targets) => targets.iter().map(|target| target.kind).collect(),
        }
    }

    /// An error if nodes are named, for a command about the objects that they belong to.
    pub fn require_no_node(&self, verb: &str) -> Result<(), String> {
        match self {
            Self::All(Kind::Node) => {
                Target { kind: Kind::Node, name: "NAME".to_owned() }.require(Kind::Fleet, verb)
            }
            Self::These(targets) => {
                let mut nodes = targets.iter().filter(|target| target.kind == Kind::Node);
                nodes.try_for_each(|target| target.require(Kind::Fleet, verb))
            }
            Self::Nothing | Self::All(_) => Ok(()),
        }
    }

    /// Parses words as kubectl does: each `TYPE/NAME`, or a type and then names, or a type alone.
    pub fn read(words: &[String]) -> Result<Self, String> {
        let Some((first, names)) = words.split_first() else { return Ok(Self::Nothing) };
        if first.contains('/') {
            let targets = words.iter().map(|word| {
                word.parse().map_err(|message| {
                    if word.contains('/') {
                        return message;
                    }
                    format!("{word:?} after {first:?} is not supported: write TYPE/NAME each time, or TYPE NAME NAME")
                })
            });
            return targets.collect::<Result<_, String>>().map(Self::These);
        }
        match (Kind::called(first), names) {
            (None, []) => Err(format!("{first:?} has no kind; write {}", Kind::forms(first))),
            (None, [name, ..]) => {
                Err(format!("{first:?} is not a kind of Windlass; write nd {name} or sn {name}"))
            }
            (Some(kind), []) => Ok(Self::All(kind)),
            (Some(kind), names) => {
                names.iter().map(|name| Target::new(kind, name)).collect::<Result<_, _>>().map(Self::These)
            }
        }
    }
}

/// An object with its namespace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Located {
    /// The object.
    pub target: Target,
    pub namespace: String,
}

/// The words of a verb, which requires names.
#[derive(Args, Clone, Debug)]
struct NamedArgs {
    #[arg(help = help::named(help::has_rollouts), value_name = "TYPE/NAME", required = true, add = ArgValueCompleter::new(objects))]
    words: Vec<String>,
    /// Every object of the type
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    flags: ClusterFlags,
}

/// The objects of a verb.
#[derive(Clone, Debug)]
pub struct Named {
    selector: ObjectSelector,
    /// The cluster and the namespaces.
    pub flags: ClusterFlags,
}

/// The words of a command that only reads.
#[derive(Args, Clone, Debug)]
struct SelectedArgs {
    #[arg(help = help::selected(help::has_rollouts), value_name = "TYPE/NAME", add = ArgValueCompleter::new(objects))]
    words: Vec<String>,
    #[command(flatten)]
    flags: ClusterFlags,
}

/// The objects of a command that only reads.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The objects that were named.
    pub selector: ObjectSelector,
    /// The cluster and the namespaces.
    pub flags: ClusterFlags,
}

impl Named {
    fn checked(words: NamedArgs) -> Result<Self, String> {
        let NamedArgs { words, all, flags } = words;
        let selector = ObjectSelector::read(&words)?;
        match (&selector, all) {
            (ObjectSelector::These(_), true) => Err("--all needs a type without a name: nd --all".to_owned()),
            (ObjectSelector::All(kind), false) => {
                let short = kind.short();
                Err(format!("{short} needs a name; write {short}/NAME, or {short} --all for all of them"))
            }
            (ObjectSelector::These(_), false) if flags.all_namespaces => {
                Err("--all-namespaces needs TYPE --all, without names".to_owned())
            }
            _ => Ok(Self { selector, flags }),
        }
    }

    /// The kind of all objects, if they are of one.
    pub fn kind(&self) -> Option<Kind> {
        match &self.selector {
            ObjectSelector::Nothing => None,
            ObjectSelector::All(kind) => Some(*kind),
            ObjectSelector::These(targets) => {
                let first = targets.first()?.kind;
                targets.iter().all(|target| target.kind == first).then_some(first)
            }
        }
    }

    /// True if a single object was named.
    pub fn is_one(&self) -> bool {
        matches!(&self.selector, ObjectSelector::These(targets) if targets.len() == 1)
    }

    /// The objects with their namespaces. Lists from the API server only if all of a type are selected; an error if
    /// there are none, since a verb without objects would otherwise seem to succeed.
    pub async fn located(&self, cluster: &Cluster) -> Result<Vec<Located>, String> {
        let located = self.selector.located(cluster).await?;
        match &self.selector {
            ObjectSelector::All(kind) if located.is_empty() => {
                Err(kind.none_found(Some(&*cluster.namespace).filter(|_| !cluster.all_namespaces)))
            }
            _ => Ok(located),
        }
    }
}

impl ObjectSelector {
    /// The objects with their namespaces. Lists from the API server only if all of a type are selected.
    pub async fn located(&self, cluster: &Cluster) -> Result<Vec<Located>, String> {
        match self {
            Self::Nothing => Ok(Vec::new()),
            Self::These(targets) => {
                let namespace = &cluster.namespace;
                Ok(targets
                    .iter()
                    .map(|t| Located { target: t.clone(), namespace: namespace.clone() })
                    .collect())
            }
            Self::All(kind) => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let located = |object: Value| Located {
                    target: Target { kind: *kind, name: text(&object["metadata"]["name"]) },
                    namespace: text(&object["metadata"]["namespace"]),
                };
                Ok(kind.list(cluster).await?.into_iter().map(located).collect())
            }
        }
    }
}

impl Selected {
    fn checked(words: SelectedArgs) -> Result<Self, String> {
        let SelectedArgs { words, flags } = words;
        let selector = ObjectSelector::read(&words)?;
        if matches!(selector, ObjectSelector::These(_)) && flags.all_namespaces {
            return Err("--all-namespaces needs a type without names".to_owned());
        }
        Ok(Self { selector, flags })
    }
}

/// A usage error, as clap prints it.
fn wrong(sentence: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{sentence}\n"))
}

/// Has clap parse the words, then checks them as a whole.
macro_rules! read_by_clap {
    ($type:ty, $words:ty) => {
        impl FromArgMatches for $type {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                <$words>::from_arg_matches(matches)
                    .and_then(|words| Self::checked(words).map_err(|e| wrong(&e)))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }

        impl Args for $type {
            fn augment_args(command: Command) -> Command {
                <$words>::augment_args(command)
            }

            fn augment_args_for_update(command: Command) -> Command {
                <$words>::augment_args_for_update(command)
            }
        }
    };
}
read_by_clap!(Named, NamedArgs);
read_by_clap!(Selected, SelectedArgs);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::empty_cluster::without_objects;

    #[tokio::test]
    async fn verb_with_empty_selection_reports_no_objects_found() {
        for (kind, all_namespaces, expected) in [
            (Kind::Fleet, false, "No fleets found in namespace typo."),
            (Kind::Fleet, true, "No fleets found in any namespace."),
            (Kind::Node, false, "No StatefulNodes found in namespace typo."),
        ] {
            let cluster = Cluster { client: without_objects(), namespace: "typo".to_owned(), all_namespaces };
            let all = Named { selector: ObjectSelector::All(kind), flags: ClusterFlags::default() };
            assert_eq!(all.located(&cluster).await, Err(expected.to_owned()));
        }
        let cluster =
            Cluster { client: without_objects(), namespace: "shop".to_owned(), all_namespaces: false };
        let one = ObjectSelector::read(&["nd/db".to_owned()]).unwrap();
        let named = Named { selector: one, flags: ClusterFlags::default() };
        assert_eq!(named.located(&cluster).await.unwrap().len(), 1, "named objects are read later");
    }

    fn read(line: &str) -> Result<Vec<String>, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Ok(match ObjectSelector::read(&words)? {
            ObjectSelector::Nothing => Vec::new(),
            ObjectSelector::All(kind) => vec![format!("all {}", kind.name())],
            ObjectSelector::These(targets) => targets.iter().map(Target::to_string).collect(),
        })
    }

    #[test]
    fn object_names_follow_kubectl_syntax() {
        let (db, web, node) = (
            "nodedeployment.windlass.dev/db",
            "nodedeployment.windlass.dev/web",
            "statefulnode.windlass.dev/db-0",
        );
        for (line, expected) in [
            ("nd/db", vec![db]),
            ("NodeDeployment/db", vec![db]),
            ("nodedeployments.windlass.dev/db", vec![db]),
            ("nodedeployments.v1alpha1.windlass.dev/db", vec![db]),
            ("sn/db-0", vec![node]),
            ("statefulnodes/db-0", vec![node]),
            ("nd db", vec![db]),
            ("nd db web", vec![db, web]),
            ("nd/db nd/web sn/db-0", vec![db, web, node]),
            ("nd", vec!["all NodeDeployment"]),
            ("statefulnodes", vec!["all StatefulNode"]),
            ("", vec![]),
        ] {
            assert_eq!(read(line), Ok(expected.into_iter().map(str::to_owned).collect()), "{line}");
        }
    }

    #[test]
    fn invalid_object_name_gets_a_usage_hint() {
        for (line, message) in [
            ("db", "write nd/db, sn/db"),
            ("db web", "\"db\" is not a kind of Windlass; write nd web"),
            ("pod/db", "write nd/db, sn/db"),
            ("nd/", "write nd/NAME"),
            ("nd/a/b", "write nd/NAME"),
            ("/db", "write nd/db"),
            ("nd db nd/web", "write nd/NAME"),
            ("nd/db web", "write TYPE/NAME each time"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(message), "{line}: {error}");
        }
    }
}
