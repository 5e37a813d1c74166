//! What of a peer's answer is repeated in a sentence.

use crate::engine::sentence::cut;

/// The most that is repeated of an answer, in bytes.
const EXCERPT_BYTES: usize = 160;

/// The beginning of a text from outside, on one line, short enough to be repeated in a status.
pub(super) fn excerpt(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let line: String = text.chars().take(4 * EXCERPT_BYTES).map(printable).collect();
    cut(&line.split_whitespace().collect::<Vec<_>>().join(" "), EXCERPT_BYTES)
}
