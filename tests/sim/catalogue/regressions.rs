//! Points that once failed. Each is always run.

use crate::catalogue::run;
use crate::catalogue::sweep::Baselines;

/// The line that replays it, and what it showed.
const KEPT: [(&str, &str); 53] = [
    (
        "hooks/image/3 F10-held 0 seed=1",
        "a hook that waits for a person was held, its clock with it, while the StatefulSet controller did nothing: no stall",
    ),
    (
        "hooks/down/3 F11-pause 8 seed=1",
        "a delete that the reconcile was just sending when somebody paused was held against the operator",
    ),
    (
        "blue-green-verbs/same-build/2 F16-revisions 12 seed=1",
        "a pod was made once more: the revision moved before anything was heard of the StatefulSet that made it",
    ),
    (
        "in-place-verbs/rollback/3 F11-abort-retry 7 seed=1",
        "a delete that was sent before the node was granted what its pod runs was held against the operator",
    ),
    (
        "in-place/labels/5 F5-thrice 16 seed=1",
        "a label of a headless Service whose write conflicted was written only ten seconds later, and again ten",
    ),
    (
        "blue-green/repair/1 F11-disown-service 1 seed=1",
        "the Service of an earlier node whose mark was taken off was waited for after it had gone",
    ),
    (
        "blue-green/repair/1 F11-disown-set 1 seed=1",
        "and so was its StatefulSet, so that the node never came up",
    ),
    (
        "in-place/labels/5 F5-minute 15 seed=1",
        "a label on a headless Service whose write conflicted was written at the slow look, ten minutes later",
    ),
    (
        "hard-fork/down/7 F16-collector-slow 0 seed=1",
        "the end was watched while the garbage collector still had a StatefulSet and a pod to take",
    ),
    (
        "blue-green/image/7 F8-late 71 seed=1",
        "the writes of an overtaken leader, which are held back for ever, counted as tasks that are left",
    ),
    (
        "blue-green-verbs/same-build/2 F16-lost-field 19 seed=1",
        "a fleet whose activeBuildID was lost wrote its status without end",
    ),
    (
        "in-place/repair/3 F10-creating 2 seed=1",
        "the status of a node whose pod never ran was written every 2 s",
    ),
    ("sidecar/create/3 F14-dead 0 seed=1", "a fleet that never came up named neither the node nor the cause"),
    (
        "in-place/repair/3 F10-unready 2 seed=1",
        "nor did one that lost a node, and whose node did not come back",
    ),
    (
        "wave-of-2/image/5 F9-back 20 seed=1",
        "with the operator's clock behind, a Ready node was not available although minReadySeconds is 0",
    ),
    (
        "in-place/image/7 F5-minute 44 seed=1",
        "an object whose every write conflicts was tried ten times a second",
    ),
    ("in-place/create/7 F7-third 1 seed=1", "a node's plan wrote the template of a spec that came after it"),
    ("in-place/template/7 F11-delete-child 37 seed=1", "a plan went on over another node of the same name"),
    (
        "in-place/repair/1 F11-strip-child 6 seed=1",
        "a pod made while its node's label was stripped lacked the fleet's label for ever",
    ),
    (
        "wave-of-2/image/5 F11-disown-set 16 seed=1",
        "a StatefulSet that was not labelled as ours any more was patched at an old version for ever",
    ),
    (
        "in-place/repair/3 F10-lagging 0 seed=1",
        "the simulated StatefulSet controller forgot a set that was deleted and made again while it saw everything late",
    ),
    (
        "blue-green/template/3 F10-terminating 2 seed=1",
        "a rollout that waited for an old node to go did not say which one",
    ),
    (
        "hard-fork/image/7 F5-minute 93 seed=1",
        "what applies to a node at once, and conflicted, was not tried again for ten minutes",
    ),
    (
        "in-place-verbs/stall/3 F9-back 2 seed=1",
        "a rollout that stood still was not seen to stall for an hour after the clock was set back by one",
    ),
    (
        "immediately/image/3 F10-dead 0 seed=1",
        "a rollout whose old nodes did not go named the new ones, which were not to be made before that",
    ),
    (
        "blue-green-verbs/stall/2 F4-coalesced 45 seed=1",
        "that a set was gone was written ten minutes later, where a watch did not show how its nodes went",
    ),
    (
        "manual/template/3 F12-unknown-task 38 seed=1",
        "a plan set back to before the switch, by hand, while the old nodes went, waited for its promotion for ever",
    ),
    (
        "blue-green/template/7 F6-503-minute 25 seed=1",
        "each try of creating a StatefulSet asked for three names first: 12 requests a second for seven nodes",
    ),
    (
        "immediately/image/1 F11-disown-set 3 seed=1",
        "a StatefulSet whose mark was taken off as its node went was waited for after it had gone",
    ),
    (
        "in-place/image/3 F11-delete-child 10 F4-coalesced 17 seed=4",
        "a node that was deleted, and whose watch was silent, had its StatefulSet made 140 times a second",
    ),
    (
        "hard-fork/up/7 F9-back 1 F10-unready 0 seed=1",
        "a node that was ill when the clock was set back by an hour was not named for an hour",
    ),
    (
        "manual/template/3 F12-truncated 47 seed=1",
        "a plan that was cut short by hand after its promotion was over, and status.rollout with it, was called complete",
    ),
    (
        "alone/create/1 F11-restart 1 seed=1",
        "a node's plan wrote the template of a restart that was asked for after it began",
    ),
    (
        "in-place/down/1 F10-lagging 0 F5-minute 1 seed=2",
        "a node that was to go, and whose deletion conflicted, was looked at again ten minutes later",
    ),
    (
        "in-place/down/1 F4-coalesced 4 F11-delete-fleet 1 seed=1",
        "a fleet that was deleted, and whose watch was silent, had its ControllerRevision made 150 times a second",
    ),
    (
        "in-place/labels/5 F16-templates-annotated-before 0 seed=1",
        "where admission annotates templates, a change of the children's labels took down all five Ready pods at once",
    ),
    (
        "in-place/labels/5 F16-revisions-before 0 seed=1",
        "an upgrade of Kubernetes that wrote revisions down anew took down all Ready pods of a steady fleet",
    ),
    (
        "in-place/create/3 F16-pods-pinned-always 0 seed=1",
        "no fleet came up where admission pins images to digests",
    ),
    (
        "in-place/template/3 F16-pods-meshed-first 15 seed=1",
        "a rollout hung once admission began to put a proxy before the other containers",
    ),
    (
        "blue-green/template/3 F16-templates-mirrored 1 seed=1",
        "and one where admission began to rewrite images in StatefulSets' templates",
    ),
    (
        "hooks-blue-green/image/2 F11-delete-fleet-service 37 seed=1",
        "a Service that was deleted while hooks followed a promotion was made anew for the set that had served before",
    ),
    (
        "hooks/peers/3 F6-413 37 seed=1",
        "the catalogue took a plan that followed a failed one, with hooks of its own, for one that sent requests twice",
    ),
    (
        "blue-green/create/7 F11-edit-set 16 seed=1",
        "a pod of a template that somebody edited as its node was new counted as what was granted, and stayed",
    ),
    (
        "hooks-blue-green/peers/2 F7-back 7 seed=1",
        "nodes of a set that was given up as it was created never left: a hook waited for the address of a pod that never was",
    ),
    (
        "hooks-blue-green/peers/2 F9-back 48 seed=1",
        "nodes that were asked to leave were kept and asked once more as a clock was set back, and their hook ran twice",
    ),
    (
        "blue-green-verbs/claims-go/2 F16-silent 19 seed=1",
        "claims that were heard of only once a silent watch was given up were taken for a write at rest",
    ),
    (
        "hooks-blue-green/image/2 F12-truncated 58 seed=1",
        "a plan that a late write made active after its rollout was over was expected to fail",
    ),
    (
        "blue-green/image/7 F9-slew 78 seed=1",
        "a clock that was set back during the delay of a retiring set took back the requests to leave of nodes whose plans had begun",
    ),
    (
        "hard-fork/template/7 F5-minute 126 seed=1",
        "while the end of a node's plan conflicted its sidecar was asked, and the end written, ten times a second",
    ),
    (
        "hooks-immediately/image/2 F11-strip-pod 2 seed=1",
        "a pod that had lost its label was cached from a response, and waited for after it was gone",
    ),
    ("immediately/image/3 F11-strip-pod 1 seed=1", "the same, in a fleet without hooks"),
    (
        "hooks-blue-green/peers/2 F11-delete-set 42 seed=1",
        "the StatefulSet of a node that took leave was deleted: its hook waited for the pod's address for good",
    ),
    (
        "hooks/job-never-starts/1 F8-late 4 seed=1",
        "the create of an earlier leader made a Job anew after it had timed out and was deleted",
    ),
];

#[test]
fn recorded_regressions_do_not_fail_again() {
    let baselines = Baselines::default();
    for (line, showed) in KEPT {
        let point = line.parse().unwrap();
        let report = run::play(&point, Some(&baselines.of(&point)), false);
        assert!(report.failures.is_empty(), "{showed}\n{}\n{}", point.command(), report.failures.join("\n"));
    }
}
