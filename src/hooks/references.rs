//! Checks the names in an expression. The parser accepts any name; an unknown one would only fail at the first
//! answer, in the middle of a rollout. Also checks that the cost of an expression is at most linear in the size of its
//! input: the interpreter has no limits, and a nested loop over a body of 64 KiB would run for hours.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::over::Over;

/// The known functions: those of CEL, and those of Kubernetes whose cost is bounded by their input.
pub(super) const FUNCTIONS: &[&str] = &[
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "double",
    "int",
    "uint",
    "max",
    "min",
    "duration",
    "timestamp",
    "getFullYear",
    "getMonth",
    "getDayOfYear",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "lowerAscii",
    "upperAscii",
    "substring",
    "trim",
    "split",
    "find",
    "findAll",
    "isSorted",
    "sum",
];

/// The functions that compile a pattern at each call.
const PATTERNS: &[&str] = &["matches", "find", "findAll"];
/// The variables whose size is fixed.
const SMALL: &[&str] = &["status", "scalar"];

/// Calls `see` with each direct child of this expression.
pub(super) fn for_each_child<'a>(expr: &'a Expr, mut see: impl FnMut(&'a IdedExpr)) {
    match expr {
        Expr::Call(call) => {
            call.target.iter().for_each(|target| see(target));
            call.args.iter().for_each(see);
        }
        Expr::Comprehension(loop_) => {
            let parts =
                [&loop_.iter_range, &loop_.accu_init, &loop_.loop_cond, &loop_.loop_step, &loop_.result];
            parts.into_iter().for_each(see);
        }
        Expr::List(list) => list.elements.iter().for_each(see),
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    see(&entry.key);
                    see(&entry.value);
                }
            }
        }
        Expr::Select(select) => see(&select.operand),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
    }
}

/// Checks that all names in an expression are known, and that its loops are simple. An error is a sentence with the
/// name and its position.
pub(super) fn check(tree: &IdedExpr, source: &str, over: Over) -> Result<(), String> {
    within(&tree.expr, source, over, None)
}

/// Checks a part of an expression. `element` is the variable of the loop that it is in: all its values together are as
/// large as the list that the loop goes over.
fn within(expr: &Expr, source: &str, over: Over, element: Option<&str>) -> Result<(), String> {
    let in_loop = |name: &str| format!("'{name}' cannot be used in a loop, {}", place(source, name));
    match expr {
        // The parser's own variables, of loops.
        Expr::Ident(name) if name.starts_with('@') || element == Some(name) => {}
        Expr::Ident(name) if !over.variables().contains(&name.as_str()) => {
            let known = over.variables().join(", ");
            return Err(format!(
                "undeclared reference to '{name}' {}; the variables are {known}",
                place(source, name)
            ));
        }
        Expr::Ident(name) if element.is_some() && !SMALL.contains(&name.as_str()) => {
            return Err(in_loop(name));
        }
        Expr::Call(call) => {
            let name = call.func_name.as_str();
            let is_operator = name.starts_with(['_', '!', '-', '@']);
            if !is_operator && !FUNCTIONS.contains(&name) {
                return Err(format!("undeclared reference to '{name}' {}", place(source, name)));
            }
            if element.is_some() && PATTERNS.contains(&name) {
                return Err(in_loop(name));
            }
        }
        Expr::Comprehension(loop_) => {
            let name = loop_.iter_var.as_str();
            if over.variables().contains(&name) {
                return Err(format!("'{name}' is already a variable, {}", place(source, name)));
            }
            if matches!(loop_.accu_init.expr, Expr::List(_)) {
                return Err("map and filter are not supported: use all, exists or exists_one".to_owned());
            }
            if element.is_some_and(|element| !is_part_of(&loop_.iter_range.expr, element)) {
                return Err(format!(
                    "the loop over {name} is inside another loop, but does not iterate over a part of that loop's \
                     element"
                ));
            }
            within(&loop_.iter_range.expr, source, over, element)?;
            let inner = [&loop_.loop_cond, &loop_.loop_step, &loop_.result];
            return inner.into_iter().try_for_each(|part| within(&part.expr, source, over, Some(name)));
        }
        Expr::Struct(message) => {
            let name = &message.type_name;
            return Err(format!(
                "undeclared reference to '{name}' {}: messages are not supported",
                place(source, name)
            ));
        }
        Expr::Unspecified => return Err("a part of it cannot be parsed".to_owned()),
        Expr::Ident(_) | Expr::List(_) | Expr::Map(_) | Expr::Literal(_) | Expr::Select(_) => {}
    }
    let mut checked = Ok(());
    for_each_child(expr, |child| {
        if checked.is_ok() {
            checked = within(&child.expr, source, over, element);
        }
    });
    checked
}

/// True if an expression is the element of a loop, or a field of it.
fn is_part_of(expr: &Expr, element: &str) -> bool {
    match expr {
        Expr::Ident(name) => name == element,
        Expr::Select(select) => is_part_of(&select.operand.expr, element),
        _ => false,
    }
}

/// The first position of a name, as line and column.
fn place(source: &str, name: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let stands_alone =
        |at: usize| !source[..at].ends_with(is_of_word) && !source[at + name.len()..].starts_with(is_of_word);
    let at = source.match_indices(name).map(|(at, _)| at).find(|at| stands_alone(*at)).unwrap_or_default();
    let before = &source[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("at line {line}, column {column}")
}

/// True if an expression cannot be a boolean, whatever the answer.
pub(super) fn is_never_a_truth(tree: &IdedExpr, over: Over) -> bool {
    match &tree.expr {
        Expr::Literal(literal) => !matches!(literal, LiteralValue::Boolean(_)),
        Expr::List(_) | Expr::Map(_) => true,
        // A body may be a boolean, as JSON.
        Expr::Ident(name) => over.variables().contains(&name.as_str()) && name != "body",
        Expr::Call(call) => match call.func_name.as_str() {
            operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE
            | "size"
            | "string"
            | "double"
            | "int"
            | "uint"
            | "lowerAscii"
            | "upperAscii"
            | "trim"
            | "substring"
            | "split"
            | "find"
            | "findAll"
            | "indexOf"
            | "lastIndexOf"
            | "charAt"
            | "sum" => true,
            operators::CONDITIONAL => call.args[1..].iter().all(|branch| is_never_a_truth(branch, over)),
            _ => false,
        },
        Expr::Comprehension(_) | Expr::Select(_) | Expr::Struct(_) | Expr::Unspecified => false,
    }
}
