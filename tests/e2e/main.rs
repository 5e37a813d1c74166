//! Windlass on a real control plane: the shipped binary as the operator, with a service account of its own in each
//! test's namespace.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "what happens in other processes goes by the real clock")]

mod abort;
mod alternating;
mod answered;
mod as_written;
mod beside;
#[allow(dead_code, reason = "each test uses its own part of it")]
#[path = "../page/browser.rs"]
mod browser;
mod build_ids;
mod change;
mod children;
mod claims;
mod commands;
#[path = "../controlplane/mod.rs"]
mod controlplane;
#[allow(dead_code, reason = "each test uses its own part of it")]
#[path = "../page/dashboard.rs"]
mod dashboard;
#[path = "../install/debian.rs"]
mod debian;
mod deletion;
mod edits;
mod events;
mod eyes;
mod eyes_codes;
mod eyes_printed;
mod eyes_quota;
mod eyes_rights;
mod eyes_silent;
mod flags;
mod force;
mod foreign;
mod fresh;
mod gitops;
mod grants;
mod held;
mod hook_back;
mod hook_failures;
mod hook_jobs;
mod hook_kills;
mod hook_lists;
mod hook_plans;
mod hook_points;
mod hook_prometheus;
mod hooks;
mod killed;
#[allow(dead_code, reason = "each test uses its own part of it")]
mod kit;
mod kubectl;
mod kubelets;
mod leader;
mod leaving;
mod otlp;
mod outage;
mod page;
mod page_guarded;
mod patience;
#[allow(dead_code, reason = "each test uses its own part of it")]
mod peers;
mod planned;
#[allow(dead_code, reason = "the other one that plans has a use for the rest")]
#[path = "../planned/judge.rs"]
mod planned_judge;
mod plans;
mod platform;
mod policies;
mod proxy;
mod refused;
mod release;
mod restart;
mod revisions;
mod rights;
mod rollout;
#[allow(dead_code, reason = "each test uses its own part of it")]
mod sampler;
mod samples;
mod service;
mod sets;
mod sets_held;
mod sets_killed;
mod sidecar;
#[allow(dead_code, reason = "each test uses its own part of it")]
mod sidecars;
mod stall;
mod supersede;
#[allow(dead_code, reason = "each test uses its own part of it")]
mod tools;
mod traces;
mod upgraded;
mod verb_rights;
mod verbs;
mod walked;
mod wave;
mod waves;
