//! Whoever carries hooks out, played: what each answers is a test's to say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use serde::{Deserialize, Serialize};
use windlass_core::api::Hook;
use windlass_engine::{Due, Env, Outcome, Plan, Task, TaskContext, TaskError};
use windlass_temporal::hooks::{HookTurn, Hooks, HooksOf, HooksRefused};

use crate::stage::{NAME, NAMESPACE};

/// What becomes of a hook.
#[derive(Clone, Debug)]
pub enum Says {
    /// It is done.
    Done,
    /// It fails with these words.
    Fails(String),
}

/// Those who carry hooks out. A hook of which nothing was said waits; one that asks for a person waits for its approval.
#[derive(Clone, Default)]
pub struct Hands(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    says: BTreeMap<String, Says>,
    refused: Option<String>,
    ran: Vec<String>,
    ended: Vec<String>,
    told: Vec<UnboundedSender<(String, String)>>,
}

impl Hands {
    /// Has a hook answer so from now on, and the object looked at again.
    pub fn say(&self, hook: &str, says: Says) {
        let mut state = self.0.lock().unwrap();
        state.says.insert(hook.to_owned(), says);
        let about = (NAMESPACE.to_owned(), NAME.to_owned());
        state.told.retain(|tell| tell.unbounded_send(about.clone()).is_ok());
    }

    pub fn done(&self, hooks: &[&str]) {
        for hook in hooks {
            self.say(hook, Says::Done);
        }
    }

    /// Refuses every list of hooks with this sentence, or none.
    pub fn refuse(&self, sentence: Option<&str>) {
        self.0.lock().unwrap().refused = sentence.map(str::to_owned);
    }

    /// The hooks that ran, each once for each row of its runs, with what they were told of their values.
    pub fn ran(&self) -> Vec<String> {
        self.0.lock().unwrap().ran.clone()
    }

    /// The plans that ended before they were done.
    pub fn ended(&self) -> Vec<String> {
        self.0.lock().unwrap().ended.clone()
    }

    fn run(&self, hook: &str) -> Option<Says> {
        let mut state = self.0.lock().unwrap();
        if state.ran.last().is_none_or(|last| last != hook) {
            state.ran.push(hook.to_owned());
        }
        state.says.get(hook).cloned()
    }
}

#[async_trait]
impl Hooks for Hands {
    async fn check(&self, _: &HooksOf, _: &[Hook]) -> Result<(), HooksRefused> {
        self.0.lock().unwrap().refused.clone().map_or(Ok(()), |why| Err(HooksRefused::Lasting(why)))
    }

    fn equip(&self, env: Env, turn: HookTurn) -> Env {
        env.with((self.clone(), turn))
    }

    async fn end(&self, _: &HooksOf, plan: &Plan) -> Result<(), String> {
        self.0.lock().unwrap().ended.push(plan.id.clone());
        Ok(())
    }

    fn forget(&self, _: &str, _: &str) {}

    fn answered(&self) -> UnboundedReceiver<(String, String)> {
        let (tell, told) = unbounded();
        self.0.lock().unwrap().told.push(tell);
        told
    }
}

#[derive(Debug, Deserialize, Serialize)]
struct Params {
    hook: String,
}

macro_rules! played {
    ($task:ident = $name:literal) => {
        #[derive(Debug, Deserialize, Serialize)]
        struct $task(Params);

        #[typetag::serde(name = $name)]
        #[async_trait]
        impl Task for $task {
            fn holds(&self) -> bool {
                true
            }

            fn skippable(&self) -> bool {
                true
            }

            fn due(&self, _: &TaskContext<'_>) -> Due {
                Due::Never
            }

            async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
                run(cx, &self.0.hook)
            }
        }
    };
}
played!(CallHttp = "call-http");
played!(AwaitApproval = "await-approval");

fn run(cx: &TaskContext<'_>, hook: &str) -> Result<Outcome, TaskError> {
    let (hands, turn) = cx.env.get::<(Hands, HookTurn)>()?;
    if !turn.hooks.iter().any(|listed| listed.name == hook) {
        return Ok(Outcome::Skipped { message: format!("there is no hook {hook}") });
    }
    if turn.about != windlass_core::api::at_hook::point_of(cx.record) {
        return Ok(Outcome::recheck("waiting to be looked at", std::time::Duration::from_millis(10)));
    }
    if let Some(why) = &turn.skip {
        return Ok(Outcome::Skipped { message: why.clone() });
    }
    if let Some(why) = &turn.hold {
        return Ok(Outcome::waiting(why.clone()));
    }
    let is_approved = turn.approved.as_ref() == Some(&cx.record.id);
    Ok(match hands.run(hook) {
        _ if cx.record.type_ == "await-approval" && is_approved => Outcome::Done,
        Some(Says::Done) => Outcome::Done,
        Some(Says::Fails(words)) => Outcome::Failed { message: format!("hook {hook} of {NAME}: {words}") },
        None => Outcome::waiting(format!("waiting for hook {hook}: it was asked")),
    })
}
