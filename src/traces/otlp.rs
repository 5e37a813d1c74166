//! Exports spans to an OpenTelemetry collector with OTLP over HTTP, in batches, from a thread of its own.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor};

use super::{Span, Spans};

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
    /// An exporter to the collector at this address, such as `http://collector.monitoring.svc:4318`. The resource
    /// attributes are the operator's version and the name of the replica.
    pub fn new(endpoint: &str, replica: &str) -> Result<Self, String> {
        let address = endpoint.trim_end_matches('/');
        let address = if address.ends_with(PATH) { address.to_owned() } else { format!("{address}{PATH}") };
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(address)
            .with_timeout(TIMEOUT)
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
