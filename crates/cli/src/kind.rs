//! The kinds of objects on the command line, and their names.

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};

use super::connection::Cluster;
use crate::extension::{EXTENSIONS, Extension};
use crate::reader::sentence;
use windlass_core::api::names::{GROUP, VERSION};

/// The kinds of objects on the command line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A NodeDeployment.
    Fleet,
    /// A StatefulNode.
    Node,
    /// A kind of an extension.
    Other(&'static dyn Extension),
}

impl Kind {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Fleet, Self::Node].into_iter().chain(EXTENSIONS.iter().copied().map(Self::Other))
    }

    /// The kind in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fleet => "NodeDeployment",
            Self::Node => "StatefulNode",
            Self::Other(other) => other.name(),
        }
    }

    /// The short name.
    pub fn short(self) -> &'static str {
        match self {
            Self::Fleet => "nd",
            Self::Node => "sn",
            Self::Other(other) => other.short(),
        }
    }

    /// True if its objects have a template of their own, which `windlass promote` and `windlass rollback` are about.
    pub fn has_template(self) -> bool {
        match self {
            Self::Fleet => true,
            Self::Node => false,
            Self::Other(other) => other.has_template(),
        }
    }

    /// An object of each kind, such as `nd/db, sn/db or ssr/db`.
    pub fn forms(name: &str) -> String {
        either(&Self::all().map(|kind| format!("{}/{name}", kind.short())).collect::<Vec<_>>())
    }

    /// The message if no object of this kind exists in a namespace, or, without one, in any.
    pub fn none_found(self, namespace: Option<&str>) -> String {
        let what = match self {
            Self::Fleet => "fleets".to_owned(),
            Self::Node | Self::Other(_) => format!("{}s", self.name()),
        };
        match namespace {
            None => format!("No {what} found in any namespace."),
            Some(namespace) => format!("No {what} found in namespace {namespace}."),
        }
    }

    /// The kind with this short, singular or plural name.
    pub fn called(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        let word = word.strip_suffix(".windlass.dev").unwrap_or(&word);
        match word.strip_suffix(".v1alpha1").unwrap_or(word) {
            "nd" | "nodedeployment" | "nodedeployments" => Some(Self::Fleet),
            "sn" | "statefulnode" | "statefulnodes" => Some(Self::Node),
            word => EXTENSIONS.iter().copied().find(|other| is_called(*other, word)).map(Self::Other),
        }
    }

    fn resource(self) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, self.name()))
    }

    /// The API of this kind in a namespace.
    pub fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource())
    }

    /// All objects of this kind in the selected namespaces, by namespace and name.
    pub async fn list(self, cluster: &Cluster) -> Result<Vec<Value>, String> {
        let api: Api<DynamicObject> = if cluster.all_namespaces {
            Api::all_with(cluster.client.clone(), &self.resource())
        } else {
            self.api(&cluster.client, &cluster.namespace)
        };
        let list = api.list(&ListParams::default()).await.map_err(|error| sentence(&error))?;
        let mut items = list.items;
        items.sort_by(|a, b| {
            (&a.metadata.namespace, &a.metadata.name).cmp(&(&b.metadata.namespace, &b.metadata.name))
        });
        // The items of a list lack apiVersion and kind.
        for item in &mut items {
            item.types.get_or_insert_with(|| kube::api::TypeMeta {
                api_version: format!("{GROUP}/{VERSION}"),
                kind: self.name().to_owned(),
            });
        }
        Ok(items.into_iter().map(|item| json!(item)).collect())
    }
}

/// The words, separated by commas and "or".
pub fn either(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [word] => word.clone(),
        [words @ .., last] => format!("{} or {last}", words.join(", ")),
    }
}

/// True if the word is the short, singular or plural name of the extension's kind.
fn is_called(other: &dyn Extension, word: &str) -> bool {
    let singular = other.name().to_lowercase();
    word == other.short() || word.strip_suffix('s').unwrap_or(word) == singular
}
