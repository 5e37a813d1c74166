//! Failure domains, and nodes that are updated last: the same for fleets and for StatefulSets.

use serde_json::{Value, json};

use super::{Case, fleet, rollout};

type Place = (fn(Value) -> Value, [&'static str; 5]);

const PLACES: [Place; 2] = [
    (
        |strategy| {
            let sidecar = json!({"url": "http://127.0.0.1:7777"});
            fleet(&[("spec.updateStrategy.inPlace", strategy), ("spec.template.spec.sidecar", sidecar)])
        },
        [
            "spec.updateStrategy.inPlace.topology.key",
            "spec.updateStrategy.inPlace.topology.maxUnavailable",
            "spec.updateStrategy.inPlace.topology.maxUnavailableDomains",
            "spec.updateStrategy.inPlace.order.last",
            "spec.updateStrategy.inPlace.order.last.podLabels",
        ],
    ),
    (
        |strategy| rollout(&[("spec.strategy", strategy)]),
        [
            "spec.strategy.topology.key",
            "spec.strategy.topology.maxUnavailable",
            "spec.strategy.topology.maxUnavailableDomains",
            "spec.strategy.order.last",
            "spec.strategy.order.last.podLabels",
        ],
    ),
];

pub(super) fn topology() -> Vec<Case> {
    let zone = json!({"key": "topology.kubernetes.io/zone", "maxUnavailable": "100%"});
    let mut cases = Vec::new();
    for (place, [key, share, most, last, labels]) in PLACES {
        let with = |field: &str, value: Value| {
            let mut topology = zone.clone();
            topology[field] = value;
            place(json!({"topology": topology}))
        };
        let last_of = |last: Value| place(json!({"order": {"last": last}}));
        let primary = || json!({"podLabels": {"role": "primary"}});
        cases.extend([
            Case::new(
                "no label key",
                with("key", "a zone".into()),
                with("key", "rack".into()),
                key,
                "topology.key has to be",
            ),
            Case::new(
                "no share of a domain",
                with("maxUnavailable", 0.into()),
                with("maxUnavailable", 2.into()),
                share,
                "topology.maxUnavailable has to be a number above 0",
            ),
            Case::new(
                "no domain may have an unavailable node",
                with("maxUnavailableDomains", 0.into()),
                with("maxUnavailableDomains", 2.into()),
                most,
                "should be greater than or equal to 1",
            )
            .by_schema(),
            Case::new(
                "a label that no pod can have",
                last_of(json!({"podLabels": {"role": "not a value!"}})),
                last_of(json!({"podLabels": {"example.com/role": ""}})),
                labels,
                "order.last.podLabels has a key or value",
            ),
            Case::new(
                "a label key that no pod can have",
                last_of(json!({"podLabels": {"a b": "primary"}})),
                last_of(primary()),
                labels,
                "order.last.podLabels has a key or value",
            ),
            Case::new(
                "nothing is last",
                last_of(json!({})),
                last_of(primary()),
                last,
                "order.last needs either podLabels or sidecar",
            ),
        ]);
    }
    let by_role = json!({"order": {"last": {"sidecar": "primary"}}});
    let of_fleet = |extra: &[(&str, Value)]| {
        fleet(&[&[("spec.updateStrategy.inPlace", by_role.clone())], extra].concat())
    };
    cases.extend([
        Case::new(
            "a role without a sidecar",
            of_fleet(&[]),
            of_fleet(&[("spec.template.spec.sidecar", json!({"url": "http://127.0.0.1:7777"}))]),
            "spec.updateStrategy.inPlace.order.last.sidecar",
            "order.last.sidecar needs template.spec.sidecar",
        ),
        Case::new(
            "a role of pods that have no sidecar",
            rollout(&[("spec.strategy", by_role)]),
            rollout(&[("spec.strategy", json!({"order": {"last": {"podLabels": {"role": "primary"}}}}))]),
            "spec.strategy.order.last.sidecar",
            "order.last.sidecar is not possible in a StatefulSetRollout",
        ),
    ]);
    cases
}
