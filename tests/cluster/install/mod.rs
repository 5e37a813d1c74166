//! An administrator's work: installation with the chart or kustomize, upgrade, uninstallation, and monitoring with
//! Prometheus, on a real control plane whose nodes run the operator as a process.

mod chart;
mod documented;
mod helm;
mod image;
mod installed;
mod krew;
mod monitored;
mod monitors;
mod prose;
mod published;
mod references;
mod roles;
mod rules;
mod strings;
mod two;
