use std::time::Duration;

use serde_json::json;

use super::*;
use crate::clock::on_the_wall;

fn answered(text: &str, status: u16, body: &str) -> Result<bool, String> {
    let headers = [("Content-Type", "application/json"), ("X-A", "1"), ("x-a", "2")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let json = serde_json::from_str(body).unwrap_or_default();
    let variables = Variables::of_answer(status, &headers, body, &json);
    Expression::compile(text, Over::Answer)?.holds(&variables)
}

fn asked(text: &str, samples: &[(&str, f64)]) -> Result<bool, String> {
    let sample = |(pod, value): &(&str, f64)| Sample {
        labels: vec![("pod".to_owned(), (*pod).to_owned())],
        value: *value,
    };
    let samples: Vec<Sample> = samples.iter().map(sample).collect();
    Expression::compile(text, Over::Result)?.holds(&Variables::of_result(&samples))
}

#[test]
fn http_expressions_are_evaluated() {
    let body = r#"{"state":"drained","shards":[{"n":0},{"n":3}],"ratio":0.5,"leader":null,"is-big":true}"#;
    let table = [
        ("status == 200", true),
        ("status >= 200 && status < 300", true),
        ("body.state == 'drained' && status == 200", true),
        ("body.state == 'draining'", false),
        ("body.shards.all(s, s.n < 4)", true),
        ("body.shards.exists(s, s.n == 3) && size(body.shards) == 2", true),
        ("[body].all(b, b.shards.exists(s, s.n == 3 && status == 200))", true),
        ("body.shards.exists_one(s, s.n == 0)", true),
        ("body.ratio <= 0.5", true),
        ("body.ratio < 1", true),
        ("body.leader == null", true),
        ("has(body.leader) && !has(body.none)", true),
        ("!has(body.state) || body.state.startsWith('drain')", true),
        ("body['is-big']", true),
        ("text.contains('drained')", true),
        ("text.matches('\"n\": ?3')", true),
        ("headers['content-type'] == 'application/json'", true),
        ("headers['x-a'] == '1, 2'", true),
        ("'x-b' in headers", false),
        ("body.state.upperAscii() == 'DRAINED'", true),
        ("body.state in ['drained', 'gone']", true),
        ("status == 200 ? body.ratio > 0.4 : false", true),
        ("[1, 2].exists(i, i + 4 == 6)", true),
    ];
    for (text, holds) in table {
        assert_eq!(answered(text, 200, body), Ok(holds), "{text}");
    }
}

#[test]
fn missing_response_fields_are_evaluation_errors() {
    for (text, body) in [
        ("body.state == 'drained'", "<html>"),
        ("body.state == 'drained'", "{}"),
        ("body.busy == false", "<html>"),
        ("!body.busy", "[1]"),
        ("!has(body.busy)", "<html>"),
        ("body.all(b, b.ready)", "[{\"ready\": true}, 3]"),
        ("body", "[1]"),
        ("body.a.b", r#"{"a":{"b":"yes"}}"#),
        ("headers['none'] == ''", ""),
        ("1 / (status - 200) > 0", ""),
        ("size(body) > 0", "3"),
    ] {
        let Err(why) = answered(text, 200, body) else { panic!("{text}") };
        assert!(!why.is_empty() && why.len() < 300 && !why.contains('\n'), "{text}: {why}");
    }
}

#[test]
fn query_expressions_are_evaluated() {
    let two = [("db-0-0", 0.01), ("db-1-0", 2.0)];
    #[allow(clippy::type_complexity, reason = "a table")]
    let table: [(&str, &[(&str, f64)], bool); 8] = [
        ("scalar < 0.05", &[("a", 0.01)], true),
        ("scalar > 1", &[("a", 2.0)], true),
        ("scalar == 2", &[("a", 2.0)], true),
        ("scalar != 2 || 3 == scalar || scalar == '2'", &[("a", 2.0)], false),
        ("scalar == null", &two, true),
        ("result.all(r, r.value < 3.0)", &two, true),
        ("result.exists(r, r.labels.pod == 'db-1-0' && r.value >= 2)", &two, true),
        ("size(result) == 2", &two, true),
    ];
    for (text, samples, holds) in table {
        assert_eq!(asked(text, samples), Ok(holds), "{text}");
    }
}

#[test]
fn nan_comparison_is_an_evaluation_error() {
    let asked = |text| asked(text, &[("a", f64::NAN)]);
    // Comparisons with NaN have no result in either direction.
    for text in ["scalar < 0.05", "scalar >= 0.05", "!(scalar >= 0.05)", "result.all(r, r.value < 0.05)"] {
        assert!(asked(text).is_err(), "{text}");
    }
    assert_eq!((asked("scalar == 0.05"), asked("scalar != 0.05")), (Ok(false), Ok(true)));
}

#[test]
fn compile_errors_include_message_and_position() {
    let table = [
        ("status ==", "Syntax error", "line 1, column 10"),
        ("status == 200 &&\n  )", "Syntax error", "line 2, column 3"),
        ("status = 200", "Syntax error", "line 1, column 8"),
        ("statuss == 200", "undeclared reference to 'statuss'", "line 1, column 1"),
        ("status == 200 && bod.x", "undeclared reference to 'bod'", "line 1, column 18"),
        ("text.replace('a', text) == ''", "undeclared reference to 'replace'", "column 6"),
        ("result.all(r, r.value > 0)", "undeclared reference to 'result'", "column 1"),
        ("[1].all(x, y == 1)", "undeclared reference to 'y'", "column 12"),
        ("[1].all(x, x == 1) && x == 1", "undeclared reference to 'x'", "line 1"),
        ("[1].all(status.x, true)", "simple name", "line 1"),
        ("[1].all(status, true)", "'status' is already a variable", "line 1, column 9"),
        ("status", "not a boolean", ""),
        ("'yes'", "not a boolean", ""),
        ("status + 1", "not a boolean", ""),
        ("size(body.a.map(x, x)) == 1", "map and filter are not supported", ""),
        ("[1].all(x, [2].all(y, x == y))", "the loop over y is inside another loop", ""),
        ("body.all(x, x == text)", "'text' cannot be used in a loop", "line 1, column 18"),
        ("body.all(x, x.a.all(y, x.b == y))", "undeclared reference to 'x'", ""),
        ("body.all(x, x.matches('a'))", "'matches' cannot be used in a loop", "line 1, column 15"),
        ("true ? 1 : 2", "not a boolean", ""),
        ("Foo{a: 1} == 1", "undeclared reference to 'Foo'", ""),
        ("", "empty", ""),
        (" ", "empty", ""),
        ("\"", "", "line 1"),
        ("status == 200 // done?\n&&", "", "line"),
    ];
    for (text, what, place) in table {
        let why = Expression::compile(text, Over::Answer).map(drop).unwrap_err();
        assert!(why.contains(what) && why.contains(place), "{text}: {why}");
        assert!(!why.contains('\n'), "{why}");
    }
    let why = asked("status == 200", &[]).unwrap_err();
    assert!(why.contains("undeclared reference to 'status'") && why.contains("result, scalar"), "{why}");
}

#[test]
fn malformed_expressions_do_not_crash_the_process() {
    let texts = [
        "(".repeat(2_000),
        "[".repeat(2_000),
        "!".repeat(2_000),
        "-".repeat(2_000),
        format!("body{}", ".a".repeat(1_000)),
        format!("body{}", "[0]".repeat(680)),
        format!("{}1 > 0", "1+".repeat(1_000)),
        format!("{}true", "true&&".repeat(340)),
        format!("{}true", "status==1?false:".repeat(120)),
        format!("text{} == ''", ".trim()".repeat(280)),
        "\u{0}\u{1}\u{ffff}".to_owned(),
        "'\\".to_owned(),
        "x".repeat(3_000),
        "99999999999999999999999 > 1".to_owned(),
        "size() == 1".to_owned(),
        "text.matches() || text.contains()".to_owned(),
        "text.matches('(a{1000}){1000}')".to_owned(),
        "{1: 2}[3] == 4".to_owned(),
        "text.substring(-1) == ''".to_owned(),
    ];
    for text in texts {
        // Any result will do, as long as it returns.
        let _ = answered(&text, 200, "{}");
    }
}

#[test]
fn evaluation_is_bounded_in_time_and_memory() {
    let list: Vec<u8> = vec![1; 30_000];
    let body = json!(list).to_string();
    assert!(body.len() < 64 * 1024);
    // A list as long as an answer can hold is within the budget.
    assert_eq!(answered("body.all(a, a == 1 || a > 3)", 200, &body), Ok(true));
    let long = format!("body.all(a, {}true)", "a == 2 || ".repeat(190));
    let doubled = format!("{}text{} == ''", "(".repeat(60), " + text)".repeat(60));
    for text in [
        "body.all(a, body.all(b, a == b))",
        "body.exists(a, body.exists(b, body.exists(c, c == 2)))",
        "size(body.map(a, text + text)) == 0",
        "body.all(a, body == body)",
        "body.all(a, 2 in body || true)",
        "body.all(a, text.matches('[0-9]{9}x$') || true)",
        "body.all(a, [body, body].all(b, true))",
        "size(body.filter(a, true)) == 0",
        "body.all(a, {'k': body}['k'] == body)",
        "[body].all(a, a.all(b, a == b || true))",
        "[body].all(body, body.all(b, b == body || true))",
        "[text].all(a, [a + a].all(b, [b + b].all(c, c == '')))",
        &long,
        &doubled,
    ] {
        let began = on_the_wall();
        let said = answered(text, 200, &body);
        let took = began.elapsed();
        assert!(said.is_err() || text == doubled, "{text}: {said:?}");
        assert!(took < Duration::from_secs(10), "{text}: {took:?}");
    }
}
