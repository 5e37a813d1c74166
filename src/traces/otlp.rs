//! Exports spans to an OpenTelemetry collector with OTLP over HTTP, in batches, from a thread of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HttpClient as ExportClient, HttpError};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor};

use tokio::runtime::Handle;

use super::{Span, Spans};
use crate::outward::{Access, FileAccess, HttpClient, KeptConnections, Reply, Request};

/// The time-out of a request to the collector.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The path of traces below a collector's address.
const PATH: &str = "/v1/traces";

/// The exporter.
pub struct Otlp {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
}

impl Otlp {
    /// An exporter to the collector at this address, such as `http://collector.monitoring.svc:4318`, with these
    /// certificates and credentials. The resource attributes are the operator's version and the name of the replica. Has
    /// to be called within a runtime, which sends the requests.
    pub fn new(endpoint: &str, replica: &str, access: FileAccess) -> Result<Self, String> {
        let address = endpoint.trim_end_matches('/');
        let address = if address.ends_with(PATH) { address.to_owned() } else { format!("{address}{PATH}") };
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(address)
            .with_timeout(TIMEOUT)
            .with_http_client(Collector {
                http: HttpClient::new(KeptConnections::OnePerHost),
                access,
                runtime: Handle::current(),
                failure: Arc::default(),
            })
            .build()
            .map_err(|error| format!("spans cannot be sent to {endpoint}: {error}"))?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        let resource = Resource::builder()
            .with_service_name("windlass")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", replica.to_owned()));
        processor.set_resource(&resource.build());
        Ok(Self { processor, scope: InstrumentationScope::builder("windlass").build() })
    }

    /// Flushes the pending spans. Blocks until the collector answers, or the time-out.
    pub fn shutdown(&self) {
        if let Err(error) = self.processor.shutdown() {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

impl Spans for Otlp {
    fn ended(&self, span: Span) {
        let id = |id: super::SpanId| SpanId::from_bytes(id.0);
        let trace = TraceId::from_bytes(span.trace.0);
        let sampled = TraceFlags::SAMPLED;
        let attributes = span.attributes.into_iter().map(|(key, value)| KeyValue::new(key, value));
        self.processor.on_end(SpanData {
            span_context: SpanContext::new(trace, id(span.id), sampled, false, TraceState::default()),
            parent_span_id: span.parent.map_or(SpanId::INVALID, id),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: span.name.into(),
            start_time: SystemTime::from(span.began),
            end_time: SystemTime::from(span.ended.max(span.began)),
            attributes: attributes.collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: span.failure.map_or(Status::Ok, Status::error),
            instrumentation_scope: self.scope.clone(),
        });
    }
}

/// The client of the exporter, which runs on a thread without a runtime.
#[derive(Clone, Debug)]
struct Collector {
    http: HttpClient,
    access: FileAccess,
    runtime: Handle,
    /// Why the last batch was not accepted; empty if it was.
    failure: Arc<Mutex<String>>,
}

impl Collector {
    async fn send(self, request: http::Request<Bytes>) -> Result<Reply, String> {
        let (head, body) = request.into_parts();
        let url = url::Url::parse(&head.uri.to_string()).map_err(|why| format!("is not a URL: {why}"))?;
        let Access { trust, headers } = self.access.access().await?;
        let mut all = head.headers;
        all.extend(headers);
        let request = Request { method: head.method, url, headers: all, body, timeout: TIMEOUT, trust };
        self.http.send(request).await
    }

    /// Logs a failure once, until it changes: each batch fails in the same way.
    fn log(&self, url: &http::Uri, sent: &Result<Reply, String>) {
        let failure = match sent {
            Ok(reply) if reply.status < 300 => String::new(),
            Ok(reply) => format!("answered {}", reply.status),
            Err(said) => said.clone(),
        };
        let mut last = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == failure {
            return;
        }
        if failure.is_empty() {
            tracing::info!("the trace collector at {url} accepts spans again");
        } else {
            tracing::warn!("spans are lost: the trace collector at {url} {failure}");
        }
        *last = failure;
    }
}

#[async_trait]
impl ExportClient for Collector {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let url = request.uri().clone();
        let sent = self.runtime.spawn(self.clone().send(request)).await?;
        self.log(&url, &sent);
        let reply = sent?;
        let mut response = http::Response::builder().status(reply.status);
        for (name, value) in &reply.headers {
            response = response.header(name, value);
        }
        // The exporter logs the body of a refusal, which may quote credentials.
        let body = if reply.status < 300 { reply.body } else { Vec::new() };
        Ok(response.body(Bytes::from(body))?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use windlass_harness::tls::{Authority, TlsOptions, TlsServer};

    use super::super::{SpanId, TraceId};
    use super::*;
    use crate::outward::Origin;

    /// A file that is deleted on drop.
    struct File(PathBuf);

    impl File {
        fn new(name: &str, text: &str) -> Self {
            let path = std::env::temp_dir().join(format!("windlass-otlp-{name}-{}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            Self(path)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn span() -> Span {
        let now = chrono::DateTime::from_timestamp(1_900_000_000, 0).unwrap();
        Span {
            trace: TraceId::of("plan"),
            id: SpanId::of(&["plan"]),
            parent: None,
            name: "rollout InPlace".to_owned(),
            began: now,
            ended: now,
            attributes: Vec::new(),
            failure: None,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn spans_reach_a_collector_over_tls_with_the_token() {
        let authority = Authority::new();
        let identity = authority.server(&["127.0.0.1"]);
        let server = TlsServer::start(&identity, TlsOptions::default(), |_| (200, String::new())).await;
        let files = [File::new("ca", &authority.pem()), File::new("token", "sesame\n")];
        let [ca, token] = files.each_ref().map(|file| Some(file.0.clone()));
        let headers = ["X-Scope-OrgID=shop".to_owned()];
        let access = FileAccess::new(Origin::Collector, &server.url(), ca, token, &headers).unwrap();
        let otlp = Otlp::new(&server.url(), "replica", access).unwrap();
        otlp.ended(span());
        tokio::task::spawn_blocking(move || otlp.shutdown()).await.unwrap();
        let received = server.received();
        assert_eq!(received.len(), 1, "{received:?}");
        assert_eq!(received[0].request, "POST /v1/traces");
        assert_eq!(received[0].headers["authorization"], "Bearer sesame");
        assert_eq!(received[0].headers["x-scope-orgid"], "shop");
        assert!(String::from_utf8_lossy(&received[0].body).contains("rollout InPlace"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unverified_collector_gets_no_spans_and_is_named() {
        let server =
            TlsServer::start(&Authority::new().server(&["127.0.0.1"]), TlsOptions::default(), |_| {
                (200, String::new())
            })
            .await;
        let collector = Collector {
            http: HttpClient::new(KeptConnections::None),
            access: FileAccess::new(Origin::Collector, &server.url(), None, None, &[]).unwrap(),
            runtime: Handle::current(),
            failure: Arc::default(),
        };
        let request = || http::Request::post(server.url()).body(Bytes::new()).unwrap();
        let said = collector.send_bytes(request()).await.unwrap_err().to_string();
        let part = "has a certificate that does not verify: no authority that this system trusts has signed it; set --otlp-ca-file";
        assert!(said.contains(part), "{said}");
        assert_eq!(*collector.failure.lock().unwrap(), said);
        assert!(server.received().is_empty());
    }
}
