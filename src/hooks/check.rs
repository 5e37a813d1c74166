//! Validates a hook beyond the rules of the API server.

use std::fmt::Display;

use http::{HeaderName, HeaderValue};

use crate::api::hooks::{Hook, HookAction, HookPoint, HttpHook, JobHook, QueryHook, WaitHook};

use super::expression::Expression;
use super::host::HookUrl;
use super::over::Over;
use super::rules::HookRules;
use super::values::{Filled, ValueName, Values};
use crate::outward::is_server_name;

/// Headers that are reserved: for the transport, the destination, or the task.
const OURS: [&str; 10] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "windlass-task",
    "windlass-attempt",
];

/// Checks that a hook could be carried out. An error is a sentence with the hook's name.
pub fn check(hook: &Hook, rules: &HookRules) -> Result<(), String> {
    let checked = match hook.action() {
        Some(HookAction::Http(http)) => check_http(http, hook.at, rules),
        Some(HookAction::Job(job)) => check_job(job, hook.at),
        Some(HookAction::Query(query)) => check_query(query, hook.at, rules),
        Some(HookAction::Wait(wait)) => check_wait(wait, hook.timeout_seconds()),
        Some(HookAction::Approval) => Ok(()),
        None => Err(
            "it needs exactly one of http, job, query, approval and wait: set one of them and remove the \
            others"
                .to_owned(),
        ),
    };
    checked.map_err(|why| format!("hook {}: {why}", hook.name))
}

fn check_http(http: &HttpHook, at: HookPoint, rules: &HookRules) -> Result<(), String> {
    let url = HookUrl::parse(&http.url, &rules.hosts).map_err(|why| format!("http.url {why}"))?;
    are_there("http.url", url.values(), at)?;
    let body = Filled::parse(&http.body).map_err(|why| format!("http.body {why}"))?;
    are_there("http.body", body.values(), at)?;
    for header in &http.headers {
        let field = format!("the header {:?} of http.headers", header.name);
        let name = HeaderName::from_bytes(header.name.as_bytes())
            .map_err(|_| format!("{field} has a name that is not valid for a header"))?;
        if OURS.contains(&name.as_str()) {
            return Err(format!("{field} is set by Windlass: remove it"));
        }
        if let Some(text) = &header.value {
            let filled = Filled::parse(text).map_err(|why| format!("{field} {why}"))?;
            are_there(&field, filled.values(), at)?;
            HeaderValue::from_str(text)
                .map_err(|_| format!("{field} has a value that is not valid for a header"))?;
        }
    }
    check_access(http)?;
    compiles("http.success", &http.success, Over::Answer)?;
    compiles("http.failure", &http.failure, Over::Answer)
}

/// Settings that contradict each other. The API server rejects some of them, but an object may be older than its rules.
fn check_access(http: &HttpHook) -> Result<(), String> {
    if let Some(tls) = &http.tls {
        if !http.url.to_ascii_lowercase().starts_with("https://") {
            return Err(
                "http.tls needs a url that begins with https://: change the url, or remove tls".to_owned()
            );
        }
        let name = &tls.server_name;
        if !name.is_empty() && !is_server_name(name) {
            return Err(format!(
                "http.tls.serverName {name:?} is not a DNS name or an IP address: set it to a name in the server's certificate"
            ));
        }
    }
    let Some(auth) = &http.auth else { return Ok(()) };
    if auth.bearer_secret.is_empty() == auth.basic_secret.is_empty() {
        return Err("http.auth needs either bearerSecret or basicSecret, but not both".to_owned());
    }
    if http.headers.iter().any(|header| header.name.eq_ignore_ascii_case("authorization")) {
        return Err("http.auth sets the header Authorization: remove it from http.headers".to_owned());
    }
    Ok(())
}

fn check_query(query: &QueryHook, at: HookPoint, rules: &HookRules) -> Result<(), String> {
    if rules.prometheus.is_none() {
        return Err("a query needs a Prometheus server, and the operator has none: start the operator with \
            --prometheus-url"
            .to_owned());
    }
    let promql = Filled::parse(&query.promql).map_err(|why| format!("query.promql {why}"))?;
    are_there("query.promql", promql.values(), at)?;
    compiles("query.success", &query.success, Over::Result)?;
    compiles("query.failure", &query.failure, Over::Result)
}

/// A wait that is longer than its time-out would fail each time.
fn check_wait(wait: &WaitHook, timeout: Option<i64>) -> Result<(), String> {
    match timeout.filter(|timeout| *timeout < wait.seconds) {
        Some(timeout) => Err(format!(
            "wait.seconds is {} and timeoutSeconds is {timeout}, so the hook would always time out: increase \
             timeoutSeconds, or remove it",
            wait.seconds
        )),
        None => Ok(()),
    }
}

/// The rest of a Job is validated by a dry run on the API server.
fn check_job(job: &JobHook, at: HookPoint) -> Result<(), String> {
    let pod = &job.template["template"]["spec"];
    if !job.template.is_object() || !pod["containers"].is_array() {
        return Err(
            "job.template has to be a JobSpec, with containers in template.spec.containers".to_owned()
        );
    }
    let volumes = pod["volumes"].as_array().into_iter().flatten();
    for claim in volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str()) {
        let field = format!("the claimName {claim:?} of job.template");
        let filled = Filled::parse(claim).map_err(|why| format!("{field} {why}"))?;
        are_there(&field, filled.values(), at)?;
        let name = filled.fill(&Values::each("x"), |_, value| value.to_owned()).unwrap_or_default();
        if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.') {
            return Err(format!("{field} is not the name of a claim: use a name such as data-{{{{pod}}}}"));
        }
    }
    Ok(())
}

/// True if a hook has the placeholder of the pod's address: without a pod, it never ends.
#[must_use]
pub fn needs_pod(hook: &Hook) -> bool {
    let texts: Vec<&str> = match hook.action() {
        Some(HookAction::Http(http)) => {
            let headers = http.headers.iter().filter_map(|header| header.value.as_deref());
            [http.url.as_str(), http.body.as_str()].into_iter().chain(headers).collect()
        }
        Some(HookAction::Query(query)) => vec![query.promql.as_str()],
        _ => Vec::new(),
    };
    texts
        .into_iter()
        .filter_map(|text| Filled::parse(text).ok())
        .any(|text| text.values().any(|name| name == ValueName::PodIp))
}

/// An absent expression is empty.
fn compiles(field: &str, text: &str, over: Over) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    Expression::compile(text, over).map(drop).map_err(|why| format!("{field} does not compile: {why}"))
}

fn are_there(field: &str, mut values: impl Iterator<Item = ValueName>, at: HookPoint) -> Result<(), String> {
    values.find(|value| !is_there(*value, at)).map_or(Ok(()), |value| Err(missing(field, value, at)))
}

/// True if a value exists at a point.
#[must_use]
pub fn is_there(value: ValueName, at: HookPoint) -> bool {
    match value {
        ValueName::Node | ValueName::Ordinal | ValueName::Pod => at.is_of_node(),
        ValueName::PodIp => at.is_of_node() && at != HookPoint::BeforeCreate,
        // A node that is removed has no target.
        ValueName::TargetHash => at != HookPoint::BeforeRemove,
        ValueName::Fleet
        | ValueName::Namespace
        | ValueName::Image
        | ValueName::FromHash
        | ValueName::PlanId
        | ValueName::TaskId
        | ValueName::Set => true,
    }
}

fn missing(field: impl Display, value: ValueName, at: HookPoint) -> String {
    let points: Vec<&str> =
        HookPoint::ALL.into_iter().filter(|point| is_there(value, *point)).map(HookPoint::as_str).collect();
    format!(
        "{field} has {value}, which is not available at {}; it is available at \
        {}",
        at.as_str(),
        points.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::hooks::{Host, PrometheusUrl};

    fn rules() -> HookRules {
        HookRules {
            hosts: [Host::parse("peer").unwrap()].into(),
            prometheus: Some(PrometheusUrl::parse("http://prometheus:9090").unwrap()),
            ..HookRules::default()
        }
    }

    fn checked(at: &str, action: &Value) -> Result<(), String> {
        let mut hook = json!({"name": "drain", "at": at});
        hook.as_object_mut().unwrap().extend(action.as_object().unwrap().clone());
        check(&serde_json::from_value(hook).unwrap(), &rules())
    }

    fn template() -> Value {
        json!({"template": {"spec": {"containers": [{"name": "a"}], "restartPolicy": "Never"}}})
    }

    #[test]
    fn valid_hooks_are_accepted() {
        let all = "{{fleet}} {{namespace}} {{image}} {{fromHash}} {{planID}} {{taskID}} {{set}}";
        let table = [
            (
                "BeforeNode",
                json!({"http": {"url": "http://{{podIP}}:80/{{node}}/{{ordinal}}/{{pod}}/{{targetHash}}"}}),
            ),
            (
                "BeforeRollout",
                json!({"http": {"url": "http://peer:80/", "body": all, "method": "POST",
                "headers": [{"name": "X-A", "value": "{{fleet}}"}, {"name": "Authorization", "secretKeyRef": {"name": "a", "key": "b"}}],
                "success": "status == 200", "failure": "body.state == 'failed'"}}),
            ),
            ("BeforeRemove", json!({"http": {"url": "http://{{podIP}}/{{fromHash}}"}})),
            (
                "BeforeNode",
                json!({"http": {"url": "HTTPS://{{podIP}}/", "auth": {"basicSecret": "a"},
                "tls": {"caSecret": "ca", "clientCertSecret": "cert", "serverName": "10.0.0.7"}}}),
            ),
            ("BeforeNode", json!({"http": {"url": "http://peer/", "auth": {"bearerSecret": "a"}}})),
            (
                "AfterStep",
                json!({"query": {"promql": "up{ns=\"{{namespace}}\"}", "success": "scalar > 0.0"}}),
            ),
            ("AfterRollout", json!({"job": {"template": template()}})),
            ("BeforePromotion", json!({"approval": {}})),
            ("AfterPromotion", json!({"wait": {"seconds": 1}})),
            ("AfterPromotion", json!({"wait": {"seconds": 5}, "timeoutSeconds": 5})),
        ];
        for (at, action) in table {
            assert_eq!(checked(at, &action), Ok(()), "{at} {action}");
        }
    }

    #[test]
    fn invalid_hooks_are_rejected_with_the_hook_name() {
        let table = [
            (
                "BeforeRollout",
                json!({"http": {"url": "http://{{podIP}}/"}}),
                "http.url has {{podIP}}, which is not available at BeforeRollout",
            ),
            (
                "AfterStep",
                json!({"http": {"url": "http://peer/", "body": "{{node}}"}}),
                "http.body has {{node}}",
            ),
            ("BeforeRemove", json!({"http": {"url": "http://peer/{{targetHash}}"}}), "{{targetHash}}"),
            (
                "BeforePromotion",
                json!({"query": {"promql": "up{pod=\"{{pod}}\"}", "success": "true"}}),
                "query.promql has {{pod}}",
            ),
            (
                "BeforeNode",
                json!({"http": {"url": "http://peer/{{nodeName}}"}}),
                "unknown placeholder {{nodeName}}",
            ),
            (
                "BeforeNode",
                json!({"http": {"url": "http://kubernetes.default.svc/"}}),
                "host kubernetes.default.svc, which is not allowed",
            ),
            (
                "BeforeNode",
                json!({"http": {"url": "http://peer/", "success": "status =="}}),
                "http.success does not compile: Syntax error",
            ),
            (
                "BeforeNode",
                json!({"http": {"url": "http://peer/", "failure": "stat == 1"}}),
                "http.failure does not compile: undeclared reference to 'stat' at line 1, column 1",
            ),
            (
                "BeforeNode",
                json!({"query": {"promql": "up", "success": "status == 1"}}),
                "query.success does not compile",
            ),
            (
                "BeforeNode",
                json!({"query": {"promql": "up", "success": "true", "failure": ")"}}),
                "query.failure does not compile",
            ),
            (
                "BeforeNode",
                json!({"http": {"url": "http://peer/", "headers": [{"name": "a b", "value": ""}]}}),
                "a name that is not valid for a header",
            ),
            (
                "BeforeNode",
                json!({"http": {"url": "http://peer/", "headers": [{"name": "Host", "value": "x"}]}}),
                "is set by Windlass: remove it",
            ),
            (
                "BeforeNode",
                json!({"http": {"url": "http://peer/", "headers": [{"name": "windlass-task", "value": "x"}]}}),
                "is set by Windlass: remove it",
            ),
            (
                "BeforeNode",
                json!({"http": {"url": "http://peer/", "headers": [{"name": "a", "value": "x\ny"}]}}),
                "a value that is not valid for a header",
            ),
            (
                "BeforeNode",
                json!({"http": {"url": "http://peer/", "headers": [{"name": "a", "value": "{{x}}"}]}}),
                "unknown placeholder {{x}}",
            ),
            ("BeforeNode", json!({"job": {"template": {}}}), "job.template has to be a JobSpec"),
            (
                "BeforeNode",
                json!({"wait": {"seconds": 10}, "timeoutSeconds": 5}),
                "wait.seconds is 10 and timeoutSeconds is 5",
            ),
            ("BeforeNode", json!({}), "exactly one of"),
            ("BeforeNode", json!({"approval": {}, "wait": {"seconds": 1}}), "exactly one of"),
        ];
        for (at, action, part) in table {
            let sentence = checked(at, &action).unwrap_err();
            assert!(sentence.starts_with("hook drain: ") && sentence.contains(part), "{action}: {sentence}");
        }
    }

    #[test]
    fn query_hook_requires_a_prometheus_url() {
        let hook = json!({"name": "q", "at": "BeforeNode", "query": {"promql": "up", "success": "true"}});
        let sentence = check(&serde_json::from_value(hook).unwrap(), &HookRules::default()).unwrap_err();
        assert!(sentence.starts_with("hook q: ") && sentence.contains("--prometheus-url"), "{sentence}");
    }

    #[test]
    fn contradicting_tls_settings_and_credentials_are_rejected() {
        let table = [
            (
                json!({"http": {"url": "http://peer/", "tls": {}}}),
                "http.tls needs a url that begins with https://",
            ),
            (
                json!({"http": {"url": "https://peer/", "tls": {"serverName": "a b"}}}),
                "http.tls.serverName \"a b\" is not a DNS name or an IP address",
            ),
            (
                json!({"http": {"url": "https://peer/", "auth": {"bearerSecret": "a", "basicSecret": "b"}}}),
                "http.auth needs either bearerSecret or basicSecret, but not both",
            ),
            (
                json!({"http": {"url": "https://peer/", "auth": {}}}),
                "http.auth needs either bearerSecret or basicSecret, but not both",
            ),
            (
                json!({"http": {"url": "https://peer/", "auth": {"bearerSecret": "a"},
                "headers": [{"name": "authorization", "value": "x"}]}}),
                "http.auth sets the header Authorization: remove it from http.headers",
            ),
        ];
        for (action, part) in table {
            let sentence = checked("BeforeNode", &action).unwrap_err();
            assert!(sentence.starts_with("hook drain: ") && sentence.contains(part), "{action}: {sentence}");
        }
    }
}
