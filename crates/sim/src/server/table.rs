//! Objects as table rows, which `kubectl get` requests: with the printer columns of custom kinds, and the real
//! server's columns of built-in ones.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::super::json_path::find;
use super::super::kinds::{Kind, PrinterColumn};
use super::cell::{column, since};
use super::columns;
use super::read::metadata_only;

/// The object in a row, besides its cells.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Include {
    Nothing,
    #[default]
    Metadata,
    Object,
}

/// The form in which objects are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// Complete.
    Whole,
    /// Only their metadata.
    Metadata,
    /// As rows of a table.
    Table(Include),
}

/// A table of these objects. A watch sends the column definitions once.
pub(crate) fn table<'a>(
    kind: &Kind,
    objects: impl Iterator<Item = &'a Value>,
    include: Include,
    described: bool,
    now: DateTime<Utc>,
) -> Value {
    let rows: Vec<Value> = objects.map(|object| row(kind, object, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": if described { definitions(kind).into() } else { Value::Null },
        "rows": rows,
    })
}

fn definitions(kind: &Kind) -> Vec<Value> {
    if !kind.is_custom() {
        return columns::definitions(&kind.kind);
    }
    let custom = kind.columns.iter().map(|c| column(&c.name, &c.kind, &c.format, c.priority, &c.description));
    std::iter::once(column("Name", "string", "name", 0, columns::NAME)).chain(custom).collect()
}

fn row(kind: &Kind, object: &Value, include: Include, now: DateTime<Utc>) -> Value {
    let cells: Vec<Value> = if kind.is_custom() {
        let custom = kind.columns.iter().map(|column| cell(column, object, now));
        std::iter::once(object["metadata"]["name"].clone()).chain(custom).collect()
    } else {
        columns::cells(&kind.kind, object, now)
    };
    let mut row = json!({"cells": cells});
    match include {
        Include::Nothing => row["object"] = Value::Null,
        Include::Metadata => row["object"] = metadata_only(object),
        Include::Object => row["object"] = object.clone(),
    }
    row
}

/// The value of a custom column; null if absent or of another type.
fn cell(column: &PrinterColumn, object: &Value, now: DateTime<Utc>) -> Value {
    let Some(value) = find(object, &column.path) else { return Value::Null };
    match column.kind.as_str() {
        "integer" => value.as_i64().map_or(Value::Null, Value::from),
        "number" => value.as_f64().map_or(Value::Null, Value::from),
        "boolean" => value.as_bool().map_or(Value::Null, Value::from),
        "date" => value.as_str().map_or(Value::Null, |_| since(value, now).into()),
        _ => value.as_str().map_or_else(|| value.to_string(), str::to_owned).into(),
    }
}
