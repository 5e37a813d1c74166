//! Corrects the interpreter where it differs from CEL. It treats 2 and 2.0 as different, while a query's value is always
//! a double. It returns `false` for a field, and for `has`, of anything but a map. It copies each value that it selects.
//! So such parts of an expression are replaced by calls of the functions here.

use std::mem;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use kube_cel::cel::objects::Key;
use kube_cel::cel::{Context, ExecutionError, Value};

// No CEL name starts like this, so that expressions cannot call them.
const SAME: &str = "@same";
const OTHER: &str = "@other";
const HAS: &str = "@has";

/// The functions that expressions may call.
pub(super) fn context() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function(HAS, |value: Value, name: Arc<String>| -> Result<Value, ExecutionError> {
        let Value::Map(map) = value else { return Err(ExecutionError::NoSuchKey(name)) };
        Ok(Value::Bool(map.map.contains_key(&Key::String(name))))
    });
    context.add_function(SAME, |left: Value, right: Value| is_same(&left, &right));
    context.add_function(OTHER, |left: Value, right: Value| !is_same(&left, &right));
    context
}

#[allow(clippy::cast_precision_loss, reason = "larger integers are excluded before")]
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

/// Replaces comparisons and selections by calls.
pub(super) fn correct(tree: &mut IdedExpr) {
    match &mut tree.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| correct(target));
            call.args.iter_mut().for_each(correct);
            match call.func_name.as_str() {
                operators::EQUALS => SAME.clone_into(&mut call.func_name),
                operators::NOT_EQUALS => OTHER.clone_into(&mut call.func_name),
                _ => {}
            }
        }
        Expr::Comprehension(loop_) => {
            for part in [
                &mut loop_.iter_range,
                &mut loop_.accu_init,
                &mut loop_.loop_cond,
                &mut loop_.loop_step,
                &mut loop_.result,
            ] {
                correct(part);
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(correct),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    correct(&mut entry.key);
                    correct(&mut entry.value);
                }
            }
        }
        Expr::Select(select) => {
            correct(&mut select.operand);
            let name = Expr::Literal(LiteralValue::String(mem::take(&mut select.field).into()));
            let function = if select.test { HAS } else { operators::INDEX };
            let args = vec![mem::take(&mut *select.operand), IdedExpr { id: 0, expr: name }];
            tree.expr = Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args });
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
    }
}
