//! The cases, by subject.

mod applies;
mod collects;
mod creates;
mod deletes;
mod growths;
mod holds;
mod jobs;
mod lists;
mod patches;
mod platform;
mod pods;
mod retention;
mod revisions;
mod schemas;
mod sets;
mod statuses;
mod tables;
mod watches;
pub mod widget;

use super::suite::Case;

/// Lists the cases of a module: functions whose names are sentences.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const CASES: &[$crate::conformance::suite::Case] =
            &[$($crate::conformance::suite::Case { name: stringify!($name), run: |w| Box::pin($name(w)) }),*];
    };
}
pub(crate) use cases;

pub fn all() -> Vec<Case> {
    [
        creates::CASES,
        patches::CASES,
        statuses::CASES,
        deletes::CASES,
        collects::CASES,
        lists::CASES,
        watches::CASES,
        schemas::CASES,
        applies::CASES,
        pods::CASES,
        sets::CASES,
        retention::CASES,
        growths::CASES,
        revisions::CASES,
        holds::CASES,
        jobs::CASES,
        platform::CASES,
        tables::CASES,
    ]
    .concat()
}

/// The cases that the environment selects.
pub fn chosen() -> Vec<Case> {
    let word = std::env::var("CONFORMANCE_CASE").unwrap_or_default();
    all().into_iter().filter(|case| case.name.contains(&word)).collect()
}
