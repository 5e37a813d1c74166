//! StatefulSetRollouts: existing StatefulSets that are adopted, rolled out, rolled back and released.

mod adoption;
mod hooked;
mod planned;
mod rolled;
pub mod world;
