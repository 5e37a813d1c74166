//! BlueGreen and HardFork on the simulated cluster, by the unmodified operator.

mod applications;
mod blue_green;
mod build_ids;
mod failed;
mod hard_fork;
mod killed;
mod lost;
mod random;
mod supersede;
mod verbs;
mod world;
