//! `windlass version`: of this program, and of the operators of a cluster, which say it on the Lease that they hold.

use clap::Args;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};

use super::connection::Connection;
use super::output::Output;
use crate::operator::lease::ANNOTATION_VERSION;

/// What `windlass version` is told.
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

/// An operator, as its Lease tells of it.
struct Known {
    lease: String,
    holder: String,
    version: Option<String>,
}

/// Prints the versions.
pub async fn version(arguments: VersionArgs) -> Result<(), String> {
    let own = env!("CARGO_PKG_VERSION");
    let operators = if arguments.client { Ok(Vec::new()) } else { operators(&arguments).await };
    let known = operators.as_deref().unwrap_or_default();
    let text = if let Some(output) = arguments.output {
        let of =
            |known: &Known| json!({"lease": known.lease, "holder": known.holder, "version": known.version});
        let mut document = json!({"clientVersion": own});
        if !arguments.client {
            document["operators"] = known.iter().map(of).collect::<Value>();
        }
        output.document(&document)?
    } else {
        let line = |known: &Known| {
            let version = known.version.as_deref().unwrap_or("unknown, older than 0.1.0");
            format!("Operator Version: {version} (Lease {}, held by {})\n", known.lease, known.holder)
        };
        format!("Client Version: {own}\n{}", known.iter().map(line).collect::<String>())
    };
    super::print(&text)?;
    operators.map(drop)
}

/// The operators that hold a Lease.
async fn operators(arguments: &VersionArgs) -> Result<Vec<Known>, String> {
    let (client, _) = arguments.connection.client(super::AGENT).await?;
    let kind = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    let namespace = &arguments.operator_namespace;
    let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind));
    let leases = api.list(&ListParams::default()).await.map_err(|error| match error {
        kube::Error::Api(status) => format!("the operator's Lease cannot be read: {}", status.message),
        error => format!("the API server cannot be reached: {error}"),
    })?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let known = leases.items.iter().map(|lease| json!(lease)).filter_map(|lease| {
        let name = text(&lease["metadata"]["name"]);
        let is_ours = name == "windlass" || name.starts_with("windlass-");
        let holder = text(&lease["spec"]["holderIdentity"]);
        let version = lease["metadata"]["annotations"][ANNOTATION_VERSION].as_str().map(str::to_owned);
        (is_ours && !holder.is_empty()).then_some(Known { lease: name, holder, version })
    });
    let known: Vec<Known> = known.collect();
    if known.is_empty() {
        return Err(format!(
            "no operator holds a Lease in namespace {namespace}: name another with --operator-namespace; one that runs with \
             --no-leader-elect has none"
        ));
    }
    Ok(known)
}
