//! Predicates for serde: which fields are left out.

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
pub(crate) fn is_zero(n: &i64) -> bool {
    *n == 0
}
