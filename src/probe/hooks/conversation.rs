//! One exchange with a hook's peer: the request, and the meaning of its answer.

use bytes::Bytes;
use http::{HeaderValue, Method};
use serde_json::Value;
use url::Url;

use super::client::HookClient;
use super::excerpt::excerpt;
use super::{HookProbe, HookQuestion, HookReply, HookRequest, HttpProbe, QueryProbe, Verdict, prometheus};
use crate::hooks::{Expression, Over, Variables};
use crate::outward::{Access, Secrets};

/// The header with the task's ID, by which a peer recognises a repeat.
pub(super) const TASK_HEADER: &str = "windlass-task";
/// The header with the attempt.
pub(super) const ATTEMPT_HEADER: &str = "windlass-attempt";

/// The default of `success`.
const ANY_2XX: &str = "status >= 200 && status < 300";

/// A connection to a hook's peer.
pub(super) struct PeerConnection<'a> {
    pub client: &'a dyn HookClient,
    pub secrets: &'a Secrets,
    pub namespace: &'a str,
}

impl PeerConnection<'_> {
    /// Asks once. The text is the end of a sentence that begins with the peer.
    pub(super) async fn ask(&self, question: &HookQuestion) -> (Verdict, String) {
        let asked = match &question.probe {
            HookProbe::Http(probe) => self.request(question, probe).await,
            HookProbe::Query(probe) => self.query(question, probe).await,
        };
        asked.unwrap_or_else(|nothing| (Verdict::Nothing, nothing))
    }

    async fn request(&self, question: &HookQuestion, probe: &HttpProbe) -> Result<(Verdict, String), String> {
        let filled = probe.url.fill(&probe.values).map_err(|why| format!("cannot be sent: {why}"))?;
        let url =
            Url::parse(&filled).map_err(|why| format!("cannot be sent: {filled:?} is not a URL: {why}"))?;
        // The text was validated, but what the URL library parses counts.
        if !matches!(url.scheme(), "http" | "https")
            || !url.username().is_empty()
            || url.password().is_some()
            || !url.host_str().is_some_and(|host| probe.url.goes_to(host, &probe.values))
        {
            return Err(format!("is not sent: the host of {filled:?} is not allowed"));
        }
        let Access { trust, mut headers } = self.secrets.access(self.namespace, &probe.settings).await?;
        self.secrets.add_headers(self.namespace, &probe.headers, &mut headers).await?;
        let id = HeaderValue::from_str(&question.task_id).map_err(|why| format!("cannot be sent: {why}"))?;
        headers.insert(TASK_HEADER, id);
        headers.insert(ATTEMPT_HEADER, HeaderValue::from(question.attempt));
        let request = HookRequest {
            method: probe.method.clone(),
            url,
            headers,
            body: Bytes::from(probe.body.clone()),
            timeout: question.timeout,
            trust,
        };
        let reply = self.client.send(request).await?;
        Ok(judge(probe, &reply))
    }

    async fn query(&self, question: &HookQuestion, probe: &QueryProbe) -> Result<(Verdict, String), String> {
        let mut url = Url::parse(&probe.url).map_err(|why| format!("cannot be sent: {why}"))?;
        url.query_pairs_mut().append_pair("query", &probe.promql);
        let Access { trust, headers } = probe.access.access().await?;
        let (body, timeout) = (Bytes::new(), question.timeout);
        let request = HookRequest { method: Method::GET, url, headers, body, timeout, trust };
        let reply = self.client.send(request).await?;
        let samples = prometheus::samples(&reply)?;
        if samples.is_empty() {
            return Err("answered with no data".to_owned());
        }
        let text = reply.credentials.hide(&prometheus::shown(&samples));
        let variables = Variables::of_result(&samples);
        Ok(verdict(&probe.success, &probe.failure, Over::Result, &variables, text))
    }
}

fn judge(probe: &HttpProbe, reply: &HookReply) -> (Verdict, String) {
    let text = String::from_utf8_lossy(&reply.body);
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let more = if reply.is_cut { " (truncated)" } else { "" };
    let words = excerpt(&reply.shown());
    let sentence = if words.is_empty() {
        format!("answered {}", reply.status)
    } else {
        format!("answered {}: {words}{more}", reply.status)
    };
    let variables = Variables::of_answer(reply.status, &reply.headers, &text, &body);
    let success = if probe.success.is_empty() { ANY_2XX } else { &probe.success };
    let (found, sentence) = verdict(success, &probe.failure, Over::Answer, &variables, sentence);
    // A 5xx usually comes from a proxy while the peer is away: unless the hook defines its meaning, it has none.
    let is_nothing = reply.status >= 500 && found == Verdict::Neither;
    (if is_nothing { Verdict::Nothing } else { found }, sentence)
}

/// The meaning of an answer: a failure first, then a success, else neither.
fn verdict(
    success: &str,
    failure: &str,
    over: Over,
    variables: &Variables,
    text: String,
) -> (Verdict, String) {
    let holds = |text: &str| Expression::compile(text, over)?.holds(variables);
    let failed = if failure.is_empty() { Ok(false) } else { holds(failure) };
    if failed == Ok(true) {
        return (Verdict::Failure, text);
    }
    match (holds(success), failed) {
        (Ok(true), Ok(_)) => (Verdict::Success, text),
        // It is unknown whether it failed, so it is no success.
        (_, Err(why)) => (Verdict::Neither, format!("{text}; `failure` cannot be evaluated: {why}")),
        (Ok(false), Ok(_)) => (Verdict::Neither, text),
        (Err(why), Ok(_)) => (Verdict::Neither, format!("{text}; `success` cannot be evaluated: {why}")),
    }
}
