//! `windlass version`: the versions of this program and of the cluster's operators, which record theirs in their Lease.
//! A Lease that is no longer renewed belongs to an operator that was killed.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use clap::Args;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};

use super::connection::Connection;
use super::output::Output;
use windlass_kube_port::lease::ANNOTATION_VERSION;

/// The arguments of `windlass version`.
#[derive(Args, Debug)]
pub struct VersionArgs {
    /// Print only the version of this program, without a request to a cluster
    #[arg(long)]
    client: bool,
    /// The namespace of the operator
    #[arg(long, value_name = "NS", default_value = "windlass-system", conflicts_with = "client")]
    operator_namespace: String,
    /// Print data
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    #[command(flatten)]
    connection: Connection,
}

/// An operator, as described by its Lease.
#[derive(Clone, Debug, Eq, PartialEq)]
struct OperatorVersion {
    lease: String,
    holder: String,
    version: Option<String>,
    renewed_at: Option<DateTime<Utc>>,
    /// True if the Lease is renewed: the operator runs.
    running: bool,
}

/// How long a Lease may go without being renewed, at least: clocks differ, and an API server may be unavailable for a moment.
const LEAST_SILENCE: TimeDelta = TimeDelta::seconds(60);

/// True if the Lease is being renewed.
fn is_renewed(renewed_at: Option<DateTime<Utc>>, lease_seconds: Option<i64>, now: DateTime<Utc>) -> bool {
    let lease = TimeDelta::seconds(lease_seconds.unwrap_or_default().clamp(0, i64::from(i32::MAX)));
    renewed_at.is_some_and(|at| now - at <= (lease * 2).max(LEAST_SILENCE))
}

impl OperatorVersion {
    /// The operator that holds a Lease; `None` if nobody does, or the Lease is not one of Windlass.
    fn of(lease: &Value, now: DateTime<Utc>) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, spec) = (text(&lease["metadata"]["name"]), &lease["spec"]);
        let is_ours = name == "windlass" || name.starts_with("windlass-");
        let holder = text(&spec["holderIdentity"]);
        if !is_ours || holder.is_empty() {
            return None;
        }
        let renewed_at = spec["renewTime"].as_str().and_then(|text| text.parse().ok());
        Some(Self {
            lease: name,
            holder,
            version: lease["metadata"]["annotations"][ANNOTATION_VERSION].as_str().map(str::to_owned),
            renewed_at,
            running: is_renewed(renewed_at, spec["leaseDurationSeconds"].as_i64(), now),
        })
    }

    fn line(&self) -> String {
        let version = self.version.as_deref().unwrap_or("unknown, older than 0.1.0");
        let silent = match self.renewed_at.filter(|_| !self.running) {
            Some(at) => format!(", not renewed since {}: not running", written(at)),
            None if !self.running => ", never renewed: not running".to_owned(),
            None => String::new(),
        };
        format!("Operator Version: {version} (Lease {}, held by {}{silent})\n", self.lease, self.holder)
    }

    fn document(&self) -> Value {
        json!({
            "lease": self.lease, "holder": self.holder, "version": self.version,
            "renewedAt": self.renewed_at.map(written), "running": self.running,
        })
    }
}

fn written(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// An error unless an operator runs.
fn one_runs(operators: &[OperatorVersion], namespace: &str) -> Result<(), String> {
    let more = "select another with --operator-namespace; an operator with --no-leader-elect has no Lease";
    if operators.is_empty() {
        return Err(format!("no operator holds a Lease in namespace {namespace}: {more}"));
    }
    if operators.iter().any(|operator| operator.running) {
        return Ok(());
    }
    Err(format!("no operator is running: no Lease in namespace {namespace} is being renewed; {more}"))
}

/// Prints the versions.
pub async fn version(arguments: VersionArgs) -> Result<(), String> {
    let own = env!("CARGO_PKG_VERSION");
    let listed = if arguments.client { Ok(Vec::new()) } else { operators(&arguments).await };
    let operators = listed.as_deref().unwrap_or_default();
    let text = if let Some(output) = arguments.output {
        let mut document = json!({"clientVersion": own});
        if !arguments.client {
            document["operators"] = operators.iter().map(OperatorVersion::document).collect::<Value>();
        }
        output.document(&document)?
    } else {
        format!("Client Version: {own}\n{}", operators.iter().map(OperatorVersion::line).collect::<String>())
    };
    super::print(&text)?;
    let operators = listed?;
    if arguments.client { Ok(()) } else { one_runs(&operators, &arguments.operator_namespace) }
}

/// The operators that hold a Lease.
async fn operators(arguments: &VersionArgs) -> Result<Vec<OperatorVersion>, String> {
    let (client, _) = arguments.connection.client(super::AGENT).await?;
    let kind = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    let namespace = &arguments.operator_namespace;
    let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind));
    let leases = api.list(&ListParams::default()).await.map_err(|error| match error {
        kube::Error::Api(status) => format!("cannot read the operator's Lease: {}", status.message),
        error => format!("cannot reach the API server: {error}"),
    })?;
    let now = super::now();
    Ok(leases.items.iter().filter_map(|lease| OperatorVersion::of(&json!(lease), now)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T04:10:00Z";

    fn operator(spec: &Value) -> Option<OperatorVersion> {
        let annotations = json!({ANNOTATION_VERSION: "0.1.0"});
        let lease = json!({"metadata": {"name": "windlass", "annotations": annotations}, "spec": spec});
        OperatorVersion::of(&lease, NOW.parse().unwrap())
    }

    #[test]
    fn lease_without_renewal_means_operator_not_running() {
        let ended = "not running";
        for (renewed, seconds, said) in [
            (json!("2026-01-01T04:09:58.123456Z"), json!(45), ""),
            (json!("2026-01-01T04:08:30Z"), json!(45), ""),
            (json!("2026-01-01T04:08:29Z"), json!(45), ended),
            (json!("2026-01-01T04:09:00Z"), json!(15), ""),
            (json!("2026-01-01T04:08:59Z"), json!(15), ended),
            (json!("2026-01-01T04:09:00Z"), Value::Null, ""),
            (json!("2026-01-01T04:08:59Z"), json!(-600), ended),
            // The clock of the operator's machine is ahead.
            (json!("2026-01-01T04:12:00Z"), json!(15), ""),
            (Value::Null, json!(45), "never renewed"),
            (json!("yesterday"), json!(45), "never renewed"),
        ] {
            let spec =
                json!({"holderIdentity": "w-1", "renewTime": renewed, "leaseDurationSeconds": seconds});
            let operator = operator(&spec).unwrap();
            assert_eq!(operator.running, said.is_empty(), "{spec}");
            let line = operator.line();
            assert!(line.starts_with("Operator Version: 0.1.0 (Lease windlass, held by w-1"), "{line}");
            assert!(line.contains(said) && line.contains(ended) != said.is_empty(), "{line}");
            assert_eq!(one_runs(&[operator], "ops").is_ok(), said.is_empty(), "{spec}");
        }
        assert_eq!(operator(&json!({"holderIdentity": "", "renewTime": NOW})), None, "it was released");
    }

    #[test]
    fn one_running_operator_suffices_and_none_is_an_error() {
        let spec = |at: &str| json!({"holderIdentity": "w-1", "renewTime": at, "leaseDurationSeconds": 45});
        let (runs, ended) = (operator(&spec(NOW)).unwrap(), operator(&spec("2026-01-01T03:00:00Z")).unwrap());
        assert_eq!(one_runs(&[ended.clone(), runs.clone()], "ops"), Ok(()));
        assert_eq!(
            [runs.document(), ended.document()]
                .map(|told| (told["renewedAt"].clone(), told["running"].clone())),
            [(json!(NOW), json!(true)), (json!("2026-01-01T03:00:00Z"), json!(false))]
        );
        assert!(ended.line().contains(", not renewed since 2026-01-01T03:00:00Z: not running)"));
        for (operators, said) in [
            (vec![], "no operator holds a Lease in namespace ops: "),
            (vec![ended], "no operator is running: no Lease in namespace ops is being renewed; "),
        ] {
            let sentence = one_runs(&operators, "ops").unwrap_err();
            assert!(sentence.starts_with(said) && sentence.contains("--operator-namespace"), "{sentence}");
        }
    }
}
