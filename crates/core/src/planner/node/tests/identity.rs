//! A pod is identified by what it was created for, whatever a platform changes in its StatefulSet's revision, its
//! template, its containers and their images.

use super::super::decide::{NodeDecision, decide, recipes};
use super::super::status::{SidecarAnswer, StatusInput, status};
use super::*;
use crate::api::{BuiltFor, PodTemplateHash, StatefulNodeStatus, StatefulSetRef};

fn made_for(version: &str) -> BuiltFor {
    BuiltFor { hash: version.into(), image: image(version), main_container: "db".to_owned() }
}

/// The StatefulSet's revision changed by itself: its template is still that of the version.
fn moved(version: &str) -> LiveStatefulSet {
    LiveStatefulSet { update_revision: "db-0-moved".to_owned(), ..set(version) }
}

fn knowing(set: LiveStatefulSet, revisions: &[&str]) -> LiveStatefulSet {
    LiveStatefulSet { known_revisions: revisions.iter().map(|r| (*r).to_owned()).collect(), ..set }
}

/// A pod with annotations of what it was created for, which is not the one that the status describes.
fn annotated(version: &str) -> PodFacts {
    PodFacts { made_for: Some(made_for(version)), ..pod(version).of_another_uid() }
}

#[test]
fn pod_target_is_independent_of_later_revisions() {
    let unknown = || Running::default();
    let table: Vec<(&str, NodeFacts, Option<&str>)> = vec![
        ("it is at the revision of the template", node().that_ran(unknown()), Some("v1")),
        ("the status names it", node().with_set(moved("v1")), Some("v1")),
        (
            "the status names it, and an earlier version of Windlass made it",
            node().with_set(moved("v1")).with_pod(PodFacts { made_for: None, ..pod("v1") }),
            Some("v1"),
        ),
        ("nothing tells of it", node().with_set(moved("v1")).that_ran(unknown()), None),
        (
            "it says so itself, at a revision that is known to be ours",
            node().with_set(knowing(moved("v1"), &["db-0-v1"])).with_pod(annotated("v1")),
            Some("v1"),
        ),
        (
            "it says so, at a revision that nobody knows: the template may have been edited",
            node().with_set(knowing(moved("v1"), &["db-0-v0"])).with_pod(annotated("v1")),
            None,
        ),
        (
            "its revision is known, and it says nothing",
            node().with_set(knowing(moved("v1"), &["db-0-v1"])).with_pod(pod("v1").of_another_uid()),
            None,
        ),
        (
            "it came back at an edited template, which kept the words",
            node()
                .with_edited_template()
                .with_pod(PodFacts { revision: "db-0-edited".to_owned(), ..annotated("v1") }),
            None,
        ),
        (
            "it says what it was made for, and that is not the template of now",
            node().with_set(knowing(set("v2"), &["db-0-v1", "db-0-v2"])).with_pod(annotated("v1")),
            Some("v1"),
        ),
        (
            "its StatefulSet reports no revisions",
            node().with_set(without_revisions("v1")).with_pod(annotated("v1")),
            Some("v1"),
        ),
        (
            "its StatefulSet reports no revisions, and somebody has edited it",
            node()
                .with_set(LiveStatefulSet { template: Template::Unknown, ..without_revisions("v1") })
                .with_pod(annotated("v1")),
            None,
        ),
        ("its StatefulSet is gone", node().without_set(), Some("v1")),
        (
            "its StatefulSet is gone, and nothing is known of it",
            node().without_set().with_pod(annotated("v1")),
            None,
        ),
    ];
    for (what, facts, expected) in table {
        let hash = facts.pod_hash(facts.pod.as_ref().unwrap());
        assert_eq!(hash.map(PodTemplateHash::as_str), expected, "{what}");
    }
}

fn without_revisions(version: &str) -> LiveStatefulSet {
    LiveStatefulSet { update_revision: String::new(), ..set(version) }
}

#[test]
fn unprompted_revision_change_does_not_replace_ready_pod() {
    let by_annotation = node().with_set(knowing(moved("v1"), &["db-0-v1"])).with_pod(annotated("v1"));
    for (what, facts) in [("by its UID", node().with_set(moved("v1"))), ("by its words", by_annotation)] {
        for facts in [
            facts.clone(),
            NodeFacts { grant_id: Some("grant-2".into()), ..facts.clone() },
            facts.clone().without_grant(),
        ] {
            assert!(!facts.needs_roll(), "{what}");
            assert!(facts.is_converged(), "{what}");
            assert_eq!(facts.running().hash, Some("v1".into()), "{what}");
            assert_eq!(decide(&facts, None, now()), NodeDecision::Keep, "{what}");
        }
    }
    // A pod about which nothing is known is not taken down without a new grant either.
    let strange = node().with_set(moved("v1")).that_ran(Running::default());
    assert!(!strange.needs_roll() && strange.is_kept_by_grant() && !strange.is_converged());
}

#[test]
fn image_is_the_requested_one_and_not_the_admitted_one() {
    let pinned = |pod: PodFacts| PodFacts { main_image: "mirror/db@sha256:1".to_owned(), ..pod };
    let pinned_set =
        |version| LiveStatefulSet { main_image: "mirror/db@sha256:1".to_owned(), ..set(version) };
    let upgraded = Running {
        hash: Some("v1".into()),
        image: "mirror/db@sha256:1".to_owned(),
        pod_uid: Some("pod-1".to_owned()),
    };
    let table = [
        ("pinned on the pod", node().with_pod(pinned(pod("v1"))), "db:v1"),
        ("pinned on both", node().with_set(pinned_set("v1")).with_pod(pinned(pod("v1"))), "db:v1"),
        (
            "an earlier version of Windlass believed the pod",
            node().with_pod(pinned(pod("v1"))).that_ran(upgraded),
            "db:v1",
        ),
        (
            "the pod says it, and this version renders another",
            node().rendering("v3").with_pod(pinned(annotated("v1"))).that_ran(Running::default()),
            "db:v1",
        ),
        ("only the status says it", node().rendering("v3").with_pod(pinned(pod("v1"))), "db:v1"),
        (
            "nobody says it",
            node().rendering("v3").with_pod(pinned(pod("v1"))).that_ran(Running::default()),
            "mirror/db@sha256:1",
        ),
        (
            "the same template, and another of its containers is the main one by now",
            NodeFacts {
                wanted: Ok(RenderedTarget { hash: "v1".into(), image: "log:1".to_owned() }),
                ..node().with_pod(annotated("v1"))
            },
            "log:1",
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.running().image, expected, "{what}");
    }
}

#[test]
fn pod_with_granted_annotations_is_of_an_unknown_revision() {
    // The StatefulSet's status is behind, so nothing but its annotations tells what the pod was created for.
    let unknown = || node().with_set(moved("v1")).that_ran(Running::default());
    let table: Vec<(&str, NodeFacts, PodFacts, bool)> = vec![
        ("annotations of the grant", unknown().granted("v2"), annotated("v2"), true),
        ("annotations of another template", unknown().granted("v2"), annotated("v3"), false),
        ("no annotations", unknown().granted("v2"), pod("v1").of_another_uid(), false),
        ("its revision is known", node().granted("v1"), annotated("v1"), false),
    ];
    for (what, facts, pod, expected) in table {
        assert_eq!(facts.is_of_an_unknown_revision(&pod), expected, "{what}");
    }
}

#[test]
fn recipe_for_a_roll_depends_on_the_requested_image() {
    let rewritten = || {
        let set = LiveStatefulSet {
            main_image: "mirror/db".to_owned(),
            made_for: Some(made_for("v1")),
            ..set("v1")
        };
        let pod =
            PodFacts { main_image: "mirror/db".to_owned(), made_for: Some(made_for("v1")), ..pod("v1") };
        node().with_set(set).with_pod(pod)
    };
    let same_image = Ok(RenderedTarget { hash: "v2".into(), image: image("v1") });
    let restart = NodeFacts { wanted: same_image, ..rewritten().granted("v2") };
    let start = |recipe| NodeDecision::Start { recipe, attempt: 0 };
    assert_eq!(decide(&restart, None, now()), start(recipes::RESTART_NODE));
    assert_eq!(decide(&rewritten().granted("v2"), None, now()), start(recipes::NODE_UPDATE));
}

/// The next status, computed from the previous one.
fn written(facts: &NodeFacts, previous: &StatefulNodeStatus) -> StatefulNodeStatus {
    let input = StatusInput {
        previous,
        generation: 1,
        plan: None,
        raw_plan: None,
        sidecar: &SidecarAnswer::NotConfigured,
        invalid: None,
        not_applied: None,
        set_name: "db-0",
        restarted_at: None,
        claims: Some(true),
        has_claims: false,
        now: now(),
    };
    status(facts, &input)
}

#[test]
fn learned_revisions_are_written_with_the_next_status_write() {
    let facts = || node().with_set(LiveStatefulSet { made_for: Some(made_for("v1")), ..set("v1") });
    // The status as an earlier version of Windlass wrote it.
    let mut at_rest = written(&facts(), &StatefulNodeStatus::default());
    at_rest.stateful_set = Some(StatefulSetRef {
        name: "db-0".to_owned(),
        uid: "set-uid".to_owned(),
        generation: 3,
        ..StatefulSetRef::default()
    });
    let next = written(&facts(), &at_rest);
    assert_eq!(next, at_rest, "a node at rest costs no write");

    let not_ready = written(&facts().with_pod(pod("v1").not_ready()), &at_rest);
    let set = not_ready.stateful_set.clone().unwrap();
    assert_eq!((set.template_digest.as_str(), set.revisions), ("digest of v1", vec!["db-0-v1".to_owned()]));

    let moved_on = LiveStatefulSet { generation: 4, ..knowing(moved("v1"), &["db-0-v1"]) };
    let facts = node().with_set(LiveStatefulSet { made_for: Some(made_for("v1")), ..moved_on });
    let set = written(&facts, &not_ready).stateful_set.unwrap();
    assert_eq!((set.generation, set.revisions), (4, vec!["db-0-v1".to_owned(), "db-0-moved".to_owned()]));
}

#[test]
fn only_revisions_of_templates_written_by_windlass_are_learned() {
    let ours = |set: LiveStatefulSet| LiveStatefulSet { made_for: Some(made_for("v1")), ..set };
    let learned = |facts: NodeFacts| {
        written(&facts.that_ran(Running::default()), &StatefulNodeStatus::default())
            .stateful_set
            .unwrap()
            .revisions
    };
    assert_eq!(learned(node().with_set(ours(set("v1")))), ["db-0-v1"]);
    assert_eq!(learned(node().with_set(set("v1"))), [""; 0], "its pods say nothing of themselves");
    let unseen = LiveStatefulSet { observed: false, ..ours(moved("v1")) };
    assert_eq!(learned(node().with_set(unseen)), [""; 0], "the revision may be that of the template before");
    let edited = LiveStatefulSet { template: Template::Unknown, ..ours(moved("v1")) };
    assert_eq!(learned(node().with_set(edited)), [""; 0], "the template is somebody else's");
    let known = ["r1", "r2", "r3", "r4", "r5"];
    let set = knowing(ours(set("v1")), &known);
    assert_eq!(learned(node().with_set(set)), ["r2", "r3", "r4", "r5", "db-0-v1"]);
}

#[test]
fn edited_set_keeps_the_record_of_the_written_template() {
    let before = StatefulSetRef {
        name: "db-0".to_owned(),
        uid: "set-uid".to_owned(),
        generation: 3,
        template_digest: "digest of v1".to_owned(),
        revisions: vec!["db-0-v1".to_owned()],
    };
    let previous = StatefulNodeStatus { stateful_set: Some(before.clone()), ..StatefulNodeStatus::default() };
    let edited = LiveStatefulSet {
        template: Template::Unknown,
        generation: 4,
        template_digest: "digest of the edit".to_owned(),
        ..knowing(moved("v1"), &["db-0-v1"])
    };
    assert_eq!(written(&node().with_set(edited), &previous).stateful_set, Some(before));
}
