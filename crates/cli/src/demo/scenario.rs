//! The scenario: its chapters, and the state that each has to reach. The same on every stage.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use ratatui::style::Style;
use serde_json::{Value, json};

use super::fleet::FLEET;
use super::picture::Picture;
use super::screen::Screen;
use super::seen::Seen;
use super::stage::Stage;
use crate::status::tree;
use windlass_clock::monotonic;
use windlass_core::api::names::{GROUP, VERSION};

/// The time limit of a chapter per node, by the cluster's time; normally it takes a fraction.
const PATIENCE: Duration = Duration::from_mins(2);
/// The fleet; the user sets its size.
const MANIFEST: &str = include_str!("fleet.yaml");
const REPOSITORY: &str = "registry.example/db";

/// Why the demo ends early.
#[derive(Debug)]
pub enum Ended {
    /// Its output cannot be written any more.
    Unread(std::io::Error),
    /// A chapter did not reach its state.
    Failed(String),
}

impl From<String> for Ended {
    fn from(sentence: String) -> Self {
        Self::Failed(sentence)
    }
}

/// The scenario, its stage and its picture.
pub struct Scenario<S> {
    // First, so that it stops watching before the cluster is torn down.
    picture: Picture,
    /// Where it runs.
    pub stage: S,
    fleets: Api<DynamicObject>,
    nodes: usize,
    steps: Vec<Step>,
}

/// The result of a chapter.
struct Step {
    what: &'static str,
    seconds: f64,
    made: usize,
}

impl<S: Stage> Scenario<S> {
    /// Starts watching; nothing runs yet.
    pub fn begin(stage: S, screen: Screen, nodes: usize) -> Self {
        let client = stage.client();
        let picture = Picture::begin(&client, stage.namespace(), screen, stage.clock());
        let fleets = fleets(client, stage.namespace());
        Self { picture, stage, fleets, nodes, steps: Vec::new() }
    }

    /// Runs all chapters.
    pub async fn run(&mut self) -> Result<(), Ended> {
        for lines in [self.stage.setting(), self.stage.invitation(), tree::LEGEND.map(str::to_owned).to_vec()]
        {
            self.picture.say(&format!("{}\n", lines.join("\n")));
        }
        self.stage.start_operator()?;
        match self.chapters().await {
            Err(Ended::Failed(sentence)) => Err(Ended::Failed(sentence + &self.stage.last_words())),
            other => other,
        }?;
        self.sum_up()?;
        self.check_output()
    }

    /// Prints again how to watch.
    pub fn invite(&self) {
        self.picture.say(&format!("\n{}\n", self.stage.invitation().join("\n")));
        self.picture.say("The cluster and the page stay up until Ctrl-C.");
    }

    async fn chapters(&mut self) -> Result<(), Ended> {
        self.step("A fleet is created", async |story| story.create().await).await?;
        self.picture.count();
        self.step("A good image is rolled out, one wave after the other", async |story| {
            story.set_image("1.1").await?;
            story.until_applied("1.1").await
        })
        .await?;
        self.step("A bad image stops after one wave, and the failed nodes are listed", async |story| {
            story.break_it().await
        })
        .await?;
        self.step("The fix supersedes it: no rollback is needed first", async |story| {
            story.set_image("1.2").await?;
            story.until_applied("1.2").await
        })
        .await?;
        self.step("A rollout is rolled back halfway", async |story| {
            let before = story.picture.seen().pod_uids();
            let wave = story.wave();
            story.set_image("1.3").await?;
            story.until("a wave runs 1.3", |seen| seen.at(&image("1.3")) >= wave).await?;
            story.set_image("1.2").await?;
            story.until_applied("1.2").await?;
            let unchanged = unchanged(&before, &story.picture.seen().pod_uids());
            story.note(&format!("{unchanged} nodes were not updated: their pods are the same as before"));
            expect(unchanged > 0, "a node that the rollout had not reached keeps its pod")
        })
        .await?;
        self.step("The operator is killed halfway, and another one continues", async |story| {
            story.kill_it().await
        })
        .await
    }

    async fn create(&mut self) -> Result<(), Ended> {
        let mut fleet: Value = serde_saphyr::from_str(MANIFEST)
            .map_err(|error| format!("cannot read the manifest of the fleet: {error}"))?;
        fleet["spec"]["replicas"] = self.nodes.into();
        fleet["spec"]["updateStrategy"]["inPlace"]["maxUnavailable"] = self.wave().into();
        self.show("apply -f examples/fleet.yaml");
        let fleet = serde_json::from_value(fleet)
            .map_err(|error| format!("cannot read the manifest of the fleet: {error}"))?;
        self.fleets.create(&PostParams::default(), &fleet).await.map_err(failed)?;
        self.until_applied("1.0").await
    }

    async fn break_it(&mut self) -> Result<(), Ended> {
        let wave = self.wave();
        self.set_image("1.2-nope").await?;
        self.until("one wave of nodes has failed", |seen| seen.failed().len() == wave).await?;
        self.pause(4).await;
        let seen = self.picture.seen();
        self.picture.draw();
        for (node, why) in seen.failed() {
            self.note(&format!("{node} {why}"));
        }
        let serving = seen.at(&image("1.1"));
        self.note(&format!("the wave is full, so the other {serving} nodes stay available at 1.1"));
        expect(serving == self.nodes - wave, "the nodes outside of the wave are available at 1.1")
    }

    async fn kill_it(&mut self) -> Result<(), Ended> {
        let wave = self.wave();
        self.set_image("1.4").await?;
        self.until("a wave runs 1.4", |seen| seen.at(&image("1.4")) >= wave).await?;
        let plan = self.picture.seen().plan_id().to_owned();
        self.stage.kill_operator().await?;
        self.note(&format!("{}. The pods keep running; the plan is in status.plan", self.stage.killed()));
        self.pause(4).await;
        let reached = self.picture.seen().at(&image("1.4"));
        expect(reached < self.nodes, "no node is updated while there is no operator")?;
        self.note("another operator starts");
        self.stage.start_operator()?;
        self.until_applied("1.4").await?;
        let now = self.picture.seen().plan_id().to_owned();
        self.note(&format!("plan {now} continued where it stopped"));
        expect(plan == now, "the rollout continues under the same plan")
    }

    /// The most nodes that may be unavailable at once: two of five.
    fn wave(&self) -> usize {
        (self.nodes * 2 / 5).max(1)
    }

    /// Runs a chapter, and measures its time and its new pods.
    async fn step(
        &mut self,
        what: &'static str,
        act: impl AsyncFnOnce(&mut Self) -> Result<(), Ended>,
    ) -> Result<(), Ended> {
        let title = self.picture.paint(Style::new().bold(), &format!("{}. {what}", self.steps.len() + 1));
        self.picture.say(&title);
        let (began, before) = (self.picture.seconds(), self.picture.seen().pods_ever.len());
        act(self).await?;
        let made = self.picture.seen().pods_ever.len() - before;
        self.steps.push(Step { what, seconds: self.picture.seconds() - began, made });
        self.picture.leave();
        self.picture.say("");
        Ok(())
    }

    /// Prints the equivalent command.
    fn show(&self, arguments: &str) {
        self.picture.say(&self.picture.paint(Style::new().dim(), &format!("   $ kubectl {arguments}")));
    }

    async fn set_image(&self, tag: &str) -> Result<(), Ended> {
        let patch = json!({"spec": {"template": {"spec": {"image": image(tag)}}}});
        // As YAML, which kubectl accepts for a patch that does not begin with a brace: it is shorter.
        self.show(&format!(
            "patch nd {FLEET} --type=merge \\\n     -p 'spec: {{template: {{spec: {{image: {}}}}}}}'",
            image(tag)
        ));
        self.fleets.patch(FLEET, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(failed)?;
        Ok(())
    }

    async fn until_applied(&self, tag: &str) -> Result<(), Ended> {
        let image = image(tag);
        self.until(&format!("all nodes run {tag}"), |seen| {
            seen.is_applied(&image) && seen.nodes.len() == self.nodes
        })
        .await
    }

    async fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) -> Result<(), Ended> {
        let patience = PATIENCE * u32::try_from(self.nodes).unwrap_or(u32::MAX);
        let until = monotonic() + patience;
        while !holds(&self.picture.seen()) {
            self.check_output()?;
            if monotonic() > until {
                return Err(format!("not reached within {} s: {what}", patience.as_secs()).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Stops if the output cannot be written any more.
    fn check_output(&self) -> Result<(), Ended> {
        self.picture.error().map_or(Ok(()), |error| Err(Ended::Unread(error)))
    }

    async fn pause(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn note(&self, sentence: &str) {
        self.picture.say(&format!("   {} {sentence}", self.picture.paint(Style::new().magenta(), "▸")));
    }

    fn sum_up(&self) -> Result<(), Ended> {
        let mut lines = vec![self.picture.paint(Style::new().bold(), "Summary"), String::new()];
        lines.push("   seconds   new pods".to_owned());
        for step in &self.steps {
            lines.push(format!("   {:>7.1}  {:>9}  {}", step.seconds, step.made, step.what));
        }
        let seen = self.picture.seen();
        lines.extend([String::new(), "   status.history of the fleet:".to_owned()]);
        for entry in seen.fleet["status"]["history"].as_array().into_iter().flatten() {
            let word = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let line =
                format!("   {}  {}  {}  {}", word("planID"), word("recipe"), word("outcome"), word("reason"));
            lines.push(line.trim_end().to_owned());
        }
        let (most, nodes, wave) = (seen.most_down, self.nodes, self.wave());
        lines.push(String::new());
        lines.push(format!(
            "   at most {most} of {nodes} nodes were unavailable at once (limit: {wave}); {:.0} s in total",
            self.picture.seconds()
        ));
        self.picture.say(&lines.join("\n"));
        expect(most <= wave, "never more nodes are unavailable than maxUnavailable")
    }
}

fn fleets(client: Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, "NodeDeployment"));
    Api::namespaced_with(client, namespace, &resource)
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failed(error: kube::Error) -> Ended {
    Ended::Failed(format!("the API server rejected a request of the demo: {error}"))
}

fn image(tag: &str) -> String {
    format!("{REPOSITORY}:{tag}")
}

fn unchanged(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> usize {
    before.iter().filter(|(name, uid)| after.get(*name) == Some(uid)).count()
}

fn expect(holds: bool, sentence: &str) -> Result<(), Ended> {
    if holds { Ok(()) } else { Err(format!("check failed: {sentence}").into()) }
}
