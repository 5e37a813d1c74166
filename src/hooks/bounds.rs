//! Bounds the cost of an evaluation. The interpreter has no limits: a nested loop over a body of 64 KiB runs for
//! hours, and one that concatenates a text with itself takes all memory. So calls are inserted into the tree that
//! charge a budget for each loop iteration and each value passed on; once it is spent, every further call fails.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use kube_cel::cel::objects::Key;
use kube_cel::cel::{Context, ExecutionError, Value};

use super::references::for_each_child;

/// The budget of an evaluation, in steps of the interpreter: well below a second.
const BUDGET: i64 = 1_000_000;
/// The bytes of text that cost one step.
const BYTES_A_STEP: usize = 16;

// No CEL name starts like this, so that expressions cannot call them.
const TURN: &str = "@turn";
const PAID: &str = "@paid";
/// `==`. The interpreter treats 2 and 2.0 as different, and a query's value is always a double.
const SAME: &str = "@same";
/// Tests for a field. The interpreter's own `has` is false for anything but a map.
const HAS: &str = "@has";
/// `!=`, with the same change.
const OTHER: &str = "@other";

/// The remaining budget of an evaluation.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<AtomicI64>);

impl Budget {
    pub(super) fn whole() -> Self {
        Self(Arc::new(AtomicI64::new(BUDGET)))
    }

    pub(super) fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) < 0
    }

    fn pay(&self, cost: i64) -> Result<(), ExecutionError> {
        let before = self.0.fetch_sub(cost.min(BUDGET), Ordering::Relaxed);
        if before < cost {
            Err(ExecutionError::function_error("budget", "it takes too long"))
        } else {
            Ok(())
        }
    }
}

/// The functions that expressions may call, and those that charge.
pub(super) fn context(budget: &Budget) -> Context<'static> {
    let mut context = Context::default().with_all();
    let turn = budget.clone();
    // The interpreter copies the accumulator at each iteration.
    context.add_function(TURN, move |nodes: i64, gathered: Value| -> Result<Value, ExecutionError> {
        turn.pay(nodes + size(&gathered)).map(|()| Value::Bool(true))
    });
    let paid = budget.clone();
    context.add_function(PAID, move |value: Value| -> Result<Value, ExecutionError> {
        paid.pay(size(&value)).map(|()| value)
    });
    context.add_function(HAS, |value: Value, name: Arc<String>| -> Result<Value, ExecutionError> {
        let Value::Map(map) = value else { return Err(ExecutionError::NoSuchKey(name)) };
        Ok(Value::Bool(map.map.contains_key(&Key::String(name))))
    });
    context.add_function(SAME, |left: Value, right: Value| is_same(&left, &right));
    context.add_function(OTHER, |left: Value, right: Value| !is_same(&left, &right));
    context
}

#[allow(clippy::cast_precision_loss, reason = "what would lose any is told apart before")]
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Int(whole), Value::Float(number)) | (Value::Float(number), Value::Int(whole)) => {
            // Beyond this, not every integer is a double.
            whole.unsigned_abs() <= 1 << 53
                && (*whole as f64).partial_cmp(number).is_some_and(std::cmp::Ordering::is_eq)
        }
        _ => left == right,
    }
}

fn size(value: &Value) -> i64 {
    match value {
        Value::List(list) => list.iter().map(size).sum::<i64>() + 1,
        Value::Map(map) => map.map.values().map(size).sum::<i64>() + map.map.len() as i64 + 1,
        Value::String(text) => (text.len() / BYTES_A_STEP) as i64 + 1,
        Value::Bytes(bytes) => (bytes.len() / BYTES_A_STEP) as i64 + 1,
        _ => 1,
    }
}

/// Inserts charges for every loop and every value passed on.
pub(super) fn charge(tree: &mut IdedExpr) {
    match &mut tree.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| charge(target));
            call.args.iter_mut().for_each(charge);
            // These functions look at one value and copy nothing.
            match call.func_name.as_str() {
                operators::EQUALS => SAME.clone_into(&mut call.func_name),
                operators::NOT_EQUALS => OTHER.clone_into(&mut call.func_name),
                _ => {}
            }
            let is_free = matches!(
                call.func_name.as_str(),
                operators::CONDITIONAL
                    | operators::LOGICAL_AND
                    | operators::LOGICAL_OR
                    | operators::LOGICAL_NOT
                    | operators::NOT_STRICTLY_FALSE
                    | operators::INDEX
            );
            if !is_free {
                call.target.iter_mut().for_each(|target| pay(target));
                call.args.iter_mut().for_each(pay);
            }
        }
        Expr::Comprehension(loop_) => {
            let nodes = nodes(&loop_.loop_cond) + nodes(&loop_.loop_step);
            for part in [
                &mut loop_.iter_range,
                &mut loop_.accu_init,
                &mut loop_.loop_cond,
                &mut loop_.loop_step,
                &mut loop_.result,
            ] {
                charge(part);
            }
            let condition = mem::take(&mut loop_.loop_cond);
            let gathered = ided(Expr::Ident(loop_.accu_var.clone()));
            let turn = call(TURN, vec![literal(LiteralValue::Int(nodes.into())), gathered]);
            let never = literal(LiteralValue::Boolean(false.into()));
            loop_.loop_cond = call(operators::CONDITIONAL, vec![turn, condition, never]);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(|element| {
            charge(element);
            pay(element);
        }),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    charge(&mut entry.key);
                    charge(&mut entry.value);
                    pay(&mut entry.value);
                }
            }
        }
        Expr::Select(select) => {
            charge(&mut select.operand);
            // The interpreter's own selection copies what it finds, and is `false` for anything but a map.
            let name = literal(LiteralValue::String(mem::take(&mut select.field).into()));
            let mut operand = mem::take(&mut *select.operand);
            *tree = if select.test {
                pay(&mut operand);
                call(HAS, vec![operand, name])
            } else {
                call(operators::INDEX, vec![operand, name])
            };
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
    }
}

/// Charges for a value's size. A literal is bounded by the text, and a loop's accumulator is charged at each
/// iteration.
fn pay(expr: &mut IdedExpr) {
    let is_gathered = matches!(&expr.expr, Expr::Ident(name) if name.starts_with('@'));
    if is_gathered || matches!(expr.expr, Expr::Literal(_)) {
        return;
    }
    let value = mem::take(expr);
    *expr = call(PAID, vec![value]);
}

fn nodes(tree: &IdedExpr) -> i64 {
    let mut count = 1;
    for_each_child(&tree.expr, |child| count += nodes(child));
    count
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    ided(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

fn literal(value: LiteralValue) -> IdedExpr {
    ided(Expr::Literal(value))
}

fn ided(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}
