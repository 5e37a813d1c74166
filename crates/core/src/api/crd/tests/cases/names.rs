//! Names of objects.

use super::{Case, fleet, node};

pub(super) fn names() -> Vec<Case> {
    let pattern = "metadata.name has to match [a-z]([-a-z0-9]*[a-z0-9])?";
    let fleet_named = |name: &str| fleet(&[("metadata.name", name.into())]);
    let node_named = |name: &str| node(&[("metadata.name", name.into())]);
    let field = "metadata.name";
    vec![
        Case::new(
            "a fleet's name of 40 characters",
            fleet_named(&"n".repeat(40)),
            fleet_named(&"n".repeat(39)),
            field,
            "metadata.name of a NodeDeployment is longer than 39 characters",
        ),
        Case::new("a fleet's name with a dot", fleet_named("my.db"), fleet_named("my-db"), field, pattern),
        Case::new(
            "a fleet's name that begins with a digit",
            fleet_named("9db"),
            fleet_named("d9"),
            field,
            pattern,
        ),
        Case::new(
            "a node's name of 53 characters",
            node_named(&"n".repeat(53)),
            node_named(&"n".repeat(52)),
            field,
            "metadata.name of a StatefulNode is longer than 52 characters",
        ),
        Case::new("a node's name with a dot", node_named("db.0"), node_named("db-0"), field, pattern),
        Case::new("a node's name that begins with a digit", node_named("0"), node_named("d"), field, pattern),
    ]
}
