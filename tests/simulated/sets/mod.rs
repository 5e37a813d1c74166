//! BlueGreen and HardFork on the simulated cluster, by the unmodified operator.

mod alternating;
mod applications;
mod blue_green;
mod build_ids;
mod failed;
mod given_up;
mod hard_fork;
mod heights;
mod incumbents;
mod killed;
mod lost;
mod lost_fields;
mod lost_rollouts;
mod lost_scenarios;
mod lost_subsets;
mod lost_watch;
mod many;
mod no_longer;
mod past_return;
mod put_back;
mod random;
mod retained;
mod supersede;
mod verbs;
mod walks;
pub mod world;
mod writes;
