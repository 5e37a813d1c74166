//! The person who made the change, and who reacts to the rollout.

use serde_json::{Value, json};

use crate::catalogue::oracles::condition;
use crate::catalogue::scenario::Follow;
use crate::catalogue::world::World;

/// How many observations a promotion may take before the person requests it again.
const LOOKS_OF_A_PROMOTION: u32 = 60;

/// What the person has done so far.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    looks: u32,
    aborted: bool,
    retried: bool,
    back: bool,
    promoted: bool,
}

impl Follower {
    /// True if nothing is left to do once everything is at rest.
    pub fn is_done(&self, world: &World) -> bool {
        world.scenario.follow != Follow::BackOnceMoved
            || self.back
            || world.object().is_none_or(|o| o["status"]["activeSet"] == "first")
    }

    /// True if the person has a part in the scenario.
    pub fn had_to_act(&self) -> bool {
        self.promoted || self.retried || self.back
    }

    /// Observes the object, and does what is next.
    pub async fn look(&mut self, world: &World) {
        if world.scenario.follow == Follow::Nothing {
            return;
        }
        let Some(object) = world.object() else { return };
        let status = &object["status"];
        match world.scenario.follow {
            Follow::Nothing => {}
            Follow::Promote => self.promote(world, &object).await,
            Follow::AbortAndRetry => self.abort_and_retry(world, &object).await,
            Follow::BackOnceMoved => {
                if !self.back && status["activeSet"] != "first" && status["activeSet"].is_string() {
                    self.back = true;
                    world.set_image("db:1").await;
                }
            }
        }
    }

    async fn promote(&mut self, world: &World, object: &Value) {
        if condition(object, "UpToDate").1 != "ReadyToPromote" {
            self.looks = 0;
            return;
        }
        let wanted = &object["status"]["requestedRolloutHash"];
        if object["spec"]["forcePromote"] != *wanted {
            self.promoted = true;
            world.patch_object(&json!({"spec": {"forcePromote": wanted}})).await;
        }
        // A used value is spent until the field had another one.
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_OF_A_PROMOTION) {
            world.patch_object(&json!({"spec": {"forcePromote": ""}})).await;
        }
    }

    /// Aborts the rollout where it waits, retries it, and lets it continue.
    async fn abort_and_retry(&mut self, world: &World, object: &Value) {
        let status = &object["status"];
        let annotate = |key: &str, value: &Value| json!({"metadata": {"annotations": {key: value}}});
        let rejected = &status["rejected"]["planID"];
        if self.retried {
            if stands(object) {
                self.let_go_on(world, object).await;
            }
        } else if self.aborted && rejected.is_string() {
            self.retried = true;
            world.patch_object(&annotate("windlass.dev/retry", rejected)).await;
        } else if !self.aborted && stands(object) {
            self.aborted = true;
            world.patch_object(&annotate("windlass.dev/abort", &status["plan"]["id"])).await;
        } else if self.aborted
            && stands(object)
            && status["plan"]["id"] != object["metadata"]["annotations"]["windlass.dev/abort"]
        {
            // The aborted rollout was superseded.
            self.let_go_on(world, object).await;
        }
    }

    async fn let_go_on(&mut self, world: &World, object: &Value) {
        match world.scenario.strategy {
            "InPlace" => {
                let none = json!({"spec": {"updateStrategy": {"inPlace": {"partition": 0}}}});
                world.patch_object(&none).await;
            }
            "BlueGreen" => self.promote(world, object).await,
            _ => world.set_image("db:2").await,
        }
    }
}

/// True if a rollout waits for a person.
fn stands(object: &Value) -> bool {
    let rollout = &object["status"]["rollout"];
    let broken = rollout["unconverged"][0]["reason"].as_str().is_some_and(|why| why.contains("ImagePull"));
    let asks = matches!(condition(object, "UpToDate").1.as_str(), "PartitionHeld" | "ReadyToPromote");
    !rollout.is_null() && (broken || asks)
}
