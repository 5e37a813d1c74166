//! One exchange with a hook's peer: the request, and the meaning of its answer.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use k8s_openapi::ByteString;
use reqwest::Url;
use serde_json::Value;

use super::client::{HookClient, HookReply, HookRequest};
use super::excerpt::excerpt;
use super::{HeaderText, HookProbe, HookQuestion, HttpProbe, QueryProbe, Verdict, prometheus};
use crate::hooks::{Expression, Over, Variables};
use windlass_kube_port::{Cluster, ClusterError, Kind};

/// The header with the task's ID, by which a peer recognises a repeat.
pub(super) const TASK_HEADER: &str = "windlass-task";
/// The header with the attempt.
pub(super) const ATTEMPT_HEADER: &str = "windlass-attempt";

/// The default of `success`.
const ANY_2XX: &str = "status >= 200 && status < 300";

/// A connection to a hook's peer.
pub(super) struct PeerConnection<'a> {
    pub client: &'a dyn HookClient,
    pub cluster: &'a dyn Cluster,
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
        if url.scheme() != "http"
            || !url.username().is_empty()
            || url.password().is_some()
            || !url.host_str().is_some_and(|host| probe.url.goes_to(host, &probe.values))
        {
            return Err(format!("is not sent: the host of {filled:?} is not allowed"));
        }
        let mut headers = HeaderMap::new();
        for (name, text) in &probe.headers {
            let (name, value) = self.header(name, text).await?;
            headers.append(name, value);
        }
        let id = HeaderValue::from_str(&question.task_id).map_err(|why| format!("cannot be sent: {why}"))?;
        headers.insert(TASK_HEADER, id);
        headers.insert(ATTEMPT_HEADER, HeaderValue::from(question.attempt));
        let request = HookRequest {
            method: probe.method.clone(),
            url,
            headers,
            body: probe.body.clone(),
            timeout: question.timeout,
        };
        let reply = self.client.send(request).await?;
        Ok(judge(probe, &reply))
    }

    async fn query(&self, question: &HookQuestion, probe: &QueryProbe) -> Result<(Verdict, String), String> {
        let mut url = Url::parse(&probe.url).map_err(|why| format!("cannot be sent: {why}"))?;
        url.query_pairs_mut().append_pair("query", &probe.promql);
        let request = HookRequest {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            body: String::new(),
            timeout: question.timeout,
        };
        let reply = self.client.send(request).await?;
        let samples = prometheus::samples(&reply)?;
        if samples.is_empty() {
            return Err("answered with no data".to_owned());
        }
        let text = prometheus::shown(&samples);
        let variables = Variables::of_result(&samples);
        Ok(verdict(&probe.success, &probe.failure, Over::Result, &variables, text))
    }

    async fn header(&self, name: &str, text: &HeaderText) -> Result<(HeaderName, HeaderValue), String> {
        let cannot = |why: &str| format!("cannot be sent: the header {name:?} {why}");
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| cannot("has a name that is not valid for a header"))?;
        let value = match text {
            HeaderText::Plain(value) => HeaderValue::from_str(value),
            HeaderText::Secret { name, key } => {
                // Secrets often end in a newline.
                let secret = self.secret(name, key).await?;
                HeaderValue::from_str(secret.trim()).map(|mut value| {
                    value.set_sensitive(true);
                    value
                })
            }
        };
        Ok((header, value.map_err(|_| cannot("has a value that is not valid for a header"))?))
    }

    async fn secret(&self, name: &str, key: &str) -> Result<String, String> {
        let secret = format!("cannot be sent: Secret {}/{name}, which a header refers to,", self.namespace);
        match self.cluster.get(Kind::Secret, self.namespace, name).await {
            Ok(Some(object)) => {
                let data = object["data"].get(key).cloned();
                let bytes = data.and_then(|data| serde_json::from_value::<ByteString>(data).ok());
                let text = bytes.and_then(|bytes| String::from_utf8(bytes.0).ok());
                text.ok_or_else(|| format!("{secret} has no text under its key {key:?}"))
            }
            Ok(None) => Err(format!("{secret} does not exist")),
            Err(ClusterError::Forbidden { .. }) => Err(format!(
                "{secret} cannot be read by the operator: grant its role the verb get on secrets"
            )),
            Err(error) => Err(format!("{secret} cannot be read: {error}")),
        }
    }
}

fn judge(probe: &HttpProbe, reply: &HookReply) -> (Verdict, String) {
    let text = String::from_utf8_lossy(&reply.body);
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let more = if reply.is_cut { " (truncated)" } else { "" };
    let words = excerpt(&text);
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
