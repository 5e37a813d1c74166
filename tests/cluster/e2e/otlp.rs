//! The operator's trace of a rollout for an OpenTelemetry collector, and its log in JSON.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::{StatusCode, header};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use windlass_harness::kit::{PATIENCE, World, fleet};

/// A collector that keeps the spans.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

impl Collector {
    async fn start() -> (Self, String) {
        let (collector, listener) =
            (Self::default(), tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap());
        let url = format!("http://{}", listener.local_addr().unwrap());
        let kept = collector.clone();
        let take = move |body: Bytes| async move {
            let sent = ExportTraceServiceRequest::decode(body).expect("spans");
            let scopes = sent.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            kept.0.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
            let answer = ExportTraceServiceResponse::default().encode_to_vec();
            (StatusCode::OK, [(header::CONTENT_TYPE, "application/x-protobuf")], answer)
        };
        let app = axum::Router::new().route("/v1/traces", axum::routing::post(take));
        tokio::spawn(axum::serve(listener, app).into_future());
        (collector, url)
    }

    /// The spans with this value of an attribute.
    fn of(&self, key: &str, value: &str) -> Vec<Span> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|span| attribute(span, key) == value).cloned().collect()
    }

    async fn until(&self, what: &str, found: impl Fn(&Self) -> Option<Span>) -> Span {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(span) = found(self) {
                return span;
            }
            assert!(
                tokio::time::Instant::now() < until,
                "{what} was not told: {:#?}",
                self.0.lock().unwrap()
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    let value = found.and_then(|attribute| attribute.value.clone()?.value);
    match value {
        Some(opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue(text)) => text,
        _ => String::new(),
    }
}

fn operator(world: &World, collector: &str, log: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["operator", "--no-leader-elect", "--bind", "127.0.0.1:0", "--log-format", "json"])
        .args(["--namespace", &world.ns, "--otlp-endpoint", collector])
        .env("KUBECONFIG", &world.kubeconfig)
        .env("OTEL_BSP_SCHEDULE_DELAY", "200")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(log).unwrap())
        .kill_on_drop(true)
        .spawn()
        .expect("the operator starts")
}

fn logged(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_is_one_trace_across_operator_restart() {
    let world = World::without_operator("traced").await;
    let (collector, url) = Collector::start().await;
    let logs = ["first", "second"].map(|name| world.cp.folder().join(format!("{}-{name}.log", &*world.ns)));
    let mut first = operator(&world, &url, &logs[0]);
    // The operator is to die while nodes wait: what it had not yet exported is lost with it.
    let mut wanted = fleet(3, "db:1");
    wanted["spec"]["minReadySeconds"] = json!(3);
    world.settled_fleet(wanted).await;
    world.set_image("db:2").await;
    let node = |collector: &Collector, node: &str| {
        let plans = collector.of("windlass.node", node).into_iter();
        plans.filter(|span| span.name == "plan NodeUpdate").find(|span| !span.parent_span_id.is_empty())
    };
    let before = collector.until("the plan of the first node", |collector| node(collector, "db-2")).await;
    first.start_kill().unwrap();
    first.wait().await.unwrap();
    let _second = operator(&world, &url, &logs[1]);
    let db = world.until_applied_again().await;
    let plan = db["status"]["plan"]["id"].as_str().unwrap();
    let of_rollout = |collector: &Collector| {
        let of_plan = collector.of("windlass.plan", plan).into_iter();
        of_plan.into_iter().find(|span| span.name == "rollout InPlace")
    };
    let rollout = collector.until("the rollout", of_rollout).await;
    let after = collector.until("the plan of the last node", |collector| node(collector, "db-0")).await;
    assert!(rollout.parent_span_id.is_empty() && !rollout.trace_id.is_empty());
    for span in [&before, &after] {
        assert_eq!(
            (&span.trace_id, &span.parent_span_id),
            (&rollout.trace_id, &rollout.span_id),
            "{span:#?}"
        );
        assert!(span.start_time_unix_nano >= rollout.start_time_unix_nano);
        assert!(span.end_time_unix_nano <= rollout.end_time_unix_nano);
        let of_plan = attribute(span, "windlass.plan");
        let tasks = collector.of("windlass.plan", &of_plan);
        let tasks: Vec<&Span> = tasks.iter().filter(|task| task.name.starts_with("task ")).collect();
        assert!(tasks.iter().any(|task| task.name == "task replace-pod"), "{tasks:#?}");
        assert!(
            tasks.iter().all(|task| task.parent_span_id == span.span_id && task.trace_id == span.trace_id)
        );
    }
    assert_eq!(attribute(&rollout, "windlass.outcome"), "Complete");
    assert_eq!(attribute(&rollout, "windlass.fleet"), "db");

    let began = |line: &Value| line["fields"]["message"] == "a plan began" && line["fields"]["plan"] == plan;
    assert_eq!(
        logged(&logs[0]).iter().filter(|line| began(line)).count(),
        1,
        "the rollout's plan began once"
    );
    let lines = logged(&logs[1]);
    assert!(!lines.iter().any(began), "{lines:#?}");
    let ended = |line: &&Value| line["fields"]["message"] == "a task ended";
    let tasks: Vec<&Value> = lines.iter().filter(ended).collect();
    let of = |object: String| tasks.iter().filter(|line| line["fields"]["object"] == object).count();
    assert_eq!(
        (of(format!("{}/db", &*world.ns)) > 0, of(format!("{}/db-0", &*world.ns))),
        (true, 5),
        "{lines:#?}"
    );
    for line in tasks {
        let (fields, span) = (&line["fields"], &line["span"]);
        let task = fields["task"].as_str().unwrap();
        assert!(task.starts_with(fields["plan"].as_str().unwrap()), "{line}");
        assert_eq!(
            span["object"], fields["object"],
            "what is logged of a reconcile names its object: {line}"
        );
    }
    let about = |line: &&Value| line["span"]["name"] == "reconciling" && line["span"]["plan"].is_string();
    assert!(lines.iter().filter(about).all(|line| line["span"]["task"].is_string()), "{lines:#?}");
    assert!(lines.iter().any(|line| about(&line)), "{lines:#?}");
}
