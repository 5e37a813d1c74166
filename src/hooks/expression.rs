//! The `success` and `failure` expressions of a hook, in CEL. Anyone who may write fleets writes them, and the peer
//! controls their input: so an expression is fully checked before it is used, and its evaluation is bounded in time
//! and memory for any input.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::cel::common::ast::IdedExpr;
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Value, objects};

use super::over::Over;
use super::{dialect, references};

/// The longest expression, in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 2_048;
/// The deepest nesting of an expression, with macros expanded.
const MAX_DEPTH: usize = 128;
/// The parser recurses for each level before the depth is known. In bytes.
const PARSERS_STACK: usize = 64 * 1024 * 1024;
/// The most that an evaluation may cost, as the product of the sizes of the expression and of its input: the interpreter
/// has no limits, and what [`references::check`] admits costs no more than this product. About a second.
const BUDGET: usize = 10_000_000;
/// The bytes of text that count as one part of the input.
const BYTES_A_STEP: usize = 16;
/// The longest message of the interpreter that is repeated, in bytes.
const MAX_SENTENCE_BYTES: usize = 240;

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    tree: IdedExpr,
    nodes: usize,
}

impl Expression {
    /// Compiles a text. An error is the parser's message, with its position.
    pub fn compile(text: &str, over: Over) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("it is empty".to_owned());
        }
        if text.len() > MAX_EXPRESSION_BYTES {
            return Err(format!("it is longer than {MAX_EXPRESSION_BYTES} bytes"));
        }
        let owned = text.to_owned();
        let parser = std::thread::Builder::new().stack_size(PARSERS_STACK).spawn(move || parse(&owned));
        let mut tree = match parser.map(std::thread::JoinHandle::join) {
            Ok(Ok(parsed)) => parsed?,
            Ok(Err(_)) => return Err("the parser cannot read it".to_owned()),
            Err(error) => return Err(format!("could not start a thread to parse it: {error}")),
        };
        references::check(&tree, text, over)?;
        if references::is_never_a_truth(&tree, over) {
            return Err("its result is not a boolean: compare it with a value".to_owned());
        }
        let nodes = nodes(&tree);
        dialect::correct(&mut tree);
        Ok(Self { tree, nodes })
    }

    /// Evaluates the expression. An error says why it has no result.
    pub fn holds(&self, variables: &Variables) -> Result<bool, String> {
        let input: usize = variables.0.iter().map(|(_, value)| size(value)).sum();
        if self.nodes.saturating_mul(input) > BUDGET {
            return Err("it would take too long for this response".to_owned());
        }
        let mut context = dialect::context();
        for (name, value) in &variables.0 {
            context.add_variable_from_value(*name, value.clone());
        }
        // The interpreter panics on unsupported input.
        let evaluated = catch_unwind(AssertUnwindSafe(|| Value::resolve(&self.tree, &context)));
        match evaluated {
            Ok(Ok(Value::Bool(truth))) => Ok(truth),
            Ok(Ok(_)) => Err("its result for this response is not a boolean".to_owned()),
            // The interpreter has no comparison for NaN, and reports a missing overload.
            Ok(Err(_)) if variables.have_nan() => Err("NaN cannot be compared".to_owned()),
            Ok(Err(error)) => {
                Err(crate::engine::sentence::cut(&one_line(&error.to_string()), MAX_SENTENCE_BYTES))
            }
            Err(_) => Err("it cannot be evaluated for this response".to_owned()),
        }
    }
}

fn parse(text: &str) -> Result<IdedExpr, String> {
    let parsed = Parser::new().parse(text).map_err(|errors| {
        let Some(first) = errors.errors.first() else { return "it does not compile".to_owned() };
        format!("{} at line {}, column {}", one_line(&first.msg), first.pos.0, first.pos.1)
    })?;
    // Later traversals of the tree recurse too, on a smaller stack.
    if depth(&parsed) > MAX_DEPTH {
        return Err(format!("it is nested more than {MAX_DEPTH} levels deep"));
    }
    Ok(parsed)
}

fn depth(tree: &IdedExpr) -> usize {
    let mut deepest = 0;
    references::for_each_child(&tree.expr, |child| deepest = deepest.max(depth(child)));
    deepest + 1
}

fn nodes(tree: &IdedExpr) -> usize {
    let mut count = 1;
    references::for_each_child(&tree.expr, |child| count += nodes(child));
    count
}

/// The size of a value: its parts, and its texts.
fn size(value: &Value) -> usize {
    match value {
        Value::List(list) => list.iter().map(size).sum::<usize>() + 1,
        Value::Map(map) => map.map.values().map(size).sum::<usize>() + map.map.len() + 1,
        Value::String(text) => text.len() / BYTES_A_STEP + 1,
        _ => 1,
    }
}

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The variables of an evaluation.
#[derive(Clone, Debug)]
pub struct Variables(Vec<(&'static str, Value)>);

impl Variables {
    fn have_nan(&self) -> bool {
        self.0.iter().any(|(_, value)| matches!(value, Value::Float(number) if number.is_nan()))
    }

    /// The variables of an HTTP response. Header names are in lower case.
    #[must_use]
    pub fn of_answer(
        status: u16,
        headers: &[(String, String)],
        text: &str,
        body: &serde_json::Value,
    ) -> Self {
        let mut by_name: HashMap<String, String> = HashMap::new();
        for (name, value) in headers {
            let known = by_name.entry(name.to_ascii_lowercase());
            known.and_modify(|all| *all = format!("{all}, {value}")).or_insert_with(|| value.clone());
        }
        let headers = by_name.into_iter().map(|(name, value)| (key(name), string(value))).collect();
        Self(vec![
            ("status", Value::Int(i64::from(status))),
            ("headers", map(headers)),
            ("text", string(text.to_owned())),
            ("body", of_json(body)),
        ])
    }

    /// The variables of a query's result. `scalar` is the value of a result with exactly one.
    #[must_use]
    pub fn of_result(samples: &[Sample]) -> Self {
        let one = |sample: &Sample| {
            let labels = sample
                .labels
                .iter()
                .map(|(name, value)| (key(name.clone()), string(value.clone())))
                .collect();
            let fields = [("labels", map(labels)), ("value", Value::Float(sample.value))];
            map(fields.into_iter().map(|(name, value)| (key(name.to_owned()), value)).collect())
        };
        let scalar = match samples {
            [only] => Value::Float(only.value),
            _ => Value::Null,
        };
        Self(vec![("result", Value::List(Arc::new(samples.iter().map(one).collect()))), ("scalar", scalar)])
    }
}

/// One element of an instant vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

fn key(name: String) -> objects::Key {
    objects::Key::String(Arc::new(name))
}

fn string(text: String) -> Value {
    Value::String(Arc::new(text))
}

fn map(entries: HashMap<objects::Key, Value>) -> Value {
    Value::Map(objects::Map { map: Arc::new(entries) })
}

/// Converts JSON as Kubernetes' rules do: a number without a fraction is an int.
fn of_json(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(truth) => Value::Bool(*truth),
        serde_json::Value::Number(number) => {
            number.as_i64().map_or_else(|| Value::Float(number.as_f64().unwrap_or(f64::NAN)), Value::Int)
        }
        serde_json::Value::String(text) => string(text.clone()),
        serde_json::Value::Array(list) => Value::List(Arc::new(list.iter().map(of_json).collect())),
        serde_json::Value::Object(fields) => {
            map(fields.iter().map(|(name, value)| (key(name.clone()), of_json(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests;
