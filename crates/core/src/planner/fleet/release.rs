//! What a status may report about `deletionPolicy` and `volumeClaimRetention`: what has been carried out, never what is
//! desired. A user who deletes a fleet relies on `Retain`, so the status stops reporting it before the first node or
//! claim is released from it. Pure.

use crate::api::{ClaimRetention, DeletionPolicy, NodeDeploymentStatus};

/// How far a policy of the spec has been carried out on the objects that exist.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Carried {
    /// On all of them.
    OnAll,
    /// On all of them, but a node has not yet confirmed that it saw the last change.
    NotSeenByAll,
    /// Not on all of them.
    NotOnAll,
}

/// What the spec says, and how far it has been carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Release {
    /// `spec.deletionPolicy`.
    pub policy: DeletionPolicy,
    /// How far that is carried out on the nodes and on the fleet's Service.
    pub nodes: Carried,
    /// `spec.template.spec.volumeClaimRetention`.
    pub retention: ClaimRetention,
    /// How far that is carried out on the nodes' claims.
    pub claims: Carried,
}

/// The value that the status may have. It is `Delete` until every object is released, so that nobody relies on `Retain`
/// too early. It is empty while released objects are being owned again.
fn retain_report<P: Copy + PartialEq>(
    before: Option<P>,
    wanted: P,
    carried: Carried,
    (retain, delete): (P, P),
) -> Option<P> {
    match carried {
        Carried::OnAll => Some(wanted),
        // An empty field looks like the status of an earlier version, in which no claim ever had an owner. So this
        // reports `Delete` until every node has confirmed.
        Carried::NotSeenByAll if wanted == retain => before.or(Some(delete)),
        Carried::NotOnAll if wanted == retain => Some(delete),
        Carried::NotSeenByAll | Carried::NotOnAll => before.filter(|before| *before == delete),
    }
}

/// Updates both fields.
pub fn refresh(status: &mut NodeDeploymentStatus, release: &Release) {
    let policies = (DeletionPolicy::Retain, DeletionPolicy::Delete);
    let retentions = (ClaimRetention::Retain, ClaimRetention::Delete);
    status.deletion_policy = retain_report(status.deletion_policy, release.policy, release.nodes, policies);
    let retention =
        retain_report(status.volume_claim_retention, release.retention, release.claims, retentions);
    // The two fields are never cleared in one write: a status with neither looks like one that an earlier version
    // wrote.
    if retention.is_some() || status.deletion_policy.is_some() {
        status.volume_claim_retention = retention;
    }
}

/// True if a status that has had neither field need not be written for these fields alone. An earlier version wrote
/// neither of them, and a fleet that is at rest is not updated for that reason, unless a user may wait for what they
/// report.
#[must_use]
pub fn can_wait(before: &NodeDeploymentStatus, after: &NodeDeploymentStatus, release: &Release) -> bool {
    let said_nothing = before.deletion_policy.is_none() && before.volume_claim_retention.is_none();
    let awaited = release.policy == DeletionPolicy::Retain
        || (release.retention == ClaimRetention::Retain
            && after.volume_claim_retention == Some(ClaimRetention::Delete));
    let silent =
        NodeDeploymentStatus { deletion_policy: None, volume_claim_retention: None, ..after.clone() };
    said_nothing && !awaited && silent == *before
}

#[cfg(test)]
mod tests {
    use super::*;
    use Carried::{NotOnAll, NotSeenByAll, OnAll};
    use DeletionPolicy::{Delete, Retain};

    fn release(policy: DeletionPolicy, nodes: Carried) -> Release {
        Release { policy, nodes, retention: ClaimRetention::Retain, claims: OnAll }
    }

    #[test]
    fn retain_is_reported_only_while_all_objects_carry_it() {
        let cases = [
            (None, Retain, OnAll, Some(Retain)),
            (None, Retain, NotOnAll, Some(Delete)),
            (None, Delete, OnAll, Some(Delete)),
            (None, Delete, NotOnAll, None),
            (Some(Delete), Retain, NotOnAll, Some(Delete)),
            (None, Retain, NotSeenByAll, Some(Delete)),
            (Some(Delete), Retain, NotSeenByAll, Some(Delete)),
            (Some(Delete), Retain, OnAll, Some(Retain)),
            (Some(Retain), Retain, NotSeenByAll, Some(Retain)),
            (Some(Retain), Retain, NotOnAll, Some(Delete)),
            (Some(Retain), Delete, NotOnAll, None),
            (Some(Retain), Delete, NotSeenByAll, None),
            (Some(Retain), Delete, OnAll, Some(Delete)),
            (Some(Delete), Delete, NotOnAll, Some(Delete)),
        ];
        for (before, wanted, carried, after) in cases {
            let mut status =
                NodeDeploymentStatus { deletion_policy: before, ..NodeDeploymentStatus::default() };
            refresh(&mut status, &release(wanted, carried));
            assert_eq!(status.deletion_policy, after, "{before:?} {wanted:?} {carried:?}");
        }
    }

    #[test]
    fn simultaneous_retain_withdrawals_happen_one_at_a_time() {
        let mut status = NodeDeploymentStatus {
            deletion_policy: Some(Retain),
            volume_claim_retention: Some(ClaimRetention::Retain),
            ..NodeDeploymentStatus::default()
        };
        let both =
            |nodes, claims| Release { policy: Delete, nodes, retention: ClaimRetention::Delete, claims };
        refresh(&mut status, &both(NotOnAll, NotOnAll));
        assert_eq!(
            (status.deletion_policy, status.volume_claim_retention),
            (None, Some(ClaimRetention::Retain))
        );
        refresh(&mut status, &both(OnAll, NotOnAll));
        assert_eq!((status.deletion_policy, status.volume_claim_retention), (Some(Delete), None));
        refresh(&mut status, &both(OnAll, OnAll));
        assert_eq!(status.volume_claim_retention, Some(ClaimRetention::Delete));
    }

    #[test]
    fn status_of_older_fleet_is_written_only_when_required() {
        let before = NodeDeploymentStatus::default();
        let after = |release: &Release| {
            let mut status = before.clone();
            refresh(&mut status, release);
            status
        };
        let waits = |release: Release| can_wait(&before, &after(&release), &release);
        assert!(waits(release(Delete, OnAll)));
        assert!(!waits(release(Retain, OnAll)), "its delete is refused until then");
        assert!(!waits(release(Retain, NotOnAll)));
        let owned = Release { claims: NotOnAll, ..release(Delete, OnAll) };
        assert!(!waits(owned), "a claim would go with its node");
        let going = Release { retention: ClaimRetention::Delete, ..release(Delete, OnAll) };
        assert!(waits(going));
        let more = NodeDeploymentStatus { replicas: 1, ..after(&release(Delete, OnAll)) };
        assert!(!can_wait(&before, &more, &release(Delete, OnAll)), "it is written anyway");
        let known =
            NodeDeploymentStatus { volume_claim_retention: Some(ClaimRetention::Retain), ..before.clone() };
        let next = NodeDeploymentStatus { deletion_policy: Some(Delete), ..known.clone() };
        assert!(!can_wait(&known, &next, &release(Delete, OnAll)), "it was under way, and is done");
    }
}
