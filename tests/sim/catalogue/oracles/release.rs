//! What a fleet's status says of its release: `Retain` only while nothing that is to stay would go with the fleet.

use std::collections::BTreeSet;

use serde_json::Value;

#[derive(Debug, Default)]
pub struct Release {
    /// True if the status says `deletionPolicy: Retain`.
    nodes_stay: bool,
    /// True if the status says `volumeClaimRetention: Retain`.
    claims_stay: bool,
    /// The objects, as `kind name`, that garbage collection deletes with the fleet or with a node.
    goes: BTreeSet<String>,
    /// Objects that somebody else wrote last: Windlass could not have known.
    of_others: BTreeSet<String>,
}

impl Release {
    /// Takes in a change, and checks the fleet if Windlass made it.
    pub fn step(
        &mut self,
        kind: &str,
        name: &str,
        after: Option<&Value>,
        by_operator: bool,
    ) -> Option<String> {
        let object = format!("{kind} {name}");
        let owners: &[&str] = match kind {
            "NodeDeployment" => {
                let status = after.map(|fleet| &fleet["status"]);
                let says = |field: &str| status.is_some_and(|status| status[field] == "Retain");
                (self.nodes_stay, self.claims_stay) = (says("deletionPolicy"), says("volumeClaimRetention"));
                &[]
            }
            "StatefulNode" | "Service" => &["NodeDeployment"],
            "PersistentVolumeClaim" => &["StatefulNode", "StatefulSet", "Pod"],
            _ => return None,
        };
        let stays = after.filter(|after| after["metadata"]["deletionTimestamp"].is_null());
        let list = stays.and_then(|after| after["metadata"]["ownerReferences"].as_array());
        let is_owned = list.into_iter().flatten().any(|o| owners.iter().any(|kind| o["kind"] == *kind));
        set(&mut self.goes, &object, is_owned);
        set(&mut self.of_others, &object, !by_operator);
        if by_operator { self.broken() } else { None }
    }

    fn broken(&self) -> Option<String> {
        let claims = "PersistentVolumeClaim ";
        let mut going = self.goes.difference(&self.of_others);
        let object = going
            .find(|object| if object.starts_with(claims) { self.claims_stay } else { self.nodes_stay })?;
        Some(format!("oracle 4: the status says Retain although {object} would go"))
    }
}

fn set(of: &mut BTreeSet<String>, object: &str, is_in: bool) {
    if is_in {
        of.insert(object.to_owned());
    } else {
        of.remove(object);
    }
}
