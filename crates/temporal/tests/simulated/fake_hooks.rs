//! A fake hook runner: tests set the result of each hook.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use serde::{Deserialize, Serialize};
use windlass_core::api::Hook;
use windlass_engine::{Due, Env, Outcome, Plan, Policy, Task, TaskContext, TaskError};
use windlass_temporal::hooks::{HookContext, HookedObject, Hooks, HooksRejected};

use crate::stage::{NAME, NAMESPACE};

/// The result of a hook.
#[derive(Clone, Debug)]
pub enum HookResult {
    /// It succeeds.
    Done,
    /// It fails with this message.
    Fails(String),
}

/// A fake hook runner. A hook without a result waits; one that asks for a person waits for its approval.
#[derive(Clone, Default)]
pub struct FakeHooks(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    results: BTreeMap<String, HookResult>,
    refused: Option<String>,
    going_on: Option<String>,
    panics: bool,
    ran: Vec<String>,
    ended: Vec<String>,
    senders: Vec<UnboundedSender<(String, String)>>,
}

impl FakeHooks {
    /// Sets the result of a hook and has the object reconciled.
    pub fn set_result(&self, hook: &str, results: HookResult) {
        let mut state = self.0.lock().unwrap();
        state.results.insert(hook.to_owned(), results);
        let about = (NAMESPACE.to_owned(), NAME.to_owned());
        state.senders.retain(|sender| sender.unbounded_send(about.clone()).is_ok());
    }

    pub fn done(&self, hooks: &[&str]) {
        for hook in hooks {
            self.set_result(hook, HookResult::Done);
        }
    }

    /// Rejects every list of hooks with this sentence; `None`: accepts them.
    pub fn refuse(&self, sentence: Option<&str>) {
        self.0.lock().unwrap().refused = sentence.map(str::to_owned);
    }

    /// The next check of a list of hooks panics.
    pub fn panic_once(&self) {
        self.0.lock().unwrap().panics = true;
    }

    /// True if the panic that was asked for has happened.
    pub fn has_panicked(&self) -> bool {
        !self.0.lock().unwrap().panics
    }

    /// True if a panic was asked for, which is no more then.
    fn takes_panic(&self) -> bool {
        std::mem::take(&mut self.0.lock().unwrap().panics)
    }

    /// Fails to stop the hooks of a plan with this sentence; `None`: stops them.
    pub fn go_on(&self, sentence: Option<&str>) {
        self.0.lock().unwrap().going_on = sentence.map(str::to_owned);
    }

    /// The hooks that ran, once per consecutive run, with their values.
    pub fn ran(&self) -> Vec<String> {
        self.0.lock().unwrap().ran.clone()
    }

    /// The plans that ended before they were complete.
    pub fn ended(&self) -> Vec<String> {
        self.0.lock().unwrap().ended.clone()
    }

    fn run(&self, hook: &str) -> Option<HookResult> {
        let mut state = self.0.lock().unwrap();
        if state.ran.last().is_none_or(|last| last != hook) {
            state.ran.push(hook.to_owned());
        }
        state.results.get(hook).cloned()
    }
}

#[async_trait]
impl Hooks for FakeHooks {
    async fn check(&self, _: &HookedObject, _: &[Hook]) -> Result<(), HooksRejected> {
        // Not while the state is locked.
        assert!(!self.takes_panic(), "a bug in the check");
        self.0.lock().unwrap().refused.clone().map_or(Ok(()), |why| Err(HooksRejected::Permanent(why)))
    }

    fn equip(&self, env: Env, turn: HookContext) -> Env {
        env.with((self.clone(), turn))
    }

    async fn end(&self, _: &HookedObject, plan: &Plan) -> Result<(), String> {
        let mut state = self.0.lock().unwrap();
        if let Some(sentence) = &state.going_on {
            return Err(sentence.clone());
        }
        state.ended.push(plan.id.to_string());
        Ok(())
    }

    fn forget(&self, _: &str, _: &str) {}

    fn answered(&self) -> UnboundedReceiver<(String, String)> {
        let (sender, senders) = unbounded();
        self.0.lock().unwrap().senders.push(sender);
        senders
    }
}

#[derive(Debug, Deserialize, Serialize)]
struct Params {
    hook: String,
}

macro_rules! fake {
    ($task:ident = $name:literal) => {
        #[derive(Debug, Deserialize, Serialize)]
        struct $task(Params);

        #[typetag::serde(name = $name)]
        #[async_trait]
        impl Task for $task {
            fn policy(&self, _: &Env) -> Policy {
                Policy::default().skippable().holding().due(Due::Never)
            }

            async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
                run(cx, &self.0.hook)
            }
        }
    };
}
fake!(CallHttp = "call-http");
fake!(AwaitApproval = "await-approval");

fn run(cx: &TaskContext<'_>, hook: &str) -> Result<Outcome, TaskError> {
    let (hooks_fake, turn) = cx.env.get::<(FakeHooks, HookContext)>()?;
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
    Ok(match hooks_fake.run(hook) {
        _ if cx.record.type_ == "await-approval" && is_approved => Outcome::Done,
        Some(HookResult::Done) => Outcome::Done,
        Some(HookResult::Fails(words)) => {
            return Err(TaskError::terminal(words));
        }
        None => Outcome::waiting("it was asked"),
    })
}
