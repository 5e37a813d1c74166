//! Predicates for serde's `skip_serializing_if`.

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
pub(crate) fn is_zero(n: &i64) -> bool {
    *n == 0
}
