//! What a hook's texts mean: the values in them, the expressions, where a request may go, and whether a hook could be
//! carried out at all. Nothing here is asked of anybody: tasks do what a hook says (`tasks/hooks`), and peers are asked
//! beside the reconciles (`asking/hooks`).

mod bounds;
mod check;
mod expression;
mod host;
mod over;
mod references;
mod rules;
mod values;

pub use check::{check, is_there};
pub use expression::{Expression, MAX_EXPRESSION_BYTES, Sample, Variables};
pub use host::{HookUrl, Host, Peer};
pub use over::Over;
pub use rules::{HookRules, PrometheusUrl};
pub use values::{Filled, Piece, ValueName, Values};
