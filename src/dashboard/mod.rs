//! The page: what `windlass status`, `explain`, `logs` and `plan` say of fleets, in a browser, and buttons for the verbs. It
//! shows the reports of [`crate::report`], so the terminal and the page cannot disagree.
//!
//! What is shown is a value (`view`), how it looks is HTML (`html`), and who may see it is HTTP (`http`). Whoever
//! serves the page says what it reads by ([`Source`]), and what carries its buttons out ([`Hands`]): without hands it is
//! read-only.

mod guard;
mod hands;
mod html;
mod http;
mod live;
mod page;
mod source;
#[cfg(test)]
mod tests;
mod view;

pub use guard::{Guard, Secrets};
pub use hands::{Button, Deed, Hands, Refused, Rehearsed};
pub use http::serve;
pub use source::Source;
