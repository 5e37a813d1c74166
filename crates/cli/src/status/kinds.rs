//! Reports of any kind: fleets, and `WorkerDeployments` if the feature is built in.

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};
use kube::Client;
use serde_json::{Value, json};

use super::super::connection::Cluster;
use super::super::target::{Kind, ObjectSelector, Target};
use super::super::text::{Line, Terminal};
use super::tree::{self, Shown};
#[cfg(feature = "temporal")]
use super::workers;
use crate::reader::{Sight, Wanted};
#[cfg(feature = "temporal")]
use crate::reader::{WorkersSight, WorkersView};
#[cfg(feature = "temporal")]
use crate::report::WorkersReport;
use crate::report::{FleetReport, Verdict, worst_first};
use windlass_kube_port::watch::Namespaces;

/// The report of one object.
pub enum Report {
    Fleet(Box<FleetReport>),
    /// A `WorkerDeployment`.
    #[cfg(feature = "temporal")]
    Workers(Box<WorkersReport>),
}

impl Report {
    /// Whether its spec is carried out.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Fleet(report) => report.verdict,
            #[cfg(feature = "temporal")]
            Self::Workers(report) => report.verdict,
        }
    }

    /// The object.
    pub fn target(&self) -> Target {
        match self {
            Self::Fleet(report) => Target { kind: Kind::Fleet, name: report.name.clone() },
            #[cfg(feature = "temporal")]
            Self::Workers(report) => Target { kind: Kind::Workers, name: report.name.clone() },
        }
    }

    /// Its name, with the namespace if several are shown.
    pub fn name(&self, namespaces: bool) -> String {
        match self {
            Self::Fleet(report) => tree::name(report, namespaces),
            #[cfg(feature = "temporal")]
            Self::Workers(report) => workers::name(report, namespaces),
        }
    }

    /// What it waits for, or what blocks it.
    pub fn waiting_for(&self) -> &str {
        match self {
            Self::Fleet(report) => &report.waiting_for,
            #[cfg(feature = "temporal")]
            Self::Workers(report) => &report.waiting_for,
        }
    }

    /// A summary in a few words.
    pub fn summary(&self) -> &str {
        match self {
            Self::Fleet(report) => &report.summary,
            #[cfg(feature = "temporal")]
            Self::Workers(report) => &report.summary,
        }
    }

    /// The report as data.
    pub fn document(&self) -> Value {
        match self {
            Self::Fleet(report) => json!(report),
            #[cfg(feature = "temporal")]
            Self::Workers(report) => json!(report),
        }
    }

    /// The report as a tree.
    pub fn tree(&self, now: DateTime<Utc>, terminal: Terminal, shown: Shown<'_>) -> Vec<Line> {
        match self {
            Self::Fleet(report) => tree::tree(report, now, terminal, shown),
            #[cfg(feature = "temporal")]
            Self::Workers(report) => workers::tree(report, now, terminal, shown),
        }
    }

    /// The one line of a healthy object, with a first column of this width.
    pub fn healthy(&self, namespaces: bool, width: usize) -> Line {
        match self {
            Self::Fleet(report) => tree::healthy(report, namespaces, width),
            #[cfg(feature = "temporal")]
            Self::Workers(report) => workers::healthy(report, namespaces, width),
        }
    }

    /// Its progress, in one line.
    pub fn line(&self) -> Line {
        match self {
            Self::Fleet(report) => tree::line(report),
            #[cfg(feature = "temporal")]
            Self::Workers(report) => workers::line(report),
        }
    }
}

/// The objects that the arguments select, by kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Selection {
    fleets: Option<Wanted>,
    #[cfg(feature = "temporal")]
    workers: Option<Wanted>,
    /// True if objects or a kind were named.
    #[cfg(feature = "temporal")]
    is_said: bool,
    scope: Namespaces,
}

impl Selection {
    /// All of every kind if nothing is named. An error is a usage error.
    pub fn of(selector: &ObjectSelector, cluster: &Cluster, verb: &str) -> Result<Self, String> {
        selector.require_no_node(verb)?;
        let scope = if cluster.all_namespaces {
            Namespaces::All
        } else {
            Namespaces::Namespace(cluster.namespace.clone())
        };
        let all = || Wanted { scope: scope.clone(), names: Vec::new() };
        let mut selection = Self {
            fleets: None,
            #[cfg(feature = "temporal")]
            workers: None,
            #[cfg(feature = "temporal")]
            is_said: *selector != ObjectSelector::Nothing,
            scope: scope.clone(),
        };
        let named = match selector {
            ObjectSelector::Nothing => {
                selection.fleets = Some(all());
                #[cfg(feature = "temporal")]
                {
                    selection.workers = Some(all());
                }
                return Ok(selection);
            }
            ObjectSelector::All(kind) => vec![(*kind, None)],
            ObjectSelector::These(_) if cluster.all_namespaces => {
                return Err("an object is in one namespace: --all-namespaces goes without names".to_owned());
            }
            ObjectSelector::These(targets) => targets.iter().map(|t| (t.kind, Some(&t.name))).collect(),
        };
        for (kind, name) in named {
            let wanted = match kind {
                #[cfg(feature = "temporal")]
                Kind::Workers => &mut selection.workers,
                Kind::Fleet => &mut selection.fleets,
                Kind::Node => continue,
            };
            wanted.get_or_insert_with(all).names.extend(name.cloned());
        }
        Ok(selection)
    }

    /// The singular of what is selected, with its article.
    pub fn singular(&self) -> &'static str {
        #[cfg(feature = "temporal")]
        match (&self.fleets, &self.workers) {
            (None, Some(_)) => return "a WorkerDeployment",
            (Some(_), Some(_)) => return "one",
            _ => {}
        }
        "a fleet"
    }

    /// The message if none exist.
    pub fn none_found(&self) -> String {
        #[cfg(feature = "temporal")]
        let kind = if self.fleets.is_some() { Kind::Fleet } else { Kind::Workers };
        #[cfg(not(feature = "temporal"))]
        let kind = Kind::Fleet;
        match &self.scope {
            Namespaces::All => kind.none_found(None),
            Namespaces::Namespace(namespace) => kind.none_found(Some(namespace)),
        }
    }
}

/// The objects of all selected kinds; kept up to date while watched.
pub struct ObservedObjects {
    fleets: Option<(Sight, Wanted)>,
    #[cfg(feature = "temporal")]
    workers: Option<(WorkersView, Wanted)>,
    #[cfg(feature = "temporal")]
    unwatched: Option<WorkersSight>,
    /// What was selected and could not be read, each in a sentence.
    pub missing: Vec<String>,
    unread: Vec<String>,
}

impl ObservedObjects {
    /// Reads the selected objects, and these kinds of the objects of fleets. An error means that nothing could be
    /// read.
    pub async fn read(
        client: &Client,
        selection: &Selection,
        kinds: &[windlass_kube_port::Kind],
    ) -> Result<Self, String> {
        let mut observed = Self {
            fleets: None,
            #[cfg(feature = "temporal")]
            workers: None,
            #[cfg(feature = "temporal")]
            unwatched: None,
            missing: Vec::new(),
            unread: Vec::new(),
        };
        let mut has_read = false;
        if let Some(wanted) = &selection.fleets {
            match Sight::read(client, wanted, kinds).await {
                Ok(mut sight) => {
                    has_read = true;
                    observed.missing.append(&mut sight.missing);
                    observed.fleets = Some((sight, wanted.clone()));
                }
                Err(sentence) => observed.missing.push(sentence),
            }
        }
        #[cfg(feature = "temporal")]
        if let Some(wanted) = &selection.workers {
            let read = if selection.is_said {
                WorkersSight::read(client, wanted).await.map(Some)
            } else {
                WorkersSight::read_if_installed(client, wanted).await
            };
            match read {
                Ok(Some(mut sight)) => {
                    has_read = true;
                    observed.missing.append(&mut sight.missing);
                    observed.workers = Some((sight.view(wanted), wanted.clone()));
                    observed.unwatched = Some(sight);
                }
                Ok(None) => {}
                Err(sentence) => observed.missing.push(sentence),
            }
        }
        if has_read { Ok(observed) } else { Err(observed.missing.join("\nwindlass: ")) }
    }

    /// As `read`, with an error if a named object cannot be read.
    pub async fn read_all(
        client: &Client,
        selection: &Selection,
        kinds: &[windlass_kube_port::Kind],
    ) -> Result<Self, String> {
        let observed = Self::read(client, selection, kinds).await?;
        if observed.missing.is_empty() { Ok(observed) } else { Err(observed.missing.join("\nwindlass: ")) }
    }

    /// As `read_all`, with an error if nothing exists that was selected: a command that has nothing to do would seem to
    /// have done it.
    pub async fn read_some(
        client: &Client,
        selection: &Selection,
        kinds: &[windlass_kube_port::Kind],
    ) -> Result<Self, String> {
        let observed = Self::read_all(client, selection, kinds).await?;
        if observed.reports().is_empty() { Err(selection.none_found()) } else { Ok(observed) }
    }

    /// Checks what may be watched; call it before [`watch`](Self::watch). An error says why a selected object may not
    /// be watched; `WorkerDeployments` that nobody named are then shown as read.
    #[cfg_attr(
        not(feature = "temporal"),
        allow(unused_variables, reason = "who asked for what is of no account")
    )]
    pub async fn following(mut self, client: &Client, selection: &Selection) -> Result<Self, String> {
        if let Some((sight, wanted)) = self.fleets.take() {
            self.fleets = Some((sight.following(client, &wanted).await?, wanted));
        }
        #[cfg(feature = "temporal")]
        if let Some((_, wanted)) = &self.workers
            && let Err(sentence) = WorkersSight::may_follow(client, wanted).await
        {
            if selection.is_said {
                return Err(sentence);
            }
            self.unwatched = None;
            self.unread.push(sentence);
        }
        Ok(self)
    }

    /// What is not shown, or not kept up to date, each in a sentence.
    pub fn unread(&self) -> impl Iterator<Item = &String> {
        self.fleets.iter().flat_map(|(sight, _)| &sight.unread).chain(&self.unread)
    }

    /// How long ago the fleets' watches were last known to be up to date.
    pub fn outdated(&self) -> Duration {
        self.fleets.as_ref().map_or(Duration::ZERO, |(sight, _)| sight.view.freshness.outdated())
    }

    /// The current reports, unhealthy ones first.
    pub fn reports(&self) -> Vec<Report> {
        let now = super::super::now();
        let mut reports: Vec<Report> = Vec::new();
        if let Some((sight, wanted)) = &self.fleets {
            let seen = |fleet| FleetReport::of(&sight.seen(fleet), now);
            let mut fleets: Vec<FleetReport> = sight.fleets(wanted).iter().map(seen).collect();
            worst_first(&mut fleets);
            reports.extend(fleets.into_iter().map(|report| Report::Fleet(Box::new(report))));
        }
        #[cfg(feature = "temporal")]
        if let Some((view, _)) = &self.workers {
            let seen = |object: &Value| Report::Workers(Box::new(WorkersReport::of(object, now)));
            reports.extend(view.objects().iter().map(seen));
            // A stable sort: fleets stay before workers, and names in order.
            reports.sort_by_key(Report::verdict);
        }
        reports
    }

    /// Watches the objects. Yields after each change; never ends.
    pub fn watch(&mut self, client: &Client) -> BoxStream<'static, ()> {
        let mut streams: Vec<BoxStream<'static, ()>> = Vec::new();
        if let Some((sight, wanted)) = &self.fleets {
            streams.push(sight.watch(client, wanted).map(drop).boxed());
        }
        #[cfg(feature = "temporal")]
        if let (Some(sight), Some((_, wanted))) = (self.unwatched.take(), &self.workers) {
            streams.push(sight.watch(client, wanted));
        }
        // A stream that never ends, since a set without streams would end.
        streams.push(stream::pending().boxed());
        stream::select_all(streams).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(all_namespaces: bool) -> Cluster {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        Cluster { client: Client::try_from(config).unwrap(), namespace: "shop".to_owned(), all_namespaces }
    }

    fn selection(line: &str) -> Result<Selection, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Selection::of(&ObjectSelector::read(&words).unwrap(), &cluster(false), "status")
    }

    #[tokio::test]
    async fn fleets_are_what_is_meant_by_their_names_their_kind_or_nothing() {
        for (line, names) in [("", vec![]), ("nd", vec![]), ("nd/db nd/web", vec!["db", "web"])] {
            let wanted = selection(line).unwrap().fleets.unwrap();
            assert_eq!(
                (wanted.names, wanted.scope),
                (names.iter().map(ToString::to_string).collect(), Namespaces::Namespace("shop".to_owned())),
                "{line}"
            );
        }
        assert!(selection("sn/db-0").is_err_and(|named| named.contains("status is for a NodeDeployment")));
        assert!(selection("sn").is_err());
        let everywhere = Selection::of(&ObjectSelector::All(Kind::Fleet), &cluster(true), "status").unwrap();
        assert_eq!(everywhere.none_found(), "No fleets found in any namespace.");
        let named = ObjectSelector::read(&["nd/db".to_owned()]).unwrap();
        assert!(
            Selection::of(&named, &cluster(true), "status")
                .is_err_and(|named| named.contains("one namespace"))
        );
    }

    #[tokio::test]
    async fn what_selects_nothing_has_nothing_to_wait_for() {
        let client = crate::empty_cluster::without_objects();
        for (line, expected) in [("nd", "No fleets found in namespace shop."), ("nd/db", "db")] {
            let read = ObservedObjects::read_some(&client, &selection(line).unwrap(), &[]).await;
            let sentence = read.err().unwrap();
            assert!(sentence.contains(expected), "{line}: {sentence}");
        }
        let read = ObservedObjects::read_all(&client, &selection("nd").unwrap(), &[]).await;
        assert!(read.is_ok_and(|observed| observed.reports().is_empty()), "to show nothing is no error");
    }

    #[cfg(feature = "temporal")]
    #[tokio::test]
    async fn workers_are_meant_by_their_own_words_and_by_none() {
        let of = |line: &str| {
            let selection = selection(line).unwrap();
            (selection.fleets.map(|wanted| wanted.names), selection.workers.map(|wanted| wanted.names))
        };
        let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of(""), (names(&[]), names(&[])));
        assert_eq!(of("wwd"), (None, names(&[])));
        assert_eq!(of("nd"), (names(&[]), None));
        assert_eq!(of("wwd/orders nd/db wwd/mail"), (names(&["db"]), names(&["orders", "mail"])));
        assert_eq!(selection("wwd").unwrap().none_found(), "No WorkerDeployments found in namespace shop.");
    }
}
