//! `windlass plan`: the effect of a change, without making it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ratatui::style::{Style, Stylize};
use ratatui::text::Span;
use serde_json::{Value, json};

use super::Failure;
use super::connection::Cluster;
use super::output::Output;
use super::target::{Kind, Located, ObjectSelector, Selected, Target};
use super::text::{Line, Terminal, mapped};
use crate::forecast::{Action, Change, Forecast, Move, Outcome, forecast_with};
use crate::help;
use crate::report::{about, quoted};
use windlass_core::api::names::GROUP;

/// The arguments of `windlass plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    selected: Selected,
    /// A manifest or a folder of manifests, as for `kubectl apply -f`; - reads standard input; repeatable
    #[arg(long = "filename", short = 'f', value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A new image of the main container
    #[arg(long, value_name = "IMAGE", conflicts_with = "files")]
    image: Option<String>,
    /// A new number of nodes
    #[arg(long, value_name = "N", conflicts_with = "files", allow_negative_numbers = true)]
    replicas: Option<i32>,
    /// Print data (docs/reference/terminal.md lists the fields)
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// Prints the effects of a change. Exit codes: 0 nothing would change, 2 something would, 1 it would be refused.
pub async fn plan(arguments: PlanArgs) -> Result<ExitCode, Failure> {
    let written = written(&arguments)?;
    let mut applied = BTreeSet::new();
    let flags = &arguments.selected.flags;
    let cluster = flags.cluster().await?;
    let changes = match written {
        Some(written) => {
            let is_elsewhere =
                |wish: &&RequestedChange| wish.namespace.is_some() && wish.namespace != flags.namespace;
            if let (Some(asked), Some(wish)) = (&flags.namespace, written.changes.iter().find(is_elsewhere)) {
                let own = wish.namespace.as_deref().unwrap_or_default();
                return Err(format!(
                    "the manifest of {} {} has namespace {own}, not {asked}: use -n {own}, or omit -n",
                    wish.kind.name(),
                    wish.name
                )
                .into());
            }
            if !written.others.is_empty() {
                let known: Vec<String> = kinds().map(|kind| format!("{}s", kind.name())).collect();
                eprintln!(
                    "windlass: ignored (plan only handles {}): {}",
                    known.join(" and "),
                    written.others.join(", ")
                );
            }
            applied = written.applied;
            written.changes
        }
        None => changes_from_flags(&arguments, &cluster).await?,
    };
    let typed = arguments.selected.flags.connection.typed();
    let mut codes = Vec::new();
    for (index, RequestedChange { kind, namespace, name, change }) in changes.iter().enumerate() {
        let namespace = namespace.as_ref().unwrap_or(&cluster.namespace);
        let (client, now) = (&cluster.client, super::now());
        let prediction = match kind {
            Kind::Other(other) => other.forecast(client, (namespace, name), change, now).await?,
            Kind::Fleet | Kind::Node => {
                let beside = applied.iter().filter(|(of, _)| of.as_ref().is_none_or(|of| of == namespace));
                let beside = beside.map(|(_, object)| object.clone()).collect();
                let forecast = forecast_with(client, (namespace, name), change, beside, now).await?;
                Prediction::of(&forecast)
            }
        };
        codes.push(prediction.exit_code);
        let text = match arguments.output {
            Some(Output::Name) => format!("{}\n", Target { kind: *kind, name: name.clone() }),
            Some(format) => format.document(&prediction.document)?,
            None => {
                let terminal = Terminal::of_stdout();
                let mut text = if index == 0 { String::new() } else { "\n".to_owned() };
                let lines = prediction.lines.iter().map(|line| mapped(line, |text| typed.text(text)));
                for line in lines.flat_map(|line| terminal.folded(&line, FOLD)) {
                    text.push_str(&terminal.painted(&line));
                    text.push('\n');
                }
                if let Some(command) = command(change).filter(|_| prediction.is_made) {
                    let target = format!("{}/{name} -n {namespace}", kind.short());
                    let heading = terminal.painted(&Line::from("  to make this change:".dim()));
                    let command = typed.text(&format!("kubectl patch {target} {command}"));
                    let _ = writeln!(text, "{heading}\n    {command}");
                }
                text
            }
        };
        super::print(&text)?;
    }
    // The worst of all: refused, then changed, then unchanged.
    let worst =
        codes.into_iter().max_by_key(|code| [0, 2, 1].iter().position(|c| c == code)).unwrap_or_default();
    Ok(ExitCode::from(worst))
}

/// The arguments of `kubectl patch` for a change that flags describe.
fn command(change: &Change) -> Option<String> {
    let Change::Merge(patch) = change else { return None };
    let is_empty = patch.as_object().is_none_or(serde_json::Map::is_empty);
    (!is_empty).then(|| format!("--type=merge -p {}", quoted(&patch.to_string())))
}

/// The indentation of wrapped lines.
const FOLD: usize = 4;

/// The kinds that `plan` supports.
fn kinds() -> impl Iterator<Item = Kind> {
    Kind::all().filter(|kind| help::has_rollouts(*kind))
}

/// The forecast of a change of one object, for output.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// 0: nothing changes; 1: the change is rejected; 2: something changes.
    pub exit_code: u8,
    /// True if the change itself is made, which then causes the rest.
    pub is_made: bool,
    /// For people, the object's name first.
    pub lines: Vec<Line>,
    /// For programs.
    pub document: Value,
}

impl Prediction {
    /// The prediction for a fleet or a StatefulSetRollout.
    pub fn of(forecast: &Forecast) -> Self {
        let exit_code = forecast.exit_code();
        Self {
            exit_code,
            is_made: exit_code == 2 && !forecast.is_empty_change() && forecast.refused.is_none(),
            lines: lines(forecast),
            document: json!(forecast),
        }
    }

    /// The lines under the first one, which names the object, without their common indentation.
    pub fn under(&self) -> Vec<String> {
        self.lines.iter().skip(1).map(|line| line.to_string().chars().skip(2).collect()).collect()
    }
}

/// A desired change of an object.
struct RequestedChange {
    kind: Kind,
    /// Its namespace, if the file has one.
    namespace: Option<String>,
    name: String,
    change: Change,
}

/// The contents of the files.
#[derive(Default)]
struct Written {
    changes: Vec<RequestedChange>,
    /// Other objects that the files contain, such as `ConfigMap db`.
    others: Vec<String>,
    /// The same, each with its namespace, if the file has one.
    applied: BTreeSet<(Option<String>, String)>,
}

/// The fleets that the arguments select, and the change of each.
async fn changes_from_flags(
    arguments: &PlanArgs,
    cluster: &Cluster,
) -> Result<Vec<RequestedChange>, Failure> {
    let mut patch = json!({});
    if let Some(image) = &arguments.image {
        patch["spec"]["template"]["spec"]["image"] = json!(image);
    }
    if let Some(replicas) = arguments.replicas {
        patch["spec"]["replicas"] = json!(replicas);
    }
    let wish = |Located { target, namespace }| RequestedChange {
        kind: target.kind,
        namespace: Some(namespace),
        name: target.name,
        change: Change::Merge(patch.clone()),
    };
    Ok(arguments.selected.selector.located(cluster).await?.into_iter().map(wish).collect())
}

/// The contents of the named files; `None` if no file is named. Invalid ones are reported before connecting to a
/// cluster.
fn written(arguments: &PlanArgs) -> Result<Option<Written>, Failure> {
    let selector = &arguments.selected.selector;
    if arguments.files.is_empty() {
        if *selector == ObjectSelector::Nothing {
            let sentence = "name a fleet, nd/NAME, or a file, -f FILE";
            return Err(Failure::Usage(sentence.to_owned()));
        }
        selector.require_no_node("plan").map_err(Failure::Usage)?;
        let asks = arguments.image.is_some() || arguments.replicas.is_some();
        for kind in selector.kinds().into_iter().filter(|kind| *kind != Kind::Fleet) {
            if asks {
                let short = kind.short();
                let why = if kind.has_template() {
                    "write the change into a file, and use -f FILE"
                } else {
                    "the template and the number of pods belong to the owner of the StatefulSet"
                };
                return Err(Failure::Usage(format!(
                    "{short}/NAME: --image and --replicas are for a NodeDeployment; {why}"
                )));
            }
        }
        return Ok(None);
    }
    if *selector != ObjectSelector::Nothing {
        return Err(Failure::Usage(
            "use either a file or a name: the file already names the object".to_owned(),
        ));
    }
    let mut found = Written::default();
    for file in &arguments.files {
        let read = texts(file).map_err(|error| format!("cannot read {}: {error}", called(file)))?;
        for (named, text) in read {
            let read = serde_saphyr::from_multiple::<Value>(&text);
            for document in
                read.map_err(|error| format!("{named} is not valid YAML: {}", first_line(&error)))?
            {
                found.take(document).map_err(|error| format!("{named}: {error}"))?;
            }
        }
    }
    if found.changes.is_empty() {
        let files: Vec<String> = arguments.files.iter().map(|file| called(file)).collect();
        let others = if found.others.is_empty() {
            String::new()
        } else {
            format!(", but {}", found.others.join(", "))
        };
        let none = kinds().map(Kind::name).collect::<Vec<_>>().join(" and no ");
        return Err(format!("{} has no {none}{others}", files.join(", ")).into());
    }
    Ok(Some(found))
}

impl Written {
    /// Adds a document, or each item of a list.
    fn take(&mut self, document: Value) -> Result<(), String> {
        if let Some(items) = document["items"].as_array() {
            return items.iter().try_for_each(|item| self.take(item.clone()));
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&document["kind"]), text(&document["metadata"]["name"]));
        let group = text(&document["apiVersion"]);
        let known = kinds().find(|known| kind == known.name() && group.starts_with(GROUP));
        if known.is_some() && name.is_empty() {
            return Err(format!("a {kind} has no name"));
        }
        let namespace = document["metadata"]["namespace"].as_str().map(str::to_owned);
        if let Some(kind) = known {
            self.changes.push(RequestedChange { kind, namespace, name, change: Change::Apply(document) });
        } else if !document.is_null() {
            let kind = if kind.is_empty() { "a document without a kind" } else { &kind };
            let object = format!("{kind} {name}").trim_end().to_owned();
            self.applied.insert((namespace, object.clone()));
            self.others.push(object);
        }
        Ok(())
    }
}

/// The name of a file in messages.
fn called(file: &Path) -> String {
    if file.as_os_str() == "-" { "standard input".to_owned() } else { file.display().to_string() }
}

/// The first line of an error: the YAML parser draws the position below it.
fn first_line(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// The contents of a file, of standard input, or of each manifest in a folder, as `kubectl apply -f` reads them.
fn texts(file: &Path) -> std::io::Result<Vec<(String, String)>> {
    let read = |file: &Path| Ok((called(file), std::fs::read_to_string(file)?));
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(vec![(called(file), text)]);
    }
    if !file.is_dir() {
        return Ok(vec![read(file)?]);
    }
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(file)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    let is_manifest = |file: &PathBuf| {
        file.is_file()
            && file.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|known| e == *known))
    };
    files.retain(is_manifest);
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

/// The printed lines, the fleet's first.
pub fn lines(forecast: &Forecast) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut head = Line::from(forecast.name.clone().bold());
    let (style, word) = match forecast.outcome {
        Outcome::Nothing => (Style::new().green(), "no change"),
        Outcome::Changes if forecast.refused.is_some() => {
            (Style::new().yellow(), "its template is rejected, the rest applies at once")
        }
        Outcome::Changes if forecast.is_new => (Style::new().yellow(), "is created"),
        Outcome::Changes if forecast.new_target => (Style::new().yellow(), "new target"),
        Outcome::Changes if !forecast.target.is_empty() => {
            (Style::new().yellow(), "back to the completed target")
        }
        Outcome::Changes if forecast.is_empty_change() => {
            (Style::new().yellow(), "no change, but updates are pending")
        }
        Outcome::Changes => (Style::new().yellow(), "no new target"),
        Outcome::Refused => (Style::new().red(), "is rejected"),
    };
    head.push_span(Span::styled(format!("   {word}"), style));
    lines.push(head);
    if let Some(refused) = &forecast.refused {
        lines.push(Line::from(format!("  {refused}").red()));
    }
    let mut section = |title: &str, texts: Vec<String>| {
        if !texts.is_empty() {
            lines.push(Line::from(format!("  {title}").dim()));
            lines.extend(texts.into_iter().map(|text| Line::from(Span::raw(format!("    {text}")))));
        }
    };
    let (target, at_once) = match forecast.outcome {
        Outcome::Refused => ("would make another target:", "would apply at once:"),
        Outcome::Changes if forecast.refused.is_some() => ("would make another target:", "applies at once:"),
        Outcome::Nothing | Outcome::Changes => ("makes another target:", "applies at once:"),
    };
    section(target, forecast.target.iter().map(ToString::to_string).collect());
    section(at_once, forecast.at_once.iter().map(ToString::to_string).collect());
    section("takes over:", forecast.holds.clone());
    section("pending updates:", forecast.pending.iter().map(ToString::to_string).collect());
    if forecast.outcome != Outcome::Refused {
        section(
            "then:",
            Some(forecast.happens.clone()).filter(|text| !text.is_empty()).into_iter().collect(),
        );
        section("volumes:", forecast.grows.clone());
        section("traffic:", forecast.takes_over.iter().map(|takes| takes.sentence(&forecast.name)).collect());
        section("in this order:", order(forecast));
        section(
            "with hooks:",
            Some(forecast.hooks.join(", ")).filter(|text| !text.is_empty()).into_iter().collect(),
        );
        section("currently waits for:", forecast.waits.clone());
    }
    lines.extend(forecast.unread.iter().map(|sentence| Line::from(format!("  {sentence}").dim())));
    lines
}

fn order(forecast: &Forecast) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for wave in &forecast.waves {
        let sign = |action| match action {
            Action::Create => "+",
            Action::Remove => "-",
            Action::Adopt => "=",
            Action::Update => "",
        };
        let name = |node: &Move| {
            let remark = wave.remark(node).map(|remark| format!(" {remark}")).unwrap_or_default();
            format!("{}{}{remark}", sign(node.action), node.name)
        };
        let names: Vec<String> = wave.nodes.iter().map(name).collect();
        texts.push(format!("{}: {}", wave.title(), names.join(" ")));
    }
    if texts.is_empty() {
        return texts;
    }
    texts.extend(forecast.recreated_sentence());
    // With only removals left, each wave already lists its nodes.
    if forecast.waves.iter().flat_map(|wave| &wave.nodes).all(|node| node.action == Action::Remove) {
        return texts;
    }
    let time = match forecast.about_seconds {
        Some(seconds) => {
            format!("{}, estimated from earlier updates", about(chrono::TimeDelta::seconds(seconds)))
        }
        None if forecast.is_of_pods() => "no estimate".to_owned(),
        None => "no estimate: no node of this fleet has been updated yet".to_owned(),
    };
    let waves = forecast.waves.iter();
    let updates = waves.map(|wave| wave.nodes.iter().filter(|node| node.action == Action::Update).count());
    let widest = updates.max().unwrap_or_default() as i64;
    let has_domains = forecast.waves.iter().flat_map(|wave| &wave.nodes).any(|node| node.domain.is_some());
    let most = if forecast.set.is_some() || forecast.takes_over.is_some() || widest == 0 {
        String::new()
    } else if widest > i64::from(forecast.max_unavailable) && !has_domains {
        // Nodes whose main containers do not run move whatever the others do.
        format!("of nodes whose main container runs, {}; ", forecast.limit)
    } else {
        format!("{}; ", forecast.limit)
    };
    texts.push(format!("{most}{time}"));
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleets_are_collected_from_documents_and_lists() {
        let fleet = |name: &str| json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": name}});
        let node = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulNode", "metadata": {"name": "own"}});
        let other =
            json!({"apiVersion": "apps.example/v1", "kind": "NodeDeployment", "metadata": {"name": "other"}});
        let mut elsewhere = fleet("there");
        elsewhere["metadata"]["namespace"] = json!("prod");
        let mut found = Written::default();
        let list = json!({"kind": "List", "items": [fleet("b"), node, elsewhere]});
        for document in [fleet("a"), list, other, Value::Null] {
            found.take(document).unwrap();
        }
        let changes: Vec<_> =
            found.changes.iter().map(|w| (w.name.as_str(), w.namespace.as_deref())).collect();
        assert_eq!(changes, [("a", None), ("b", None), ("there", Some("prod"))]);
        assert_eq!(found.others, ["StatefulNode own", "NodeDeployment other"]);
        assert!(
            found.take(json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment"})).is_err()
        );
    }

    #[test]
    fn folder_reads_only_its_top_level_manifests() {
        let folder = std::env::temp_dir().join(format!("windlass-plan-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("deeper")).unwrap();
        for (name, text) in
            [("b.yml", "b"), ("a.yaml", "a"), ("c.json", "c"), ("notes.md", "no"), ("deeper/d.yaml", "no")]
        {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let read: Vec<String> = texts(&folder).unwrap().into_iter().map(|(_, text)| text).collect();
        let missing = texts(&folder.join("missing.yaml"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, ["a", "b", "c"]);
        assert!(missing.is_err());
    }
}
