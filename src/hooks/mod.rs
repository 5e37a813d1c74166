//! The meaning of a hook's texts: placeholders, expressions, allowed destinations, and validation. Sends nothing:
//! tasks carry hooks out (`tasks/hooks`), and `probe/hooks` sends their requests.

mod check;
mod dialect;
mod expression;
mod host;
mod over;
mod references;
mod rules;
mod values;

pub use check::{check, needs_pod};
pub use expression::{Expression, Sample, Variables};
pub use host::{HookUrl, Host};
pub use over::Over;
pub use rules::{HookRules, PrometheusUrl};
pub use values::{Filled, Values};
