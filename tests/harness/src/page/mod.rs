//! The page of `windlass dashboard` in a real browser.

pub mod browser;
pub mod dashboard;
