//! Strategic merge patches: merges lists by the keys in Go's tags.

use serde_json::{Map, Value};

use super::super::types::{self, Field, StructId, Type};

/// The prefix of a list's order directive.
const ORDER: &str = "$setElementOrder/";

/// Merges `patch` into an object of this struct.
pub(crate) fn merge(id: StructId, object: &mut Value, patch: &Value) {
    merge_struct(Some(id), object, patch);
}

fn merge_struct(id: Option<StructId>, object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        let mut replaced = patch.clone();
        replaced.remove("$patch");
        *object = Value::Object(replaced);
        return;
    }
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Some(target) = object.as_object_mut() else { return };
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|name, _| kept.iter().any(|k| k.as_str() == Some(name)));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(items), Some(gone)) =
                (target.get_mut(list).and_then(Value::as_array_mut), value.as_array())
            {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        if value.is_null() {
            target.remove(name);
            continue;
        }
        let field = id.and_then(|id| types::get(id).fields.get(name));
        let slot = target.entry(name.clone()).or_insert(Value::Null);
        let length = slot.as_array().map_or(0, Vec::len);
        merge_field(field, slot, value);
        if let Some(order) = patch.get(&format!("{ORDER}{name}")) {
            put_in_order(field, slot, length, order);
        }
    }
    // An order directive may come without a change.
    for (name, order) in patch {
        if let Some(name) = name.strip_prefix(ORDER).filter(|name| !patch.contains_key(*name))
            && let Some(slot) = target.get_mut(name)
        {
            let field = id.and_then(|id| types::get(id).fields.get(name));
            let length = slot.as_array().map_or(0, Vec::len);
            put_in_order(field, slot, length, order);
        }
    }
}

/// Sorts a merged list by the order directive; unnamed items stay before the item that they preceded. Like the real
/// server, which appends and deletes in place in the list that it then uses as the old order, a new item in a freed
/// slot has a position there.
fn put_in_order(field: Option<&Field>, slot: &mut Value, length: usize, order: &Value) {
    let Some(Field { merge_key: Some(key), .. }) = field else { return };
    let (Some(items), Some(order)) = (slot.as_array().cloned(), order.as_array()) else { return };
    let same = |a: &Value, b: &Value| if key.is_empty() { a == b } else { a[key] == b[key] };
    let place = |list: &[Value], item: &Value| list.iter().position(|have| same(have, item));
    let before: Vec<Value> = items.iter().take(length).cloned().collect();
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let mut from = 0;
    for other in others {
        let mine = place(&before, &other);
        let later = |item: &Value| matches!((mine, place(&before, item)), (Some(a), Some(b)) if a < b);
        let at = named[from..].iter().position(later).map_or(named.len(), |found| from + found);
        named.insert(at, other);
        from = at + 1;
    }
    *slot = named.into();
}

fn merge_field(field: Option<&Field>, slot: &mut Value, patch: &Value) {
    match field.map(|f| (inner(&f.ty), f)) {
        Some((Type::Struct(id), _)) => merge_struct(Some(*id), slot, patch),
        Some((Type::Map(value), _)) => {
            let id = if let Type::Struct(id) = **value { Some(id) } else { None };
            merge_struct(id, slot, patch);
        }
        Some((Type::List(item), Field { merge_key: Some(key), .. })) => {
            let id = if let Type::Struct(id) = inner(item) { Some(*id) } else { None };
            merge_list(id, key, slot, patch);
        }
        _ => *slot = patch.clone(),
    }
}

fn inner(ty: &Type) -> &Type {
    if let Type::Pointer(ty) = ty { inner(ty) } else { ty }
}

fn merge_list(id: Option<StructId>, key: &str, slot: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_array() else {
        *slot = patch.clone();
        return;
    };
    if patch.iter().any(|item| item["$patch"] == "replace") {
        *slot = patch.iter().filter(|item| item["$patch"] != "replace").cloned().collect();
        return;
    }
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    let Some(items) = slot.as_array_mut() else { return };
    for item in patch {
        if key.is_empty() {
            if !items.contains(item) {
                items.push(item.clone());
            }
            continue;
        }
        let found = items.iter().position(|have| have[key] == item[key]);
        if item["$patch"] == "delete" {
            if let Some(index) = found {
                items.remove(index);
            }
            continue;
        }
        if let Some(index) = found {
            merge_struct(id, &mut items[index], item);
        } else {
            let mut new = Value::Null;
            merge_struct(id, &mut new, item);
            items.push(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_merge_by_name_and_commands_are_replaced() {
        let mut object = json!({"spec": {"containers": [
            {"name": "a", "image": "a:1", "command": ["x", "y"]}, {"name": "b", "image": "b:1"}]}});
        let patch = json!({"spec": {"containers": [
            {"name": "a", "image": "a:2", "command": ["z"]}, {"name": "b", "$patch": "delete"}]}});
        merge(types::find("core.Pod").unwrap(), &mut object, &patch);
        assert_eq!(object["spec"]["containers"], json!([{"name": "a", "image": "a:2", "command": ["z"]}]));
    }

    #[test]
    fn finalizers_merge_as_a_set() {
        let mut object = json!({"metadata": {"finalizers": ["a"]}});
        merge(
            types::find("core.Pod").unwrap(),
            &mut object,
            &json!({"metadata": {"finalizers": ["a", "b"]}}),
        );
        assert_eq!(object["metadata"]["finalizers"], json!(["a", "b"]));
    }
}
