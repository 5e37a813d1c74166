//! The built-in kinds as Go declares them. `v1.36.txt` is a table of `k8s.io/api` v0.36.3, one line a field: name,
//! type, and its tags (`o` omitempty, `z` omitzero, `p=` patch strategy, `k=` keys of a list map). They decide how
//! the real server decodes a body: which zero values it keeps, and which fields are unknown.

mod decode;
mod quantity;

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub(crate) use decode::{decode, zero_struct};
pub(crate) use quantity::Quantity;

/// The index of a struct in the table.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct StructId(usize);

/// A Go type, as far as decoding and patching need it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    Pointer(Box<Type>),
    List(Box<Type>),
    Map(Box<Type>),
    Text,
    Bool,
    Int32,
    Int64,
    Float,
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Raw,
    Struct(StructId),
}

/// One field of a struct.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub ty: Type,
    pub omit_empty: bool,
    pub omit_zero: bool,
    /// The key by which a strategic merge patch merges this list; empty for a set.
    pub merge_key: Option<String>,
    /// The keys by which server-side apply treats this list as a map.
    pub map_keys: Vec<String>,
    /// True if server-side apply treats this list as a set.
    pub is_set: bool,
}

/// One struct.
#[derive(Debug)]
pub(crate) struct Struct {
    /// The name with its package, as in `core.PodSpec`.
    pub name: String,
    pub fields: BTreeMap<String, Field>,
}

struct Table {
    structs: Vec<Struct>,
    by_name: BTreeMap<String, StructId>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| parse(include_str!("v1.36.txt")));

/// The struct of this name, as in `apps.StatefulSet`.
pub(crate) fn find(name: &str) -> Option<StructId> {
    TABLE.by_name.get(name).copied()
}

/// The struct behind an ID.
pub(crate) fn get(id: StructId) -> &'static Struct {
    &TABLE.structs[id.0]
}

fn parse(text: &str) -> Table {
    let mut by_name = BTreeMap::new();
    for name in text.lines().filter(|line| !line.starts_with(' ')) {
        let id = StructId(by_name.len());
        by_name.insert(name.to_owned(), id);
    }
    let mut structs: Vec<Struct> = Vec::new();
    for line in text.lines() {
        if let Some(field) = line.strip_prefix(' ') {
            if let Some(last) = structs.last_mut() {
                let (name, field) = parse_field(field, &by_name);
                last.fields.insert(name, field);
            }
        } else {
            structs.push(Struct { name: line.to_owned(), fields: BTreeMap::new() });
        }
    }
    Table { structs, by_name }
}

fn parse_field(line: &str, names: &BTreeMap<String, StructId>) -> (String, Field) {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default().to_owned();
    let ty = parse_type(words.next().unwrap_or_default(), names);
    let mut field = Field {
        ty,
        omit_empty: false,
        omit_zero: false,
        merge_key: None,
        map_keys: Vec::new(),
        is_set: false,
    };
    for word in words {
        match word.split_once('=') {
            None if word == "o" => field.omit_empty = true,
            None if word == "z" => field.omit_zero = true,
            Some(("p", strategy)) if strategy.split([',', ':']).any(|s| s == "merge") => {
                field.merge_key = Some(strategy.split_once(':').map_or("", |(_, key)| key).to_owned());
            }
            Some(("k", keys)) => field.map_keys = keys.split(',').map(str::to_owned).collect(),
            Some(("l", "set")) => field.is_set = true,
            _ => {}
        }
    }
    (name, field)
}

fn parse_type(text: &str, names: &BTreeMap<String, StructId>) -> Type {
    if let Some(rest) = text.strip_prefix('*') {
        return Type::Pointer(Box::new(parse_type(rest, names)));
    }
    if let Some(rest) = text.strip_prefix("[]") {
        return Type::List(Box::new(parse_type(rest, names)));
    }
    if let Some(rest) = text.strip_prefix("{}") {
        return Type::Map(Box::new(parse_type(rest, names)));
    }
    match text {
        "string" => Type::Text,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "float64" => Type::Float,
        "bytes" => Type::Bytes,
        "quantity" => Type::Quantity,
        "intstr" => Type::IntOrString,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        _ => names.get(text).map_or(Type::Raw, |id| Type::Struct(*id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_table_describes_pods_down_to_their_probes() {
        let pod = get(find("core.Pod").unwrap());
        let Type::Struct(spec) = pod.fields["spec"].ty else { panic!("a pod's spec is a struct") };
        let Type::List(container) = &get(spec).fields["containers"].ty else {
            panic!("containers are a list")
        };
        let Type::Struct(container) = **container else { panic!("a container is a struct") };
        assert_eq!(get(container).name, "core.Container");
        assert_eq!(get(spec).fields["containers"].merge_key.as_deref(), Some("name"));
        assert_eq!(get(container).fields["ports"].map_keys, ["containerPort", "protocol"]);
        assert!(matches!(get(container).fields["readinessProbe"].ty, Type::Pointer(_)));
    }
}
