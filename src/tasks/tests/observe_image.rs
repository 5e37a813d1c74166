//! `observe-image` relies only on what was observed on the pod at the update revision.

use super::super::ObserveImage;
use super::*;

#[tokio::test]
async fn image_is_observed_on_the_new_pod_only() {
    let to_v2 = || Node::serving("v1").granted("v2").with_set("v2").with_new_pod("v2");
    let table = [
        ("the new pod runs it", to_v2(), "done"),
        ("it runs it and is not ready", to_v2().not_ready(), "done"),
        (
            "its container does not run",
            to_v2()
                .pod(
                    "/status/containerStatuses/0/state",
                    json!({"waiting": {"reason": "ErrImagePull", "message": "no"}}),
                )
                .not_ready(),
            "waiting for the pod to run db:v2: ErrImagePull: no",
        ),
        (
            "its kubelet reports no image ID",
            to_v2().pod("/status/containerStatuses/0/imageID", json!("")),
            "done",
        ),
        ("the template is unseen", to_v2().unseen(), UNSEEN),
        (
            "the pod is at another revision",
            to_v2().with_pod("v1"),
            "ChildChanged: the pod was created for another template",
        ),
        ("the pod leaves", to_v2().terminating(), "waiting for the pod to be created again"),
        ("no pod", to_v2().without_pod(), "waiting for the pod to be created again"),
        ("no StatefulSet", to_v2().without_set(), "ChildChanged: the node's StatefulSet no longer exists"),
        ("granted another meanwhile", to_v2().granted("v3"), "waiting for the pod to run db:v2: "),
    ];
    for (what, node, expected) in table {
        let outcomes = bench(&node).twice(&ObserveImage {}).await;
        assert_eq!(outcomes.each_ref().map(said), [expected, expected], "{what}");
    }
}
