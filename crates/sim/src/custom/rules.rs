//! CEL rules: `x-kubernetes-validations`. The expressions run on `cel` with Kubernetes' functions from `kube-cel`;
//! the traversal is our own, since it has a fixed order, supports `type()`, and skips what an update does not change.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube_cel::KubeCelExt;
use kube_cel::cel::extractors::This;
use kube_cel::cel::{self, Context, ExecutionError, FunctionContext, Program};
use regex::Regex;
use serde_json::Value;

use super::super::cause::Cause;
use super::shown::Shown;

/// The rules of a schema, if it has any.
#[derive(Debug)]
pub(super) struct Rules(Option<Node>);

/// The rules at a position of a schema and below it.
#[derive(Debug, Default)]
struct Node {
    rules: Vec<Rule>,
    fields: BTreeMap<String, Node>,
    items: Option<Box<Node>>,
    more: Option<Box<Node>>,
    /// The keys by which list items are matched with their old values.
    keys: Vec<String>,
    /// The part of the value that the rules read: they may not need the whole object.
    shown: Shown,
    shown_old: Shown,
    /// Identifies the node within the process, for the cache.
    number: u64,
}

#[derive(Debug)]
struct Rule {
    text: String,
    /// `None` if the rule does not compile: then it refuses everything.
    program: Option<Program>,
    uses_old: bool,
    message: Option<String>,
    message_text: Option<String>,
    message_program: Option<Program>,
    reason: Option<String>,
    field: Option<String>,
}

impl Rule {
    fn expressions(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.text.as_str()).chain(self.message_text.as_deref())
    }
}

impl Rules {
    pub(super) fn compile(schema: &Value) -> Self {
        Self(compile(schema))
    }

    /// The rules that an object violates. Ratcheting: a rule is skipped where an update changes nothing.
    pub(super) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let Some(node) = &self.0 {
            BASE.with(|base| check(node, base, object, old, "", &mut causes));
        }
        causes
    }
}

/// Values that satisfied all rules of a node, with their old values, as far as the rules read them.
type Kept = VecDeque<(Value, Option<Value>)>;

/// The cache size per node.
const KEPT: usize = 32;

static NODES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// By node. Most writes only change the status, and the rules of the spec or the name need no new evaluation.
    static KNOWN: RefCell<HashMap<u64, Kept>> = RefCell::default();
}

impl Node {
    fn was_kept(&self, value: &Value, old: Option<&Value>) -> bool {
        let is_same = |(kept, kept_old): &(Value, Option<Value>)| {
            self.shown.is_same(kept, value)
                && match (kept_old, old) {
                    (None, None) => true,
                    (Some(kept), Some(old)) => self.shown_old.is_same(kept, old),
                    _ => false,
                }
        };
        KNOWN.with_borrow(|known| known.get(&self.number).is_some_and(|kept| kept.iter().any(is_same)))
    }

    fn remember(&self, value: &Value, old: Option<&Value>) {
        let shown = (self.shown.cut(value), old.map(|old| self.shown_old.cut(old)));
        KNOWN.with_borrow_mut(|known| {
            let kept = known.entry(self.number).or_default();
            kept.truncate(KEPT - 1);
            kept.push_front(shown);
        });
    }
}

fn compile(schema: &Value) -> Option<Node> {
    if !schema.is_object() {
        return None;
    }
    let children = |field: &str| schema[field].as_object().into_iter().flatten();
    let node = Node {
        rules: schema["x-kubernetes-validations"].as_array().into_iter().flatten().map(rule).collect(),
        fields: children("properties").filter_map(|(name, s)| Some((name.clone(), compile(s)?))).collect(),
        items: compile(&schema["items"]).map(Box::new),
        more: compile(&schema["additionalProperties"]).map(Box::new),
        keys: schema["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|key| key.as_str().map(str::to_owned))
            .collect(),
        ..Node::default()
    };
    let expressions = || node.rules.iter().flat_map(Rule::expressions);
    let (shown, shown_old) = (Shown::of("self", expressions()), Shown::of("oldSelf", expressions()));
    let node = Node { shown, shown_old, number: NODES.fetch_add(1, Ordering::Relaxed), ..node };
    let empty =
        node.rules.is_empty() && node.fields.is_empty() && node.items.is_none() && node.more.is_none();
    (!empty).then_some(node)
}

fn rule(source: &Value) -> Rule {
    let text = |field: &str| source[field].as_str().map(str::to_owned);
    let expression = text("rule").unwrap_or_default();
    Rule {
        program: Program::compile(&expression).ok(),
        uses_old: expression.contains("oldSelf"),
        text: expression,
        message: text("message"),
        message_program: text("messageExpression").and_then(|m| Program::compile(&m).ok()),
        message_text: text("messageExpression"),
        reason: text("reason"),
        field: text("fieldPath"),
    }
}

thread_local! {
    /// The functions and type names for rules.
    static BASE: Context<'static> = {
        let mut context = Context::default().with_all();
        context.add_function("type", |value: cel::Value| Arc::new(type_name(&value).to_owned()));
        context.add_function("matches", rule_matches);
        for name in ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"] {
            context.add_variable_from_value(name, cel::Value::from(name));
        }
        context
    };
}

fn type_name(value: &cel::Value) -> &'static str {
    match value {
        cel::Value::Int(_) => "int",
        cel::Value::UInt(_) => "uint",
        cel::Value::Float(_) => "double",
        cel::Value::Bool(_) => "bool",
        cel::Value::String(_) => "string",
        cel::Value::Bytes(_) => "bytes",
        cel::Value::List(_) => "list",
        cel::Value::Map(_) => "map",
        cel::Value::Null => "null_type",
        _ => "unknown",
    }
}

fn check(
    node: &Node,
    base: &Context<'static>,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    if old == Some(value) {
        return;
    }
    if !node.rules.is_empty() && !node.was_kept(value, old) {
        let mut context = base.new_inner_scope();
        context.add_variable_from_value("self", node.shown.to_cel(value));
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", node.shown_old.to_cel(old));
        }
        let due = node.rules.iter().filter(|rule| old.is_some() || !rule.uses_old);
        let before = causes.len();
        causes.extend(due.filter_map(|rule| broken(rule, &context, value, path)));
        if causes.len() == before {
            node.remember(value, old);
        }
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let Some(child) = node.fields.get(name).or(node.more.as_deref()) else { continue };
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                check(child, base, value, old.and_then(|old| old.get(name)), &path, causes);
            }
        }
        Value::Array(items) => {
            let Some(child) = &node.items else { return };
            for (index, item) in items.iter().enumerate() {
                let before = old.and_then(|old| counterpart(&node.keys, item, old));
                check(child, base, item, before, &format!("{path}[{index}]"), causes);
            }
        }
        _ => {}
    }
}

/// The old value of an item; known only for lists with keys.
fn counterpart<'a>(keys: &[String], item: &Value, old: &'a Value) -> Option<&'a Value> {
    if keys.is_empty() {
        return None;
    }
    old.as_array()?.iter().find(|other| keys.iter().all(|key| other[key] == item[key]))
}

fn broken(rule: &Rule, context: &Context<'_>, value: &Value, path: &str) -> Option<Cause> {
    let field = match &rule.field {
        Some(below) if path.is_empty() => below.trim_start_matches('.').to_owned(),
        Some(below) => format!("{path}{below}"),
        None if path.is_empty() => "<nil>".to_owned(),
        None => path.to_owned(),
    };
    let result = rule.program.as_ref().map(|program| program.execute(context));
    let message = match result {
        Some(Ok(cel::Value::Bool(true))) => return None,
        Some(Ok(cel::Value::Bool(false))) => sentence(rule, context),
        Some(Ok(_)) => format!("rule {:?} is no boolean", rule.text),
        Some(Err(error)) => format!("{error} evaluating rule: {}", rule.text),
        None => format!("rule compile error: {}", rule.text),
    };
    Some(match rule.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, &message),
        Some("FieldValueRequired") => Cause::required(field, &message),
        Some("FieldValueDuplicate") => Cause::duplicate(field, value),
        _ => Cause::invalid(field, value, &message),
    })
}

fn sentence(rule: &Rule, context: &Context<'_>) -> String {
    if let Some(program) = &rule.message_program
        && let Ok(cel::Value::String(text)) = program.execute(context)
    {
        return (*text).clone();
    }
    rule.message.clone().unwrap_or_else(|| format!("failed rule: {}", rule.text))
}

thread_local! {
    /// Compiled patterns: compiling one costs more than the rest of a rule.
    static PATTERNS: RefCell<HashMap<String, Result<Regex, String>>> = RefCell::default();
}

/// Matches a pattern; an error says why the pattern is invalid.
fn pattern_matches(pattern: &str, text: &str) -> Result<bool, String> {
    PATTERNS.with_borrow_mut(|patterns| {
        if !patterns.contains_key(pattern) {
            patterns.insert(pattern.to_owned(), Regex::new(pattern).map_err(|error| error.to_string()));
        }
        patterns[pattern].as_ref().map(|regex| regex.is_match(text)).map_err(Clone::clone)
    })
}

/// Matches a pattern of a schema. An invalid one matches nothing.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    pattern_matches(pattern, text).unwrap_or(false)
}

/// CEL's `matches` with cached patterns; the built-in one compiles at every call.
#[expect(clippy::needless_pass_by_value, reason = "CEL hands its arguments over")]
fn rule_matches(
    context: &FunctionContext<'_, '_>,
    This(text): This<Arc<String>>,
    pattern: Arc<String>,
) -> Result<bool, ExecutionError> {
    pattern_matches(&pattern, &text)
        .map_err(|error| context.error(format!("'{pattern}' not a valid regex:\n{error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rule_pattern_is_reusable_and_invalid_one_is_reported() {
        let breaks = |rule: &str, text: &str| {
            let rules =
                Rules::compile(&json!({"type": "string", "x-kubernetes-validations": [{"rule": rule}]}));
            rules.check(&json!(text), None).into_iter().map(|cause| format!("{cause:?}")).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            assert!(breaks("self.matches('^[a-z]+$')", "abc").is_empty());
            assert_eq!(breaks("self.matches('^[a-z]+$')", "ab1").len(), 1);
            let broken = breaks("self.matches('(a')", "a");
            assert!(
                broken[0].contains("Error executing function 'matches': '(a' not a valid regex:"),
                "{broken:?}"
            );
        }
    }

    #[test]
    fn cached_rule_results_apply_only_to_equal_fields() {
        let rule = |text: &str| json!({"rule": text});
        let rules = Rules::compile(&json!({"type": "object", "x-kubernetes-validations": [
            rule("self.name.size() <= 3"), rule("!has(self.of__dash__b) || self.of__dash__b > 0"),
            rule("!has(oldSelf.mode) || self.mode == oldSelf.mode"),
        ]}));
        let broken = |object: &Value, old: Option<&Value>| rules.check(object, old).len();
        let object = |name: &str, b: i64, mode: &str, beside: i64| json!({"name": name, "of-b": b, "mode": mode, "beside": beside});
        let good = object("abc", 1, "x", 0);
        for beside in 0..3 {
            assert_eq!(broken(&object("abc", 1, "x", beside), None), 0);
            assert_eq!(broken(&object("abcd", 1, "x", beside), None), 1, "another name");
            assert_eq!(broken(&object("abc", 0, "x", beside), None), 1, "another number");
            assert_eq!(broken(&object("abc", 1, "x", beside + 1), Some(&good)), 0);
            assert_eq!(broken(&object("abc", 1, "y", beside + 1), None), 0, "nothing was there before");
            assert_eq!(broken(&object("abc", 1, "y", beside + 1), Some(&good)), 1, "it was another mode");
        }
        let another = Rules::compile(
            &json!({"type": "object", "x-kubernetes-validations": [rule("self.name == 'x'")]}),
        );
        assert_eq!(another.check(&good, None).len(), 1, "other rules remember nothing of these");
    }
}
