//! `call-http`: an HTTP request was answered with a success.

use std::time::Duration;

use super::turn::{Answer, Turn, hook_task, seconds};
use crate::api::HookAction;
use crate::api::hooks::HttpHook;
use crate::engine::{Outcome, TaskError};
use crate::hooks::{Filled, HookUrl};
use crate::outward::{Origin, OutwardSettings};
use crate::probe::hooks::{HeaderText, HookProbe, HookQuestion, HttpProbe, Verdict};

/// The defaults for a hook's interval and for the timeout of one request.
const INTERVAL_SECONDS: i64 = 5;
const REQUEST_TIMEOUT_SECONDS: i64 = 5;
/// The requeue delay while no request can be sent.
const NO_PROBER_REQUEUE: Duration = Duration::from_secs(5);

hook_task! {
    /// Sends a request at each interval until its answer is a success.
    CallHttp = "call-http", |turn| call(&turn)
}

fn call(turn: &Turn<'_>) -> Answer {
    let Some(HookAction::Http(http)) = turn.hook.action() else { return Ok(Outcome::Done) };
    let question = match question(turn, http) {
        Ok(question) => question,
        Err(why) if turn.is_overdue() => return turn.is_late(&why),
        Err(why) => return Ok(turn.waits(why, NO_PROBER_REQUEUE)),
    };
    let asked = format!("{} {}", method(http), shown(&question));
    let (prober, owner) = (&turn.scope.prober, turn.scope.hook_owner());
    if let Some(why) = &turn.scope.hold {
        return match prober.last(&owner, &question) {
            // A request that was sent before may still be answered.
            Some(last) if last.verdict == Verdict::Success => Ok(Outcome::Done),
            // Nothing is asked now, so no answer is to come.
            _ if turn.is_overdue() => {
                turn.is_late(&turn.last_message_or(format!("{asked} was not answered")))
            }
            _ => Ok(turn.waits(why.clone(), NO_PROBER_REQUEUE)),
        };
    }
    let heard = prober.ask(&owner, question, Duration::ZERO);
    let again = heard.again;
    match heard.last {
        Some(last) if last.verdict == Verdict::Success => Ok(Outcome::Done),
        Some(last) if last.verdict == Verdict::Failure => {
            Err(TaskError::terminal(format!("{asked} {}", last.said)))
        }
        Some(last) if turn.is_overdue() => turn.is_late(&format!("{asked} last {}", last.said)),
        Some(last) => Ok(turn.waits(format!("{asked} {}", last.said), again)),
        // This operator has no answer yet; after a restart, the last one is in the task's record. If the time is up by
        // then, the peer may have succeeded while no operator was running, so its answer decides. One
        // always comes: a request that fails or times out is answered with that.
        None => Ok(turn.waits(turn.last_message_or(asked), again)),
    }
}

fn method(http: &HttpHook) -> &str {
    if http.method.is_empty() { "GET" } else { &http.method }
}

fn shown(question: &HookQuestion) -> String {
    match &question.probe {
        HookProbe::Http(probe) => probe.url.fill(&probe.values).unwrap_or_default(),
        HookProbe::Query(probe) => probe.promql.clone(),
    }
}

/// The request. An error is a sentence: the request cannot be sent now.
fn question(turn: &Turn<'_>, http: &HttpHook) -> Result<HookQuestion, String> {
    let values = turn.values();
    let url = HookUrl::parse(&http.url, &turn.scope.rules.hosts).map_err(|why| format!("http.url {why}"))?;
    url.fill(&values)?;
    let filled = |field: &str, text: &str| {
        let text = Filled::parse(text).map_err(|why| format!("{field} {why}"))?;
        text.fill_plainly(&values)
    };
    let mut headers = Vec::new();
    for header in &http.headers {
        let text = match (&header.value, &header.secret_key_ref) {
            (Some(value), _) => HeaderText::Plain(filled("a header", value)?),
            (None, Some(secret)) => HeaderText::Secret { name: secret.name.clone(), key: secret.key.clone() },
            (None, None) => HeaderText::Plain(String::new()),
        };
        headers.push((header.name.clone(), text));
    }
    let request_timeout = seconds(http.request_timeout_seconds.unwrap_or(REQUEST_TIMEOUT_SECONDS));
    Ok(HookQuestion {
        task_id: turn.cx.record.id.clone(),
        attempt: turn.attempt(),
        interval: seconds(http.interval_seconds.unwrap_or(INTERVAL_SECONDS)),
        timeout: turn.request_timeout(request_timeout),
        probe: HookProbe::Http(Box::new(HttpProbe {
            url,
            method: ::http::Method::from_bytes(method(http).as_bytes())
                .map_err(|_| format!("http.method {:?} is not an HTTP method", http.method))?,
            headers,
            settings: OutwardSettings {
                origin: Origin::Hook,
                tls: http.tls.clone().unwrap_or_default(),
                auth: http.auth.clone().unwrap_or_default(),
            },
            body: filled("http.body", &http.body)?,
            values,
            success: http.success.clone(),
            failure: http.failure.clone(),
        })),
    })
}
