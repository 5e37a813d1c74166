//! Excerpts of a peer's answer for messages.

use crate::engine::sentence::cut;

/// The longest excerpt, in bytes.
const EXCERPT_BYTES: usize = 160;

/// The start of an untrusted text on one line, short enough for a status.
pub(super) fn excerpt(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let line: String = text.chars().take(4 * EXCERPT_BYTES).map(printable).collect();
    cut(&line.split_whitespace().collect::<Vec<_>>().join(" "), EXCERPT_BYTES)
}
