//! Reports of any kind: fleets, and what extensions have.

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};
use kube::Client;
use serde_json::{Value, json};

use super::tree::{self, Shown};
use crate::connection::Cluster;
use crate::extension::{EXTENSIONS, Extension, Objects};
use crate::reader::{FleetSelection, Sight};
use crate::report::{FleetReport, Verdict, worst_first};
use crate::target::{Kind, ObjectSelector, Target};
use crate::text::{Line, Terminal};
use windlass_kube_port::watch::Namespaces;

/// The report of one object.
pub trait Report {
    /// Whether its spec is carried out.
    fn verdict(&self) -> Verdict;

    /// The object.
    fn target(&self) -> Target;

    /// Its name, with the namespace if several are shown.
    fn name(&self, namespaces: bool) -> String;

    /// What it waits for, or what blocks it.
    fn waiting_for(&self) -> &str;

    /// A summary in a few words.
    fn summary(&self) -> &str;

    /// The report as data.
    fn document(&self) -> Value;

    /// The report as a tree.
    fn tree(&self, now: DateTime<Utc>, terminal: Terminal, shown: Shown<'_>) -> Vec<Line>;

    /// The one line of a healthy object, with a first column of this width.
    fn healthy(&self, namespaces: bool, width: usize) -> Line;

    /// Its progress, in one line.
    fn line(&self) -> Line;
}

impl Report for FleetReport {
    fn verdict(&self) -> Verdict {
        self.verdict
    }

    fn target(&self) -> Target {
        Target { kind: Kind::Fleet, name: self.name.clone() }
    }

    fn name(&self, namespaces: bool) -> String {
        tree::name(self, namespaces)
    }

    fn waiting_for(&self) -> &str {
        &self.waiting_for
    }

    fn summary(&self) -> &str {
        &self.summary
    }

    fn document(&self) -> Value {
        json!(self)
    }

    fn tree(&self, now: DateTime<Utc>, terminal: Terminal, shown: Shown<'_>) -> Vec<Line> {
        tree::tree(self, now, terminal, shown)
    }

    fn healthy(&self, namespaces: bool, width: usize) -> Line {
        tree::healthy(self, namespaces, width)
    }

    fn line(&self) -> Line {
        tree::line(self)
    }
}

/// The objects that the arguments select, by kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Selection {
    fleets: Option<FleetSelection>,
    others: Vec<(&'static dyn Extension, FleetSelection)>,
    /// True if objects or a kind were named.
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
        let all = || FleetSelection { scope: scope.clone(), names: Vec::new() };
        let mut selection = Self {
            fleets: None,
            others: Vec::new(),
            is_said: *selector != ObjectSelector::Nothing,
            scope: scope.clone(),
        };
        let named = match selector {
            ObjectSelector::Nothing => {
                selection.fleets = Some(all());
                selection.others.extend(EXTENSIONS.iter().map(|other| (*other, all())));
                return Ok(selection);
            }
            ObjectSelector::All(kind) => vec![(*kind, None)],
            ObjectSelector::These(_) if cluster.all_namespaces => {
                return Err("--all-namespaces cannot be combined with names".to_owned());
            }
            ObjectSelector::These(targets) => targets.iter().map(|t| (t.kind, Some(&t.name))).collect(),
        };
        for (kind, name) in named {
            let wanted = match kind {
                Kind::Fleet => selection.fleets.get_or_insert_with(all),
                Kind::Other(other) => selection.of_other(other, all),
                Kind::Node => continue,
            };
            wanted.names.extend(name.cloned());
        }
        Ok(selection)
    }

    fn of_other(
        &mut self,
        other: &'static dyn Extension,
        all: impl FnOnce() -> FleetSelection,
    ) -> &mut FleetSelection {
        let index = self.others.iter().position(|(known, _)| *known == other).unwrap_or_else(|| {
            self.others.push((other, all()));
            self.others.len() - 1
        });
        &mut self.others[index].1
    }

    /// The singular of what is selected, with its article.
    pub fn singular(&self) -> String {
        match (&self.fleets, self.others.as_slice()) {
            (_, []) => "a fleet".to_owned(),
            (None, [(other, _)]) => format!("a {}", other.name()),
            _ => "one".to_owned(),
        }
    }

    /// The message if none exist.
    pub fn none_found(&self) -> String {
        let kind = match self.others.first() {
            Some((other, _)) if self.fleets.is_none() => Kind::Other(*other),
            _ => Kind::Fleet,
        };
        match &self.scope {
            Namespaces::All => kind.none_found(None),
            Namespaces::Namespace(namespace) => kind.none_found(Some(namespace)),
        }
    }
}

/// The objects of all selected kinds; kept up to date while watched.
pub struct ObservedObjects {
    fleets: Option<(Sight, FleetSelection)>,
    others: Vec<Other>,
    /// What was selected and could not be read, each in a sentence.
    pub missing: Vec<String>,
    unread: Vec<String>,
}

/// The objects of an extension's kind.
struct Other {
    objects: Box<dyn Objects>,
    is_watched: bool,
}

impl ObservedObjects {
    /// Reads the selected objects, and these kinds of the objects of fleets. An error means that nothing could be
    /// read.
    pub async fn read(
        client: &Client,
        selection: &Selection,
        kinds: &[windlass_kube_port::Kind],
    ) -> Result<Self, String> {
        let mut observed = Self { fleets: None, others: Vec::new(), missing: Vec::new(), unread: Vec::new() };
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
        for (other, wanted) in &selection.others {
            match other.read(client, wanted, selection.is_said).await {
                Ok(Some(objects)) => {
                    has_read |= objects.refused().is_none();
                    observed.missing.extend_from_slice(objects.missing());
                    observed.unread.extend(objects.refused().map(str::to_owned));
                    observed.others.push(Other { objects, is_watched: true });
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
    /// be watched; what nobody named is then shown as read, except fleets.
    pub async fn following(mut self, client: &Client, selection: &Selection) -> Result<Self, String> {
        if let Some((sight, wanted)) = self.fleets.take() {
            self.fleets = Some((sight.following(client, &wanted).await?, wanted));
        }
        for other in &mut self.others {
            if let Err(sentence) = other.objects.may_follow(client).await {
                if selection.is_said {
                    return Err(sentence);
                }
                other.is_watched = false;
                self.unread.push(sentence);
            }
        }
        Ok(self)
    }

    /// What is not shown, or not kept up to date, each in a sentence.
    pub fn unread(&self) -> impl Iterator<Item = &String> {
        self.fleets.iter().flat_map(|(sight, _)| &sight.unread).chain(&self.unread)
    }

    /// Which kinds are left out that nobody named, each in a sentence.
    pub fn left_out(&self) -> &[String] {
        &self.unread
    }

    /// How long ago the fleets' watches were last known to be up to date.
    pub fn outdated(&self) -> Duration {
        self.fleets.as_ref().map_or(Duration::ZERO, |(sight, _)| sight.view.freshness.outdated())
    }

    /// The current reports, unhealthy ones first.
    pub fn reports(&self) -> Vec<Box<dyn Report>> {
        let now = crate::now();
        let mut reports: Vec<Box<dyn Report>> = Vec::new();
        if let Some((sight, wanted)) = &self.fleets {
            let seen = |fleet| FleetReport::of(&sight.seen(fleet), now);
            let mut fleets: Vec<FleetReport> = sight.fleets(wanted).iter().map(seen).collect();
            worst_first(&mut fleets);
            reports.extend(fleets.into_iter().map(|report| Box::new(report) as Box<dyn Report>));
        }
        reports.extend(self.others.iter().flat_map(|other| other.objects.reports(now)));
        // A stable sort: fleets stay before others, and names in order.
        reports.sort_by_key(|report| report.verdict());
        reports
    }

    /// Watches the objects. Yields after each change; never ends.
    pub fn watch(&mut self, client: &Client) -> BoxStream<'static, ()> {
        let mut streams: Vec<BoxStream<'static, ()>> = Vec::new();
        if let Some((sight, wanted)) = &self.fleets {
            streams.push(sight.watch(client, wanted).map(drop).boxed());
        }
        let watched = self.others.iter_mut().filter(|other| other.is_watched);
        streams.extend(watched.map(|other| other.objects.watch(client)));
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
    async fn fleets_are_selected_by_name_kind_or_default() {
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
                .is_err_and(|named| named.contains("--all-namespaces"))
        );
    }

    #[tokio::test]
    async fn wait_with_an_empty_selection_is_an_error() {
        let client = crate::empty_cluster::without_objects();
        for (line, expected) in [("nd", "No fleets found in namespace shop."), ("nd/db", "db")] {
            let read = ObservedObjects::read_some(&client, &selection(line).unwrap(), &[]).await;
            let sentence = read.err().unwrap();
            assert!(sentence.contains(expected), "{line}: {sentence}");
        }
        let read = ObservedObjects::read_all(&client, &selection("nd").unwrap(), &[]).await;
        assert!(read.is_ok_and(|observed| observed.reports().is_empty()), "an empty list is not an error");
    }

    #[tokio::test]
    async fn extension_kinds_are_selected_by_name_kind_or_default() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(selection("").unwrap().others.len(), EXTENSIONS.len());
        for other in EXTENSIONS {
            let of = |line: &str| {
                let selection = selection(&line.replace("OTHER", other.short())).unwrap();
                let others = selection.others.into_iter().map(|(_, wanted)| wanted.names);
                (selection.fleets.map(|wanted| wanted.names), others.collect::<Vec<_>>())
            };
            assert_eq!(of("OTHER"), (None, vec![names(&[])]));
            assert_eq!(of("nd"), (Some(names(&[])), vec![]));
            let mixed = (Some(names(&["db"])), vec![names(&["orders", "mail"])]);
            assert_eq!(of("OTHER/orders nd/db OTHER/mail"), mixed);
            let none = format!("No {}s found in namespace shop.", other.name());
            assert_eq!(selection(other.short()).unwrap().none_found(), none);
        }
    }
}
