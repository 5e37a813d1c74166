//! Panics anywhere in a run, including the operator's tasks. The operator catches them, goes on, and tries again: only
//! the hook hears of each.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Starts recording on this thread.
pub fn clear() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            HEARD.with(|heard| heard.borrow_mut().push(format!("oracle 6: a panic: {info}")));
            before(info);
        }));
    });
    HEARD.with(|heard| heard.borrow_mut().clear());
}

/// The panics since then.
pub fn take() -> Vec<String> {
    HEARD.with(|heard| heard.borrow_mut().drain(..).collect())
}
