//! What happens, in order, and what has to come about at each step.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass::clock::monotonic;

use crate::controlplane::Error;
use crate::picture::{LEGEND, Picture, Seen, paint};
use crate::stage::Stage;

/// How long a step may take; it takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(90);
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/");
const FLEET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/fleet.yaml");
const SETTING: &str = "Kubelets are played: no container really runs, and an image with \"nope\" in its tag cannot be pulled.\n\
                       The fleet's status, and with it all but the glyphs, is written at most once a second.";
const REPOSITORY: &str = "registry.example/db";

/// Sets the stage, tells the story and, at the end, what it came to.
pub async fn tell(stay: bool) -> Result<(), Error> {
    println!("Starting etcd, kube-apiserver, kube-controller-manager and kube-scheduler …");
    let mut stage = Stage::set().await?;
    println!("\n{}\n{SETTING}\n\n{LEGEND}", stage.invitation());
    let picture = Picture::begin(&stage.cp.client().await);
    stage.start_operator()?;
    let mut story = Story { picture, stage, steps: Vec::new() };
    let told = story.all().await;
    if let Err(error) = told {
        let log = std::fs::read_to_string(story.stage.log()).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(10).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        return Err(format!("{error}\nthe operator's last words:\n{}", last.join("\n")).into());
    }
    story.sum_up()?;
    if stay {
        println!("\n{}\nThe cluster and the operator stay until Ctrl-C.", story.stage.invitation());
        tokio::signal::ctrl_c().await?;
    }
    Ok(())
}

struct Story {
    // First, so that nobody watches a cluster that is being taken down.
    picture: Picture,
    stage: Stage,
    steps: Vec<Step>,
}

/// What a step came to.
struct Step {
    what: &'static str,
    seconds: f64,
    made: usize,
}

impl Story {
    async fn all(&mut self) -> Result<(), Error> {
        self.step("A fleet of five is created", async |story| {
            story.run(&["apply", "-f", FLEET]).await?;
            story.until_applied("1.0").await
        })
        .await?;
        self.picture.count();
        self.step("A good image is rolled out, two nodes at a time", async |story| {
            story.set_image("1.1").await?;
            story.until_applied("1.1").await
        })
        .await?;
        self.step("An image that cannot be pulled is held, and the nodes are named", async |story| {
            story.set_image("1.2-nope").await?;
            story.until("two nodes cannot run", |seen| seen.failed().len() == 2).await?;
            story.pause(4).await;
            let seen = story.picture.seen();
            for (node, why) in seen.failed() {
                println!("          {} {why}", paint("31", node));
            }
            let serving = seen.at(&image("1.1"));
            note(&format!("the wave is used up, so the other {serving} nodes go on serving 1.1"));
            expect(serving == 3, "the nodes outside of the wave serve at 1.1")
        })
        .await?;
        self.step("The fix supersedes it: no need to go back first", async |story| {
            story.set_image("1.2").await?;
            story.until_applied("1.2").await
        })
        .await?;
        self.step("A rollout is taken back in the middle", async |story| {
            let before = story.picture.seen().pod_uids();
            story.set_image("1.3").await?;
            story.until("two nodes run 1.3", |seen| seen.at(&image("1.3")) == 2).await?;
            story.set_image("1.2").await?;
            story.until_applied("1.2").await?;
            let kept = kept(&before, &story.picture.seen().pod_uids());
            note(&format!("{kept} nodes were never touched: they run the same pods as before"));
            expect(kept > 0, "a node that had not been reached keeps its pod")
        })
        .await?;
        self.step("The operator is killed in the middle, and another goes on", async |story| {
            story.set_image("1.4").await?;
            story.until("two nodes run 1.4", |seen| seen.at(&image("1.4")) >= 2).await?;
            let plan = story.plan_id();
            story.stage.kill_operator().await?;
            note("SIGKILL. What runs goes on running; the plan is in status.plan");
            story.pause(4).await;
            let reached = story.picture.seen().at(&image("1.4"));
            expect(reached < 5, "nothing is rolled while there is no operator")?;
            note("an operator is started again");
            story.stage.start_operator()?;
            story.until_applied("1.4").await?;
            note(&format!("plan {} went on where it stood", story.plan_id()));
            expect(plan == story.plan_id(), "the rollout goes on under the plan that it had")
        })
        .await
    }

    /// Tells a step, and notes how long it took and how many pods it made.
    async fn step(
        &mut self,
        what: &'static str,
        act: impl AsyncFnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        println!("\n{}", paint("1", &format!("{}. {what}", self.steps.len() + 1)));
        let (began, before) = (self.picture.seconds(), self.picture.seen().pods_ever.len());
        act(self).await?;
        let made = self.picture.seen().pods_ever.len() - before;
        self.steps.push(Step { what, seconds: self.picture.seconds() - began, made });
        Ok(())
    }

    /// Runs kubectl, and shows what is run.
    async fn run(&self, arguments: &[&str]) -> Result<(), Error> {
        let shown = arguments.iter().map(|a| a.strip_prefix(ROOT).unwrap_or(a));
        let shown = shown.map(|a| if a.contains('{') { format!("'{a}'") } else { a.to_owned() });
        println!("   {}", paint("2", &format!("$ kubectl {}", shown.collect::<Vec<_>>().join(" "))));
        self.stage.kubectl(arguments).await.map(drop)
    }

    async fn set_image(&self, tag: &str) -> Result<(), Error> {
        let patch = format!(r#"{{"spec":{{"template":{{"spec":{{"image":"{}"}}}}}}}}"#, image(tag));
        self.run(&["patch", "nd", "db", "--type=merge", "-p", &patch]).await
    }

    async fn until_applied(&self, tag: &str) -> Result<(), Error> {
        let image = image(tag);
        self.until(&format!("all nodes run {tag}"), |seen| seen.is_applied(&image)).await?;
        // What came last is drawn before anything else is said.
        tokio::time::sleep(Duration::from_millis(400)).await;
        Ok(())
    }

    async fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) -> Result<(), Error> {
        let patience = monotonic() + PATIENCE;
        while !holds(&self.picture.seen()) {
            if monotonic() > patience {
                return Err(format!("waited {} s in vain until {what}", PATIENCE.as_secs()).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn pause(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn plan_id(&self) -> String {
        let seen = self.picture.seen();
        seen.fleet["status"]["plan"]["id"].as_str().unwrap_or_default().to_owned()
    }

    fn sum_up(&self) -> Result<(), Error> {
        println!("\n{}\n", paint("1", "What it came to"));
        println!("   seconds  pods made");
        for step in &self.steps {
            println!("   {:>7.1}  {:>9}  {}", step.seconds, step.made, step.what);
        }
        println!("\n   status.history of the fleet:");
        let seen = self.picture.seen();
        for entry in seen.fleet["status"]["history"].as_array().into_iter().flatten() {
            let word = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            println!("   {}  {}  {}  {}", word("planID"), word("recipe"), word("outcome"), word("reason"));
        }
        let most = seen.most_down;
        println!(
            "\n   at most {most} of 5 nodes were out of service at once; {:.0} s in all",
            self.picture.seconds()
        );
        expect(most <= 2, "never more nodes are out of service than maxUnavailable")
    }
}

fn image(tag: &str) -> String {
    format!("{REPOSITORY}:{tag}")
}

fn kept(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> usize {
    before.iter().filter(|(name, uid)| after.get(*name) == Some(uid)).count()
}

fn expect(holds: bool, sentence: &str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(format!("this does not hold: {sentence}").into()) }
}

fn note(sentence: &str) {
    println!("   {} {sentence}", paint("35", "▸"));
}
