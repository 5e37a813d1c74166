//! Tests of what is known and decided about one node, mostly as tables. `node()` serves v1, which is what it was
//! granted; its grant is spent, and this version of Windlass renders it.

mod cause;
mod decide;
mod facts;
mod identity;
mod problem;
mod size;
mod status;
mod status_problem;

use chrono::{DateTime, TimeDelta, Utc};

use super::{LiveStatefulSet, NodeFacts, PodFacts, RenderedTarget, Running, StatefulSetFact, Template};
use crate::api::{PodMove, Problem};
use crate::engine::{Plan, PlanSeed, PlanState, Recipe, TaskState};
use crate::planner::growth::Growth;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_900_000_000, 0).unwrap()
}

fn later(seconds: i64) -> DateTime<Utc> {
    now() + TimeDelta::seconds(seconds)
}

fn at(version: &str) -> Template {
    Template::At(version.into())
}

/// The revision that the StatefulSet controller gives to pods of a template.
fn revision(version: &str) -> String {
    format!("db-0-{version}")
}

fn image(version: &str) -> String {
    format!("db:{version}")
}

fn set(version: &str) -> LiveStatefulSet {
    LiveStatefulSet {
        uid: "set-uid".to_owned(),
        generation: 3,
        template: at(version),
        observed: true,
        replicas: 1,
        update_revision: revision(version),
        known_revisions: Vec::new(),
        made_for: None,
        template_digest: format!("digest of {version}"),
        main_image: image(version),
    }
}

/// A pod that serves.
fn pod(version: &str) -> PodFacts {
    PodFacts {
        uid: "pod-1".to_owned(),
        revision: revision(version),
        owned: true,
        ready: true,
        ready_since: Some(now()),
        running: true,
        main_image: image(version),
        ..PodFacts::default()
    }
}

fn ran(version: &str) -> Running {
    Running { hash: Some(version.into()), image: image(version), pod_uid: Some("pod-1".to_owned()) }
}

fn node() -> NodeFacts {
    NodeFacts {
        wanted: Ok(RenderedTarget { hash: "v1".into(), image: image("v1") }),
        granted_hash: Some("v1".into()),
        grant_id: Some("grant-1".into()),
        spent_grant_id: Some("grant-1".into()),
        set: StatefulSetFact::Live(set("v1")),
        pod: Some(pod("v1")),
        refused: None,
        awaits: None,
        previous: ran("v1"),
        terminating: false,
        suspended: false,
        removal_id: None,
        move_: None,
        growth: Growth::Done,
    }
}

impl NodeFacts {
    /// A new grant, which this version renders.
    fn granted(self, version: &str) -> Self {
        Self { grant_id: Some("grant-2".into()), granted_hash: Some(version.into()), ..self }
            .rendering(version)
    }

    /// Another template under a grant that is already spent.
    fn granted_once_before(self, version: &str) -> Self {
        Self { spent_grant_id: Some("grant-2".into()), ..self.granted(version) }
    }

    fn asked_to_move(self, uid: &str) -> Self {
        Self { move_: Some(PodMove { pod_uid: uid.to_owned(), node_name: "m1".to_owned() }), ..self }
    }

    fn without_grant(self) -> Self {
        Self { granted_hash: None, grant_id: None, spent_grant_id: None, ..self }
    }

    fn rendering(self, version: &str) -> Self {
        Self { wanted: Ok(RenderedTarget { hash: version.into(), image: image(version) }), ..self }
    }

    fn with_set(self, set: LiveStatefulSet) -> Self {
        Self { set: StatefulSetFact::Live(set), ..self }
    }

    fn without_set(self) -> Self {
        Self { set: StatefulSetFact::Missing, ..self }
    }

    fn with_template(self, version: &str) -> Self {
        self.with_set(set(version))
    }

    /// The template was written, and the StatefulSet controller has not seen it.
    fn with_unseen_template(mut self, version: &str) -> Self {
        let StatefulSetFact::Live(before) = self.set else { panic!("there is no StatefulSet") };
        self.set = StatefulSetFact::Live(LiveStatefulSet {
            template: at(version),
            observed: false,
            main_image: image(version),
            ..before
        });
        self
    }

    fn with_edited_template(self) -> Self {
        let edited = LiveStatefulSet {
            template: Template::Unknown,
            update_revision: "db-0-edited".to_owned(),
            ..set("v1")
        };
        self.with_set(edited)
    }

    fn with_pod(self, pod: PodFacts) -> Self {
        Self { pod: Some(pod), ..self }
    }

    fn without_pod(self) -> Self {
        Self { pod: None, ..self }
    }

    /// It is suspended: its StatefulSet was scaled down, and its pod is gone.
    fn scaled_down(mut self) -> Self {
        if let StatefulSetFact::Live(set) = &mut self.set {
            set.replicas = 0;
        }
        Self { suspended: true, ..self.without_pod() }
    }

    fn that_ran(self, previous: Running) -> Self {
        Self { previous, ..self }
    }
}

impl PodFacts {
    fn not_ready(self) -> Self {
        Self { ready: false, ready_since: None, ..self }
    }

    fn not_running(self) -> Self {
        Self { running: false, ..self.not_ready() }
    }

    fn that_cannot_run(self) -> Self {
        let problem = Problem {
            reason: "ImagePullBackOff".to_owned(),
            message: "no such image".to_owned(),
            since: now(),
            ..Problem::default()
        };
        Self { cannot_run: true, main_cannot_run: true, problem: Some(problem), ..self.not_running() }
    }

    fn terminating(self) -> Self {
        Self { terminating: true, ..self.not_ready() }
    }

    fn kept_out_by_its_sidecar(self) -> Self {
        Self { sidecar_unready: true, ..self.not_ready() }
    }

    fn of_another_uid(self) -> Self {
        Self { uid: "pod-2".to_owned(), ..self }
    }
}

/// An active plan.
fn plan(recipe: &str, target: &str) -> Plan {
    let yaml = format!("{{name: {recipe}, tasks: [{{type: apply-stateful-set}}, {{type: mark-ready}}]}}");
    let seed = PlanSeed { uid: "uid", target_hash: target, now: now(), attempt: 0, disambiguator: "" };
    Recipe::parse(&yaml).unwrap().plan(seed)
}

fn ended(plan: Plan, state: PlanState) -> Plan {
    Plan { state, finished_at: Some(now()), ..plan }
}

fn skipped(mut plan: Plan) -> Plan {
    for task in &mut plan.tasks {
        task.state = if task.type_ == "mark-ready" { TaskState::Skipped } else { TaskState::Complete };
    }
    ended(plan, PlanState::Complete)
}
