//! What a node runs, whether it needs a plan, what its grant allows, and whether it has converged.

use super::*;

type Ran = (&'static str, NodeFacts, Running);
type Holds = (&'static str, NodeFacts, bool);

#[test]
fn running_target_is_derived_from_the_observed_pod() {
    let v2 = || node().granted("v2").with_template("v2");
    let new_pod = || pod("v2").of_another_uid();
    let none = Running::default();
    let fresh = Running { pod_uid: Some("pod-2".to_owned()), ..ran("v2") };
    let table: Vec<Ran> = vec![
        ("the pod serves", node(), ran("v1")),
        ("the new pod runs", v2().with_pod(new_pod()), fresh),
        (
            "the new pod runs and is not ready",
            v2().with_pod(new_pod().not_ready()),
            Running { pod_uid: Some("pod-2".to_owned()), ..ran("v2") },
        ),
        ("the new pod does not run yet", v2().with_pod(new_pod().not_running()), none.clone()),
        (
            "the new pod is there, its controller behind the template",
            v2().with_unseen_template("v2").with_pod(new_pod()),
            none.clone(),
        ),
        (
            "the template is edited, the new pod runs it",
            node()
                .with_edited_template()
                .with_pod(PodFacts { revision: "db-0-edited".to_owned(), ..new_pod() }),
            none.clone(),
        ),
        ("the old pod lives on under a new template", v2(), ran("v1")),
        (
            "the old pod lives on, its label still the update revision, template unseen",
            node().granted("v2").with_unseen_template("v2"),
            ran("v1"),
        ),
        ("the old pod lives on under an edited template", node().with_edited_template(), ran("v1")),
        ("the old pod's container restarts", node().with_pod(pod("v1").not_running()), ran("v1")),
        ("the old pod terminates under a new template", v2().with_pod(pod("v1").terminating()), none.clone()),
        (
            "the old pod terminates, the template still its own",
            node().with_pod(pod("v1").terminating()),
            ran("v1"),
        ),
        ("the pod is gone, the template still its own", node().without_pod(), ran("v1")),
        (
            "the pod is gone, the template unseen",
            node().with_unseen_template("v1").without_pod(),
            none.clone(),
        ),
        ("the pod is gone, another template", v2().without_pod(), none.clone()),
        ("the pod is gone, the template edited", node().with_edited_template().without_pod(), none.clone()),
        ("the pod is gone, and the StatefulSet", node().without_set().without_pod(), none.clone()),
        (
            "another pod of the same template comes",
            node()
                .with_pod(new_pod().not_running())
                .with_template("v1")
                .with_pod(pod("v1").of_another_uid().not_running()),
            ran("v1"),
        ),
        (
            "another pod of an older template came",
            node().with_pod(pod("v0").of_another_uid().not_running()),
            none.clone(),
        ),
        ("nothing was ever observed", node().with_pod(pod("v1").not_running()).that_ran(none.clone()), none),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.running(), expected, "{what}");
    }
}

#[test]
fn roll_is_needed_when_template_or_pod_differs_from_grant() {
    let old_pod_not_running = || pod("v1").not_running();
    let table: Vec<Holds> = vec![
        ("nothing differs", node(), false),
        ("a new grant", node().granted("v2"), true),
        ("a new grant that this version cannot render", node().granted("v2").rendering("v3"), true),
        ("another spec without a grant for it", node().rendering("v2"), false),
        ("no fleet, another spec", node().without_grant().rendering("v2"), true),
        ("no fleet, nothing differs", node().without_grant(), false),
        (
            "no fleet, a spec that cannot be read",
            NodeFacts { wanted: Err("no".to_owned()), ..node().without_grant() },
            false,
        ),
        ("no StatefulSet", node().without_set(), true),
        (
            "the StatefulSet of an earlier node leaves",
            NodeFacts { set: StatefulSetFact::Leaving, ..node() },
            false,
        ),
        (
            "the template was edited, a new grant",
            NodeFacts { grant_id: Some("grant-2".into()), ..node().with_edited_template() },
            true,
        ),
        (
            "the template was edited under a spent grant, the pod at the grant",
            node().with_edited_template(),
            true,
        ),
        ("the pod is at another revision, a new grant", node().granted("v2").with_template("v2"), true),
        ("a spent grant, a Ready pod elsewhere", node().granted_once_before("v2"), false),
        (
            "a spent grant, a pod elsewhere whose main container does not run",
            node().granted_once_before("v2").with_pod(old_pod_not_running()),
            true,
        ),
        (
            "a spent grant, a pod elsewhere whose main container runs",
            node().granted_once_before("v2").with_pod(pod("v1").not_ready()),
            false,
        ),
        (
            "a spent grant, the template at it, a Ready pod elsewhere",
            node().granted_once_before("v2").with_template("v2"),
            false,
        ),
        ("a spent grant, no pod", node().granted_once_before("v2").without_pod(), true),
        (
            "the controller has not seen the template at the grant",
            node().granted("v2").with_unseen_template("v2"),
            false,
        ),
        ("the pod terminates", node().with_pod(pod("v0").terminating()), false),
        ("it is deleted", NodeFacts { terminating: true, ..node().granted("v2") }, false),
        ("it is suspended", NodeFacts { suspended: true, ..node().granted("v2") }, false),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.needs_roll(), expected, "{what}");
    }
}

#[test]
fn spent_grant_keeps_running_pod_that_differs_from_it() {
    let edited_and_back = || {
        node()
            .with_edited_template()
            .with_pod(PodFacts { revision: "db-0-edited".to_owned(), ..pod("v1").of_another_uid() })
    };
    let table: Vec<Holds> = vec![
        ("a Ready pod at the grant", node(), false),
        ("a Ready pod elsewhere", node().granted_once_before("v2"), true),
        ("the same under a new grant", node().granted("v2"), false),
        ("the same without a grant", node().without_grant().rendering("v2"), false),
        (
            "a pod elsewhere that is not ready",
            node().granted_once_before("v2").with_pod(pod("v1").not_ready()),
            true,
        ),
        (
            "a pod elsewhere whose main container crashes",
            node().granted_once_before("v2").with_pod(pod("v1").that_cannot_run()),
            false,
        ),
        (
            "a pod elsewhere that terminates",
            node().granted_once_before("v2").with_pod(pod("v1").terminating()),
            false,
        ),
        ("no pod", node().granted_once_before("v2").without_pod(), false),
        ("a Ready pod that came back at a hand edit", edited_and_back(), true),
        ("a Ready pod at the grant under an edited template", node().with_edited_template(), false),
        (
            "a Ready pod of which nothing is known",
            node().with_edited_template().that_ran(Running::default()),
            true,
        ),
        (
            "an empty grant ID counts as spent",
            NodeFacts { grant_id: None, spent_grant_id: None, ..node().granted("v2") },
            true,
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.is_kept_by_grant(), expected, "{what}");
    }
}

#[test]
fn abort_grant_keeps_every_pod_that_runs_or_can_still_run() {
    let taken_back =
        || NodeFacts { grant_id: Some("abort-3".into()), ..node().granted("v1").with_template("v2") };
    let new = || pod("v2").of_another_uid();
    let table: Vec<Holds> = vec![
        ("the new pod serves", taken_back().with_pod(new()), true),
        ("the new pod is not ready", taken_back().with_pod(new().not_ready()), true),
        ("the new pod does not run yet", taken_back().with_pod(new().not_running()), true),
        (
            "the new pod runs beside a container that does not",
            taken_back().with_pod(PodFacts {
                running: true,
                main_cannot_run: false,
                ..new().that_cannot_run()
            }),
            true,
        ),
        (
            "the new pod cannot run",
            taken_back().with_pod(PodFacts { main_cannot_run: true, ..new().that_cannot_run() }),
            false,
        ),
        ("the new pod terminates", taken_back().with_pod(new().terminating()), false),
        ("the old pod is still there", taken_back().with_pod(pod("v1")), false),
        ("no pod", taken_back().without_pod(), false),
        (
            "a plan's grant",
            NodeFacts { grant_id: Some("0123456789-3".into()), ..taken_back().with_pod(new()) },
            false,
        ),
        (
            "the abort's grant was spent",
            NodeFacts { spent_grant_id: Some("abort-3".into()), ..taken_back().with_pod(new().not_ready()) },
            true,
        ),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.is_kept_by_grant(), expected, "{what}");
    }
}

#[test]
fn node_is_converged_when_ready_pod_is_observed_at_the_grant() {
    let table: Vec<Holds> = vec![
        ("template and pod at the grant", node(), true),
        ("this version renders another template", node().rendering("v3"), true),
        ("the pod is not ready", node().with_pod(pod("v1").not_ready()), false),
        ("the pod terminates", node().with_pod(pod("v1").terminating()), false),
        ("no pod", node().without_pod(), false),
        ("the template is not seen yet", node().with_unseen_template("v1"), false),
        ("the template was edited", node().with_edited_template(), false),
        ("the pod is at another revision", node().granted("v2").with_template("v2"), false),
        ("granted something else", node().granted("v2"), false),
        ("no StatefulSet", node().without_set(), false),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.is_converged(), expected, "{what}");
    }
}

#[test]
fn pod_revision_counts_once_controller_observed_the_template() {
    let naming_failure = LiveStatefulSet { update_revision: String::new(), ..set("v1") };
    let table = [
        ("it is", node(), true),
        ("template unseen", node().with_unseen_template("v1"), false),
        ("another revision", node().with_pod(pod("v0")), false),
        (
            "no update revision yet, and no label",
            node().with_set(naming_failure).with_pod(PodFacts { revision: String::new(), ..pod("v1") }),
            false,
        ),
        ("no StatefulSet", node().without_set(), false),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.is_at_update_revision(facts.pod.as_ref().unwrap()), expected, "{what}");
    }
}

#[test]
fn node_fails_when_its_pod_cannot_run_the_granted_target() {
    let stuck = |version: &str| pod(version).of_another_uid().that_cannot_run();
    let refused = |facts: NodeFacts| NodeFacts { refused: Some("quota".to_owned()), ..facts };
    let table = [
        ("it serves", node(), None),
        (
            "its pod cannot run the grant",
            node().granted("v2").with_template("v2").with_pod(stuck("v2")),
            Some("ImagePullBackOff: no such image"),
        ),
        (
            "its pod cannot run what it ran before",
            node().granted("v2").with_template("v2").with_pod(pod("v1").that_cannot_run()),
            None,
        ),
        ("its pod cannot run an edit", node().with_edited_template().with_pod(stuck("v2")), None),
        (
            "its pod cannot run and terminates",
            node().granted("v2").with_template("v2").with_pod(PodFacts { terminating: true, ..stuck("v2") }),
            None,
        ),
        (
            "its pod does not run yet",
            node().granted("v2").with_template("v2").with_pod(pod("v2").not_running()),
            None,
        ),
        ("no StatefulSet", node().without_set().without_pod(), None),
        (
            "the API server rejects its pod",
            refused(node().granted("v2").with_template("v2").without_pod()),
            Some("the API server rejects its pod: quota"),
        ),
        ("its pod was refused and is there now", refused(node().granted("v2").with_template("v2")), None),
        ("the pod of another template is refused", refused(node().granted("v2").without_pod()), None),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.failure().as_deref(), expected, "{what}");
    }
    let unrenderable = node().without_set().without_pod().rendering("v3");
    assert!(unrenderable.failure().unwrap().contains("needs a new grant"));
}

#[test]
fn running_pod_that_its_sidecar_keeps_unready_needs_marking() {
    let table = [
        ("kept out", node().with_pod(pod("v1").kept_out_by_its_sidecar()), true),
        (
            "kept out and not running yet",
            node().with_pod(pod("v1").kept_out_by_its_sidecar().not_running()),
            false,
        ),
        (
            "kept out and leaving",
            node().with_pod(PodFacts { terminating: true, ..pod("v1").kept_out_by_its_sidecar() }),
            false,
        ),
        ("not ready for another reason", node().with_pod(pod("v1").not_ready()), false),
        (
            "the node is deleted",
            NodeFacts { terminating: true, ..node().with_pod(pod("v1").kept_out_by_its_sidecar()) },
            false,
        ),
        ("no pod", node().without_pod(), false),
    ];
    for (what, facts, expected) in table {
        assert_eq!(facts.needs_mark(), expected, "{what}");
    }
}

#[test]
fn suspended_node_is_not_marked_ready() {
    let mut facts = node();
    facts.pod = Some(PodFacts { ready: false, sidecar_unready: true, ..pod("v1") });
    assert!(facts.needs_mark());
    // A MarkReady plan would be superseded by the suspension and started again, forever.
    facts.suspended = true;
    assert!(!facts.needs_mark());
}

#[test]
fn unrestorable_edited_template_waits_without_a_plan() {
    let mut facts = node();
    facts.set = StatefulSetFact::Live(LiveStatefulSet { template: Template::Unknown, ..set("x") });
    assert!(facts.needs_roll(), "this version restores it");
    facts.wanted = Ok(RenderedTarget { hash: "v1-of-another-version".into(), image: image("v1") });
    assert!(!facts.needs_roll(), "two that wait in flight would keep each other from a new grant");
    facts.pod = Some(pod("v1").not_running());
    assert!(facts.needs_roll(), "one that is down waits in flight");
}

#[test]
fn pod_is_compared_with_the_template_and_its_main_container() {
    let v2 = || node().granted("v2").with_template("v2");
    let table: Vec<(&str, NodeFacts, bool, bool)> = vec![
        ("it serves", node(), true, true),
        ("it is not Ready, and its main container runs", node().with_pod(pod("v1").not_ready()), true, true),
        ("its main container does not run", node().with_pod(pod("v1").not_running()), true, false),
        ("it terminates", node().with_pod(pod("v1").terminating()), true, false),
        ("the template is another one", v2(), false, true),
        ("the template is edited", node().with_edited_template(), false, true),
        ("there is no StatefulSet", node().without_set(), false, true),
    ];
    for (what, facts, is_at_template, runs) in table {
        let pod = facts.pod.as_ref().unwrap();
        assert_eq!(
            (facts.is_at_template(pod), facts.main_container_runs()),
            (is_at_template, runs),
            "{what}"
        );
    }
    assert!(!node().without_pod().main_container_runs());
}
