//! `windlass explain`: the causes of an object's state, from its conditions down to the kubelet's messages.

pub mod diff;
pub mod logs;

use chrono::{DateTime, Utc};
use clap::Args;
use kube::Client;
use ratatui::style::Stylize;
use serde_json::json;

use super::Failure;
use super::output::Output;
use super::target::{Kind, Located, ObjectSelector, Selected, Target};
use super::text::{Line, Terminal};
use crate::reader::{FleetSelection, InvolvedObject, OF_REPORTS, Sight, events};
use crate::report::chain::{Chain, Deletion, TimelineEntry, culprit, of_fleet, of_node};
use crate::report::{FleetReport, SeenPod, age, clock_time};
use windlass_core::api::names::LABEL_DEPLOYMENT;
use windlass_kube_port::observed::{Observed, ObservedFleet, ObservedNode, ObservedPod};
use windlass_kube_port::watch::Namespaces;

/// The arguments of `windlass explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    selected: Selected,
    /// Print data: links (depth, of, says, since), remedies (to, command), and unread (what could not be read)
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// The most events in a chain: the last ones.
const EVENTS: usize = 5;

/// Explains each named object.
pub async fn explain(arguments: ExplainArgs) -> Result<(), Failure> {
    if arguments.selected.selector == ObjectSelector::Nothing {
        return Err(Failure::Usage(format!("name what to explain: {}", Kind::forms("NAME"))));
    }
    let cluster = arguments.selected.flags.cluster().await?;
    let typed = arguments.selected.flags.connection.typed();
    let located = arguments.selected.selector.located(&cluster).await?;
    for (index, Located { target, namespace }) in located.iter().enumerate() {
        let (mut chain, unread) = match target.kind {
            Kind::Fleet => fleet(&cluster.client, namespace, target).await?,
            Kind::Node => node(&cluster.client, namespace, target).await?,
            Kind::Other(other) => other.explain(&cluster.client, namespace, target).await?,
        };
        for remedy in &mut chain.remedies {
            remedy.command = typed.text(&remedy.command);
        }
        for link in &mut chain.links {
            link.says = typed.text(&link.says);
        }
        let text = match arguments.output {
            Some(Output::Name) => format!("{target}\n"),
            Some(format) => {
                let Chain { links, remedies } = &chain;
                format.document(&json!({"links": links, "remedies": remedies, "unread": unread}))?
            }
            None => {
                let separator = if index == 0 { "" } else { "\n" };
                format!("{separator}{}", drawn(&chain, &unread, super::now(), Terminal::of_stdout()))
            }
        };
        super::print(&text)?;
    }
    Ok(())
}

async fn fleet(client: &Client, namespace: &str, target: &Target) -> Result<(Chain, Vec<String>), String> {
    let wanted = FleetSelection {
        scope: Namespaces::Namespace(namespace.to_owned()),
        names: vec![target.name.clone()],
    };
    let sight = Sight::read(client, &wanted, &OF_REPORTS).await?;
    let fleets = sight.fleets(&wanted);
    let fleet = fleets.first().ok_or_else(|| format!("{target} no longer exists"))?;
    let seen = sight.seen(fleet);
    let report = FleetReport::of(&seen, super::now());
    let mut unread = sight.unread.clone();
    let events = match culprit(&report) {
        Some(node) => {
            let name = format!("{node}-0");
            let involved = InvolvedObject::of_pod(node, &name, seen.pod(node).map(AsRef::as_ref));
            last_of(client, namespace, involved, &mut unread).await
        }
        None => Vec::new(),
    };
    // A report does not contain the finalizers that keep an object.
    let object = if fleet.meta.terminating { target.get(client, namespace).await.ok() } else { None };
    let deletion = object.as_ref().and_then(Deletion::read);
    Ok((of_fleet(&seen, &report, &events).of_deleted(deletion.as_ref()), unread))
}

async fn node(client: &Client, namespace: &str, target: &Target) -> Result<(Chain, Vec<String>), String> {
    let object = target.get(client, namespace).await?;
    let node = ObservedNode::read(&object);
    let name = format!("{}-0", target.name);
    let pods: kube::Api<kube::api::DynamicObject> =
        kube::Api::namespaced_with(client.clone(), namespace, &windlass_kube_port::Kind::Pod.resource());
    let mut unread = Vec::new();
    let mut is_read = true;
    let pod = match pods.get_opt(&name).await {
        Ok(pod) => pod.map(|pod| ObservedPod::read(&json!(pod))),
        Err(error) => {
            unread.push(format!(
                "left out, because pod {name} is not readable: {}",
                crate::reader::sentence(&error)
            ));
            is_read = false;
            None
        }
    };
    let involved = InvolvedObject::of_pod(&target.name, &name, pod.as_ref());
    let events = last_of(client, namespace, involved, &mut unread).await;
    let seen = match &pod {
        Some(pod) => SeenPod::Is(pod),
        None if is_read => SeenPod::IsNot,
        None => SeenPod::Unread,
    };
    let mut chain = of_node(&node, seen, &events).of_deleted(Deletion::read(&object).as_ref());
    if let Some(fleet) = node.meta.label(LABEL_DEPLOYMENT) {
        let target = Target { kind: Kind::Fleet, name: fleet.to_owned() };
        match target.get(client, namespace).await {
            Ok(found) => {
                chain.add_fleet(&ObservedFleet::read(&found), &node);
                chain.offer("explain its fleet", format!("windlass explain nd/{fleet} -n {namespace}"));
            }
            Err(sentence) => unread.push(sentence),
        }
    }
    Ok((chain, unread))
}

/// The last events about a pod.
pub async fn last_of(
    client: &Client,
    namespace: &str,
    pod: InvolvedObject<'_>,
    unread: &mut Vec<String>,
) -> Vec<TimelineEntry> {
    match events(client, namespace, Some(pod)).await {
        Ok(mut all) => all.split_off(all.len().saturating_sub(EVENTS)),
        Err(sentence) => {
            unread.push(sentence);
            Vec::new()
        }
    }
}

/// A chain as text: each link under the one that it explains, then the commands to run.
fn drawn(chain: &Chain, unread: &[String], now: DateTime<Utc>, terminal: Terminal) -> String {
    let mut lines = Vec::new();
    for link in &chain.links {
        let indent = "  ".repeat(link.depth);
        let arrow = if link.depth == 0 { "" } else { "└─ " };
        let mut line = Line::from(format!("{indent}{arrow}").dim());
        line.push_span(link.of.clone().bold());
        let (message, more) = link.parts();
        line.push_span(format!("  {message}"));
        if let Some(since) = link.since {
            line.push_span(format!("  ({}, {} ago)", clock_time(since, now), age(now - since)).dim());
        }
        line.push_span(more.to_owned());
        lines.extend(terminal.folded(&line, indent.len() + 3));
    }
    lines.extend(unread.iter().map(|sentence| Line::from(sentence.clone().dim())));
    if !chain.remedies.is_empty() {
        lines.push(Line::default());
        lines.push(Line::from("Suggested commands".bold()));
        let widest = chain.remedies.iter().map(|remedy| remedy.to.len()).max().unwrap_or_default();
        for remedy in &chain.remedies {
            let mut line = Line::from(format!("  {:<widest$}  ", remedy.to));
            line.push_span(remedy.command.clone().cyan());
            lines.push(line);
        }
    }
    // A truncated command could not be pasted.
    let terminal = Terminal { width: usize::MAX, ..terminal };
    lines.iter().map(|line| terminal.painted(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::empty_cluster::with_objects;
    use crate::report::chain::{Link, Remedy};

    #[tokio::test]
    async fn fleet_of_a_node_is_offered_only_if_it_exists() {
        let object = |kind: &str, name: &str| {
            json!({"apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": name,
                "namespace": "shop", "uid": name, "resourceVersion": "1", "generation": 1, "labels": {LABEL_DEPLOYMENT: "db"}},
                "spec": {"template": {"spec": {"image": "db:1"}}}})
        };
        let target = Target { kind: Kind::Node, name: "db-0".to_owned() };
        let of_fleet = |chain: &Chain| {
            chain.remedies.iter().any(|remedy| remedy.command == "windlass explain nd/db -n shop")
        };
        let (sn, nd) = (object("StatefulNode", "db-0"), object("NodeDeployment", "db"));
        let (there, unread) = node(&with_objects(vec![sn.clone(), nd], &[]), "shop", &target).await.unwrap();
        assert!(of_fleet(&there) && unread.is_empty(), "{there:?} {unread:?}");
        let (retained, unread) = node(&with_objects(vec![sn], &[]), "shop", &target).await.unwrap();
        assert!(!of_fleet(&retained) && unread.len() == 1, "{retained:?} {unread:?}");
    }

    #[test]
    fn chain_is_drawn_nested_and_ends_with_commands() {
        let link = |depth: usize, of: &str, message: &str, since: Option<&str>| Link {
            depth,
            of: of.into(),
            says: message.into(),
            since: since.map(|since| since.parse().unwrap()),
            dated: None,
        };
        let mut condition =
            link(0, "NodeDeployment db", "Stalled=True NoProgress: db-2 waits", Some("2026-01-01T04:15:01Z"));
        condition.dated = Some("Stalled=True NoProgress".len());
        let chain = Chain {
            links: vec![
                condition,
                link(1, "plan 495ff12537", "InPlace is Active", Some("2026-01-01T04:11:01Z")),
                link(2, "pod db-2-0", "container db: ImagePullBackOff: Back-off pulling image", None),
            ],
            remedies: vec![Remedy {
                to: "go back".into(),
                command: "windlass rollback nd/db -n prod".into(),
            }],
        };
        let terminal = Terminal { width: 60, colours: false, unicode: true };
        assert_eq!(
            drawn(&chain, &["left out".into()], "2026-01-01T04:15:11Z".parse().unwrap(), terminal),
            "\
NodeDeployment db  Stalled=True NoProgress  (04:15:01, 10s
   ago): db-2 waits
  └─ plan 495ff12537  InPlace is Active  (04:11:01, 4m10s
     ago)
    └─ pod db-2-0  container db: ImagePullBackOff: Back-off
       pulling image
left out

Suggested commands
  go back  windlass rollback nd/db -n prod
"
        );
    }
}
