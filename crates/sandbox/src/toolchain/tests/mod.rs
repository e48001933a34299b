//! Whole hosts, laid out in a temporary directory.

mod cases;
mod fake;
pub(super) mod random;
mod real;
