//! `windlass operator`: the controllers, their health and their metrics.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, ValueEnum};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tracing::info;

use super::connection::Connection;
use super::dashboard::PageArgs;
use super::scrapers::Scrapers;
use crate::extension::OperatorFlags;
use windlass::internal::HookRules;
use windlass::operator::{Controller, DEFAULT_CONCURRENCY, Health, Operator};
use windlass::operator::{FileAccess, Host, Limit, Origin, PrometheusUrl};
use windlass_core::revision::hash::hex;
use windlass_kube_port::lease::Election;

/// The taints of machines that the cluster autoscaler and Karpenter are about to remove.
const DRAIN_TAINTS: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"];

/// The arguments of `windlass operator`.
#[derive(Debug, Args)]
pub struct OperatorArgs {
    /// Work in this namespace only; repeatable [default: all namespaces]
    #[arg(long = "namespace", short = 'n', value_name = "NS", value_parser = namespace)]
    namespaces: Vec<String>,
    /// The number of objects of a kind that are reconciled at the same time
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CONCURRENCY, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Elect a leader among replicas, by a Lease in the namespace of the account [default]
    #[arg(long, conflicts_with = "no_leader_elect")]
    leader_elect: bool,
    /// Run without leader election; only if there is no other replica
    #[arg(long)]
    no_leader_elect: bool,
    /// Allow hooks to send requests to this host, in addition to the fleet's nodes: a name or an address, without a port;
    /// repeatable
    #[arg(long = "hook-host", value_name = "HOST", value_parser = Host::parse)]
    hook_hosts: Vec<Host>,
    /// The Prometheus that hooks query, such as `http://prometheus.monitoring.svc:9090`
    #[arg(long, value_name = "URL", value_parser = Quiet(prometheus))]
    prometheus_url: Option<PrometheusUrl>,
    /// A file with the certificate authorities, in PEM, that replace the system's for `--prometheus-url`
    #[arg(long, value_name = "FILE", requires = "prometheus_url")]
    prometheus_ca_file: Option<PathBuf>,
    /// A file with a bearer token for `--prometheus-url`
    #[arg(long, value_name = "FILE", requires = "prometheus_url")]
    prometheus_token_file: Option<PathBuf>,
    /// A header of requests to `--prometheus-url`, such as `X-Scope-OrgID=shop`; repeatable
    #[arg(long = "prometheus-header", value_name = "NAME=VALUE", requires = "prometheus_url")]
    prometheus_headers: Vec<String>,
    /// Reconcile StatefulSetRollouts: needs their definition and the rights of `deploy/rbac/stateful-sets-*.yaml`
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    stateful_sets: bool,
    /// Remove `metadata.managedFields` of `StatefulNodes` and their `StatefulSets`. This saves work on the API server in
    /// fleets of a thousand nodes, but loses the record of who wrote which field
    #[arg(long)]
    drop_managed_fields: bool,
    /// Move pods off machines that are cordoned or tainted by an autoscaler, as the wave allows: needs the rights of
    /// `deploy/rbac/drain.yaml`
    #[arg(long)]
    drain: bool,
    /// A taint that marks a machine as being drained, in place of the default ones; repeatable
    #[arg(long = "drain-taint", value_name = "KEY", requires = "drain", default_values = DRAIN_TAINTS, value_parser = taint)]
    drain_taints: Vec<String>,
    /// Take the failure domains of pods without a label for `topology.key` from the labels of their machines: needs the
    /// rights of `deploy/rbac/drain.yaml`
    #[arg(long)]
    topology_from_nodes: bool,
    /// How many fleets may roll at the same time, for all causes or for one: `3`, or `OperatorDrift=1`, which is the default;
    /// repeatable
    #[arg(long = "max-rollouts", value_name = "[CAUSE=]N")]
    max_rollouts: Vec<Limit>,
    #[command(flatten)]
    extensions: OperatorFlags,
    /// The OpenTelemetry collector for traces of rollouts (OTLP over HTTP), such as `http://collector.monitoring:4318`
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", value_parser = Quiet(collector))]
    otlp_endpoint: Option<String>,
    /// A file with the certificate authorities, in PEM, that replace the system's for `--otlp-endpoint`
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "FILE", requires = "otlp_endpoint")]
    otlp_ca_file: Option<PathBuf>,
    /// A file with a bearer token for `--otlp-endpoint`
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "FILE", requires = "otlp_endpoint")]
    otlp_token_file: Option<PathBuf>,
    /// A header of requests to `--otlp-endpoint`; repeatable
    #[cfg(feature = "otlp")]
    #[arg(long = "otlp-header", value_name = "NAME=VALUE", requires = "otlp_endpoint")]
    otlp_headers: Vec<String>,
    /// The address of /metrics, /healthz and /readyz; 0.0.0.0 listens on every address, also IPv6
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    bind: SocketAddr,
    /// Who may read /metrics: everyone who can reach the port, or only accounts whose bearer token may get the path /metrics
    /// (checked by a token review and a subject access review)
    #[arg(long, value_enum, default_value_t = MetricsAuth::None)]
    metrics_auth: MetricsAuth,
    #[command(flatten)]
    page: PageArgs,
    /// The format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// Rejects an invalid name: watching it would succeed and never find a fleet.
fn namespace(text: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty()
        || text.len() > 63
        || !text.chars().all(inner)
        || text.starts_with('-')
        || text.ends_with('-')
    {
        return Err("the name of a namespace has 1 to 63 lowercase letters, digits and dashes, with no dash at either end; \
                    omit the flag for all namespaces"
            .to_owned());
    }
    Ok(text.to_owned())
}

/// Rejects a taint with its value or effect: no machine has a taint with such a key.
fn taint(text: &str) -> Result<String, String> {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if text.is_empty() || !text.chars().all(is_of_key) {
        return Err(
            "give the key of the taint only, without its value and its effect, such as example.com/leaving"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// A parser whose errors do not repeat the value, as those of clap do: it may have a password.
#[derive(Clone)]
struct Quiet<T>(fn(&str) -> Result<T, String>);

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Quiet<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, of: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        self.0(&value.to_string_lossy()).map_err(|why| {
            let flag = of.map(ToString::to_string).unwrap_or_default();
            let sentence = format!("invalid value for '{flag}': {why}\n");
            clap::Error::raw(ErrorKind::ValueValidation, sentence).with_cmd(command)
        })
    }
}

/// Rejects a user before the URL is read: that error has the URL.
fn prometheus(text: &str) -> Result<PrometheusUrl, String> {
    if text.contains('@') {
        return Err(
            "the URL has a user or password: remove it, and use --prometheus-token-file or --prometheus-header"
                .to_owned(),
        );
    }
    PrometheusUrl::parse(text)
}

#[cfg(feature = "otlp")]
fn collector(text: &str) -> Result<String, String> {
    let is_http = url::Url::parse(text).is_ok_and(|url| {
        // The log shows the URL.
        let has_user = !url.username().is_empty() || url.password().is_some();
        matches!(url.scheme(), "http" | "https") && url.has_host() && !has_user
    });
    let wrong = || {
        "write the address of an OTLP/HTTP collector, such as http://collector.monitoring:4318, without a user".to_owned()
    };
    if is_http { Ok(text.to_owned()) } else { Err(wrong()) }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum MetricsAuth {
    None,
    TokenReview,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Runs the controllers until SIGTERM or SIGINT.
pub async fn run(arguments: OperatorArgs) -> Result<(), String> {
    log(arguments.log_format);
    let (client, namespace) = Connection::default().client(super::AGENT).await?;
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "windlass".to_owned());
    let definitions = client.clone();
    let scrapers =
        (arguments.metrics_auth == MetricsAuth::TokenReview).then(|| Scrapers::new(client.clone()));
    let mut operator = Operator::new(client)
        .namespaces(arguments.namespaces.clone())
        .concurrency(arguments.concurrency)
        .instance(host.clone());
    operator = arguments.hook_hosts.iter().cloned().fold(operator, Operator::hook_host);
    let mut prometheus_access = FileAccess::default();
    if let Some(url) = &arguments.prometheus_url {
        let (ca, token) = (arguments.prometheus_ca_file.clone(), arguments.prometheus_token_file.clone());
        let headers = &arguments.prometheus_headers;
        prometheus_access = FileAccess::new(Origin::Prometheus, url.as_str(), ca, token, headers)?;
        operator = operator.prometheus(url.clone()).prometheus_access(prometheus_access.clone());
    }
    if arguments.leader_elect || !arguments.no_leader_elect {
        operator = operator.elect(Election::of_process(namespace, lease_name(&arguments.namespaces), &host));
    }
    let hook_rules = HookRules {
        hosts: arguments.hook_hosts.iter().cloned().collect(),
        prometheus: arguments.prometheus_url.clone(),
        prometheus_access,
    };
    operator =
        operator.stateful_sets(arguments.stateful_sets).drop_managed_fields(arguments.drop_managed_fields);
    if arguments.drain {
        operator = operator.drain(arguments.drain_taints.clone());
    }
    operator = operator.topology_from_nodes(arguments.topology_from_nodes);
    operator = arguments.max_rollouts.iter().copied().fold(operator, Operator::max_rollouts);
    let controllers = arguments.extensions.controllers(&arguments.namespaces, &host, hook_rules);
    operator = controllers.iter().cloned().fold(operator, Operator::with_controller);
    #[cfg(feature = "otlp")]
    let traces = match &arguments.otlp_endpoint {
        Some(url) => {
            let (ca, token) = (arguments.otlp_ca_file.clone(), arguments.otlp_token_file.clone());
            let access = FileAccess::new(Origin::Collector, url, ca, token, &arguments.otlp_headers)?;
            Some(Arc::new(windlass::internal::Otlp::new(url, &host, access)?))
        }
        None => None,
    };
    #[cfg(feature = "otlp")]
    if let Some(traces) = &traces {
        operator = operator.traces(traces.clone());
    }
    let listener = windlass::internal::listen(arguments.bind)
        .and_then(TcpListener::from_std)
        .map_err(|e| format!("--bind {}: {e}; choose another address or port", arguments.bind))?;
    let page = arguments.page.start(&arguments.namespaces)?;
    let page = async move {
        match page {
            Some(ended) => ended.await.unwrap_or_else(|_| "the thread of the page ended".to_owned()),
            None => std::future::pending().await,
        }
    };
    let health = operator.health();
    let definitions = super::definitions::watch(definitions, health.clone(), arguments.stateful_sets);
    let router = pages(health, scrapers, controllers);
    let serve = axum::serve(listener, router).into_future();
    // Before the log line: a reader of that line may send a signal at once.
    let stopped = super::stopped()?;
    info!(version = env!("CARGO_PKG_VERSION"), bind = %arguments.bind, "windlass operator starts");
    let stop = async move {
        stopped.await;
        info!("stopping the windlass operator after the current reconciles");
    };
    let ended = tokio::select! {
        result = operator.run(stop) => result.map_err(|e| e.to_string()),
        () = definitions => Ok(()),
        sentence = page => Err(sentence),
        result = serve => Err(format!("the server of /metrics and /healthz ended: {result:?}")),
    };
    #[cfg(feature = "otlp")]
    if let Some(traces) = traces {
        let _ = tokio::task::spawn_blocking(move || traces.shutdown()).await;
    }
    ended
}

/// Replicas that watch the same namespaces compete for the same Lease.
fn lease_name(namespaces: &[String]) -> String {
    if namespaces.is_empty() {
        return "windlass".to_owned();
    }
    let mut sorted = namespaces.to_vec();
    sorted.sort();
    sorted.dedup();
    let digest = Sha256::digest(sorted.join(","));
    format!("windlass-{}", hex(&digest[..5]))
}

fn pages(health: Health, scrapers: Option<Scrapers>, controllers: Vec<Arc<dyn Controller>>) -> Router {
    let readyz = |State(health): State<Health>| async move { answer(health.not_ready()) };
    let healthz = |State(health): State<Health>| async move { answer(health.ill()) };
    let scrapers = Arc::new(scrapers);
    let metrics = move |State(health): State<Health>, headers: HeaderMap| async move {
        if let Some(scrapers) = scrapers.as_ref() {
            scrapers.admit(&headers).await?;
        }
        // The end marker occurs once, at the end.
        let more = controllers.iter().map(|controller| controller.metrics()).filter(|more| !more.is_empty());
        let text = more.fold(health.text(), |text, more| text.trim_end_matches("# EOF\n").to_owned() + &more);
        Ok::<_, (StatusCode, String)>(([(CONTENT_TYPE, windlass::internal::CONTENT_TYPE)], text))
    };
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health)
}

/// 200, or 503 with the reason.
fn answer(wrong: Option<String>) -> (StatusCode, String) {
    match wrong {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(sentence) => (StatusCode::SERVICE_UNAVAILABLE, format!("{sentence}\n")),
    }
}

fn log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,kube_client=warn,kube_runtime=warn"));
    let colours = super::is_coloured(&std::io::stderr());
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // A subscriber that is already set is kept.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;

    #[test]
    fn invalid_namespace_name_is_a_usage_error() {
        for name in ["shop", "shop-1", "1", &"a".repeat(63)] {
            assert_eq!(namespace(name).as_deref(), Ok(name));
        }
        for name in ["", " ", "Shop", "shop,lab", "-shop", "shop-", "kube.system", &"a".repeat(64)] {
            assert!(namespace(name).is_err(), "{name}");
        }
    }

    #[test]
    fn taint_with_value_or_effect_is_a_usage_error() {
        for key in ["leaving", "example.com/leaving", "ToBeDeletedByClusterAutoscaler"] {
            assert_eq!(taint(key).as_deref(), Ok(key));
        }
        for with_more in ["", "a=b", "leaving:NoSchedule", "a=b:NoExecute", "a b", "a,b"] {
            assert!(taint(with_more).is_err(), "{with_more}");
        }
    }

    #[test]
    fn error_about_a_url_does_not_show_its_password() {
        let asked = |flag: &str, url: &str| {
            let command = OperatorArgs::augment_args(Command::new("operator"));
            command.try_get_matches_from(["operator", flag, url]).map(drop)
        };
        assert!(asked("--prometheus-url", "https://prometheus:9090").is_ok());
        let mut flags = vec![("--prometheus-url", "--prometheus-token-file")];
        if cfg!(feature = "otlp") {
            flags.push(("--otlp-endpoint", "without a user"));
        }
        for (flag, advice) in flags {
            for url in ["https://u:secret@host", "u:secret@host"] {
                let error = asked(flag, url).unwrap_err();
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::ValueValidation, "{text}");
                assert!(!text.contains("secret") && text.contains(flag) && text.contains(advice), "{text}");
            }
        }
    }

    #[tokio::test]
    async fn metrics_of_all_controllers_form_one_openmetrics_document() {
        struct More;
        impl Controller for More {
            fn run(&self, _: kube::Client, _: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
                std::future::pending().boxed()
            }

            fn metrics(&self) -> String {
                "# TYPE more gauge\nmore 1\n# EOF\n".to_owned()
            }
        }
        let request = axum::http::Request::get("/metrics").body(axum::body::Body::empty()).unwrap();
        let answer =
            tower::ServiceExt::oneshot(pages(Health::default(), None, vec![Arc::new(More)]), request)
                .await
                .unwrap();
        assert_eq!(answer.headers()[CONTENT_TYPE], windlass::internal::CONTENT_TYPE);
        let text = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(text.ends_with("more 1\n# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    }
}
