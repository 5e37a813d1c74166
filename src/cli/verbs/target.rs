//! Which object is meant: `KIND/NAME`.

use std::fmt;
use std::str::FromStr;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use crate::api::names::{GROUP, VERSION};

/// The kinds that a person may name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A NodeDeployment.
    Fleet,
    /// A StatefulNode.
    Node,
}

impl Kind {
    /// The kind's name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fleet => "NodeDeployment",
            Self::Node => "StatefulNode",
        }
    }
}

/// An object that a person named.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text
            .split_once('/')
            .ok_or_else(|| format!("{text:?} names no kind; write nd/{text} or sn/{text}"))?;
        let kind = match kind.to_lowercase().trim_end_matches(".windlass.dev") {
            "nd" | "nodedeployment" | "nodedeployments" => Kind::Fleet,
            "sn" | "statefulnode" | "statefulnodes" => Kind::Node,
            other => {
                return Err(format!("{other:?} is no kind of Windlass; write nd/{name} or sn/{name}"));
            }
        };
        if name.is_empty() || name.contains('/') {
            return Err(format!("{text:?} names no object; write nd/NAME or sn/NAME"));
        }
        Ok(Self { kind, name: name.to_owned() })
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
        let kind = GroupVersionKind::gvk(GROUP, VERSION, self.kind.name());
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
    }

    /// Reads it.
    pub async fn get(&self, client: &Client, namespace: &str) -> Result<Value, String> {
        match self.api(client, namespace).get_opt(&self.name).await {
            Ok(Some(object)) => Ok(json!(object)),
            Ok(None) => Err(format!("{self} is not in namespace {namespace}; name another with --namespace")),
            Err(kube::Error::Api(status)) => Err(format!("{self}: {}", status.message)),
            Err(error) => Err(format!("{self}: the API server cannot be reached: {error}")),
        }
    }

    /// A sentence unless it is of this kind.
    pub fn require(&self, kind: Kind, verb: &str) -> Result<(), String> {
        if self.kind == kind {
            return Ok(());
        }
        Err(format!("{self}: {verb} is for a {}; name one, as nd/NAME", kind.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_as_kubectl_names_it() {
        for (text, expected) in [
            ("nd/db", "nodedeployment.windlass.dev/db"),
            ("NodeDeployment/db", "nodedeployment.windlass.dev/db"),
            ("nodedeployments.windlass.dev/db", "nodedeployment.windlass.dev/db"),
            ("sn/db-0", "statefulnode.windlass.dev/db-0"),
            ("statefulnodes/db-0", "statefulnode.windlass.dev/db-0"),
        ] {
            assert_eq!(text.parse::<Target>().map(|t| t.to_string()).as_deref(), Ok(expected), "{text}");
        }
        for text in ["db", "pod/db", "nd/", "nd/a/b", "/db"] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(error.contains("write nd/"), "{text}: {error}");
        }
    }
}
