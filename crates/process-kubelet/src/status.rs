//! A pod's status, from the state of its containers. Pure.

use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    jiff::Timestamp,
};
use serde_json::{Map, Value, json};

use crate::{
    clock::text,
    table::{Ended, Record, Role, Sandbox, State},
};

/// A strategic merge patch of the status: replaces the container statuses, and keeps other writers' conditions.
pub(crate) fn patch(pod: &Pod, sandbox: &Sandbox, records: &[Record], ip: &str, now: Timestamp) -> Value {
    let (inits, mains): (Vec<&Record>, Vec<&Record>) = records.iter().partition(|r| r.role != Role::Main);
    let phase = phase(pod, sandbox, &inits, &mains);
    let mut status = Map::new();
    status.insert("phase".to_owned(), json!(phase));
    status.insert("hostIP".to_owned(), json!("127.0.0.1"));
    status.insert("hostIPs".to_owned(), json!([{"ip": "127.0.0.1"}]));
    if sandbox.ready {
        status.insert("podIP".to_owned(), json!(ip));
        status.insert("podIPs".to_owned(), json!([{"ip": ip}]));
    }
    if let Some(started) = sandbox.started {
        status.insert("startTime".to_owned(), json!(text(started)));
    }
    if let Some(generation) = pod.metadata.generation {
        status.insert("observedGeneration".to_owned(), json!(generation));
    }
    let conditions = conditions(pod, sandbox, phase, &inits, &mains, now);
    status.insert("conditions".to_owned(), json!(conditions));
    status.insert("containerStatuses".to_owned(), list(&mains));
    if !inits.is_empty() {
        status.insert("initContainerStatuses".to_owned(), list(&inits));
    }
    json!({"metadata": {"uid": pod.metadata.uid}, "status": status})
}

/// Lists of container statuses have no merge key: a patch replaces them.
fn list(records: &[&Record]) -> Value {
    records.iter().map(|record| container(record)).collect()
}

fn container(record: &Record) -> Value {
    let state = match &record.state {
        State::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { since } => json!({"running": {"startedAt": text(*since)}}),
        State::Ended(end) => terminated(end),
    };
    let mut status = json!({
        "name": record.name, "image": record.image, "imageID": record.image_id, "restartCount": record.restarts,
        "started": record.started, "ready": record.ready, "state": state,
        "lastState": record.last.as_ref().map_or_else(|| json!({}), terminated),
    });
    if !record.id.is_empty() {
        status["containerID"] = json!(record.id);
    }
    status
}

fn terminated(end: &Ended) -> Value {
    let mut terminated = json!({"exitCode": end.code, "reason": end.reason});
    if !end.message.is_empty() {
        terminated["message"] = json!(end.message);
    }
    if let Some(signal) = end.signal {
        terminated["signal"] = json!(signal);
    }
    if !end.id.is_empty() {
        terminated["containerID"] = json!(end.id);
    }
    if let Some(started) = end.started {
        terminated["startedAt"] = json!(text(started));
    }
    if let Some(finished) = end.finished {
        terminated["finishedAt"] = json!(text(finished));
    }
    json!({"terminated": terminated})
}

/// True if a container that exited with this code is restarted.
pub(crate) fn starts_again(pod: &Pod, role: Role, code: i32) -> bool {
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
    match (role, policy) {
        (Role::Sidecar, _) | (Role::Main, "Always") => true,
        (Role::Init, "Always") | (_, "OnFailure") => code != 0,
        _ => false,
    }
}

/// Whether it has terminated for good, and if so whether it succeeded.
fn end(record: &Record) -> Option<bool> {
    match &record.state {
        State::Ended(end) => Some(end.code == 0),
        _ => None,
    }
}

fn has_begun(record: &Record) -> bool {
    !matches!(record.state, State::Waiting { .. }) || record.last.is_some()
}

/// True if all init containers are done: sidecars have started, others have completed.
fn initialized(inits: &[&Record]) -> bool {
    inits.iter().all(|record| match record.role {
        Role::Sidecar => record.started || end(record).is_some(),
        _ => end(record) == Some(true),
    })
}

fn phase(pod: &Pod, sandbox: &Sandbox, inits: &[&Record], mains: &[&Record]) -> &'static str {
    if sandbox.over {
        let failed_init =
            inits.iter().any(|record| record.role == Role::Init && end(record).is_some_and(|well| !well));
        let failed = failed_init || mains.iter().any(|record| end(record) != Some(true));
        return if failed { "Failed" } else { "Succeeded" };
    }
    let initializing = !mains.iter().any(|record| has_begun(record));
    let all_begun = mains.iter().all(|record| has_begun(record));
    if !sandbox.ready || initializing || !all_begun {
        // A phase does not go back from Running.
        let ran = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        return if ran && all_begun { "Running" } else { "Pending" };
    }
    "Running"
}

type Wrong = Option<(&'static str, String)>;

fn conditions(
    pod: &Pod,
    sandbox: &Sandbox,
    phase: &str,
    inits: &[&Record],
    mains: &[&Record],
    now: Timestamp,
) -> Vec<Value> {
    let present: Vec<&PodCondition> =
        pod.status.iter().flat_map(|status| status.conditions.iter().flatten()).collect();
    let names = |records: &mut dyn Iterator<Item = &&Record>| {
        records.map(|record| record.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let incomplete = inits.iter().filter(|record| !initialized(&[record]));
    let incomplete = names(&mut incomplete.into_iter());
    let initialized: Wrong = (!incomplete.is_empty() && phase != "Succeeded")
        .then(|| ("ContainersNotInitialized", format!("containers with incomplete status: [{incomplete}]")));
    let sidecars = inits.iter().filter(|record| record.role == Role::Sidecar);
    let unready = names(&mut mains.iter().chain(sidecars).filter(|record| !record.ready));
    let containers: Wrong = match phase {
        "Succeeded" => Some(("PodCompleted", String::new())),
        "Failed" => Some(("PodFailed", String::new())),
        _ if unready.is_empty() => None,
        _ => Some(("ContainersNotReady", format!("containers with unready status: [{unready}]"))),
    };
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let shut: Vec<String> = gates
        .filter_map(|gate| {
            let of = |c: &&&PodCondition| c.type_ == gate.condition_type;
            match present.iter().find(of) {
                Some(found) if found.status == "True" => None,
                Some(_) => Some(format!(
                    "the status of pod readiness gate {:?} is not \"True\", but False",
                    gate.condition_type
                )),
                None => Some(format!(
                    "corresponding condition of pod readiness gate {:?} does not exist.",
                    gate.condition_type
                )),
            }
        })
        .collect();
    let gated: Wrong = (!shut.is_empty()).then(|| ("ReadinessGatesNotReady", shut.join(", ")));
    let no_sandbox: Wrong = (!sandbox.ready || sandbox.over).then_some(("", String::new()));
    let all = [
        ("PodReadyToStartContainers", no_sandbox),
        ("Initialized", initialized),
        ("Ready", containers.clone().or(gated)),
        ("ContainersReady", containers),
        ("PodScheduled", None),
    ];
    all.into_iter().map(|(kind, wrong)| condition(pod, &present, kind, wrong, now)).collect()
}

/// A condition that is True unless `wrong`; its transition time only moves with its status.
fn condition(pod: &Pod, present: &[&PodCondition], kind: &str, wrong: Wrong, now: Timestamp) -> Value {
    let status = if wrong.is_none() { "True" } else { "False" };
    let same = present.iter().find(|c| c.type_ == kind && c.status == status);
    let since = same.and_then(|c| c.last_transition_time.as_ref()).map_or(now, |time| time.0);
    let (reason, message) = wrong.unwrap_or_default();
    let or_none = |text: String| if text.is_empty() { Value::Null } else { Value::String(text) };
    json!({
        "type": kind, "status": status, "lastTransitionTime": text(since), "observedGeneration": pod.metadata.generation,
        "reason": or_none(reason.to_owned()), "message": or_none(message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, role: Role, state: State) -> Record {
        let runs = matches!(state, State::Running { .. });
        let (last, id) = (None, String::new());
        let (name, image, image_id) = (name.to_owned(), "i".to_owned(), "sha".to_owned());
        Record { name, image, role, state, last, restarts: 0, started: runs, ready: runs, id, image_id }
    }

    fn ended(code: i32) -> State {
        let (reason, message, id) = (String::new(), String::new(), String::new());
        State::Ended(Ended { code, signal: None, reason, message, started: None, finished: None, id })
    }

    fn runs() -> State {
        State::Running { since: Timestamp::UNIX_EPOCH }
    }

    fn waiting(reason: &str) -> State {
        State::waiting(reason, "")
    }

    fn pod(policy: &str) -> Pod {
        let pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"restartPolicy": policy, "containers": []}});
        serde_json::from_value(pod).unwrap()
    }

    fn of(pod: &Pod, over: bool, records: &[Record]) -> Value {
        let sandbox = Sandbox { ready: true, over, started: None };
        patch(pod, &sandbox, records, "127.200.0.1", Timestamp::UNIX_EPOCH)["status"].clone()
    }

    fn wrong(status: &Value) -> Vec<String> {
        let all = status["conditions"].as_array().unwrap().iter().filter(|c| c["status"] == "False");
        all.map(|c| {
            format!("{} {} {}", c["type"], c["reason"], c["message"]).replace('"', "").replace(" null", "")
        })
        .collect()
    }

    #[test]
    fn pod_phase_follows_its_containers() {
        let main = |state| record("m", Role::Main, state);
        let init = |state| record("i", Role::Init, state);
        let mut crashed = main(waiting("CrashLoopBackOff"));
        crashed.last = Some(Ended {
            code: 1,
            signal: None,
            reason: String::new(),
            message: String::new(),
            started: None,
            finished: None,
            id: String::new(),
        });
        let cases = [
            (false, vec![main(waiting("ContainerCreating"))], "Pending"),
            (false, vec![init(runs()), main(waiting("PodInitializing"))], "Pending"),
            (false, vec![init(ended(0)), main(runs())], "Running"),
            (false, vec![main(runs()), main(waiting("ImagePullBackOff"))], "Pending"),
            (false, vec![crashed], "Running"),
            (false, vec![main(ended(0)), main(runs())], "Running"),
            (true, vec![main(ended(0))], "Succeeded"),
            (true, vec![main(ended(0)), main(ended(2))], "Failed"),
            (true, vec![init(ended(1)), main(waiting("PodInitializing"))], "Failed"),
        ];
        for (over, records, phase) in cases {
            assert_eq!(of(&pod("Always"), over, &records)["phase"], phase, "{records:?}");
        }
    }

    #[test]
    fn conditions_name_unready_containers() {
        let (init, sidecar) =
            (record("i", Role::Init, runs()), record("s", Role::Sidecar, waiting("PodInitializing")));
        let main = record("m", Role::Main, waiting("PodInitializing"));
        let messages = wrong(&of(&pod("Always"), false, &[init, sidecar, main]));
        assert_eq!(
            messages,
            [
                "Initialized ContainersNotInitialized containers with incomplete status: [i s]",
                "Ready ContainersNotReady containers with unready status: [m s]",
                "ContainersReady ContainersNotReady containers with unready status: [m s]",
            ]
        );
        let done = of(&pod("Never"), true, &[record("m", Role::Main, ended(0))]);
        assert_eq!(
            wrong(&done),
            ["PodReadyToStartContainers", "Ready PodCompleted", "ContainersReady PodCompleted"]
        );
    }

    #[test]
    fn readiness_gate_keeps_pod_unready_until_true() {
        let mut pod = pod("Always");
        let gate = json!([{"conditionType": "example.com/gate"}]);
        pod.spec.as_mut().unwrap().readiness_gates = Some(serde_json::from_value(gate).unwrap());
        let main = [record("m", Role::Main, runs())];
        let messages = wrong(&of(&pod, false, &main));
        assert_eq!(messages.len(), 1);
        assert!(messages[0].starts_with("Ready ReadinessGatesNotReady"), "{messages:?}");
        let open = json!({"conditions": [{"type": "example.com/gate", "status": "True"}]});
        pod.status = Some(serde_json::from_value(open).unwrap());
        assert_eq!(wrong(&of(&pod, false, &main)), Vec::<String>::new());
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let mut pod = pod("Always");
        let since = "2020-01-01T00:00:00Z";
        let present = json!({"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": since},
            {"type": "ContainersReady", "status": "False", "lastTransitionTime": since},
        ]});
        pod.status = Some(serde_json::from_value(present).unwrap());
        let status = of(&pod, false, &[record("m", Role::Main, runs())]);
        let time = |kind: &str| {
            let all = status["conditions"].as_array().unwrap();
            all.iter().find(|c| c["type"] == kind).unwrap()["lastTransitionTime"].clone()
        };
        assert_eq!(time("Ready"), since);
        assert_eq!(time("ContainersReady"), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn restart_policy_decides_which_containers_restart() {
        let table = [
            ("Always", Role::Main, [true, true]),
            ("OnFailure", Role::Main, [false, true]),
            ("Never", Role::Main, [false, false]),
            ("Always", Role::Init, [false, true]),
            ("OnFailure", Role::Init, [false, true]),
            ("Never", Role::Init, [false, false]),
            ("Never", Role::Sidecar, [true, true]),
        ];
        for (policy, role, [after_0, after_1]) in table {
            assert_eq!(starts_again(&pod(policy), role, 0), after_0, "{policy} {role:?}");
            assert_eq!(starts_again(&pod(policy), role, 1), after_1, "{policy} {role:?}");
        }
    }
}
