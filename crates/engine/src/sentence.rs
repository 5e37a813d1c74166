//! Limits for texts in a status. Messages from API servers, kubelets and sidecars may be of any length, but the size of
//! an object's status is limited.

/// The longest message of a task, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1_024;

/// The longest failure of a plan, in bytes.
pub const MAX_FAILURE_BYTES: usize = 2_048;

const ELLIPSIS: char = '…';

/// The first few names, and the number of the others, for a message.
#[must_use]
pub fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The text, truncated between two characters to at most `max_bytes` bytes. A truncated text ends in an ellipsis; it is
/// empty if not even that fits.
#[must_use]
pub fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let Some(room) = max_bytes.checked_sub(ELLIPSIS.len_utf8()) else {
        return String::new();
    };
    let mut short = text[..text.floor_char_boundary(room)].to_owned();
    short.push(ELLIPSIS);
    short
}
