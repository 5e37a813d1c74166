//! The resolution of `spec.connection`.

use serde_json::{Value, json};
use windlass_kube_port::{Key, Kind};

use crate::api::{Connection, ConnectionSource, Reason};
use crate::connect::{Found, Place, resolve};

fn source(value: Value) -> ConnectionSource {
    serde_json::from_value(value).unwrap()
}

#[test]
fn connection_is_resolved_from_its_place() {
    let spec = json!({"address": "t:7233", "namespace": "orders", "tls": {"caSecret": "ca"}});
    let mut shared = spec.clone();
    (shared["allowedNamespaces"], shared["secretNamespace"]) = (json!(["shop", "other"]), json!("system"));
    let mut foreign = shared.clone();
    foreign["allowedNamespaces"] = json!(["other"]);
    let of_shop: Place = (Kind::TemporalConnection, Key::new("shop", "main"));
    let of_cluster: Place = (Kind::ClusterTemporalConnection, Key::new("", "main"));
    let (named, cluster) = (json!({"name": "main"}), json!({"clusterName": "main"}));
    let moved = json!({"name": "main", "namespace": "billing"});
    let elsewhere = json!({"clusterName": "main", "namespace": "billing"});
    let mut wide = shared.clone();
    wide["temporalNamespaces"] = json!(["billing"]);
    for (given, place, found, expected) in [
        (json!({"address": "t:7233"}), None, Found::Unlisted, Ok(("default", "shop"))),
        (named.clone(), Some(&of_shop), Found::Spec(spec.clone()), Ok(("orders", "shop"))),
        (moved, Some(&of_shop), Found::Spec(spec.clone()), Ok(("billing", "shop"))),
        (cluster.clone(), Some(&of_cluster), Found::Spec(shared.clone()), Ok(("orders", "system"))),
        // Who may use the operator's credentials in one Temporal namespace may not use them in all.
        (elsewhere.clone(), Some(&of_cluster), Found::Spec(shared), Err(Reason::ConnectionNotAllowed)),
        (elsewhere, Some(&of_cluster), Found::Spec(wide), Ok(("billing", "system"))),
        (cluster.clone(), Some(&of_cluster), Found::Spec(foreign), Err(Reason::ConnectionNotAllowed)),
        (cluster, Some(&of_cluster), Found::Missing, Err(Reason::ConnectionNotFound)),
        (named.clone(), Some(&of_shop), Found::Missing, Err(Reason::ConnectionNotFound)),
        (named.clone(), Some(&of_shop), Found::Unlisted, Err(Reason::ConnectionNotFound)),
        (named, Some(&of_shop), Found::Spec(json!({"address": 1})), Err(Reason::InvalidSpec)),
    ] {
        let find = |asked: &Place| {
            assert_eq!(Some(asked), place, "{given}");
            found.clone()
        };
        let resolved = resolve("shop", &source(given.clone()), None, find);
        let short = resolved.as_ref().map(|r| (r.connection.namespace.as_str(), r.secrets_in.as_str()));
        assert_eq!(short.map_err(|unresolved| unresolved.reason), expected, "{given}: {resolved:?}");
    }
}

#[test]
fn temporal_namespace_of_a_known_connection_cannot_change() {
    let nothing = |_: &Place| Found::Missing;
    let inline = |namespace: &str| source(json!({"address": "new:7233", "namespace": namespace}));
    let last = Connection { address: "old:7233".into(), namespace: "orders".into(), ..Connection::default() };
    assert!(resolve("shop", &inline("orders"), Some(&last), nothing).is_ok());
    let refused = resolve("shop", &inline("other"), Some(&last), nothing).unwrap_err();
    assert_eq!(refused.reason, Reason::InvalidSpec);
    assert!(refused.message.contains("from orders to other"), "{}", refused.message);
}

#[test]
fn connection_source_is_written_as_it_was_read() {
    for given in [
        json!({"name": "main"}),
        json!({"clusterName": "main", "namespace": "orders"}),
        json!({"address": "t:7233", "namespace": "default", "workerSecret": "env"}),
    ] {
        assert_eq!(json!(source(given.clone())), given);
    }
    for given in [json!({}), json!({"name": "a", "clusterName": "b"}), json!({"name": "a", "address": "b:1"})]
    {
        let error = serde_json::from_value::<ConnectionSource>(given).unwrap_err().to_string();
        assert_eq!(error, "connection needs exactly one of name, clusterName and address");
    }
}
