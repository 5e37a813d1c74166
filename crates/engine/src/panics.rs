//! Keeps a panic in one piece of work from ending all others.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use super::sentence::{MAX_MESSAGE_BYTES, cut};

/// Runs a future to its end. The error is a sentence about a panic in it: these words, and the panic's message. The
/// data that the future works on has to stay valid if the future stops halfway.
pub async fn caught<T>(what: &str, future: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|panic| sentence(what, &*panic))
}

/// Not every panic has a text.
fn sentence(what: &str, payload: &(dyn Any + Send)) -> String {
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    match formatted.or_else(|| payload.downcast_ref::<&str>().copied()) {
        Some(text) => cut(&format!("{what}: {text}"), MAX_MESSAGE_BYTES),
        None => what.to_owned(),
    }
}
