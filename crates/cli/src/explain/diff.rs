//! `windlass diff`: the differences between two revisions of a fleet, field by field.

use clap::Args;
use ratatui::style::{Style, Stylize};
use ratatui::text::Span;
use serde_json::{Value, json};

use crate::Failure;
use crate::forecast::{Field, fields};
use crate::output::Output;
use crate::target::{Kind, Located, ObjectSelector, Selected};
use crate::text::{Line, Terminal};
use crate::verbs::revisions::{StoredRevision, stored};
use windlass_core::api::StatefulNodeSpec;
use windlass_core::revision::RevisionData;

/// The arguments of `windlass diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    #[command(flatten)]
    selected: Selected,
    /// A revision by its number or name in `windlass history`; repeat it to compare two [default: from the last completed
    /// revision to the spec]
    #[arg(long, value_name = "REVISION")]
    revision: Vec<String>,
    /// Print data: from, to, fields (path, from, to)
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// One side of a comparison.
pub struct Side<T> {
    pub name: String,
    pub data: T,
}

/// A stored revision of any kind of object.
pub struct NamedRevision<T> {
    pub name: String,
    pub number: i64,
    pub data: T,
}

/// The differences between two sides, with their names.
pub struct Compared {
    pub from: String,
    pub to: String,
    pub fields: Vec<Field>,
}

/// Prints the differences.
pub async fn diff(arguments: DiffArgs) -> Result<(), Failure> {
    if arguments.selected.selector == ObjectSelector::Nothing {
        return Err(Failure::Usage("name a fleet: nd/NAME".to_owned()));
    }
    arguments.selected.selector.require_no_node("diff").map_err(Failure::Usage)?;
    let cluster = arguments.selected.flags.cluster().await?;
    let located = arguments.selected.selector.located(&cluster).await?;
    let several = located.len() > 1;
    for Located { target, namespace } in located {
        let object = target.get(&cluster.client, &namespace).await?;
        let compared = match target.kind {
            Kind::Other(other) => {
                other.compare(&cluster.client, &namespace, &object, &arguments.revision).await?
            }
            Kind::Fleet | Kind::Node => {
                let stored = stored(&cluster.client, &namespace, &object).await?;
                vec![of_fleet(&object, &stored, &arguments.revision)?]
            }
        };
        let text = match arguments.output {
            Some(Output::Name) => format!("{target}\n"),
            Some(format) => {
                let document = |Compared { from, to, fields }: Compared| {
                    format.document(&json!({"from": from, "to": to, "fields": fields}))
                };
                compared.into_iter().map(document).collect::<Result<String, _>>()?
            }
            None => {
                let drawn = compared.iter().map(|compared| drawn(compared, Terminal::of_stdout()));
                let title = if several { format!("{target}\n") } else { String::new() };
                title + &drawn.collect::<String>()
            }
        };
        crate::print(&text)?;
    }
    Ok(())
}

fn of_fleet(fleet: &Value, stored: &[StoredRevision], named: &[String]) -> Result<Compared, String> {
    let known = stored.iter().map(|revision| NamedRevision {
        name: revision.name.clone(),
        number: revision.number,
        data: revision.data.clone(),
    });
    let wanted = || {
        let spec: StatefulNodeSpec = serde_json::from_value(fleet["spec"]["template"]["spec"].clone())
            .map_err(|e| format!("cannot read spec.template.spec: {e}"))?;
        let digest = fleet["status"]["configDigest"].as_str().unwrap_or_default();
        Ok(RevisionData::of(&spec).with_config(digest))
    };
    let (from, to) = sides(fleet, &known.collect::<Vec<_>>(), wanted, named)?;
    Ok(Compared { fields: fields(from.data.diff(&to.data)), from: from.name, to: to.name })
}

/// The two sides that the arguments select.
pub fn sides<T: Clone>(
    object: &Value,
    stored: &[NamedRevision<T>],
    wanted: impl FnOnce() -> Result<T, String>,
    named: &[String],
) -> Result<(Side<T>, Side<T>), String> {
    let side = |revision: &NamedRevision<T>| Side {
        name: format!("revision {} ({})", revision.number, revision.name),
        data: revision.data.clone(),
    };
    let find = |name: &String| {
        let found = stored.iter().find(|r| r.name == *name || r.number.to_string() == *name);
        let known = || stored.iter().map(|r| r.number.to_string()).collect::<Vec<_>>().join(", ");
        found.map(side).ok_or_else(|| {
            format!("revision {name} is not stored; stored revisions: {}; see windlass history", known())
        })
    };
    let wanted = || Ok::<_, String>(Side { name: "the spec".to_owned(), data: wanted()? });
    match named {
        [] => {
            let current = stored.iter().find(|r| object["status"]["currentRevision"] == r.name.as_str());
            let current = current.ok_or(
                "no rollout has completed yet: name two revisions with --revision; see windlass history",
            )?;
            Ok((side(current), wanted()?))
        }
        [from] => Ok((find(from)?, wanted()?)),
        [from, to] => Ok((find(from)?, find(to)?)),
        _ => Err("a comparison has two revisions: use --revision at most twice".to_owned()),
    }
}

fn drawn(compared: &Compared, terminal: Terminal) -> String {
    let mut lines = vec![Line::from(format!("{} → {}", compared.from, compared.to).dim())];
    if compared.fields.is_empty() {
        lines.push(Line::from("no differences"));
    }
    for field in &compared.fields {
        let style = match (&field.from, &field.to) {
            (None, _) => Style::new().green(),
            (_, None) => Style::new().red(),
            _ => Style::new().yellow(),
        };
        lines.push(Line::from(Span::styled(field.to_string(), style)));
    }
    // Wrapped, not truncated: the difference may be at the end of a long value.
    let lines = lines.iter().flat_map(|line| terminal.folded(line, 4));
    lines.map(|line| Terminal { width: usize::MAX, ..terminal }.painted(&line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_at(number: i64, image: &str) -> StoredRevision {
        let template = json!({"image": image, "podTemplate": {"spec": {"containers": [{"name": "db"}]}}});
        StoredRevision {
            name: format!("db-{number}"),
            number,
            made_at: None,
            build_id: None,
            data: RevisionData::from_value(&template).unwrap(),
        }
    }

    #[test]
    fn diff_defaults_to_last_completed_revision_and_spec() {
        let fleet = json!({"status": {"currentRevision": "db-2"}, "spec": {"template": {"spec": {
            "image": "db:3", "podTemplate": {"spec": {"containers": [{"name": "db"}]}}}}}});
        let stored = [kept_at(1, "db:1"), kept_at(2, "db:2")];
        let printed = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|n| (*n).to_owned()).collect();
            let terminal = Terminal { width: 110, colours: false, unicode: true };
            Ok::<_, String>(drawn(&of_fleet(&fleet, &stored, &named)?, terminal))
        };
        let field = |from: &str, to: &str| {
            format!("podTemplate.spec.containers[db].image \"db:{from}\" → \"db:{to}\"\n")
        };
        let head = "revision 2 (db-2) → the spec\n";
        assert_eq!(printed(&[]), Ok(format!("{head}{}", field("2", "3"))));
        assert_eq!(
            printed(&["1", "db-2"]),
            Ok(format!("revision 1 (db-1) → revision 2 (db-2)\n{}", field("1", "2")))
        );
        assert_eq!(
            printed(&["1", "1"]),
            Ok("revision 1 (db-1) → revision 1 (db-1)\nno differences\n".to_owned())
        );
        assert!(printed(&["7"]).is_err_and(|error| error.contains("see windlass history")));
        assert!(printed(&["1", "2", "1"]).is_err_and(|error| error.contains("at most twice")));
    }
}
