//! Environments and their layers.

use std::sync::Arc;

use crate::{Env, TaskError};

#[test]
fn layer_adds_and_shadows_values_without_changing_its_parent() {
    let below = Env::new().with(1_u32).with("below");
    let above = below.layer().with(2_u32).with('x');
    assert_eq!(above.find::<u32>(), Some(&2));
    assert_eq!(above.find::<&str>(), Some(&"below"));
    assert_eq!(above.layer().layer().find::<char>(), Some(&'x'));
    assert_eq!(below.find::<u32>(), Some(&1));
    assert_eq!(below.find::<char>(), None);
}

#[test]
fn clone_shares_values_but_not_later_additions() {
    let first = Env::new().with(Arc::new(1_u32));
    let second = first.clone().with(2_u64);
    let shared = |env: &Env| Arc::as_ptr(env.find::<Arc<u32>>().unwrap());
    assert_eq!(shared(&first), shared(&second));
    assert_eq!(first.find::<u64>(), None);
    assert_eq!(first.with(5_u64).with(6_u64).find::<u64>(), Some(&6));
}

#[test]
fn missing_value_is_a_terminal_error_naming_its_type() {
    let TaskError::Terminal { message } = Env::new().with(1_u32).get::<Vec<u64>>().unwrap_err() else {
        panic!("it would be tried again for ever");
    };
    assert!(message.contains("Vec<u64>"), "{message}");
    assert_eq!(format!("{:?}", Env::new().with(1_u32).layer().with('x')), r#"{"char", "u32"}"#);
}
