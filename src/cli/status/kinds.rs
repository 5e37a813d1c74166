//! What is shown, of whichever kind: fleets, and `WorkerDeployments` where they are built in.

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};
use kube::Client;
use serde_json::{Value, json};

use super::super::connection::Cluster;
use super::super::target::{Kind, Meant, Target};
use super::super::text::{Line, Look};
use super::tree::{self, Shown};
#[cfg(feature = "temporal")]
use super::workers;
use crate::cluster::watch::Namespaces;
use crate::reader::{Sight, Wanted};
#[cfg(feature = "temporal")]
use crate::reader::{WorkersSight, WorkersView};
#[cfg(feature = "temporal")]
use crate::report::WorkersReport;
use crate::report::{FleetReport, Verdict, worst_first};

/// What is shown of one object.
pub enum Report {
    /// A fleet.
    Fleet(Box<FleetReport>),
    /// A `WorkerDeployment`.
    #[cfg(feature = "temporal")]
    Workers(Box<WorkersReport>),
}

impl Report {
    /// What came of what its spec asks for.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Fleet(report) => report.verdict,
            #[cfg(feature = "temporal")]
            Self::Workers(report) => report.verdict,
        }
    }

    /// What it is called.
    pub fn target(&self) -> Target {
        match self {
            Self::Fleet(report) => Target { kind: Kind::Fleet, name: report.name.clone() },
            #[cfg(feature = "temporal")]
            Self::Workers(report) => Target { kind: Kind::Workers, name: report.name.clone() },
        }
    }

    /// Its name, after its namespace where those of several are shown.
    pub fn name(&self, namespaces: bool) -> String {
        match self {
            Self::Fleet(report) => tree::name(report, namespaces),
            #[cfg(feature = "temporal")]
            Self::Workers(report) => workers::name(report, namespaces),
        }
    }

    /// What it waits for, or why it stands.
    pub fn waiting_for(&self) -> &str {
        match self {
            Self::Fleet(report) => &report.waiting_for,
            #[cfg(feature = "temporal")]
            Self::Workers(report) => &report.waiting_for,
        }
    }

    /// A few words.
    pub fn summary(&self) -> &str {
        match self {
            Self::Fleet(report) => &report.summary,
            #[cfg(feature = "temporal")]
            Self::Workers(report) => &report.summary,
        }
    }

    /// As data.
    pub fn document(&self) -> Value {
        match self {
            Self::Fleet(report) => json!(report),
            #[cfg(feature = "temporal")]
            Self::Workers(report) => json!(report),
        }
    }

    /// All of it, in lines.
    pub fn tree(&self, now: DateTime<Utc>, look: Look, shown: Shown<'_>) -> Vec<Line> {
        match self {
            Self::Fleet(report) => tree::tree(report, now, look, shown),
            #[cfg(feature = "temporal")]
            Self::Workers(report) => workers::tree(report, now, look, shown),
        }
    }

    /// One of which nothing needs to be told: one line, whose first column is so wide.
    pub fn healthy(&self, namespaces: bool, width: usize) -> Line {
        match self {
            Self::Fleet(report) => tree::healthy(report, namespaces, width),
            #[cfg(feature = "temporal")]
            Self::Workers(report) => workers::healthy(report, namespaces, width),
        }
    }

    /// How it goes on, in one line.
    pub fn line(&self) -> Line {
        match self {
            Self::Fleet(report) => tree::line(report),
            #[cfg(feature = "temporal")]
            Self::Workers(report) => workers::line(report),
        }
    }
}

/// What somebody's words mean, by kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Asked {
    fleets: Option<Wanted>,
    #[cfg(feature = "temporal")]
    workers: Option<Wanted>,
    /// Whether objects were named, or at least a kind.
    #[cfg(feature = "temporal")]
    is_said: bool,
    scope: Namespaces,
}

impl Asked {
    /// All of every kind where nothing is said. An error is wrong usage.
    pub fn of(meant: &Meant, cluster: &Cluster, verb: &str) -> Result<Self, String> {
        meant.require_no_node(verb)?;
        let scope = if cluster.all_namespaces {
            Namespaces::All
        } else {
            Namespaces::Namespace(cluster.namespace.clone())
        };
        let all = || Wanted { scope: scope.clone(), names: Vec::new() };
        let mut asked = Self {
            fleets: None,
            #[cfg(feature = "temporal")]
            workers: None,
            #[cfg(feature = "temporal")]
            is_said: *meant != Meant::Nothing,
            scope: scope.clone(),
        };
        let said = match meant {
            Meant::Nothing => {
                asked.fleets = Some(all());
                #[cfg(feature = "temporal")]
                {
                    asked.workers = Some(all());
                }
                return Ok(asked);
            }
            Meant::All(kind) => vec![(*kind, None)],
            Meant::These(_) if cluster.all_namespaces => {
                return Err("an object is in one namespace: --all-namespaces goes without names".to_owned());
            }
            Meant::These(targets) => targets.iter().map(|t| (t.kind, Some(&t.name))).collect(),
        };
        for (kind, name) in said {
            let wanted = match kind {
                #[cfg(feature = "temporal")]
                Kind::Workers => &mut asked.workers,
                Kind::Fleet => &mut asked.fleets,
                Kind::Node => continue,
            };
            wanted.get_or_insert_with(all).names.extend(name.cloned());
        }
        Ok(asked)
    }

    /// One of what is asked for, with its article.
    pub fn one(&self) -> &'static str {
        #[cfg(feature = "temporal")]
        match (&self.fleets, &self.workers) {
            (None, Some(_)) => return "a WorkerDeployment",
            (Some(_), Some(_)) => return "one",
            _ => {}
        }
        "a fleet"
    }

    /// What is said where there are none of them.
    pub fn none_found(&self) -> String {
        let what = if self.fleets.is_some() { "fleets" } else { "WorkerDeployments" };
        match &self.scope {
            Namespaces::All => format!("No {what} found in any namespace."),
            Namespaces::Namespace(namespace) => format!("No {what} found in namespace {namespace}."),
        }
    }
}

/// What was read of all kinds that were asked for, and goes on being seen while it is watched.
pub struct Sights {
    fleets: Option<(Sight, Wanted)>,
    #[cfg(feature = "temporal")]
    workers: Option<(WorkersView, Wanted)>,
    #[cfg(feature = "temporal")]
    unwatched: Option<WorkersSight>,
    /// What was asked for and could not be read, each in a sentence.
    pub missing: Vec<String>,
    unread: Vec<String>,
}

impl Sights {
    /// Reads what was asked for, and these kinds of what belongs to fleets. An error says why nothing of it can be read.
    pub async fn read(
        client: &Client,
        asked: &Asked,
        kinds: &[crate::cluster::Kind],
    ) -> Result<Self, String> {
        let mut sights = Self {
            fleets: None,
            #[cfg(feature = "temporal")]
            workers: None,
            #[cfg(feature = "temporal")]
            unwatched: None,
            missing: Vec::new(),
            unread: Vec::new(),
        };
        let mut has_read = false;
        if let Some(wanted) = &asked.fleets {
            match Sight::read(client, wanted, kinds).await {
                Ok(mut sight) => {
                    has_read = true;
                    sights.missing.append(&mut sight.missing);
                    sights.fleets = Some((sight, wanted.clone()));
                }
                Err(sentence) => sights.missing.push(sentence),
            }
        }
        #[cfg(feature = "temporal")]
        if let Some(wanted) = &asked.workers {
            let read = if asked.is_said {
                WorkersSight::read(client, wanted).await.map(Some)
            } else {
                WorkersSight::read_if_installed(client, wanted).await
            };
            match read {
                Ok(Some(mut sight)) => {
                    has_read = true;
                    sights.missing.append(&mut sight.missing);
                    sights.workers = Some((sight.view(wanted), wanted.clone()));
                    sights.unwatched = Some(sight);
                }
                Ok(None) => {}
                Err(sentence) => sights.missing.push(sentence),
            }
        }
        if has_read { Ok(sights) } else { Err(sights.missing.join("\nwindlass: ")) }
    }

    /// The same, and an error where one of those that are named cannot be read.
    pub async fn read_all(
        client: &Client,
        asked: &Asked,
        kinds: &[crate::cluster::Kind],
    ) -> Result<Self, String> {
        let sights = Self::read(client, asked, kinds).await?;
        if sights.missing.is_empty() { Ok(sights) } else { Err(sights.missing.join("\nwindlass: ")) }
    }

    /// What of it may be watched, which has to be asked before [`watch`](Self::watch). An error says why what was asked for may not
    /// be; `WorkerDeployments` that nobody named stay as they were read.
    #[cfg_attr(
        not(feature = "temporal"),
        allow(unused_variables, reason = "who asked for what is of no account")
    )]
    pub async fn following(mut self, client: &Client, asked: &Asked) -> Result<Self, String> {
        if let Some((sight, wanted)) = self.fleets.take() {
            self.fleets = Some((sight.following(client, &wanted).await?, wanted));
        }
        #[cfg(feature = "temporal")]
        if let Some((_, wanted)) = &self.workers
            && let Err(sentence) = WorkersSight::may_follow(client, wanted).await
        {
            if asked.is_said {
                return Err(sentence);
            }
            self.unwatched = None;
            self.unread.push(sentence);
        }
        Ok(self)
    }

    /// What is not shown, or not as it changes, each in a sentence.
    pub fn unread(&self) -> impl Iterator<Item = &String> {
        self.fleets.iter().flat_map(|(sight, _)| &sight.unread).chain(&self.unread)
    }

    /// For how long nobody knows whether what is shown of fleets is still so.
    pub fn outdated(&self) -> Duration {
        self.fleets.as_ref().map_or(Duration::ZERO, |(sight, _)| sight.view.freshness.outdated())
    }

    /// What is seen now, the ill ones first.
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
            // Stably: fleets stay before workers, and each in the order of names.
            reports.sort_by_key(Report::verdict);
        }
        reports
    }

    /// Watches from here on what was read. Yields after a change was taken in; never ends.
    pub fn watch(&mut self, client: &Client) -> BoxStream<'static, ()> {
        let mut streams: Vec<BoxStream<'static, ()>> = Vec::new();
        if let Some((sight, wanted)) = &self.fleets {
            streams.push(sight.watch(client, wanted).map(drop).boxed());
        }
        #[cfg(feature = "temporal")]
        if let (Some(sight), Some((_, wanted))) = (self.unwatched.take(), &self.workers) {
            streams.push(sight.watch(client, wanted));
        }
        // One without an end, for a set without any would have one.
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

    fn asked(line: &str) -> Result<Asked, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Asked::of(&Meant::read(&words).unwrap(), &cluster(false), "status")
    }

    #[tokio::test]
    async fn fleets_are_what_is_meant_by_their_names_their_kind_or_nothing() {
        for (line, names) in [("", vec![]), ("nd", vec![]), ("nd/db nd/web", vec!["db", "web"])] {
            let wanted = asked(line).unwrap().fleets.unwrap();
            assert_eq!(
                (wanted.names, wanted.scope),
                (names.iter().map(ToString::to_string).collect(), Namespaces::Namespace("shop".to_owned())),
                "{line}"
            );
        }
        assert!(asked("sn/db-0").is_err_and(|said| said.contains("status is for a NodeDeployment")));
        assert!(asked("sn").is_err());
        let everywhere = Asked::of(&Meant::All(Kind::Fleet), &cluster(true), "status").unwrap();
        assert_eq!(everywhere.none_found(), "No fleets found in any namespace.");
        let named = Meant::read(&["nd/db".to_owned()]).unwrap();
        assert!(
            Asked::of(&named, &cluster(true), "status").is_err_and(|said| said.contains("one namespace"))
        );
    }

    #[cfg(feature = "temporal")]
    #[tokio::test]
    async fn workers_are_meant_by_their_own_words_and_by_none() {
        let of = |line: &str| {
            let asked = asked(line).unwrap();
            (asked.fleets.map(|wanted| wanted.names), asked.workers.map(|wanted| wanted.names))
        };
        let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of(""), (names(&[]), names(&[])));
        assert_eq!(of("wwd"), (None, names(&[])));
        assert_eq!(of("nd"), (names(&[]), None));
        assert_eq!(of("wwd/orders nd/db wwd/mail"), (names(&["db"]), names(&["orders", "mail"])));
        assert_eq!(asked("wwd").unwrap().none_found(), "No WorkerDeployments found in namespace shop.");
    }
}
