//! `windlass version`: of this program, and of the cluster's operators, which write it on the Lease that they hold.

use clap::Args;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};

use super::connection::Connection;
use super::output::Output;
use crate::operator::lease::ANNOTATION_VERSION;

/// The arguments of `windlass version`.
#[derive(Args, Debug)]
pub struct VersionArgs {
    /// Only of this program; no cluster is asked
    #[arg(long)]
    client: bool,
    /// Where the operator runs
    #[arg(long, value_name = "NS", default_value = "windlass-system", conflicts_with = "client")]
    operator_namespace: String,
    /// Print it for a program
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    #[command(flatten)]
    connection: Connection,
}

/// An operator, as described by its Lease.
struct OperatorVersion {
    lease: String,
    holder: String,
    version: Option<String>,
}

/// Prints the versions.
pub async fn version(arguments: VersionArgs) -> Result<(), String> {
    let own = env!("CARGO_PKG_VERSION");
    let listed = if arguments.client { Ok(Vec::new()) } else { operators(&arguments).await };
    let operators = listed.as_deref().unwrap_or_default();
    let text = if let Some(output) = arguments.output {
        let of = |operator: &OperatorVersion| json!({"lease": operator.lease, "holder": operator.holder, "version": operator.version});
        let mut document = json!({"clientVersion": own});
        if !arguments.client {
            document["operators"] = operators.iter().map(of).collect::<Value>();
        }
        output.document(&document)?
    } else {
        let line = |operator: &OperatorVersion| {
            let version = operator.version.as_deref().unwrap_or("unknown, older than 0.1.0");
            format!("Operator Version: {version} (Lease {}, held by {})\n", operator.lease, operator.holder)
        };
        format!("Client Version: {own}\n{}", operators.iter().map(line).collect::<String>())
    };
    super::print(&text)?;
    listed.map(drop)
}

/// The operators that hold a Lease.
async fn operators(arguments: &VersionArgs) -> Result<Vec<OperatorVersion>, String> {
    let (client, _) = arguments.connection.client(super::AGENT).await?;
    let kind = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    let namespace = &arguments.operator_namespace;
    let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind));
    let leases = api.list(&ListParams::default()).await.map_err(|error| match error {
        kube::Error::Api(status) => format!("the operator's Lease cannot be read: {}", status.message),
        error => format!("the API server cannot be reached: {error}"),
    })?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let operators = leases.items.iter().map(|lease| json!(lease)).filter_map(|lease| {
        let name = text(&lease["metadata"]["name"]);
        let is_ours = name == "windlass" || name.starts_with("windlass-");
        let holder = text(&lease["spec"]["holderIdentity"]);
        let version = lease["metadata"]["annotations"][ANNOTATION_VERSION].as_str().map(str::to_owned);
        (is_ours && !holder.is_empty()).then_some(OperatorVersion { lease: name, holder, version })
    });
    let operators: Vec<OperatorVersion> = operators.collect();
    if operators.is_empty() {
        return Err(format!(
            "no operator holds a Lease in namespace {namespace}: name another with --operator-namespace; one that runs with \
             --no-leader-elect has none"
        ));
    }
    Ok(operators)
}
