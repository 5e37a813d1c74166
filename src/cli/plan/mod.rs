//! `windlass plan`: what a change would do, without doing it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::Failure;
use super::output::Output;
use super::target::{Kind, Meant, Selected};
use super::text::{Line, Look, Style};
use crate::foresight::{Change, Foreseen, Outcome, foresee};
use crate::report::about;

/// What `windlass plan` is told.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    selected: Selected,
    /// A manifest, or a folder of them, as `kubectl apply -f` takes it; - reads standard input
    #[arg(long = "filename", short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Another image of the main container
    #[arg(long, value_name = "IMAGE", conflicts_with = "file")]
    image: Option<String>,
    /// Another number of nodes
    #[arg(long, value_name = "N", conflicts_with = "file", allow_negative_numbers = true)]
    replicas: Option<i32>,
    /// Print it for a program (docs/terminal.md has the fields)
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// Says what it would do. Ends with 0 where nothing would change, 2 where something would, 1 where it would be refused.
pub async fn plan(arguments: PlanArgs) -> Result<ExitCode, Failure> {
    let wishes = wishes(&arguments)?;
    let cluster = arguments.selected.scope.cluster().await?;
    let mut codes = Vec::new();
    for (index, Wish { namespace, name, change }) in wishes.iter().enumerate() {
        let namespace = namespace.as_ref().unwrap_or(&cluster.namespace);
        let foreseen = foresee(&cluster.client, namespace, name, change, super::now()).await?;
        codes.push(foreseen.exit_code());
        let text = match arguments.output {
            Some(Output::Name) => format!("nodedeployment.windlass.dev/{name}\n"),
            Some(format) => format.document(&json!(foreseen))?,
            None => {
                let look = Look::of_stdout();
                let mut text = if index == 0 { String::new() } else { "\n".to_owned() };
                for line in lines(&foreseen).iter().flat_map(|line| line.folded(look, FOLD)) {
                    text.push_str(&line.painted(look));
                    text.push('\n');
                }
                text
            }
        };
        super::print(&text)?;
    }
    // Refused before changed before nothing.
    let worst =
        codes.into_iter().max_by_key(|code| [0, 2, 1].iter().position(|c| c == code)).unwrap_or_default();
    Ok(ExitCode::from(worst))
}

/// Lines that are too long go on so far to the right.
const FOLD: usize = 4;

/// What is to become of a fleet.
struct Wish {
    /// Where it is, if that is written in the file.
    namespace: Option<String>,
    name: String,
    change: Change,
}

/// Which fleets are meant, and what is to become of each.
fn wishes(arguments: &PlanArgs) -> Result<Vec<Wish>, Failure> {
    let Some(file) = &arguments.file else {
        let mut patch = json!({});
        if let Some(image) = &arguments.image {
            patch["spec"]["template"]["spec"]["image"] = json!(image);
        }
        if let Some(replicas) = arguments.replicas {
            patch["spec"]["replicas"] = json!(replicas);
        }
        let Meant::These(targets) = &arguments.selected.meant else {
            return Err(Failure::Usage("say which fleet, nd/NAME, or which file, -f FILE".to_owned()));
        };
        arguments.selected.meant.require(Kind::Fleet, "plan").map_err(Failure::Usage)?;
        let wish = |target: &super::target::Target| Wish {
            namespace: None,
            name: target.name.clone(),
            change: Change::Merge(patch.clone()),
        };
        return Ok(targets.iter().map(wish).collect());
    };
    if arguments.selected.meant != Meant::Nothing {
        return Err(Failure::Usage("the file says which fleet it is about: leave the name out".to_owned()));
    }
    let named = file.display();
    let mut documents = Vec::new();
    for (named, text) in texts(file).map_err(|error| format!("{named} cannot be read: {error}"))? {
        let read = serde_saphyr::from_multiple::<Value>(&text);
        documents.extend(read.map_err(|error| format!("{named} is no YAML: {error}"))?);
    }
    let items = documents.into_iter().flat_map(|document| match document["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![document],
    });
    let fleets: Vec<Value> = items.filter(|object| object["kind"] == Kind::Fleet.name()).collect();
    if fleets.is_empty() {
        return Err(format!("{named} has no NodeDeployment").into());
    }
    let wish = |fleet: Value| {
        let name = fleet["metadata"]["name"].as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| format!("{named}: a NodeDeployment has no name"))?.to_owned();
        let namespace = fleet["metadata"]["namespace"].as_str().map(str::to_owned);
        Ok(Wish { namespace, name, change: Change::Apply(fleet) })
    };
    fleets.into_iter().map(wish).collect()
}

/// What a file says, or standard input, or each manifest of a folder, as `kubectl apply -f` takes them.
fn texts(file: &Path) -> std::io::Result<Vec<(String, String)>> {
    let read = |file: &Path| Ok((file.display().to_string(), std::fs::read_to_string(file)?));
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(vec![("-".to_owned(), text)]);
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

/// The whole of it: the fleet's line first.
pub fn lines(foreseen: &Foreseen) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut head = Line::of(Style::Bold, &foreseen.name);
    let (style, word) = match foreseen.outcome {
        Outcome::Nothing => (Style::Green, "nothing changes"),
        Outcome::Changes if foreseen.is_new => (Style::Yellow, "is made"),
        Outcome::Changes if foreseen.new_target => (Style::Yellow, "a new target"),
        Outcome::Changes if !foreseen.target.is_empty() => (Style::Yellow, "back to what was"),
        Outcome::Changes => (Style::Yellow, "no new target"),
        Outcome::Refused => (Style::Red, "is refused"),
    };
    head.add(style, format!("   {word}"));
    lines.push(head);
    if let Some(refused) = &foreseen.refused {
        lines.push(Line::of(Style::Red, format!("  {refused}")));
    }
    let mut section = |title: &str, texts: Vec<String>| {
        if !texts.is_empty() {
            lines.push(Line::of(Style::Dim, format!("  {title}")));
            lines.extend(texts.into_iter().map(|text| Line::of(Style::Plain, format!("    {text}"))));
        }
    };
    let (target, at_once) = match foreseen.outcome {
        Outcome::Refused => ("would make another target:", "would apply at once:"),
        Outcome::Nothing | Outcome::Changes => ("makes another target:", "applies at once:"),
    };
    section(target, foreseen.target.iter().map(ToString::to_string).collect());
    section(at_once, foreseen.at_once.iter().map(ToString::to_string).collect());
    if foreseen.outcome != Outcome::Refused {
        section(
            "then:",
            Some(foreseen.happens.clone()).filter(|text| !text.is_empty()).into_iter().collect(),
        );
        section("traffic:", foreseen.takes_over.iter().map(|takes| takes.sentence(&foreseen.name)).collect());
        section("in this order:", order(foreseen));
        section("waits now for:", foreseen.waits.clone());
    }
    let because = |text: &String| text.strip_prefix("left out, because ").unwrap_or(text).to_owned();
    section("left out:", foreseen.unread.iter().map(because).collect());
    lines
}

fn order(foreseen: &Foreseen) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for wave in &foreseen.waves {
        let sign = |action: &str| match action {
            "Create" => "+",
            "Remove" => "-",
            "Adopt" => "=",
            _ => "",
        };
        let names: Vec<String> =
            wave.nodes.iter().map(|node| format!("{}{}", sign(&node.action), node.name)).collect();
        texts.push(format!("{}: {}", wave.when, names.join(" ")));
    }
    if texts.is_empty() {
        return texts;
    }
    texts.extend(foreseen.made_as_they_were());
    // When those go that only leave is said with each wave.
    if foreseen.waves.iter().flat_map(|wave| &wave.nodes).all(|node| node.action == "Remove") {
        return texts;
    }
    let time = match foreseen.about_seconds {
        Some(seconds) => {
            format!("{}, by what its nodes took before", about(chrono::TimeDelta::seconds(seconds)))
        }
        None => "for how long nobody knows: none of its nodes was moved before".to_owned(),
    };
    let most = if foreseen.set.is_empty() && foreseen.takes_over.is_none() {
        format!("at most {} out of service at once; ", foreseen.max_unavailable)
    } else {
        String::new()
    };
    texts.push(format!("{most}{time}"));
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_each_manifest_in_it_and_no_other_file() {
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
