//! The page: what `windlass status`, `explain`, `logs` and `plan` print of fleets, in a browser, with buttons for the
//! verbs. It shows the reports of [`crate::report`], so that terminal and page agree.
//!
//! `view` has the content as values, `html` renders them, `http` serves and authorizes. The caller provides where it
//! reads ([`Source`]) and what carries out its buttons ([`Actions`]); without the latter the page is read-only.

mod actions;
mod guard;
mod html;
mod http;
mod live;
mod source;
mod state;
mod subject;
#[cfg(test)]
mod tests;
mod view;

pub use actions::{Action, Actions, Button, Refused, Rehearsed};
pub use guard::{Guard, Secrets};
pub use http::serve;
pub use source::Source;
pub use subject::PageKind;
