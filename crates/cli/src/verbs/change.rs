//! Decides what a verb changes in an object. Pure.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};

use super::at_hooks;
use crate::target::Kind;
use windlass_core::api::TaskType;
use windlass_core::api::names::{
    ANNOTATION_ABORT, ANNOTATION_OPEN_WINDOW, ANNOTATION_OWNER_UID, ANNOTATION_RESTARTED_AT,
    ANNOTATION_RETRY, ANNOTATION_SKIP,
};
use windlass_core::planner::fleet::sets::how_to_promote;
use windlass_engine::Registry;
use windlass_kube_port::observed::parse_time;

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verb {
    /// Pause rollouts.
    Pause,
    /// Resume rollouts.
    Resume,
    /// Open the window of the active rollout.
    OpenWindow,
    /// Restart every node, in waves.
    Restart,
    /// Stop the active rollout and reject its target.
    Abort {
        /// True to move the pods of a StatefulSetRollout back.
        rollback: bool,
    },
    /// Retry a rejected target.
    Retry,
    /// Skip a task: the named one, or the one that the plan waits in.
    Skip {
        /// The task's ID.
        task: Option<String>,
    },
    /// Approve a hook that waits for a person: the task named, or the one that waits.
    Approve {
        /// The task's ID.
        task: Option<String>,
    },
    /// Move traffic to the entrants.
    Promote {
        /// The target's hash, or a prefix of it, as a precondition.
        hash: Option<String>,
    },
}

/// A write to an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Write {
    /// Sets the field at this JSON pointer.
    Field(&'static str, Value),
    /// Sets several fields at once.
    Fields(Vec<(&'static str, Value)>),
    Annotation(&'static str, String),
    /// Writes two annotations at once.
    Annotations([(&'static str, String); 2]),
}

/// A write, with its message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    /// The verb's name.
    pub verb: &'static str,
    /// The write; `None` if nothing has to change.
    pub write: Option<Write>,
    /// The message.
    pub message: String,
    /// The name of the revision that a rollback sets.
    pub back_to: Option<String>,
    /// What to change in the object's source, if it is managed from elsewhere and the value is too large for the
    /// message.
    pub in_source: Option<String>,
}

impl Change {
    /// A change with a write.
    pub fn done(verb: &'static str, write: Write, message: impl Into<String>) -> Self {
        Self { verb, write: Some(write), message: message.into(), back_to: None, in_source: None }
    }

    /// A change without a write.
    pub fn already(verb: &'static str, message: impl Into<String>) -> Self {
        let message = format!("unchanged: {}", message.into());
        Self { verb, write: None, message, back_to: None, in_source: None }
    }

    /// The reason of the event.
    pub fn reason(&self) -> String {
        let mut letters = self.verb.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase()).into_iter();
        first.chain(letters).chain("Requested".chars()).collect()
    }
}

/// The built-in tasks that may be skipped. Custom tasks are known only to the operator that contains them.
const SKIPPABLE: [TaskType; 3] = [TaskType::MarkReady, TaskType::AwaitCaughtUp, TaskType::AwaitNodesAtHeight];

/// The shortest prefix of a hash, in digits.
const MIN_DIGITS: usize = 4;

/// Decides what a verb changes in an object.
pub fn change(verb: &Verb, kind: Kind, object: &Value, now: DateTime<Utc>) -> Result<Change, String> {
    if let Kind::Other(other) = kind {
        return other.change(verb, object, now);
    }
    if kind == Kind::Node && !matches!(verb, Verb::Restart | Verb::Skip { .. }) {
        return Err(node_has_no(verb));
    }
    match verb {
        Verb::Pause => Ok(paused(object, true)),
        Verb::Resume => Ok(paused(object, false)),
        Verb::OpenWindow => open_window(object, "/spec/updateStrategy/windows"),
        Verb::Restart => Ok(restart(object, is_of_fleet(kind, object), now)),
        Verb::Abort { rollback: false } => abort(object),
        Verb::Abort { rollback: true } => Err(ROLLBACK_OF_TEMPLATE.to_owned()),
        Verb::Retry => retry(object),
        Verb::Skip { task } => skip(kind, object, task.as_deref()),
        Verb::Approve { task } => at_hooks::approve(object, task.as_deref()),
        Verb::Promote { hash } => promote(object, hash.as_deref()),
    }
}

/// The error for an abort with a rollback of an object that has a template.
pub const ROLLBACK_OF_TEMPLATE: &str =
    "abort --rollback is only for a StatefulSetRollout; for a fleet, use windlass rollback";

fn node_has_no(verb: &Verb) -> String {
    let instead = match verb {
        Verb::Pause | Verb::Resume | Verb::OpenWindow => {
            "set spec.suspend to stop the node, or pause its fleet: nd/NAME"
        }
        Verb::Retry => "a node's failed plan is retried automatically; name its fleet: nd/NAME",
        _ => "name its fleet: nd/NAME",
    };
    format!("a StatefulNode does not support this: {instead}")
}

pub fn paused(object: &Value, wanted: bool) -> Change {
    let (verb, message) = if wanted { ("pause", "paused") } else { ("resume", "resumed") };
    if object["spec"]["paused"].as_bool().unwrap_or_default() == wanted {
        return Change::already(verb, if wanted { "it is already paused" } else { "it is not paused" });
    }
    Change::done(verb, Write::Field("/spec/paused", json!(wanted)), message)
}

/// Opens the window of the active rollout. `windows`: where the spec lists windows.
pub fn open_window(object: &Value, windows: &str) -> Result<Change, String> {
    let (status, plan) = (&object["status"], &object["status"]["plan"]);
    let id = plan["id"].as_str().unwrap_or_default();
    let has_windows = object.pointer(windows).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if !has_windows {
        return Err(format!("{} is empty: no rollout waits for a window", windows[1..].replace('/', ".")));
    }
    if plan["state"] != "Active" || !status["rollout"].is_object() {
        return Err("no rollout is active: there is no window to open".to_owned());
    }
    if object["spec"]["paused"] == true {
        return Err("it is paused: run windlass resume first, then again with --now".to_owned());
    }
    if status["rollout"]["windowOpened"] == true || annotation(object, ANNOTATION_OPEN_WINDOW) == Some(id) {
        return Ok(Change::already("resume", format!("the window of plan {id} is already opened")));
    }
    let write = Write::Annotation(ANNOTATION_OPEN_WINDOW, id.to_owned());
    Ok(Change::done(
        "resume",
        write,
        format!("window of plan {id} opened; it stays open until the rollout ends"),
    ))
}

/// True if a fleet writes the object's annotations: those of its nodes, which it may create with a restart.
fn is_of_fleet(kind: Kind, object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let is_controlled = owners.into_iter().flatten().any(|owner| owner["controller"] == true);
    kind == Kind::Node && (is_controlled || annotation(object, ANNOTATION_OWNER_UID).is_some())
}

/// Restarts an object. A request from before the object was made is ignored by the operator, as meant for an earlier
/// object of that name, unless the object is a fleet's node (`effective_restart`).
pub fn restart(object: &Value, is_of_fleet: bool, now: DateTime<Utc>) -> Change {
    let made = object["metadata"]["creationTimestamp"].as_str().and_then(parse_time).filter(|_| !is_of_fleet);
    let asked = annotation(object, ANNOTATION_RESTARTED_AT).and_then(parse_time);
    let obeyed = object["status"]["restartedAt"].as_str().and_then(parse_time);
    let is_open = |asked: &DateTime<Utc>| [obeyed, made].into_iter().flatten().all(|before| *asked > before);
    if let Some(asked) = asked.filter(is_open) {
        let at = asked.to_rfc3339_opts(SecondsFormat::Secs, true);
        return Change::already("restart", format!("the restart requested at {at} has not started yet"));
    }
    if object["status"]["rollout"]["cause"] == "RestartRequested" {
        return Change::already("restart", "a restart is already in progress");
    }
    // Only a later time restarts, also where the clock of whoever asked last, or of the API server, is ahead; and the
    // annotation has whole seconds.
    let later = [obeyed, made].into_iter().flatten().map(|before| before + TimeDelta::seconds(1));
    let at = later.fold(now, Ord::max).to_rfc3339_opts(SecondsFormat::Secs, true);
    Change::done("restart", Write::Annotation(ANNOTATION_RESTARTED_AT, at), "restarted")
}

fn stage(object: &Value) -> Option<&str> {
    object["status"]["rollout"]["stage"].as_str()
}

/// True if a promotion has begun and traffic has not moved yet.
pub fn is_promoting(object: &Value) -> bool {
    stage(object) == Some("Promoting")
}

pub fn abort(object: &Value) -> Result<Change, String> {
    let plan = &object["status"]["plan"];
    let id = plan["id"].as_str().unwrap_or_default();
    if plan["state"] == "Active" && annotation(object, ANNOTATION_ABORT) == Some(id) {
        return Ok(Change::already("abort", format!("the abort of plan {id} is already requested")));
    }
    match plan["state"].as_str() {
        Some("Active") if is_promoting(object) && !at_hooks::may_go_back(object) => Err(format!(
            "plan {id} is promoting and cannot be aborted before traffic has moved; to roll back after that: \
             windlass rollback"
        )),
        Some("Active") if stage(object) == Some("Retiring") => {
            Err("traffic has already moved: there is nothing to abort; to roll back: windlass rollback"
                .to_owned())
        }
        Some("Active") => Ok(Change::done(
            "abort",
            Write::Annotation(ANNOTATION_ABORT, id.to_owned()),
            format!("abort of plan {id} requested"),
        )),
        Some("Failed") if is_promoting(object) => Err(format!(
            "plan {id} has failed during its promotion and cannot be aborted before traffic has moved; fix the cause, \
             then run windlass retry"
        )),
        Some("Aborted") => Ok(Change::already("abort", format!("plan {id} is already aborted"))),
        _ => Err("no rollout is active: there is nothing to abort".to_owned()),
    }
}

pub fn retry(object: &Value) -> Result<Change, String> {
    if let Some(change) = at_hooks::retry(object) {
        return Ok(change);
    }
    let rejected = &object["status"]["rejected"];
    if let Some(id) = rejected["planID"].as_str() {
        return Ok(retry_of(object, id));
    }
    // A promotion whose plan failed is not rejected: it holds.
    let (status, failed) = (&object["status"], &object["status"]["plan"]);
    if failed["state"] == "Failed"
        && status["rollout"].is_object()
        && let Some(id) = failed["id"].as_str()
    {
        return Ok(retry_of(object, id));
    }
    if object["status"]["rollout"]["cause"] == "RetryRequested" {
        return Ok(Change::already("retry", "a retry is already in progress"));
    }
    Err("no target is rejected: there is nothing to retry".to_owned())
}

fn retry_of(object: &Value, id: &str) -> Change {
    let plan = &object["status"]["plan"];
    let waits = match plan["id"].as_str().filter(|_| plan["state"] == "Active") {
        Some(active) if object["status"]["rollout"]["ownRevisions"] == true => {
            format!("; it starts when plan {active} has ended")
        }
        Some(active) => format!("; it starts when plan {active} has ended or stalled"),
        None => String::new(),
    };
    let Some(value) = next_retry(object, id, object["status"]["hookRetry"]["request"].as_str()) else {
        return Change::already("retry", format!("the retry of plan {id} is already requested{waits}"));
    };
    let message = format!("retry of plan {id} requested{waits}");
    Change::done("retry", Write::Annotation(ANNOTATION_RETRY, value), message)
}

/// The value of the annotation that asks for a retry of a plan: its ID, or, where the last request for this plan is
/// used up, the ID with the next number, since the same value again would change nothing. `None` if the plan is named by
/// a request that is not used up. `spent`: the request that was used up last.
pub fn next_retry(object: &Value, plan: &str, spent: Option<&str>) -> Option<String> {
    let asked = annotation(object, ANNOTATION_RETRY).filter(|asked| asked.split('/').next() == Some(plan));
    match asked {
        None => Some(plan.to_owned()),
        Some(asked) if spent == Some(asked) => {
            let count = asked.split_once('/').and_then(|(_, count)| count.parse::<u32>().ok()).unwrap_or(1);
            Some(format!("{plan}/{}", count.saturating_add(1)))
        }
        Some(_) => None,
    }
}

pub fn skip(kind: Kind, object: &Value, named: Option<&str>) -> Result<Change, String> {
    let plan = &object["status"]["plan"];
    let tasks = plan["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let id_of = |task: &Value| task["id"].as_str().unwrap_or_default().to_owned();
    let is_over = |task: &&Value| matches!(task["state"].as_str(), Some("Complete" | "Skipped" | "Failed"));
    // A failed hook that holds the plan, or a node's that holds its fleet.
    let held = at_hooks::failed(object, named).filter(|_| kind == Kind::Fleet);
    let held = held.map(|hook| hook["taskID"].as_str().unwrap_or_default());
    let of_node = named.filter(|id| kind == Kind::Fleet && at_hooks::is_task(object, id));
    if let Some(id) = held.or(of_node) {
        if annotation(object, ANNOTATION_SKIP) == Some(id) {
            return Ok(Change::already("skip", format!("the skip of task {id} is already requested")));
        }
        keep_skip(object, |task| may_be_skipped(kind, task))?;
        let write = Write::Annotation(ANNOTATION_SKIP, id.to_owned());
        return Ok(Change::done("skip", write, format!("skip of task {id} requested")));
    }
    let is_held = |task: &&Value| plan["state"] == "Active" && task["state"] == "Failed";
    let task = match named {
        Some(id) => tasks
            .iter()
            .find(|task| task["id"] == id)
            .ok_or_else(|| format!("its plan does not have task {id}; see status.plan.tasks"))?,
        None if plan["state"] != "Active" => {
            return Err(
                "no plan is active: there is nothing to skip. To skip a running hook of a node, name \
                        the node: windlass skip sn/NODE"
                    .to_owned(),
            );
        }
        None => {
            let task = tasks.iter().find(|task| !is_over(task) || is_held(task));
            task.ok_or("its plan is not waiting for a task")?
        }
    };
    let (id, type_) = (id_of(task), task["type"].as_str().unwrap_or_default());
    if task["state"] == "Skipped" {
        return Ok(Change::already("skip", format!("task {id} ({type_}) is already skipped")));
    }
    if task["state"] == "Complete" {
        return Ok(Change::already("skip", format!("task {id} ({type_}) is already complete")));
    }
    if plan["state"] != "Active" {
        let plan = plan["id"].as_str().unwrap_or_default();
        return Err(format!("plan {plan} has already ended: there is nothing to skip"));
    }
    let is_hook = task["params"]["hook"].is_string();
    let is_own = !is_hook && !Registry::builtin_recipes().is_builtin(type_);
    if !is_own && !may_be_skipped(kind, task) {
        return Err(format!(
            "task {id} ({type_}) cannot be skipped; only hooks, a node's mark-ready, and a fleet's await-caught-up and \
             await-nodes-at-height can be"
        ));
    }
    if annotation(object, ANNOTATION_SKIP) == Some(&id) {
        return Ok(Change::already("skip", format!("the skip of task {id} is already requested")));
    }
    keep_skip(object, |task| may_be_skipped(kind, task))?;
    let unless = if is_own { "; an event SkipRefused reports if its type does not allow that" } else { "" };
    let message = format!("skip of task {id} ({type_}) requested{unless}");
    Ok(Change::done("skip", Write::Annotation(ANNOTATION_SKIP, id), message))
}

/// True if the task is a hook's, or of a built-in type that may be skipped in an object of this kind.
pub fn may_be_skipped(kind: Kind, task: &Value) -> bool {
    let skippable =
        task["type"].as_str().and_then(|type_| type_.parse().ok()).filter(|type_| SKIPPABLE.contains(type_));
    let of_node = skippable == Some(TaskType::MarkReady);
    task["params"]["hook"].is_string() || skippable.is_some() && of_node == (kind == Kind::Node)
}

/// Refuses to replace a skip that the operator has not obeyed yet: the annotation holds one task's ID. A task that the
/// operator may refuse to skip, one of a custom type, is not waited for.
pub fn keep_skip(object: &Value, may_be_skipped: impl Fn(&Value) -> bool) -> Result<(), String> {
    let Some(before) = annotation(object, ANNOTATION_SKIP) else { return Ok(()) };
    let plan = &object["status"]["plan"];
    let tasks = plan["tasks"].as_array().into_iter().flatten();
    let is_left = |task: &Value| !matches!(task["state"].as_str(), Some("Complete" | "Skipped"));
    let mut named = tasks.filter(|task| task["id"] == before && plan["state"] == "Active");
    if !named.any(|task| is_left(task) && may_be_skipped(task)) && !at_hooks::is_task(object, before) {
        return Ok(());
    }
    Err(format!(
        "the skip of task {before} is still pending, and a second request would replace it; try again once it is done"
    ))
}

fn promote(object: &Value, looked_at: Option<&str>) -> Result<Change, String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let wanted = status["requestedRolloutHash"].as_str().unwrap_or_default();
    if let Some(hash) = looked_at {
        let digits = |text: &str| text.split_once(':').map_or(text, |(_, digits)| digits).to_owned();
        if digits(hash).len() < MIN_DIGITS {
            return Err(format!("--hash {hash} is too short: give at least {MIN_DIGITS} digits"));
        }
        if !wanted.starts_with(hash) && !digits(wanted).starts_with(hash) {
            return Err(format!(
                "--hash {hash} does not match the current target {wanted}; check the change again"
            ));
        }
    }
    if status["observedGeneration"] != object["metadata"]["generation"] {
        return Err("the operator has not observed the latest spec yet; try again in a moment".to_owned());
    }
    let strategy = spec["updateStrategy"]["type"].as_str().unwrap_or_default();
    let makes_sets = matches!(strategy, "BlueGreen" | "HardFork");
    if makes_sets && status["lastCompletedRolloutHash"].as_str() == Some(wanted) && !wanted.is_empty() {
        return Ok(Change::already("promote", format!("{wanted} is already the active revision")));
    }
    if let Some(sentence) = promotes_nothing(object) {
        return Err(sentence.to_owned());
    }
    if spec["forcePromote"].as_str() == Some(wanted) && !wanted.is_empty() {
        // If the promotion under way has used it, the message says so.
        if status["spentForcePromote"] == wanted && status["rollout"]["forced"] != true {
            return Err(how_to_promote(wanted, true));
        }
        return Ok(Change::already("promote", format!("the promotion of {wanted} is already requested")));
    }
    let write = Write::Field("/spec/forcePromote", json!(wanted));
    Ok(Change::done("promote", write, format!("promotion of {wanted} requested")))
}

/// Why a promotion would have no effect now, if so.
fn promotes_nothing(object: &Value) -> Option<&'static str> {
    let (rollout, plan) = (&object["status"]["rollout"], &object["status"]["plan"]);
    if rollout.is_null() || stage(object) == Some("Retiring") {
        return Some("no new nodes wait for promotion");
    }
    if rollout["entrantSet"].as_str().unwrap_or_default().is_empty() {
        return Some("no new nodes wait for promotion: the nodes are updated in place");
    }
    match rollout["recipe"].as_str().or(plan["recipe"].as_str()) {
        Some("HardFork") => Some(
            "a HardFork promotes automatically once its old nodes have halted; to skip that wait: windlass skip",
        ),
        Some("BlueGreenImmediate") => {
            Some("under promotion: Immediately the new nodes take over as soon as they are available")
        }
        _ => None,
    }
}

pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}
