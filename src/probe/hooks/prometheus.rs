//! Parses Prometheus' responses to instant queries.

use serde::Deserialize;
use serde_json::Value;

use super::HookReply;
use super::excerpt::excerpt;
use crate::hooks::Sample;

/// The most samples in a message.
const SHOWN: usize = 3;

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    error: String,
}

/// The samples of a response; a scalar becomes one without labels. An error is the end of a sentence.
pub(super) fn samples(reply: &HookReply) -> Result<Vec<Sample>, String> {
    let words = || excerpt(&reply.shown());
    if reply.is_cut {
        return Err(format!(
            "answered {} with too much data: reduce the result, for example with sum or topk",
            reply.status
        ));
    }
    let answer: Answer = serde_json::from_slice(&reply.body).map_err(|_| {
        format!(
            "answered {} with something that is not a Prometheus response: \
            {}",
            reply.status,
            words()
        )
    })?;
    if answer.status != "success" || reply.status >= 300 {
        return Err(format!(
            "answered {}: {}",
            reply.status,
            excerpt(&reply.credentials.hide(&answer.error))
        ));
    }
    let result = &answer.data["result"];
    let garbled = || {
        format!(
            "answered {} with something that is not a Prometheus response: \
        {}",
            reply.status,
            words()
        )
    };
    match answer.data["resultType"].as_str() {
        Some("vector") => {
            let list = result.as_array().ok_or_else(garbled)?;
            list.iter().map(|one| sample(&one["metric"], &one["value"]).ok_or_else(garbled)).collect()
        }
        Some("scalar") => Ok(vec![sample(&Value::Null, result).ok_or_else(garbled)?]),
        Some(other) => Err(format!(
            "answered with a {}: a hook's query has to return an instant vector or a scalar",
            excerpt(&reply.credentials.hide(other))
        )),
        None => Err(garbled()),
    }
}

fn sample(metric: &Value, value: &Value) -> Option<Sample> {
    let labels = metric.as_object().into_iter().flatten();
    let labels = labels.map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let value = value.get(1)?.as_str()?.parse().ok()?;
    Some(Sample { labels: labels.collect::<Option<_>>()?, value })
}

/// The samples as text.
pub(super) fn shown(samples: &[Sample]) -> String {
    let one = |sample: &Sample| {
        let labels: Vec<String> =
            sample.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        if labels.is_empty() {
            sample.value.to_string()
        } else {
            format!("{{{}}} {}", labels.join(","), sample.value)
        }
    };
    let first: Vec<String> = samples.iter().take(SHOWN).map(one).collect();
    let more = match samples.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("answered {}{more}", excerpt(&first.join("; ")))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::AUTHORIZATION;
    use serde_json::json;

    use super::*;
    use crate::outward::Credentials;

    fn read(status: u16, body: &str) -> Result<Vec<Sample>, String> {
        samples(&HookReply { status, body: body.as_bytes().to_vec(), ..HookReply::default() })
    }

    fn vector(result: &Value) -> String {
        json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
    }

    #[test]
    fn vectors_and_scalars_are_read() {
        let body = vector(&json!([
            {"metric": {"pod": "db-0-0"}, "value": [1.5, "0.25"]},
            {"metric": {}, "value": [1, "NaN"]},
            {"metric": {}, "value": [1, "+Inf"]},
        ]));
        let found = read(200, &body).unwrap();
        assert_eq!(found[0], Sample { labels: vec![("pod".to_owned(), "db-0-0".to_owned())], value: 0.25 });
        assert!(found[1].value.is_nan() && found[2].value == f64::INFINITY);
        assert_eq!(shown(&found), "answered {pod=\"db-0-0\"} 0.25; NaN; inf");
        let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}"#;
        assert_eq!(read(200, scalar), Ok(vec![Sample { labels: Vec::new(), value: 2.0 }]));
        assert_eq!(read(200, &vector(&json!([]))), Ok(Vec::new()));
    }

    #[test]
    fn other_responses_are_errors_with_details() {
        let matrix = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
        let refused = r#"{"status":"error","errorType":"bad_data","error":"parse error at char 3"}"#;
        let table = [
            (200, matrix, "answered with a matrix"),
            (400, refused, "answered 400: parse error at char 3"),
            (
                503,
                "Service Unavailable",
                "answered 503 with something that is not a Prometheus response: Service \
                Unavailable",
            ),
            (200, "<html>", "not a Prometheus response"),
            (200, "{}", "not a Prometheus response"),
            (200, r#"{"status":"success"}"#, "not a Prometheus response"),
            (200, &vector(&json!([{"metric": {}, "value": [1]}])), "not a Prometheus response"),
            (200, &vector(&json!([{"metric": {}, "value": [1, "many"]}])), "not a Prometheus response"),
            (200, &vector(&json!([{"metric": {}, "histogram": [1, {}]}])), "not a Prometheus response"),
        ];
        for (status, body, part) in table {
            let said = read(status, body).unwrap_err();
            assert!(said.contains(part), "{body}: {said}");
        }
        let mut quoting = HookReply { status: 401, ..HookReply::default() };
        let mut token = HeaderValue::from_static("Bearer sesame");
        token.set_sensitive(true);
        quoting.credentials = Credentials::of(&[(AUTHORIZATION, token)].into_iter().collect());
        for body in ["bad: Bearer sesame", r#"{"status": "error", "error": "bad: Bearer sesame"}"#] {
            quoting.body = body.into();
            assert!(samples(&quoting).unwrap_err().ends_with("bad: ***"), "{body}");
        }
        let cut = HookReply { status: 200, is_cut: true, ..HookReply::default() };
        assert!(samples(&cut).unwrap_err().contains("too much data"));
    }
}
