//! BlueGreen and HardFork on the simulated cluster, by the unmodified operator.

mod applications;
mod blue_green;
mod build_ids;
mod failed;
mod given_up;
mod hard_fork;
mod heights;
mod in_place;
mod incumbents;
mod lost;
mod lost_fields;
mod lost_scenarios;
mod lost_subsets;
mod lost_watch;
mod no_longer;
mod past_return;
mod patience;
mod put_back;
mod retained;
mod supersede;
mod verbs;
mod walks;
pub mod world;
mod writes;
