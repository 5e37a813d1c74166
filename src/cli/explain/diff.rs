//! `windlass diff`: what differs between two revisions of a fleet, field by field.

use clap::Args;
use serde_json::{Value, json};

use super::super::Failure;
use super::super::output::Output;
use super::super::target::{Kind, Meant, Selected};
use super::super::text::{Line, Look, Style};
use super::super::verbs::revisions::{Kept, kept};
use crate::api::StatefulNodeSpec;
use crate::foresight::{Field, fields};
use crate::revision::RevisionData;

/// What `windlass diff` is told.
#[derive(Debug, Args)]
pub struct DiffArgs {
    #[command(flatten)]
    selected: Selected,
    /// A revision by its number or name in `windlass history`; twice for two of them [default: from what last completed to
    /// what is wanted]
    #[arg(long, value_name = "REVISION")]
    revision: Vec<String>,
    /// Print it for a program: from, to, fields (path, from, to)
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// One side of a comparison.
struct Side {
    name: String,
    data: RevisionData,
}

/// Prints what differs.
pub async fn diff(arguments: DiffArgs) -> Result<(), Failure> {
    let Meant::These(targets) = &arguments.selected.meant else {
        return Err(Failure::Usage("say which fleet: nd/NAME".to_owned()));
    };
    for target in targets {
        target.require(Kind::Fleet, "diff").map_err(Failure::Usage)?;
    }
    let cluster = arguments.selected.scope.cluster().await?;
    for target in targets {
        let fleet = target.get(&cluster.client, &cluster.namespace).await?;
        let kept = kept(&cluster.client, &cluster.namespace, &fleet).await?;
        let (from, to) = sides(&fleet, &kept, &arguments.revision)?;
        let differences = fields(from.data.diff(&to.data));
        let text = match arguments.output {
            Some(Output::Name) => format!("{target}\n"),
            Some(format) => {
                format.document(&json!({"from": from.name, "to": to.name, "fields": differences}))?
            }
            None => drawn(&from, &to, &differences, Look::of_stdout()),
        };
        super::super::print(&text)?;
    }
    Ok(())
}

/// The two sides that are meant.
fn sides(fleet: &Value, kept: &[Kept], named: &[String]) -> Result<(Side, Side), String> {
    let side = |revision: &Kept| Side {
        name: format!("revision {} ({})", revision.number, revision.name),
        data: revision.data.clone(),
    };
    let find = |name: &String| {
        let found = kept.iter().find(|r| r.name == *name || r.number.to_string() == *name);
        found.map(side).ok_or_else(|| format!("no revision {name} is kept; see windlass history"))
    };
    let wanted = || {
        let spec: StatefulNodeSpec = serde_json::from_value(fleet["spec"]["template"]["spec"].clone())
            .map_err(|e| format!("spec.template.spec cannot be read: {e}"))?;
        Ok::<_, String>(Side { name: "what is wanted".to_owned(), data: RevisionData::of(&spec) })
    };
    match named {
        [] => {
            let current = kept.iter().find(|r| fleet["status"]["currentRevision"] == r.name.as_str());
            let current = current.ok_or(
                "nothing has completed yet: name two revisions with --revision, see windlass history",
            )?;
            Ok((side(current), wanted()?))
        }
        [from] => Ok((find(from)?, wanted()?)),
        [from, to] => Ok((find(from)?, find(to)?)),
        _ => Err("a comparison has two sides: give --revision at most twice".to_owned()),
    }
}

fn drawn(from: &Side, to: &Side, differences: &[Field], look: Look) -> String {
    let mut lines = vec![Line::of(Style::Dim, format!("{} → {}", from.name, to.name))];
    if differences.is_empty() {
        lines.push(Line::of(Style::Plain, "nothing differs"));
    }
    for field in differences {
        let style = match (&field.from, &field.to) {
            (None, _) => Style::Green,
            (_, None) => Style::Red,
            _ => Style::Yellow,
        };
        lines.push(Line::of(style, field.to_string()));
    }
    // What differs at the end of a long value must not be cut.
    let lines = lines.iter().flat_map(|line| line.folded(look, 4));
    lines.map(|line| line.painted(Look { width: usize::MAX, ..look }) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_at(number: i64, image: &str) -> Kept {
        let template = json!({"image": image, "podTemplate": {"spec": {"containers": [{"name": "db"}]}}});
        Kept {
            name: format!("db-{number}"),
            number,
            made_at: None,
            build_id: None,
            data: RevisionData::from_value(&template).unwrap(),
        }
    }

    #[test]
    fn two_sides_are_those_that_are_named_and_else_the_last_completed_and_the_wanted() {
        let fleet = json!({"status": {"currentRevision": "db-2"}, "spec": {"template": {"spec": {
            "image": "db:3", "podTemplate": {"spec": {"containers": [{"name": "db"}]}}}}}});
        let kept = [kept_at(1, "db:1"), kept_at(2, "db:2")];
        let told = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|n| (*n).to_owned()).collect();
            let (from, to) = sides(&fleet, &kept, &named)?;
            let look = Look { width: 110, colours: false, unicode: true };
            Ok::<_, String>(drawn(&from, &to, &fields(from.data.diff(&to.data)), look))
        };
        let field = |from: &str, to: &str| {
            format!("podTemplate.spec.containers[db].image \"db:{from}\" → \"db:{to}\"\n")
        };
        let head = "revision 2 (db-2) → what is wanted\n";
        assert_eq!(told(&[]), Ok(format!("{head}{}", field("2", "3"))));
        assert_eq!(
            told(&["1", "db-2"]),
            Ok(format!("revision 1 (db-1) → revision 2 (db-2)\n{}", field("1", "2")))
        );
        assert_eq!(
            told(&["1", "1"]),
            Ok("revision 1 (db-1) → revision 1 (db-1)\nnothing differs\n".to_owned())
        );
        assert!(told(&["7"]).is_err_and(|said| said.contains("see windlass history")));
        assert!(told(&["1", "2", "1"]).is_err_and(|said| said.contains("at most twice")));
    }
}
