//! A build without extensions.
#![allow(
    clippy::unused_self,
    clippy::unused_async,
    clippy::unnecessary_wraps,
    reason = "others do something here"
)]

use std::sync::Arc;

use clap::{Args, Subcommand};
use windlass::internal::HookRules;
use windlass::operator::Controller;

/// The flags of `windlass operator`.
#[derive(Debug, Args)]
pub struct OperatorFlags {}

impl OperatorFlags {
    /// The controllers that the flags select, in these namespaces, or in all, under these rules for hooks.
    pub fn controllers(&self, _: &[String], _: &str, _: HookRules) -> Vec<Arc<dyn Controller>> {
        Vec::new()
    }
}

/// The flags of `windlass crds`.
#[derive(Debug, Args)]
pub struct CrdsFlags {}

impl CrdsFlags {
    /// The definitions that the flags select instead of those of fleets and nodes.
    pub fn yaml(&self) -> Option<String> {
        None
    }
}

/// Additional commands.
#[derive(Debug, Subcommand)]
pub enum Command {}

impl Command {
    pub async fn run(self) -> Result<(), String> {
        match self {}
    }
}
